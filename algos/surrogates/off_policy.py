"""Surrogates for rollouts of other policies: weights without gradient, and squared log-ratios.

See ``forms`` for what a surrogate is.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from algos.batch import RolloutBatch
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import FloatArray, Segments, divide
from algos.surrogates.aggregation import effective_mask, tokens_in_loss
from algos.surrogates.forms import pick
from algos.surrogates.ratios import MAX_LOG_RATIO
from algos.surrogates.tokens import Tokens

NOT_NEGATIVE = (0.0, math.inf)
POSITIVE = (1e-6, math.inf)


def _negative_limited(
    scheme: Scheme,
    tokens: Tokens,
    ratio: torch.Tensor,
    *,
    positive_low: float,
    positive_high: float,
    negative_low: float,
    negative_high: float,
) -> torch.Tensor:
    """Of A > 0 the weight is 1 by default, which is no limit of the ratio but the lack of one."""
    good = (positive_low < positive_high) & ((ratio < positive_low) | (ratio > positive_high))
    bad = (ratio < negative_low) | (ratio > negative_high)
    return torch.where(tokens.advantage > 0, good, bad)


@part(
    "surrogate", "topr", source="TOPR, arXiv 2503.14286; SEEN-CODE (ROLL); sign of the advantage INFERRED",
    uses=["ratio"],
    ranges=dict.fromkeys(("positive_low", "positive_high", "negative_low", "negative_high"), NOT_NEGATIVE),
    capped=_negative_limited,
)  # fmt: skip
def topr(
    scheme: Scheme,
    tokens: Tokens,
    log_ratio: torch.Tensor,
    *,
    positive_low: float = 1.0,
    positive_high: float = 1.0,
    negative_low: float = 0.0,
    negative_high: float = 1.0,
) -> torch.Tensor:
    """-clip(ratio) A log p, with limits of their own for A > 0 (none: weight 1) and for A <= 0.

    The paper takes the ratio of the whole rollout (``rollout_product``), ROLL each token's.
    """
    ratio = log_ratio.detach().exp()
    good, bad = ratio.clamp(positive_low, positive_high), ratio.clamp(negative_low, negative_high)
    return -torch.where(tokens.advantage > 0, good, bad) * tokens.advantage * tokens.log_prob


TRUNCATION = {"truncation": (1.0, math.inf)}


def _truncated(
    scheme: Scheme, tokens: Tokens, ratio: torch.Tensor, *, truncation: float, gradient: str
) -> torch.Tensor:
    return ratio > truncation


DPPO = "DPPO, arXiv 2602.04879; SEEN-CODE (verl, whose truncation is 3 unless it is set)"


@part("surrogate", "dppo_tv", source=DPPO, uses=["clip_low", "clip_high"], ranges=TRUNCATION, capped=_truncated)
def dppo_tv(
    scheme: Scheme,
    tokens: Tokens,
    log_ratio: torch.Tensor,
    *,
    truncation: float = 20.0,
    gradient: Literal["log_prob", "ratio"] = "log_prob",
) -> torch.Tensor:
    """-min(ratio, truncation) A log p, masked by how far the token's probability has moved.

    Masked where A > 0 and the probability has risen by more than clip_high, or A <= 0 and it has
    fallen by more than clip_low.

    * ``gradient``: through ``log_prob``, with the truncated ratio as its weight (verl), or through the
      ``ratio`` itself (SkyRL), which is the same below ``truncation``, and none above.
    """
    moved = (tokens.log_prob.exp() - tokens.old_log_prob.exp()).detach()
    inside = torch.where(tokens.advantage > 0, moved <= scheme.clip_high, moved >= -scheme.clip_low)
    return _trusted(tokens, log_ratio, truncation, gradient, inside)


@part("surrogate", "dppo_kl", source=DPPO, uses=["clip_low", "clip_high"], ranges=TRUNCATION, capped=_truncated)
def dppo_kl(
    scheme: Scheme,
    tokens: Tokens,
    log_ratio: torch.Tensor,
    *,
    truncation: float = 20.0,
    gradient: Literal["log_prob", "ratio"] = "log_prob",
) -> torch.Tensor:
    """-min(ratio, truncation) A log p, masked by the KL of the token's probability against the rest.

    Masked where A > 0, the probability has risen and the KL is above clip_high, or A <= 0, it has
    fallen and the KL is above clip_low.

    * ``gradient``: as for ``dppo_tv``.
    """
    p, q = tokens.log_prob.detach().exp(), tokens.old_log_prob.exp()
    d = (tokens.log_prob - tokens.old_log_prob).detach()
    kl = -q * d + (1.0 - q) * torch.log((1.0 - q + 1e-8) / (1.0 - p + 1e-8))
    good = (kl <= scheme.clip_high) | (p <= q)
    bad = (kl <= scheme.clip_low) | (p >= q)
    return _trusted(tokens, log_ratio, truncation, gradient, torch.where(tokens.advantage > 0, good, bad))


def _trusted(
    tokens: Tokens, log_ratio: torch.Tensor, truncation: float, gradient: str, inside: torch.Tensor
) -> torch.Tensor:
    if gradient == "ratio":
        return -log_ratio.exp().clamp(max=truncation) * inside * tokens.advantage
    weight = log_ratio.detach().exp().clamp(max=truncation) * inside
    return -weight * tokens.advantage * tokens.log_prob


LOWEST_WEIGHT = math.log(1e-8)


@part(
    "surrogate", "vespo", source="VESPO, arXiv 2602.10693; SEEN-CODE (TRL)",
    ranges=dict.fromkeys(("power_positive", "decay_positive", "power_negative", "decay_negative"), NOT_NEGATIVE),
)  # fmt: skip
def vespo(
    scheme: Scheme,
    tokens: Tokens,
    log_ratio: torch.Tensor,
    *,
    power_positive: float = 2.0,
    decay_positive: float = 3.0,
    power_negative: float = 3.0,
    decay_negative: float = 2.0,
) -> torch.Tensor:
    """-phi(W) A log p with phi(W) = W^power exp(decay (1 - W)), W the product of the rollout's ratios.

    phi(1) = 1; weights of rollouts that have become much likelier or unlikelier vanish smoothly, and one that
    is not finite is 0. TRL adds the mismatch of a sampler to log W; here a correction multiplies the loss instead.
    """
    each = tokens.log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    log_w = tokens.rollout_sum(each).clamp(LOWEST_WEIGHT, MAX_LOG_RATIO)
    good = tokens.advantage >= 0
    power = pick(good, power_positive, power_negative, log_w)
    decay = pick(good, decay_positive, decay_negative, log_w).clamp(min=1e-4)
    phi = torch.exp(decay + power * log_w - decay * log_w.exp())
    phi = torch.where(phi.isfinite(), phi, torch.zeros_like(phi))
    return -phi * tokens.advantage * tokens.log_prob


@part(
    "surrogate",
    "dro",
    source="DRO; SEEN-CODE (verl). Kimi k1.5; SEEN-CODE (ROLL)",
    tags=["pulls_back"],
    ranges={"dro_beta": (1e-9, math.inf)},
)
def dro(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor, *, dro_beta: float = 0.1) -> torch.Tensor:
    """-A log p + beta / 2 (log ratio)^2: no clip; the square pulls back to the old policy.

    verl's -(A log p - beta / 2 d^2) and the form after Kimi k1.5, whose beta is called tau, are the same.
    """
    return -tokens.advantage * tokens.log_prob + dro_beta / 2.0 * tokens.log_ratio**2


def _groups(
    scheme: Scheme, batch: RolloutBatch, advantages: npt.NDArray[np.float64], *, gvpo_beta: float
) -> dict[str, FloatArray]:
    """Return of each turn's group its number, size and factor, of its rollout the advantage, and its share, (M,).

    The size n counts rollouts with tokens in the loss; the factor is n / (n - 1) / 2, and 0 for one rollout. Shares
    are of a rollout's turns with such tokens, and sum to 1.
    """
    mask, prompts = effective_mask(scheme, batch), batch.level("prompt")
    owner, rollouts = batch.turn_rollout, Segments(batch.turn_rollout, len(batch))
    tokens, written = tokens_in_loss(mask, batch), mask.any(axis=1).astype(float)
    credit = np.where(mask, advantages.reshape(len(advantages), -1), 0.0).sum(axis=1)
    size = prompts.sum((tokens > 0).astype(float))[prompts.ids]
    return {
        "prompt_id": prompts.ids[owner].astype(np.float64),
        "prompt_size": size[owner],
        "factor": divide(size, 2.0 * np.maximum(size - 1.0, 0.0))[owner],
        "rollout_advantage": divide(rollouts.sum(credit), tokens)[owner],
        "share": divide(written, rollouts.sum(written)[owner]),
    }


@part(
    "surrogate", "gvpo", source="GVPO, arXiv 2504.19599; SEEN-CODE (verl-recipe)", tags=["whole_groups", "pulls_back"],
    prepare=_groups, ranges={"gvpo_beta": POSITIVE},
)  # fmt: skip
def gvpo(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor, *, gvpo_beta: float = 0.1) -> torch.Tensor:
    """Fit the centred log-ratios of a group to its centred rewards, by least squares, (m, 1).

    With R = beta times the rollout's sum of log-ratios and A its advantage, which should be the
    reward less the group's mean, a rollout's loss is n / (n - 1) times (R - mean R - A)^2 / 2; the
    mean over the group's n rollouts has no gradient. Groups must not be cut by minibatches.
    """
    ids, n = tokens.columns["prompt_id"][:, 0].long(), tokens.columns["prompt_size"]
    each = gvpo_beta * tokens.log_ratio.sum(dim=1)
    of_turns = torch.stack([each.detach(), tokens.columns["share"][:, 0]], dim=1)
    # There are at most as many groups as rollouts.
    sums = of_turns.new_zeros(tokens.n_rollouts, 2).index_add(0, ids, of_turns)[ids]
    total, present = sums[:, :1], sums[:, 1:]
    if ((present - n).abs() > 0.5).any():
        raise ValueError("a minibatch cuts a group of rollouts; surrogate='gvpo' needs whole groups.")
    own = each.new_zeros(tokens.n_rollouts).index_add(0, tokens.owner, each)[tokens.owner].unsqueeze(1)
    error = own - (total / n.clamp(min=1) + tokens.columns["rollout_advantage"])
    return tokens.columns["factor"] * error * error
