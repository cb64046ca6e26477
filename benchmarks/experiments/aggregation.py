"""How does aggregation act when messages may carry filler?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, chain, quick

EXPERIMENT = Experiment(
    name="aggregation",
    question="How does aggregation act when messages may carry filler?",
    claim="Dividing by a rollout's own length lets wrong answers grow; token mean and a constant do not.",
    axis="filler tokens a message may carry",
    metric="mean",
    regimes=(
        chain("filler-0", 0.0, {"filler": 0}),
        chain("filler-4", 4.0, {"filler": 4}),
        chain("filler-12", 12.0, {"filler": 12}),
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
