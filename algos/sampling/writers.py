"""Samplers that let messages be written by another rule, or by another policy."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from agentic_gym.grammar import DONE
from algos.collector import Trajectories, Writer
from algos.memory import Memory
from algos.parts import part
from algos.policies import FloatArray, MessagePolicy, Written, _pick
from algos.sampling.trainer import Trainer
from algos.scheme import Scheme
from algos.segments import BoolArray, IntArray


@part(
    "sampling", "cuts",
    source="CUTS, arXiv 2604.18493; SEEN-NOTE; no ordinary tokens at the start: INFERRED (the paper: 5 of thousands)",
    ranges={"top_k": (1, 10_000), "min_probability": (0.0, 1.0), "warm": (0, 2**31), "cuts_share": (0.0, 1.0)},
)  # fmt: skip
def cuts(
    scheme: Scheme,
    trainer: Trainer,
    *,
    top_k: int = 5,
    min_probability: float = 0.03,
    warm: int = 0,
    cuts_share: float = 0.5,
) -> Trajectories | None:
    """Let a share of every group take its tokens uniformly from the likely ones.

    * ``top_k``, ``min_probability``: a token is drawn uniformly from those among the ``top_k`` likeliest
      whose probability is at least ``min_probability``; where there is none, from the ``top_k``.
    * ``warm``: so many tokens at the start of a rollout are sampled ordinarily.
    * ``cuts_share``: share of the group, its last rollouts (Mixed-CUTS 0.5; 1 is pure CUTS).

    The stored log-probabilities are the policy's own: as in the source these rollouts are a little
    off-policy, and that is not corrected. Probabilities are those of the policy's temperature (source: 1).
    """
    prompt = trainer.groups(trainer.n_prompts)
    member = np.arange(len(prompt)) % trainer.group_size
    uniform = member >= trainer.group_size - round(cuts_share * trainer.group_size)
    return trainer.run(prompt, CutsWriter(trainer.policy, uniform, top_k, min_probability, warm))


class CutsWriter(Writer):
    """Draws the tokens of some rollouts (N,) uniformly from the likely ones."""

    def __init__(self, policy: MessagePolicy, uniform: BoolArray, top_k: int, least: float, warm: int) -> None:
        """See ``cuts``."""
        super().__init__(policy)
        self.uniform, self.top_k, self.least, self.warm = uniform, top_k, least, warm
        self.tokens = np.zeros(len(uniform), dtype=np.int64)

    def write(self, features: FloatArray, rollouts: IntArray, random: np.random.Generator) -> Written:
        """Use one uniform number per slot, whichever way the token is drawn."""
        draw = random.random((len(features), self.policy.grammar.n_slots), dtype=np.float32)
        uniform, before = self.uniform[rollouts], self.tokens[rollouts]

        def choose(slot: int, probability: FloatArray, log_p: FloatArray) -> IntArray:
            position = _pick(probability, log_p, draw, slot)
            likely = uniform_over_likely(probability, draw[:, slot], self.top_k, self.least)
            return np.where(uniform & (before + slot >= self.warm), likely, position)

        written = self.policy.compose(features, choose)
        self.tokens[rollouts] += (written.state != DONE).sum(axis=1)
        return written


def uniform_over_likely(probability: FloatArray, draw: npt.NDArray[Any], top_k: int, least: float) -> IntArray:
    """Draw positions (n,) uniformly from the likely choices of (W, n), with numbers (n,) in [0, 1)."""
    ranked = np.argsort(-probability, axis=0, kind="stable")[:top_k]
    top = np.take_along_axis(probability, ranked, axis=0)
    # The likely ones are the first: they are ranked. Padding has probability 0.
    possible = (top > 0).sum(axis=0)
    likely = np.minimum((top >= least).sum(axis=0), possible)
    size = np.where(likely > 0, likely, possible)
    index = np.minimum((draw * size).astype(np.int64), size - 1)
    return np.asarray(ranked[index, np.arange(probability.shape[1])])


@part(
    "sampling", "cross_policy",
    source="AgentRL, arXiv 2510.04206; SEEN-3P; the behaviour log-probabilities are the writer's: INFERRED",
    ranges={"stale_share": (0.0, 1.0), "refresh": (1, 10**9)},
)  # fmt: skip
def cross_policy(
    scheme: Scheme, trainer: Trainer, *, stale_share: float = 0.25, refresh: int = 25
) -> Trajectories | None:
    """Let each message be written by an older copy of the policy with probability ``stale_share``.

    The copy is replaced by the current policy every ``refresh`` updates. The stored
    log-probabilities are those of whoever wrote the message.
    """
    copy = stale_policy(trainer.memory)
    if not copy or trainer.n_updates - copy["update"] >= refresh:
        copy.update(update=trainer.n_updates, parameters=trainer.policy.flat_parameters.numpy().copy())
    writer = CrossPolicyWriter(trainer.policy, copy["parameters"], stale_share)
    data = trainer.run(trainer.groups(trainer.n_prompts), writer)
    return None if data is None else writer.mark(data)


def stale_policy(memory: Memory) -> dict[str, Any]:
    """Return the older copy: its flat ``parameters``, and the ``update`` at which it was taken; empty at first."""
    empty: dict[str, Any] = {}
    return memory.get("stale_policy", lambda: empty)


class CrossPolicyWriter(Writer):
    """Writes some messages with other parameters."""

    def __init__(self, policy: MessagePolicy, parameters: FloatArray, share: float) -> None:
        """See ``cross_policy``."""
        super().__init__(policy)
        self.parameters, self.share = parameters, share
        self.stale: list[BoolArray] = []

    def write(self, features: FloatArray, rollouts: IntArray, random: np.random.Generator) -> Written:
        """Choose who writes, and let both write their rows."""
        stale = random.random(len(features)) < self.share
        self.stale.append(stale)
        draw = random.random((len(features), self.policy.grammar.n_slots), dtype=np.float32)
        own: tuple[Any, ...] = self._compose(features[~stale], draw[~stale])
        with parameters_in_place(self.policy, self.parameters):
            other: tuple[Any, ...] = self._compose(features[stale], draw[stale])
        # Back into the order of the rows.
        order = np.argsort(np.concatenate([np.flatnonzero(~stale), np.flatnonzero(stale)]))
        return Written(*(np.concatenate(both)[order] for both in zip(own, other, strict=True)))

    def _compose(self, features: FloatArray, draw: npt.NDArray[np.float32]) -> Written:
        return self.policy.compose(features, lambda slot, p, log_p: _pick(p, log_p, draw, slot))

    def mark(self, data: Trajectories) -> Trajectories:
        """Note which turns the older copy wrote: turns are in the order of writing."""
        return dataclasses.replace(data, stale=np.concatenate(self.stale))


@contextlib.contextmanager
def parameters_in_place(policy: MessagePolicy, parameters: FloatArray) -> Iterator[None]:
    """Give the policy other parameters for a while."""
    flat = policy.flat_parameters.numpy()
    own = flat.copy()
    flat[:] = parameters
    try:
        yield
    finally:
        flat[:] = own
