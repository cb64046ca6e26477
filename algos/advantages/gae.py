"""Generalised advantage estimation over turns (arXiv 1506.02438)."""

from __future__ import annotations

import numpy as np

from algos.batch import RolloutBatch
from algos.scheme import Scheme
from algos.segments import FloatArray


def generalised_advantage(scheme: Scheme, batch: RolloutBatch) -> FloatArray:
    """Return A_t = delta_t + gamma lambda A_{t+1} per turn, (M,).

    delta_t = r_t + gamma V_{t+1} - V_t. After the last turn V is the rollout's ``final_value``:
    the critic's value of the last observation if the rollout was truncated, 0 if it terminated.

    Raises:
        ValueError: if the batch has no critic values.
    """
    if batch.value is None:
        raise ValueError(
            "value=None is not allowed with signal='gae': give the critic's value of every turn, (M,)."
        )
    n = len(batch)
    following = np.zeros(n) if batch.final_value is None else batch.final_value.copy()
    trace = np.zeros(n)
    advantage = np.zeros(batch.n_turns)
    # All rollouts step backwards together: one pass per turn index, none per row.
    remaining = batch.turns_per_rollout[batch.turn_rollout] - batch.turn_index
    order = np.argsort(remaining, kind="stable")
    bounds = np.searchsorted(remaining[order], np.arange(1, remaining.max(initial=0) + 2))
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        turns = order[start:stop]
        rollouts = batch.turn_rollout[turns]
        delta = batch.turn_reward[turns] + scheme.gamma * following[rollouts] - batch.value[turns]
        trace[rollouts] = delta + scheme.gamma * scheme.gae_lambda * trace[rollouts]
        advantage[turns] = trace[rollouts]
        following[rollouts] = batch.value[turns]
    return advantage
