"""What is logged of an update besides the loss."""

from __future__ import annotations

import numpy as np

from algos.collector import Trajectories
from algos.segments import FloatArray


def rollout_metrics(data: Trajectories, names: tuple[str, ...]) -> dict[str, float]:
    """Return, length, success, entropy, and the score of every environment.

    Success and score are the environment's own verdict and do not depend on the reward, so they are
    averaged over all rollouts; returns only over those that count.
    """
    batch = data.batch
    counted = batch.counted
    metrics = {
        "rollout/ep_rew_mean": _mean(batch.returns[counted]),
        "rollout/ep_len_mean": float(batch.turns_per_rollout.mean()),
        "rollout/success_rate": float(data.success.mean()),
        "rollout/tokens_mean": float(batch.tokens_per_rollout.mean()),
        "rollout/truncated": float(data.truncated.mean()),
        "rollout/invalid": float(1.0 - counted.mean()),
        "rollout/entropy": float(data.entropy.mean()),
    }
    for index, name in enumerate(names):
        rows = batch.environment == index
        if rows.any() and not np.isnan(data.score[rows]).any():
            metrics[f"env/{name}/score"] = float(data.score[rows].mean())
            metrics[f"env/{name}/return"] = _mean(batch.returns[rows & counted])
    return metrics


def group_metrics(data: Trajectories, advantage: FloatArray, names: tuple[str, ...]) -> dict[str, float]:
    """Groups without signal, spread within groups, size of the advantage by environment and turn."""
    batch = data.batch
    groups = batch.level("prompt")
    weights = batch.counted.astype(np.float64)
    spread = groups.spread(batch.outcome, weights, 1)
    # Rollouts that do not count have no advantage, and must not look like small ones.
    kept = batch.counted[batch.turn_rollout]
    environment, turn_index = batch.environment[batch.turn_rollout[kept]], batch.turn_index[kept]
    advantage = advantage[kept]
    metrics = {
        "group/frac_reward_zero_std": float((spread == 0).mean()),
        "group/reward_std": float(spread.mean()),
        "group/advantage_mean": _mean(advantage),
        "group/advantage_std": float(advantage.std()) if len(advantage) else 0.0,
        "group/advantage_max": float(np.abs(advantage).max(initial=0.0)),
    }
    size = np.abs(advantage)
    for index, name in enumerate(names if len(names) > 1 else ()):
        metrics[f"group/advantage_size/{name}"] = _mean(size[environment == index])
    for turn in range(min(int(turn_index.max(initial=0)) + 1, 4)):
        metrics[f"group/advantage_size/turn_{turn}"] = _mean(size[turn_index == turn])
    return metrics


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else 0.0
