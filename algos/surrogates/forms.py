"""Surrogates: the loss of every token.

Every function takes (scheme, tokens, log_ratio) and returns losses (m, L), to be minimised.
"""

from __future__ import annotations

import torch

from algos.parts import part
from algos.scheme import Scheme
from algos.surrogates.bounds import Bound
from algos.surrogates.tokens import Tokens

CLIPPED = ("ratio", "bounds")


@part("surrogate", "ppo_clip", source="PPO, arXiv 1707.06347; SEEN-CODE", uses=[*CLIPPED, "dual_clip"])
def ppo_clip(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor) -> torch.Tensor:
    """PPO's clipped loss, with the scheme's bounds and dual clip."""
    ratio = log_ratio.exp()
    low, high = scheme.run("bounds", tokens, ratio)
    return clipped(ratio, tokens.advantage, low, high, scheme.dual_clip)


def clipped(
    ratio: torch.Tensor, advantage: torch.Tensor, low: Bound, high: Bound, dual: float | None = None
) -> torch.Tensor:
    """Return max(-ratio A, -clip(ratio, low, high) A).

    With ``dual`` the loss for negative advantages is at most ``-dual * advantage`` (Dual-clip PPO,
    arXiv 1912.09729).
    """
    cost = -advantage
    loss = torch.maximum(cost * ratio, cost * clamp(ratio, low, high))
    if dual is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -dual * advantage), loss)
    return loss


def clamp(ratio: torch.Tensor, low: Bound, high: Bound) -> torch.Tensor:
    """Clip with bounds that are numbers or tensors, each its own."""
    if isinstance(low, torch.Tensor) or isinstance(high, torch.Tensor):
        return torch.minimum(torch.maximum(ratio, _tensor(low, ratio)), _tensor(high, ratio))
    return ratio.clamp(low, high)


def _tensor(bound: Bound, like: torch.Tensor) -> torch.Tensor:
    return bound if isinstance(bound, torch.Tensor) else like.new_tensor(bound)


@part("surrogate", "reinforce", source="Williams 1992; textbook")
def reinforce(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor) -> torch.Tensor:
    """-A log p: no ratio, no clip."""
    return -tokens.advantage * tokens.log_prob
