"""Which bounds and surrogates tolerate stale rollouts?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="clipping",
    question="Which bounds and surrogates tolerate stale rollouts?",
    claim="Second-moment bounds, soft gates and clipped weights tolerate staleness better than fixed token bounds.",
    axis="staleness in updates",
    metric="mean",
    regimes=(
        Regime("stale-0", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 0.0, {"staleness": 0}),
        Regime("stale-4", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 4.0, {"staleness": 4}),
        Regime("stale-16", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 16.0, {"staleness": 16}),
    ),
    schemes=(
        "grpo",
        "dapo",
        "gspo",
        "gspo:clip_low=0.03,clip_high=0.04",
        "cispo",
        "sapo",
        "m2po",
        "dcpo",
        "topr",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=SHORT,
)

QUICK = quick(EXPERIMENT)
