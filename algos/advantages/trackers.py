"""Baselines that are remembered from update to update: per prompt, or per environment.

A tracker is read while credit is computed and written after the optimiser's steps, so that no
rollout is compared with its own reward.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from algos.advantages.scales import SPREAD, with_eps, z_score
from algos.advantages.table import Table
from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import FloatArray, IntArray, Segments, difference, divide

Key = tuple[Any, Any]


@dataclass
class Keyed:
    """Arrays with one row per key (environment, id), grown as keys appear."""

    columns: dict[str, FloatArray]
    rows: dict[Key, int] = field(default_factory=dict)

    def find(self, batch: RolloutBatch, groups: Segments, ids: npt.NDArray[Any], start: dict[str, float]) -> IntArray:
        """Return (groups.size,) the rows of the batch's groups; new ones begin with ``start``."""
        first = np.zeros(groups.size, dtype=np.int64)
        first[groups.ids[::-1]] = np.arange(len(groups.ids))[::-1]
        keys = list(zip(batch.environment[first].tolist(), ids[first].tolist(), strict=True))
        missing = [key for key in keys if key not in self.rows]
        self.rows.update({key: len(self.rows) + i for i, key in enumerate(missing)})
        for name, value in start.items():
            old = self.columns.get(name, np.zeros(0))
            self.columns[name] = np.append(old, np.full(len(missing), value))
        return np.array([self.rows[key] for key in keys], dtype=np.int64)


def _prompts(batch: RolloutBatch, memory: Memory, start: float) -> tuple[Keyed, IntArray]:
    """Return SPO's tracker and the rows of the batch's prompts.

    Columns: ``value`` and ``evidence`` (the Beta distribution's mean and sum of parameters), and the
    update of the last visit.
    """
    tracker = memory.get("beta_tracker", lambda: Keyed({}))
    fresh = {"value": 0.5, "evidence": start, "visit": np.nan}
    return tracker, tracker.find(batch, batch.level("prompt"), batch.prompt, fresh)


def set_beta(batch: RolloutBatch, memory: Memory, value: FloatArray, evidence: float) -> None:
    """Put SPO's tracker of the batch's prompts, (groups,), at values of someone else's."""
    tracker, rows = _prompts(batch, memory, evidence)
    tracker.columns["value"][rows] = value
    tracker.columns["evidence"][rows] = evidence


def _write_beta(
    scheme: Scheme, batch: RolloutBatch, memory: Memory, *, forgetting: str, half_life: float, rho_low: float,
    rho_high: float, start: float,
) -> None:  # fmt: skip
    groups, counted = batch.level("prompt"), batch.counted.astype(float)
    tracker, rows = _prompts(batch, memory, start)
    now = memory.get("beta_clock", lambda: np.zeros(1))
    now += 1
    columns = tracker.columns
    visited = groups.sum(counted) > 0
    if forgetting == "drift":
        drift = np.nan_to_num(batch.column("drift"))
        rho = np.clip(2.0 ** (-groups.mean(drift, counted) / half_life), rho_low, rho_high)
    elif forgetting == "updates":
        since = now[0] - columns["visit"][rows]
        rho = rho_low ** np.where(np.isnan(since), 1.0, since)
    else:
        rho = np.full(groups.size, rho_low)
    evidence = rho * columns["evidence"][rows]
    total = evidence + groups.sum(counted)
    value = divide(evidence * columns["value"][rows] + groups.sum(batch.outcome), total)
    columns["value"][rows[visited]] = value[visited]
    columns["evidence"][rows[visited]] = total[visited]
    columns["visit"][rows[visited]] = now[0]


@part(
    "baseline_kind", "beta_tracker",
    source="SPO, arXiv 2509.13232; SEEN-NOTE (paper), SEEN-CODE. SPO++, arXiv 2608.24870; SEEN-NOTE",
    needs=["drift"], tags=["outside"], after_update=_write_beta,
    ranges={"half_life": (1e-9, np.inf), "rho_low": (0.0, 1.0), "rho_high": (0.0, 1.0), "start": (1e-9, np.inf)},
)  # fmt: skip
def beta_tracker(
    scheme: Scheme,
    values: FloatArray,
    groups: Segments,
    table: Table,
    *,
    forgetting: Literal["drift", "updates", "constant"] = "drift",
    half_life: float = 0.06,
    rho_low: float = 0.875,
    rho_high: float = 0.96,
    start: float = 1.0,
) -> FloatArray:
    """Subtract the prompt's tracked mean reward, from before this update.

    The tracker forgets by a factor rho before it takes new rewards in (several of one update at
    once). ``drift``: rho = 2 ** (-D / half_life) within [rho_low, rho_high], D the mean absolute
    log-ratio, on the prompt's last rollout, of the policies of the last visit and of now.
    ``updates``: rho_low to the power of the updates since the last visit (SPO++). ``constant``:
    rho_low. A prompt begins at 1/2 with evidence ``start`` (the code's alpha = beta = 0.5), or where
    ``algos.estimate_first_values`` puts it before training.
    """
    batch = table.batch
    tracker, rows = _prompts(batch, table.memory, start)
    baseline = tracker.columns["value"][rows][batch.level("prompt").ids]
    return values - (baseline[batch.turn_rollout] if table.per_turn else baseline)


