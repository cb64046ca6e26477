"""Corrections for tokens that another policy wrote than the one that the ratio is taken to.

Every function takes (scheme, tokens) and returns a factor for the losses, (m, L) or (m, 1),
without gradient, or None for no correction. With q = log p_old - log p_behaviour at a token, its
weight is w = exp(q). The denominators of the aggregation stay those of the whole batch, unless
``rejection`` is told otherwise.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import torch

from algos.batch import RolloutBatch
from algos.parts import part
from algos.scheme import Scheme
from algos.surrogates.ratios import MAX_LOG_RATIO
from algos.surrogates.tokens import Tokens

LIMITS = {"weight_min": (0.0, math.inf), "weight_max": (0.0, math.inf)}
SMALLEST = 1e-30
"""Stands in for a lower limit of 0, whose logarithm is taken."""


@part("correction", "none", source="-")
def none(scheme: Scheme, tokens: Tokens) -> torch.Tensor | None:
    """Take the policy that wrote the tokens as the old one: the ratio itself corrects."""
    return None


@part("correction", "tis", source="truncated importance sampling; SEEN-CODE (verl; OpenRLHF: 0.5 to 5)", ranges=LIMITS)
def tis(
    scheme: Scheme, tokens: Tokens, *, weight_min: float = 0.0, weight_max: float = 2.0, normalise: bool = False
) -> torch.Tensor:
    """Multiply each token by its weight, truncated.

    * ``normalise``: divide by the mean over the minibatch's tokens.
    """
    weight = _exp(log_weight(tokens)).clamp(weight_min, weight_max)
    return _over_token_mean(tokens, weight) if normalise else weight


@part("correction", "tis_rollout", source="truncated sequence weight; SEEN-CODE (verl, TRL, SkyRL: 5)", ranges=LIMITS)
def tis_rollout(
    scheme: Scheme,
    tokens: Tokens,
    *,
    weight_of: Literal["product", "mean"] = "product",
    weight_min: float = 0.0,
    weight_max: float = 2.0,
    normalise: bool = False,
) -> torch.Tensor:
    """Multiply all tokens of a rollout by the product of their weights, truncated.

    * ``weight_of``: the ``product``, or the geometric ``mean`` (verl's for GMPO).
    * ``normalise``: divide by the mean over the minibatch's rollouts.
    """
    weight = _exp(_of_rollout(tokens, weight_of)).clamp(weight_min, weight_max)
    return _over_rollout_mean(tokens, weight) if normalise else weight


@part("correction", "icepop", source="IcePop; SEEN-CODE (verl, TRL's *_mask modes)", ranges=LIMITS)
def icepop(
    scheme: Scheme,
    tokens: Tokens,
    *,
    level: Literal["token", "rollout"] = "token",
    weight_min: float = 0.5,
    weight_max: float = 5.0,
    normalise: bool = False,
) -> torch.Tensor:
    """Multiply by the weight itself inside the limits, and by 0 outside.

    * ``level``: each ``token``'s own weight, or the product over its ``rollout``.
    * ``normalise``: divide by the mean over the minibatch's tokens, or rollouts.
    """
    weight = _exp(log_weight(tokens) if level == "token" else _of_rollout(tokens, "product"))
    weight = torch.where((weight >= weight_min) & (weight <= weight_max), weight, torch.zeros_like(weight))
    if not normalise:
        return weight
    return _over_token_mean(tokens, weight) if level == "token" else _over_rollout_mean(tokens, weight)


@part("correction", "geometric_mask", source="sequence mask; SEEN-CODE (SkyRL; verl: 0.999 to 1.001)", ranges=LIMITS)
def geometric_mask(
    scheme: Scheme, tokens: Tokens, *, weight_min: float = 0.99, weight_max: float = 1.01
) -> torch.Tensor:
    """Keep rollouts whose geometric mean weight is inside the limits, unweighted."""
    return _inside(_of_rollout(tokens, "mean"), weight_min, weight_max)


@part(
    "correction", "rejection", source="verl's rollout_rs; SEEN-CODE (verl)",
    ranges={**LIMITS, "measure_max": (0.0, math.inf)},
)  # fmt: skip
def rejection(
    scheme: Scheme,
    tokens: Tokens,
    *,
    measure: Literal["k1", "k2", "k3"] = "k1",
    over: Literal["token", "sum", "mean", "max"] = "token",
    weight_min: float = 0.5,
    weight_max: float = 2.0,
    measure_max: float = 0.1,
    denominator: Literal["all", "kept"] = "all",
) -> torch.Tensor:
    """Keep tokens, or whole rollouts, whose mismatch is small, unweighted.

    * ``measure``: ``k1``: q is that of a weight inside the limits (verl's limits are of the inverse
      weight); ``k2``: q^2 / 2, and ``k3``: exp(q) - 1 - q, are at most ``measure_max``.
    * ``over``: of each ``token``, or the ``sum``, ``mean`` or ``max`` over the rollout's tokens.
    * ``denominator``: the loss divides by the number of ``all`` tokens, or as if those that are left
      out had not been written: ``kept`` (verl).
    """
    q = log_weight(tokens)
    if measure == "k1":
        return _inside(_reduced(tokens, q, over), weight_min, weight_max)
    size = q**2 / 2 if measure == "k2" else torch.expm1(q.clamp(max=MAX_LOG_RATIO)) - q
    return (_reduced(tokens, size, over) <= measure_max).to(q.dtype)


def without_rejected(
    scheme: Scheme, batch: RolloutBatch, old_log_prob: torch.Tensor, behaviour_log_prob: torch.Tensor | None
) -> RolloutBatch:
    """Take the tokens that ``rejection`` leaves out from the mask, where its denominators are of those kept.

    Args:
        scheme: with any correction or none; others return the batch itself.
        batch: the rollouts.
        old_log_prob: (M, L) of the policy that the ratio is taken to.
        behaviour_log_prob: (M, L) of the policy that wrote the tokens.
    """
    if scheme.correction != "rejection" or dict(scheme.options).get("denominator") != "kept":
        return batch
    assert behaviour_log_prob is not None
    mask = torch.as_tensor(batch.token_mask, device=old_log_prob.device)
    old, behaviour = (torch.where(mask, values.detach(), 0.0) for values in (old_log_prob, behaviour_log_prob))
    rollout = torch.as_tensor(batch.turn_rollout, device=mask.device)
    tokens = Tokens(old, old, torch.zeros_like(old), mask, rollout, len(batch), behaviour)
    kept = (scheme.run("correction", tokens) > 0).expand_as(mask).cpu().numpy()
    return dataclasses.replace(batch, token_mask=batch.token_mask & kept)


def log_weight(tokens: Tokens) -> torch.Tensor:
    """Return q (m, L), 0 where masked."""
    if tokens.behaviour_log_prob is None:
        raise ValueError("behaviour_log_prob=None is not allowed with a correction: give those that wrote the tokens.")
    q = tokens.old_log_prob - tokens.behaviour_log_prob
    return torch.where(tokens.mask, q, torch.zeros_like(q)).detach()


def _exp(q: torch.Tensor) -> torch.Tensor:
    return q.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _of_rollout(tokens: Tokens, kind: Literal["product", "mean"]) -> torch.Tensor:
    """Return (m, 1) the logarithm of the product, or of the geometric mean, of the rollout's weights."""
    q = log_weight(tokens)
    return tokens.rollout_sum(q) if kind == "product" else tokens.rollout_mean(q)


def _inside(q: torch.Tensor, low: float, high: float) -> torch.Tensor:
    return ((q >= math.log(max(low, SMALLEST))) & (q <= math.log(max(high, SMALLEST)))).to(q.dtype)


def _reduced(tokens: Tokens, values: torch.Tensor, over: str) -> torch.Tensor:
    """Return (m, L) the values, or (m, 1) what they come to over the rollout's tokens."""
    if over == "token":
        return values
    if over != "max":
        return tokens.rollout_sum(values) if over == "sum" else tokens.rollout_mean(values)
    per_turn = values.masked_fill(~tokens.mask, -math.inf).amax(dim=1)
    largest = per_turn.new_full((tokens.n_rollouts,), -math.inf)
    return largest.scatter_reduce(0, tokens.owner, per_turn, "amax")[tokens.owner].unsqueeze(1)


def _over_token_mean(tokens: Tokens, weight: torch.Tensor) -> torch.Tensor:
    kept = weight[tokens.mask]
    return weight / kept.mean() if len(kept) and kept.mean() > 0 else weight


def _over_rollout_mean(tokens: Tokens, weight: torch.Tensor) -> torch.Tensor:
    """Divide (m, 1) by the mean over rollouts with tokens; turns of one rollout have equal weights."""
    share = 1.0 / tokens.rollout_sum(tokens.mask.any(dim=1, keepdim=True).to(weight.dtype)).clamp(min=1)
    counted = tokens.mask.any(dim=1, keepdim=True) * share
    mean = (weight * counted).sum() / counted.sum().clamp(min=1)
    return weight / mean if mean > 0 else weight
