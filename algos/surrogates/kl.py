"""Estimators of KL(policy || reference) per token (Schulman, "Approximating KL divergence", 2020).

With d = log p - log p_reference at a token that the policy wrote:

* ``k1`` = d: unbiased as a value; as a loss its gradient does not depend on the reference, and is
  zero on average on-policy. It is here for comparison.
* ``k2`` = d^2 / 2: biased as a value; its gradient is the unbiased KL gradient on-policy.
* ``k3`` = exp(-d) + d - 1: unbiased and never negative (DeepSeekMath, arXiv 2402.03300).
"""

from __future__ import annotations

import torch

MAX_DIFFERENCE = 20.0
"""d is cut here, as verl does, so that exp cannot overflow; beyond it there is no gradient."""


def kl_penalty(kind: str, log_prob: torch.Tensor, reference_log_prob: torch.Tensor) -> torch.Tensor:
    """Return the penalty of every token, with gradient to ``log_prob``."""
    d = (log_prob - reference_log_prob.detach()).clamp(-MAX_DIFFERENCE, MAX_DIFFERENCE)
    if kind == "k1":
        return d
    if kind == "k2":
        return d**2 / 2
    return torch.expm1(-d) + d
