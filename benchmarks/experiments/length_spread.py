"""How do levels and aggregations act when environments differ in the length of their messages?"""

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="length_spread",
    question="How do levels and aggregations act when environments differ in the length of their messages?",
    claim="A mean over tokens gives the gradient to the environments with long messages; a mean per rollout does not.",
    axis="filler tokens that a message of the wordiest environment may carry (0 matched)",
    metric="mean",
    regimes=(
        Regime("filler-0", "agentic_gym/Mixture-v0", {"preset": "length", "spread": 0.0}, 0.0),
        Regime("filler-4", "agentic_gym/Mixture-v0", {"preset": "length", "spread": 4.0}, 4.0),
        Regime("filler-12", "agentic_gym/Mixture-v0", {"preset": "length", "spread": 12.0}, 12.0),
    ),
    schemes=(
        "grpo",
        "grpo:aggregation=token_mean",
        "grpo:aggregation=constant",
        "grpo:scale=task",
        "dr_grpo",
        "reinforce_pp",
        "lite_ppo",
        "agentrl",
        "erpo",
        "gspo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
