"""Putting rollouts of several collections together, and keeping some of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from algos.batch import RolloutBatch
from algos.collector import Trajectories
from algos.segments import IntArray

Array = npt.NDArray[Any]

PER_ROLLOUT = frozenset(
    {
        "returns", "prompt", "environment", "task", "valid", "components", "success", "truncated", "greedy_return",
        "drift", "context", "final_value", "score", "terminated", "rollout",
    }
)  # fmt: skip
PER_TURN = frozenset(
    {
        "turn_reward", "token_mask", "information_gain", "process_reward", "state_key", "entropy", "log_prob",
        "probability_square", "value", "token_value", "token_penalty", "features", "state", "position", "previous",
        "ground_truth", "stale",
    }
)  # fmt: skip
"""Columns of ``RolloutBatch`` and of ``Trajectories`` with one row per rollout, or per turn."""


def join(parts: Sequence[Trajectories]) -> Trajectories:
    """Return all rollouts in one table; a column that some parts lack is left out.

    Raises:
        ValueError: if there are no parts.
    """
    if not parts:
        raise ValueError("parts=[] is not allowed: there must be at least one.")
    if len(parts) == 1:
        return parts[0]
    offset = np.cumsum([0, *(len(part.batch) for part in parts)])
    owner = np.concatenate([part.batch.turn_rollout + first for part, first in zip(parts, offset, strict=False)])

    def together(tables: Sequence[Any], name: str) -> Array | None:
        columns = [getattr(table, name) for table in tables]
        return None if any(column is None for column in columns) else np.concatenate(columns)

    batches = [part.batch for part in parts]
    batch = _rebuilt(batches[0], lambda name: together(batches, name), owner)
    batch = dataclasses.replace(batch, max_tokens=max(b.max_tokens for b in batches))
    return _rebuilt(parts[0], lambda name: together(parts, name), batch)


def choose(data: Trajectories, rollouts: npt.ArrayLike) -> Trajectories:
    """Return some rollouts, in the given order.

    Args:
        data: N rollouts.
        rollouts: rows of the rollouts to keep, all different, or (N,) bool.
    """
    kept = np.asarray(rollouts)
    kept = np.flatnonzero(kept) if kept.dtype == np.bool_ else kept.astype(np.int64)
    place = np.full(len(data.batch), -1)
    place[kept] = np.arange(len(kept))
    owner = place[data.batch.turn_rollout]
    turns = np.flatnonzero(owner >= 0)

    def part_of(table: Any, name: str) -> Array | None:
        column = getattr(table, name)
        return None if column is None else column[kept if name in PER_ROLLOUT else turns]

    batch = _rebuilt(data.batch, lambda name: part_of(data.batch, name), owner[turns])
    return _rebuilt(data, lambda name: part_of(data, name), batch)


def _rebuilt(table: Any, column: Callable[[str], Array | None], rest: IntArray | RolloutBatch) -> Any:
    """Return a copy of a table with new columns; ``rest`` is the one that is neither per rollout nor turn."""
    names = {f.name for f in dataclasses.fields(table)} & (PER_ROLLOUT | PER_TURN)
    special = "batch" if isinstance(rest, RolloutBatch) else "turn_rollout"
    return dataclasses.replace(table, **{name: column(name) for name in names}, **{special: rest})
