"""Scales: what a row's advantage is divided by, computed over the row's group.

Every function takes (scheme, advantage (n,), signal (n,), groups, table), where ``advantage`` is
the signal less its baseline, and returns the divisor (n,) with eps where it belongs. A divisor of 0
makes the advantage 0.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from algos.advantages.baselines import kalman_gains, medians
from algos.advantages.table import Table
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import RELATIVE_TOLERANCE, FloatArray, Segments, divide

SPREAD = ("ddof", "eps", "eps_placement")
"""Fields that the spreads read."""


@part("scale_kind", "std", source="GRPO, arXiv 2402.03300; SEEN-CODE", uses=SPREAD)
def std(scheme: Scheme, advantage: FloatArray, signal: FloatArray, groups: Segments, table: Table) -> FloatArray:
    """The standard deviation of the raw signal."""
    return with_eps(scheme, groups.spread(signal, table.counted.astype(float), scheme.ddof))[groups.ids]


@part("scale_kind", "centred_std", source="REINFORCE++-baseline, arXiv 2501.03262; INFERRED for levels", uses=SPREAD)
def centred_std(
    scheme: Scheme, advantage: FloatArray, signal: FloatArray, groups: Segments, table: Table
) -> FloatArray:
    """The standard deviation of the signal less its baseline."""
    return std(scheme, advantage, advantage, groups, table)


@part("scale_kind", "about_baseline", source="GAPO (robust), arXiv 2510.21830; SEEN-CODE", uses=SPREAD)
def about_baseline(
    scheme: Scheme, advantage: FloatArray, signal: FloatArray, groups: Segments, table: Table
) -> FloatArray:
    """The root mean square deviation from the baseline, whatever that is."""
    return with_eps(scheme, groups.root_mean_square(advantage, table.counted.astype(float), scheme.ddof))[groups.ids]


@part("scale_kind", "leave_one_out", source="NeMo-RL's grpo; SEEN-CODE", uses=SPREAD)
def leave_one_out(
    scheme: Scheme, advantage: FloatArray, signal: FloatArray, groups: Segments, table: Table
) -> FloatArray:
    """The standard deviation of the other members; where that is 0 the advantage stays undivided."""
    spread = np.zeros(len(signal))
    for _, rows in groups.matrices(table.counted):
        for place in range(rows.shape[1]):
            others = np.delete(signal[rows], place, axis=1)
            spread[rows[:, place]] = _spread_of_rows(others, scheme.ddof)
    return np.where(spread > 0, with_eps(scheme, spread), 1.0)


def _spread_of_rows(values: FloatArray, ddof: int) -> FloatArray:
    """Return the standard deviation of each row (g,) of a matrix (g, s); see ``Segments.spread``."""
    if values.shape[1] <= ddof:
        return np.zeros(len(values))
    centred = values - values.mean(axis=1, keepdims=True)
    centred[np.abs(centred) <= RELATIVE_TOLERANCE * np.abs(values).max(axis=1, keepdims=True)] = 0.0
    return np.sqrt((centred**2).sum(axis=1) / (values.shape[1] - ddof))


@part("scale_kind", "mad", source="MC-GRPO, arXiv 2601.22582; SEEN-CODE", uses=["eps"])
def mad(
    scheme: Scheme,
    advantage: FloatArray,
    signal: FloatArray,
    groups: Segments,
    table: Table,
    *,
    middle: Literal["lower", "average"] = "lower",
) -> FloatArray:
    """The median absolute deviation from the baseline, plus eps, also where it is 0."""
    return (medians(np.abs(advantage), groups, table.counted, middle) + scheme.eps)[groups.ids]


@part("scale_kind", "mean", source="MaxRL, arXiv 2602.02710; SEEN-CODE (prime-rl, SkyRL)", uses=["eps"])
def mean(scheme: Scheme, advantage: FloatArray, signal: FloatArray, groups: Segments, table: Table) -> FloatArray:
    """The group's mean signal, which weights hard prompts up; a mean of 0 or less gives 0."""
    average = _mean(signal, groups, table)
    return np.where(average > 0, average + scheme.eps, 0.0)[groups.ids]


