"""Which schemes notice an offset that all rewards share?"""

import dataclasses

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime

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
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=SHORT,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="offset_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
