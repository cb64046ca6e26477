"""Baseline, scale and whitening: one statistic per level of the hierarchy."""

from __future__ import annotations

import numpy as np

from algos.scheme import Scheme
from algos.segments import BoolArray, FloatArray, Segments, divide


def subtract_baseline(scheme: Scheme, signal: FloatArray, groups: Segments, counted: BoolArray) -> FloatArray:
    """Subtract the group's mean, or the mean of the other members, from each row (n,).

    Leave-one-out equals G / (G - 1) times the deviation from the mean (arXiv 2402.14740). Groups
    without spread give exact zeros. With ``singleton="raw"`` a group of one keeps its signal, as
    verl's ``grpo`` and ``rloo`` do.
    """
    weights = counted.astype(np.float64)
    size = groups.sum(weights)
    centred = signal - groups.mean(signal, weights)[groups.ids]
    if scheme.baseline_kind == "leave_one_out":
        centred = centred * divide(size, size - 1.0)[groups.ids]
    centred[groups.constant(signal, counted)[groups.ids]] = 0.0
    if scheme.baseline == "prompt" and scheme.singleton == "raw":
        alone = size[groups.ids] == 1
        centred[alone] = signal[alone]
    return np.where(counted, centred, 0.0)


def divide_by_spread(
    scheme: Scheme, advantage: FloatArray, signal: FloatArray, groups: Segments, counted: BoolArray
) -> FloatArray:
    """Divide rows (n,) by the spread of ``signal`` in their group; 0 where there is no spread.

    A group of one that kept its raw signal (``singleton="raw"``) is not divided by a prompt scale.
    """
    weights = counted.astype(np.float64)
    spread = groups.spread(signal, weights, scheme.ddof)[groups.ids]
    scaled = np.where(spread > 0, advantage / with_eps(scheme, spread), 0.0)
    if scheme.scale == "prompt" and scheme.singleton == "raw":
        alone = groups.sum(weights)[groups.ids] == 1
        scaled[alone] = advantage[alone]
    return scaled


def whiten(scheme: Scheme, advantage: FloatArray, groups: Segments, weights: FloatArray) -> FloatArray:
    """Shift and scale rows (n,) to weighted mean 0 and spread 1 within their group.

    A group without spread gives exact zeros, and so do rows of weight 0. With token weights the sum
    of squares is divided by the number of tokens less ``ddof``, as if every token were a row
    (verl's ``masked_whiten``; AgentRL, arXiv 2510.04206).
    """
    mean = groups.mean(advantage, weights)[groups.ids]
    spread = groups.spread(advantage, weights, scheme.ddof)[groups.ids]
    result = np.where(spread > 0, (advantage - mean) / with_eps(scheme, spread), 0.0)
    return np.where(weights > 0, result, 0.0)


def with_eps(scheme: Scheme, spread: FloatArray) -> FloatArray:
    """Add eps in the scheme's place; 1 where the result would be 0."""
    total = spread + scheme.eps if scheme.eps_placement == "outside" else np.sqrt(spread**2 + scheme.eps)
    return np.where(total > 0, total, 1.0)
