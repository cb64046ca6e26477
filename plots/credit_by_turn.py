"""How large advantages are at each turn of the same rollouts, and whether summed gains grow with depth.

python -m benchmarks.credit --json results/credit.json
python -m plots credit_by_turn
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from plots.style import BLUE, COLOURS, GREEN, GREY, PURPLE, SETTINGS, VERMILION, caption, label_ends

LABELS = {
    "grpo": "grpo",
    "grpo:signal=return_to_go,gamma=1": "grpo, returns to go",
    "igpo": "igpo",
    "igpo:pool=turn,outcome_in_sum=false": "a2tgpo, plain sum",
    "a2tgpo": "a2tgpo",
    "gigpo": "gigpo",
}
LOOKS = {
    "grpo": (GREY, "-"),
    "grpo:signal=return_to_go,gamma=1": (COLOURS[4], "-"),
    "igpo": (PURPLE, "-"),
    "igpo:pool=turn,outcome_in_sum=false": (VERMILION, "-"),
    "a2tgpo": (BLUE, "-"),
    "gigpo": (GREEN, "-"),
}
ACCUMULATIONS = {
    "sum": ("plain sum", VERMILION),
    "root": ("over the root (a2tgpo)", BLUE),
    "none": ("own gain alone", GREY),
}
DRAW = "python -m plots credit_by_turn"


def draw(document: Mapping[str, Any]) -> Any:
    """Draw results/credit.json: credit by turn, and the gains' part by the number of gains."""
    with plt.rc_context(SETTINGS):
        figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 5.2))
        figure.subplots_adjust(left=0.06, right=0.87, top=0.8, bottom=0.17, wspace=0.52)
        _lines(left, document["by_turn"], {name: (LABELS[name], *LOOKS[name]) for name in LABELS})
        left.set_xlabel("turn of the rollout")
        left.set_ylabel("mean |advantage|")
        left.set_title("Whole advantage, by turn")
        _lines(right, document["by_gains"], {name: (*entry, "-") for name, entry in ACCUMULATIONS.items()}, root=True)
        right.set_xlabel("information gains that the turn's credit adds up")
        right.set_ylabel("mean |part of the gains|")
        right.set_title("The gains' part alone, by the number of gains")
        figure.text(0.01, 0.94, "Does summed turn credit grow with depth?", fontsize=12, weight="bold")
        figure.text(
            0.01, 0.895,
            f"{document['environment'].split('/')[-1]}, warm-started policy (success {document['success']:.2f}), "
            f"{document['n']} batches of {document['rollouts']} rollouts, the same for all schemes; bands are 95 % "
            "bootstrap intervals over batches",
            fontsize=9, color=GREY,
        )  # fmt: skip
        figure.text(0.01, 0.02, f"{_numbers(document)}; {DRAW}", color=GREY, fontsize=8, family="monospace")
    return figure


def describe(document: Mapping[str, Any]) -> str:
    """Return the caption of `draw`."""
    gains = {entry["name"]: entry for entry in document["by_gains"]}
    turns = {entry["name"]: entry for entry in document["by_turn"]}
    own = "; ".join(
        f"{LABELS[name]} {turns[name]['mean'][0]:.2f} and {turns[name]['mean'][-1]:.2f}"
        for name in turns
        if name in LABELS
    )
    last = turns["grpo"]["x"][-1]
    return caption(
        f"Mean absolute advantage by turn (left) and the part of it that comes from information gains, by the number "
        f"of gains added up (right), on {document['environment']}: {document['n']} batches of {document['rollouts']} "
        f"rollouts ({document['group_size']} per prompt) of one warm-started policy (success "
        f"{document['success']:.2f}, seed {document['seed']}), the same rollouts for all schemes, 95 % bootstrap "
        "intervals over batches. Late turns are those of long rollouts only. Gains are z-scored among the prompt's "
        "turns of equal index; a2tgpo, plain sum is a2tgpo with accumulation=sum. Dashed: "
        "what independent gains of equal size would add up to.",
        f"{_growth('A plain sum', gains['sum'])} {_growth('Divided by the root of the number it', gains['root'])} "
        f"From one gain to two the root changes the part from {gains['root']['mean'][0]:.2f} to "
        f"{gains['root']['mean'][1]:.2f}. Whole advantages at turns 1 and {last}: {own}.",
        _numbers(document),
        DRAW,
    )


def _growth(what: str, entry: Mapping[str, Any]) -> str:
    """Compare the last with the second count: a single gain is special, for the answer follows it."""
    first, last = entry["mean"][1], entry["mean"][-1]
    low, high = (entry[bound][-1] for bound in ("low", "high"))
    verdict = "grows" if low > entry["high"][1] else "shrinks" if high < entry["low"][1] else "stays level"
    return (
        f"{what} {verdict}: from {first:.2f} with {entry['x'][1]} gains to {last:.2f} ({low:.2f} to {high:.2f}) with "
        f"{entry['x'][-1]}, a factor of {last / first:.2f}."
    )


def _lines(
    axis: Any, curves: Sequence[Mapping[str, Any]], look: Mapping[str, tuple[str, str, Any]], root: bool = False
) -> None:
    ends, colours = {}, {}
    for entry in curves:
        label, colour, dashes = look[entry["name"]]
        axis.fill_between(entry["x"], entry["low"], entry["high"], color=colour, alpha=0.2, linewidth=0)
        axis.plot(entry["x"], entry["mean"], color=colour, linestyle=dashes, marker="o", markersize=3, linewidth=1.5)
        ends[label], colours[label] = (float(entry["x"][-1]), float(entry["mean"][-1])), colour
    last = max(x for x, _ in ends.values())
    if root:
        # What independent gains of equal size would add up to.
        start = next(entry for entry in curves if entry["name"] == "none")["mean"][0]
        counts = np.linspace(1, last, 100)
        axis.plot(counts, start * np.sqrt(counts), color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
        ends["sum, if independent"] = (float(last), float(start * np.sqrt(last)))
        colours["sum, if independent"] = GREY
    axis.set_ylim(0, None)
    axis.set_xlim(0.7, last + 0.2)
    axis.set_xticks(range(1, int(last) + 1))
    label_ends(axis, ends, colours, last + 0.6, size=8)


def _numbers(document: Mapping[str, Any]) -> str:
    return f"{document['command']} --json results/credit.json"
