"""Which scheme when: every scheme beside the best one, in every regime of the stored experiments.

python -m plots decision
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa

from benchmarks.aggregate import ALPHA, Comparison, against, current, run_scores
from benchmarks.experiment import BenchmarkError, Experiment
from benchmarks.store import NoResultsError
from plots.style import GREY, SETTINGS, caption, enumerate_names

MAP = "cividis"
WORST = -0.3
"""Differences beyond this have the darkest colour."""
LEFT_OUT = ("everything",)
"""Experiments with too many schemes for a map."""
WIDEST = 18
"""Columns of one band at most, but for an experiment that has more."""
LONGEST = 36
"""Characters of a scheme's name that are shown."""
CELL_WIDTH, CELL_HEIGHT = 0.46, 0.23
DRAW = "python -m plots decision"
Stored = Sequence[tuple[Experiment, pa.Table]]


@dataclass(frozen=True)
class Column:
    """One regime.

    Attributes:
        experiment: Its experiment's name.
        regime: Its name.
        schemes: What `against` says of it.
    """

    experiment: str
    regime: str
    schemes: dict[str, Comparison]

    @property
    def leaders(self) -> list[str]:
        """The best scheme, and those that are not distinguishable from it."""
        return [scheme for scheme, found in self.schemes.items() if found.p_value >= ALPHA]


def columns(stored: Stored) -> list[Column]:
    """Compare the schemes in every regime; experiments and regimes without the runs for it are left out."""
    found = []
    for experiment, table in stored:
        try:
            scores = run_scores(current(experiment, table))
        except BenchmarkError:
            continue  # Its tuning is not finished.
        for regime in sorted(experiment.regimes, key=lambda regime: regime.axis_value):
            compared = against(scores, regime.name, column=experiment.metric)
            if compared:
                found.append(Column(experiment.name, regime.name, compared))
    if not found:
        raise NoResultsError("No stored experiment has two schemes with two seeds in common in any regime.")
    return found


def draw(stored: Stored) -> Any:
    """Draw the map of all experiments whose runs are there, in bands that have the schemes of their own.

    Args:
        stored: Experiments and their gathered rows.
    """
    found = columns(stored)
    bands = [(band, order(band)) for band in split(found)]
    left = 0.078 * max(len(label(scheme)) for _, schemes in bands for scheme in schemes) + 0.3
    head = 0.5 + 0.056 * max(len(column.regime) for column in found)
    cells = CELL_WIDTH * max(_places(band)[-1] + 1 for band, _ in bands)
    width = max(left + cells + 0.5, 6.6)
    height = 0.85 + sum(head + 0.3 + CELL_HEIGHT * len(schemes) for _, schemes in bands) + 0.45
    with plt.rc_context({**SETTINGS, "axes.grid": False}):
        figure = plt.figure(figsize=(width, height))
        top = height - 0.85
        for band, schemes in bands:
            inches = CELL_HEIGHT * len(schemes)
            top -= head + 0.3 + inches
            wide = CELL_WIDTH * (_places(band)[-1] + 1)
            axis = figure.add_axes((left / width, top / height, wide / width, inches / height))
            _band(axis, band, schemes, 1 + (head - 0.28) / inches)
        figure.text(0.1 / width, 1 - 0.28 / height, "Which scheme when", fontsize=12, weight="bold")
        for line, text in enumerate(
            (
                f"mean normalised score minus that of the best scheme (★); {_seeds(found)} paired seeds",
                "○ not distinguishable from the best (paired t-test, Holm over the column's schemes, 5 %)",
            )
        ):
            figure.text(0.1 / width, 1 - (0.5 + 0.18 * line) / height, text, fontsize=8.5, color=GREY)
        figure.text(0.1 / width, 0.12 / height, DRAW, color=GREY, fontsize=8, family="monospace")
    return figure


def describe(stored: Stored) -> str:
    """Return the caption; arguments as for `draw`."""
    found = columns(stored)
    experiments = list(dict.fromkeys(column.experiment for column in found))
    tried = {scheme: sum(scheme in column.schemes for column in found) for scheme in order(found)}
    leads = {scheme: sum(scheme in column.leaders for column in found) for scheme in tried}
    ranked = sorted(tried, key=lambda scheme: (-leads[scheme] / tried[scheme], -tried[scheme], scheme))
    often = [f"{scheme} in {leads[scheme]} of {tried[scheme]}" for scheme in ranked if leads[scheme]][:6]
    never = [scheme for scheme in tried if not leads[scheme]]
    absent = [experiment.name for experiment, _ in stored if experiment.name not in experiments]
    return caption(
        f"Rows are schemes, columns the {len(found)} regimes of {enumerate_names(experiments)}; a cell is the mean "
        f"normalised score over training, mean of the environments, minus that of the column's best scheme (star), "
        f"over {_seeds(found)} paired seeds. A ring: the difference is not distinguishable from 0 at 5 % (two-sided "
        "paired t-test, Holm over the column's schemes). The best is chosen on the same runs, so its lead is "
        f"flattered. Empty: not in that experiment. Left out, as too large: {enumerate_names(LEFT_OUT)}."
        + (f" Not complete enough: {enumerate_names(absent)}." if absent else ""),
        f"Best or not distinguishable from it: {'; '.join(often)} of the regimes that each is in. Never: "
        f"{enumerate_names(never)}.",
        f"python -m benchmarks run NAME, for NAME in {', '.join(experiments)}",
        DRAW,
    )


