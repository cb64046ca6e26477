"""How does aggregation act when messages may carry filler?"""

import dataclasses

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="aggregation",
    question="How does aggregation act when messages may carry filler?",
    claim="Dividing by a rollout's own length lets wrong answers grow; token mean and a constant do not.",
    axis="filler tokens a message may carry",
    metric="mean",
    regimes=(
        Regime("filler-0", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "filler": 0}, 0.0),
        Regime("filler-4", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "filler": 4}, 4.0),
        Regime("filler-12", "agentic_gym/Chain-v0", {"options": 4, "depth": 4, "filler": 12}, 12.0),
    ),
    schemes=(
        "grpo",
        "grpo:aggregation=token_mean",
        "dr_grpo",
        "grpo:scale=none",
        "grpo:aggregation=constant",
    ),
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=SHORT,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="aggregation_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
