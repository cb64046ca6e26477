"""What the experiments have in common: seeds, learning rates, the short chain, and how small versions are made."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.experiment import Experiment, Regime

SEEDS = tuple(range(10))
TUNING_SEEDS = (100, 101)
MORE_TUNING_SEEDS = (100, 101, 102, 103)
"""Where every regime has a learning rate of its own."""
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
"""The grid of learning rates; RESULTS.md says which schemes choose its ends."""
WIDE_RATES = (1e-4, *RATES)

OFF_POLICY = (
    "grpo",
    "dapo",
    "gspo",
    "gspo:clip_low=0.03,clip_high=0.04",
    "cispo",
    "sapo",
    "m2po",
    "dcpo",
    "topr",
)
"""Bounds and surrogates that are said to differ where rollouts are not of the present policy."""


def chain(
    name: str, axis_value: float, knobs: Mapping[str, Any] | None = None, budget: Mapping[str, Any] | None = None
) -> Regime:
    """Return a regime on a chain of four cues with four options each."""
    return Regime(name, "agentic_gym/Chain-v0", {"options": 4, "depth": 4, **(knobs or {})}, axis_value, budget)


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
