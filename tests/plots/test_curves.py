"""Learning curves and shares of the gradient, from synthetic results."""

import dataclasses
import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.text import Text

from benchmarks import experiments
from benchmarks.experiment import BenchmarkError, run_id
from plots import curves, gradient_share, style

ENVIRONMENTS = ("ChainShort", "Database")


def rows(experiment, score, environments=ENVIRONMENTS):
    """Three evaluation points per run; runs overshoot them by their seed."""
    rates = dict.fromkeys(experiment.schemes, experiment.learning_rates[0])
    return pa.Table.from_pylist(
        [
            {
                "experiment": experiment.name, "regime": config.regime.name, "axis_value": config.regime.axis_value,
                "scheme": config.scheme, "seed": config.seed, "learning_rate": config.learning_rate,
                "phase": "report", "run_id": run_id(config), "turns": point * 1000 + config.seed * (point > 0),
                "environment": environment, "score": score(config, environment, point),
                "gradient_share": math.nan if point == 0 else (0.75 if environment == "Database" else 0.25),
            }
            for config in experiment.runs("report", rates)
            for environment in environments
            for point in range(3)
        ]
    )  # fmt: skip


@pytest.fixture
def experiment():
    return experiments.load("scale_mismatch", quick=True)


def by_scheme(experiment):
    """A better scheme for every place in the list, the same spread over seeds for all."""
    return lambda config, environment, point: (
        point * (0.1 * experiment.schemes.index(config.scheme) + 0.01 * config.seed + 0.2 * (environment == "Database"))
    )


def test_curves_are_means_over_seeds_at_mean_turns(experiment):
    table = rows(experiment, by_scheme(experiment))
    regime = curves.choose(experiment, None)
    found, seeds = curves.learning_curves(experiment, table, regime)
    assert list(found) == [*ENVIRONMENTS, curves.MEAN] and seeds == len(experiment.seeds)
    turns, points = found[curves.MEAN][experiment.schemes[1]]
    middle = np.mean(experiment.seeds)
    np.testing.assert_allclose(turns, [0, 1000 + middle, 2000 + middle])
    np.testing.assert_allclose([point.estimate for point in points], np.arange(3) * (0.2 + 0.01 * middle))
    assert all(point.low <= point.estimate <= point.high for point in points)


def test_every_panel_labels_every_scheme_without_overlaps(experiment):
    figure = curves.draw(experiment, rows(experiment, lambda *_: 0.5))
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title(loc="left") for axis in shown] == [*ENVIRONMENTS, curves.MEAN]
    for axis in shown:
        assert {text.get_text() for text in axis.texts} == set(experiment.schemes)
    figure.canvas.draw()
    # Of the words alone, without the line to them.
    boxes = [Text.get_window_extent(text) for axis in shown for text in axis.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(0 <= box.x0 and box.x1 <= figure.bbox.width for box in boxes)


def test_one_environment_has_one_panel_inside_the_figure(experiment):
    figure = curves.draw(experiment, rows(experiment, lambda *_: 0.5, ENVIRONMENTS[:1]))
    (axis,) = (axis for axis in figure.axes if axis.get_visible())
    figure.canvas.draw()
    assert axis.get_title(loc="left") == "ChainShort"
    texts = (*axis.texts, *figure.texts)
    assert all(Text.get_window_extent(text).x1 <= figure.bbox.width for text in texts)


def test_the_caption_names_the_best_scheme_and_the_commands(experiment):
    text = curves.describe(experiment, rows(experiment, by_scheme(experiment)))
    assert f"{experiment.schemes[-1]} is highest" in " ".join(text.split())
    assert f"{len(experiment.seeds)} paired seeds" in " ".join(text.split())
    assert "Numbers: python -m benchmarks run scale_mismatch --quick" in text
    assert "Figure: python -m plots curves --experiment scale_mismatch --quick" in text


def test_one_scheme_is_not_both_highest_and_lowest(experiment):
    alone = dataclasses.replace(experiment, name="mine", schemes=experiment.schemes[:1])
    text = " ".join(curves.describe(alone, rows(alone, by_scheme(alone))).split())
    assert f"{alone.schemes[0]} is highest" in text and "lowest" not in text
    assert text.endswith("before training.")


@pytest.mark.parametrize("module", [curves, gradient_share])
def test_a_script_can_say_what_made_its_figure(experiment, module):
    own = dataclasses.replace(experiment, name="mine")
    table = rows(own, by_scheme(own))
    for command in (None, "python mine.py"):
        words = [text.get_text() for text in module.draw(own, table, command=command).texts]
        words.append(module.describe(own, table, command=command))
        assert [("python" in word) for word in words].count(True) == (2 if command else 0)


def test_an_unknown_regime_says_which_there_are(experiment):
    with pytest.raises(BenchmarkError, match="must be one of"):
        curves.choose(experiment, "nothing")


def test_shares_are_drawn_by_scheme_and_environment(experiment):
    table = rows(experiment, lambda *_: 0.5)
    shares, seeds = gradient_share.mean_shares(experiment, table)
    assert list(shares) == list(experiment.schemes) and seeds == len(experiment.seeds)
    for lines in shares.values():
        assert [point.estimate for point in lines["Database"]] == [0.75] * len(experiment.regimes)
    figure = gradient_share.draw(experiment, table)
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title(loc="left") for axis in shown] == list(experiment.schemes)
    assert all({text.get_text() for text in axis.texts} == set(ENVIRONMENTS) for axis in shown)
    assert all(list(axis.lines[0].get_ydata()) == [0.5, 0.5] for axis in shown)
    assert "paired seeds" in " ".join(gradient_share.describe(experiment, table).split())


def test_without_shares_there_is_no_figure(experiment):
    table = rows(experiment, lambda *_: 0.5)
    empty = table.set_column(
        table.schema.get_field_index("gradient_share"), "gradient_share", pa.nulls(table.num_rows, pa.float64())
    )
    for without in (table.drop_columns("gradient_share"), empty):
        with pytest.raises(BenchmarkError, match="several environments"):
            gradient_share.draw(experiment, without)


def test_looks_differ():
    found = style.looks([str(index) for index in range(24)])
    assert len({str(look) for look in found.values()}) == 24


def test_regimes_without_runs_are_refused(experiment):
    other = dataclasses.replace(experiment.regimes[0], name="other", axis_value=1e9)
    wider = dataclasses.replace(experiment, regimes=(*experiment.regimes, other))
    with pytest.raises(BenchmarkError, match="no reported runs"):
        curves.draw(wider, rows(experiment, lambda *_: 0.5))
