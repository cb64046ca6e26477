"""All recipes where everything is mismatched and no reward is negative."""

from algos.recipes import RECIPES
from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="everything_raised",
    question="Which recipes learn that mixture when all its rewards are raised above 0?",
    claim="A recipe that compares rollouts does not notice; VGPO needs it.",
    axis="the mixture with all mismatches, rewards raised by 5",
    metric="mean",
    # The lowest reward without the offset is -2.9, and noise with a standard deviation of 0.22 comes on top.
    regimes=(Regime("raised", "agentic_gym/Mixture-v0", {"preset": "all", "reward_offset": 5.0}, 1.0),),
    schemes=tuple(RECIPES),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=(1e-4, *RATES),
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
