"""Corrections for tokens that another policy wrote than the one that the ratio is taken to.

Every function takes (scheme, tokens) and returns a factor for the losses, (m, L) or (m, 1),
without gradient, or None for no correction.
"""

from __future__ import annotations

import torch

from algos.parts import part
from algos.scheme import Scheme
from algos.surrogates.tokens import Tokens


@part("correction", "none", source="-")
def none(scheme: Scheme, tokens: Tokens) -> torch.Tensor | None:
    """Take the policy that wrote the tokens as the old one: the ratio itself corrects."""
    return None
