"""Does decoupled normalisation win as the ranges of several rewards grow apart?"""

import dataclasses

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="multi_reward",
    question="Does decoupled normalisation win as the ranges of several rewards grow apart?",
    claim="GDPO gains over normalising the sum as one component dominates.",
    axis="range of the widest component over the others",
    metric="mean",
    regimes=(
        Regime("accuracy-5", "agentic_gym/Report-v0", {"depth": 2, "accuracy_scale": 5.0}, 5.0),
        Regime("accuracy-10", "agentic_gym/Report-v0", {"depth": 2, "accuracy_scale": 10.0}, 10.0),
        Regime("accuracy-100", "agentic_gym/Report-v0", {"depth": 2, "accuracy_scale": 100.0}, 100.0),
    ),
    schemes=(
        "grpo",
        "weighted_sum",
        "gdpo",
        "maestro",
    ),
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=LONG,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="multi_reward_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
