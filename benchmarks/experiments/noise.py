"""Which schemes are robust against reward noise, normal and heavy-tailed?"""

import dataclasses

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime

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
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=SHORT,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="noise_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
