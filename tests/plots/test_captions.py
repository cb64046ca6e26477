"""Every figure has a caption, written next to it."""

import dataclasses
import importlib
import json
from pathlib import Path

import pytest

import plots.__main__ as command
from benchmarks import experiments, store
from benchmarks.experiment import BenchmarkError
from plots import claims, credit_by_turn, microscope, style, surrogates


def flat(text):
    return " ".join(text.split())


@pytest.fixture
def document():
    """Credit of three turns: the plain sum grows, the root's is level."""
    turns = [
        {"name": name, "x": [1, 2, 3], "mean": [1.0, 1.1, 1.2], "low": [0.9, 1.0, 1.1], "high": [1.1, 1.2, 1.3]}
        for name in credit_by_turn.LABELS
    ]
    gains = [
        {"name": name, "x": [1, 2, 3], "mean": means, "low": [m - 0.1 for m in means], "high": [m + 0.1 for m in means]}
        for name, means in (("none", [1.0, 1.0, 1.0]), ("sum", [1.0, 1.5, 2.0]), ("root", [1.0, 0.7, 0.72]))
    ]
    return {
        "command": "python -m benchmarks.credit --n 4 --seed 0", "environment": "agentic_gym/SearchHard-v0", "n": 4,
        "rollouts": 64, "group_size": 8, "seed": 0, "success": 0.3, "turns_per_rollout": 7.0, "by_turn": turns,
        "by_gains": gains,
    }  # fmt: skip


def test_captions_wrap_the_text_and_keep_the_commands_whole():
    run = "python -m benchmarks run " + "x" * 120
    text = style.caption("word " * 60, "What is seen.", run, "python -m plots NAME")
    lines = text.splitlines()
    assert f"Numbers: {run}" in lines and "Figure: python -m plots NAME" in lines
    assert max(len(line) for line in lines if not line.startswith("Numbers")) <= 100


def test_every_figure_is_described():
    modules = {*command.OWN, *command.VIEWS, *command.MAPS, *command.DOCUMENTS, "phase"}
    described = [(name, "draw", "describe") for name in modules] + list(command.SUITE.values())
    for name, *functions in described:
        assert all(callable(getattr(importlib.import_module(f"plots.{name}"), function)) for function in functions)


def test_captions_with_one_command_or_none():
    assert style.caption("Shown.", "Seen.", "python compare.py") == (
        "Shown.\n\nSeen.\n\nNumbers and figure: python compare.py\n"
    )
    assert style.caption("Shown.", "Seen.") == "Shown.\n\nSeen.\n"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, "learning rate tuned per scheme"),
        ({"rate_per_regime": True}, "learning rate tuned per scheme and regime"),
        ({"learning_rates": (0.001,), "tuning_seeds": ()}, "one learning rate for all schemes, 0.001"),
        (
            {"learning_rates": (0.001,), "tuning_seeds": (), "rate_per_regime": True},
            "one learning rate for all schemes, 0.001",
        ),
    ],
)
def test_what_is_said_of_tuning_is_true(changed, text):
    assert style.tuning(dataclasses.replace(experiments.load("scale_mismatch"), **changed)) == text


def test_commands_are_those_of_the_command_line_or_the_given_one():
    quick = experiments.load("levels", quick=True)
    ran = "python -m benchmarks run levels --quick"
    assert style.commands(quick, "{name}") == (ran, "python -m plots levels --quick")
    assert style.commands(quick, "curves --experiment {name} --regime r") == (
        ran, "python -m plots curves --experiment levels --quick --regime r",
    )  # fmt: skip
    assert style.commands(quick, "{name}", "python compare.py") == ("python compare.py",)
    assert style.commands(quick, "{name}", "") == ()
    # No command line can run an experiment that is kept in a script.
    own = dataclasses.replace(quick, name="mine")
    assert style.commands(own, "{name}") == ()
    assert style.commands(own, "{name}", "python mine.py") == ("python mine.py",)


@pytest.mark.parametrize(("names", "joined"), [([], "none"), (["a"], "a"), (["a", "b", "c"], "a, b and c")])
def test_names_are_joined(names, joined):
    assert style.enumerate_names(names) == joined


def test_credit_by_turn_shows_every_scheme_and_says_what_grows(document):
    figure = credit_by_turn.draw(document)
    left, right = figure.axes
    assert {text.get_text() for text in left.texts} == set(credit_by_turn.LABELS.values())
    assert len(right.texts) == len(credit_by_turn.ACCUMULATIONS) + 1
    text = flat(credit_by_turn.describe(document))
    assert "A plain sum grows: from 1.50 with 2 gains to 2.00" in text
    assert "Divided by the root of the number it stays level" in text
    assert "--json results/credit.json" in text


