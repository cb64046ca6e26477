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
        ids, size = numbered(columns[0])
        for column in columns[1:]:
            ids, size = paired((ids, size), numbered(column))
        return cls(ids, size)

    def matrices(self, counted: BoolArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield, for every number s of counted rows that occurs, (segments (g,), their rows (g, s)).

        Rows are in order of appearance. One pass per distinct size, none per row.
        """
        rows = np.flatnonzero(counted)
        rows = rows[stable_order(self.ids[rows], self.size)]
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

    def deviations(self, values: FloatArray, weights: FloatArray) -> FloatArray:
        """Values less their segment's weighted mean, (n,); rows of weight 0 get 0.

        What is no more than rounding of the segment's largest value is an exact 0.
        """
        kept = weights > 0
        values = np.where(kept, values, 0.0)
        centred = values - self.mean(values, weights)[self.ids]
        rounding = RELATIVE_TOLERANCE * self.largest(values)[self.ids]
        centred[~kept | (np.abs(centred) <= rounding)] = 0.0
        return centred

    def spread(self, values: FloatArray, weights: FloatArray, ddof: int) -> FloatArray:
        """Weighted standard deviation per segment, (size,).

        0 where the segment has too few rows for ``ddof`` or its values agree up to
        ``RELATIVE_TOLERANCE``.
        """
        return self.root_mean_square(self.deviations(values, weights), weights, ddof)

    def root_mean_square(self, values: FloatArray, weights: FloatArray, ddof: int) -> FloatArray:
        """Root of the weighted mean square per segment, (size,), with ``ddof`` less in the count."""
        freedom = self.sum(weights) - ddof
        squares = self.sum(weights * values**2)
        return np.sqrt(np.where(freedom > 0, divide(squares, freedom), 0.0))

    def largest(self, values: FloatArray) -> FloatArray:
        """Largest absolute value per segment, (size,); 0 for empty ones."""
        result = np.zeros(self.size)
        np.maximum.at(result, self.ids, np.abs(values))
        return result

    def constant(self, values: FloatArray, counted: BoolArray) -> BoolArray:
        """Whether the counted values of a segment agree up to rounding, (size,)."""
        low, high = np.full(self.size, np.inf), np.full(self.size, -np.inf)
        ids = self.ids[counted]
        np.minimum.at(low, ids, values[counted])
        np.maximum.at(high, ids, values[counted])
        largest = np.maximum(np.abs(low), np.abs(high))
        empty = high < low
        return empty | (np.where(empty, 0.0, high - low) <= RELATIVE_TOLERANCE * np.where(empty, 1.0, largest))


def numbered(values: npt.NDArray[np.generic]) -> tuple[IntArray, int]:
    """Number the distinct values in ascending order: (ids (n,), how many there are)."""
    if values.dtype.kind in "iu" and len(values):
        low, high = int(values.min()), int(values.max())
        # A table of all values in between is much faster than sorting, if it is small.
        if high - low < 4 * len(values):
            offset = np.subtract(values, low, dtype=values.dtype if values.dtype.itemsize == 8 else np.int64)
            present = np.zeros(high - low + 1, dtype=np.bool_)
            present[offset] = True
            return (np.cumsum(present) - 1)[offset], int(np.count_nonzero(present))
    distinct, ids = np.unique(values, return_inverse=True)
    return ids.astype(np.int64), len(distinct)


def paired(one: tuple[IntArray, int], other: tuple[IntArray, int]) -> tuple[IntArray, int]:
    """Number the distinct pairs of two columns, each given as (ids (n,), how many), in ascending order."""
    order = stable_order(*other)
    order = order[stable_order(one[0][order], one[1])]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (np.diff(one[0][order]) != 0) | (np.diff(other[0][order]) != 0)
    ids = np.empty(len(order), dtype=np.int64)
    ids[order] = np.cumsum(new) - 1
    return ids, int(np.count_nonzero(new))


def stable_order(ids: IntArray, size: int) -> IntArray:
    """Return the rows (n,) ordered by ids in [0, size); rows of one id keep their order."""
    # NumPy sorts short integers in linear time.
    return np.argsort(ids.astype(np.uint16) if size <= 2**16 else ids, kind="stable")


def totals(ids: IntArray, values: npt.ArrayLike, size: int) -> FloatArray:
    """Sum values (n,) by ids (n,) in [0, size), (size,)."""
    return np.asarray(np.bincount(ids, weights=values, minlength=size), dtype=np.float64)


def row_sums(parts: FloatArray) -> FloatArray:
    """Sum each row of (n, K), with an exact 0 where its parts cancel up to rounding."""
    total: FloatArray = parts.sum(axis=1)
    total[np.abs(total) <= RELATIVE_TOLERANCE * np.abs(parts).sum(axis=1)] = 0.0
    return total


def difference(values: FloatArray, baseline: FloatArray) -> FloatArray:
    """Return values less their baseline (n,), with an exact 0 where they agree up to rounding."""
    result = values - baseline
    result[np.abs(result) <= RELATIVE_TOLERANCE * np.abs(values)] = 0.0
    return result


def divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide, with 0 where the denominator is 0."""
    safe = np.where(denominator == 0, 1.0, denominator)
    return np.where(denominator == 0, 0.0, numerator / safe)
