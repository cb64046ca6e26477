"""Draw figures: ``python -m plots NAME [--quick]``, from stored results or, of the suite, from the environments."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import tyro

from benchmarks import experiments, store
from benchmarks.experiment import BenchmarkError
from plots.style import save

OWN = ("scale_mismatch",)
"""Experiments with a figure of their own; the others are drawn as phase diagrams."""
DOCUMENTS = {"claims": ("claims.json", None), "microscope": ("microscope.json", "seen")}
"""Figures of a JSON file of results, with the entry that they show."""
SUITE = {
    "families": ("families", "draw_families"),
    "mismatch": ("families", "draw_mismatch"),
    "surrogates": ("surrogates", "draw"),
}
"""Figures that need no results, and what draws them: module and function."""
NAMES = (*experiments.names(), *DOCUMENTS, *SUITE)


def main(name: tyro.conf.Positional[str], quick: bool = False, root: Path = store.RESULTS) -> int:
    """Draw one figure and print where it is.

    Args:
        name: Name of the figure: that of its experiment, or ``claims``, ``microscope``, ``families``,
            ``mismatch``, ``surrogates``.
        quick: Draw the small version of the experiment.
        root: Folder of all results.
    """
    if name not in NAMES:
        raise BenchmarkError(f"'name' must be one of {list(NAMES)}. Got {name!r} instead.")
    if name in SUITE:
        figure, file_name = _draw_suite(name)
    elif name in DOCUMENTS:
        figure, file_name = _draw_document(name, root), name
    else:
        figure, file_name = _draw_experiment(name, quick, root)
    for path in save(figure, file_name):
        print(path)
    return 0


def _draw_suite(name: str) -> tuple[Any, str]:
    module, function = SUITE[name]
    return getattr(importlib.import_module(f"plots.{module}"), function)(), name


def _draw_document(name: str, root: Path) -> Any:
    file, entry = DOCUMENTS[name]
    path = root / file
    if not path.exists():
        raise BenchmarkError(f"There is no {path}; the docstring of plots/{name}.py names the commands that make it.")
    document = json.loads(path.read_text(encoding="utf-8"))
    return importlib.import_module(f"plots.{name}").draw(document if entry is None else document[entry])


def _draw_experiment(name: str, quick: bool, root: Path) -> tuple[Any, str]:
    experiment = experiments.load(name, quick)
    table = store.gather(experiment, root)
    if table.num_rows == 0:
        command = f"python -m benchmarks run {name}" + (" --quick" if quick else "")
        raise BenchmarkError(f"There are no results of {experiment.name!r} in {root}; make them with: {command}")
    module = f"plots.{name}" if name in OWN else "plots.phase"
    return importlib.import_module(module).draw(experiment, table), experiment.name


if __name__ == "__main__":
    try:
        sys.exit(tyro.cli(main))
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
