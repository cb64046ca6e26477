"""Draw figures: ``python -m plots NAME [--quick]``, from stored results or, of the suite, from the environments.

``python -m plots all`` draws every figure whose results are stored, with ``--quick`` those of the small experiments.

Beside ``plots/figures/NAME.png`` and ``.svg`` the caption is written to ``NAME.txt``: what is shown, of how many
seeds, what is seen, and the commands that made it. With ``--root ROOT`` the three go to ``ROOT/../plots/figures``,
with ``--out FOLDER`` to that folder.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import tyro

from agentic_gym.console import say
from benchmarks import experiments, store
from benchmarks.experiment import BenchmarkError, Experiment
from plots.style import figures_of, save, write_caption

OWN = ("scale_mismatch", "budget")
"""Experiments with a figure of their own; the others are drawn as phase diagrams."""
VIEWS = ("curves", "gradient_share")
"""Figures that can be drawn of any experiment."""
VIEWED = "scale_mismatch"
"""The experiment that they are drawn of by default."""
MAPS = ("decision",)
"""Figures of all stored experiments at once."""
DOCUMENTS = {
    "claims": ("claims.json", None),
    "credit_by_turn": ("credit.json", None),
    "microscope": ("microscope.json", "seen"),
}
"""Figures of a JSON file of results, with the entry that they show."""
SUITE = {
    "families": ("families", "draw_families", "describe_families"),
    "mismatch": ("families", "draw_mismatch", "describe_mismatch"),
    "surrogates": ("surrogates", "draw", "describe"),
}
"""Figures that need no results, and what draws and describes them: module and functions."""
NAMES = (*experiments.names(), *VIEWS, *MAPS, *DOCUMENTS, *SUITE)
EVERY = "all"
USED_BY = {
    "quick": (EVERY, *experiments.names(), *VIEWS),
    "experiment": VIEWS,
    "regime": ("curves",),
}
"""Options that only some figures have."""


@dataclass(frozen=True)
class _Drawing:
    """A figure to draw: what draws and describes it, from what, and the name of its files."""

    module: str
    arguments: tuple[Any, ...]
    file: str
    draw: str = "draw"
    describe: str = "describe"


def main(
    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")],
    quick: bool = False,
    experiment: str | None = None,
    regime: str | None = None,
    root: Path = store.RESULTS,
    out: Path | None = None,
) -> int:
    """Draw one figure or all, write captions beside them, and print them.

    Args:
        name: Name of the figure: that of its experiment, or curves, gradient_share, decision, claims,
            credit_by_turn, microscope, families, mismatch, surrogates; or all.
        quick: Draw the small version of the experiment.
        experiment: What curves and gradient_share are drawn of; by default scale_mismatch.
        regime: Regime of curves; by default the one with the largest axis value.
        root: Folder of all results. Figures of any but the default go to plots/figures beside it.
        out: Folder of the figures and captions, where that is another.
    """
    if name not in (EVERY, *NAMES):
        raise BenchmarkError(f"'name' must be one of {[EVERY, *NAMES]}. Got {name!r} instead.")
    for option, value in (("quick", quick or None), ("experiment", experiment), ("regime", regime)):
        if value is not None and name not in USED_BY[option]:
            raise BenchmarkError(f"{option!r} is for {list(USED_BY[option])} only. Got {value!r} with {name!r}.")
    folder = figures_of(root) if out is None else out
    if name == EVERY:
        return _draw_all(experiments.names(quick=True) if quick else NAMES, quick, root, folder)
    print(f"\n{_draw(_drawing(name, experiment or VIEWED, quick, regime, root), folder)}", end="")
    return 0


def _drawing(name: str, experiment: str, quick: bool, regime: str | None, root: Path) -> _Drawing:
    """Read what a figure shows."""
    if name in SUITE:
        module, draw, describe = SUITE[name]
        return _Drawing(module, (), name, draw, describe)
    if name in DOCUMENTS:
        return _Drawing(name, (_document(name, root),), name)
    if name in MAPS:
        return _Drawing(name, (_all_stored(importlib.import_module(f"plots.{name}").LEFT_OUT, root),), name)
    if name in VIEWS:
        return _view(name, experiment, quick, regime, root)
    loaded = experiments.load(name, quick)
    return _Drawing(name if name in OWN else "phase", (loaded, _rows(loaded, name, quick, root)), loaded.name)


def _draw(drawing: _Drawing, folder: Path) -> str:
    """Draw a figure, write its caption beside it, print the files, and return the caption."""
    found = importlib.import_module(f"plots.{drawing.module}")
    text = str(getattr(found, drawing.describe)(*drawing.arguments))
    paths = save(getattr(found, drawing.draw)(*drawing.arguments), drawing.file, folder)
    for path in (*paths, write_caption(text, drawing.file, folder)):
        print(path, flush=True)
    return text


def _draw_all(names: Sequence[str], quick: bool, root: Path, folder: Path) -> int:
    """Draw those figures whose results are stored, and say which ones are not."""
    missing = []
    for name in names:
        try:
            _draw(_drawing(name, VIEWED, quick, None, root), folder)
        except store.NoResultsError as error:
            missing.append(f"{name}: {error}")
    for line in missing:
        print(f"not drawn: {line}")
    return 0


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What follows ``python -m plots``; None reads it from the process.

    Returns:
        Exit status: 0, or 2 if the request cannot be met.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return tyro.cli(main, prog="python -m plots", args=given or ["--help"], config=(tyro.conf.FlagCreatePairsOff,))
    except (BenchmarkError, OSError) as error:
        say(f"error: {error}")
        return 2


def _document(name: str, root: Path) -> Any:
    file, entry = DOCUMENTS[name]
    path = root / file
    if not path.exists():
        raise store.NoResultsError(
            f"There is no {path}; the docstring of plots/{name}.py names the commands that make it."
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return document if entry is None else document[entry]
    except (ValueError, KeyError) as error:
        raise BenchmarkError(f"cannot read {path}, restore it or move it away: {error!r}") from error


def _rows(experiment: Experiment, name: str, quick: bool, root: Path) -> pa.Table:
    table = store.gather(experiment, root)
    if table.num_rows == 0:
        raise store.no_results(experiment.name, f"run {name}" + (" --quick" if quick else ""), root)
    return table


def _view(name: str, experiment: str, quick: bool, regime: str | None, root: Path) -> _Drawing:
    """One figure of any experiment; its files are called after it, except for the default."""
    loaded = experiments.load(experiment, quick)
    table = _rows(loaded, experiment, quick, root)
    if regime == max(loaded.regimes, key=lambda entry: entry.axis_value).name:
        regime = None  # It is the default, and has the default's file.
    arguments: tuple[Any, ...] = (loaded, table)
    if name == "curves":
        arguments = (loaded, table, regime)
    shown = [] if loaded.name == VIEWED and regime is None else [loaded.name, regime]
    return _Drawing(name, arguments, "_".join([name, *filter(None, shown)]))


def _all_stored(left_out: tuple[str, ...], root: Path) -> list[tuple[Experiment, pa.Table]]:
    """Experiments that have a gathered file, with its rows."""
    loaded = [experiments.load(name) for name in experiments.names() if name not in left_out]
    return [(one, store.gather(one, root)) for one in loaded if store.gathered_file(one.name, root).exists()]


if __name__ == "__main__":
    sys.exit(run())
