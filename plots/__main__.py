"""Draw figures: ``python -m plots NAME [--quick]``, from stored results or, of the suite, from the environments."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import tyro

from benchmarks import experiments, store
from benchmarks.experiment import BenchmarkError
from plots.style import save

EXPERIMENTS = ("scale_mismatch",)
"""Figures with the name of the experiment whose results they show."""
SUITE = {"families": "draw_families", "mismatch": "draw_mismatch"}
"""Figures that need no results, and what draws them in ``plots.families``."""
NAMES = (*EXPERIMENTS, *SUITE)


def main(name: tyro.conf.Positional[str], quick: bool = False, root: Path = store.RESULTS) -> int:
    """Draw one figure and print where it is.

    Args:
        name: Name of the figure: that of its experiment, or ``families`` or ``mismatch``.
        quick: Draw the small version of the experiment.
        root: Folder of all results.
    """
    if name not in NAMES:
        raise BenchmarkError(f"'name' must be one of {list(NAMES)}. Got {name!r} instead.")
    figure, file_name = _draw_suite(name) if name in SUITE else _draw_experiment(name, quick, root)
    for path in save(figure, file_name):
        print(path)
    return 0


def _draw_suite(name: str) -> tuple[Any, str]:
    return getattr(importlib.import_module("plots.families"), SUITE[name])(), name


def _draw_experiment(name: str, quick: bool, root: Path) -> tuple[Any, str]:
    experiment = experiments.load(name, quick)
    table = store.gather(experiment, root)
    if table.num_rows == 0:
        command = f"python -m benchmarks run {name}" + (" --quick" if quick else "")
        raise BenchmarkError(f"There are no results of {experiment.name!r} in {root}; make them with: {command}")
    return importlib.import_module(f"plots.{name}").draw(experiment, table), experiment.name


if __name__ == "__main__":
    try:
        sys.exit(tyro.cli(main))
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
