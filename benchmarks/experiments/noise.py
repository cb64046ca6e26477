"""Which schemes are robust against reward noise, normal and heavy-tailed?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, chain, quick

EXPERIMENT = Experiment(
    name="noise",
    question="Which schemes are robust against reward noise, normal and heavy-tailed?",
    claim="Wide levels and robust baselines tolerate noise that a group's spread amplifies.",
    axis="standard deviation of the noise (negative: heavy tails)",
    metric="mean",
    regimes=(
        chain("normal-0", 0.0, {"reward_noise": 0.0, "reward_noise_dist": "normal"}),
        chain("normal-0.3", 0.3, {"reward_noise": 0.3, "reward_noise_dist": "normal"}),
        chain("normal-1", 1.0, {"reward_noise": 1.0, "reward_noise_dist": "normal"}),
        chain("heavy-0.3", -0.3, {"reward_noise": 0.3, "reward_noise_dist": "student_t"}),
        chain("heavy-1", -1.0, {"reward_noise": 1.0, "reward_noise_dist": "student_t"}),
    ),
    schemes=(
        "grpo",
        "dr_grpo",
        "rloo",
        "lite_ppo",
        "gapo_robust",
        "mc_grpo",
        "krpo",
        "erpo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=SHORT,
)

QUICK = quick(EXPERIMENT)
