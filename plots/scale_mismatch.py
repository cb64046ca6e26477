"""Score of every scheme against the spread of reward scales, by environment.

python -m plots scale_mismatch
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentic_gym.mixture import preset
from benchmarks.aggregate import best_first, change, current, run_scores
from benchmarks.experiment import Experiment
from benchmarks.statistics import bootstrap_interval
from plots.style import (
    BLUE,
    GREEN,
    GREY,
    PURPLE,
    SETTINGS,
    VERMILION,
    caption,
    enumerate_names,
    spread_labels,
)

# How each recipe treats differences of scale between environments: colour by kind, marker within.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "no scale": (VERMILION, ("reinforce", "rloo", "dr_grpo")),
    "scale of the whole batch": (PURPLE, ("reinforce_pp", "reinforce_pp_baseline", "lite_ppo")),
    "scale of the prompt or environment": (BLUE, ("grpo", "agentrl", "erpo")),
    "critic": (GREEN, ("ppo",)),
}
MARKERS = ("o", "s", "^")
AREA = "normalised score\n(mean over training)"


def draw(experiment: Experiment, table: pa.Table) -> Any:
    """Draw the experiment from its gathered rows."""
    scores = run_scores(current(experiment, table))
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
            _panel(axis, scores, name, experiment)
            axis.set_title(titles[name])
        for axis in axes[:, 0]:
            axis.set_ylabel(AREA)
        for axis in axes[1]:
            axis.set_xlabel("largest / smallest reward scale")
        _explain_colours(figure, experiment.name.replace("_quick", " --quick"))
        figure.suptitle(
            f"Reward scales that differ between environments: {seeds} paired seeds, bars are 95 % "
            "bootstrap intervals, 0 = random policy, 1 = expert",
            x=0.01, ha="left", fontsize=11,
        )  # fmt: skip
    return figure


def describe(experiment: Experiment, table: pa.Table) -> str:
    """Return the caption of `draw`."""
    scores = run_scores(current(experiment, table))
    first, *_, last = sorted(experiment.regimes, key=lambda regime: regime.axis_value)
    moved = change(scores, last.name, first.name)
    changes = {scheme: found["mean"] for scheme, found in moved.items()}
    ordered = best_first(moved)[::-1]
    fallen = [
        f"{scheme} {changes[scheme].estimate:+.2f} ({changes[scheme].low:+.2f} to {changes[scheme].high:+.2f})"
        for scheme in ordered
        if changes[scheme].high < 0
    ]
    kept = [scheme for scheme in ordered if not changes[scheme].high < 0]
    name = experiment.name.replace("_quick", " --quick")
    seeds = len(set(scores["seed"].to_pylist()))
    return caption(
        f"Normalised score (0 random, 1 expert, mean over training) against the spread of reward scales, by "
        f"environment and of the mean and the worst environment: mean of {seeds} paired seeds, "
        "95 % bootstrap intervals over seeds, learning rate tuned per scheme.",
        f"From spread {first.axis_value:g} to {last.axis_value:g} the mean of the environments changes, paired by "
        f"seed: {'; '.join(fallen) or 'nowhere downwards'}. No fall is distinguishable from 0 with "
        f"{enumerate_names(kept)}.",
        f"python -m benchmarks run {name}",
        f"python -m plots {name}",
    )


def max_spread(experiment: Experiment) -> float:
    """The largest value on the axis."""
    return max(regime.axis_value for regime in experiment.regimes)


def _panel(axis: Any, scores: pa.Table, column: str, experiment: Experiment) -> None:
    ends: dict[str, float] = {}
    x_end: dict[str, float] = {}
    colours: dict[str, str] = {}
    spreads = sorted({regime.axis_value for regime in experiment.regimes})
    for kind_index, (colour, schemes) in enumerate(KINDS.values()):
        for index, scheme in enumerate(s for s in schemes if s in experiment.schemes):
            rows = scores.filter(pc.field("scheme") == scheme)
            points = [_interval(rows.filter(pc.field("axis_value") == spread)[column].to_numpy()) for spread in spreads]
            middle, low, high = (np.array(values) for values in zip(*points, strict=True))
            # A small shift per scheme keeps bars of equal spread apart.
            x = np.array(spreads) * 10 ** (0.025 * (3 * kind_index + index - 4.5))
            axis.errorbar(
                x, middle, yerr=[middle - low, high - middle], color=colour, marker=MARKERS[index],
                markersize=4, linewidth=1.2, elinewidth=0.9,
            )  # fmt: skip
            ends[scheme], x_end[scheme], colours[scheme] = float(middle[-1]), float(x[-1]), colour
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
        return float(values[0]), float(values[0]), float(values[0])
    interval = bootstrap_interval(values, seed=0)
    return interval.estimate, interval.low, interval.high


def _explain_colours(figure: Any, name: str) -> None:
    """One line of coloured words under the figure instead of a legend of ten lines."""
    x = 0.01
    for kind, (colour, schemes) in KINDS.items():
        markers = ", ".join(f"{name} {'●■▲'[index]}" for index, name in enumerate(schemes))
        figure.text(x, 0.042, kind, color=colour, fontsize=9, weight="bold")
        figure.text(x, 0.022, markers, color=colour, fontsize=8.5)
        x += 0.0056 * max(len(kind), len(markers)) + 0.025
    command = f"python -m benchmarks run {name}; python -m plots {name}"
    figure.text(0.01, 0.003, command, color=GREY, fontsize=8, family="monospace")