def _environments(batch: RolloutBatch, memory: Memory) -> tuple[Keyed, IntArray]:
    tracker = memory.get("moving_average", lambda: Keyed({}))
    return tracker, tracker.find(batch, batch.level("environment"), batch.environment, {"value": 0.0})


def _write_average(scheme: Scheme, batch: RolloutBatch, memory: Memory, *, decay: float) -> None:
    groups, counted = batch.level("environment"), batch.counted.astype(float)
    tracker, rows = _environments(batch, memory)
    visited = groups.sum(counted) > 0
    value = tracker.columns["value"]
    value[rows[visited]] = (decay * value[rows] + (1.0 - decay) * groups.mean(batch.outcome, counted))[visited]


@part(
    "baseline_kind", "moving_average",
    source="RAE in SPIRAL, arXiv 2506.24119; SEEN-CODE; one step per update is INFERRED",
    tags=["outside"], after_update=_write_average, ranges={"decay": (0.0, 1.0)},
)  # fmt: skip
def moving_average(
    scheme: Scheme, values: FloatArray, groups: Segments, table: Table, *, decay: float = 0.95
) -> FloatArray:
    """Subtract the environment's moving average of mean rewards, which starts at 0."""
    batch = table.batch
    tracker, rows = _environments(batch, table.memory)
    baseline = tracker.columns["value"][rows][batch.level("environment").ids]
    return values - (baseline[batch.turn_rollout] if table.per_turn else baseline)


HISTORY = {"visits": 0.0, "mean": 0.0, "variance": 0.0}


def _history(batch: RolloutBatch, memory: Memory) -> tuple[Keyed, IntArray]:
    tracker = memory.get("prompt_history", lambda: Keyed({}))
    return tracker, tracker.find(batch, batch.level("prompt"), batch.prompt, HISTORY)


def _cumulative(scheme: Scheme, batch: RolloutBatch, memory: Memory) -> dict[str, FloatArray]:
    """Return each prompt's statistics over all visits, the present one included."""
    groups, counted = batch.level("prompt"), batch.counted.astype(float)
    tracker, rows = _history(batch, memory)
    t, old_mean, old_variance = (tracker.columns[name][rows] for name in HISTORY)
    mean = groups.mean(batch.outcome, counted)
    variance = groups.spread(batch.outcome, counted, scheme.ddof) ** 2
    change = difference(mean, np.where(t > 0, old_mean, mean))
    return {
        "visits": t + 1,
        "mean": (old_mean * t + mean) / (t + 1),
        "variance": (t * old_variance + variance + t / (t + 1) * change**2) / (t + 1),
    }


def _write_history(scheme: Scheme, batch: RolloutBatch, memory: Memory) -> None:
    tracker, rows = _history(batch, memory)
    visited = batch.level("prompt").sum(batch.counted.astype(float)) > 0
    for name, values in _cumulative(scheme, batch, memory).items():
        tracker.columns[name][rows[visited]] = values[visited]


@part(
    "signal", "smooth", source="DCPO's smooth advantage, arXiv 2509.02333; SEEN-CODE", uses=SPREAD,
    after_update=_write_history,
)  # fmt: skip
def smooth(scheme: Scheme, batch: RolloutBatch, memory: Memory) -> FloatArray:
    """Mix the z-score over this update's group with that over all visits of the prompt, (N,).

    At the i-th visit the two mixtures weigh the new one by (i - 1) / i and by 1 / i; the one nearer
    to 0 is taken. Prompts whose rewards are all equal now, but were not always, keep a signal.
    """
    groups = batch.level("prompt")
    new = z_score(scheme, batch.outcome, groups, batch.counted.astype(float))
    over_all = _cumulative(scheme, batch, memory)
    visits = over_all["visits"][groups.ids]
    total = difference(batch.outcome, over_all["mean"][groups.ids])
    total = divide(total, with_eps(scheme, np.sqrt(over_all["variance"]))[groups.ids])
    one = ((visits - 1) * new + total) / visits
    other = (new + (visits - 1) * total) / visits
    return np.where(batch.counted, np.where(np.abs(one) < np.abs(other), one, other), 0.0)
