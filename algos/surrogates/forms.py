"""Surrogates: the loss of every token.

Every function takes (scheme, tokens, log_ratio) and returns losses (m, L) or (m, 1), to be
minimised. Factors on log p have no gradient of their own.
"""

from __future__ import annotations

import math

import torch

from algos.parts import part
from algos.scheme import Scheme
from algos.surrogates.bounds import Bound
from algos.surrogates.ratios import CUT, MAX_LOG_RATIO
from algos.surrogates.tokens import Tokens

CLIPPED = ("ratio", "bounds")


@part(
    "surrogate", "ppo_clip", source="PPO, arXiv 1707.06347; SEEN-CODE; ratio_cap: INTELLECT-2, TRL's delta; SEEN-CODE",
    uses=[*CLIPPED, "dual_clip"], ranges={"ratio_cap": (1.0, math.inf)},
)  # fmt: skip
def ppo_clip(
    scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor, *, ratio_cap: float | None = None
) -> torch.Tensor:
    """PPO's clipped loss, with the scheme's bounds and dual clip.

    * ``ratio_cap``: the ratio that is not clipped is at most this, for both signs of the advantage
      (two-sided clipping; INTELLECT-2 has 4).
    """
    ratio = log_ratio.exp()
    low, high = scheme.run("bounds", tokens, ratio.detach())
    if ratio_cap is not None and isinstance(high, float) and ratio_cap <= high:
        raise ValueError(f"ratio_cap={ratio_cap!r} is not allowed: it must be above the upper bound, {high}.")
    return clipped(ratio, tokens.advantage, low, high, scheme.dual_clip, ratio_cap)


def clipped(
    ratio: torch.Tensor,
    advantage: torch.Tensor,
    low: Bound,
    high: Bound,
    dual: float | None = None,
    cap: float | None = None,
) -> torch.Tensor:
    """Return max(-ratio A, -clip(ratio, low, high) A).

    With ``dual`` the loss for negative advantages is at most ``-dual * advantage`` (Dual-clip PPO,
    arXiv 1912.09729). With ``cap`` the first ratio is at most that.
    """
    cost = -advantage
    free = cost * (ratio if cap is None else ratio.clamp(max=cap))
    # Where this is the larger one, the ratio is beyond a bound, and bounds have no gradient.
    bounded = cost * clamp(ratio.detach(), low, high)
    loss = torch.where(free >= bounded, free, bounded)
    if dual is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -dual * advantage), loss)
    return loss


def clamp(ratio: torch.Tensor, low: Bound, high: Bound) -> torch.Tensor:
    """Clip with bounds that are numbers or tensors, each its own."""
    if isinstance(low, torch.Tensor) or isinstance(high, torch.Tensor):
        return ratio.clamp(_tensor(low, ratio), _tensor(high, ratio))
    if not low <= high:
        raise ValueError(f"bounds={(low, high)} are not allowed: the lower must not be above the upper one.")
    return ratio.clamp(low, high)


def _tensor(bound: Bound, like: torch.Tensor) -> torch.Tensor:
    return bound if isinstance(bound, torch.Tensor) else like.new_tensor(bound)


@part("surrogate", "reinforce", source="Williams 1992; textbook")
def reinforce(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor) -> torch.Tensor:
    """-A log p: no ratio, no clip."""
    return -tokens.advantage * tokens.log_prob


def outside(scheme: Scheme, tokens: Tokens, ratio: torch.Tensor) -> torch.Tensor:
    """Say which ratios (m, L) are outside the scheme's bounds."""
    low, high = scheme.run("bounds", tokens, ratio)
    return (ratio < low) | (ratio > high)


@part(
    "surrogate", "cispo", source="CISPO in MiniMax-M1, arXiv 2506.13585; SEEN-CODE (verl, TRL)", uses=CLIPPED,
    capped=outside,
)  # fmt: skip
def cispo(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor) -> torch.Tensor:
    """-clip(ratio) A log p: the clipped ratio is only a weight, so every token keeps a gradient.

    Bounds are offsets from 1 (clip_low=1, clip_high=4: [0, 5]); ``bounds="absolute"`` takes ratios.
    """
    ratio = log_ratio.detach().exp()
    return -clamp(ratio, *scheme.run("bounds", tokens, ratio)) * tokens.advantage * tokens.log_prob


def pick(condition: torch.Tensor, yes: float, no: float, like: torch.Tensor) -> torch.Tensor:
    """Choose between two numbers, in the precision of a tensor."""
    return torch.where(condition, like.new_tensor(yes), like.new_tensor(no))


