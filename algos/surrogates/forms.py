"""Surrogate losses per token: functions of log-probabilities and advantages."""

from __future__ import annotations

import torch

from algos.scheme import Scheme

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here so that exp cannot overflow (as verl does)."""


def token_losses(
    scheme: Scheme, log_prob: torch.Tensor, old_log_prob: torch.Tensor, advantage: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of every token, to be minimised, and the ratio, both of ``log_prob``'s shape.

    Args:
        scheme: which surrogate and which bounds.
        log_prob: current log-probabilities, with gradient.
        old_log_prob: those of the policy that wrote the tokens.
        advantage: broadcastable to ``log_prob``.
    """
    ratio = (log_prob - old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    if scheme.surrogate == "reinforce":
        return -advantage * log_prob, ratio
    return ppo_clip(ratio, advantage, scheme.clip_low, scheme.clip_high, scheme.dual_clip), ratio


def ppo_clip(
    ratio: torch.Tensor, advantage: torch.Tensor, low: float, high: float, dual: float | None
) -> torch.Tensor:
    """PPO's clipped loss (arXiv 1707.06347) with separate bounds (DAPO, arXiv 2503.14476).

    With ``dual`` the loss for negative advantages is at most ``-dual * advantage`` (Dual-clip PPO,
    arXiv 1912.09729).
    """
    loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1.0 - low, 1.0 + high))
    if dual is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -dual * advantage), loss)
    return loss
