"""What all figures share: sizes, colours that colour-blind readers can tell apart, direct labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FIGURES = Path(__file__).parent / "figures"

# From the colour-blind safe palettes of Okabe and Ito (purple: Paul Tol).
BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#AA4499", "#5F6670"

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


def save(figure: Any, name: str) -> list[Path]:
    """Write the figure as PNG and SVG and return the files; equal data give equal files."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    paths = [FIGURES / f"{name}.png", FIGURES / f"{name}.svg"]
    with plt.rc_context(SETTINGS):
        figure.savefig(paths[0], dpi=150, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths
