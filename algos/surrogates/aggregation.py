"""Aggregation: the weight of every token in the loss, fixed once for the whole update.

Every part takes (scheme, mask (M, L), batch) and returns weights (M, L) such that the loss is the
sum of weight times token loss. The denominators are those of the whole batch, so the losses of any
split into minibatches add up to the loss of the whole; only ``tokens_of=minibatch`` is told not to.

Where rollouts are averaged, ``empty`` says whether those without a token in the loss are
``dropped`` from the mean, or ``counted`` in it (TRL's losses, verl's geo_mean). Rollouts that do
not count, and those of excluded groups, are never counted.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from algos.batch import RolloutBatch
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import BoolArray, FloatArray, divide, totals

Empty = Literal["dropped", "counted"]


def effective_mask(scheme: Scheme, batch: RolloutBatch) -> BoolArray:
    """Return (M, L): the tokens that are in the loss, for numerator and denominator alike."""
    return np.asarray(batch.token_mask & _kept(scheme, batch)[batch.turn_rollout][:, None])


def _kept(scheme: Scheme, batch: RolloutBatch) -> BoolArray:
    """Return (N,): the rollouts that are in the loss."""
    kept = batch.counted
    if scheme.dead_groups == "excluded":
        kept = kept & ~batch.dead
    return kept


def token_weights(scheme: Scheme, batch: RolloutBatch) -> FloatArray:
    """Return the weights (M, L) of the tokens in the loss, 0 where masked."""
    weights: FloatArray = scheme.run("aggregation", effective_mask(scheme, batch), batch)
    return weights


@part("aggregation", "token_mean", source="DAPO, arXiv 2503.14476; SEEN-CODE")
def token_mean(
    scheme: Scheme, mask: BoolArray, batch: RolloutBatch, *, tokens_of: Literal["update", "minibatch"] = "update"
) -> FloatArray:
    """1 / number of tokens.

    * ``tokens_of``: those of the whole update, or of each minibatch on its own (TRL's ``bnpo``), where
      tokens of a minibatch with few of them weigh more than others. Outside the trainer the batch is
      one minibatch.
    """
    return mask / max(float(mask.sum()), 1.0)


@part("aggregation", "rollout_mean", source="GRPO, arXiv 2402.03300; SEEN-CODE")
def rollout_mean(scheme: Scheme, mask: BoolArray, batch: RolloutBatch, *, empty: Empty = "dropped") -> FloatArray:
    """1 / (tokens of the rollout x number of rollouts)."""
    tokens = tokens_in_loss(mask, batch)
    per_rollout = divide(np.ones(len(batch)), tokens) / _rollouts(scheme, batch, tokens, empty)
    return np.asarray(mask * per_rollout[batch.turn_rollout][:, None])


@part("aggregation", "constant", source="Dr.GRPO, arXiv 2503.20783; SEEN-CODE (TRL)", uses=["aggregation_constant"])
def constant(
    scheme: Scheme, mask: BoolArray, batch: RolloutBatch, *, empty: Empty = "dropped", per_rollout: bool = True
) -> FloatArray:
    """1 / (``aggregation_constant`` x number of rollouts).

    The constant defaults to the batch's ``max_tokens``.

    * ``per_rollout``: false divides by the constant alone (old verl, ROLL).
    """
    tokens = tokens_in_loss(mask, batch)
    divisor = scheme.aggregation_constant
    if divisor is None:
        divisor = batch.max_tokens
        if divisor < tokens.max(initial=0.0):
            raise ValueError(
                f"max_tokens={divisor} is not allowed with aggregation='constant': a rollout has "
                f"{tokens.max():.0f} tokens. Give the environment a time limit, the batch its max_tokens, or the "
                "scheme an aggregation_constant."
            )
    return mask / (divisor * _rollouts(scheme, batch, tokens, empty) if per_rollout else float(divisor))


@part("aggregation", "token_sum", source="LUSPO, arXiv 2602.05261; SEEN-CODE (TRL; verl's seq-mean-token-sum)")
def token_sum(scheme: Scheme, mask: BoolArray, batch: RolloutBatch, *, empty: Empty = "dropped") -> FloatArray:
    """1 / number of rollouts.

    Where all tokens of a rollout have the same loss, as with its mean ratio, that is the loss times
    the rollout's length: LUSPO.
    """
    return np.asarray(mask / float(_rollouts(scheme, batch, tokens_in_loss(mask, batch), empty)))


@part("aggregation", "plain_sum", source="verl's token-sum; SEEN-CODE (verl)")
def plain_sum(scheme: Scheme, mask: BoolArray, batch: RolloutBatch) -> FloatArray:
    """1: the loss grows with the update."""
    return mask.astype(np.float64)


@part("aggregation", "prompt_mean", source="SkyRL's prompt_mean; SEEN-CODE (SkyRL)")
def prompt_mean(scheme: Scheme, mask: BoolArray, batch: RolloutBatch) -> FloatArray:
    """1 / (tokens of the prompt's rollouts x number of prompts with tokens)."""
    prompts = batch.level("prompt")
    tokens = prompts.sum(tokens_in_loss(mask, batch))
    per_prompt = divide(np.ones(prompts.size), tokens) / max(int(np.count_nonzero(tokens)), 1)
    return np.asarray(mask * per_prompt[prompts.ids[batch.turn_rollout]][:, None])


def counts_minibatches(scheme: Scheme) -> bool:
    """Whether every minibatch is a mean of its own, whatever it has of the update's tokens."""
    return scheme.aggregation == "token_mean" and dict(scheme.options).get("tokens_of") == "minibatch"


def tokens_in_loss(mask: BoolArray, batch: RolloutBatch) -> FloatArray:
    """Return (N,) each rollout's tokens in the loss."""
    return totals(batch.turn_rollout, mask.sum(axis=1), len(batch))


def _rollouts(scheme: Scheme, batch: RolloutBatch, tokens: FloatArray, empty: Empty) -> int:
    """Return how many rollouts the mean is over."""
    return max(int(np.count_nonzero(tokens if empty == "dropped" else _kept(scheme, batch))), 1)
