"""How does aggregation act when messages may carry filler?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="aggregation",
    question="How does aggregation act when messages may carry filler?",
    claim="Dividing by a rollout's own length lets wrong answers grow; token mean and a constant do not.",
    axis="filler tokens a message may carry",
    metric="mean",
    regimes=(
        Regime("filler-0", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "filler": 0}, 0.0),
        Regime("filler-4", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "filler": 4}, 4.0),
        Regime("filler-12", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "filler": 12}, 12.0),
    ),
    schemes=(
        "grpo",
        "grpo:aggregation=token_mean",
        "dr_grpo",
        "grpo:scale=none",
        "grpo:aggregation=constant",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=SHORT,
)

QUICK = quick(EXPERIMENT)
