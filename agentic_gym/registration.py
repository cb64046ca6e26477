"""The table of environment ids."""

from __future__ import annotations

from typing import Any

import gymnasium

NAMESPACE = "agentic_gym"

TABLE: dict[str, dict[str, Any]] = {
    "Chain-v0": {"family": "Chain"},
    "ChainDeep-v0": {"family": "Chain", "depth": 16},
    "Search-v0": {"family": "Search"},
    "SearchHard-v0": {"family": "Search", "depth": 5, "difficulty": 0.6},
    "Database-v0": {"family": "Database"},
    "Mixture-v0": {"family": "Mixture"},
}
"""Name -> knobs. Every id has the namespace ``agentic_gym/``."""

IDS = tuple(f"{NAMESPACE}/{name}" for name in TABLE)


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
