"""Baseline, scale and whitening: one statistic per level of the hierarchy."""

from __future__ import annotations

import numpy as np

from algos import parts
from algos.advantages.scales import z_score
from algos.advantages.table import Table
from algos.scheme import Scheme
from algos.segments import FloatArray, Segments, divide


def compare(scheme: Scheme, signal: FloatArray, table: Table) -> FloatArray:
    """Subtract the scheme's baseline from each row (n,) and divide by its scale.

    Rows that are not counted get 0. With ``singleton="raw"`` a group of one keeps its signal,
    neither centred nor divided by a prompt scale, as verl's ``grpo`` and ``rloo`` do.
    """
    advantage = np.where(table.counted, signal, 0.0)
    if scheme.baseline != "none":
        advantage = subtract_baseline(scheme, signal, table)
    if scheme.scale != "none":
        advantage = divide_by_scale(scheme, advantage, signal, table)
    return advantage


def subtract_baseline(scheme: Scheme, signal: FloatArray, table: Table) -> FloatArray:
    """Return the signal (n,) less its baseline; exact zeros in groups without spread."""
    groups, counted = table.level(scheme.baseline), table.counted
    centred = scheme.run("baseline_kind", signal, groups, table)
    tags = parts.find("baseline_kind", scheme.baseline_kind).tags
    if "own_range" in tags:
        centred[groups.constant(signal, counted)[groups.ids]] = 0.0
    if scheme.baseline == "prompt" and "outside" not in tags:
        alone = table.among(groups, counted) == 1
        centred[alone] = signal[alone] if scheme.singleton == "raw" else 0.0
    return np.where(counted, centred, 0.0)


def divide_by_scale(scheme: Scheme, advantage: FloatArray, signal: FloatArray, table: Table) -> FloatArray:
    """Divide rows (n,) by their group's scale; 0 where there is none."""
    groups = table.level(scheme.scale)
    divisor = scheme.run("scale_kind", advantage, signal, groups, table)
    scaled = divide(advantage, divisor)
    if scheme.scale == "prompt" and scheme.singleton == "raw":
        alone = table.among(groups, table.counted) == 1
        scaled[alone] = advantage[alone]
    return scaled


def whiten(scheme: Scheme, advantage: FloatArray, groups: Segments, weights: FloatArray) -> FloatArray:
    """Shift and scale rows (n,) to weighted mean 0 and spread 1 within their group.

    A group without spread gives exact zeros, and so do rows of weight 0. With token weights the sum
    of squares is divided by the number of tokens less ``ddof``, as if every token were a row
    (verl's ``masked_whiten``; AgentRL, arXiv 2510.04206).
    """
    return z_score(scheme, advantage, groups, weights)
