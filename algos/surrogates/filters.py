"""Token filters: which tokens are left out of the loss besides masked ones.

Every function takes (scheme, tokens, log_ratio) and returns a factor for the losses, (m, L) or
(m, 1), or None for no filter. The denominators of the aggregation stay those of the whole batch.
"""

from __future__ import annotations

import torch

from algos.parts import part
from algos.scheme import Scheme
from algos.surrogates.tokens import Tokens


@part("token_filter", "none", source="-")
def none(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor) -> torch.Tensor | None:
    """Keep all tokens."""
    return None
