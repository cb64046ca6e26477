"""Signals that credit the rollout's reward: as a whole, or from each turn on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from algos.advantages.levels import compare
from algos.advantages.table import Table
from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import RELATIVE_TOLERANCE, FloatArray, IntArray


@part(
    "signal", "outcome", source="GRPO, arXiv 2402.03300; SEEN-CODE", uses=["baseline", "scale"],
    ranges={"return_clip": (1e-9, np.inf), "advantage_clip": (1e-9, np.inf)},
)  # fmt: skip
def outcome(
    scheme: Scheme, batch: RolloutBatch, memory: Memory, *, return_clip: float | None = None,
    advantage_clip: float | None = None,
) -> FloatArray:  # fmt: skip
    """Credit the rollout's return, (N,).

    * ``return_clip``: returns further from 0 are cut to this, before baseline and scale (AReaL, ROLL);
      neither trackers nor ``dead_groups`` notice it.
    * ``advantage_clip``: so are the numbers after baseline and scale, before weights and whitening
      (OpenRLHF's clip of rewards: 10).
    """
    returns = batch.outcome if return_clip is None else np.clip(batch.outcome, -return_clip, return_clip)
    credit = compare(scheme, returns, Table(batch, memory))
    return credit if advantage_clip is None else np.clip(credit, -advantage_clip, advantage_clip)


@part(
    "signal", "return_to_go", source="textbook; REINFORCE++, arXiv 2501.03262; SEEN-CODE (verl)",
    uses=["baseline", "scale", "gamma"], tags=["per_turn"],
)  # fmt: skip
def return_to_go(scheme: Scheme, batch: RolloutBatch, memory: Memory) -> FloatArray:
    """Credit the discounted rewards from each turn on, (M,)."""
    return compare(scheme, discounted(batch, scheme.gamma), Table(batch, memory, per_turn=True))


@part(
    "signal", "anchored_return", source="VGPO, arXiv 2512.12387; SEEN-NOTE; closed form INFERRED",
    uses=["baseline", "scale", "gamma"], tags=["per_turn"], ranges={"anchor": (0.0, np.inf)},
)  # fmt: skip
def anchored_return(scheme: Scheme, batch: RolloutBatch, memory: Memory, *, anchor: float = 0.1) -> FloatArray:
    """Credit the return to go against others, plus ``anchor`` times itself, (M,).

    The second part remains when a group's rewards are nearly equal; it has no baseline, so it raises
    the probability of everything that earned a reward.
    """
    value, table = discounted(batch, scheme.gamma), Table(batch, memory, per_turn=True)
    return compare(scheme, value, table) + np.where(table.counted, anchor * value, 0.0)


def discounted(batch: RolloutBatch, gamma: float) -> FloatArray:
    """Return (M,) the sum of this and later rewards, discounted once per turn that the policy wrote.

    Turns without tokens are not the policy's: they get 0, and their reward goes, undiscounted, to
    the turn before them. Rollouts that do not count get 0.
    """
    reward = np.where(batch.counted[batch.turn_rollout], batch.turn_reward, 0.0)
    return suffix_sum(batch, reward, gamma)


def suffix_sum(batch: RolloutBatch, values: FloatArray, gamma: float) -> FloatArray:
    """Return (M,) values plus gamma times the sum at the next written turn; see ``discounted``.

    Where the values cancel up to rounding, the sum is an exact 0.
    """
    total = _suffix_sum(batch, values, gamma)
    if (values < 0).any() and (values > 0).any():
        total[np.abs(total) <= RELATIVE_TOLERANCE * _suffix_sum(batch, np.abs(values), gamma)] = 0.0
    return total


def _suffix_sum(batch: RolloutBatch, values: FloatArray, gamma: float) -> FloatArray:
    owner = batch.turn_rollout
    later, passed = np.zeros(len(batch)), np.zeros(len(batch))
    result = np.zeros(batch.n_turns)
    for turns in backwards(batch):
        passed[owner[turns]] += values[turns]
        written = turns[batch.written[turns]]
        rollouts = owner[written]
        later[rollouts] = passed[rollouts] + gamma * later[rollouts]
        result[written], passed[rollouts] = later[rollouts], 0.0
    return result


def backwards(batch: RolloutBatch) -> Iterator[IntArray]:
    """Yield every rollout's last turn, then its last but one, and so on; no loop over rows."""
    count = batch.turns_per_rollout
    for k in range(1, count.max() + 1):
        alive = np.flatnonzero(count >= k)
        yield batch.in_order[batch.first_place[alive] + count[alive] - k]
