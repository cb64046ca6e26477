"""VGPO, and what else might notice, where everything is mismatched and no reward is negative."""

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import SEEDS, TUNING_SEEDS, WIDE_RATES, quick

EXPERIMENT = Experiment(
    name="everything_raised",
    question="Who notices when all rewards of the mixture with every mismatch are raised above 0?",
    claim="A recipe that compares rollouts does not notice; VGPO needs it.",
    axis="the mixture with all mismatches, rewards raised by 5",
    metric="mean",
    # The lowest reward without the offset is -2.9, and noise with a standard deviation of 0.22 comes on top.
    regimes=(Regime("raised", "agentic_gym/Mixture-v0", {"preset": "all", "reward_offset": 5.0}, 1.0),),
    # What has no baseline, one of its own, or a critic; and the first ones of `everything`.
    schemes=(
        "grpo",
        "vgpo",
        "reinforce",
        "gpg",
        "rloo",
        "ppo",
        "spo",
        "mapo",
        "reinforce_pp",
        "topr",
        "agentrl",
        "graphgpo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=WIDE_RATES,
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
