"""Which bounds and surrogates tolerate stale rollouts?"""

import dataclasses

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="clipping",
    question="Which bounds and surrogates tolerate stale rollouts?",
    claim="Second-moment bounds, soft gates and clipped weights tolerate staleness better than fixed token bounds.",
    axis="staleness in updates",
    metric="mean",
    regimes=(
        Regime("stale-0", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 0.0, {"staleness": 0}),
        Regime("stale-4", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 4.0, {"staleness": 4}),
        Regime("stale-16", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 16.0, {"staleness": 16}),
    ),
    schemes=(
        "grpo",
        "dapo",
        "gspo",
        "gspo:clip_low=0.03,clip_high=0.04",
        "cispo",
        "sapo",
        "m2po",
        "dcpo",
        "topr",
    ),
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=SHORT,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="clipping_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
