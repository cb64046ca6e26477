"""What schemes and their parts are, as plain data: for the command line and the documentation.

Everything is read from ``RECIPES``, the parts and the fields of ``Scheme``.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from agentic_gym.knobs import did_you_mean
from algos import parts
from algos.docstrings import first_line, meanings
from algos.example import worked_example
from algos.recipes import CARRY_OVER, RECIPES, Recipe
from algos.scheme import FIELDS, NUMBERS, OPTIONAL, PART_FIELDS, Scheme, choices, make_scheme

CREDIT = (
    "signal", "baseline", "baseline_kind", "scale", "scale_kind", "accumulation", "whitening", "whitening_weight",
    "weights", "ddof", "eps", "eps_placement", "singleton", "gamma", "gae_lambda",
)  # fmt: skip
"""Fields that decide the advantages; all others decide the loss or the sampling."""

ALWAYS_SHOWN = ("surrogate", "aggregation")
"""Choices of the loss that its short form names even where they are the default's."""

UNDER_AFFINE = {
    "invariant": "nothing changes (up to eps)",
    "shift_invariant": "an offset changes nothing, a factor multiplies the advantages",
    "scale_only": "a factor multiplies the advantages, an offset changes them",
    "neither": "factor and offset both change the advantages",
}
DEAD_GROUPS = {"zero": "advantages of exactly 0", "signal": "may still have advantages"}


def explain(text: str) -> dict[str, Any]:
    """Explain a recipe, with or without overrides.

    Args:
        text: as in ``make_scheme``, for example ``"erpo"`` or ``"erpo:eps=1e-4"``.

    Returns:
        ``recipe`` (what ``recipe_entry`` says of it), ``scheme`` (the text), ``overridden`` (what
        differs from the recipe), ``fields`` (those that matter), ``parts`` (those in use that do
        something), ``needs``, ``carry_over`` and ``example``.

    Raises:
        ValueError: if there is no such recipe (names those with similar names), or an override is
            not allowed.
        TypeError: if an override is unknown.
    """
    name = text.partition(":")[0].strip()
    if name not in RECIPES:
        hint = did_you_mean(name, RECIPES)
        raise ValueError(
            f"SCHEME={name!r} is not allowed: there is no such recipe; `python -m algos schemes` lists them.{hint}"
        )
    scheme, recipe = make_scheme(text), RECIPES[name]
    return {
        "recipe": recipe_entry(name),
        "scheme": text,
        "overridden": _changes(scheme, recipe.scheme),
        "fields": [
            {"name": field, "value": getattr(scheme, field), "meaning": meanings(Scheme)[field]}
            for field in FIELDS
            if field != "options" and field not in scheme.ignored()
        ],
        "parts": [
            {**part_entry(chosen), "settings": scheme.options_of(chosen)}
            for chosen in scheme.parts
            if chosen.name != "none"
        ],
        "needs": sorted(scheme.needs),
        "carry_over": [dataclasses.asdict(entry) for entry in CARRY_OVER if entry.recipe == name],
        "example": worked_example(scheme),
    }


def recipe_entry(name: str) -> dict[str, Any]:
    """Return what is said of a recipe, with its scheme in short."""
    recipe = RECIPES[name]
    return {
        "name": name,
        "source": recipe.source,
        "arxiv": arxiv_numbers(recipe),
        "certainty": recipe.certainty,
        "formula": recipe.formula,
        "fixes": recipe.fixes,
        "wins": recipe.wins,
        "no_op": recipe.no_op,
        "under_affine": recipe.under_affine,
        "dead_groups": recipe.dead_groups,
        "credit": credit_in_short(recipe.scheme),
        "loss": loss_in_short(recipe.scheme),
        "needs": sorted(recipe.scheme.needs),
        "scheme": _changes(recipe.scheme, Scheme()),
    }


def part_entry(chosen: parts.Part) -> dict[str, Any]:
    """Return what a part is, with its options."""
    return {
        "axis": chosen.axis,
        "name": chosen.name,
        "what": first_line(chosen.function),
        "options": [option_entry(option) for option in chosen.options.values()],
        "uses": sorted(chosen.uses),
        "needs": sorted(chosen.needs),
        "per_turn": "per_turn" in chosen.tags,
        "remembers": chosen.after_update is not None,
        "source": chosen.source,
    }


def option_entry(option: parts.Option) -> dict[str, Any]:
    """Return what an option may be; open ends of a range are None."""
    return {
        "name": option.name,
        "default": option.default,
        "kind": option.kind,
        "optional": option.optional,
        "low": _finite(option.low),
        "high": _finite(option.high),
        "choices": list(option.choices),
    }


def part_entries() -> dict[str, list[dict[str, Any]]]:
    """Return all parts by axis."""
    return {axis: [part_entry(parts.find(axis, name)) for name in parts.choices(axis)] for axis in parts.AXES}


def field_entries() -> list[dict[str, Any]]:
    """Return the fields of a scheme that are not axes of parts: levels, numbers and plain choices."""
    entries = []
    for name, field in FIELDS.items():
        if name in PART_FIELDS or name == "options":
            continue
        low, high, open_low = NUMBERS.get(name, (-math.inf, math.inf, False))
        entries.append(
            {
                "name": name,
                "default": field.default,
                "choices": list(choices(name)),
                "low": _finite(low),
                "high": _finite(high),
                "open_low": open_low,
                "optional": name in OPTIONAL,
                "meaning": meanings(Scheme)[name],
            }
        )
    return entries


