"""MAESTRO: a conductor that learns, per rollout, which reward component to stress (arXiv 2601.07208).

The paper's equations are known from three notes (SEEN-NOTE). INFERRED stand-ins: what an emphasis
does to the weights, the temperature, the entropy bonus, both step sizes and the interval; the
context is the last observation; components are standardised over the batch, so that a large scale
is not mistaken for a good one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from algos.advantages.levels import compare
from algos.advantages.several_rewards import scored_components
from algos.advantages.table import Table, finite
from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import FloatArray, IntArray, divide, row_sums

NAME = "conductor"


@dataclass
class Conductor:
    """A linear softmax over K emphases, and the triples that it has not learned from yet.

    Attributes:
        weights: (D + 1, K), the last row is the bias.
        random: draws the emphases.
        buffer: (context (n, D + 1), emphasis (n,), advantage (n,)) of past updates.
        pending: the same of the present update, without advantages.
        updates: how many policy updates it has seen.
    """

    weights: FloatArray
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    buffer: list[tuple[FloatArray, IntArray, FloatArray]] = field(default_factory=list)
    pending: tuple[FloatArray, IntArray, FloatArray] | None = None
    updates: int = 0

    def probabilities(self, context: FloatArray, temperature: float) -> FloatArray:
        """Return (n, K)."""
        scores = context @ self.weights / temperature
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    def draw(self, context: FloatArray, temperature: float) -> IntArray:
        """Return an emphasis (n,) for every context (n, D + 1)."""
        p = self.probabilities(context, temperature)
        below = p.cumsum(axis=1) < self.random.random(len(p))[:, None]
        return np.minimum(below.sum(axis=1), p.shape[1] - 1)

    def learn(self, temperature: float, step_size: float, entropy_bonus: float) -> None:
        """Take one step up the advantage's score-function gradient, and forget the triples."""
        context, emphasis, advantage = (np.concatenate(parts) for parts in zip(*self.buffer, strict=True))
        p = self.probabilities(context, temperature)
        score = np.eye(p.shape[1])[emphasis] - p
        log_p = np.log(np.maximum(p, 1e-300))
        entropy_slope = -p * (log_p - (p * log_p).sum(axis=1, keepdims=True))
        slope = advantage[:, None] * score + entropy_bonus * entropy_slope
        self.weights += step_size * context.T @ slope / (len(context) * temperature)
        self.buffer.clear()


def _conductor(batch: RolloutBatch, memory: Memory) -> Conductor:
    size = batch.column("context").shape[1] + 1, batch.column("components").shape[1]
    return memory.get(NAME, lambda: Conductor(np.zeros(size)))


def _after_update(
    scheme: Scheme, batch: RolloutBatch, memory: Memory, *, temperature: float, conductor_step: float,
    entropy_bonus: float, interval: int, **_: float,
) -> None:  # fmt: skip
    conductor = _conductor(batch, memory)
    if conductor.pending is not None and len(conductor.pending[0]):
        conductor.buffer.append(conductor.pending)
    conductor.pending = None
    conductor.updates += 1
    if conductor.updates % interval == 0 and conductor.buffer:
        conductor.learn(temperature, conductor_step, entropy_bonus)


@part(
    "signal", "conductor", source="MAESTRO, arXiv 2601.07208; SEEN-NOTE; stand-ins INFERRED",
    uses=["baseline", "scale"], needs=["components", "context"], tags=["without_returns"],
    after_update=_after_update,
    ranges={
        "emphasis": (0.0, 1.0), "temperature": (1e-6, np.inf), "conductor_step": (0.0, np.inf),
        "entropy_bonus": (0.0, np.inf), "interval": (1, 10**9),
    },
)  # fmt: skip
def conduct(
    scheme: Scheme,
    batch: RolloutBatch,
    memory: Memory,
    *,
    emphasis: float = 0.5,
    temperature: float = 1.0,
    conductor_step: float = 0.1,
    entropy_bonus: float = 0.01,
    interval: int = 10,
) -> FloatArray:
    """Draw an emphasis for every rollout on its own, weigh the components by it, and compare.

    The weights are equal shares of 1 - ``emphasis``, and ``emphasis`` more for the stressed
    component. Every ``interval`` policy updates the conductor takes a step towards emphases that
    went with high advantages.
    """
    values, counted = _standardised(scored_components(batch), batch), batch.counted
    n_components = values.shape[1]
    context = finite("context", np.column_stack([batch.column("context"), np.ones(len(batch))])[counted])
    conductor = _conductor(batch, memory)
    chosen = conductor.draw(context, temperature)
    weights = (1.0 - emphasis) / n_components + emphasis * np.eye(n_components)[chosen]
    joined = np.zeros(len(batch))
    joined[counted] = row_sums(weights * values[counted])
    advantage = compare(scheme, joined, Table(batch, memory))
    conductor.pending = (context, chosen, advantage[counted])
    return advantage


def _standardised(values: FloatArray, batch: RolloutBatch) -> FloatArray:
    """Return components (N, K) with mean 0 and spread 1 within each environment; 0 for NaN."""
    groups = batch.level("environment")
    result = np.zeros_like(values)
    for index, column in enumerate(values.T):
        counted = (~np.isnan(column)).astype(float)
        centred = groups.deviations(column, counted)
        result[:, index] = divide(centred, groups.root_mean_square(centred, counted, 1)[groups.ids])
    return result
