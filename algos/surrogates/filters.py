"""Token filters: which tokens are left out of the loss besides masked ones.

Every function takes (scheme, tokens, log_ratio) and returns a factor for the losses, (m, L) or
(m, 1), or None for no filter. The denominators of the aggregation stay those of the whole batch.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from algos.batch import RolloutBatch
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import FloatArray
from algos.surrogates.aggregation import effective_mask
from algos.surrogates.tokens import Tokens


@part("token_filter", "none", source="-")
def none(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor) -> torch.Tensor | None:
    """Keep all tokens."""
    return None


@part(
    "token_filter", "off_policy", source="DeepSeek-V3.2's off-policy sequence mask; SEEN-CODE (TRL, slime)",
    ranges={"drift_max": (0.0, math.inf)},
)  # fmt: skip
def off_policy(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor, *, drift_max: float = 0.5) -> torch.Tensor:
    """Leave rollouts with negative advantage out that the policy has moved far away from.

    That is where the mean over the rollout's tokens of log p_behaviour - log p is above
    ``drift_max``; without a correction the old policy is the one that wrote.
    """
    written = tokens.old_log_prob if tokens.behaviour_log_prob is None else tokens.behaviour_log_prob
    moved = torch.where(tokens.mask, written - tokens.log_prob, torch.zeros_like(written)).detach()
    drift = tokens.rollout_mean(moved)
    return 1.0 - ((tokens.advantage < 0) & (drift > drift_max)).to(drift.dtype)


def _top_entropy(
    scheme: Scheme, batch: RolloutBatch, advantages: npt.NDArray[np.float64], *, entropy_share: float
) -> dict[str, FloatArray]:
    mask, entropy = effective_mask(scheme, batch), batch.column("entropy")
    threshold = np.quantile(entropy[mask], 1.0 - entropy_share) if mask.any() else 0.0
    return {"top_entropy": (mask & (entropy >= threshold)).astype(np.float64)}


@part(
    "token_filter", "top_entropy", source="arXiv 2506.01939 (80/20 rule); SEEN-CODE (TRL's top_entropy_quantile)",
    needs=["entropy"], prepare=_top_entropy, ranges={"entropy_share": (0.0, 1.0)},
)  # fmt: skip
def top_entropy(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor, *, entropy_share: float = 0.2) -> torch.Tensor:
    """Keep the tokens that were written with the highest entropy: this share of the update's tokens.

    TRL takes the quantile over the entropies of the present minibatch; here it is over those at the
    time of writing of the whole update, so that minibatches add up.
    """
    return tokens.columns["top_entropy"]


@part(
    "token_filter", "second_moment", source="M2PO, arXiv 2510.01161, in AReaL's form; SEEN-CODE (AReaL)",
    tags=["of_minibatch"], ranges={"moment_max": (0.0, math.inf)},
)  # fmt: skip
def second_moment(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor, *, moment_max: float = 0.04) -> torch.Tensor:
    """Leave the tokens with the largest squared log-ratios out, until the mean of the rest is below a limit.

    The log-ratio is that of the old policy to the one that wrote, where these differ, else that of
    the present policy to the old one. At least one token is kept. Depends on the minibatch.
    """
    ratio = tokens.log_prob - tokens.old_log_prob
    if tokens.behaviour_log_prob is not None:
        ratio = tokens.old_log_prob - tokens.behaviour_log_prob
    square = (ratio.detach() ** 2)[tokens.mask]
    kept = torch.zeros_like(square)
    if len(square):
        order = torch.argsort(square, stable=True)
        mean = square[order].cumsum(0) / torch.arange(1, len(square) + 1, device=square.device)
        kept[order[: max(int((mean < moment_max).sum()), 1)]] = 1.0
    result = torch.zeros_like(tokens.old_log_prob)
    result[tokens.mask] = kept
    return result
