"""Aggregation: the weight of every token in the loss, fixed once for the whole update.

Every part takes (scheme, mask (M, L), batch) and returns weights (M, L) such that the loss is the
sum of weight times token loss. The denominators are those of the whole batch, so the losses of any
split into minibatches add up to the loss of the whole.
"""

from __future__ import annotations

import numpy as np

from algos.batch import RolloutBatch
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import BoolArray, FloatArray, divide, totals


def effective_mask(scheme: Scheme, batch: RolloutBatch) -> BoolArray:
    """Return (M, L): the tokens that are in the loss, for numerator and denominator alike."""
    kept = batch.counted
    if scheme.dead_groups == "excluded":
        kept = kept & ~batch.dead
    return np.asarray(batch.token_mask & kept[batch.turn_rollout][:, None])


def token_weights(scheme: Scheme, batch: RolloutBatch) -> FloatArray:
    """Return the weights (M, L) of the tokens in the loss, 0 where masked."""
    weights: FloatArray = scheme.run("aggregation", effective_mask(scheme, batch), batch)
    return weights


@part("aggregation", "token_mean", source="DAPO, arXiv 2503.14476; SEEN-CODE")
def token_mean(scheme: Scheme, mask: BoolArray, batch: RolloutBatch) -> FloatArray:
    """1 / number of tokens."""
    return mask / max(float(mask.sum()), 1.0)


@part("aggregation", "rollout_mean", source="GRPO, arXiv 2402.03300; SEEN-CODE")
def rollout_mean(scheme: Scheme, mask: BoolArray, batch: RolloutBatch) -> FloatArray:
    """1 / (tokens of the rollout x number of rollouts with tokens)."""
    tokens = tokens_in_loss(mask, batch)
    per_rollout = divide(np.ones(len(batch)), tokens) / _rollouts_with(tokens)
    return np.asarray(mask * per_rollout[batch.turn_rollout][:, None])


@part(
    "aggregation", "constant", source="Dr.GRPO, arXiv 2503.20783; SEEN-CODE (TRL)", uses=["aggregation_constant"]
)
def constant(scheme: Scheme, mask: BoolArray, batch: RolloutBatch) -> FloatArray:
    """1 / (``aggregation_constant`` x number of rollouts with tokens).

    The constant defaults to the batch's ``max_tokens``.
    """
    divisor = batch.max_tokens if scheme.aggregation_constant is None else scheme.aggregation_constant
    return mask / (divisor * _rollouts_with(tokens_in_loss(mask, batch)))


def tokens_in_loss(mask: BoolArray, batch: RolloutBatch) -> FloatArray:
    """Return (N,) each rollout's tokens in the loss."""
    return totals(batch.turn_rollout, mask.sum(axis=1), len(batch))


def _rollouts_with(tokens: FloatArray) -> int:
    return max(int(np.count_nonzero(tokens)), 1)
