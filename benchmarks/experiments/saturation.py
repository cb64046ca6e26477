"""What helps when nearly all prompts are solved, or nearly none?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

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
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=SHORT,
)

QUICK = quick(EXPERIMENT)
