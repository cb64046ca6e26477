"""All recipes on the mixture where everything is mismatched."""

from algos.recipes import RECIPES
from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import SEEDS, TUNING_SEEDS, WIDE_RATES, quick

EXPERIMENT = Experiment(
    name="everything",
    question="Which recipes learn the mixture where everything is mismatched?",
    claim="No single claim: the overview.",
    axis="the mixture with all mismatches",
    metric="mean",
    regimes=(Regime("all", "agentic_gym/Mixture-v0", {"preset": "all"}, 1.0),),
    # VGPO's weights are defined for rewards >= 0 only, and some environments of the mixture charge for turns.
    schemes=tuple(name for name in RECIPES if name != "vgpo"),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=WIDE_RATES,
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
