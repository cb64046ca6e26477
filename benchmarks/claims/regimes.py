"""The environments and budgets in which claims are tested; shared, so that runs serve several."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.experiment import Budget, Regime

SHORT = Budget(
    total_turns=8_000, n_prompts=8, group_size=8, n_epochs=4, n_minibatches=2, n_evaluations=4, eval_rollouts=128,
    warmstart_success=0.2,
)  # fmt: skip
"""About forty updates on a short chain."""

LONG = Budget(
    total_turns=24_000, n_prompts=16, group_size=8, n_epochs=4, n_minibatches=2, n_evaluations=4, eval_rollouts=64,
    warmstart_success=0.2,
)  # fmt: skip
"""For tasks that are learned more slowly, and for mixtures."""


def short(**changes: Any) -> Budget:
    """Return ``SHORT`` with changes."""
    return dataclasses.replace(SHORT, **changes)


def long(**changes: Any) -> Budget:
    """Return ``LONG`` with changes."""
    return dataclasses.replace(LONG, **changes)


def _regime(name: str, env_id: str, **knobs: Any) -> Regime:
    return Regime(name, f"agentic_gym/{env_id}-v0", knobs, 0.0)


CHAIN = _regime("chain", "Chain", options=4, depth=4)
CHAIN_2_OPTIONS = _regime("chain-2-options", "Chain", options=2, depth=4)
CHAIN_8_OPTIONS = _regime("chain-8-options", "Chain", options=8, depth=4)
CHAIN_OFFSET = _regime("chain-offset", "Chain", options=4, depth=4, reward_offset=5.0)
CHAIN_HEAVY_NOISE = _regime(
    "chain-heavy-noise", "Chain", options=4, depth=4, reward_noise=0.5, reward_noise_dist="student_t"
)
CHAIN_NOISE = _regime("chain-noise", "Chain", options=4, depth=4, reward_noise=0.5)
CHAIN_FILLER = _regime("chain-filler", "Chain", options=4, depth=4, filler=6)
CHAIN_GRADED = _regime("chain-graded", "Chain", options=4, depth=12, graded=True, dense=True)
CHAIN_LONG = _regime("chain-long", "Chain", options=4, depth=12, graded=True)
CHAIN_FEW_PROMPTS = _regime("chain-few-prompts", "Chain", options=4, depth=4, num_prompts=8)
CHAIN_ONE_PROMPT = _regime("chain-one-prompt", "Chain", options=4, depth=4, num_prompts=1)
SEARCH = _regime("search", "Search", entities=8, relations=4, depth=2)
HOUSEHOLD = _regime("household", "Household", depth=1, difficulty=0.2)
REPORT = _regime("report", "Report", findings=4, depth=2)
REPAIR = _regime("repair", "Repair", statements=8, depth=1)
SCALES = _regime("mixture-scale", "Mixture", preset="scale", spread=1000.0)
DIFFICULTIES = _regime("mixture-difficulty", "Mixture", preset="difficulty")
FREQUENCIES = _regime("mixture-frequency", "Mixture", preset="frequency", spread=8.0)
EVERYTHING = _regime("mixture-all", "Mixture", preset="all")
