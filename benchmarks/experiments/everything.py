"""All recipes on the mixture where everything is mismatched."""

import dataclasses

from algos.recipes import RECIPES
from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime

EXPERIMENT = Experiment(
    name="everything",
    question="All recipes on the mixture where everything is mismatched.",
    claim="No single claim: the overview.",
    axis="the mixture with all mismatches",
    metric="mean",
    regimes=(Regime("all", "agentic_gym/Mixture-v0", {"preset": "all"}, 1.0),),
    schemes=tuple(RECIPES),
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101),
    learning_rates=(1e-3, 3e-3, 1e-2),
    budget=LONG,
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="everything_quick",
    regimes=EXPERIMENT.regimes[-1:],
    schemes=EXPERIMENT.schemes[:3],
    seeds=(0, 1),
    tuning_seeds=(),
    learning_rates=(3e-3,),
)
