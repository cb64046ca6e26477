"""Which bounds and surrogates tolerate stale rollouts?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import MORE_TUNING_SEEDS, SEEDS, WIDE_RATES, chain, quick

EXPERIMENT = Experiment(
    name="clipping",
    question="Which bounds and surrogates tolerate stale rollouts?",
    claim="Second-moment bounds, soft gates and clipped weights tolerate staleness better than fixed token bounds.",
    axis="staleness in updates",
    metric="mean",
    regimes=(
        chain("stale-0", 0.0, budget={"staleness": 0}),
        chain("stale-4", 4.0, budget={"staleness": 4}),
        chain("stale-16", 16.0, budget={"staleness": 16}),
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
    tuning_seeds=MORE_TUNING_SEEDS,
    learning_rates=WIDE_RATES,
    budget=SHORT,
    rate_per_regime=True,
)

QUICK = quick(EXPERIMENT)
