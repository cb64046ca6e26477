"""Aggregation: the weight of every token in the loss, fixed once for the whole update."""

from __future__ import annotations

import numpy as np

from algos.batch import RolloutBatch
from algos.scheme import Scheme
from algos.segments import BoolArray, FloatArray, divide, totals


def effective_mask(scheme: Scheme, batch: RolloutBatch) -> BoolArray:
    """Return (M, L): the tokens that are in the loss, for numerator and denominator alike."""
    kept = batch.counted
    if scheme.dead_groups == "excluded":
        kept = kept & ~batch.dead
    return np.asarray(batch.token_mask & kept[batch.turn_rollout][:, None])


def token_weights(scheme: Scheme, batch: RolloutBatch) -> FloatArray:
    """Return (M, L) weights w such that the loss is the sum of w times the token losses.

    The denominators are those of the whole batch, so the losses of any split into minibatches add
    up to the loss of the whole.

    * ``token_mean``: 1 / number of tokens.
    * ``rollout_mean``: 1 / (tokens of the rollout x number of rollouts with tokens).
    * ``constant``: 1 / (``aggregation_constant`` x number of rollouts with tokens); the constant
      defaults to the batch's ``max_tokens`` (Dr.GRPO, arXiv 2503.20783, as TRL normalises it).
    """
    mask = effective_mask(scheme, batch)
    tokens = totals(batch.turn_rollout, mask.sum(axis=1), len(batch))
    n_rollouts = max(int(np.count_nonzero(tokens)), 1)
    if scheme.aggregation == "token_mean":
        return mask / max(tokens.sum(), 1.0)
    if scheme.aggregation == "rollout_mean":
        per_rollout = divide(np.ones(len(batch)), tokens) / n_rollouts
        return np.asarray(mask * per_rollout[batch.turn_rollout][:, None])
    constant = batch.max_tokens if scheme.aggregation_constant is None else scheme.aggregation_constant
    return mask / (constant * n_rollouts)
