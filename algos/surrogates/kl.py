"""Estimators of KL(policy || reference) per token (Schulman, "Approximating KL divergence", 2020).

With d = log p - log p_reference at a token that the policy wrote. Every function takes
(scheme, tokens) and returns the penalty of every token, (m, L), with gradient, or None.
"""

from __future__ import annotations

import torch

from algos.parts import find, part
from algos.scheme import Scheme
from algos.surrogates.tokens import Tokens

MAX_DIFFERENCE = 20.0
"""d is cut here, as verl does, so that exp cannot overflow; beyond it there is no gradient."""


@part("kl", "none", source="-")
def none(scheme: Scheme, tokens: Tokens) -> torch.Tensor | None:
    """No penalty."""
    return None


@part("kl", "k1", source="Schulman 2020; SEEN-CODE (verl)", uses=["kl_coef"], needs=["reference_log_prob"])
def k1(scheme: Scheme, tokens: Tokens) -> torch.Tensor:
    """d: unbiased as a value.

    As a loss its gradient does not depend on the reference, and is zero on average on-policy. It is
    here for comparison.
    """
    return _difference(tokens)


@part("kl", "k2", source="Schulman 2020; SEEN-CODE (verl)", uses=["kl_coef"], needs=["reference_log_prob"])
def k2(scheme: Scheme, tokens: Tokens) -> torch.Tensor:
    """d^2 / 2: biased as a value; its gradient is the unbiased KL gradient on-policy."""
    return _difference(tokens) ** 2 / 2


@part("kl", "k3", source="DeepSeekMath, arXiv 2402.03300; SEEN-CODE", uses=["kl_coef"], needs=["reference_log_prob"])
def k3(scheme: Scheme, tokens: Tokens) -> torch.Tensor:
    """exp(-d) + d - 1: unbiased and never negative."""
    d = _difference(tokens)
    return torch.expm1(-d) + d


def kl_penalty(kind: str, log_prob: torch.Tensor, reference_log_prob: torch.Tensor) -> torch.Tensor:
    """Return the penalty of every token, outside a scheme."""
    mask = torch.ones_like(log_prob, dtype=torch.bool)
    tokens = Tokens(log_prob, log_prob, log_prob, mask, reference_log_prob=reference_log_prob)
    penalty: torch.Tensor = find("kl", kind).function(None, tokens)
    return penalty


def _difference(tokens: Tokens) -> torch.Tensor:
    if tokens.reference_log_prob is None:
        raise ValueError("reference_log_prob=None is not allowed with a KL penalty: give those of the reference.")
    d = tokens.log_prob - tokens.reference_log_prob.detach()
    return d.clamp(-MAX_DIFFERENCE, MAX_DIFFERENCE)
