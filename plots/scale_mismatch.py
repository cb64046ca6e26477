"""Score of every scheme against the spread of reward scales, by environment.

python -m plots scale_mismatch
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentic_gym.mixture import preset
from benchmarks.aggregate import best_first, change, current, run_scores
from benchmarks.experiment import BenchmarkError, Experiment
from benchmarks.statistics import bootstrap_interval
from plots.style import (
    BLUE,
    GREEN,
    GREY,
    PURPLE,
    SETTINGS,
    VERMILION,
    caption,
    commands,
    enumerate_names,
    no_reported_runs,
    spread_labels,
    tuning,
)

# How each recipe treats differences of scale between environments: colour by kind, marker within.
Kinds = dict[str, tuple[str, tuple[str, ...]]]
KINDS: Kinds = {
    "no scale": (VERMILION, ("reinforce", "rloo", "dr_grpo")),
    "scale of the whole batch": (PURPLE, ("reinforce_pp", "reinforce_pp_baseline", "lite_ppo")),
    "scale of the prompt or environment": (BLUE, ("grpo", "agentrl", "erpo")),
    "critic": (GREEN, ("ppo",)),
}
OTHER = "other"
"""Kind of the schemes that are not sorted above."""
MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "p": "⬟"}
"""Within a kind, and how they are written; where they run out they start again."""
AREA = "normalised score\n(mean over training)"


def draw(experiment: Experiment, table: pa.Table, command: str | None = None) -> Any:
    """Draw an experiment on the mixture ``scale``.

    Args:
        experiment: The experiment; schemes that `KINDS` does not sort are drawn in grey.
        table: Its gathered rows.
        command: What made it, where that is not the command line of an experiment in ``benchmarks/experiments``;
            an empty one is left out.

    Raises:
        BenchmarkError: If there are no reported runs, or a regime is not of that mixture.
    """
    scores = _scores(experiment, table)
    kinds = kinds_of(experiment)
    scales = {member["name"]: member["reward_scale"] for member in preset("scale", max_spread(experiment))}
    matched = {member["name"]: member["reward_scale"] for member in preset("matched")}
    factors = {name: scales[name] / matched[name] for name in scales}
    panels = sorted(factors, key=lambda name: -factors[name])
    titles = {name: f"{name}\nrewards x {factors[name]:.3g} at the right end" for name in panels} | {
        "mean": "mean of the environments",
        "worst": "worst environment",
    }
    seeds = len(set(scores["seed"].to_pylist()))
    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(2, 3, figsize=(13, 8.4), layout="constrained")
        figure.get_layout_engine().set(rect=(0, 0.075, 1, 0.925))
        for axis, name in zip(axes.flat, titles, strict=True):
            _panel(axis, scores, name, experiment, kinds)
            axis.set_title(titles[name])
        for axis in axes[:, 0]:
            axis.set_ylabel(AREA)
        for axis in axes[1]:
            axis.set_xlabel("largest / smallest reward scale")
        _explain_colours(figure, kinds)
        footer = "; ".join(commands(experiment, "{name}", command))
        figure.text(0.01, 0.003, footer, color=GREY, fontsize=8, family="monospace")
        figure.suptitle(
            f"Reward scales that differ between environments: {seeds} paired seeds, bars are 95 % "
            "bootstrap intervals, 0 = random policy, 1 = expert",
            x=0.01, ha="left", fontsize=11,
        )  # fmt: skip
    return figure


def describe(experiment: Experiment, table: pa.Table, command: str | None = None) -> str:
    """Return the caption; arguments as for `draw`."""
    scores = _scores(experiment, table)
    ordered_regimes = sorted(experiment.regimes, key=lambda regime: regime.axis_value)
    first, last = ordered_regimes[0], ordered_regimes[-1]
    moved = change(scores, last.name, first.name)
    changes = {scheme: found["mean"] for scheme, found in moved.items()}
    ordered = best_first(moved)[::-1]
    fallen = [
        f"{scheme} {changes[scheme].estimate:+.2f} ({changes[scheme].low:+.2f} to {changes[scheme].high:+.2f})"
        for scheme in ordered
        if changes[scheme].high < 0
    ]
    kept = [scheme for scheme in ordered if not changes[scheme].high < 0]
    seeds = len(set(scores["seed"].to_pylist()))
    return caption(
        f"Normalised score (0 random, 1 expert, mean over training) against the spread of reward scales, by "
        f"environment and of the mean and the worst environment: mean of {seeds} paired seeds, "
        f"95 % bootstrap intervals over seeds, {tuning(experiment)}.",
        f"From spread {first.axis_value:g} to {last.axis_value:g} the mean of the environments changes, paired by "
        f"seed: {'; '.join(fallen) or 'nowhere downwards'}. No fall is distinguishable from 0 with "
        f"{enumerate_names(kept)}.",
        *commands(experiment, "{name}", command),
    )


def kinds_of(experiment: Experiment) -> Kinds:
    """Return the kinds that an experiment has, with its schemes of each; those of no kind come last."""
    kinds = {
        kind: (colour, tuple(scheme for scheme in schemes if scheme in experiment.schemes))
        for kind, (colour, schemes) in KINDS.items()
    }
    sorted_in = {scheme for _, schemes in kinds.values() for scheme in schemes}
    kinds[OTHER] = GREY, tuple(scheme for scheme in experiment.schemes if scheme not in sorted_in)
    return {kind: (colour, schemes) for kind, (colour, schemes) in kinds.items() if schemes}


def max_spread(experiment: Experiment) -> float:
    """The largest value on the axis."""
    return max(regime.axis_value for regime in experiment.regimes)


def _scores(experiment: Experiment, table: pa.Table) -> pa.Table:
    """Return the scores of the reported runs, if the figure's texts hold for the experiment."""
    for regime in experiment.regimes:
        knobs = regime.env_kwargs
        if (knobs.get("preset"), knobs.get("spread")) != ("scale", regime.axis_value):
            raise BenchmarkError(
                f"'experiment' must have regimes with preset='scale' and the spread as axis_value. Got "
                f"{regime.name!r} of {experiment.name!r} with {dict(knobs)} and axis_value={regime.axis_value:g}."
            )
    scores = run_scores(current(experiment, table))
    if scores.num_rows == 0:
        raise no_reported_runs(experiment)
    return scores


