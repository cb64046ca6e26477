"""The parity column of the documentation lists recipes that the parity tests name, within the tests' bound."""

import json
import re
from pathlib import Path

import pytest

from algos import RECIPES

FOLDER = Path(__file__).parent
STATUS = json.loads((FOLDER / "status.json").read_text(encoding="utf-8"))
NAMED = set(re.findall(r"\"([a-z0-9_]+)[\":]", (FOLDER / "test_advantages.py").read_text(encoding="utf-8")))
NAMED |= set(re.findall(r"\"([a-z0-9_]+)[\":]", (FOLDER / "test_losses.py").read_text(encoding="utf-8")))

OTHERWISE = {"passk": "grpo_passk", "lite_ppo": "batch"}
"""Recipes that the tests write as another recipe with changes; the tool's name of that."""


@pytest.mark.parametrize("recipe", STATUS)
def test_listed_recipes_are_tested(recipe):
    assert recipe in RECIPES
    assert OTHERWISE.get(recipe, recipe) in NAMED
    for entry in STATUS[recipe]:
        assert entry["tool"].split()[0] in ("verl", "TRL")
        assert 0 < entry["difference"] <= 1e-6