@part("scale_kind", "certainty", source="MAPO, arXiv 2509.18849; SEEN-CODE", uses=SPREAD)
def certainty(scheme: Scheme, advantage: FloatArray, signal: FloatArray, groups: Segments, table: Table) -> FloatArray:
    """Between the spread (success rate near one half) and the mean (near 0 or 1).

    With the share p of signals that equal 1, and c = 4 p (1 - p), the advantage is c times the one
    divided by the spread plus 1 - c times the one divided by the mean. The formula is for rewards of
    0 and 1. In a group with a negative signal the mean may be next to 0, or flip the sign of the
    advantage: there the second part is left out (INFERRED).
    """
    counted = table.counted.astype(float)
    p = groups.mean((signal == 1.0).astype(float), counted)
    c = 4.0 * p * (1.0 - p)
    spread = with_eps(scheme, groups.spread(signal, counted, scheme.ddof))
    average = _mean(signal, groups, table)
    negative = groups.sum(counted * (signal < 0)) > 0
    inverse = divide(c, spread) + divide(1.0 - c, np.where(negative | (average == 0), 0.0, average + scheme.eps))
    return divide(np.ones(groups.size), inverse)[groups.ids]


@part("scale_kind", "virtual_best", source="NGRPO, arXiv 2509.18851; SEEN-CODE", uses=SPREAD)
def virtual_best(
    scheme: Scheme,
    advantage: FloatArray,
    signal: FloatArray,
    groups: Segments,
    table: Table,
    *,
    virtual_reward: float = 1.0,
) -> FloatArray:
    """The standard deviation of the group and of one more, virtual, row with the best reward."""
    counted = np.append(table.counted.astype(float), np.ones(groups.size))
    extended = Segments(np.append(groups.ids, np.arange(groups.size)), groups.size)
    values = np.append(signal, np.full(groups.size, virtual_reward))
    return with_eps(scheme, extended.spread(values, counted, scheme.ddof))[groups.ids]


@part(
    "scale_kind", "kalman", source="KRPO, arXiv 2505.07527; SEEN-CODE", uses=["eps"],
    ranges={"process_noise": (0.0, np.inf), "measurement_noise": (1e-12, np.inf)},
)  # fmt: skip
def kalman(
    scheme: Scheme,
    advantage: FloatArray,
    signal: FloatArray,
    groups: Segments,
    table: Table,
    *,
    process_noise: float = 1e-5,
    measurement_noise: float = 1e-2,
) -> FloatArray:
    """The root of the filter's variance after the row, plus eps; see the baseline of that name."""
    divisor = np.zeros(len(signal))
    for _, rows in groups.matrices(table.counted):
        _, variances = kalman_gains(rows.shape[1], process_noise, measurement_noise)
        divisor[rows] = np.sqrt(variances) + scheme.eps
    return divisor


def _mean(signal: FloatArray, groups: Segments, table: Table) -> FloatArray:
    """Return the mean of each group, (size,); 0 where it is rounding of values that cancel."""
    average = groups.mean(signal, table.counted.astype(float))
    largest = groups.largest(np.where(table.counted, signal, 0.0))
    return np.where(np.abs(average) <= RELATIVE_TOLERANCE * largest, 0.0, average)


def z_score(scheme: Scheme, values: FloatArray, groups: Segments, weights: FloatArray) -> FloatArray:
    """Return (n,) values less their group's weighted mean over its spread; 0 without spread or weight."""
    centred = groups.deviations(values, weights)
    return divide(centred, with_eps(scheme, groups.root_mean_square(centred, weights, scheme.ddof))[groups.ids])


def with_eps(scheme: Scheme, spread: FloatArray) -> FloatArray:
    """Add eps in the scheme's place; a spread of 0 stays 0."""
    total = spread + scheme.eps if scheme.eps_placement == "outside" else np.sqrt(spread**2 + scheme.eps)
    return np.where(spread > 0, total, 0.0)
