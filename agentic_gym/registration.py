"""The table of environment ids."""

from __future__ import annotations

from typing import Any

import gymnasium

NAMESPACE = "agentic_gym"

TABLE: dict[str, dict[str, Any]] = {
    "Reason-v0": {"family": "Reason"},
    "ReasonSaturated-v0": {"family": "Reason", "difficulty": 0.0},
    "ReasonHopeless-v0": {"family": "Reason", "depth": 6, "difficulty": 1.0, "reach": 9},
    "Search-v0": {"family": "Search"},
    "SearchHard-v0": {"family": "Search", "entities": 8, "relations": 4, "depth": 5, "difficulty": 0.6},
    "Household-v0": {"family": "Household"},
    "HouseholdLong-v0": {"family": "Household", "depth": 4, "difficulty": 0.9},
    "Shop-v0": {"family": "Shop"},
    "ShopDecoys-v0": {"family": "Shop", "difficulty": 1.0, "pages": 4},
    "Database-v0": {"family": "Database"},
    "Repair-v0": {"family": "Repair"},
    "RepairFlaky-v0": {"family": "Repair", "failure": 0.1, "difficulty": 0.9},
    "Desk-v0": {"family": "Desk"},
    "DeskWild-v0": {"family": "Desk", "tail": 1.2},
    "Report-v0": {"family": "Report"},
    "ReportSkewed-v0": {"family": "Report", "accuracy_scale": 100.0},
    "Chain-v0": {"family": "Chain"},
    "ChainDeep-v0": {"family": "Chain", "depth": 16},
    "Mixture-v0": {"family": "Mixture"},
}
"""Name -> knobs. Every id has the namespace ``agentic_gym/``."""

KNOBS_BY_ID = {f"{NAMESPACE}/{name}": knobs for name, knobs in TABLE.items()}
IDS = tuple(KNOBS_BY_ID)


def find_spec(env_id: str) -> Any:
    """Return Gymnasium's spec of an id.

    Raises:
        gymnasium.error.Error: if there is none; names the id of this package that may be meant.
    """
    try:
        return gymnasium.spec(env_id)
    except gymnasium.error.Error as error:
        short = str(env_id).lower().removeprefix(f"{NAMESPACE}/").partition("-v")[0]
        meant = [f"{NAMESPACE}/{name}" for name in TABLE if name.lower().partition("-v")[0] == short]
        if not meant:
            raise
        raise type(error)(f"There is no environment {env_id!r}. Did you mean {meant[0]!r}?") from error


def register_all() -> None:
    """Register every id with Gymnasium; done once, when the package is imported."""
    for name, knobs in TABLE.items():
        env_id = f"{NAMESPACE}/{name}"
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="agentic_gym.single:AgenticEnv",
                vector_entry_point="agentic_gym.engine:AgenticVectorEnv",
                kwargs=knobs,
            )
