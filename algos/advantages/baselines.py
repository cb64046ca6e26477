"""Baselines: what is subtracted from a row's signal, computed over the row's group.

Every function takes (scheme, values (n,), groups, table) and returns the values less their
baseline, (n,). Rows that are not counted may hold anything, and enter no statistic. The tag
``own_range`` says that the baseline lies between the group's smallest and largest value, so that
groups without spread get exact zeros; ``outside``, that it is not made of the group's values, so
that a group of one is nothing special.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from algos.advantages.table import Table, finite
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import RELATIVE_TOLERANCE, BoolArray, FloatArray, Segments, difference, divide


@part("baseline_kind", "mean", source="GRPO, arXiv 2402.03300; SEEN-CODE", tags=["own_range"])
def mean(scheme: Scheme, values: FloatArray, groups: Segments, table: Table) -> FloatArray:
    """Subtract the group's mean."""
    return groups.deviations(values, table.counted.astype(float))


@part("baseline_kind", "leave_one_out", source="RLOO, arXiv 2402.14740; SEEN-CODE", tags=["own_range"])
def leave_one_out(scheme: Scheme, values: FloatArray, groups: Segments, table: Table) -> FloatArray:
    """Subtract the mean of the other members: G / (G - 1) times the deviation from the mean."""
    size = table.among(groups, table.counted)
    return mean(scheme, values, groups, table) * divide(size, size - 1.0)


@part("baseline_kind", "median", source="MC-GRPO, arXiv 2601.22582; SEEN-CODE", tags=["own_range"])
def median(
    scheme: Scheme,
    values: FloatArray,
    groups: Segments,
    table: Table,
    *,
    middle: Literal["lower", "average"] = "lower",
) -> FloatArray:
    """Subtract the group's median; of an even number the lower middle one (as torch), or the average."""
    return difference(values, medians(values, groups, table.counted, middle)[groups.ids])


@part("baseline_kind", "length_weighted", source="OPO, arXiv 2505.23585; SEEN-CODE (verl)", tags=["own_range"])
def length_weighted(scheme: Scheme, values: FloatArray, groups: Segments, table: Table) -> FloatArray:
    """Subtract the group's mean weighted by tokens: the baseline of least variance if gradients grow so.

    A group without any token in the loss has its plain mean.
    """
    weight = table.tokens * table.counted
    without = groups.sum(weight)[groups.ids] == 0
    return difference(values, groups.mean(values, np.where(without, table.counted, weight))[groups.ids])


@part(
    "baseline_kind", "greedy", source="ReMax, arXiv 2310.10505; SEEN-CODE (verl)", needs=["greedy_return"],
    tags=["outside"],
)  # fmt: skip
def greedy(scheme: Scheme, values: FloatArray, groups: Segments, table: Table) -> FloatArray:
    """Subtract the return of the greedy rollout of the same prompt."""
    batch = table.batch
    baseline = finite("greedy_return", np.where(batch.counted, batch.column("greedy_return"), 0.0))
    return values - (baseline[batch.turn_rollout] if table.per_turn else baseline)


@part("baseline_kind", "second_best", source="pass@k GRPO, arXiv 2503.19595; SEEN-CODE (verl)", tags=["own_range"])
def second_best(scheme: Scheme, values: FloatArray, groups: Segments, table: Table) -> FloatArray:
    """Give only the group's best row a signal: its lead over the second best; a tie at the top gives 0."""
    lead = np.zeros(len(values))
    for _, rows in groups.matrices(table.counted):
        if rows.shape[1] > 1:
            ranked = np.sort(values[rows], axis=1)
            best = rows[np.arange(len(rows)), values[rows].argmax(axis=1)]
            lead[best] = ranked[:, -1] - ranked[:, -2]
    return lead


