"""The command line of the schemes, and what it is made from."""

import dataclasses
import functools
import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from rich.console import Console

from algos import RECIPES, Recipe, RolloutBatch, Scheme, advantages, make_scheme, parts, register_recipe
from algos import explain as about
from algos.__main__ import _cell, _interval, main
from algos.docstrings import meanings
from algos.example import _anything, example_columns, meaning_of_columns, worked_example
from algos.scheme import FIELDS, PART_FIELDS


@pytest.fixture
def printed(capsys):
    """Run the command line; returns what it prints."""

    def run(*arguments, status=0):
        assert main(list(arguments)) == status
        return capsys.readouterr().out

    return run


def test_without_arguments_there_is_help(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "schemes" in out and "explain" in out


def test_schemes_lists_every_recipe(printed):
    out, short = printed("schemes", "--wide"), printed("schemes")
    assert "┃ certainty " in out and "┃ certainty " not in short
    for name, recipe in RECIPES.items():
        (line,) = [line for line in short.splitlines() if line.startswith(f"│ {name} ")]
        assert about.credit_in_short(recipe.scheme) in line and about.loss_in_short(recipe.scheme) in line
        (line,) = [line for line in out.splitlines() if line.startswith(f"│ {name} ")]
        assert recipe.certainty in line and about.claim(recipe) in line
        assert all(number in line for number in about.arxiv_numbers(recipe))


def test_schemes_can_be_read_in_80_columns(printed, monkeypatch):
    terminal = functools.partial(Console, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("agentic_gym.console.Console", terminal)
    out = printed("schemes")
    assert all(f"\n│ {name} " in out for name in RECIPES)
    assert max(map(len, out.splitlines())) <= 80 and "…" not in out
    assert min(len(cell) for cell in out.splitlines()[1].split("┳")) >= 20


def test_schemes_as_json(printed):
    entries = json.loads(printed("schemes", "--json"))
    assert [entry["name"] for entry in entries] == list(RECIPES)
    for entry in entries:
        # The scheme is given by what differs from the default.
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in entry["scheme"].items()}
        fields = {name: value for name, value in settings.items() if name in FIELDS}
        options = tuple((name, value) for name, value in settings.items() if name not in FIELDS)
        assert Scheme(**fields, options=options) == RECIPES[entry["name"]].scheme


def test_parts_lists_every_part_option_and_field(printed):
    out = printed("schemes", "--parts")
    for axis in parts.AXES:
        section = out[out.index(f"\n┃ {axis} ") :].split("└")[0]
        for name in parts.choices(axis):
            (line,) = [line for line in section.splitlines() if line.startswith(f"│ {name} ")]
            part = parts.find(axis, name)
            assert part.source.replace("``", "") in line
            assert all(f"{option}=" in line for option in part.options)
    for name in FIELDS:
        assert name in PART_FIELDS or name == "options" or f"\n│ {name} " in out


def test_parts_as_json(printed):
    listed = json.loads(printed("schemes", "--parts", "--json"))
    assert list(listed["axes"]) == list(parts.AXES)
    for axis, entries in listed["axes"].items():
        assert [entry["name"] for entry in entries] == list(parts.choices(axis))
    (share,) = [o for p in listed["axes"]["baseline_kind"] if p["name"] == "dense_window" for o in p["options"]][:1]
    assert share == {
        "name": "share", "default": 0.5, "kind": "float", "optional": False, "low": 0.0, "high": 1.0, "choices": [],
    }  # fmt: skip
    (clip,) = [field for field in listed["fields"] if field["name"] == "dual_clip"]
    assert (clip["low"], clip["high"], clip["open_low"], clip["optional"]) == (1.0, None, True, True)


def test_everything_has_a_meaning():
    assert set(meanings(Scheme)) == set(FIELDS)
    assert all(about.first_line(parts.find(axis, name).function) for axis in parts.AXES for name in parts.choices(axis))
    assert all(field.name in meanings(RolloutBatch) for field in dataclasses.fields(RolloutBatch))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_explained(name, printed):
    recipe, out = RECIPES[name], printed("explain", name)
    for text in (recipe.source, recipe.certainty, recipe.formula, recipe.fixes, recipe.wins, recipe.no_op):
        assert text in out
    assert about.UNDER_AFFINE[recipe.under_affine] in out and about.DEAD_GROUPS[recipe.dead_groups] in out
    for field in FIELDS:
        if field != "options":
            assert (f"\n│ {field} " in out.split("parts in use")[0]) == (field not in recipe.scheme.ignored())
    for chosen in recipe.scheme.parts:
        assert chosen.name == "none" or about.first_line(chosen.function).replace("``", "") in out
    columns = out[out.index("a worked example") :].splitlines()[2]
    assert all(need in columns for need in recipe.scheme.needs if need in meaning_of_columns())


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("name", RECIPES)
def test_no_explanation_is_cut_in_a_terminal(name, width, printed, monkeypatch):
    terminal = functools.partial(Console, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr("agentic_gym.console.Console", terminal)
    out = printed("explain", name)
    assert "…" not in out and max(map(len, out.splitlines())) <= width
    # Numbers are whole: what a cell takes from line to line is divided at spaces only.
    words = Counter(out[out.index("a worked example") :].replace("│", " ").split())
    rows = [{k: v for k, v in row.items() if "clip" not in k} for row in worked_example(RECIPES[name].scheme)["rows"]]
    assert Counter(word for row in rows for value in row.values() for word in _cell(value).split()) <= words
    parts_in_use = out.partition("parts in use")[2].replace("│", " ").split()
    assert {chosen.name for chosen in RECIPES[name].scheme.parts} - {"none"} <= set(parts_in_use)


@pytest.mark.parametrize("name", RECIPES)
def test_every_explanation_is_json(name, printed):
    entry = json.loads(printed("explain", name, "--json"))
    assert entry["recipe"]["name"] == name and entry["overridden"] == {}
    assert {field["name"] for field in entry["fields"]} == set(FIELDS) - set(RECIPES[name].scheme.ignored()) - {
        "options"
    }
    assert len(entry["example"]["rows"]) == 16
    assert any(np.any(_flat(row["advantage"])) for row in entry["example"]["rows"])


def _flat(value):
    return [number for entry in value for number in _flat(entry)] if isinstance(value, list) else [value]


def test_overrides_are_shown(printed):
    out = printed("explain", "erpo:eps=1e-4,scale=task")
    assert "scale=task, eps=0.0001; all of the above is said of erpo without this" in out
    assert "│ eps           │ 0.0001 " in out and "│ scale         │ task " in out
    out = printed("explain", "mc_grpo:middle=average")
    assert "middle=average (lower | average)" in out and "middle=average; all of the above" in out
    # Back at the default.
    entry = json.loads(printed("explain", "spo_pp:forgetting=drift", "--json"))
    assert entry["overridden"] == {"forgetting": "drift"}


def test_the_example_by_hand():
    rows = worked_example(make_scheme("erpo:eps=0"))["rows"]
    spread = np.std([1, 0, 0, 0, 1, 1, 1, 0], ddof=1)
    assert [row["advantage"] for row in rows[:4]] == pytest.approx(np.array([0.75, -0.25, -0.25, -0.25]) / spread)
    assert [row["grpo"] for row in rows[:4]] == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-5)
    assert all(row["advantage"] == row["grpo"] == row["push"] == 0 for row in rows[12:])
    # At a ratio of 1 the push of a mean of rollouts is the advantage; clipped it is 0.
    for row in rows[:12]:
        clipped = (row["ratio"] > 1.2) if row["advantage"] > 0 else (row["ratio"] < 0.8)
        assert row["push"] == pytest.approx(0 if clipped else row["ratio"] * row["advantage"])
        assert (row["clip_low"], row["clip_high"]) == (0.8, 1.2)
    assert {row["environment"] for row in rows} == {"small", "large"}


def test_the_example_has_turns_and_tokens_where_the_scheme_has():
    by_rollout, by_turn, by_token = (worked_example(RECIPES[name].scheme) for name in ("grpo", "gigpo", "otb"))
    assert not by_rollout["several_turns"] and by_turn["several_turns"] and by_token["several_turns"]
    for row in by_turn["rows"]:
        assert len(row["advantage"]) == len(row["state_key"]) == len(row["tokens"])
    for row in by_token["rows"]:
        assert [len(entry) for entry in row["advantage"]] == row["tokens"]
    assert worked_example(RECIPES["rae"].scheme)["first_update"] and not by_rollout["first_update"]


@pytest.mark.parametrize("name", meaning_of_columns())
def test_every_column_can_be_made_up(name):
    columns = example_columns([name], several_turns=True)
    batch = RolloutBatch.from_arrays(**columns)
    assert getattr(batch, name).shape == columns[name].shape
    shape = columns[name].shape
    unknown = _anything(name)(np.random.default_rng(0), columns, shape)
    RolloutBatch.from_arrays(**{**columns, name: unknown})
    if name not in ("components", "state_key"):
        assert columns[name].dtype.kind == getattr(batch, name).dtype.kind


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.8, 1.2, "[0.8, 1.2]"),
        (0.9997, [1.0004, 1.001], "[0.9997, 1.0004] | [0.9997, 1.001]"),
        ([[0.5, 0.6], 0.7], [1.5, [1.6, 1.7]], "[0.5, 1.5] [0.6, 1.5] | [0.7, 1.6] [0.7, 1.7]"),
    ],
)
def test_clip_intervals_of_rollouts_turns_and_tokens(low, high, text):
    assert _interval(low, high) == text


