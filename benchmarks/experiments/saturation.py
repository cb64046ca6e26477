"""What helps when nearly all prompts are solved, or nearly none?"""

import dataclasses

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="saturation",
    question="What helps when nearly all prompts are solved, or nearly none?",
    claim="Virtual rewards, dynamic sampling and exploration help where groups have no signal.",
    axis="success rate of the base policy",
    metric="mean",
    regimes=(
        Regime("base-02", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 0.02, {"warmstart_success": 0.02}),
        Regime("base-20", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 0.2, {"warmstart_success": 0.2}),
        Regime("base-80", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 0.8, {"warmstart_success": 0.8}),
    ),
    schemes=(
        "grpo",
        "ngrpo",
        "maxrl",
        "dcpo_smooth",
        "grpo:sampling=dynamic",
        "grpo:sampling=cuts",
        "lite_ppo",
    ),
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=SHORT,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="saturation_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
