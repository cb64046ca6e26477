"""Statistics by key against plain loops."""

import math

import numpy as np
import pytest

from algos.segments import (
    RELATIVE_TOLERANCE,
    Segments,
    difference,
    divide,
    numbered,
    row_sums,
    stable_order,
    totals,
)


def ragged(seed, groups=200):
    """Rows of ``groups`` groups of 1 to 9, shuffled, with weights of which some are 0."""
    random = np.random.default_rng(seed)
    ids = np.repeat(np.arange(groups), random.integers(1, 10, groups))
    random.shuffle(ids)
    values = random.normal(size=len(ids)) * 10.0 ** random.integers(-3, 4, groups)[ids]
    weights = random.integers(0, 4, len(ids)).astype(np.float64)
    return ids, values, weights


def loop_statistics(ids, values, weights, ddof):
    """Mean and spread per group, two-pass with exact sums."""
    means, spreads = [], []
    for group in range(ids.max() + 1):
        rows = [(v, w) for i, v, w in zip(ids, values, weights, strict=True) if i == group and w > 0]
        total = math.fsum(w for _, w in rows)
        mean = math.fsum(v * w for v, w in rows) / total if rows else 0.0
        squares = math.fsum(w * (v - mean) ** 2 for v, w in rows)
        constant = not rows or max(v for v, _ in rows) - min(v for v, _ in rows) == 0
        means.append(mean)
        spreads.append(0.0 if constant or total <= ddof else math.sqrt(squares / (total - ddof)))
    return np.array(means), np.array(spreads)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_statistics_equal_loops_on_200_ragged_groups(seed, ddof):
    ids, values, weights = ragged(seed)
    segments = Segments.by(ids)
    for used in (np.ones(len(ids)), weights):
        mean, spread = loop_statistics(ids, values, used, ddof)
        np.testing.assert_allclose(segments.mean(values, used), mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(segments.spread(values, used, ddof), spread, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        segments.sum(values), [math.fsum(values[ids == i]) for i in range(segments.size)], rtol=1e-12
    )


def test_groups_are_rows_that_agree_in_every_column():
    environment, prompt = np.array(["a", "b", "a", "b"]), np.array([-1, -1, -1, 5])
    segments = Segments.by(environment, prompt)
    assert segments.size == 3
    assert segments.ids[0] == segments.ids[2]
    assert len(set(segments.ids.tolist())) == 3


def test_ids_stay_dense_with_many_distinct_keys():
    keys = np.random.default_rng(0).integers(-(2**62), 2**62, 3000)
    segments = Segments.by(keys, keys[::-1], keys)
    assert segments.size == 3000
    assert sorted(segments.ids.tolist()) == list(range(3000))


def test_p22_rows_of_weight_zero_may_hold_anything():
    ids, weights = np.array([0, 0, 0, 1, 1, 1]), np.array([1.0, 1, 0, 1, 0, 0])
    values = np.array([1.0, 3, np.nan, 5, np.inf, -1e300])
    segments = Segments.by(ids)
    assert segments.mean(values, weights).tolist() == [2.0, 5.0]
    assert segments.spread(values, weights, 1).tolist() == [pytest.approx(math.sqrt(2)), 0.0]
    one = Segments.by(np.zeros(6))
    assert one.mean(values, weights).tolist() == [3.0]
    assert one.spread(values, weights, 0)[0] ** 2 == pytest.approx(2.6667, abs=1e-4)
    assert one.constant(values, weights > 0).tolist() == [False]


def test_too_few_rows_and_empty_segments_have_no_spread():
    segments = Segments(np.array([0, 2, 2]), 3)
    values, weights = np.array([5.0, 1.0, 2.0]), np.array([1.0, 0.0, 0.0])
    assert segments.spread(values, weights, 1).tolist() == [0.0, 0.0, 0.0]
    assert segments.mean(values, weights).tolist() == [5.0, 0.0, 0.0]
    assert segments.constant(values, weights > 0).tolist() == [True, True, True]


@pytest.mark.parametrize("size", [1.0, 1e-200, 1e6, 1e200])
def test_p04_constant_is_relative_to_size(size):
    ids = np.zeros(2, dtype=np.int64)
    everyone = np.ones(2, dtype=np.bool_)
    near = size * np.array([1.0, 1.0 + RELATIVE_TOLERANCE / 3])
    far = size * np.array([1.0, 1.0 + RELATIVE_TOLERANCE * 3])
    assert Segments(ids, 1).constant(near, everyone).tolist() == [True]
    assert Segments(ids, 1).constant(far, everyone).tolist() == [False]
    assert Segments(ids, 1).constant(-near, everyone).tolist() == [True]
    assert Segments(ids, 1).constant(np.array([0.0, size]), everyone).tolist() == [False]
    assert Segments(ids, 1).constant(np.array([-size, size]), everyone).tolist() == [False]


def test_p03_a_large_offset_costs_no_precision():
    ids, weights = np.array([0, 0, 1, 1]), np.ones(4)
    values = np.array([1e6, 1e6 + 1, 1.0, 1.00001])
    spread = Segments.by(ids).spread(values, weights, 1)
    np.testing.assert_allclose(spread, [math.sqrt(0.5), 1e-5 * math.sqrt(0.5)], rtol=1e-9)


def test_divide_and_totals():
    assert divide(np.array([1.0, 0.0, 3.0]), np.array([2.0, 0.0, 0.0])).tolist() == [0.5, 0.0, 0.0]
    assert totals(np.array([2, 0, 2]), np.array([1, 2, 3]), 4).tolist() == [2.0, 0.0, 4.0, 0.0]
    assert totals(np.zeros(0, dtype=np.int64), np.zeros(0), 2).dtype == np.float64


@pytest.mark.parametrize(
    "values",
    [
        np.array([3, -2, 3, 7, -2]),
        np.array([3, -2, 3, 7, -2]) * 10**15,
        np.array([100, -100, 100, 127, -100], dtype=np.int8),
        np.array([2**64 - 1, 2**64 - 4, 2**64 - 1, 2**64 - 1, 2**64 - 4], dtype=np.uint64),
        np.array([-(2**63), 2**63 - 1, -(2**63), 0, 2**63 - 1]),
        np.array(["b", "a", "b", "c", "a"]),
        np.array([True, False, True, True, False]),
        np.zeros(0, dtype=np.int64),
    ],
    ids=lambda values: f"{values.dtype} {values.tolist()[:2]}",
)
def test_numbers_of_distinct_values(values):
    ids, size = numbered(values)
    expected, inverse = np.unique(values, return_inverse=True)
    assert size == len(expected)
    assert ids.tolist() == inverse.tolist()
    assert ids.dtype == np.int64


@pytest.mark.parametrize("size", [1, 40, 2**16, 2**16 + 1, 10**9])
def test_order_by_ids_keeps_the_order_of_equals(size):
    ids = np.random.default_rng(0).integers(max(size - 100, 0), size, 1000)
    order = stable_order(ids, size)
    assert order.tolist() == sorted(range(1000), key=lambda row: ids[row])


def test_groups_by_several_columns_are_those_of_tuples():
    random = np.random.default_rng(0)
    columns = [random.integers(0, 5, 500), random.integers(-2**60, 2**60, 3)[random.integers(0, 3, 500)],
               random.choice(["x", "y"], 500)]  # fmt: skip
    segments = Segments.by(*columns)
    keys = list(zip(*(column.tolist() for column in columns), strict=True))
    number = {key: i for i, key in enumerate(sorted(set(keys)))}
    assert segments.size == len(number)
    assert segments.ids.tolist() == [number[key] for key in keys]


def test_matrices_hold_every_counted_row_once():
    ids, _, weights = ragged(0)
    counted = weights > 0
    segments, rows = Segments.by(ids), []
    for chosen, matrix in segments.matrices(counted):
        assert matrix.shape[0] == len(chosen)
        assert (np.diff(matrix, axis=1) > 0).all()
        assert (segments.ids[matrix] == chosen[:, None]).all()
        rows += matrix.ravel().tolist()
    assert sorted(rows) == np.flatnonzero(counted).tolist()


def test_deviations_are_exactly_zero_where_they_are_rounding():
    ids = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    values = np.array([0.1, 0.2, 0.3, 0.1 + 0.2, 0.3, 1e6 + 0.1, 1e6 + 0.2, 1e6 + 0.3])
    centred = Segments(ids, 3).deviations(values, np.ones(8))
    assert centred[[1, 3, 4, 6]].tolist() == [0.0] * 4
    np.testing.assert_allclose(centred[[0, 2, 5, 7]], [-0.1, 0.1, -0.1, 0.1], rtol=1e-8)
    anything = np.array([np.nan, 1.0, 3.0])
    assert Segments(np.zeros(3, int), 1).deviations(anything, np.array([0.0, 1, 1])).tolist() == [0.0, -1.0, 1.0]


def test_root_mean_square_and_largest():
    segments = Segments(np.array([0, 0, 2]), 3)
    values, ones = np.array([3.0, -4.0, 5.0]), np.ones(3)
    np.testing.assert_allclose(segments.root_mean_square(values, ones, 0), [math.sqrt(12.5), 0, 5])
    np.testing.assert_allclose(segments.root_mean_square(values, ones, 1), [5, 0, 0])
    assert segments.largest(values).tolist() == [4.0, 0.0, 5.0]


def test_sums_and_differences_that_cancel_are_exactly_zero():
    parts = np.array([[0.1, 0.2, -0.3], [0.1, 0.2, 0.3], [1e-9, 1.0, -1.0]])
    assert row_sums(parts).tolist() == [0.0, pytest.approx(0.6), pytest.approx(1e-9)]
    values, baseline = np.array([0.1 + 0.2, 1.0, 0.0, 1e9]), np.array([0.3, 0.5, 0.0, 1e9 - 1])
    assert difference(values, baseline).tolist() == [0.0, 0.5, 0.0, 1.0]
