"""Which baselines survive small groups at equal rollouts?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="small_groups",
    question="Which baselines survive small groups at equal rollouts?",
    claim="Leave-one-out, medians and trackers gain over the group mean as groups shrink.",
    axis="rollouts per prompt",
    metric="mean",
    regimes=(
        Regime("group-2", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 2.0, {"n_prompts": 32, "group_size": 2}),
        Regime("group-4", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 4.0, {"n_prompts": 16, "group_size": 4}),
        Regime("group-8", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 8.0, {"n_prompts": 8, "group_size": 8}),
        Regime(
            "group-16", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 16.0, {"n_prompts": 4, "group_size": 16}
        ),
        Regime(
            "group-32", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 32.0, {"n_prompts": 2, "group_size": 32}
        ),
    ),
    schemes=(
        "grpo",
        "rloo",
        "mc_grpo",
        "lite_ppo",
        "erpo",
        "spo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=SHORT,
)

QUICK = quick(EXPERIMENT)
