"""What the experiments have in common: seeds, grids of learning rates, and how their small versions are made."""

import dataclasses

from benchmarks.experiment import Experiment

SEEDS = tuple(range(10))
TUNING_SEEDS = (100, 101)
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
"""The grid of learning rates; RESULTS.md says which schemes choose its ends."""


def quick(experiment: Experiment) -> Experiment:
    """Return the small version: the last regime, three schemes, two seeds, and the middle rate."""
    rates = experiment.learning_rates
    return dataclasses.replace(
        experiment,
        name=f"{experiment.name}_quick",
        regimes=experiment.regimes[-1:],
        schemes=experiment.schemes[:3],
        seeds=(0, 1),
        tuning_seeds=(),
        learning_rates=(rates[len(rates) // 2],),
    )
