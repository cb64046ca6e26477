"""Which schemes use rewards that come at every turn?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, chain, quick

EXPERIMENT = Experiment(
    name="dense",
    question="Which schemes use rewards that come at every turn?",
    claim="Returns to go, critics and turn-level weights gain from dense rewards; outcome credit does not.",
    axis="rewards (0 final, 1 dense)",
    metric="mean",
    regimes=(
        chain("final", 0.0, {"depth": 12, "graded": True, "dense": False}),
        chain("dense", 1.0, {"depth": 12, "graded": True, "dense": True}),
    ),
    schemes=(
        "grpo",
        "gigpo",
        "vgpo",
        "ppo",
        "gae_turn",
        "grpo:signal=return_to_go,gamma=0.9,baseline=none,scale=none,whitening=batch,whitening_weight=turn",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=(*RATES, 3e-2),
    budget=SHORT,
)

QUICK = quick(EXPERIMENT)
