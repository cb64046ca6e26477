"""Signals of several reward components: how they are joined into one advantage per rollout, (N,)."""

from __future__ import annotations

import numpy as np

from algos.advantages.levels import compare
from algos.advantages.table import Table
from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import FloatArray

GATE = {"gate": (0, 1000), "gate_threshold": (-np.inf, np.inf)}


@part(
    "signal", "components", source="GDPO, arXiv 2601.05242; SEEN-PAPER (eqs 4 to 8)",
    uses=["baseline", "scale"], needs=["components"], ranges=GATE,
)  # fmt: skip
def components(
    scheme: Scheme,
    batch: RolloutBatch,
    memory: Memory,
    *,
    component_weights: tuple[float, ...] | None = None,
    gate: int | None = None,
    gate_threshold: float = 1.0,
) -> FloatArray:
    """Compare every component on its own, then add them up with their weights.

    * ``component_weights``: K factors on the normalised components; None takes 1.
    * ``gate``: index of a component; where it is below ``gate_threshold`` the others count 0 (the
      paper's conditioned rewards).

    A component that is NaN takes no part; a component without spread adds 0.
    """
    values = gated(batch.column("components"), gate, gate_threshold)
    weights = _weights(component_weights, values.shape[1])
    result = np.zeros(len(batch))
    for weight, column in zip(weights, values.T, strict=True):
        scored = ~np.isnan(column)
        result += weight * compare(scheme, np.where(scored, column, 0.0), Table(batch, memory, scored=scored))
    return result


@part(
    "signal", "component_sum", source="the common practice; TRL's sum_then_normalize; SEEN-CODE",
    uses=["baseline", "scale"], needs=["components"], ranges=GATE,
)  # fmt: skip
def component_sum(
    scheme: Scheme,
    batch: RolloutBatch,
    memory: Memory,
    *,
    component_weights: tuple[float, ...] | None = None,
    gate: int | None = None,
    gate_threshold: float = 1.0,
) -> FloatArray:
    """Add the components up with their weights, then compare; NaN components count 0."""
    values = np.nan_to_num(gated(batch.column("components"), gate, gate_threshold))
    return compare(scheme, values @ _weights(component_weights, values.shape[1]), Table(batch, memory))


def gated(values: FloatArray, gate: int | None, threshold: float) -> FloatArray:
    """Return components (N, K) with 0 where the gate's component is below the threshold."""
    if gate is None:
        return values
    if gate >= values.shape[1]:
        raise ValueError(f"gate={gate} is not allowed: there are {values.shape[1]} components.")
    open_rows = values[:, [gate]] >= threshold
    return np.where(open_rows | (np.arange(values.shape[1]) == gate), values, 0.0)


def _weights(weights: tuple[float, ...] | None, n: int) -> FloatArray:
    if weights is None:
        return np.ones(n)
    if len(weights) != n:
        raise ValueError(f"component_weights={weights!r} is not allowed: there are {n} components.")
    return np.array(weights)