def label(scheme: str) -> str:
    """Shorten a scheme with many changes."""
    return scheme if len(scheme) <= LONGEST else scheme[: LONGEST - 1] + "…"


def order(found: Sequence[Column]) -> list[str]:
    """Sort schemes: those that are in more experiments first, then by mean difference."""
    entries: dict[str, list[float]] = {}
    homes: dict[str, set[str]] = {}
    for column in found:
        for scheme, entry in column.schemes.items():
            entries.setdefault(scheme, []).append(entry.difference.estimate)
            homes.setdefault(scheme, set()).add(column.experiment)
    return sorted(entries, key=lambda scheme: (-len(homes[scheme]), -np.mean(entries[scheme]), scheme))


def split(found: Sequence[Column]) -> list[list[Column]]:
    """Split the columns into bands of whole experiments that are about as wide as a page."""
    bands: list[list[Column]] = []
    for name in dict.fromkeys(column.experiment for column in found):
        group = [column for column in found if column.experiment == name]
        if not bands or len(bands[-1]) + len(group) > WIDEST:
            bands.append([])
        bands[-1] += group
    return bands


def _places(band: Sequence[Column]) -> list[float]:
    """Return where columns are; there is a gap between experiments."""
    groups = list(dict.fromkeys(column.experiment for column in band))
    return [index + 0.35 * groups.index(column.experiment) for index, column in enumerate(band)]


def _band(axis: Any, band: Sequence[Column], schemes: list[str], height: float) -> None:
    """Draw the cells of a band, and the experiments' names at a height in units of the axis."""
    place = _places(band)
    axis.set(xlim=(-0.5, place[-1] + 0.5), ylim=(len(schemes) - 0.5, -0.5))
    for x, column in zip(place, band, strict=True):
        for scheme, entry in column.schemes.items():
            _cell(axis, x, schemes.index(scheme), entry)
    axis.set_yticks(range(len(schemes)), [label(scheme) for scheme in schemes], fontsize=8)
    names = [column.regime for column in band]
    axis.set_xticks(place, names, fontsize=7.5, rotation=60, ha="left", rotation_mode="anchor")
    axis.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    for group in dict.fromkeys(column.experiment for column in band):
        own = [x for x, column in zip(place, band, strict=True) if column.experiment == group]
        _head(axis, group, own, height)


def _cell(axis: Any, x: float, row: int, entry: Comparison) -> None:
    value = entry.difference.estimate
    share = 1 - min(max(value / WORST, 0.0), 1.0)
    axis.add_patch(plt.Rectangle((x - 0.49, row - 0.48), 0.98, 0.96, color=plt.get_cmap(MAP)(share), linewidth=0))
    best = entry.p_value == 1.0 and entry.difference.low == entry.difference.high == 0.0
    # Without the digit that all have in common; no minus before nothing.
    text = "★" if best else f"{round(value, 2) + 0.0:.2f}".replace("0.", ".", 1)
    if not best and entry.p_value >= ALPHA:
        text = f"○ {text}"
    axis.text(
        x, row, text, ha="center", va="center", fontsize=7, color="black" if share > 0.5 else "white",
        weight="bold" if entry.p_value >= ALPHA else "normal",
    )  # fmt: skip


def _head(axis: Any, group: str, places: Sequence[float], height: float) -> None:
    """Write an experiment's name over its columns, with a line as wide as they are."""
    transform = axis.get_xaxis_transform()
    ends = [places[0] - 0.49, places[-1] + 0.49]
    axis.plot(ends, [height, height], color=GREY, linewidth=1.0, transform=transform, clip_on=False)
    name = group if len(group) * 0.075 < CELL_WIDTH * len(places) else group.replace("_", "\n")
    axis.annotate(
        name, (ends[0], height), xytext=(0, 3), xycoords=transform, textcoords="offset points", fontsize=8.5,
        weight="bold", va="bottom", linespacing=0.95, annotation_clip=False,
    )  # fmt: skip


def _seeds(found: Sequence[Column]) -> str:
    counts = sorted({entry.seeds for column in found for entry in column.schemes.values()})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
