"""Figures of the claims, the microscope, the surrogates and of experiments without a figure of their own."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

import plots.__main__ as command
from algos.scheme import Scheme
from benchmarks import experiments
from benchmarks.experiment import BenchmarkError, run_id
from plots import budget, claims, microscope, phase, surrogates
from plots.surrogates import RATIOS, push


def entry(key, verdict, effect, predicted="greater", metric="score"):
    return {
        "key": key, "verdict": verdict, "effect": effect, "low": effect - 0.1, "high": effect + 0.1, "robust": "yes",
        "predicted": predicted, "metric": metric, "regime": "chain", "seeds": 20, "control_mean": 4.0,
    }  # fmt: skip


def test_claims_are_turned_towards_the_prediction():
    figure = claims.draw(
        [
            entry("a", "replicates", 0.3),
            entry("b", "contradicted", 0.2, "less", "tokens@end"),
            entry("c", "inconclusive", 0.0),
        ]
    )
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b", "c"]
    bars = [list(line.get_xdata()) for line in axis.lines if len(line.get_xdata()) == 2][:3]
    np.testing.assert_allclose(bars, [[0.2, 0.4], [-0.075, -0.025], [-0.1, 0.1]], atol=1e-12)


def test_the_microscope_has_a_panel_per_axis_and_quantity():
    measured = {"cosine": 0.5, "bias_cosine": 0.9, "signal_to_noise": 1.0, "shares": [0.7, 0.3]}
    seen = [
        {
            "scheme": scheme, "n": 5, "policies": 3, **measured, "low": {**measured, "shares": [0.8, 0.2]},
            "high": measured, "exact_shares": [0.5, 0.5],
            "setting": {"spread": 1.0, "group_size": 8, "noise": 0.0, **changed},
        }
        for scheme in ("grpo", "rloo")
        for changed in ({}, {"spread": 10.0}, {"group_size": 4}, {"noise": 0.3})
    ]  # fmt: skip
    figure = microscope.draw(seen)
    assert len(figure.axes) == 9
    # The labels of the last column have lines of their own.
    assert [len(axis.lines) for axis in figure.axes] == [2, 2, 4] * 3
    assert all(len(axis.lines[0].get_xdata()) == 2 for axis in figure.axes)
    (bar, _) = figure.axes[6].containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose(bar[:, 1], [0.2, 0.3])


def test_pushes_are_what_the_formulas_say():
    up, down = push(Scheme(), 1.0), push(Scheme(), -1.0)
    np.testing.assert_allclose(up, np.where(RATIOS <= 1.2, RATIOS, 0.0), atol=1e-9)
    np.testing.assert_allclose(down, np.where(RATIOS >= 0.8, RATIOS, 0.0), atol=1e-9)
    plain = Scheme(surrogate="reinforce")
    np.testing.assert_allclose(push(plain, -1.0), 1.0, atol=1e-12)


def test_the_surrogates_figure_shows_every_surrogate():
    from algos.parts import choices

    titles = {axis.get_title(loc="left") for axis in surrogates.draw().axes if axis.get_visible()}
    assert titles == (set(choices("surrogate")) - set(surrogates.OF_BATCH)) | set(surrogates.BOUNDS)


def test_the_budget_figure_shows_medians_and_what_is_never_reached():
    experiment = dataclasses.replace(
        experiments.load("budget"), schemes=("grpo", "rloo"), learning_rates=(1e-3,), tuning_seeds=()
    )
    rows = [
        {
            "regime": config.regime.name, "axis_value": config.regime.axis_value, "scheme": config.scheme,
            "seed": config.seed, "learning_rate": config.learning_rate, "phase": "report", "run_id": run_id(config),
            "turns": turns, "environment": "Chain",
            "score": 0.0 if turns == 0 else 0.5 if config.scheme == "rloo" else 1.0 - 0.01 * config.seed,
        }
        for config in experiment.runs("report", dict.fromkeys(experiment.schemes, 1e-3))
        for turns in (0, 1000)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows)
    figure = budget.draw(experiment, table)
    assert len(figure.axes) == len(experiment.regimes)
    never, arrow, bar, median = figure.axes[0].lines
    assert arrow.get_marker() == ">" and never.get_xdata().tolist() == [experiment.budget.total_turns] * 2
    # From 800 / 1 to 800 / 0.91: the second and the ninth of ten.
    np.testing.assert_allclose(bar.get_xdata(), [800 / 0.99, 800 / 0.92])
    np.testing.assert_allclose(median.get_xdata(), [(800 / 0.96 + 800 / 0.95) / 2])
    text = " ".join(budget.describe(experiment, table).split())
    assert "rollouts-16: from 838 (grpo) to more than the budget (rloo)" in text


def test_a_phase_diagram_has_a_cell_per_regime_and_scheme():
    experiment = dataclasses.replace(experiments.load("small_groups"), learning_rates=(3e-3,), tuning_seeds=())
    rates = dict.fromkeys(experiment.schemes, 3e-3)
    rows = [
        {
            "regime": config.regime.name, "axis_value": config.regime.axis_value, "scheme": config.scheme,
            "seed": config.seed, "learning_rate": config.learning_rate, "phase": "report", "run_id": run_id(config),
            "turns": 10, "environment": "Chain", "score": 0.1 * config.seed + (config.scheme == "erpo"),
        }
        for config in experiment.runs("report", rates)
    ]  # fmt: skip
    (axis,) = phase.draw(experiment, pa.Table.from_pylist(rows)).axes
    assert len(axis.texts) == len(experiment.regimes) * len(experiment.schemes)
    assert axis.get_yticklabels()[0].get_text().startswith("erpo")
    assert [label.get_text() for label in axis.get_xticklabels()] == [regime.name for regime in experiment.regimes]
    text = " ".join(phase.describe(experiment, pa.Table.from_pylist(rows)).split())
    assert all(f"{regime.name}: erpo " in text for regime in experiment.regimes)


def test_a_missing_document_says_what_to_do(tmp_path):
    with pytest.raises(BenchmarkError, match=r"There is no .*claims\.json"):
        command.main("claims", root=tmp_path)
    (tmp_path / "claims.json").write_text(json.dumps([entry("a", "replicates", 0.3)]))
    with pytest.raises(BenchmarkError, match="There are no results of 'noise'"):
        command.main("noise", root=tmp_path)
