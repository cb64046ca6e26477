"""Which schemes notice an offset that all rewards share?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, chain, quick

EXPERIMENT = Experiment(
    name="offset",
    question="Which schemes notice an offset that all rewards share?",
    claim="A baseline of any level removes an offset; without one the gradient's noise grows with it.",
    axis="offset of all rewards, in units of their range",
    metric="mean",
    regimes=(
        chain("offset-0", 0.0, {"reward_offset": 0.0}),
        chain("offset-1", 1.0, {"reward_offset": 1.0}),
        chain("offset-10", 10.0, {"reward_offset": 10.0}),
    ),
    schemes=(
        "grpo",
        "reinforce",
        "gpg",
        "rloo",
        "dr_grpo",
        "lite_ppo",
        "reinforce_pp",
        "reinforce_pp_baseline",
        "ppo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=SHORT,
)

QUICK = quick(EXPERIMENT)
