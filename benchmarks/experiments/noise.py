"""Which schemes are robust against reward noise, normal and heavy-tailed?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="noise",
    question="Which schemes are robust against reward noise, normal and heavy-tailed?",
    claim="Wide levels and robust baselines tolerate noise that a group's spread amplifies.",
    axis="standard deviation of the noise (negative: heavy tails)",
    metric="mean",
    regimes=(
        Regime(
            "normal-0",
            "agentic_gym/Chain-v0",
            {"options": 4, "depth": 4, "reward_noise": 0.0, "reward_noise_dist": "normal"},
            0.0,
        ),
        Regime(
            "normal-0.3",
            "agentic_gym/Chain-v0",
            {"options": 4, "depth": 4, "reward_noise": 0.3, "reward_noise_dist": "normal"},
            0.3,
        ),
        Regime(
            "normal-1",
            "agentic_gym/Chain-v0",
            {"options": 4, "depth": 4, "reward_noise": 1.0, "reward_noise_dist": "normal"},
            1.0,
        ),
        Regime(
            "heavy-0.3",
            "agentic_gym/Chain-v0",
            {"options": 4, "depth": 4, "reward_noise": 0.3, "reward_noise_dist": "student_t"},
            -0.3,
        ),
        Regime(
            "heavy-1",
            "agentic_gym/Chain-v0",
            {"options": 4, "depth": 4, "reward_noise": 1.0, "reward_noise_dist": "student_t"},
            -1.0,
        ),
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
