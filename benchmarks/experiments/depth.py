"""Does turn-level credit pay off as tasks get deeper?"""

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime
from benchmarks.experiments._common import RATES, SEEDS, TUNING_SEEDS, quick

EXPERIMENT = Experiment(
    name="depth",
    question="Does turn-level credit pay off as tasks get deeper?",
    claim="Turn-level credit (IGPO, A2TGPO, GiGPO, G2PO) gains over outcome credit with the number of hops.",
    axis="hops of the longer questions",
    metric="mean",
    regimes=(
        Regime("2-hops", "agentic_gym/Search-v0", {"entities": 8, "relations": 4, "depth": 2}, 2.0),
        Regime("3-hops", "agentic_gym/Search-v0", {"entities": 8, "relations": 4, "depth": 3}, 3.0),
        Regime("4-hops", "agentic_gym/Search-v0", {"entities": 8, "relations": 4, "depth": 4}, 4.0),
    ),
    schemes=(
        "grpo",
        "igpo",
        "a2tgpo",
        "a2tgpo:clip_low=0.03,clip_high=0.04",
        "mica",
        "gigpo",
        "g2po",
        "ppo",
    ),
    seeds=SEEDS,
    tuning_seeds=TUNING_SEEDS,
    learning_rates=RATES,
    budget=LONG,
)

QUICK = quick(EXPERIMENT)
