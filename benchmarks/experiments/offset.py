"""Which schemes notice an offset that all rewards share?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="offset",
    question="Which schemes notice an offset that all rewards share?",
    claim="A baseline of any level removes an offset; without one the gradient's noise grows with it.",
    axis="offset of all rewards, in units of their range",
    metric="mean",
    regimes=(
        Regime("offset-0", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "reward_offset": 0.0}, 0.0),
        Regime("offset-1", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "reward_offset": 1.0}, 1.0),
        Regime("offset-10", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "reward_offset": 10.0}, 10.0),
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
