"""What the schemes' gradient estimates look like beside the exact gradient.

python -m plots microscope
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from plots.style import BLUE, GREEN, GREY, PURPLE, SETTINGS, VERMILION, caption, enumerate_names, spread_labels

COLOURS = {
    "reinforce": VERMILION, "rloo": VERMILION, "dr_grpo": VERMILION, "lite_ppo": PURPLE,
    "reinforce_pp_baseline": PURPLE, "grpo": BLUE, "agentrl": BLUE, "erpo": BLUE, "maxrl": GREEN,
}  # fmt: skip
DASHES = {"rloo": (4, 2), "reinforce_pp_baseline": (4, 2), "agentrl": (4, 2), "dr_grpo": (1, 1.5), "erpo": (1, 1.5)}
AXES = {
    "spread": "largest / smallest reward scale", "group_size": "rollouts per prompt (96 rollouts in all)",
    "noise": "reward noise (standard deviation)",
}  # fmt: skip
ROWS = {
    "bias_cosine": "cosine of the mean estimate\nwith the exact gradient",
    "signal_to_noise": "signal to noise\n(squared norms)",
    "smallest": "share of the environment\nwith the smallest rewards",
}
DEFAULT = {"spread": 1.0, "group_size": 8, "noise": 0.0}
DRAW = "python -m plots microscope"


def draw(seen: Sequence[Mapping[str, Any]]) -> Any:
    """Draw the entries of results/microscope.json: one column per axis, one row per quantity."""
    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(len(ROWS), len(AXES), figsize=(12, 9), sharey="row")
        figure.subplots_adjust(left=0.09, right=0.87, top=0.9, bottom=0.08, wspace=0.12, hspace=0.22)
        for column, (name, label) in enumerate(AXES.items()):
            points = _along(seen, name)
            for row, quantity in enumerate(ROWS):
                _panel(axes[row, column], points, name, quantity, last=column == len(AXES) - 1)
            axes[-1, column].set_xlabel(label)
        for row, label in enumerate(ROWS.values()):
            axes[row, 0].set_ylabel(label)
        figure.text(
            0.01, 0.965, "Gradient estimates against the exact gradient of the score", fontsize=12, weight="bold"
        )
        figure.text(
            0.01, 0.938,
            f"three chains, base success 0.3; median of {seen[0]['policies']} base policies with {seen[0]['n']} "
            "estimates each, bars from lowest to highest; the exact gradient gives each environment about a third",
            fontsize=9, color=GREY,
        )  # fmt: skip
        figure.text(0.01, 0.012, f"{_numbers(seen)}; {DRAW}", color=GREY, fontsize=8, family="monospace")
    return figure


def describe(seen: Sequence[Mapping[str, Any]]) -> str:
    """Return the caption of `draw`."""
    widest = max(entry["setting"]["spread"] for entry in seen)
    points = _along(seen, "spread")
    ends = {p["scheme"]: p for p in points if p["setting"]["spread"] == widest}
    starts = {p["scheme"]: p for p in points if p["setting"]["spread"] == DEFAULT["spread"]}
    starved = [s for s, p in ends.items() if p["shares"][-1] < 0.1 * starts[s]["shares"][-1]]
    kept = [s for s, p in ends.items() if p["shares"][-1] > 0.9 * starts[s]["shares"][-1]]
    least = min(ends, key=lambda scheme: ends[scheme]["bias_cosine"])
    noisiest = max(entry["setting"]["noise"] for entry in seen)
    noisy = {p["scheme"]: p for p in _along(seen, "noise") if p["setting"]["noise"] == noisiest}
    off = min(noisy, key=lambda scheme: noisy[scheme]["bias_cosine"])
    return caption(
        f"Gradient estimates of {len(ends)} schemes beside the exact gradient of the score, on chains: cosine of the "
        "mean estimate, signal to noise, and the part of the environment with the smallest rewards. "
        f"Median over {seen[0]['policies']} warm-started policies (seeds) with {seen[0]['n']} estimates each; bars go "
        "from the lowest to the highest policy.",
        f"At a spread of {widest:g} the share of the environment with the smallest rewards falls below a tenth of what "
        f"it was with {enumerate_names(starved)}, and keeps nine tenths with {enumerate_names(kept)}; the lowest "
        f"cosine there is {ends[least]['bias_cosine']:.2f} ({least}). With reward noise {noisiest:g} the lowest is "
        f"{noisy[off]['bias_cosine']:.2f} ({off}).",
        _numbers(seen),
        DRAW,
    )


def _along(seen: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """Return the entries in which only one setting differs from the default."""
    others = {key: value for key, value in DEFAULT.items() if key != name}
    return [entry for entry in seen if all(entry["setting"][key] == value for key, value in others.items())]


def _numbers(seen: Sequence[Mapping[str, Any]]) -> str:
    counts = f"--n {seen[0]['n']} --policies {seen[0]['policies']}"
    return f"python -m benchmarks.microscope {counts} --json results/microscope.json"


def _value(entry: Mapping[str, Any], quantity: str) -> float:
    return float(entry["shares"][-1] if quantity == "smallest" else entry[quantity])


def _panel(axis: Any, points: Sequence[Mapping[str, Any]], name: str, quantity: str, last: bool) -> None:
    ends = {}
    for scheme, colour in COLOURS.items():
        rows = sorted((p for p in points if p["scheme"] == scheme), key=lambda p: p["setting"][name])
        if not rows:
            continue
        x = np.array([row["setting"][name] for row in rows], dtype=float)
        y, low, high = (
            np.array([_value(found, quantity) for found in found_at])
            for found_at in (rows, [row["low"] for row in rows], [row["high"] for row in rows])
        )
        axis.errorbar(
            x, y, yerr=[y - low, high - y], color=colour, linewidth=1.4, elinewidth=0.7, marker="o", markersize=3,
            dashes=DASHES.get(scheme, (None, None)),
        )  # fmt: skip
        ends[scheme] = float(y[-1])
    if name == "spread":
        axis.set_xscale("log")
    if name == "group_size":
        axis.set_xscale("log", base=2)
        axis.set_xticks([2, 4, 8, 16, 32], ["2", "4", "8", "16", "32"])
    low, high = axis.get_ylim()
    if last:
        for scheme, height in spread_labels(ends, 0.075 * (high - low), low, high).items():
            axis.plot(
                [1.02, 1.075], [height, height], transform=axis.get_yaxis_transform(), clip_on=False,
                color=COLOURS[scheme], linewidth=1.4, dashes=DASHES.get(scheme, (None, None)),
            )  # fmt: skip
            axis.annotate(
                scheme, (1.09, height), xycoords=("axes fraction", "data"), fontsize=8, color=COLOURS[scheme],
                va="center", annotation_clip=False,
            )  # fmt: skip
        axis.set_ylim(low, high)
