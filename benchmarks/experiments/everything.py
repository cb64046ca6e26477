"""All recipes on the mixture where everything is mismatched."""

from algos.recipes import RECIPES
from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import SEEDS, TUNING_SEEDS, WORLD_RATES, quick

EXPERIMENT = Experiment(
    name="everything",
    question="All recipes on the mixture where everything is mismatched.",
    claim="No single claim: the overview.",
    axis="the mixture with all mismatches",
    metric="mean",
    regimes=(Regime("all", "agentic_gym/Mixture-v0", {"preset": "all"}, 1.0),),
    schemes=tuple(RECIPES),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=WORLD_RATES,
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