def _panel(axis: Any, scores: pa.Table, column: str, experiment: Experiment, kinds: Kinds) -> None:
    ends: dict[str, float] = {}
    x_end: dict[str, float] = {}
    colours: dict[str, str] = {}
    spreads = sorted({regime.axis_value for regime in experiment.regimes})
    markers = list(MARKERS)
    for kind_index, (colour, schemes) in enumerate(kinds.values()):
        for index, scheme in enumerate(schemes):
            rows = scores.filter(pc.field("scheme") == scheme)
            if rows.num_rows == 0:
                continue  # Not run yet; the others can be seen.
            points = [_interval(rows.filter(pc.field("axis_value") == spread)[column].to_numpy()) for spread in spreads]
            middle, low, high = (np.array(values) for values in zip(*points, strict=True))
            # A small shift per scheme keeps bars of equal spread apart.
            x = np.array(spreads) * 10 ** (0.025 * (3 * kind_index + index - 4.5))
            axis.errorbar(
                x, middle, yerr=[middle - low, high - middle], color=colour,
                marker=markers[index % len(markers)], markersize=4, linewidth=1.2, elinewidth=0.9,
            )  # fmt: skip
            reached = np.flatnonzero(np.isfinite(middle))[-1]
            ends[scheme], x_end[scheme], colours[scheme] = float(middle[reached]), float(x[reached]), colour
    low_edge = min(-0.05, *ends.values())
    axis.set(xscale="log", ylim=(low_edge, 1.02), xlim=(min(spreads) / 1.6, max(spreads) * 22))
    axis.set_xticks(spreads, [f"{spread:g}" for spread in spreads])
    axis.minorticks_off()
    for scheme, height in spread_labels(ends, 0.052 * (1.02 - low_edge), low_edge + 0.02, 1.0).items():
        axis.annotate(
            scheme, (x_end[scheme] * 1.12, ends[scheme]), xytext=(max(spreads) * 2.4, height), fontsize=7.5,
            color=colours[scheme], va="center", annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": colours[scheme], "lw": 0.5, "shrinkA": 1, "shrinkB": 0,
                "relpos": (0.0, 0.5),
            },
        )  # fmt: skip


def _interval(values: Any) -> tuple[float, float, float]:
    if len(values) < 2:
        value = float(values[0]) if len(values) else math.nan
        return value, value, value
    interval = bootstrap_interval(values, seed=0)
    return interval.estimate, interval.low, interval.high


def _explain_colours(figure: Any, kinds: Kinds) -> None:
    """One line of coloured words under the figure instead of a legend of ten lines."""
    x = 0.01
    signs = list(MARKERS.values())
    for kind, (colour, schemes) in kinds.items():
        markers = ", ".join(f"{name} {signs[index % len(signs)]}" for index, name in enumerate(schemes))
        figure.text(x, 0.042, kind, color=colour, fontsize=9, weight="bold")
        # Many schemes of one's own are written smaller, to stay inside.
        size = 8.5 * min(1.0, max(0.5, (0.99 - x) / (0.0056 * len(markers))))
        figure.text(x, 0.022, markers, color=colour, fontsize=size)
        x += 0.0056 * max(len(kind), len(markers)) + 0.025
