"""The named schemes with their sources and claims, as data."""

from __future__ import annotations

from agentic_gym.knobs import did_you_mean
from algos.recipes.carry_over import CARRY_OVER, CarryOver
from algos.recipes.levels import LEVELS
from algos.recipes.losses import LOSSES
from algos.recipes.outcome import OUTCOME
from algos.recipes.recipe import Recipe
from algos.recipes.sampling import SAMPLING
from algos.recipes.several_rewards import SEVERAL_REWARDS
from algos.recipes.turns import TURNS

RECIPES: dict[str, Recipe] = {**OUTCOME, **LEVELS, **TURNS, **SEVERAL_REWARDS, **LOSSES, **SAMPLING}


def recipe(name: str) -> Recipe:
    """Look a recipe up.

    Raises:
        ValueError: if there is none of that name; lists them.
    """
    if not isinstance(name, str) or name not in RECIPES:
        hint = did_you_mean(name, RECIPES)
        raise ValueError(f"scheme={name!r} is not allowed: it must be one of {sorted(RECIPES)}.{hint}")
    return RECIPES[name]


def register_recipe(name: str, new: Recipe) -> None:
    """Make a scheme of your own known by a name, everywhere that recipe names are taken.

    Args:
        name: a Python identifier that no recipe has.
        new: the scheme and what you say of it.

    Raises:
        ValueError: if the name is no identifier, or is taken.
        TypeError: if ``new`` is not a ``Recipe``.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"name={name!r} is not allowed: it must be an identifier, for example 'trimmed_grpo'.")
    if name in RECIPES:
        raise ValueError(f"name={name!r} is taken: there is a recipe of that name.")
    if not isinstance(new, Recipe):
        raise TypeError(f"new={new!r} is not allowed: it must be a Recipe.")
    RECIPES[name] = new


__all__ = ["CARRY_OVER", "RECIPES", "CarryOver", "Recipe", "recipe", "register_recipe"]
