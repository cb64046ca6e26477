"""Command line of the schemes: ``python -m algos schemes``, ``explain RECIPE``."""

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from agentic_gym.console import say, show
from algos import explain as about
from algos.parts import AXES
from algos.recipes import RECIPES

AsJson = Annotated[bool, tyro.conf.arg(name="json")]
Modules = Annotated[tuple[str, ...], tyro.conf.arg(name="use", metavar="MODULE ...")]


class CommandError(Exception):
    """A request that cannot be met; the text says why."""


def schemes(parts: bool = False, wide: bool = False, as_json: AsJson = False, modules: Modules = ()) -> int:
    """List the recipes, or the parts that schemes are made of.

    Args:
        parts: List every axis with its parts, their options and their sources instead.
        wide: Show claim, certainty and arXiv number of the recipes as well.
        as_json: Print JSON.
        modules: Import these first: your own parts and recipes.
    """
    _import(modules)
    if as_json:
        listed = {"axes": about.part_entries(), "fields": about.field_entries()} if parts else _recipes()
        print(json.dumps(listed, indent=2, allow_nan=False))
    elif parts:
        for axis in AXES:
            show(_axis_table(axis), keys=1)
        show(_field_table())
    else:
        show(_recipe_table(wide))
    return 0


def explain(
    scheme: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SCHEME")],
    as_json: AsJson = False,
    modules: Modules = (),
) -> int:
    """Explain a recipe and work an example with it.

    Args:
        scheme: A recipe, for example erpo, or a recipe with overrides, for example
            erpo:eps=1e-4,scale=task.
        as_json: Print JSON.
        modules: Import these first: your own parts and recipes.
    """
    _import(modules)
    try:
        entry = about.explain(scheme)
    except (ValueError, TypeError) as error:
        raise CommandError(str(error)) from error
    if as_json:
        print(json.dumps(entry, indent=2, allow_nan=False))
        return 0
    show(_summary(entry))
    show(_settings(entry))
    show(_parts_in_use(entry), keys=2)
    if entry["carry_over"]:
        show(_carry_over(entry), keys=1)
    show(_example(entry["example"]), keys=2)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What follows ``python -m algos``; None reads it from the process.

    Returns:
        Exit status: 0, or 2 if the request cannot be met.
    """
    commands: dict[str, Callable[..., int]] = {"schemes": schemes, "explain": explain}
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status: int = tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="python -m algos",
            description="Look schemes up: what they are made of, what they claim, what they do.",
            args=given or ["--help"],
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except CommandError as error:
        say(f"error: {error}")
        return 2
    return status


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        try:
            importlib.import_module(name)
        except (ImportError, ValueError, TypeError) as error:  # The latter two are what registering raises.
            raise CommandError(f"--use {name}: {error}") from error


def _recipes() -> list[dict[str, Any]]:
    return [about.recipe_entry(name) for name in RECIPES]


def _recipe_table(wide: bool) -> Table:
    """Show what fits 80 columns, or all."""
    more = ("claim", "certainty", "arXiv") if wide else ()
    table = Table("recipe", "credit", "loss", *more, title="schemes")
    for column in table.columns:
        column.no_wrap = column.header in ("recipe", "arXiv")
        column.overflow = "fold"  # Settings are long words; none of them may be cut.
    for name, recipe in RECIPES.items():
        entry = about.recipe_entry(name)
        cells = [name, entry["credit"], entry["loss"]]
        if wide:
            cells += [about.claim(recipe), entry["certainty"], ", ".join(entry["arxiv"]) or "-"]
        _row(table, *cells)
    return table


def _axis_table(axis: str) -> Table:
    table = Table(axis, "what it does", "options", "fields it reads", "columns it needs", "source", title=axis)
    for entry in about.part_entries()[axis]:
        options = ", ".join(map(about.show_option, entry["options"])) or "-"
        uses, needs = (", ".join(entry[key]) or "-" for key in ("uses", "needs"))
        _row(table, entry["name"], entry["what"], options, uses, needs, entry["source"])
    return table


def _field_table() -> Table:
    table = Table("field", "default", "allowed", "meaning", title="levels, numbers and other fields")
    for entry in about.field_entries():
        _row(table, entry["name"], about.show(entry["default"]), about.show_allowed(entry), entry["meaning"])
    return table


def _summary(entry: dict[str, Any]) -> Table:
    recipe = entry["recipe"]
    table = Table(show_header=False, title=entry["scheme"])
    for label, text in (
        ("source", recipe["source"]),
        ("certainty", recipe["certainty"]),
        ("formula", recipe["formula"]),
        ("claims to fix", recipe["fixes"]),
        ("claims to win", recipe["wins"]),
        ("no effect", recipe["no_op"]),
        ("rewards times a factor, plus an offset", about.UNDER_AFFINE[recipe["under_affine"]]),
        ("groups with equal rewards", about.DEAD_GROUPS[recipe["dead_groups"]]),
        ("columns it needs", ", ".join(entry["needs"]) or "-"),
    ):
        _row(table, label, text)
    if entry["overridden"]:
        changes = ", ".join(f"{name}={about.show(value)}" for name, value in entry["overridden"].items())
        _row(table, "overridden", f"{changes}; all of the above is said of {recipe['name']} without this")
    return table


def _settings(entry: dict[str, Any]) -> Table:
    table = Table("field", "value", "meaning", title="fields that matter")
    for field in entry["fields"]:
        _row(table, field["name"], about.show(field["value"]), field["meaning"])
    return table


def _parts_in_use(entry: dict[str, Any]) -> Table:
    table = Table("axis", "part", "what it does", "options", "source", title="parts in use")
    for chosen in entry["parts"]:
        options = [
            f"{option['name']}={about.show(chosen['settings'][option['name']])} ({about.show_allowed(option)})"
            for option in chosen["options"]
        ]
        _row(table, chosen["axis"], chosen["name"], chosen["what"], ", ".join(options) or "-", chosen["source"])
    return table


def _carry_over(entry: dict[str, Any]) -> Table:
    table = Table(
        "tool", "its setting", "here, by its conventions", "what still differs", title="in LLM trainers",
        caption="actor. stands for actor_rollout_ref.actor.",
    )  # fmt: skip
    for row in entry["carry_over"]:
        _row(table, row["tool"], row["setting"], row["here"], row["differs"])
    return table


def _example(example: dict[str, Any]) -> Table:
    """Show the worked example: numbers of turns are separated by bars, those of tokens by spaces."""
    rows = example["rows"]
    clips = "clip_low" in rows[0]
    notes = [
        "Ratio: how far the policy has moved when the loss is taken. Push: minus the gradient of the loss to the "
        "log-probabilities, summed over the rollout's tokens, times the number of rollouts",
    ]
    if example["several_turns"]:
        notes.append("Numbers of turns are separated by bars, those of tokens by spaces")
    if example["first_update"]:
        notes.append("First update: there is nothing to remember yet")
    if example["made_up"]:
        notes.append("Made up: " + ", ".join(example["made_up"]))
    columns = ["environment", "prompt", "reward", "tokens", *example["made_up"], "advantage", "grpo", "ratio"]
    bounds = ["clip"] if clips else []
    table = Table(*columns, *bounds, "push", "grpo's push", title="a worked example", caption=". ".join(notes) + ".")
    for number, row in enumerate(rows):
        cells = [_cell(row[name]) for name in columns]
        if clips:
            cells.append(_interval(row["clip_low"], row["clip_high"]))
        _row(table, *cells, _cell(row["push"]), _cell(row["grpo_push"]))
        if number < len(rows) - 1 and rows[number + 1]["prompt"] != row["prompt"]:
            table.add_section()
    return table


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " | ".join(" ".join(map(_cell, entry)) if isinstance(entry, list) else _cell(entry) for entry in value)
    if isinstance(value, float):
        return f"{value + 0.0:.3g}"
    return about.show(value)


def _interval(low: Any, high: Any, separator: str = " | ") -> str:
    """Write the clip interval of a rollout, of its turns, or of their tokens."""
    if not isinstance(low, list) and not isinstance(high, list):
        return f"[{low:.5g}, {high:.5g}]"
    size = len(low if isinstance(low, list) else high)
    lows, highs = (bound if isinstance(bound, list) else [bound] * size for bound in (low, high))
    return separator.join(_interval(*pair, separator=" ") for pair in zip(lows, highs, strict=True))


def _row(table: Table, *cells: str) -> None:
    """Add literal text: brackets are no markup, and what docstrings mark as code is plain."""
    table.add_row(*(Text(cell.replace("``", "")) for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
