"""Surrogate losses per token: functions of log-probabilities and advantages."""

from __future__ import annotations

import torch

from algos.scheme import Scheme
from algos.surrogates.kl import kl_penalty

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here so that exp cannot overflow (as verl does)."""


def token_losses(
    scheme: Scheme,
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantage: torch.Tensor,
    reference_log_prob: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of every token, to be minimised, and the ratio, both of ``log_prob``'s shape.

    Args:
        scheme: which surrogate and which bounds.
        log_prob: current log-probabilities, with gradient.
        old_log_prob: those of the policy that wrote the tokens.
        advantage: broadcastable to ``log_prob``.
        reference_log_prob: those of the reference policy, for schemes with a KL penalty only.

    Raises:
        ValueError: if the reference is missing, or given for a scheme without a KL penalty.
    """
    if (reference_log_prob is None) != (scheme.kl == "none"):
        given = "not given" if reference_log_prob is None else "given"
        raise ValueError(f"reference_log_prob is {given}, but kl={scheme.kl!r}: it is for a KL penalty only.")
    ratio = (log_prob - old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    if scheme.surrogate == "reinforce":
        losses = -advantage * log_prob
    else:
        losses = ppo_clip(ratio, advantage, scheme.clip_low, scheme.clip_high, scheme.dual_clip)
    if reference_log_prob is not None:
        losses = losses + scheme.kl_coef * kl_penalty(scheme.kl, log_prob, reference_log_prob)
    return losses, ratio


def ppo_clip(ratio: torch.Tensor, advantage: torch.Tensor, low: float, high: float, dual: float | None) -> torch.Tensor:
    """PPO's clipped loss (arXiv 1707.06347) with separate bounds (DAPO, arXiv 2503.14476).

    With ``dual`` the loss for negative advantages is at most ``-dual * advantage`` (Dual-clip PPO,
    arXiv 1912.09729).
    """
    cost = -advantage
    loss = torch.maximum(cost * ratio, cost * ratio.clamp(1.0 - low, 1.0 + high))
    if dual is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -dual * advantage), loss)
    return loss
