"""The families at their defaults: how value comes in, turn by turn, and how their returns and depths differ.

    python -m plots families

Drawn from the environments themselves: a fixed set of test rollouts by the expert and by random legal messages.
"""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

import agentic_gym  # noqa: F401
from agentic_gym.registration import NAMESPACE
from benchmarks.rollouts import FloatArray, IntArray, Played, at_random, expert, make_engine, play
from plots.style import BLUE, GREY, SETTINGS, VERMILION, caption

ROLLOUTS = 2048
LINES = 32
"""Rollouts per policy that are drawn as lines."""
COLOURS = {"expert": BLUE, "random": VERMILION}
WORKLOADS = {
    "Reason": "answer a question that can be checked",
    "Search": "look facts up, answer a multi-hop question",
    "Household": "search a house, bring things to a place",
    "Shop": "find the one item that fits, and buy it",
    "Database": "repair a table; every query costs",
    "Repair": "repair a program; its tests may be wrong",
    "Desk": "research quotes for a fee, and trade them",
    "Report": "write for an audience, four qualities count",
    "Chain": "answer cues: the family for diagnosis",
}
"""What the agent does, in few words."""


def draw_families() -> Any:
    """Draw one panel per family: the value so far against the turn."""
    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(3, 3, figsize=(10.5, 9.6), layout="constrained")
        figure.get_layout_engine().set(rect=(0, 0, 1, 0.945), hspace=0.06)
        for axis, family in zip(axes.flat, WORKLOADS, strict=True):
            _course_panel(axis, family)
        for axis in axes[:, 0]:
            axis.set_ylabel("value so far")
        for axis in axes[2]:
            axis.set_xlabel("turn")
        figure.text(0.01, 0.978, "Nine families: what a rollout has earned, turn by turn", fontsize=12, weight="bold")
        _explain(figure, 0.957, f"{LINES} rollouts each of", "the expert", "random legal messages", "(dots are ends)")
    return figure


def draw_mismatch() -> Any:
    """Draw returns and depths of all families side by side."""
    order = sorted(WORKLOADS, key=lambda family: (np.ptp(_member(family).value_range), _member(family).turn_limit))
    with plt.rc_context(SETTINGS):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(10.5, 6.8), layout="constrained", sharey=True, width_ratios=(1.9, 1)
        )
        figure.get_layout_engine().set(rect=(0, 0, 1, 0.915), wspace=0.03)
        for height, family in enumerate(order):
            for policy, up in (("expert", 1), ("random", -1)):
                played = rollouts(family, policy)
                _hill(left, _symlog(played.value[played.valid]), RETURN_BINS, height, up, COLOURS[policy])
                _bars(right, played.turns[played.valid], height, up, COLOURS[policy])
            _write_means(left, family, height)
        _return_axis(left)
        _turn_axis(right)
        left.set_yticks(range(len(order)), order, weight="bold")
        left.set_ylim(-0.6, len(order) - 0.35)
        figure.text(0.01, 0.966, "Returns and depths differ between the families by nature", fontsize=12, weight="bold")
        count = f"in {ROLLOUTS} rollouts each"
        _explain(figure, 0.935, "Returns and turns of", "the expert (up)", "random legal messages (down)", count)
    return figure


def describe_families() -> str:
    """Return the caption of `draw_families`."""
    chance = {family: _success(family, "random") for family in WORKLOADS}
    luckiest = max(chance, key=lambda family: chance[family])
    weakest = min(_success(family, "expert") for family in WORKLOADS)
    return caption(
        f"What a rollout has earned against its turn, in the {len(WORKLOADS)} families at their defaults: {LINES} test "
        "rollouts each of the expert and of random legal messages (one fixed set; single rollouts, so no intervals).",
        f"Of {ROLLOUTS} rollouts each, random messages succeed most often in {luckiest} ({chance[luckiest]:.3f}); "
        f"the expert succeeds {'always' if weakest == 1 else f'in {weakest:.1%} or more'}.",
        "none; rollouts are played as the figure is drawn",
        "python -m plots families",
    )


