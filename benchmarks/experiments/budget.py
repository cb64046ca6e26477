"""How many turns does each scheme need, as an update holds more rollouts?"""

from benchmarks.claims.regimes import short
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import MORE_TUNING_SEEDS, RATES, SEEDS, chain, quick

REACHED = 0.8
"""The normalised score that counts as learned."""
EXPERIMENT = Experiment(
    name="budget",
    question="How many turns does each scheme need, as an update holds more rollouts?",
    claim="Small updates learn in fewer turns; spreads over few rollouts cost some of that.",
    axis="rollouts per update",
    metric="mean",
    regimes=(
        chain("rollouts-16", 16.0, budget={"n_prompts": 2}),
        chain("rollouts-64", 64.0, budget={"n_prompts": 8}),
        chain("rollouts-256", 256.0, budget={"n_prompts": 32}),
    ),
    schemes=(
        "grpo",
        "rloo",
        "lite_ppo",
        "erpo",
        "reinforce_pp_baseline",
        "spo",
    ),
    seeds=SEEDS,
    tuning_seeds=MORE_TUNING_SEEDS,
    learning_rates=RATES,
    # Many points, to tell when a score is reached.
    budget=short(n_evaluations=16),
    rate_per_regime=True,
)

QUICK = quick(EXPERIMENT)
