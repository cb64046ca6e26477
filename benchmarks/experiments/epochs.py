"""Which schemes bear many epochs on the same rollouts?"""

from benchmarks.claims.regimes import SHORT
from benchmarks.experiment import Experiment
from benchmarks.experiments._common import MORE_TUNING_SEEDS, OFF_POLICY, SEEDS, WIDE_RATES, chain, quick

EXPERIMENT = Experiment(
    name="epochs",
    question="Which schemes bear many epochs on the same rollouts?",
    claim="Bounds keep the policy near the one that wrote the rollouts; without a ratio every epoch adds bias.",
    axis="epochs per update",
    metric="mean",
    regimes=(
        chain("epochs-1", 1.0, budget={"n_epochs": 1}),
        chain("epochs-4", 4.0, budget={"n_epochs": 4}),
        chain("epochs-16", 16.0, budget={"n_epochs": 16}),
    ),
    # Those of `clipping`, and two without a ratio.
    schemes=(*OFF_POLICY, "rloo", "gpg"),
    seeds=SEEDS,
    tuning_seeds=MORE_TUNING_SEEDS,
    learning_rates=(*WIDE_RATES, 3e-2),
    budget=SHORT,
    rate_per_regime=True,
)

QUICK = quick(EXPERIMENT)
