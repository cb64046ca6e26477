"""Which schemes serve environments that are rare in the data?"""

import dataclasses

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="frequency",
    question="Which schemes serve environments that are rare in the data?",
    claim="Weights by frequency and per-environment statistics lift the rare environment.",
    axis="most over least frequent environment",
    metric="worst",
    regimes=(
        Regime("ratio-1", "agentic_gym/Mixture-v0", {"preset": "frequency", "spread": 1.0}, 1.0),
        Regime("ratio-4", "agentic_gym/Mixture-v0", {"preset": "frequency", "spread": 4.0}, 4.0),
        Regime("ratio-16", "agentic_gym/Mixture-v0", {"preset": "frequency", "spread": 16.0}, 16.0),
    ),
    schemes=(
        "grpo",
        "disco",
        "disco:difficulty=false",
        "agentrl",
        "erpo",
        "lite_ppo",
    ),
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=LONG,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="frequency_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
