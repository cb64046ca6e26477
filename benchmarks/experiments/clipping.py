"""Which bounds and surrogates tolerate stale rollouts?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import MORE_TUNING_SEEDS, OFF_POLICY, SEEDS, WIDE_RATES, chain, quick

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
    schemes=OFF_POLICY,
    seeds=SEEDS,
    tuning_seeds=MORE_TUNING_SEEDS,
    learning_rates=WIDE_RATES,
    budget=SHORT,
    rate_per_regime=True,
)

QUICK = quick(EXPERIMENT)
