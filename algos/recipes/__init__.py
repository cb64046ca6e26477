"""The named schemes with their sources and claims, as data."""

from __future__ import annotations

from algos.recipes.levels import LEVELS
from algos.recipes.losses import LOSSES
from algos.recipes.outcome import OUTCOME
from algos.recipes.recipe import Recipe
from algos.recipes.several_rewards import SEVERAL_REWARDS
from algos.recipes.turns import TURNS

RECIPES: dict[str, Recipe] = {**OUTCOME, **LEVELS, **TURNS, **SEVERAL_REWARDS, **LOSSES}


def recipe(name: str) -> Recipe:
    """Look a recipe up.

    Raises:
        ValueError: if there is none of that name; lists them.
    """
    if name not in RECIPES:
        raise ValueError(f"scheme={name!r} is not allowed: it must be one of {sorted(RECIPES)}.")
    return RECIPES[name]


__all__ = ["RECIPES", "Recipe", "recipe"]