def credit_in_short(scheme: Scheme) -> str:
    """Return how rewards become advantages, in one line: ``outcome - prompt mean / prompt std``."""
    text = _named(scheme, "signal")
    ignored = scheme.ignored()
    if scheme.baseline != "none":
        text += f" - {scheme.baseline} {_named(scheme, 'baseline_kind')}"
    if scheme.scale != "none":
        kind = "std" if "scale_kind" in ignored else _named(scheme, "scale_kind")
        text += f" / {scheme.scale} {kind}"
    if scheme.weights != "none":
        text += f", weights {_named(scheme, 'weights')}"
    if scheme.accumulation != "none" and "accumulation" not in ignored:
        text += f", accumulation {scheme.accumulation}"
    if scheme.whitening != "none":
        text += f", whitened over {scheme.whitening} by {scheme.whitening_weight}"
    numbers = ("ddof", "eps", "eps_placement", "singleton", "gamma", "gae_lambda")
    return ", ".join([text, *_unusual(scheme, numbers)])


def loss_in_short(scheme: Scheme) -> str:
    """Return how advantages become a loss (and which prompts are drawn): ``ppo_clip, rollout_mean``."""
    shown = []
    for name in FIELDS:
        if name in CREDIT or name == "options" or name in scheme.ignored():
            continue
        if name in ALWAYS_SHOWN:
            shown.append(_named(scheme, name))
        else:
            shown += _unusual(scheme, (name,))
    return ", ".join(shown)


def claim(recipe: Recipe) -> str:
    """Return what a recipe claims to fix, and where it claims to win, in one line."""
    said = [] if recipe.fixes == "-" else [f"fixes: {recipe.fixes}"]
    if recipe.wins != "-":
        said.append(f"wins: {recipe.wins}")
    return "; ".join(said) or "-"


def arxiv_numbers(recipe: Recipe) -> list[str]:
    """Return the arXiv numbers of a recipe's source."""
    return list(dict.fromkeys(re.findall(r"\b\d{4}\.\d{5}\b", recipe.source)))


def show(value: Any) -> str:
    """Write a value as overrides are written."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, tuple | list):
        return ";".join(show(entry) for entry in value)
    # 1e-08 is written 1e-8.
    return re.sub(r"e([+-])0+", r"e\1", f"{value:g}") if isinstance(value, float) else str(value)


def show_allowed(entry: dict[str, Any]) -> str:
    """Write what an option or a field may be."""
    if entry["choices"]:
        return " | ".join(entry["choices"])
    if entry.get("kind") == "bool":
        return "true | false"
    if entry["name"] == "ddof":
        return "0 | 1"
    text = "numbers, written 1;2;3" if entry.get("kind") == "floats" else _show_range(entry)
    return f"{text} or none" if entry["optional"] else text


def _show_range(entry: dict[str, Any]) -> str:
    low, high, above = entry["low"], entry["high"], ">" if entry.get("open_low") else ">="
    if low is not None and high is not None:
        return f"{'(' if entry.get('open_low') else '['}{show(low)}, {show(high)}]"
    if low is None and high is None:
        return "any number"
    return f"<= {show(high)}" if low is None else f"{above} {show(low)}"


def show_option(entry: dict[str, Any]) -> str:
    """Write an option with its default and what it may be."""
    return f"{entry['name']}={show(entry['default'])} ({show_allowed(entry)})"


def _named(scheme: Scheme, axis: str) -> str:
    """Return the name of an axis' part with the options that differ from their defaults."""
    chosen = parts.find(axis, getattr(scheme, axis))
    own = {name: value for name, value in scheme.options if name in chosen.options}
    settings = ", ".join(f"{name}={show(value)}" for name, value in own.items())
    return f"{chosen.name}({settings})" if settings else chosen.name


def _unusual(scheme: Scheme, names: tuple[str, ...]) -> list[str]:
    """Return ``name=value`` of the fields that matter and differ from their defaults, or have options."""
    shown = []
    for name in names:
        value = getattr(scheme, name)
        text = _named(scheme, name) if name in PART_FIELDS else show(value)
        if name not in scheme.ignored() and (value != FIELDS[name].default or "(" in text):
            shown.append(f"{name}={text}")
    return shown


def _changes(scheme: Scheme, base: Scheme) -> dict[str, Any]:
    """Return fields and options of a scheme that differ from another's."""
    changed = {name: getattr(scheme, name) for name in FIELDS if getattr(scheme, name) != getattr(base, name)}
    changed.pop("options", None)
    before, own = _settings(base), dict(scheme.options)
    for name, value in _settings(scheme).items():
        if value != before[name] if name in before else name in own:
            changed[name] = value
    return changed


def _settings(scheme: Scheme) -> dict[str, Any]:
    """Return all options of the parts in use."""
    return {name: value for chosen in scheme.parts for name, value in scheme.options_of(chosen).items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
