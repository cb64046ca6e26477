"""Which schemes serve easy and hard environments at once?"""

import dataclasses

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="difficulty",
    question="Which schemes serve easy and hard environments at once?",
    claim="Dividing by the mean reward, weighting hard prompts or dropping the spread changes who is served.",
    axis="range of the environments' mean difficulties",
    metric="mean",
    regimes=(
        Regime("range-0", "agentic_gym/Mixture-v0", {"preset": "difficulty", "spread": 0.0}, 0.0),
        Regime("range-0.5", "agentic_gym/Mixture-v0", {"preset": "difficulty", "spread": 0.5}, 0.5),
        Regime("range-1", "agentic_gym/Mixture-v0", {"preset": "difficulty", "spread": 1.0}, 1.0),
    ),
    schemes=(
        "grpo",
        "grpo:scale=none",
        "maxrl",
        "ngrpo",
        "disco",
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
    name="difficulty_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
