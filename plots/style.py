"""What all figures share: sizes, colours that colour-blind readers can tell apart, direct labels."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from benchmarks import experiments, store
from benchmarks.experiment import Experiment

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FIGURES = Path(__file__).parent / "figures"
"""Figures of the repository's own results."""

# From the colour-blind safe palettes of Okabe and Ito (purple: Paul Tol).
BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#AA4499", "#5F6670"

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, "#B57A00", "#3A9BD9", "#332288", GREY)
"""For lines without a kind; the last ones of Okabe and Ito and of Tol, dark enough on white."""
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
MARKERS = ("o", "s", "^")
NUMBERS = "python -m benchmarks run "
FIGURE = "python -m plots "

SETTINGS = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "agentic-gym",
    "svg.fonttype": "none",
}


def spread_labels(heights: Mapping[str, float], gap: float, low: float, high: float) -> dict[str, float]:
    """Move label heights apart so that neighbours are at least ``gap`` apart, inside [low, high]."""
    names = sorted(heights, key=lambda name: heights[name])
    placed = np.array([heights[name] for name in names])
    for _ in range(200):
        for index in range(1, len(placed)):
            overlap = gap - (placed[index] - placed[index - 1])
            if overlap > 1e-9:
                placed[index - 1] -= overlap / 2
                placed[index] += overlap / 2
        placed += max(low - placed[0], 0.0) + min(high - placed[-1], 0.0)
    return dict(zip(names, placed.tolist(), strict=True))


def figures_of(root: Path) -> Path:
    """Return the folder for the figures of a folder of results.

    Figures of other results than the repository's own must not replace the repository's. They go where the links
    of the RESULTS.md beside that folder lead.
    """
    return FIGURES if root.resolve() == store.RESULTS.resolve() else root.parent / "plots" / "figures"


def save(figure: Any, name: str, folder: Path | None = None) -> list[Path]:
    """Write the figure as PNG and SVG and return the files; equal data give equal files.

    Args:
        figure: What to write.
        name: Of the files.
        folder: Where to write; None is that of the repository's own results.
    """
    folder = FIGURES if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with plt.rc_context(SETTINGS):
        figure.savefig(paths[0], dpi=150, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


def looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return colour, dashes and marker of each line; where colours run out they start again with other dashes."""
    count = len(COLOURS)
    return {
        name: {
            "color": COLOURS[index % count],
            "linestyle": DASHES[index // count % len(DASHES)],
            "marker": MARKERS[index // count % len(MARKERS)],
        }
        for index, name in enumerate(names)
    }


def label_ends(
    axis: Any, ends: Mapping[str, tuple[float, float]], colours: Mapping[str, str], x: float, size: float = 7.5
) -> None:
    """Write each name beside the end of its line, moved apart, with a thin line to the end.

    Args:
        axis: Its limits must be final.
        ends: The last point of each line.
        colours: Of the names.
        x: Where the names begin, in units of the axis.
        size: Of the font.
    """
    low, high = axis.get_ylim()
    # The room that a line of text takes, in units of the axis.
    gap = 1.25 * size / 72 / (axis.get_position().height * axis.figure.get_figheight()) * (high - low)
    gap = min(gap, (high - low) / max(len(ends), 1))
    heights = spread_labels({name: y for name, (_, y) in ends.items()}, gap, low + gap / 2, high - gap / 2)
    for name, height in heights.items():
        line = {"arrowstyle": "-", "color": colours[name], "lw": 0.5, "shrinkA": 1, "shrinkB": 2, "relpos": (0.0, 0.5)}
        axis.annotate(
            name, ends[name], xytext=(x, height), fontsize=size, color=colours[name], va="center",
            annotation_clip=False, arrowprops=line,
        )  # fmt: skip


def caption(shown: str, finding: str, *commands: str) -> str:
    """Compose the text beside a figure.

    Args:
        shown: What is drawn, of how many seeds or samples.
        finding: What is seen, from the data.
        *commands: The command that made the numbers and the one that draws them, or one for both, or none.
    """
    body = "\n\n".join(textwrap.fill(text, 100, break_on_hyphens=False) for text in (shown, finding))
    labels = ("Numbers", "Figure") if len(commands) == 2 else ("Numbers and figure",)
    lines = [f"{label}: {command}\n" for label, command in zip(labels, commands, strict=False)]
    return f"{body}\n" + "".join(["\n", *lines] if lines else [])


def commands(experiment: Experiment, figure: str, command: str | None = None) -> tuple[str, ...]:
    """Return what made a figure of an experiment: nothing, one command, or that of its numbers and its own.

    Args:
        experiment: The experiment.
        figure: Arguments of ``python -m plots``, with ``{name}`` where the name of the experiment belongs.
        command: Returned in place of the others; an empty one leaves them out. None takes the command lines of
            an experiment in ``benchmarks/experiments``; any other experiment has none.
    """
    if command is not None:
        return (command,) if command else ()
    name, quick = experiment.name.removesuffix("_quick"), " --quick" * experiment.name.endswith("_quick")
    if name not in experiments.names():
        return ()
    return f"{NUMBERS}{name}{quick}", FIGURE + figure.format(name=f"{name}{quick}")


def no_reported_runs(experiment: Experiment) -> store.NoResultsError:
    """Return the error that an experiment has tuning runs at most, with the command that makes the others."""
    made = "".join(f": {command}" for command in commands(experiment, "")[:1])
    return store.NoResultsError(f"{experiment.name} has no reported runs yet{made}")


def enumerate_names(names: Sequence[str]) -> str:
    """Join names with commas and a last "and"; "none" where there are none."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "none"


def tuning(experiment: Experiment) -> str:
    """Say what has a learning rate of its own."""
    if len(experiment.learning_rates) == 1:
        return f"one learning rate for all schemes, {experiment.learning_rates[0]:g}"
    return "learning rate tuned per scheme" + (" and regime" if experiment.rate_per_regime else "")


def write_caption(text: str, name: str, folder: Path | None = None) -> Path:
    """Write the caption next to the figure, into the same folder, and return the file."""
    folder = FIGURES if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.txt"
    path.write_text(text, encoding="utf-8")
    return path
