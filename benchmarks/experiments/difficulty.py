"""Which schemes serve easy and hard environments at once?"""

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="difficulty",
    question="Which schemes serve easy and hard environments at once?",
    claim="Dividing by the mean reward, weighting hard prompts or dropping the spread changes who is served.",
    axis="range of the environments' mean difficulties",
    metric="mean",
    regimes=(
        Regime("range-0", "agentic_gym/Mixture-v0", {"preset": "difficulty", "spread": 0.0}, 0.0),
        Regime("range-0.5", "agentic_gym/Mixture-v0", {"preset": "difficulty", "spread": 0.5}, 0.5),
        Regime("range-1", "agentic_gym/Mixture-v0", {"preset": "difficulty", "spread": 1.0}, 1.0),
    ),
    schemes=(
        "grpo",
        "grpo:scale=none",
        "maxrl",
        "ngrpo",
        "disco",
        "erpo",
        "lite_ppo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
