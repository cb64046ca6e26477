"""Figures are drawn from results alone; these are synthetic."""

import dataclasses
import itertools
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import experiments, store
from benchmarks.experiment import BenchmarkError, run_id
from plots import curves, phase, scale_mismatch, style
from plots.__main__ import NAMES, run


def synthetic_rows(experiment):
    random = np.random.default_rng(0)
    rates = dict.fromkeys(experiment.schemes, experiment.learning_rates[0])
    rows = []
    for config in experiment.runs("report", rates):
        for environment in ("ChainShort", "Database", "Search", "ChainLong"):
            for turns in (0, 100, 200):
                rows.append(
                    {
                        "experiment": experiment.name, "regime": config.regime.name,
                        "axis_value": config.regime.axis_value, "scheme": config.scheme, "seed": config.seed,
                        "learning_rate": config.learning_rate, "phase": "report", "run_id": run_id(config),
                        "turns": turns, "environment": environment, "score": float(random.random()),
                    }
                )  # fmt: skip
    return pa.Table.from_pylist(rows)


def test_scale_mismatch_shows_every_scheme_in_every_panel(tmp_path, monkeypatch):
    experiment = experiments.load("scale_mismatch", quick=True)
    monkeypatch.setattr(style, "FIGURES", tmp_path)
    figure = scale_mismatch.draw(experiment, synthetic_rows(experiment))
    assert len(figure.axes) == 6
    for axis in figure.axes:
        assert {text.get_text() for text in axis.texts} == set(experiment.schemes)
        assert axis.get_title(loc="left")
    paths = style.save(figure, "figure")
    first = [path.read_bytes() for path in paths]
    style.save(scale_mismatch.draw(experiment, synthetic_rows(experiment)), "figure")
    assert [path.read_bytes() for path in paths] == first


def test_the_caption_of_scale_mismatch_sorts_schemes_by_their_change():
    experiment = experiments.load("scale_mismatch", quick=True)
    text = " ".join(scale_mismatch.describe(experiment, synthetic_rows(experiment)).split())
    assert all(text.count(scheme) for scheme in experiment.schemes)
    assert f"{len(experiment.seeds)} paired seeds" in text
    assert "python -m benchmarks run scale_mismatch --quick" in text


def test_every_recipe_of_the_experiment_has_a_colour():
    shown = {scheme for _, schemes in scale_mismatch.KINDS.values() for scheme in schemes}
    assert shown == set(experiments.load("scale_mismatch").schemes)


def own(experiment, schemes):
    return dataclasses.replace(experiment, name="mine", schemes=schemes)


def test_schemes_that_are_not_sorted_are_drawn_and_absent_ones_are_not_explained():
    many = tuple(f"grpo:clip_low=0.0{digit}" for digit in range(1, 9))
    experiment = own(experiments.load("scale_mismatch", quick=True), ("rloo", "grpo", *many))
    figure = scale_mismatch.draw(experiment, synthetic_rows(experiment))
    for axis in figure.axes:
        assert {text.get_text() for text in axis.texts} == set(experiment.schemes)
    words = [text.get_text() for text in figure.texts]
    kinds = ["no scale", "scale of the prompt or environment", scale_mismatch.OTHER]
    assert [word for word in words if word in (*scale_mismatch.KINDS, scale_mismatch.OTHER)] == kinds
    # The sign in the legend is the marker of the line, also for the ninth.
    assert "rloo ●" in words and "grpo ●" in words
    others = words[words.index(scale_mismatch.OTHER) + 1].split(", ")
    assert [entry.split(" ")[0] for entry in others] == list(many)
    drawn = [container.lines[0].get_marker() for container in figure.axes[0].containers]
    assert drawn == ["o", "o", *(list(scale_mismatch.MARKERS) * 2)[: len(many)]]
    assert [entry.split(" ")[1] for entry in others] == [scale_mismatch.MARKERS[marker] for marker in drawn[2:]]


def test_the_figure_of_a_script_names_no_command_that_cannot_run_it():
    experiment = own(experiments.load("scale_mismatch", quick=True), ("rloo", "grpo"))
    rows = synthetic_rows(experiment)
    for module in (scale_mismatch, phase, curves):
        without = [text.get_text() for text in module.draw(experiment, rows).texts]
        assert not any("python" in text for text in [*without, module.describe(experiment, rows)]), module
        given = module.draw(experiment, rows, command="python mine.py")
        assert "python mine.py" in [text.get_text() for text in given.texts]
        text = module.describe(experiment, rows, command="python mine.py")
        assert text.endswith("\n\nNumbers and figure: python mine.py\n")


def test_a_sweep_cut_short_shows_what_there_is():
    experiment = own(experiments.load("scale_mismatch", quick=True), ("rloo", "grpo", "erpo"))
    rows = synthetic_rows(experiment).to_pylist()
    last = max(regime.axis_value for regime in experiment.regimes)
    left = [row for row in rows if row["scheme"] == "rloo" or (row["scheme"] == "grpo" and row["axis_value"] < last)]
    figure = scale_mismatch.draw(experiment, pa.Table.from_pylist(left))
    assert all({text.get_text() for text in axis.texts} == {"rloo", "grpo"} for axis in figure.axes)


