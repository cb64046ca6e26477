"""Share of the gradient that each environment has, along the axis of an experiment, by scheme.

python -m plots gradient_share [--experiment NAME]
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.aggregate import current, run_scores
from benchmarks.experiment import BenchmarkError, Experiment
from benchmarks.statistics import Interval, bootstrap_interval
from plots.style import GREY, SETTINGS, caption, commands, enumerate_names, label_ends, looks

COLUMNS = 5
FIGURE = "gradient_share --experiment {name}"
Shares = dict[str, dict[str, list[Interval]]]
"""Scheme -> environment -> the share in each regime, in the order of the axis."""


def draw(experiment: Experiment, table: pa.Table, command: str | None = None) -> Any:
    """Draw one panel per scheme, one line per environment.

    Args:
        experiment: The experiment.
        table: Its gathered rows, with the column ``gradient_share``.
        command: What made it, where that is not the command line of an experiment in ``benchmarks/experiments``;
            an empty one is left out.
    """
    shares, seeds = mean_shares(experiment, table)
    environments = list(next(iter(shares.values())))
    look = looks(environments)
    values = _axis(experiment)
    columns = min(COLUMNS, len(shares))
    rows = math.ceil(len(shares) / columns)
    width, height = 2.75 * columns + 0.6, 2.8 * rows + 1.4
    top = 1.05 * max(point.high for by in shares.values() for line in by.values() for point in line)
    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, sharey=True)
        figure.subplots_adjust(
            left=0.62 / width, right=1 - 0.85 / width, top=1 - 1.0 / height, bottom=0.85 / height,
            wspace=0.55, hspace=0.32,
        )  # fmt: skip
        axes[0, 0].set_ylim(0, top)
        for axis, (scheme, lines) in zip(axes.flat, shares.items(), strict=False):
            _panel(axis, lines, look, len(environments))
            axis.set_xticks(range(len(values)), [f"{value:g}" for value in values])
            axis.set_title(scheme)
        for axis in axes.flat[len(shares) :]:
            axis.set_visible(False)
        for axis in axes[:, 0]:
            axis.set_ylabel("share of the gradient's norm")
        figure.text(0.5, 0.42 / height, experiment.axis, ha="center", fontsize=9)
        figure.text(
            0.1 / width, 1 - 0.3 / height, "Whose gradient is it? Each environment's share, by scheme", fontsize=12,
            weight="bold",
        )  # fmt: skip
        figure.text(
            0.1 / width, 1 - 0.55 / height,
            f"norm of the environment's part over the sum of norms, mean over training and {seeds} seeds, bars are "
            "95 % bootstrap intervals; dashed: equal shares",
            fontsize=9, color=GREY,
        )  # fmt: skip
        figure.text(
            0.1 / width, 0.12 / height, "; ".join(commands(experiment, FIGURE, command)), color=GREY, fontsize=8,
            family="monospace",
        )  # fmt: skip
    return figure


def describe(experiment: Experiment, table: pa.Table, command: str | None = None) -> str:
    """Return the caption; arguments as for `draw`."""
    shares, seeds = mean_shares(experiment, table)
    first, last = (f"{value:g}" for value in (_axis(experiment)[0], _axis(experiment)[-1]))
    environments = list(next(iter(shares.values())))
    moved = {
        scheme: max(abs(lines[name][-1].estimate - lines[name][0].estimate) for name in environments)
        for scheme, lines in shares.items()
    }
    steady = [scheme for scheme, change in moved.items() if change < 0.05]
    most = max(moved, key=lambda scheme: moved[scheme])
    top = max(environments, key=lambda name: shares[most][name][-1].estimate)
    before, after = shares[most][top][0], shares[most][top][-1]
    return caption(
        f"Each environment's part of the first gradient of an update, its norm over the sum of the norms, in "
        f"{experiment.name}: mean over the evaluation points of training and {seeds} paired seeds, with 95 % bootstrap "
        f"intervals over seeds. Dashed: equal shares (1/{len(environments)}). An environment that is mastered, or "
        "never succeeds, has no gradient, so equal shares are not the aim at every point.",
        f"Between {first} and {last} on the axis ({experiment.axis}) no environment's share moves by 0.05 or more "
        f"with {enumerate_names(steady)}. It moves most with {most}, where {top} goes from "
        f"{_cell(before)} to {_cell(after)}.",
        *commands(experiment, FIGURE, command),
    )


def mean_shares(experiment: Experiment, table: pa.Table) -> tuple[Shares, int]:
    """Return the shares by scheme and environment, and the number of seeds.

    Raises:
        BenchmarkError: If the rows have no shares: with one environment there are none.
    """
    missing = BenchmarkError(f"{experiment.name!r} has no gradient shares: they need several environments.")
    if "gradient_share" not in table.column_names:
        raise missing
    rows = current(experiment, table)
    column = rows["gradient_share"]
    # Before training, and in an update that was skipped, there is no gradient.
    rows = rows.filter(pc.and_(pc.is_valid(column), pc.is_finite(pc.fill_null(column, math.nan))))
    if rows.filter((pc.field("phase") == "report") & (pc.field("turns") > 0)).num_rows == 0:
        raise missing
    runs = run_scores(rows, column="gradient_share")
    environments = sorted(set(rows["environment"].to_pylist()))
    names = [regime.name for regime in sorted(experiment.regimes, key=lambda regime: regime.axis_value)]
    shares: Shares = {}
    for scheme in experiment.schemes:
        found = [
            runs.filter((pc.field("scheme") == scheme) & (pc.field("regime") == name)).select(environments)
            for name in names
        ]
        if all(part.num_rows for part in found):
            shares[scheme] = {
                name: [_interval(part[name].drop_null().to_numpy()) for part in found] for name in environments
            }
    if not shares:
        raise missing
    return shares, len(set(runs["seed"].to_pylist()))


def _interval(values: Any) -> Interval:
    if len(values) < 2:
        value = float(values[0]) if len(values) else math.nan
        return Interval(value, value, value)
    return bootstrap_interval(values)


def _panel(axis: Any, lines: dict[str, list[Interval]], look: dict[str, dict[str, Any]], count: int) -> None:
    axis.axhline(1 / count, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    ends = {}
    for index, (name, points) in enumerate(lines.items()):
        # A small shift keeps bars of equal share apart.
        x = np.arange(len(points)) + 0.05 * (index - (len(lines) - 1) / 2)
        middle = np.array([point.estimate for point in points])
        bars = [middle - [point.low for point in points], [point.high for point in points] - middle]
        axis.errorbar(x, middle, yerr=bars, linewidth=1.4, markersize=3.5, elinewidth=0.9, **look[name])
        ends[name] = (float(x[-1]), float(middle[-1]))
    axis.set_xlim(-0.3, len(points) - 0.8)
    label_ends(axis, ends, {name: look[name]["color"] for name in ends}, len(points) - 0.68, size=7)


def _axis(experiment: Experiment) -> list[float]:
    return sorted(regime.axis_value for regime in experiment.regimes)


def _cell(interval: Interval) -> str:
    return f"{interval.estimate:.2f} ({interval.low:.2f} to {interval.high:.2f})"