def test_short_forms():
    credit = {
        "reinforce": "outcome",
        "grpo": "outcome - prompt mean / prompt std",
        "grpo_population": "outcome - prompt mean / prompt std, ddof=0",
        "disco": "outcome - prompt mean, weights disco",
        "agentrl": "outcome - prompt mean / prompt std, whitened over environment by token",
        "spo_pp": "outcome - prompt beta_tracker(forgetting=updates), whitened over batch by token, eps=1e-8, "
        "eps_placement=inside",
        "mt_grpo": "turn_and_outcome, eps=0.0001",
        "igpo": "information_gain, accumulation sum, ddof=0, gamma=1",
    }
    assert {name: about.credit_in_short(RECIPES[name].scheme) for name in credit} == credit
    loss = {
        "grpo": "ppo_clip, rollout_mean",
        "rloo": "reinforce, token_mean",
        "grpo:clip_high=0.28,dual_clip=3,kl=k3,dead_groups=excluded": "ppo_clip, clip_high=0.28, dual_clip=3, "
        "rollout_mean, kl=k3, dead_groups=excluded",
    }
    assert {text: about.loss_in_short(make_scheme(text)) for text in loss} == loss


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-8, "1e-8"), (1e12, "1e+12"), (0.5, "0.5"), (3, "3"), (None, "none"), (True, "true"), ((1.0, 2.5), "1;2.5")],
)
def test_values_are_written_as_overrides_are(value, text):
    assert about.show(value) == text


