"""Which schemes use rewards that come at every turn?"""

import dataclasses

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="dense",
    question="Which schemes use rewards that come at every turn?",
    claim="Returns to go, critics and turn-level weights gain from dense rewards; outcome credit does not.",
    axis="rewards (0 final, 1 dense)",
    metric="mean",
    regimes=(
        Regime("final", "agentic_gym/Chain-v0", {"options": 4, "depth": 12, "graded": True, "dense": False}, 0.0),
        Regime("dense", "agentic_gym/Chain-v0", {"options": 4, "depth": 12, "graded": True, "dense": True}, 1.0),
    ),
    schemes=(
        "grpo",
        "gigpo",
        "vgpo",
        "ppo",
        "gae_turn",
        "grpo:signal=return_to_go,gamma=0.9,baseline=none,scale=none,whitening=batch,whitening_weight=turn",
    ),
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=SHORT,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="dense_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
