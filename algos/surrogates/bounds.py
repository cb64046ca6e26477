"""Bounds of the ratio.

Every function takes (scheme, tokens, ratio) and returns (low, high): numbers, or tensors that
broadcast with the ratio (m, L) or (m, 1).
"""

from __future__ import annotations

import torch

from algos.parts import part
from algos.scheme import Scheme
from algos.surrogates.tokens import Tokens

Bound = float | torch.Tensor


@part(
    "bounds", "fixed", source="PPO, arXiv 1707.06347; DAPO, arXiv 2503.14476; SEEN-CODE", uses=["clip_low", "clip_high"]
)
def fixed(scheme: Scheme, tokens: Tokens, ratio: torch.Tensor) -> tuple[Bound, Bound]:
    """The same for all tokens: 1 - clip_low and 1 + clip_high."""
    return 1.0 - scheme.clip_low, 1.0 + scheme.clip_high
