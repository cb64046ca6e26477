"""The decision map, from synthetic results."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import experiments
from benchmarks.experiment import BenchmarkError, run_id
from plots import decision


def stored(name, score, seeds=range(10), skip=()):
    """An experiment whose scores are given, and its rows."""
    experiment = dataclasses.replace(
        experiments.load(name), learning_rates=(3e-3,), tuning_seeds=(), seeds=tuple(seeds)
    )
    rates = dict.fromkeys(experiment.schemes, 3e-3)
    rows = [
        {
            "regime": config.regime.name, "axis_value": config.regime.axis_value, "scheme": config.scheme,
            "seed": config.seed, "learning_rate": config.learning_rate, "phase": "report", "run_id": run_id(config),
            "turns": 10, "environment": "Chain", "score": score(config),
        }
        for config in experiment.runs("report", rates)
        if (config.scheme, config.seed) not in skip
    ]  # fmt: skip
    return experiment, pa.Table.from_pylist(rows)


def noisy(config):
    """Rloo is best; erpo differs from it by noise; all others are worse by 0.2."""
    noise = np.random.default_rng([config.seed, *config.scheme.encode()]).normal(0, 0.02)
    return 0.5 + 0.001 * (config.scheme == "rloo") + noise - 0.2 * (config.scheme not in ("rloo", "erpo"))


def test_cells_are_differences_to_the_best_and_rings_mark_what_is_level_with_it():
    experiment, table = stored("small_groups", noisy)
    figure = decision.draw([(experiment, table)])
    (axis,) = figure.axes
    assert {label.get_text() for label in axis.get_yticklabels()} == set(experiment.schemes)
    assert [label.get_text() for label in axis.get_xticklabels()] == [regime.name for regime in experiment.regimes]
    cells = [text.get_text() for text in axis.texts if text.get_text() != "small_groups"]
    regimes, schemes = len(experiment.regimes), len(experiment.schemes)
    assert len(cells) == regimes * schemes
    assert sum(cell == "★" for cell in cells) == regimes
    assert sum(cell.startswith("○") for cell in cells) == regimes
    worse = [float(cell) for cell in cells if cell[0] not in "★○"]
    np.testing.assert_allclose(worse, -0.2, atol=0.03)


def test_the_caption_counts_leaders():
    text = " ".join(decision.describe([stored("small_groups", noisy)]).split())
    assert "erpo in 5 of 5" in text and "rloo in 5 of 5" in text and "over 10 paired seeds" in text
    assert "grpo" in text.split("Never:")[1]


def test_unfinished_experiments_are_compared_on_shared_seeds_or_left_out():
    part = stored("small_groups", noisy, skip={("erpo", seed) for seed in range(4)})
    found = decision.columns([part])
    assert {entry.seeds for column in found for entry in column.schemes.values()} == {6}
    nothing = stored("noise", noisy, skip={("grpo", seed) for seed in range(9)})
    untuned = (experiments.load("budget"), part[1].slice(0, 0))
    assert {column.experiment for column in decision.columns([part, nothing, untuned])} == {"small_groups"}
    text = " ".join(decision.describe([part, nothing, untuned]).split())
    assert "Not complete enough: noise and budget" in text
    with pytest.raises(BenchmarkError, match="No stored experiment"):
        decision.columns([nothing, untuned])


def test_bands_hold_whole_experiments():
    found = decision.columns(
        [stored(name, noisy, range(3)) for name in ("noise", "levels", "small_groups", "clipping")]
    )
    bands = decision.split(found)
    assert [column for band in bands for column in band] == found
    assert all(len(band) <= decision.WIDEST for band in bands)
    homes = [{column.experiment for column in band} for band in bands]
    assert sum(map(len, homes)) == len(set.union(*homes)) == 4
    figure = decision.draw([stored(name, noisy, range(3)) for name in ("noise", "levels", "small_groups", "clipping")])
    assert len(figure.axes) == len(bands)
    figure.canvas.draw()
    texts = [text for axis in figure.axes for text in (*axis.get_yticklabels(), *axis.get_xticklabels())]
    assert all(0 <= text.get_window_extent().x0 for text in texts)
    assert all(text.get_window_extent().x1 <= figure.bbox.width for text in texts)