POSITIVE = (1e-6, math.inf)


@part(
    "surrogate", "sapo", source="SAPO, arXiv 2511.20347; SEEN-CODE (verl, TRL)", uses=["ratio"],
    ranges={"tau_positive": POSITIVE, "tau_negative": POSITIVE},
)  # fmt: skip
def sapo(
    scheme: Scheme,
    tokens: Tokens,
    log_ratio: torch.Tensor,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
) -> torch.Tensor:
    """-A (4 / tau) sigmoid(tau (ratio - 1)): a soft gate, of slope 1 at ratio 1, instead of a clip."""
    tau = pick(tokens.advantage > 0, tau_positive, tau_negative, tokens.advantage)
    return -tokens.advantage * 4.0 / tau * torch.sigmoid(tau * (log_ratio.exp() - 1.0))


@part(
    "surrogate", "gmpo", source="GMPO, arXiv 2507.20673; SEEN-CODE (verl's geo_mean)", uses=["clip_low", "clip_high"],
    ranges=CUT,
)  # fmt: skip
def gmpo(
    scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor, *, max_log_ratio: float = MAX_LOG_RATIO
) -> torch.Tensor:
    """-A times the geometric mean over the rollout of ratios that are clipped one by one, (m, 1).

    Log-ratios are clipped to [-clip_low, clip_high] where that makes the objective smaller: from
    above for A > 0, from below for A < 0; their mean is cut at ``max_log_ratio``. A is the mean over
    the rollout's tokens.
    """
    sign, d = tokens.credit.sign(), tokens.log_ratio
    free, bounded = sign * d, sign * d.detach().clamp(-scheme.clip_low, scheme.clip_high)
    kept = sign * torch.where(free <= bounded, free, bounded)
    mean = tokens.rollout_totals(kept) / tokens.rollout_counts.clamp(min=1)
    ratio = mean.clamp(max=max_log_ratio).exp()
    return (-tokens.rollout_credit * ratio)[tokens.owner].unsqueeze(1)


WIDTH = (0.0, 1.0)


@part(
    "surrogate", "abc", source="ABC-GRPO, arXiv 2601.03895; SEEN-PAPER", uses=CLIPPED,
    ranges={"negative_clip_low": WIDTH, "negative_clip_high": (0.0, math.inf)},
)  # fmt: skip
def abc(
    scheme: Scheme,
    tokens: Tokens,
    log_ratio: torch.Tensor,
    *,
    negative_clip_low: float = 0.2,
    negative_clip_high: float = 0.2,
) -> torch.Tensor:
    """-clip(ratio) A without a minimum: no gradient outside the bounds, whichever way the ratio moved.

    The scheme's bounds are for A > 0; A <= 0 has its own widths.
    """
    ratio = log_ratio.exp()
    for_good = clamp(ratio, *scheme.run("bounds", tokens, ratio))
    for_bad = ratio.clamp(1.0 - negative_clip_low, 1.0 + negative_clip_high)
    return -torch.where(tokens.advantage > 0, for_good, for_bad) * tokens.advantage


def _above_soft_dual_clip(
    scheme: Scheme, tokens: Tokens, ratio: torch.Tensor, *, soft_dual_clip: float
) -> torch.Tensor:
    return torch.where(tokens.advantage >= 0, 1.0 / ratio, ratio) > soft_dual_clip


@part(
    "surrogate", "aspo", source="ASPO, arXiv 2510.06062 (Archer2.0); SEEN-CODE", uses=CLIPPED,
    ranges={"soft_dual_clip": (1.0, math.inf)}, capped=_above_soft_dual_clip,
)  # fmt: skip
def aspo(scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor, *, soft_dual_clip: float = 3.0) -> torch.Tensor:
    """Weigh tokens with A >= 0 by 1 / ratio instead of the ratio, so that unlikely ones gain more.

    A >= 0: the gradient of log p has the weight 1 / ratio, 0 above the upper bound. A < 0: the ratio,
    0 below the lower bound. Weights above ``soft_dual_clip`` are set to it, and keep their gradient.
    """
    ratio, advantage = log_ratio.exp(), tokens.advantage
    low, high = scheme.run("bounds", tokens, ratio)
    above, below = ratio.clamp(max=high), ratio.clamp(min=low)
    flipped = above / above.detach() ** 2
    weight = torch.where(advantage >= 0, flipped, below)
    capped = soft_dual_clip * tokens.log_prob
    return -advantage * torch.where(weight.detach() > soft_dual_clip, capped, weight)
