"""Signals of several reward components: how they are joined into one advantage per rollout, (N,)."""

from __future__ import annotations

import numpy as np

from algos.advantages.levels import compare
from algos.advantages.table import Table, finite
from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import FloatArray, row_sums

GATE = {"gate": (0, 1000), "gate_threshold": (-np.inf, np.inf)}


@part(
    "signal", "components", source="GDPO, arXiv 2601.05242; SEEN-PAPER (eqs 4 to 8)",
    uses=["baseline", "scale"], needs=["components"], ranges=GATE, tags=["without_returns"],
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
    values = scored_components(batch, gate, gate_threshold)
    weights = _weights(component_weights, values.shape[1])
    parts = np.zeros(values.shape)
    for k, column in enumerate(values.T):
        scored = ~np.isnan(column)
        parts[:, k] = compare(scheme, np.where(scored, column, 0.0), Table(batch, memory, scored=scored))
    return row_sums(parts * weights)


@part(
    "signal", "component_sum", source="the common practice; TRL's sum_then_normalize; SEEN-CODE",
    uses=["baseline", "scale"], needs=["components"], ranges=GATE, tags=["without_returns"],
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
    values = np.nan_to_num(scored_components(batch, gate, gate_threshold))
    joined = row_sums(values * _weights(component_weights, values.shape[1]))
    return compare(scheme, joined, Table(batch, memory))


def scored_components(batch: RolloutBatch, gate: int | None = None, threshold: float = 1.0) -> FloatArray:
    """Return the components (N, K), NaN where there is no score, or the rollout does not count.

    Where the gate's component is below the threshold the others are 0, and where it is NaN, NaN.
    """
    values = np.where(batch.counted[:, None], batch.column("components"), np.nan)
    finite("components", values[~np.isnan(values)])
    if gate is None:
        return values
    if gate >= values.shape[1]:
        raise ValueError(f"gate={gate} is not allowed: there are {values.shape[1]} components.")
    key = values[:, [gate]]
    gated = np.where(np.isnan(key), np.nan, np.where(key >= threshold, values, 0.0))
    return np.where(np.arange(values.shape[1]) == gate, key, gated)


def _weights(weights: tuple[float, ...] | None, n: int) -> FloatArray:
    if weights is None:
        return np.ones(n)
    if len(weights) != n:
        raise ValueError(f"component_weights={weights!r} is not allowed: there are {n} components.")
    return np.array(weights)
