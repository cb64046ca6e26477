"""Whether what the microscope sees of a gradient estimate predicts the learning curves.

Three predictions, one per axis of the microscope. Each pairs, by scheme and by value of the axis, what the microscope
saw there with how an experiment's score changed from the axis's base value, paired by seed. Pairs of one scheme depend
on each other, so intervals of the rank correlation come from leaving whole schemes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.aggregate import change, run_scores
from benchmarks.experiment import Experiment
from benchmarks.readme import SMALLEST
from benchmarks.statistics import Interval, spearman, spearman_interval

Entry = Mapping[str, Any]
"""A scheme in a setting, as ``microscope.summarise`` returns it."""
BASE: Mapping[str, float] = {"spread": 1.0, "group_size": 8, "noise": 0.0}
"""The setting from which the microscope moves one axis at a time."""


FEWEST = 3
"""Schemes that differ; with fewer nothing is said."""


@dataclass(frozen=True)
class Prediction:
    """What of a gradient estimate is set beside what of a learning curve.

    Attributes:
        axis: Field of ``microscope.Setting`` that changes.
        experiment: Name of the experiment that changes the same.
        quantity: What is seen, in words.
        seen: Its value, from the entry at a value of the axis and the entry of the same scheme at the base.
        score: Column of scores whose change is predicted.
        learned: What that is, in words.
    """

    axis: str
    experiment: str
    quantity: str
    seen: Callable[[Entry, Entry], float]
    score: str
    learned: str


@dataclass(frozen=True)
class Pair:
    """One scheme at one value of the axis: what was seen, and what was learned.

    Attributes:
        scheme: Its name.
        value: Of the axis.
        seen: What the microscope saw.
        change: Of the score from the base value of the axis, with its 95 % interval.
    """

    scheme: str
    value: float
    seen: float
    change: Interval


def _share(entry: Entry, base: Entry) -> float:
    return float(entry["shares"][-1])


def _cosine_kept(entry: Entry, base: Entry) -> float:
    return float(entry["cosine"] / base["cosine"])


PREDICTIONS = (
    Prediction(
        "spread", "scale_mismatch", "share of the gradient of the environment with the smallest rewards", _share,
        SMALLEST, "change of the score in the environment with the smallest rewards from spread 1",
    ),
    Prediction(
        "noise", "noise", "cosine of one estimate with the exact gradient, in units of that without noise",
        _cosine_kept, "mean", "change of the score from no noise",
    ),
    Prediction(
        "group_size", "small_groups", "cosine of one estimate with the exact gradient, in units of that in groups of 8",
        _cosine_kept, "mean", "change of the score from groups of 8",
    ),
)  # fmt: skip


def pairs(prediction: Prediction, experiment: Experiment, table: pa.Table, seen: Sequence[Entry]) -> list[Pair]:
    """Pair what the microscope saw with what was learned.

    Args:
        prediction: Which.
        experiment: Of that name.
        table: Its rows, of the chosen learning rates.
        seen: All entries of the microscope.

    Returns:
        By value of the axis, then from the largest quantity to the smallest.
    """
    along = {
        (entry["scheme"], float(entry["setting"][prediction.axis])): entry
        for entry in seen
        if all(entry["setting"][name] == value for name, value in BASE.items() if name != prediction.axis)
    }
    start = float(BASE[prediction.axis])
    regimes = {regime.axis_value: regime.name for regime in experiment.regimes}
    scores = run_scores(table)
    found = []
    for (scheme, value), entry in along.items():
        base = along.get((scheme, start))
        if value == start or value not in regimes or base is None or base["cosine"] == 0.0:
            continue
        moved = change(scores, regimes[value], regimes[start]).get(scheme)
        if moved is not None:
            quantity = prediction.seen(entry, base)
            found.append(Pair(scheme, value, quantity, moved[prediction.score]))
    return sorted(found, key=lambda pair: (pair.value, -round(pair.seen, 12), pair.scheme))


def kinds(found: Sequence[Pair]) -> list[int]:
    """Number the schemes; those that learned the same at every value (on one environment some are the same) alike."""
    learned: dict[str, tuple[float, ...]] = {}
    for pair in found:
        learned[pair.scheme] = (*learned.get(pair.scheme, ()), pair.change.estimate)
    different = list(dict.fromkeys(learned.values()))
    return [different.index(learned[pair.scheme]) for pair in found]


def agreement(found: Sequence[Pair]) -> Interval:
    """Rank correlation of what was seen with what was learned; its interval from leaving schemes out."""
    seen, changes = zip(*((pair.seen, pair.change.estimate) for pair in found), strict=True)
    low, high = spearman_interval(seen, changes, kinds(found))
    return Interval(spearman(seen, changes), low, high)


def _sides(found: Sequence[Pair]) -> list[list[float]]:
    return [[pair.seen for pair in found], [pair.change.estimate for pair in found], [pair.value for pair in found]]


def agreement_of_axis(found: Sequence[Pair]) -> float:
    """Rank correlation of the axis's value alone with what was learned: what one knows without a microscope."""
    return spearman([pair.value for pair in found], [pair.change.estimate for pair in found])


