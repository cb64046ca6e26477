"""Importance ratios: over which tokens the ratio to the old policy is taken.

Every function takes (scheme, tokens) and returns the log-ratio, (m, L) or (m, 1), with gradient.
"""

from __future__ import annotations

import torch

from algos.parts import part
from algos.scheme import Scheme
from algos.surrogates.tokens import Tokens

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here so that exp cannot overflow (as verl does)."""


@part("ratio", "token", source="PPO, arXiv 1707.06347; SEEN-CODE")
def token(scheme: Scheme, tokens: Tokens) -> torch.Tensor:
    """Each token's own."""
    return (tokens.log_prob - tokens.old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
