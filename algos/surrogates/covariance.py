"""Surrogates that restrain the few tokens that drive the entropy down (arXiv 2505.22617).

Those are tokens whose log-probability and advantage go together: cov = (A - mean A) (log p - mean
log p), means over the minibatch's tokens. Both losses depend on the minibatch. See ``forms`` for
what a surrogate is.
"""

from __future__ import annotations

import math

import torch

from algos.parts import part
from algos.scheme import Scheme
from algos.surrogates.forms import CLIPPED, clamp
from algos.surrogates.tokens import Tokens

SHARE = (0.0, 1.0)


@part(
    "surrogate", "clip_cov", source="Clip-Cov, arXiv 2505.22617; SEEN-CODE (verl)", uses=CLIPPED,
    tags=["of_minibatch"], ranges={"cov_share": SHARE},
)  # fmt: skip
def clip_cov(
    scheme: Scheme,
    tokens: Tokens,
    log_ratio: torch.Tensor,
    *,
    cov_share: float = 2e-4,
    cov_low: float = 1.0,
    cov_high: float = 5.0,
) -> torch.Tensor:
    """PPO's clipped loss without a random few of the tokens whose covariance is in a band.

    Of the tokens with cov_low < cov < cov_high whose ratio is not clipped, ``cov_share`` of all
    tokens (at least one) are drawn. The draw is a fixed function of their number: the order of
    rollouts within a minibatch is random already.
    """
    ratio, cost = log_ratio.exp(), -tokens.advantage
    low, high = scheme.run("bounds", tokens, ratio.detach())
    free, bounded = cost * ratio, cost * clamp(ratio.detach(), low, high)
    unclipped = free >= bounded
    losses = torch.where(unclipped, free, bounded).expand_as(tokens.mask)
    cov = covariance(tokens)
    candidates = (tokens.mask & unclipped & (cov > cov_low) & (cov < cov_high)).nonzero()
    if len(candidates) == 0:
        return losses
    n = min(max(int(cov_share * int(tokens.mask.sum())), 1), len(candidates))
    order = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(0))[:n]
    keep = torch.ones_like(losses)
    keep[tuple(candidates[order.to(candidates.device)].T)] = 0.0
    return losses * keep


@part(
    "surrogate", "kl_cov", source="KL-Cov, arXiv 2505.22617; SEEN-CODE (verl; its yaml has kl_cov_coef 0.1)",
    uses=["ratio"], tags=["of_minibatch", "pulls_back"], ranges={"kl_cov_share": SHARE, "kl_cov_coef": (0.0, math.inf)},
)  # fmt: skip
def kl_cov(
    scheme: Scheme,
    tokens: Tokens,
    log_ratio: torch.Tensor,
    *,
    kl_cov_share: float = 2e-4,
    kl_cov_coef: float = 1.0,
) -> torch.Tensor:
    """-ratio A, not clipped, plus kl_cov_coef |log ratio| at the tokens with the largest covariance.

    These are ``kl_cov_share`` of all tokens, at least one.
    """
    losses = (-tokens.advantage * log_ratio.exp()).expand_as(tokens.mask)
    cov = covariance(tokens)[tokens.mask]
    chosen = torch.zeros_like(cov)
    chosen[cov.topk(min(max(int(kl_cov_share * len(cov)), 1), len(cov))).indices] = kl_cov_coef
    weight = torch.zeros_like(tokens.old_log_prob)
    weight[tokens.mask] = chosen
    return losses + weight * log_ratio.abs()


def covariance(tokens: Tokens) -> torch.Tensor:
    """Return each token's part (m, L) in the covariance of advantage and log-probability."""
    mask, log_prob = tokens.mask, tokens.log_prob.detach()
    n = mask.sum().clamp(min=1)
    means = [torch.where(mask, values, torch.zeros_like(values)).sum() / n for values in (tokens.credit, log_prob)]
    return (tokens.credit - means[0]) * (log_prob - means[1])
