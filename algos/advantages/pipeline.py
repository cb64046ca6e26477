"""From a scheme and a batch to advantages: signal, baseline, scale, whitening."""

from __future__ import annotations

import numpy as np

from algos.advantages.gae import generalised_advantage
from algos.advantages.levels import divide_by_spread, subtract_baseline, whiten
from algos.batch import RolloutBatch
from algos.scheme import Scheme, SchemeLike, make_scheme
from algos.segments import FloatArray, Segments, divide


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
        turns, tokens = batch.written_turns, batch.tokens_per_rollout
        counts = {"rollout": (turns > 0).astype(np.float64), "turn": turns, "token": tokens}
        weights = counts[scheme.whitening_weight] * counted
        advantage = whiten(scheme, advantage, batch.level(scheme.whitening), weights)
    return advantage


def _turn_level(scheme: Scheme, batch: RolloutBatch) -> FloatArray:
    """One advantage per turn, (M,)."""
    owner = batch.turn_rollout
    advantage = generalised_advantage(scheme, batch)
    if scheme.whitening == "none":
        return advantage
    written, tokens = batch.written.astype(np.float64), batch.tokens_per_turn.astype(np.float64)
    counts = {"rollout": divide(written, batch.written_turns[owner]), "turn": written, "token": tokens}
    weights = counts[scheme.whitening_weight] * batch.counted[owner]
    level = batch.level(scheme.whitening)
    return whiten(scheme, advantage, Segments(level.ids[owner], level.size), weights)
