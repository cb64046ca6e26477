"""Credit by turn: how large each scheme's advantages are at every turn of the same rollouts.

    python -m benchmarks.credit                               # the table
    python -m benchmarks.credit --json results/credit.json    # and its numbers

A warm-started policy answers multi-hop questions and is not trained, so all schemes credit the same
rollouts. Beside whole advantages the part that comes from information gains is measured on its own,
against the number of gains that it adds up.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console
from rich.table import Table

import agentic_gym  # noqa: F401
from algos import GroupPPO
from algos.advantages import advantages
from algos.batch import RolloutBatch
from algos.collector import Trajectories
from algos.threads import limit_threads
from algos.warmstart import warmstart
from benchmarks.statistics import bootstrap_interval
from benchmarks.store import write_text

FloatArray = npt.NDArray[np.float64]
ENVIRONMENT = "agentic_gym/SearchHard-v0"
PROMPTS, GROUP_SIZE = 32, 8
BASE_SUCCESS = 0.3
BY_TURN = "igpo:pool=turn,outcome_in_sum=false"
"""A2TGPO's credit but for its accumulation, which is a plain sum here."""
SCHEMES = ("grpo", "grpo:signal=return_to_go,gamma=1", "igpo", BY_TURN, "a2tgpo", "gigpo")
ACCUMULATIONS = {name: f"{BY_TURN},accumulation={name}" for name in ("none", "sum", "root")}
OUTCOME = f"{BY_TURN},gain_weight=0"
"""The same credit without its gains: what is left is the outcome's part."""
FEWEST_TURNS = 8
"""A mean over fewer turns of a batch is not taken; a point that lacks it in some batch is not shown."""


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        n: batches of rollouts, at least 2.
        seed: of the base policy and of the rollouts.
        json: where to write the numbers; None writes nothing.
    """

    n: int = 24
    seed: int = 0
    json: Path | None = None


@dataclass(frozen=True)
class Curve:
    """Mean absolute credit with 95 % bootstrap intervals over batches.

    Attributes:
        name: the scheme, or the kind of accumulation.
        x: turn index from 1, or number of gains added up.
        mean, low, high: at each of them.
    """

    name: str
    x: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def collect_batches(
    n: int,
    seed: int = 0,
    environment: str = ENVIRONMENT,
    n_prompts: int = PROMPTS,
    rollouts: int = 2048,
    group_size: int = GROUP_SIZE,
    env_kwargs: Mapping[str, Any] | None = None,
) -> list[Trajectories]:
    """Return rollouts of a warm-started policy with all that the schemes need; nothing is trained.

    Args:
        n: number of batches.
        seed: of the base policy and of the rollouts.
        environment: id of an environment with an expert and ground truth.
        n_prompts: groups per batch.
        rollouts: demonstrations for the warm start.
        group_size: rollouts per group.
        env_kwargs: changes of the environment.
    """
    model = GroupPPO(
        "MessagePolicy", environment, scheme="igpo", n_prompts=n_prompts, group_size=group_size, seed=seed,
        diagnostics_interval=0, env_kwargs=env_kwargs or None,
    )  # fmt: skip
    with warnings.catch_warnings():
        # Short of the band is no fault here: the success that was reached is stored.
        warnings.filterwarnings("ignore", message="warmstart:")
        warmstart(model, BASE_SUCCESS, rollouts=rollouts, seed=seed)
    kept: list[Trajectories] = []

    def keep(data: Trajectories) -> None:
        kept.append(data)

    model.train = keep  # type: ignore[method-assign]
    while len(kept) < n:
        model.learn(1, reset_num_timesteps=not kept, log_interval=None)
    return kept


def gain_part(scheme: str, batch: RolloutBatch) -> FloatArray:
    """Return (M,) a scheme's credit for gains: its advantages less those of the outcome alone."""
    return advantages(scheme, batch) - advantages(OUTCOME, batch)


def gains_ahead(batch: RolloutBatch) -> npt.NDArray[np.int64]:
    """Return (M,) how many gains a turn's credit adds up: its own and those of later turns; an answer has none."""
    return batch.written_turns[batch.turn_rollout].astype(np.int64) - 1 - batch.written_index


def curve(name: str, credit: Sequence[FloatArray], x: Sequence[npt.NDArray[np.int64]]) -> Curve:
    """Average absolute credit over the turns of each batch with equal x, then over batches.

    Args:
        name: of the curve.
        credit: (M,) per batch.
        x: (M,) per batch, at least 0.
    """
    size = 1 + max(int(positions.max(initial=0)) for positions in x)
    counts = np.array([np.bincount(positions, minlength=size) for positions in x])
    sums = np.array([np.bincount(at, np.abs(values), size) for at, values in zip(x, credit, strict=True)])
    shown = np.flatnonzero((counts >= FEWEST_TURNS).all(axis=0))
    found = [bootstrap_interval(sums[:, index] / counts[:, index]) for index in shown]
    return Curve(
        name, tuple(shown.tolist()),
        mean=tuple(round(interval.estimate, 6) for interval in found),
        low=tuple(round(interval.low, 6) for interval in found),
        high=tuple(round(interval.high, 6) for interval in found),
    )  # fmt: skip


def measure(batches: Sequence[Trajectories]) -> dict[str, Any]:
    """Return the curves of all schemes by turn, and of all accumulations by the number of gains."""
    tables = [data.batch for data in batches]
    turn = [batch.turn_index + 1 for batch in tables]
    kept = [gains_ahead(batch) > 0 for batch in tables]
    ahead = [gains_ahead(batch)[rows] for batch, rows in zip(tables, kept, strict=True)]
    by_turn = [curve(scheme, [advantages(scheme, batch) for batch in tables], turn) for scheme in SCHEMES]
    by_gains = [
        curve(name, [gain_part(scheme, batch)[rows] for batch, rows in zip(tables, kept, strict=True)], ahead)
        for name, scheme in ACCUMULATIONS.items()
    ]
    return {
        "success": round(float(np.mean([data.success.mean() for data in batches])), 6),
        "turns_per_rollout": round(float(np.mean([batch.turns_per_rollout.mean() for batch in tables])), 6),
        "by_turn": [asdict(entry) for entry in by_turn],
        "by_gains": [asdict(entry) for entry in by_gains],
    }


def show(title: str, position: str, curves: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of curves, one row each."""
    columns = sorted({x for entry in curves for x in entry["x"]})
    table = Table(position, *map(str, columns), title=title)
    for entry in curves:
        found = dict(zip(entry["x"], entry["mean"], strict=True))
        table.add_row(entry["name"], *(f"{found[x]:.2f}" if x in found else "" for x in columns))
    return table


def main(options: Options) -> None:
    """Measure, print and write."""
    if options.n < 2:
        raise SystemExit(f"error: 'n' must be at least 2. Got {options.n} instead.")
    with limit_threads(1):
        seen = measure(collect_batches(options.n, options.seed))
    console = Console(width=140)
    console.print(show("mean |advantage| by turn", "turn", seen["by_turn"]))
    console.print(show("mean |gain part| by number of gains added up", "gains", seen["by_gains"]))
    if options.json is not None:
        document = {
            "command": f"python -m benchmarks.credit --n {options.n} --seed {options.seed}",
            "environment": ENVIRONMENT, "n": options.n, "rollouts": PROMPTS * GROUP_SIZE, "group_size": GROUP_SIZE,
            "seed": options.seed, **seen,
        }  # fmt: skip
        write_text(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
