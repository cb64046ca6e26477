"""How many turns each scheme spends until it has learned, as an update holds more rollouts.

python -m plots budget [--quick]
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa

from benchmarks.aggregate import choose_learning_rates, current, turns_to_reach
from benchmarks.experiment import Experiment, spell_rate
from benchmarks.experiments.budget import REACHED
from benchmarks.statistics import Interval, median_interval
from plots.style import BLUE, GREY, SETTINGS, caption, commands, no_reported_runs, tuning

Turns = dict[str, dict[str, Interval]]
"""Regime -> scheme -> turns, in the order of the axis and of the experiment."""


def draw(experiment: Experiment, table: pa.Table, command: str | None = None) -> Any:
    """Draw one panel per regime: the median of each scheme with its interval.

    Args:
        experiment: The experiment.
        table: Its gathered rows.
        command: What made it, where that is not the command line of an experiment in ``benchmarks/experiments``;
            an empty one is left out.
    """
    turns, seeds = needed(experiment, table)
    rates = choose_learning_rates(experiment, table)
    schemes = list(next(iter(turns.values())))[::-1]
    labels = [f"{scheme}  (lr {spell_rate(rates[scheme])})" for scheme in schemes]
    label = 0.3 + 0.078 * max(map(len, labels))
    width, height = 3.0 * len(turns) + label + 0.2, 0.34 * len(schemes) + 2.0
    with plt.rc_context({**SETTINGS, "axes.grid.axis": "x"}):
        figure, axes = plt.subplots(1, len(turns), figsize=(width, height), squeeze=False, sharex=True, sharey=True)
        figure.subplots_adjust(
            left=label / width, right=1 - 0.2 / width, top=1 - 1.05 / height, bottom=0.75 / height, wspace=0.16
        )
        for axis, (regime, found) in zip(axes[0], turns.items(), strict=True):
            for row, scheme in enumerate(schemes):
                _bar(axis, row, found[scheme], experiment.budget.total_turns)
            axis.set_title(regime)
            axis.set_xlabel(f"environment turns to {REACHED:g}")
            axis.tick_params(axis="y", length=0)
        axes[0, 0].set_xlim(0, experiment.budget.total_turns)
        axes[0, 0].set_ylim(-0.6, len(schemes) - 0.4)
        axes[0, 0].set_yticks(range(len(schemes)), labels)
        figure.text(0.01, 1 - 0.28 / height, experiment.question, fontsize=10.5, weight="bold", va="center")
        note = (
            f"turns until the normalised score first reaches {REACHED:g}: median over {seeds} paired seeds, and its "
            "exact 95 % interval; an arrow: not within the budget"
        )
        figure.text(0.01, 1 - 0.52 / height, note, fontsize=8.5, color=GREY, va="center")
        footer = "; ".join(commands(experiment, "{name}", command))
        figure.text(0.01, 0.12 / height, footer, color=GREY, fontsize=8, family="monospace")
    return figure


def describe(experiment: Experiment, table: pa.Table, command: str | None = None) -> str:
    """Return the caption; arguments as for `draw`."""
    turns, seeds = needed(experiment, table)
    findings = []
    for regime, found in turns.items():
        first = min(found, key=lambda scheme: (found[scheme].estimate, scheme))
        last = max(found, key=lambda scheme: (found[scheme].estimate, scheme))
        findings.append(f"{regime}: from {_text(found[first])} ({first}) to {_text(found[last])} ({last})")
    return caption(
        f"{experiment.question} Environment turns until the normalised score (0 random, 1 expert) first reaches "
        f"{REACHED:g}, interpolated between evaluation points: median over {seeds} paired seeds with its exact 95 % "
        f"interval; {tuning(experiment)}; a rollout has four turns. Claim under test: {experiment.claim}",
        "Fewest and most turns by regime: " + "; ".join(findings) + ".",
        *commands(experiment, "{name}", command),
    )


def needed(experiment: Experiment, table: pa.Table) -> tuple[Turns, int]:
    """Return the turns by regime and scheme, and the number of seeds.

    Raises:
        NoResultsError: If there are no reported runs.
    """
    found = turns_to_reach(current(experiment, table), REACHED)
    if not found:
        raise no_reported_runs(experiment)
    regimes = [regime.name for regime in sorted(experiment.regimes, key=lambda regime: regime.axis_value)]
    turns = {
        regime: {
            scheme: median_interval(list(found[regime, scheme].values()))
            for scheme in experiment.schemes
            if (regime, scheme) in found
        }
        for regime in regimes
    }
    return {regime: row for regime, row in turns.items() if row}, max(map(len, found.values()))


def _bar(axis: Any, row: int, turns: Interval, total: int) -> None:
    low, high = (turns.estimate if math.isnan(end) else end for end in (turns.low, turns.high))
    reach = np.minimum([low, high], total)
    axis.plot(reach, [row, row], color=BLUE, linewidth=1.4, solid_capstyle="butt")
    if math.isinf(high):
        axis.plot(total * 0.985, row, marker=">", color=BLUE, markersize=5)
    if math.isfinite(turns.estimate):
        axis.plot(turns.estimate, row, marker="o", color=BLUE, markersize=5)


def _text(turns: Interval) -> str:
    return f"{turns.estimate:,.0f}" if math.isfinite(turns.estimate) else "more than the budget"