def test_allowed_values():
    share = parts.find("baseline_kind", "dense_window").options["share"]
    shown = {
        entry["name"]: about.show_allowed(entry)
        for entry in (*about.field_entries(), about.option_entry(share))
    }  # fmt: skip
    assert shown["eps"] == ">= 0" and shown["dual_clip"] == "> 1 or none" and shown["kl_coef"] == "> 0"
    assert shown["share"] == "[0, 1]" and shown["ddof"] == "0 | 1" and shown["eps_placement"] == "outside | inside"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["explain", "erop"], "Did you mean 'erpo'"),
        (["explain", "GRPO"], "Did you mean 'grpo'"),
        (["explain", "GRPO:eps=0"], "Did you mean 'grpo'"),
        (["explain", "xxxxxxxx"], "`python -m algos schemes` lists them"),
        (["explain", "grpo:scale=wide"], "scale='wide' is not allowed"),
        (["explain", "grpo:height=1"], "['height'] are not fields"),
        (["explain", "reinforce:clip_low=0.1"], "has no effect here"),
        (["explain", "grpo", "--use", "no_such_module"], "No module named 'no_such_module'"),
        (["schemes", "--use", "no_such_module"], "No module named 'no_such_module'"),
    ],
)
def test_bad_requests_are_explained(arguments, reason, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert reason in captured.err and captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            'from algos import *\nregister_recipe("grpo", Recipe(Scheme(), "me", "mine", "A", "a", "b", "c"))',
            "is taken",
        ),
        ('from algos import parts\nparts.part("scale_kind", "std", source="me")(len)', "is taken"),
        ('from algos import *\nregister_recipe("other", Scheme())', "it must be a Recipe"),
    ],
)
@pytest.mark.parametrize("command", [["schemes"], ["explain", "grpo"]])
def test_modules_that_cannot_register_are_one_line(tmp_path, monkeypatch, capsys, command, code, reason):
    (tmp_path / "clashing_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*command, "--use", "clashing_module"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: --use clashing_module: ") and captured.err.count("\n") == 1
    assert reason in captured.err and captured.out == ""


def test_the_program_runs_as_a_module():
    command = [sys.executable, "-W", "error", "-m", "algos", "explain", "grpo"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "a worked example" in done.stdout and "\x1b" not in done.stdout and done.stderr == ""


@pytest.fixture
def own_recipe():
    scheme = make_scheme("grpo:scale=environment")
    recipe = Recipe(scheme, "me", "mine", "A = ...", "a lot", "everywhere", "never")
    register_recipe("own_recipe", recipe)
    yield recipe
    del RECIPES["own_recipe"]


def test_own_recipes_are_known_by_name(own_recipe, printed):
    batch = RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0], environment=[0, 0])
    np.testing.assert_array_equal(advantages("own_recipe", batch), advantages(own_recipe.scheme, batch))
    assert "own_recipe" in printed("schemes") and "everywhere" in printed("explain", "own_recipe:eps=0")


def test_own_recipes_are_checked(own_recipe):
    with pytest.raises(ValueError, match="name='own_recipe' is taken"):
        register_recipe("own_recipe", own_recipe)
    for name in ("two words", "a:b", "", 3):
        with pytest.raises(ValueError, match="it must be an identifier"):
            register_recipe(name, own_recipe)
    with pytest.raises(TypeError, match="it must be a Recipe"):
        register_recipe("other", own_recipe.scheme)
    assert "other" not in RECIPES
