"""Statistics by integer key: the rollouts of one prompt, environment, turn, ...

All functions take values (n,) and dense segment ids (n,) in [0, size), and compute in float64 with
two passes, so that a large common offset costs no precision. Rows of weight 0 may hold anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

RELATIVE_TOLERANCE = 1e-12
"""Values of a segment that differ by less than this share of their size count as equal."""


@dataclass(frozen=True)
class Segments:
    """A partition of n rows.

    Attributes:
        ids: (n,) dense ids.
        size: number of segments.
    """

    ids: IntArray
    size: int

    @classmethod
    def by(cls, *columns: npt.NDArray[np.generic]) -> Segments:
        """Group rows whose values agree in all columns (integers or strings)."""
        dense = np.zeros(len(columns[0]), dtype=np.int64)
        size = 1
        for column in columns:
            values, inverse = np.unique(column, return_inverse=True)
            dense, size = dense * len(values) + inverse, size * len(values)
        values, ids = np.unique(dense, return_inverse=True)
        return cls(ids.astype(np.int64), len(values))

    def matrices(self, counted: BoolArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield, for every number s of counted rows that occurs, (segments (g,), their rows (g, s)).

        Rows are in order of appearance. One pass per distinct size, none per row.
        """
        rows = np.flatnonzero(counted)
        rows = rows[np.argsort(self.ids[rows], kind="stable")]
        count = np.bincount(self.ids[rows], minlength=self.size)
        first = np.cumsum(count) - count
        for size in np.unique(count[count > 0]):
            segments = np.flatnonzero(count == size)
            yield segments, rows[first[segments][:, None] + np.arange(size)]

    def sum(self, values: FloatArray) -> FloatArray:
        """Sum per segment, (size,)."""
        return totals(self.ids, values, self.size)

    def mean(self, values: FloatArray, weights: FloatArray) -> FloatArray:
        """Weighted mean per segment, (size,); 0 where the weights sum to 0."""
        return divide(self.sum(np.where(weights > 0, values, 0.0) * weights), self.sum(weights))

    def spread(self, values: FloatArray, weights: FloatArray, ddof: int) -> FloatArray:
        """Weighted standard deviation per segment, (size,).

        0 where the segment has too few rows for ``ddof`` or its values agree up to
        ``RELATIVE_TOLERANCE``.
        """
        centred = np.where(weights > 0, values, 0.0) - self.mean(values, weights)[self.ids]
        squares = self.sum(weights * centred**2)
        freedom = self.sum(weights) - ddof
        variance = np.where(freedom > 0, divide(squares, freedom), 0.0)
        return np.where(self.constant(values, weights > 0), 0.0, np.sqrt(variance))

    def constant(self, values: FloatArray, counted: BoolArray) -> BoolArray:
        """Whether the counted values of a segment agree up to rounding, (size,)."""
        low, high = np.full(self.size, np.inf), np.full(self.size, -np.inf)
        ids = self.ids[counted]
        np.minimum.at(low, ids, values[counted])
        np.maximum.at(high, ids, values[counted])
        largest = np.maximum(np.abs(low), np.abs(high))
        empty = high < low
        return empty | (np.where(empty, 0.0, high - low) <= RELATIVE_TOLERANCE * np.where(empty, 1.0, largest))


def totals(ids: IntArray, values: npt.ArrayLike, size: int) -> FloatArray:
    """Sum values (n,) by ids (n,) in [0, size), (size,)."""
    return np.asarray(np.bincount(ids, weights=values, minlength=size), dtype=np.float64)


def divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide, with 0 where the denominator is 0."""
    safe = np.where(denominator == 0, 1.0, denominator)
    return np.where(denominator == 0, 0.0, numerator / safe)