@part(
    "baseline_kind", "dense_window", source="GAPO (robust), arXiv 2510.21830; SEEN-CODE", tags=["own_range"],
    ranges={"share": (0.0, 1.0)},
)  # fmt: skip
def dense_window(
    scheme: Scheme,
    values: FloatArray,
    groups: Segments,
    table: Table,
    *,
    share: float = 0.5,
    centre: Literal["median", "mean"] = "median",
) -> FloatArray:
    """Subtract the middle of the narrowest window that holds ``share`` of the group's sorted values."""
    baseline = np.zeros(groups.size)
    for segments, rows in groups.matrices(table.counted):
        ranked, size = np.sort(values[rows], axis=1), rows.shape[1]
        width = max(int(np.ceil(share * size)), 1)
        spans = ranked[:, width - 1 :] - ranked[:, : size - width + 1]
        # The first of equally narrow ones, whatever rounding says.
        rounding = RELATIVE_TOLERANCE * np.abs(ranked).max(axis=1, keepdims=True)
        first = (spans <= spans.min(axis=1, keepdims=True) + rounding).argmax(axis=1)
        window = ranked[np.arange(len(rows))[:, None], first[:, None] + np.arange(width)]
        baseline[segments] = np.median(window, axis=1) if centre == "median" else window.mean(axis=1)
    return difference(values, baseline[groups.ids])


@part("baseline_kind", "virtual_best", source="NGRPO, arXiv 2509.18851; SEEN-CODE")
def virtual_best(
    scheme: Scheme, values: FloatArray, groups: Segments, table: Table, *, virtual_reward: float = 1.0
) -> FloatArray:
    """Subtract the mean of the group and of one more, virtual, row with the best reward.

    Groups whose rows all failed get a negative signal; those that hold the best reward are shrunk.
    """
    counted = table.counted.astype(float)
    size = groups.sum(counted)
    baseline = (groups.sum(np.where(table.counted, values, 0.0)) + virtual_reward) / (size + 1.0)
    return difference(values, baseline[groups.ids])


@part(
    "baseline_kind", "optimal_value",
    source="A2PO as in TRL's experimental trainers; SEEN-NOTE; the group stands in for the reference: INFERRED",
    tags=["own_range"], ranges={"beta": (1e-9, np.inf)},
)  # fmt: skip
def optimal_value(
    scheme: Scheme, values: FloatArray, groups: Segments, table: Table, *, beta: float = 0.5
) -> FloatArray:
    """Subtract beta log mean exp(r / beta): the value of the best policy near the one that wrote."""
    counted = table.counted.astype(float)
    top = np.full(groups.size, -np.inf)
    np.maximum.at(top, groups.ids[table.counted], values[table.counted])
    top = np.where(np.isfinite(top), top, 0.0)
    excess = np.exp(np.where(table.counted, (values - top[groups.ids]) / beta, -np.inf))
    average = np.maximum(groups.mean(excess, counted), np.finfo(float).tiny)
    return values - (top + beta * np.log(average))[groups.ids]


@part(
    "baseline_kind", "kalman", source="KRPO, arXiv 2505.07527; SEEN-CODE",
    ranges={"process_noise": (0.0, np.inf), "measurement_noise": (1e-12, np.inf)},
)  # fmt: skip
def kalman(
    scheme: Scheme,
    values: FloatArray,
    groups: Segments,
    table: Table,
    *,
    process_noise: float = 1e-5,
    measurement_noise: float = 1e-2,
) -> FloatArray:
    """Subtract a scalar Kalman filter's estimate that already holds the row, started anew per group.

    The result depends on the order of the rows in the batch.
    """
    result = np.zeros(len(values))
    for _, rows in groups.matrices(table.counted):
        estimate = np.zeros(len(rows))
        gains, _ = kalman_gains(rows.shape[1], process_noise, measurement_noise)
        for column, gain in zip(rows.T, gains, strict=True):
            estimate += gain * (values[column] - estimate)
            result[column] = values[column] - estimate
    return result


def kalman_gains(n: int, process_noise: float, measurement_noise: float) -> tuple[FloatArray, FloatArray]:
    """Return the filter's gain and variance after each of n measurements; they do not depend on the data."""
    gains, variances = np.zeros(n), np.zeros(n)
    variance = 1.0
    for step in range(n):
        prior = variance + process_noise
        gains[step] = prior / (prior + measurement_noise)
        variance = (1.0 - gains[step]) * prior
        variances[step] = variance
    return gains, variances


def medians(
    values: FloatArray, groups: Segments, counted: BoolArray, middle: Literal["lower", "average"]
) -> FloatArray:
    """Return the median of each group, (size,)."""
    result = np.zeros(groups.size)
    for segments, rows in groups.matrices(counted):
        ranked, size = np.sort(values[rows], axis=1), rows.shape[1]
        low, high = ranked[:, (size - 1) // 2], ranked[:, size // 2]
        result[segments] = low if middle == "lower" else (low + high) / 2
    return result
