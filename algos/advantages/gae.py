"""Generalised advantage estimation over turns (arXiv 1506.02438)."""

from __future__ import annotations

import numpy as np

from algos.advantages.outcome import backwards
from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import FloatArray


@part(
    "signal", "gae", source="arXiv 1506.02438; textbook", uses=["gamma", "gae_lambda"], needs=["value"],
    tags=["per_turn"],
)  # fmt: skip
def gae(scheme: Scheme, batch: RolloutBatch, memory: Memory) -> FloatArray:
    """Credit with a critic, (M,)."""
    return generalised_advantage(scheme, batch)


def generalised_advantage(scheme: Scheme, batch: RolloutBatch) -> FloatArray:
    """Return A_t = delta_t + gamma lambda A_{t+1} per turn, (M,).

    delta_t = r_t + gamma V_{t+1} - V_t. After the last turn V is the rollout's ``final_value``:
    the critic's value of the last observation if the rollout was truncated, 0 if it terminated.

    Turns without tokens are not the policy's: they get 0, their reward goes to the turn before
    them, and credit passes through them undiscounted. Rollouts that do not count get 0.

    Raises:
        ValueError: if the batch has no critic values, or they are not finite.
    """
    n, owner = len(batch), batch.turn_rollout
    counted = batch.counted[owner]
    reward, value = np.where(counted, batch.turn_reward, 0.0), np.where(counted, batch.column("value"), 0.0)
    last_value = np.zeros(n) if batch.final_value is None else batch.final_value
    following = np.where(batch.counted, last_value, 0.0)
    if not (np.isfinite(value).all() and np.isfinite(following).all()):
        raise ValueError("value and final_value must be finite.")
    trace, passed = np.zeros(n), np.zeros(n)
    advantage = np.zeros(batch.n_turns)
    # All rollouts step backwards together: one pass per turn index, none per row.
    for every in backwards(batch):
        passed[owner[every]] += reward[every]
        turns = every[batch.written[every]]
        rollouts = owner[turns]
        delta = passed[rollouts] + scheme.gamma * following[rollouts] - value[turns]
        trace[rollouts] = delta + scheme.gamma * scheme.gae_lambda * trace[rollouts]
        advantage[turns] = trace[rollouts]
        following[rollouts], passed[rollouts] = value[turns], 0.0
    return np.where(counted, advantage, 0.0)