def describe_mismatch() -> str:
    """Return the caption of `draw_mismatch`."""
    spread = {
        family: float(np.ptp(np.concatenate([_values(family, policy) for policy in COLOURS]))) for family in WORKLOADS
    }
    turns = {family: float(rollouts(family, "expert").turns.mean()) for family in WORKLOADS}
    wide, narrow = max(spread, key=lambda family: spread[family]), min(spread, key=lambda family: spread[family])
    deep, shallow = max(turns, key=lambda family: turns[family]), min(turns, key=lambda family: turns[family])
    return caption(
        f"Returns and turns of {ROLLOUTS} test rollouts per family and policy, families at their defaults; heights are "
        "roots of counts. Whole distributions of one fixed set of rollouts, so there are no seeds and no intervals.",
        f"Returns range over {spread[narrow]:.3g} in {narrow} and over {spread[wide]:.3g} in {wide}, a factor of "
        f"{spread[wide] / spread[narrow]:,.0f}; the expert's rollouts take {turns[shallow]:.1f} turns in {shallow} and "
        f"{turns[deep]:.1f} in {deep}.",
        "none; rollouts are played as the figure is drawn",
        "python -m plots mismatch",
    )


@functools.cache
def rollouts(family: str, policy: str) -> Played:
    """Play the first test prompts of a family at its defaults."""
    engine = make_engine(_id(family), ROLLOUTS)
    return play(engine, expert(engine) if policy == "expert" else at_random(engine))


def _success(family: str, policy: str) -> float:
    played = rollouts(family, policy)
    return float(played.success[played.valid].mean())


def _values(family: str, policy: str) -> FloatArray:
    played = rollouts(family, policy)
    return played.value[played.valid]


def example_messages(family: str, prompt: int = 0) -> list[str]:
    """Return the expert's messages on a test prompt."""
    env: Any = gymnasium.make(_id(family)).unwrapped
    env.reset(options={"prompt": prompt, "split": "test", "rollout": 0})
    messages, over = [], False
    while not over:
        message = env.expert_message()
        messages.append(env.grammar.text(message))
        _, _, terminated, truncated, _ = env.step(message)
        over = terminated or truncated
    return messages


def shorten(messages: list[str], width: int) -> str:
    """Join messages as far as there is room for them."""
    shown = ""
    for index, message in enumerate(messages):
        longer = f"{shown}  {message}" if shown else message
        if len(longer) > width - 4 * (index + 1 < len(messages)):
            return f"{shown} ..."
        shown = longer
    return shown


def _id(family: str) -> str:
    return f"{NAMESPACE}/{family}-v0"


def _member(family: str) -> Any:
    return make_engine(_id(family), 1).family


# The panel of one family.


def _course_panel(axis: Any, family: str) -> None:
    limit = _member(family).turn_limit
    for policy, colour in COLOURS.items():
        played = rollouts(family, policy)
        # A little to the right, so that one policy does not hide the other.
        shift = 0.012 * limit * (policy == "random")
        rows = np.flatnonzero(played.valid)[:LINES]
        for row, end in zip(rows, played.turns[rows], strict=True):
            course = played.course[: end + 1, row]
            axis.plot(np.arange(end + 1) + shift, course, color=colour, lw=0.8, alpha=0.4, drawstyle="steps-post")
        axis.plot(played.turns[rows] + shift, played.value[rows], "o", color=colour, ms=3.5, alpha=0.6, mew=0)
    axis.set_xlim(0, limit * 1.05)
    axis.xaxis.set_major_locator(MaxNLocator(min(limit, 6), integer=True))
    axis.set_title(f"{family}\n", pad=16)
    messages = shorten(example_messages(family), 50)
    for height, text, style in (
        (1.115, WORKLOADS[family], {"fontsize": 9}),
        (1.03, messages, {"fontsize": 7, "color": GREY, "family": "monospace"}),
    ):
        # Out of the layout: panels shall not shrink for a long line.
        axis.text(0, height, text, transform=axis.transAxes, in_layout=False, **style)


