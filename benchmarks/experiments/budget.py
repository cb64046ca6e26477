"""How many turns does each scheme need, as an update holds more rollouts?"""

import dataclasses

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="budget",
    question="How many turns does each scheme need, as an update holds more rollouts?",
    claim="Small updates learn in fewer turns; spreads over few rollouts cost some of that.",
    axis="rollouts per update",
    metric="mean",
    regimes=(
        Regime("rollouts-16", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 16.0, {"n_prompts": 2}),
        Regime("rollouts-64", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 64.0, {"n_prompts": 8}),
        Regime("rollouts-256", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 256.0, {"n_prompts": 32}),
    ),
    schemes=(
        "grpo",
        "rloo",
        "lite_ppo",
        "erpo",
        "reinforce_pp_baseline",
        "spo",
    ),
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=SHORT,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="budget_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
