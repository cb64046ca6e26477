"""Learning curves of one regime of an experiment: the score of every scheme against environment turns.

python -m plots curves [--experiment NAME] [--regime REGIME]
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.aggregate import ALPHA, against, current, run_scores
from benchmarks.experiment import BenchmarkError, Experiment, Regime
from benchmarks.statistics import Interval, bootstrap_interval
from plots.style import GREY, SETTINGS, caption, commands, enumerate_names, label_ends, looks, tuning

COLUMNS = 3
PANEL = 2.9
"""Width of a panel in inches."""
NARROWEST = 9.4
"""Width of a figure with one panel: its texts need it."""
MEAN = "mean of the environments"
Curves = dict[str, dict[str, tuple[npt.NDArray[np.float64], list[Interval]]]]
"""Panel -> scheme -> turns and the score at each evaluation point."""


def draw(experiment: Experiment, table: pa.Table, regime: str | None = None, command: str | None = None) -> Any:
    """Draw one panel per environment, and their mean if there are several.

    Args:
        experiment: The experiment.
        table: Its gathered rows.
        regime: Name of the regime; by default the one with the largest axis value.
        command: What made it, where that is not the command line of an experiment in ``benchmarks/experiments``;
            an empty one is left out.
    """
    chosen = choose(experiment, regime)
    curves, seeds = learning_curves(experiment, table, chosen)
    look = looks(experiment.schemes)
    columns = min(COLUMNS, len(curves))
    rows = math.ceil(len(curves) / columns)
    # Room for the names at the ends of the lines, and for the numbers of the next panel.
    room = 0.35 + 0.062 * max(map(len, experiment.schemes))
    panel = PANEL if columns > 1 else NARROWEST - 0.75 - room
    width = 0.75 + columns * (panel + room) + (columns - 1) * 0.45
    height = max(3.4, 0.24 * len(experiment.schemes) + 1.0) * rows + 1.2
    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False)
        figure.subplots_adjust(
            left=0.75 / width, right=1 - room / width, top=1 - 1.0 / height, bottom=0.85 / height,
            wspace=(room + 0.45) / panel, hspace=0.33,
        )  # fmt: skip
        for axis, (title, by_scheme) in zip(axes.flat, curves.items(), strict=False):
            _panel(axis, by_scheme, look)
            axis.set_title(title)
        for axis in axes.flat[len(curves) :]:
            axis.set_visible(False)
        for axis in axes[:, 0]:
            axis.set_ylabel("normalised score")
            axis.yaxis.set_label_coords(-0.5 / panel, 0.5)
        for axis in axes.flat[max(0, len(curves) - columns) : len(curves)]:
            axis.set_xlabel("environment turns (thousands)")
        title = f"Learning curves: {experiment.name}, {chosen.name}"
        figure.text(0.1 / width, 1 - 0.3 / height, title, fontsize=12, weight="bold")
        figure.text(
            0.1 / width, 1 - 0.55 / height,
            f"0 random, 1 expert; mean of {seeds} seeds, bands are 95 % bootstrap intervals; {experiment.axis}: "
            f"{chosen.axis_value:g}",
            fontsize=9, color=GREY,
        )  # fmt: skip
        figure.text(
            0.1 / width, 0.12 / height, "; ".join(commands(experiment, _figure(chosen), command)), color=GREY,
            fontsize=8, family="monospace",
        )  # fmt: skip
    return figure


def describe(experiment: Experiment, table: pa.Table, regime: str | None = None, command: str | None = None) -> str:
    """Return the caption; arguments as for `draw`."""
    chosen = choose(experiment, regime)
    curves, seeds = learning_curves(experiment, table, chosen)
    panel, by_scheme = list(curves.items())[-1]
    ends = {scheme: points[-1] for scheme, (_, points) in by_scheme.items()}
    ordered = sorted(ends, key=lambda scheme: (-round(ends[scheme].estimate, 12), scheme))
    best, worst = ordered[0], ordered[-1]
    lowest = f"; {worst} is lowest: {_cell(ends[worst])}" if len(ordered) > 1 else ""
    turns = max(float(x[-1]) for x, _ in by_scheme.values())
    start = round(float(np.mean([points[0].estimate for _, points in by_scheme.values()])), 2) + 0.0
    compared = against(run_scores(current(experiment, table)), chosen.name, "final_mean")
    level = [scheme for scheme, found in compared.items() if scheme != best and found.p_value >= ALPHA]
    verdict = (
        f" Not distinguishable from {best} at this point (paired t-test, Holm, 5 %): {enumerate_names(level)}."
        if compared
        else ""
    )
    return caption(
        f"Normalised score (0 random, 1 expert) against environment turns in the regime {chosen.name} of "
        f"{experiment.name} ({experiment.axis}: {chosen.axis_value:g}), mean of {seeds} paired seeds with 95 % "
        f"bootstrap intervals over seeds, sampled messages on test prompts, {tuning(experiment)}.",
        f"After {turns:,.0f} turns {best} is highest ({panel}): {_cell(ends[best])}, from {start:.2f} "
        f"before training{lowest}."
        f"{verdict}",
        *commands(experiment, _figure(chosen), command),
    )


def choose(experiment: Experiment, regime: str | None) -> Regime:
    """Return the regime of that name, or the one with the largest axis value."""
    by_name = {entry.name: entry for entry in experiment.regimes}
    if regime is None:
        return max(experiment.regimes, key=lambda entry: entry.axis_value)
    if regime not in by_name:
        raise BenchmarkError(f"'regime' must be one of {list(by_name)}. Got {regime!r} instead.")
    return by_name[regime]


def learning_curves(experiment: Experiment, table: pa.Table, regime: Regime) -> tuple[Curves, int]:
    """Return the curves of a regime by panel and scheme, and the number of seeds.

    Runs overshoot their evaluation points by a few turns, each by its own; the k-th points of all
    seeds are averaged, at their mean number of turns.
    """
    rows = current(experiment, table).filter((pc.field("phase") == "report") & (pc.field("regime") == regime.name))
    if rows.num_rows == 0:
        raise BenchmarkError(f"There are no reported runs of {experiment.name!r} in the regime {regime.name!r}.")
    runs: defaultdict[tuple[str, str, int], list[tuple[int, float]]] = defaultdict(list)
    for row in rows.select(["scheme", "environment", "seed", "turns", "score"]).to_pylist():
        runs[row["environment"], row["scheme"], row["seed"]].append((row["turns"], row["score"]))
    environments = list(dict.fromkeys(environment for environment, _, _ in sorted(runs)))
    seeds = len({seed for _, _, seed in runs})
    curves: Curves = {}
    stacked: defaultdict[str, list[npt.NDArray[np.float64]]] = defaultdict(list)
    for environment in environments:
        for scheme in experiment.schemes:
            found = [np.array(sorted(runs[key])) for key in sorted(runs) if key[:2] == (environment, scheme)]
            if not found:
                continue
            # A run with a point fewer ends its scheme's curve there.
            length = min(map(len, found))
            points = np.stack([run[:length] for run in found])
            stacked[scheme].append(points)
            curves.setdefault(environment, {})[scheme] = _curve(points)
    if len(environments) > 1:
        curves[MEAN] = {scheme: _curve(np.mean(points, axis=0)) for scheme, points in stacked.items()}
    return curves, seeds


def _curve(points: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], list[Interval]]:
    """Average points (runs, evaluations, 2) over runs."""
    scores = points[:, :, 1]
    if len(scores) == 1:
        return points[0, :, 0], [Interval(float(score), float(score), float(score)) for score in scores[0]]
    return points[:, :, 0].mean(axis=0), [bootstrap_interval(column) for column in scores.T]


def _panel(axis: Any, by_scheme: dict[str, tuple[Any, list[Interval]]], look: dict[str, dict[str, Any]]) -> None:
    ends = {}
    for scheme, (turns, points) in by_scheme.items():
        x = turns / 1000
        middle = [point.estimate for point in points]
        low, high = [point.low for point in points], [point.high for point in points]
        axis.fill_between(x, low, high, color=look[scheme]["color"], alpha=0.13, linewidth=0)
        axis.plot(x, middle, linewidth=1.4, markersize=2.6, **look[scheme])
        ends[scheme] = (float(x[-1]), float(middle[-1]))
    last = max(x for x, _ in ends.values())
    axis.set_xlim(0, last * 1.02)
    inches = axis.get_position().width * axis.figure.get_figwidth()
    label_ends(axis, ends, {scheme: look[scheme]["color"] for scheme in ends}, last * (1 + 0.35 / inches))


def _cell(interval: Interval) -> str:
    return f"{interval.estimate:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _figure(regime: Regime) -> str:
    """Return the arguments of the command line that draws a regime."""
    return f"curves --experiment {{name}} --regime {regime.name}"
