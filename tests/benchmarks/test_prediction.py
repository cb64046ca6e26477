"""Whether the microscope predicts the learning curves: pairs, their agreement, and the report's part."""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import experiments, prediction
from benchmarks.experiment import run_id
from benchmarks.prediction import PREDICTIONS, Pair
from benchmarks.statistics import Interval

NOISE = next(one for one in PREDICTIONS if one.axis == "noise")
SENSITIVITY = {"grpo": 0.3, "rloo": 0.6, "erpo": 0.1}
"""What a unit of noise costs a scheme here."""


def seen(scheme, noise=0.0, **setting):
    changed = {**prediction.BASE, "noise": noise, **setting}
    cosine = 0.5 - 0.5 * SENSITIVITY[scheme] * noise
    return {
        "scheme": scheme, "setting": changed, "cosine": cosine, "shares": [0.6, 0.4], "bias": 0.0, "variance": 1.0,
        "signal_to_noise": 0.3,
    }  # fmt: skip


@pytest.fixture
def experiment():
    return dataclasses.replace(experiments.load("noise"), schemes=tuple(SENSITIVITY))


@pytest.fixture
def table(experiment):
    rows = [
        {
            "run_id": run_id(config), "phase": "report", "regime": config.regime.name, "scheme": config.scheme,
            "axis_value": config.regime.axis_value, "seed": config.seed, "learning_rate": config.learning_rate,
            "turns": turns, "environment": "Chain",
            "score": 0.9 - SENSITIVITY[config.scheme] * abs(config.regime.axis_value) + 0.01 * config.seed,
        }
        for config in experiment.runs("report", dict.fromkeys(SENSITIVITY, 1e-2)) for turns in (0, 100)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows)


def test_pairs_are_of_equal_schemes_and_values(experiment, table):
    entries = [seen(scheme, noise) for scheme in SENSITIVITY for noise in (0.0, 0.1, 0.3, 1.0)]
    entries += [seen("grpo", 1.0, spread=10.0), seen("grpo", 0.0, group_size=2)]
    found = prediction.pairs(NOISE, experiment, table, entries)
    # 0.1 is no regime, 0 is the base, and settings that differ in another axis are not on this one.
    assert [(pair.value, pair.scheme) for pair in found] == [
        (value, scheme) for value in (0.3, 1.0) for scheme in ("erpo", "grpo", "rloo")
    ]
    for pair in found:
        assert pair.seen == pytest.approx(1 - SENSITIVITY[pair.scheme] * pair.value)
        assert pair.change.estimate == pytest.approx(-SENSITIVITY[pair.scheme] * pair.value)
    rho = prediction.agreement(found)
    assert rho.estimate == 1.0 and rho.low == rho.high == pytest.approx(0.999)
    assert prediction.agreement_among_schemes(found) == 1.0


def of(value, scheme, where, change):
    return Pair(scheme, value, where, Interval(change, change, change))


def test_an_axis_can_be_predicted_where_schemes_are_not():
    found = [of(v, s, v + 0.1 * i, v - 0.1 * i) for v in (0.0, 1.0, 2.0) for i, s in enumerate("abc")]
    assert prediction.agreement_among_schemes(found) == -1.0
    assert prediction.agreement(found).estimate > 0.7


def test_equal_schemes_count_as_one():
    """A scheme under two names must not make the interval narrower."""
    random = np.random.default_rng(0)
    found = [of(v, s, *random.normal(size=2)) for s in "abcd" for v in (1.0, 2.0)]
    twin = [dataclasses.replace(pair, scheme="e") for pair in found if pair.scheme == "d"]
    assert prediction.kinds([*found, *twin]) == [0, 0, 1, 1, 2, 2, 3, 3, 3, 3]
    twins = [dataclasses.replace(pair, scheme=pair.scheme * 2) for pair in found]
    assert prediction.agreement([*found, *twins]) == pytest.approx(prediction.agreement(found), abs=1e-12)


def test_the_axis_alone_may_say_as_much():
    found = [of(v, s, random, -v) for s, random in zip("abc", (0.3, 0.1, 0.2), strict=True) for v in (1.0, 2.0)]
    assert prediction.agreement_of_axis(found) == -1.0


def test_without_a_spread_there_is_nothing_to_say_about_schemes():
    assert math.isnan(prediction.agreement_among_schemes([of(1.0, "a", 0.5, 0.1), of(1.0, "b", 0.5, 0.2)]))


def test_the_report_shows_what_was_computed(experiment, table):
    entries = [seen(scheme, noise) for scheme in SENSITIVITY for noise in (0.0, 0.3, 1.0)]
    lines = prediction.section({"noise": (experiment, table)}, entries, "python -m benchmarks.microscope")
    (line,) = [line for line in lines if line.startswith("| noise |")]
    assert "6 of 3 schemes | +1.00 [+1.00, +1.00] | -0.68 | +1.00 |" in line
    assert "| `rloo` | 1 | 0.400 | -0.600 [-0.600, -0.600] |" in lines
    assert prediction.section({}, entries, "c") == []
    assert prediction.section({"noise": (experiment, table)}, entries[:6], "c") == []  # two schemes
    flat = [{**one, "cosine": 0.5} for one in entries]
    assert prediction.section({"noise": (experiment, table)}, flat, "c") == []
    lost = [{**one, "cosine": 0.0} for one in entries]
    assert prediction.section({"noise": (experiment, table)}, lost, "c") == []


def test_stored_results_of_each_prediction_are_complete():
    """Every scheme that both sides have stands in the report."""
    import json

    from benchmarks import report, store

    document = json.loads((store.RESULTS / "microscope.json").read_text())
    stored = {one.name: (one, rows) for one, rows in report.stored_experiments()}
    for one in PREDICTIONS:
        found = prediction.pairs(one, *stored[one.experiment], document["seen"])
        schemes = {pair.scheme for pair in found}
        assert len(schemes) >= 4 and len(found) == len(schemes) * len({pair.value for pair in found})
        assert len(set(prediction.kinds(found))) >= prediction.FEWEST
        assert -1 <= prediction.agreement(found).low < prediction.agreement(found).high <= 1
