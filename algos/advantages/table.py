"""The rows that share statistics: all rollouts of a batch, or all its turns."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.segments import BoolArray, FloatArray, Segments


@dataclass(frozen=True, eq=False)
class Table:
    """Rollouts (n = N) or turns (n = M) as rows.

    Attributes:
        batch: where they are from.
        memory: what parts keep between updates.
        per_turn: whether the rows are turns.
        scored: (n,) rows that have a value, or None if all have.
    """

    batch: RolloutBatch
    memory: Memory
    per_turn: bool = False
    scored: BoolArray | None = None

    @functools.cached_property
    def counted(self) -> BoolArray:
        """(n,) rows that take part in statistics: of counted rollouts, and written by the policy."""
        batch = self.batch
        counted = batch.counted[batch.turn_rollout] & batch.written if self.per_turn else batch.counted
        return counted if self.scored is None else counted & self.scored

    @property
    def tokens(self) -> FloatArray:
        """(n,) counted token slots of each row."""
        return self.batch.tokens_per_turn.astype(float) if self.per_turn else self.batch.tokens_per_rollout

    def level(self, name: str) -> Segments:
        """Return the partition of the rows at a level."""
        return self.batch.turn_level(name) if self.per_turn else self.batch.level(name)

    def among(self, groups: Segments, counted: BoolArray) -> FloatArray:
        """Return (n,) how many counted rows each row's group has."""
        return groups.sum(counted.astype(float))[groups.ids]


def finite(name: str, values: FloatArray) -> FloatArray:
    """Return what is read of a column.

    Raises:
        ValueError: if some of it is not finite.
    """
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite where rollouts count; it holds {values[~np.isfinite(values)][0]}.")
    return values
