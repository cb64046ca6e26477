"""Does decoupled normalisation win as there are more rewards?"""

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="number_of_rewards",
    question="Does decoupled normalisation win as there are more rewards?",
    claim="With one reward decoupling changes little; with several it keeps the small ones from being drowned.",
    axis="rewards that are paid: accuracy, coverage, brevity, format (the score counts all four)",
    metric="mean",
    regimes=tuple(
        Regime(f"rewards-{n}", "agentic_gym/Report-v0", {"findings": 4, "depth": 2, "n_rewards": n}, float(n))
        for n in (1, 2, 3, 4)
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
