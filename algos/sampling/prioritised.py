"""Prompts by what a tracker knows of them."""

from __future__ import annotations

import numpy as np

from algos.advantages import trackers
from algos.advantages.trackers import Keyed
from algos.batch import RolloutBatch
from algos.collector import Trajectories
from algos.memory import Memory
from algos.parts import part
from algos.sampling.trainer import Trainer
from algos.scheme import Scheme
from algos.segments import FloatArray, IntArray

UNSEEN = 0.5
"""Tracked value of a prompt that was never visited."""
FORGETTING = {"forgetting": "updates", "half_life": 0.06, "rho_low": 0.875, "rho_high": 0.96, "start": 1.0}
"""How the tracker forgets where the scheme's baseline does not keep it: as SPO++."""


def _after_update(scheme: Scheme, batch: RolloutBatch, memory: Memory, **_: float) -> None:
    """Write the tracker, unless the scheme's baseline does."""
    if not any(p.axis == "baseline_kind" and p.name == "beta_tracker" for p in scheme.parts):
        trackers._write_beta(scheme, batch, memory, **FORGETTING)  # type: ignore[arg-type]


@part(
    "sampling", "prioritised",
    source="SPO, arXiv 2509.13232; SEEN-NOTE (paper), SEEN-CODE; size of the pool, unseen prompts: INFERRED",
    after_update=_after_update,
    ranges={"candidates": (1, 2**20), "evidence_power": (0.0, 1.0), "weight_floor": (1e-9, np.inf)},
)  # fmt: skip
def prioritised(
    scheme: Scheme,
    trainer: Trainer,
    *,
    candidates: int = 256,
    evidence_power: float = 0.0,
    weight_floor: float = 0.05,
) -> Trajectories | None:
    """Draw prompts whose tracked success is least certain more often, without replacement.

    The weight of a prompt is sqrt(v (1 - v)) / evidence ** evidence_power + weight_floor, with v and
    evidence of SPO's tracker (the baseline kind ``beta_tracker``; without it the sampler keeps the
    same tracker, which forgets as SPO++'s). The power is 0 in the code and between 0 and 1 in the
    paper. Prompts that were never visited have v = 1/2 and the evidence of a new entry.

    * ``candidates``: so many prompts, the next in uniform order, are the pool of one update (the
      code's has about 14 per drawn prompt).

    The tracker is in the rewards' units: outside [0, 1] a prompt has the least weight.
    """
    n, pool = trainer.n_prompts, np.unique(trainer.prompts.draw(min(candidates, trainer.rows.num_prompts)))
    tracker = trainer.memory.get("beta_tracker", lambda: Keyed({}))
    start = dict(scheme.options).get("start", FORGETTING["start"])
    weight = weights(pool, tracker, evidence_power, weight_floor, start)
    # As the source: only a pool that is too small is drawn from with replacement.
    chosen = trainer.random.choice(pool, size=n, replace=n > len(pool), p=weight / weight.sum())
    return trainer.run(np.repeat(chosen, trainer.group_size))


def weights(prompt: IntArray, tracker: Keyed, power: float, floor: float, start: float = 1.0) -> FloatArray:
    """Return the weights (n,) of prompts, not normalised; ``start`` is the evidence of unseen ones."""
    row = {key[1]: index for key, index in tracker.rows.items()}
    rows = np.array([row.get(p, -1) for p in prompt.tolist()])
    value, evidence = np.full(len(rows), UNSEEN), np.full(len(rows), start)
    known = rows >= 0
    if known.any():
        value[known], evidence[known] = (tracker.columns[name][rows[known]] for name in ("value", "evidence"))
    return np.sqrt(np.maximum(value * (1.0 - value), 0.0)) / evidence**power + floor
