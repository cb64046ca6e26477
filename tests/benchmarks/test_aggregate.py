"""Comparing the schemes of a regime with the best of them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats

from benchmarks.aggregate import against, best_first, turns_to_reach
from benchmarks.statistics import Interval

VALUES = {
    "a": [0.50, 0.60, 0.70, 0.65],
    "b": [0.40, 0.55, 0.66, 0.50],
    "c": [0.10, 0.30, 0.20, 0.25],
}


def scores(values, regime="one"):
    return pa.Table.from_pylist(
        [
            {"regime": regime, "scheme": scheme, "seed": seed, "mean": value}
            for scheme, row in values.items()
            for seed, value in enumerate(row)
        ]
    )


def test_p_values_are_paired_and_corrected():
    found = against(scores(VALUES), "one")
    assert list(found) == ["a", "b", "c"]
    p = {name: stats.ttest_rel(VALUES[name], VALUES["a"]).pvalue for name in "bc"}
    # Holm by hand: the smaller is doubled, the larger is at least that.
    assert found["c"].p_value == pytest.approx(2 * p["c"])
    assert found["b"].p_value == pytest.approx(max(2 * p["c"], p["b"]))
    assert p["c"] < p["b"]
    assert found["a"].p_value == 1.0 and found["a"].difference.estimate == 0.0
    assert found["b"].difference.estimate == pytest.approx(np.mean(VALUES["b"]) - np.mean(VALUES["a"]))
    assert found["b"].difference.low < found["b"].difference.estimate < found["b"].difference.high < 0
    assert found["a"].score == pytest.approx(np.mean(VALUES["a"])) and found["a"].seeds == 4


def test_only_shared_seeds_count():
    found = against(scores({**VALUES, "d": [0.9, 0.9]}), "one")
    assert next(iter(found)) == "d" and {entry.seeds for entry in found.values()} == {2}
    assert found["a"].score == pytest.approx(0.55)


def test_equal_schemes_cannot_be_told_apart_and_names_break_the_tie():
    found = against(scores({"b": VALUES["a"], "a": VALUES["a"]}), "one")
    assert list(found) == ["a", "b"] and found["b"].p_value == 1.0


def test_rounding_does_not_order_schemes():
    def summary(**means):
        return {scheme: {"mean": Interval(mean, mean, mean)} for scheme, mean in means.items()}

    assert best_first(summary(c=0.3, b=0.3 + 1e-15, a=0.3, d=0.9)) == ["d", "a", "b", "c"]
    assert best_first(summary(a=0.2, b=0.6), summary(a=0.8), summary(c=0.55)) == ["b", "c", "a"]


@pytest.mark.parametrize("values", [{}, {"a": [0.1, 0.2]}, {"a": [0.1, 0.2], "b": [0.3]}])
def test_too_little_to_compare_is_empty(values):
    table = scores({**values, "other": [0.1, 0.2]}).filter(pc.field("scheme") != "other")
    assert against(table, "one") == {}
    assert against(table, "two") == {}


def test_a_reference_of_ones_own():
    """Holm's correction counts the schemes that are compared, whatever the reference."""
    found = against(scores(VALUES), "one", "b")
    assert list(found) == ["a", "b", "c"]
    assert found["b"].p_value == 1.0 and found["b"].difference.estimate == 0.0
    raw = {s: stats.ttest_rel(VALUES[s], VALUES["b"]).pvalue for s in "ac"}
    small, large = sorted(raw, key=lambda scheme: raw[scheme])
    assert found[small].p_value == pytest.approx(2 * raw[small])
    assert found[large].p_value == pytest.approx(max(2 * raw[small], raw[large]))
    assert found["a"].difference.estimate > 0 > found["c"].difference.estimate
    assert against(scores(VALUES), "one", "absent") == {}


def test_turns_to_reach_a_score():
    curves = {0: [0.1, 0.5, 0.9], 1: [0.1, 0.2, 0.3], 2: [0.7, 0.6, 0.8]}
    rows = [
        {
            "phase": "report", "regime": "one", "scheme": "a", "seed": seed, "turns": 100 * index,
            "environment": environment, "score": value + shift,
        }
        for seed, values in curves.items()
        for index, value in enumerate(values)
        for environment, shift in (("x", -0.05), ("y", 0.05))
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows[::-1])
    assert turns_to_reach(table, 0.7) == {("one", "a"): {0: pytest.approx(150.0), 1: np.inf, 2: 0.0}}
    assert turns_to_reach(table, 0.7, phase="tune") == {}
