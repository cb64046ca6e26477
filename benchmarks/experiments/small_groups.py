"""Which baselines survive small groups at equal rollouts?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, chain, quick

EXPERIMENT = Experiment(
    name="small_groups",
    question="Which baselines survive small groups at equal rollouts?",
    claim="Leave-one-out, medians and trackers gain over the group mean as groups shrink.",
    axis="rollouts per prompt",
    metric="mean",
    regimes=(
        chain("group-2", 2.0, budget={"n_prompts": 32, "group_size": 2}),
        chain("group-4", 4.0, budget={"n_prompts": 16, "group_size": 4}),
        chain("group-8", 8.0, budget={"n_prompts": 8, "group_size": 8}),
        chain("group-16", 16.0, budget={"n_prompts": 4, "group_size": 16}),
        chain("group-32", 32.0, budget={"n_prompts": 2, "group_size": 32}),
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
