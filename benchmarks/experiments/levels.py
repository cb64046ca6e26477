"""Which level of baseline and scale learns best as environments differ in scale, difficulty and noise at once?"""

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="levels",
    question="Which level of baseline and scale learns best as environments differ in scale, difficulty and noise "
    "at once?",
    claim="The statistics' level matters only where environments differ; environment and prompt levels are "
    "robust in all regimes.",
    axis="mismatch (0 matched, 1 scale, 2 difficulty, 3 noise, 4 all)",
    metric="mean",
    regimes=(
        Regime("matched", "agentic_gym/Mixture-v0", {"preset": "matched"}, 0.0),
        Regime("scale", "agentic_gym/Mixture-v0", {"preset": "scale"}, 1.0),
        Regime("difficulty", "agentic_gym/Mixture-v0", {"preset": "difficulty"}, 2.0),
        Regime("noise", "agentic_gym/Mixture-v0", {"preset": "noise"}, 3.0),
        Regime("all", "agentic_gym/Mixture-v0", {"preset": "all"}, 4.0),
    ),
    schemes=(
        "reinforce",
        "reinforce_pp",
        "reinforce_pp_baseline",
        "dr_grpo",
        "rloo",
        "lite_ppo",
        "grpo",
        "grpo:scale=task",
        "agentrl",
        # What agentrl has besides its whitening, one by one.
        "grpo:aggregation=token_mean",
        "grpo:dual_clip=3",
        "erpo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
