"""Does turn-level credit pay off as tasks get deeper?"""

import dataclasses

from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="depth",
    question="Does turn-level credit pay off as tasks get deeper?",
    claim="Turn-level credit (IGPO, A2TGPO, GiGPO, G2PO) gains over outcome credit with the number of hops.",
    axis="hops of the longer questions",
    metric="mean",
    regimes=(
        Regime("2-hops", "agentic_gym/Search-v0", {"depth": 2}, 2.0),
        Regime("3-hops", "agentic_gym/Search-v0", {"depth": 3}, 3.0),
        Regime("4-hops", "agentic_gym/Search-v0", {"depth": 4}, 4.0),
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
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=LONG,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="depth_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
