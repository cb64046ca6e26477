"""The scoreboard of claims as a forest plot: effect and interval of every claim, by verdict.

python -m plots claims
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt

from plots.style import BLUE, GREY, SETTINGS, VERMILION, caption, enumerate_names

COLOURS = {"replicates": BLUE, "contradicted": VERMILION, "inconclusive": GREY}
MARKERS = {"replicates": "o", "contradicted": "s", "inconclusive": "D"}
ROW = 0.235
NUMBERS = "python -m benchmarks claims; python -m benchmarks scoreboard --write"
DRAW = "python -m plots claims"


def draw(entries: Sequence[Mapping[str, Any]]) -> Any:
    """Draw the entries of results/claims.json.

    Effects are turned so that the right is what the claim predicts, and divided by the control's
    mean where the metric is not a score, so that they share an axis.
    """
    rows = sorted(
        (_row(entry) for entry in entries), key=lambda row: (list(COLOURS).index(row["verdict"]), -row["effect"])
    )
    counts = Counter(row["verdict"] for row in rows)
    height = ROW * len(rows) + 1.76
    with plt.rc_context({**SETTINGS, "axes.grid.axis": "x"}):
        figure, axis = plt.subplots(figsize=(10.5, height))
        figure.subplots_adjust(left=0.31, right=0.76, top=1 - 0.85 / height, bottom=0.78 / height)
        for y, row in enumerate(rows):
            colour = COLOURS[row["verdict"]]
            axis.plot([row["low"], row["high"]], [y, y], color=colour, linewidth=1.6)
            axis.plot(
                row["effect"], y, MARKERS[row["verdict"]], color=colour, markersize=5,
                markerfacecolor=colour if row["robust"] == "yes" else "white",
            )  # fmt: skip
            axis.text(
                1.01, y, row["where"], transform=axis.get_yaxis_transform(), fontsize=7.5, va="center", color=GREY
            )
        axis.set_yticks(range(len(rows)), [row["key"] for row in rows], fontsize=8)
        for label, row in zip(axis.get_yticklabels(), rows, strict=True):
            label.set_color(COLOURS[row["verdict"]])
        axis.invert_yaxis()
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.axvline(0.0, color="black", linewidth=0.8)
        axis.set_xlabel(
            "paired difference in the predicted direction (score; * relative to the control), 95 % interval"
        )
        axis.spines["left"].set_visible(False)
        axis.tick_params(axis="y", length=0)
        figure.text(0.01, 1 - 0.25 / height, "Do the published claims replicate here?", fontsize=12, weight="bold")
        x = 0.01
        for name, colour in COLOURS.items():
            text = f"{counts[name]} {name if name != 'replicates' else 'replicate'}"
            figure.text(x, 1 - 0.5 / height, text, fontsize=9.5, weight="bold", color=colour)
            x += 0.0105 * len(text) + 0.015
        figure.text(x, 1 - 0.5 / height, "filled: robust to learning rate and network size", fontsize=8.5, color=GREY)
        figure.text(0.01, 0.12 / height, f"{NUMBERS}; {DRAW}", color=GREY, fontsize=8, family="monospace")
    return figure


def describe(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the caption of `draw`."""
    rows = [_row(entry) for entry in entries]
    seeds = " to ".join(map(str, sorted({pick(entry["seeds"] for entry in entries) for pick in (min, max)})))
    keys = {verdict: sorted(row["key"] for row in rows if row["verdict"] == verdict) for verdict in COLOURS}
    robust = sum(row["robust"] == "yes" for row in rows if row["verdict"] == "replicates")
    return caption(
        f"Paired difference between treatment and control of {len(rows)} published claims, turned so that the right is "
        f"what the claim predicts, with 95 % intervals over {seeds} paired seeds; "
        "colour and marker are the verdict, filled markers are "
        "robust to learning rate and network size.",
        f"{len(keys['replicates'])} replicate ({robust} of them robust), {len(keys['contradicted'])} are contradicted "
        f"({enumerate_names(keys['contradicted'])}), {len(keys['inconclusive'])} are inconclusive.",
        NUMBERS,
        DRAW,
    )


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    score = entry["metric"].startswith("score")
    unit = 1.0 if score else max(abs(entry["control_mean"]), 1e-12)
    turned = entry["predicted"] == "less"
    low, high = (
        entry[name] / unit * (-1 if turned else 1) for name in (("high", "low") if turned else ("low", "high"))
    )
    where = f"{entry['regime']}, {entry['metric']}" + ("" if score else " *") + f", n = {entry['seeds']}"
    if entry["predicted"] == "equal":
        where += ", equal"
    return {
        "key": entry["key"], "verdict": entry["verdict"], "robust": entry["robust"], "low": low, "high": high,
        "effect": entry["effect"] / unit * (-1 if turned else 1), "where": where,
    }  # fmt: skip
