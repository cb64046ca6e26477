"""From a scheme and a batch to advantages: signal, baseline, scale, whitening."""

from __future__ import annotations

import numpy as np

from algos.advantages.gae import generalised_advantage
from algos.advantages.levels import divide_by_spread, subtract_baseline, whiten
from algos.batch import RolloutBatch
from algos.scheme import Scheme, SchemeLike, make_scheme
from algos.segments import FloatArray, Segments


def advantages(scheme: SchemeLike, batch: RolloutBatch) -> FloatArray:
    """Compute the advantage of every turn.

    Rollouts that are invalid or could not be scored leave no trace: they enter no statistic and
    get 0.

    Args:
        scheme: a recipe name, a ``Scheme``, or a recipe with overrides, see ``make_scheme``.
        batch: the rollouts.

    Returns:
        float64 array (M,), shared by all tokens of a turn.

    Raises:
        ValueError: if the scheme needs a column that the batch does not have.
    """
    chosen = make_scheme(scheme)
    if chosen.signal == "gae":
        return _turn_level(chosen, batch)
    return _rollout_level(chosen, batch)[batch.turn_rollout]


def _rollout_level(scheme: Scheme, batch: RolloutBatch) -> FloatArray:
    """One advantage per rollout, (N,)."""
    counted = batch.counted
    advantage = batch.outcome
    if scheme.baseline != "none":
        advantage = subtract_baseline(scheme, advantage, batch.level(scheme.baseline), counted)
    if scheme.scale != "none":
        spread_of = batch.outcome if scheme.scale_kind == "std" else advantage
        advantage = divide_by_spread(scheme, advantage, spread_of, batch.level(scheme.scale), counted)
    if scheme.whitening != "none":
        weights = np.ones(len(batch)) if scheme.whitening_weight == "rollout" else batch.tokens_per_rollout
        advantage = whiten(scheme, advantage, batch.level(scheme.whitening), weights * counted)
    return advantage


def _turn_level(scheme: Scheme, batch: RolloutBatch) -> FloatArray:
    """One advantage per turn, (M,)."""
    owner = batch.turn_rollout
    counted = batch.counted[owner]
    advantage = np.where(counted, generalised_advantage(scheme, batch), 0.0)
    if scheme.whitening == "none":
        return advantage
    level = batch.level(scheme.whitening)
    weights = np.ones(batch.n_turns) if scheme.whitening_weight == "rollout" else batch.tokens_per_turn
    return whiten(scheme, advantage, Segments(level.ids[owner], level.size), weights * counted)