def agreement_among_schemes(found: Sequence[Pair]) -> float:
    """Mean over the axis's values of the rank correlation over the schemes at one value; NaN if none has a spread."""
    rhos = []
    for value in dict.fromkeys(pair.value for pair in found):
        here = [pair for pair in found if pair.value == value]
        seen, changes = [pair.seen for pair in here], [pair.change.estimate for pair in here]
        if np.ptp(seen) > 0 and np.ptp(changes) > 0:
            rhos.append(spearman(seen, changes))
    return float(np.mean(rhos)) if rhos else math.nan


def section(stored: Mapping[str, tuple[Experiment, pa.Table]], seen: Sequence[Entry], command: str) -> list[str]:
    """Return the report's part about all predictions whose runs are there."""
    tables, summary, used = [], [], []
    for prediction in PREDICTIONS:
        if prediction.experiment not in stored:
            continue
        found = pairs(prediction, *stored[prediction.experiment], seen)
        if len(set(kinds(found))) < FEWEST or any(np.ptp(side) == 0 for side in _sides(found)):
            continue
        rho = agreement(found)
        used.append(prediction.experiment)
        summary.append(
            f"| {prediction.axis.replace('_', ' ')} | {prediction.quantity} | {prediction.learned} "
            f"(`{prediction.experiment}`) | {len(found)} of {len({pair.scheme for pair in found})} schemes | "
            f"{rho.estimate:+.2f} [{rho.low:+.2f}, {rho.high:+.2f}] | {agreement_of_axis(found):+.2f} | "
            f"{agreement_among_schemes(found):+.2f} |"
        )
        tables += [
            f"{prediction.axis.replace('_', ' ').capitalize()}: {prediction.quantity}, beside the "
            f"{prediction.learned}.",
            "",
            f"| scheme | {prediction.axis.replace('_', ' ')} | seen | change of the score [95 %] |",
            "| --- | ---: | ---: | ---: |",
            *(
                f"| `{pair.scheme}` | {pair.value:g} | {pair.seen:.3f} | {pair.change.estimate:+.3f} "
                f"[{pair.change.low:+.3f}, {pair.change.high:+.3f}] |"
                for pair in found
            ),
            "",
        ]
    if not summary:
        return []
    return [
        "## Does the microscope predict the learning curves?",
        "",
        "The microscope compares each scheme's estimates with an exact gradient, on chains, at the start of training. "
        "The experiments train other policies, on other environments or other chains, to the end. Rank correlations "
        "(Spearman) are over pairs of scheme and value of the axis; the interval comes from leaving whole schemes out, "
        "because pairs of one scheme depend on each other (jackknife; schemes that are the same on one environment "
        "count as one). Beside it: the rank correlation of the axis's value alone, which needs no microscope, and the "
        "mean of the correlations over the schemes at one value, which is about the choice of a scheme.",
        "",
        "| axis | the microscope sees | beside | pairs | rank correlation [95 %] | axis alone | among schemes |",
        "| --- | --- | --- | --- | ---: | ---: | ---: |",
        *summary,
        "",
        *tables,
        *_errors(seen),
        f"`{command} --json results/microscope.json`, "
        + ", ".join(f"`python -m benchmarks run {name}`" for name in used),
        "",
    ]


def _ends(axis: str, values: Sequence[float]) -> tuple[float, ...]:
    """What of an axis is shown: its ends, and of group sizes also 8, at which the others are swept."""
    return (values[0], 8, values[-1]) if axis == "group_size" else (values[0], values[-1])


def _errors(seen: Sequence[Entry]) -> list[str]:
    """Bias and variance of the estimates at the ends of the three axes."""
    axes = ("spread", "group_size", "noise")
    values = {axis: sorted({entry["setting"][axis] for entry in seen}) for axis in axes}
    ends = [entry for entry in seen if all(entry["setting"][axis] in _ends(axis, values[axis]) for axis in axes)]
    return [
        "Median over base policies of the estimates' error, in units of the length of the exact gradient's part in "
        "them: the norm of the bias, and the mean squared deviation of one estimate from their mean.",
        "",
        "| spread | group size | noise | scheme | bias | variance | cosine of one estimate | signal to noise |",
        "| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
        *(
            f"| {' | '.join(format(entry['setting'][axis], 'g') for axis in axes)} | `{entry['scheme']}` | "
            f"{entry['bias']:.2f} | {entry['variance']:.1f} | "
            f"{entry['cosine']:.2f} | {entry['signal_to_noise']:.2f} |"
            for entry in sorted(ends, key=lambda e: (*(e["setting"][axis] for axis in axes), e["bias"]))
        ),
        "",
    ]
