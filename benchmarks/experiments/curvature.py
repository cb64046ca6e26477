"""When does dividing by the group's spread help?"""

import dataclasses

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, chain, quick

EXPERIMENT = Experiment(
    name="curvature",
    question="When does dividing by the group's spread help?",
    claim="The gain of the spread grows with its mean and vanishes with one prompt (arXiv 2601.23135).",
    axis="prompts in the training set",
    metric="mean",
    regimes=(
        chain("prompts-1", 1.0, {"num_prompts": 1}),
        chain("prompts-8", 8.0, {"num_prompts": 8}),
        chain("prompts-64", 64.0, {"num_prompts": 64}),
        chain("prompts-4096", 4096.0, {"num_prompts": 4096}),
    ),
    schemes=(
        "grpo",
        "grpo:scale=none",
        "lite_ppo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    # With few prompts a policy learns these, and nothing about others.
    budget=dataclasses.replace(SHORT, eval_split="train"),
)

QUICK = quick(EXPERIMENT)
