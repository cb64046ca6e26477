"""When does dividing by the group's spread help?"""

import dataclasses

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="curvature",
    question="When does dividing by the group's spread help?",
    claim="The gain of the spread grows with its mean and vanishes with one prompt (arXiv 2601.23135).",
    axis="prompts in the training set",
    metric="mean",
    regimes=(
        Regime("prompts-1", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "num_prompts": 1}, 1.0),
        Regime("prompts-8", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "num_prompts": 8}, 8.0),
        Regime("prompts-64", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "num_prompts": 64}, 64.0),
        Regime("prompts-4096", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "num_prompts": 4096}, 4096.0),
    ),
    schemes=(
        "grpo",
        "grpo:scale=none",
        "lite_ppo",
    ),
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    # With few prompts a policy learns these, and nothing about others.
    budget=dataclasses.replace(SHORT, eval_split="train"),
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="curvature_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
