"""Draw figures from stored results: ``python -m plots NAME [--quick]``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import tyro

from benchmarks import experiments, store
from benchmarks.experiment import BenchmarkError
from plots.style import save

NAMES = ("scale_mismatch",)


def main(name: tyro.conf.Positional[str], quick: bool = False, root: Path = store.RESULTS) -> int:
    """Draw one figure and print where it is.

    Args:
        name: Name of the figure, which is that of its experiment.
        quick: Draw the small version of the experiment.
        root: Folder of all results.
    """
    if name not in NAMES:
        raise BenchmarkError(f"'name' must be one of {list(NAMES)}. Got {name!r} instead.")
    experiment = experiments.load(name, quick)
    table = store.gather(experiment, root)
    if table.num_rows == 0:
        command = f"python -m benchmarks run {name}" + (" --quick" if quick else "")
        raise BenchmarkError(f"There are no results of {experiment.name!r} in {root}; make them with: {command}")
    figure = importlib.import_module(f"plots.{name}").draw(experiment, table)
    for path in save(figure, experiment.name):
        print(path)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(tyro.cli(main))
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