def test_the_scale_figure_refuses_what_its_texts_do_not_hold_for():
    experiment = experiments.load("scale_mismatch", quick=True)
    rows = synthetic_rows(experiment)
    for change in ({"axis_value": 3.0}, {"env_kwargs": {"preset": "noise", "spread": 1.0}}):
        other = dataclasses.replace(
            experiment, regimes=(dataclasses.replace(experiment.regimes[0], **change), *experiment.regimes[1:])
        )
        with pytest.raises(BenchmarkError, match=r"must have regimes with preset='scale'.*Got 'spread-1'"):
            scale_mismatch.draw(other, rows)
    made = r"scale_mismatch_quick has no reported runs yet: python -m benchmarks run scale_mismatch --quick$"
    for module in (scale_mismatch, phase):
        with pytest.raises(store.NoResultsError, match=made):
            module.draw(experiment, rows.slice(0, 0))
        with pytest.raises(store.NoResultsError, match=r"mine has no reported runs yet$"):
            module.draw(own(experiment, ("rloo",)), rows.slice(0, 0))


@pytest.mark.parametrize(("quick", "said"), [(True, "one learning rate for all schemes, 0.001"), (False, "tuned per")])
def test_captions_say_how_learning_rates_were_chosen(quick, said, monkeypatch):
    experiment = experiments.load("scale_mismatch", quick)
    monkeypatch.setattr(scale_mismatch, "current", lambda experiment, table: table)
    text = " ".join(scale_mismatch.describe(experiment, synthetic_rows(experiment)).split())
    assert said in text and ("tuned" in text) is not quick


def test_labels_are_moved_apart_and_keep_their_order():
    heights = {"a": 0.5, "b": 0.5, "c": 0.51, "d": 0.99, "e": 0.0}
    placed = style.spread_labels(heights, 0.1, 0.0, 1.0)
    values = sorted(placed.values())
    assert all(b - a > 0.099 for a, b in itertools.pairwise(values))
    assert placed["e"] == min(values) and placed["d"] == max(values)
    assert 0.0 <= values[0] and values[-1] <= 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "must be one of"),
        (["scale_mismatch"], "no results"),
        (["credit_by_turn"], "cannot read"),
        (["microscope"], "KeyError('seen')"),
        (["levels"], "cannot read"),
        (
            ["all", "--experiment", "depth"],
            "'experiment' is for ['curves', 'gradient_share'] only. Got 'depth' with 'all'",
        ),
        (["scale_mismatch", "--experiment", "depth"], "Got 'depth' with 'scale_mismatch'"),
        (["scale_mismatch", "--regime", "spread-1"], "'regime' is for ['curves'] only. Got 'spread-1'"),
        (["gradient_share", "--regime", "spread-1000"], "'regime' is for ['curves'] only."),
        (["decision", "--quick"], "Got True with 'decision'"),
        (["microscope", "--quick"], "'quick' is for ['all', 'aggregation', "),
        (["surrogates", "--quick"], "Got True with 'surrogates'"),
    ],
)
def test_command_line_errors_are_one_line(tmp_path, capsys, arguments, words):
    (tmp_path / "credit.json").write_text("{")
    (tmp_path / "microscope.json").write_text("{}")
    (tmp_path / "levels.parquet").write_text("damaged")
    assert run([*arguments, "--root", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    assert words in captured.err and captured.out == ""


def test_a_figure_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "plots").write_text("a file where the folder of figures should be")
    assert run(["surrogates", "--root", str(tmp_path / "results")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_help_can_be_read(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        run(arguments)
    out = capsys.readouterr().out
    assert stop.value.code == 0 and "python -m plots" in out
    assert "``" not in out and "--quick" in out and "--no-quick" not in out and "__main__" not in out


def test_the_program_runs_as_a_module(tmp_path):
    command = [sys.executable, "-m", "plots", "nothing", "--root", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and result.stderr.startswith("error: 'name' must be one of")


def test_all_figures_that_have_results(tmp_path, capsys):
    """The others are named, with the command that makes their results."""
    root = tmp_path / "results"
    root.mkdir()
    (root / "credit.json").write_text((store.RESULTS / "credit.json").read_text())
    assert run(["all", "--root", str(root)]) == 0
    drawn = {path.stem for path in (tmp_path / "plots" / "figures").glob("*.png")}
    assert drawn == {"credit_by_turn", "families", "mismatch", "surrogates"}
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not drawn: ")]
    assert len(lines) == len(NAMES) - len(drawn)
    assert any(line.startswith("not drawn: levels: ") and "python -m benchmarks run levels" in line for line in lines)


def test_all_figures_stop_at_damaged_results(tmp_path, capsys):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "levels.parquet").write_text("damaged")
    assert run(["all", "--root", str(tmp_path / "results")]) == 2
    assert "levels.parquet" in capsys.readouterr().err