def test_a_figure_of_a_document_is_written_with_its_caption(tmp_path, monkeypatch, capsys, document):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    monkeypatch.setattr(style, "FIGURES", tmp_path)
    (tmp_path / "credit.json").write_text(json.dumps(document))
    command.main("credit_by_turn", root=tmp_path)
    assert {path.suffix for path in tmp_path.glob("credit_by_turn.*")} == {".png", ".svg", ".txt"}
    text = (tmp_path / "credit_by_turn.txt").read_text(encoding="utf-8")
    assert text == credit_by_turn.describe(document) and capsys.readouterr().out.endswith(text)


@pytest.mark.parametrize("name", ["credit_by_turn", "surrogates"])
def test_figures_of_other_results_leave_the_repository_alone(tmp_path, monkeypatch, capsys, document, name):
    monkeypatch.setattr(style, "FIGURES", tmp_path / "repository")
    root = tmp_path / "fresh" / "results"
    root.mkdir(parents=True)
    (root / "credit.json").write_text(json.dumps(document))
    command.main(name, root=root)
    # The links of fresh/RESULTS.md are plots/figures/NAME.png.
    written = {path.relative_to(tmp_path / "fresh") for path in (tmp_path / "fresh" / "plots").rglob("*.*")}
    assert {path.as_posix() for path in written} == {f"plots/figures/{name}.{end}" for end in ("png", "svg", "txt")}
    assert not (tmp_path / "repository").exists()


def test_figures_go_to_the_folder_that_is_asked_for(tmp_path, monkeypatch, capsys, document):
    monkeypatch.setattr(style, "FIGURES", tmp_path / "repository")
    root, out = tmp_path / "fresh" / "results", tmp_path / "new" / "figures"
    root.mkdir(parents=True)
    (root / "credit.json").write_text(json.dumps(document))
    assert command.run(["credit_by_turn", "--root", str(root), "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out / 'credit_by_turn.png'}\n")
    assert sorted(path.name for path in out.iterdir()) == [f"credit_by_turn.{end}" for end in ("png", "svg", "txt")]
    assert command.run(["all", "--root", str(root), "--out", str(out)]) == 0
    assert {path.stem for path in out.glob("*.png")} == {"credit_by_turn", *command.SUITE}
    assert not (tmp_path / "repository").exists() and not (tmp_path / "fresh" / "plots").exists()


def test_the_default_root_keeps_the_figures_of_the_repository(tmp_path, monkeypatch):
    assert style.figures_of(store.RESULTS) == style.FIGURES
    monkeypatch.chdir(store.REPOSITORY)
    assert style.figures_of(Path("results")) == style.FIGURES
    monkeypatch.chdir(tmp_path)
    assert style.figures_of(Path("results")) == Path("plots/figures")


def test_the_claims_caption_counts_verdicts():
    def entry(key, verdict):
        return {
            "key": key, "verdict": verdict, "effect": 0.1, "low": 0.0, "high": 0.2, "robust": "yes",
            "predicted": "greater", "metric": "score", "regime": "chain", "seeds": 20, "control_mean": 4.0,
        }  # fmt: skip

    text = flat(claims.describe([entry("a", "replicates"), entry("b", "contradicted"), entry("c", "replicates")]))
    assert "2 replicate (2 of them robust), 1 are contradicted (b), 0 are inconclusive" in text
    assert "over 20 paired seeds" in text


def test_the_microscope_caption_names_who_starves():
    def entry(scheme, share, **changed):
        measured = {"cosine": 0.5, "bias_cosine": 0.9, "signal_to_noise": 1.0, "shares": [1 - share, share]}
        return {
            "scheme": scheme, "n": 5, "policies": 3, **measured, "low": measured, "high": measured,
            "exact_shares": [0.5, 0.5], "setting": {**microscope.DEFAULT, **changed},
        }  # fmt: skip

    seen = [entry("rloo", 0.4), entry("rloo", 0.01, spread=100.0), entry("grpo", 0.4), entry("grpo", 0.4, spread=100.0)]
    text = flat(microscope.describe(seen))
    assert "below a tenth of what it was with rloo, and keeps nine tenths with grpo" in text


def test_the_surrogates_caption_follows_from_the_pushes():
    far, unbounded = flat(surrogates.describe()).split("not pushed at all by ")[1].split("; one with negative")
    assert "ppo_clip" in far and "reinforce" not in far
    assert "ppo_clip" in unbounded and "reinforce" not in unbounded.split("REINFORCE by ")[1]


def test_a_view_is_called_after_what_it_shows(tmp_path):
    with pytest.raises(BenchmarkError, match="There are no results of 'levels'"):
        command.main("curves", experiment="levels", root=tmp_path)
    with pytest.raises(BenchmarkError, match="must be one of"):
        command.main("curves", experiment="nothing", root=tmp_path)