def _explain(figure: Any, height: float, before: str, first: str, second: str, after: str) -> None:
    """Write a line in which two policies have their colours."""
    words = ((before, GREY), (first, BLUE), ("and", GREY), (second, VERMILION), (after, GREY))
    renderer, x = figure.canvas.get_renderer(), 0.01
    for word, colour in words:
        text = figure.text(x, height, word, color=colour, fontsize=9.5, weight="bold" if colour != GREY else "normal")
        x += text.get_window_extent(renderer).width / figure.bbox.width + 0.007


# Hills: histograms on a line, upwards or downwards.

LINEAR = 1.0
"""Up to this value the axis of returns is linear, beyond it logarithmic."""


def _symlog(values: FloatArray) -> FloatArray:
    """Map values so that 0 to 1 is as long as 1 to 10."""
    size = np.abs(values)
    return np.sign(values) * np.where(size <= LINEAR, size / LINEAR, 1.0 + np.log10(np.maximum(size, LINEAR) / LINEAR))


RETURN_BINS = np.linspace(-4.05, 4.05, 82)


def _hill(axis: Any, values: FloatArray, bins: FloatArray, height: int, up: int, colour: str) -> None:
    """Draw a histogram; heights are roots, so that rare values are seen too, relative to the highest."""
    count = np.histogram(values, bins)[0]
    tops = height + up * 0.42 * np.sqrt(count / count.max())
    axis.stairs(tops, bins, baseline=height, fill=True, color=colour, lw=0)
    axis.axhline(height, color=GREY, lw=0.5)


def _bars(axis: Any, turns: IntArray, height: int, up: int, colour: str) -> None:
    """Draw a bar for every number of turns, as high as a hill would be."""
    lengths, count = np.unique(turns, return_counts=True)
    axis.bar(np.log2(lengths), up * 0.42 * np.sqrt(count / count.max()), 0.1, height, color=colour, lw=0)
    axis.axhline(height, color=GREY, lw=0.5)


def _write_means(axis: Any, family: str, height: int) -> None:
    """Write the means at the end of a family's line."""
    for policy, up in (("expert", 1), ("random", -1)):
        played = rollouts(family, policy)
        mean = played.value[played.valid].mean()
        axis.text(
            RETURN_BINS[-1] + 0.15, height + 0.16 * up, f"{mean:.3g}", color=COLOURS[policy], fontsize=8.5, va="center"
        )


def _return_axis(axis: Any) -> None:
    amounts = [-1000, -100, -10, -1, 0, 1, 10, 100, 1000]
    axis.set_xticks(_symlog(np.array(amounts, dtype=np.float64)), [f"{amount:g}" for amount in amounts])
    axis.set_xlim(RETURN_BINS[0], RETURN_BINS[-1] + 0.95)
    axis.set_xlabel("return (axis linear from -1 to 1, logarithmic beyond)")
    axis.text(RETURN_BINS[-1] + 0.15, len(WORKLOADS) - 0.45, "mean", color=GREY, fontsize=8.5, va="center")
    axis.grid(axis="x")
    axis.grid(visible=False, axis="y")
    axis.set_axisbelow(True)


def _turn_axis(axis: Any) -> None:
    turns = [1, 2, 4, 8, 16, 32]
    axis.set_xticks(np.log2(turns), [str(n) for n in turns])
    axis.set_xlim(-0.4, 5.4)
    axis.set_xlabel("turns of a rollout")
    axis.grid(axis="x")
    axis.grid(visible=False, axis="y")
    axis.set_axisbelow(True)
    axis.tick_params(left=False)
