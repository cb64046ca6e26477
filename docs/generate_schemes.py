"""Write the pages of docs/schemes from the registry: ``python docs/generate_schemes.py``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from algos import explain as about
from algos.parts import AXES
from algos.recipes import CARRY_OVER, RECIPES
from algos.recipes.carry_over import SETTINGS

PAGES = Path(__file__).parent / "schemes"
PARITY = Path(__file__).parents[1] / "tests" / "parity" / "status.json"
"""Recipe -> list of {"tool": ..., "difference": largest absolute difference}."""

SPEED = Path(__file__).parents[1] / "results" / "speed.json"
"""Times that ``make speed`` measured."""

GENERATED = "<!-- Written by docs/generate_schemes.py; changes belong there or in the registry. -->"


def render(parity: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """Return the text of every page, file name -> Markdown."""
    pages = {"index.md": index_page(parity), "parts.md": parts_page(), "carry-over.md": carry_over_page()}
    return {name: f"{GENERATED}\n\n{text}" for name, text in pages.items()}


def load_parity(path: Path = PARITY) -> dict[str, list[dict[str, Any]]]:
    """Return the parity status; empty where there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def index_page(parity: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """List the recipes: what they are made of, and what they claim."""
    made_of, claims, behaviour = [], [], []
    for name, recipe in RECIPES.items():
        entry = about.recipe_entry(name)
        links = ", ".join(f"[{number}](https://arxiv.org/abs/{number})" for number in entry["arxiv"])
        made_of.append([f"`{name}`", _text(entry["credit"]), _text(entry["loss"]), links or "-", _parity(parity, name)])
        claims.append([f"`{name}`", f"`{_text(recipe.formula)}`", _text(recipe.fixes), _text(recipe.wins)])
        behaviour.append(
            [
                f"`{name}`",
                _text(recipe.no_op),
                about.UNDER_AFFINE[recipe.under_affine],
                about.DEAD_GROUPS[recipe.dead_groups],
                ", ".join(f"`{column}`" for column in entry["needs"]) or "-",
                _text(recipe.certainty),
            ]
        )
    return "\n\n".join(
        [
            "# Schemes",
            f"{len(RECIPES)} named schemes. `python -m algos explain NAME` shows one with a worked example, "
            "`python -m algos schemes` this list. Any choice can be changed in place: "
            '`scheme="grpo:scale=environment,eps=1e-4"`. See [the parts](parts.md) that schemes are made of, '
            "[the same schemes in LLM trainers](carry-over.md), and [how to add one](../add-a-scheme.md).",
            "## What they are made of",
            "Credit reads *signal - baseline / scale*, then weights and whitening; what is not named is at its "
            "default. Parity: the tests in `tests/parity` hold the difference from the tool's own numbers below this.",
            "Schemes that differ only in a level coincide where the levels do. With one environment, the levels "
            "environment and batch are the same: `erpo` and `lite_ppo` then give equal advantages, and differ only in "
            "how they average the loss.",
            _table(["recipe", "credit", "loss", "arXiv", "parity"], made_of),
            "## What they claim",
            "In the words of their sources, shortened; nothing here is verified by being listed. g is the group (the "
            "rollouts of one prompt), G its size, L a rollout's tokens, z a z-score.",
            _table(["recipe", "advantage", "claims to fix", "claims to win"], claims),
            "## How they behave",
            "What a positive factor and an offset of all rewards do to the advantages, what groups with equal "
            "rewards get, which columns of the batch are needed besides rewards, and how certain the formula is: "
            "SEEN-PAPER (equations read), SEEN-CODE (code read), SEEN-NOTE and SEEN-3P (a third party's note or "
            "digest), INFERRED (chosen here where the source is silent).",
            _table(
                ["recipe", "has no effect", "rewards times a factor, plus an offset", "equal rewards", "needs",
                 "certainty"],
                behaviour,
            ),
            "## What they cost",
            "Milliseconds per update of 2,560 turns (four epochs of four minibatches, layers of 64, credit and memory "
            "included, collection not), and how many times that of PPO's clip: `grpo`, or `ppo` for schemes with a "
            "critic, which is a second network. From `results/speed.json`, made by `make speed` on one machine; single "
            "recipes vary by some hundredths from run to run.",
            _table(["recipe", "ms per update", "x PPO's clip"], cost_rows()),
        ]
    ) + "\n"  # fmt: skip


def cost_rows(path: Path = SPEED) -> list[list[str]]:
    """Return the stored time of every recipe's update, the costliest first."""
    times = json.loads(path.read_text())["train_milliseconds"] if path.exists() else {}
    shares = {
        name: times[name] / times["ppo" if RECIPES[name].scheme.needs_critic else "grpo"]
        for name in times if name in RECIPES
    }  # fmt: skip
    order = sorted(shares, key=lambda name: -shares[name])
    return [[f"`{name}`", f"{times[name]:.1f}", f"{shares[name]:.2f}"] for name in order]


def parts_page() -> str:
    """List every axis with its parts, then the other fields."""
    sections = [
        "# Parts",
        "A scheme is one choice for each axis. Options are set beside the fields: "
        '`"grpo:baseline_kind=median,middle=average"`. `python -m algos schemes --parts` prints the same.',
    ]
    meanings = about.meanings(about.Scheme)
    entries = about.part_entries()
    for axis in AXES:
        rows = [
            [
                f"`{entry['name']}`",
                _text(entry["what"]),
                "<br>".join(f"`{_text(about.show_option(option))}`" for option in entry["options"]) or "-",
                ", ".join(f"`{name}`" for name in entry["uses"]) or "-",
                ", ".join(f"`{name}`" for name in entry["needs"]) or "-",
                _text(entry["source"]),
            ]
            for entry in entries[axis]
        ]
        header = [axis, "what it does", "options", "fields it reads", "columns it needs", "source"]
        sections += [f"## {axis}", _sentence(meanings[axis]), _table(header, rows)]
    rows = [
        [
            f"`{entry['name']}`", f"`{about.show(entry['default'])}`", _text(about.show_allowed(entry)),
            _text(entry["meaning"]),
        ]
        for entry in about.field_entries()
    ]  # fmt: skip
    sections += ["## Levels, numbers and other fields", _table(["field", "default", "allowed", "meaning"], rows)]
    return "\n\n".join(sections) + "\n"


def carry_over_page() -> str:
    """List the recipes that LLM trainers ship, with the settings on both sides."""
    rows = [
        [
            f"`{entry.recipe}`", entry.tool, f"`{_text(entry.setting)}`", f"`{entry.here}`", _text(entry.differs),
        ]
        for entry in CARRY_OVER
    ]  # fmt: skip
    settings = [[f"`{entry.here}`", _code(entry.verl), _code(entry.trl)] for entry in SETTINGS]
    sections = [
        "# The same schemes in LLM trainers",
        "A scheme that won here is worth a try there. *Setting* makes the tool's credit and loss this recipe, with "
        "its other settings at their defaults; *here* is the scheme that follows the tool's conventions (eps, groups "
        "of one, dual clip, rollouts without tokens), for a comparison at equal numbers. What is left to differ is in "
        "the last column. `actor.` stands for `actor_rollout_ref.actor.`; both tools' formulas are in "
        "`tests/parity/README.md`.",
        _table(["recipe", "tool", "setting", "here", "still differs"], rows),
        "## Settings that go with any recipe",
        _table(["here", "verl 0.9.1", "TRL 1.16 (`GRPOConfig`)"], settings),
        "As a whole, the recipes that are not in the first table exist in neither tool. Their credit can be carried "
        "over as an advantage estimator of your own, see "
        "[Add a scheme](../add-a-scheme.md#carry-it-over-to-an-llm-trainer).",
    ]
    return "\n\n".join(sections) + "\n"


def main() -> None:
    """Write the pages."""
    PAGES.mkdir(exist_ok=True)
    for name, text in render(load_parity()).items():
        (PAGES / name).write_text(text)


def _parity(parity: Mapping[str, Sequence[Mapping[str, Any]]], name: str) -> str:
    return "<br>".join(f"{entry['tool']}: {entry['difference']:.1g}" for entry in parity.get(name, ())) or "-"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _text(text: str) -> str:
    """Make text fit for a cell."""
    return text.replace("``", "`").replace("|", r"\|")


def _code(text: str) -> str:
    return text if text == "-" or " " in text else f"`{text}`"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}".replace("``", "`")


if __name__ == "__main__":
    main()
