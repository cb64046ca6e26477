"""Importance ratios: over which tokens the ratio to the old policy is taken.

Every function takes (scheme, tokens) and returns the log-ratio, (m, L) or (m, 1), with gradient. It
is cut at ``max_log_ratio``, so that exp cannot overflow; beyond it there is no gradient.
"""

from __future__ import annotations

from typing import Literal

import torch

from algos.parts import part
from algos.scheme import Scheme
from algos.surrogates.tokens import Tokens

MAX_LOG_RATIO = 20.0
"""Where log-ratios are cut by default (as verl does)."""
CUT = {"max_log_ratio": (0.0, 80.0)}
Gradient = Literal["own", "shared"]


@part("ratio", "token", source="PPO, arXiv 1707.06347; SEEN-CODE", ranges=CUT)
def token(scheme: Scheme, tokens: Tokens, *, max_log_ratio: float = MAX_LOG_RATIO) -> torch.Tensor:
    """Each token's own."""
    return (tokens.log_prob - tokens.old_log_prob).clamp(-max_log_ratio, max_log_ratio)


@part(
    "ratio", "turn_mean", source="AT2PO, arXiv 2601.04767; A2TGPO, arXiv 2605.06200; SEEN-PAPER + SEEN-CODE", ranges=CUT
)
def turn_mean(
    scheme: Scheme, tokens: Tokens, *, gradient: Gradient = "shared", max_log_ratio: float = MAX_LOG_RATIO
) -> torch.Tensor:
    """Take the geometric mean over the turn's tokens; ``gradient`` as for ``rollout_mean``."""
    return _carried(tokens, tokens.turn_mean(tokens.log_ratio), gradient).clamp(max=max_log_ratio)


@part("ratio", "rollout_mean", source="GSPO, arXiv 2507.18071; SEEN-CODE (verl, TRL)", ranges=CUT)
def rollout_mean(
    scheme: Scheme, tokens: Tokens, *, gradient: Gradient = "shared", max_log_ratio: float = MAX_LOG_RATIO
) -> torch.Tensor:
    """Take the geometric mean over all tokens of the rollout, across its turns.

    * ``gradient``: ``shared``: the mean's true gradient, which every token of the rollout gets a share
      of; ``own``: the value of the mean with each token's own gradient (GSPO-token; verl). Where
      advantage and weight are equal over the mean's tokens, both give the same gradient.
    """
    return _carried(tokens, tokens.rollout_mean(tokens.log_ratio), gradient).clamp(max=max_log_ratio)


@part("ratio", "rollout_product", source="TRL's RLOO; TOPR, arXiv 2503.14286; SEEN-CODE", ranges=CUT)
def rollout_product(scheme: Scheme, tokens: Tokens, *, max_log_ratio: float = MAX_LOG_RATIO) -> torch.Tensor:
    """Multiply the ratios of all tokens of the rollout: unbiased, and of huge variance in long rollouts."""
    return tokens.rollout_sum(tokens.log_ratio).clamp(-max_log_ratio, max_log_ratio)


def _carried(tokens: Tokens, mean: torch.Tensor, gradient: Gradient) -> torch.Tensor:
    """Return the mean (m, 1), or (m, L) its value with the tokens' own gradients."""
    if gradient == "shared":
        return mean
    return mean.detach() + (tokens.log_prob - tokens.log_prob.detach())
