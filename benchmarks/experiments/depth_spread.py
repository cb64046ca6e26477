"""Which schemes learn several environments at once of which one is much deeper than the others?"""

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="depth_spread",
    question="Which schemes learn several environments of which one is much deeper than the others?",
    claim="Deep rollouts have more tokens and less signal: statistics over environments and the aggregation decide "
    "whether the deep environment is learned, and turn credit gains with depth.",
    axis="turns of the deepest environment (the others have 1 or 2)",
    metric="mean",
    regimes=(
        Regime("depth-2", "agentic_gym/Mixture-v0", {"preset": "depth", "spread": 2.0}, 2.0),
        Regime("depth-8", "agentic_gym/Mixture-v0", {"preset": "depth", "spread": 8.0}, 8.0),
        Regime("depth-16", "agentic_gym/Mixture-v0", {"preset": "depth", "spread": 16.0}, 16.0),
    ),
    schemes=(
        "grpo",
        "grpo:aggregation=token_mean",
        "grpo:scale=task",
        "dr_grpo",
        "reinforce_pp",
        "lite_ppo",
        "agentrl",
        "erpo",
        "gigpo",
        "graphgpo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
