"""Phase diagram of an experiment: regimes by schemes, the score of each cell with its interval.

python -m plots NAME      for every experiment without a figure of its own
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa

from benchmarks.aggregate import ALPHA, against, best_first, choose_learning_rates, current, run_scores, summarise
from benchmarks.experiment import Experiment, Rate, spell_rate
from benchmarks.statistics import Interval
from plots.style import GREY, SETTINGS, caption, commands, enumerate_names, no_reported_runs, tuning

CELL_WIDTH, CELL_HEIGHT = 1.15, 0.36
LONGEST = 34
"""Characters of a scheme's name on one line; longer ones are written smaller, on several."""
SMALL = 6.5
MANY, LOW_CELL = 30, 0.21
"""With more schemes than that the cells are that high."""
LEAST_SPAN = 0.2
"""The colours span at least this much of the score, so that noise does not look like a finding."""
MAP = matplotlib.colormaps["cividis"]
"""Runs from dark blue to yellow also for colour-blind readers, and in grey."""


def draw(experiment: Experiment, table: pa.Table, command: str | None = None) -> Any:
    """Draw the experiment: mean score and, in mixtures, the worst environment.

    Args:
        experiment: The experiment.
        table: Its gathered rows.
        command: What made it, where that is not the command line of an experiment in ``benchmarks/experiments``;
            an empty one is left out.
    """
    scores = run_scores(current(experiment, table))
    names = [regime.name for regime in sorted(experiment.regimes, key=lambda regime: regime.axis_value)]
    cells = {name: summarise(scores, name) for name in names}
    several = any(len(found) > 3 for summary in cells.values() for found in summary.values())
    panels = ("mean", "worst") if several else ("mean",)
    schemes = best_first(*cells.values())
    if not schemes:
        raise no_reported_runs(experiment)
    rates = choose_learning_rates(experiment, table)
    seeds = len(set(scores["seed"].to_pylist()))
    labels = [_label(scheme, rates[scheme]) for scheme in schemes]
    label = 0.3 + max((0.057 if "\n" in text else 0.078) * len(line) for text in labels for line in text.split("\n"))
    width = label + len(panels) * (CELL_WIDTH * len(names) + 0.5) + 0.5
    above = 1.25 if several else 0.95
    height = (CELL_HEIGHT if len(schemes) <= MANY else LOW_CELL) * len(schemes) + above + 1.1
    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(1, len(panels), figsize=(max(width, 7.5), height), squeeze=False)
        figure.subplots_adjust(left=label / max(width, 7.5), right=0.98, top=1 - above / height, bottom=0.85 / height)
        for axis, panel in zip(axes[0], panels, strict=True):
            _panel(axis, cells, names, schemes, panel)
            if several:
                axis.set_title({"mean": "mean of the environments", "worst": "worst environment"}[panel])
        axes[0, 0].set_yticks(range(len(schemes)), labels, linespacing=1.0)
        for tick, text in zip(axes[0, 0].get_yticklabels(), labels, strict=True):
            if "\n" in text:
                tick.set_fontsize(SMALL)
        figure.text(0.01, 1 - 0.28 / height, experiment.question, fontsize=10.5, weight="bold", va="center")
        note = (
            "normalised score, mean over training (0 random, 1 expert), and half of its 95 % interval;\n"
            f"{seeds} paired seeds, {tuning(experiment)}; dark: lowest of the panel, light: highest"
        )
        figure.text(0.01, 1 - 0.46 / height, note, fontsize=8.5, color=GREY, va="top", linespacing=1.3)
        figure.text(0.01, 0.36 / height, f"columns: {experiment.axis}", color=GREY, fontsize=8.5)
        footer = "; ".join(commands(experiment, "{name}", command))
        figure.text(0.01, 0.12 / height, footer, color=GREY, fontsize=8, family="monospace")
    return figure


def _label(scheme: str, rate: Rate) -> str:
    """Name a scheme and its rate; one with many changes has a line for its recipe, and further ones for them."""
    recipe, colon, changes = scheme.partition(":")
    if len(scheme) <= LONGEST:
        return f"{scheme}  (lr {spell_rate(rate)})"
    lines = [f"{recipe}{colon}  (lr {spell_rate(rate)})", *textwrap.wrap(changes.replace(",", ", "), 52)]
    return "\n".join(lines)


def describe(experiment: Experiment, table: pa.Table, command: str | None = None) -> str:
    """Return the caption; arguments as for `draw`."""
    scores = run_scores(current(experiment, table))
    findings = []
    for regime in sorted(experiment.regimes, key=lambda regime: regime.axis_value):
        compared = against(scores, regime.name, column=experiment.metric)
        if compared:
            best, *others = compared
            close = [scheme for scheme in others if compared[scheme].p_value >= ALPHA]
            findings.append(f"{regime.name}: {best} {compared[best].score:.2f}, level with it {enumerate_names(close)}")
    seeds = len(set(scores["seed"].to_pylist()))
    return caption(
        f"{experiment.question} Mean normalised score over training (0 random, 1 expert) of every scheme in every "
        f"regime (axis: {experiment.axis}), with half of its 95 % bootstrap interval over {seeds} paired "
        f"seeds; {tuning(experiment)}. Claim under test: {experiment.claim}",
        "Highest mean by regime, and what is not distinguishable from it (paired t-test, Holm, 5 %): "
        + ("; ".join(findings) + "." if findings else "too few seeds for a comparison."),
        *commands(experiment, "{name}", command),
    )


def _readable(background: Sequence[float]) -> str:
    """Return black or white, whichever has the larger contrast (WCAG 2) with a colour (R, G, B, A)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in background[:3]]
    luminance = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def _panel(
    axis: Any, cells: dict[str, dict[str, dict[str, Interval]]], names: list[str], schemes: list[str], panel: str
) -> None:
    values = np.full((len(schemes), len(names)), np.nan)
    for column, name in enumerate(names):
        for row, scheme in enumerate(schemes):
            if scheme in cells[name]:
                values[row, column] = cells[name][scheme][panel].estimate
    high = np.nanmax(values)
    low = min(np.nanmin(values), high - LEAST_SPAN)
    axis.imshow(values, cmap=MAP, aspect="auto", vmin=low, vmax=high)
    for column, name in enumerate(names):
        best = np.nanmax(values[:, column])
        for row, scheme in enumerate(schemes):
            if scheme not in cells[name]:
                continue
            found = cells[name][scheme][panel]
            text_colour = _readable(MAP((values[row, column] - low) / (high - low)))
            text = f"{found.estimate:.2f}"
            if np.isfinite(found.low):
                text += f" ±{(found.high - found.low) / 2:.2f}"
            axis.text(
                column, row, text, ha="center", va="center", fontsize=8, color=text_colour,
                weight="bold" if values[row, column] == best else "normal",
            )  # fmt: skip
    axis.set_xticks(range(len(names)), names)
    axis.set_yticks([])
    axis.grid(False)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
