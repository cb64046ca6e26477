"""What helps when nearly all prompts are solved, or nearly none?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, chain, quick

EXPERIMENT = Experiment(
    name="saturation",
    question="What helps when nearly all prompts are solved, or nearly none?",
    claim="Virtual rewards, dynamic sampling and exploration help where groups have no signal.",
    axis="success rate of the base policy",
    metric="mean",
    regimes=(
        chain("base-02", 0.02, budget={"warmstart_success": 0.02}),
        chain("base-20", 0.2, budget={"warmstart_success": 0.2}),
        chain("base-80", 0.8, budget={"warmstart_success": 0.8}),
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
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=SHORT,
)

QUICK = quick(EXPERIMENT)
