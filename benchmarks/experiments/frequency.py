"""Which schemes serve environments that are rare in the data?"""

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="frequency",
    question="Which schemes serve environments that are rare in the data?",
    claim="Weights by frequency and per-environment statistics lift the rare environment.",
    axis="most over least frequent environment",
    metric="mean",
    regimes=(
        Regime("ratio-1", "agentic_gym/Mixture-v0", {"preset": "frequency", "spread": 1.0}, 1.0),
        Regime("ratio-4", "agentic_gym/Mixture-v0", {"preset": "frequency", "spread": 4.0}, 4.0),
        Regime("ratio-16", "agentic_gym/Mixture-v0", {"preset": "frequency", "spread": 16.0}, 16.0),
    ),
    schemes=(
        "grpo",
        "disco",
        "disco:difficulty=false",
        "agentrl",
        "erpo",
        "lite_ppo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
