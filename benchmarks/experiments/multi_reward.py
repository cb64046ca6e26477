"""Does decoupled normalisation win as the ranges of several rewards grow apart?"""

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="multi_reward",
    question="Does decoupled normalisation win as the ranges of several rewards grow apart?",
    claim="GDPO gains over normalising the sum as one component dominates.",
    axis="range of the widest component over the others",
    metric="mean",
    regimes=(
        Regime("accuracy-5", "agentic_gym/Report-v0", {"findings": 4, "depth": 2, "accuracy_scale": 5.0}, 5.0),
        Regime("accuracy-10", "agentic_gym/Report-v0", {"findings": 4, "depth": 2, "accuracy_scale": 10.0}, 10.0),
        Regime("accuracy-100", "agentic_gym/Report-v0", {"findings": 4, "depth": 2, "accuracy_scale": 100.0}, 100.0),
    ),
    schemes=(
        "grpo",
        "weighted_sum",
        "gdpo",
        "maestro",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
