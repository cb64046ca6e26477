"""Bounds of the ratio.

Every function takes (scheme, tokens, ratio) and returns (low, high): numbers, or tensors that
broadcast with the ratio (m, L) or (m, 1). Parts with the tag ``of_minibatch`` depend on which tokens
are in the minibatch.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from algos.advantages.scales import SPREAD
from algos.advantages.turns import normalised_gains
from algos.batch import RolloutBatch
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import FloatArray, Segments, divide
from algos.surrogates.aggregation import effective_mask
from algos.surrogates.tokens import Tokens

Bound = float | torch.Tensor
WIDTHS = ("clip_low", "clip_high")


@part("bounds", "fixed", source="PPO, arXiv 1707.06347; DAPO, arXiv 2503.14476; SEEN-CODE", uses=WIDTHS)
def fixed(scheme: Scheme, tokens: Tokens, ratio: torch.Tensor) -> tuple[Bound, Bound]:
    """The same for all tokens: 1 - clip_low and 1 + clip_high."""
    return 1.0 - scheme.clip_low, 1.0 + scheme.clip_high


@part(
    "bounds", "absolute", source="CISPO in TRL and ms-swift; SEEN-CODE (TRL)",
    ranges={"ratio_min": (0.0, 1.0), "ratio_max": (0.0, math.inf)},
)  # fmt: skip
def absolute(
    scheme: Scheme, tokens: Tokens, ratio: torch.Tensor, *, ratio_min: float = 0.0, ratio_max: float = 5.0
) -> tuple[Bound, Bound]:
    """The same for all tokens, given as ratios instead of offsets from 1; by default only from above."""
    return ratio_min, ratio_max


def _room(scheme: Scheme, batch: RolloutBatch, advantages: npt.NDArray[np.float64]) -> dict[str, FloatArray]:
    """Return how much of its upper room each turn gets, (M,) in [0, 1]."""
    groups, environments = batch.level("prompt"), batch.level("environment")
    counted, reward = batch.counted, batch.outcome
    size = groups.sum(counted.astype(float))[groups.ids]
    low, high = np.full(environments.size, np.inf), np.full(environments.size, -np.inf)
    np.minimum.at(low, environments.ids[counted], reward[counted])
    np.maximum.at(high, environments.ids[counted], reward[counted])
    spread = np.where(high > low, high - low, 0.0)[environments.ids]
    most = divide(size - 1.0, size) * spread
    centred = reward - groups.mean(reward, counted.astype(float))[groups.ids]
    share = np.where(counted, np.clip(divide(centred, np.maximum(most, 0.0)), 0.0, 1.0), 0.0)
    return {"room": share[batch.turn_rollout]}


@part(
    "bounds", "advantage",
    source="GAPO, arXiv 2609.00444; SEEN-NOTE; graded rewards and groups of one INFERRED", uses=WIDTHS, prepare=_room,
    tags=["of_rollouts"],
)  # fmt: skip
def by_advantage(scheme: Scheme, tokens: Tokens, ratio: torch.Tensor) -> tuple[Bound, Bound]:
    """Widen the upper bound from clip_low to clip_high with the rollout's lead over its group.

    The share of the room is (r - mean) / ((k - 1) / k range), in [0, 1], with k the group's size and
    the range of the environment's rewards in the batch: (k - c) / (k - 1) for a success among c of k
    with rewards 0 and 1. The lower bound is 1 - clip_low; rollouts below the mean, and groups of
    one, have 1 + clip_low as the upper one. It does not depend on how the advantage is scaled.
    """
    room = tokens.columns["room"]
    return 1.0 - scheme.clip_low, 1.0 + scheme.clip_low + (scheme.clip_high - scheme.clip_low) * room


def _gain_factor(
    scheme: Scheme, batch: RolloutBatch, advantages: npt.NDArray[np.float64], *, gain_room: float
) -> dict[str, FloatArray]:
    """Return c = 1 + gain_room (2 sigmoid(z) - 1) per turn, (M,), 1 at answers."""
    gain, _ = normalised_gains(scheme, batch, pool="turn")
    return {"clip_factor": 1.0 + gain_room * np.tanh(gain / 2.0)}


@part(
    "bounds", "information_gain", source="A2TGPO, arXiv 2605.06200; SEEN-PAPER + SEEN-CODE",
    uses=[*WIDTHS, *SPREAD], needs=["information_gain"], prepare=_gain_factor, ranges={"gain_room": (0.0, 1.0)},
    tags=["of_rollouts"],
)  # fmt: skip
def by_information_gain(
    scheme: Scheme, tokens: Tokens, ratio: torch.Tensor, *, gain_room: float = 0.3
) -> tuple[Bound, Bound]:
    """Widen both bounds at turns that gained more information than others of the same index.

    Both widths are multiplied by 1 + gain_room (2 sigmoid(z) - 1), z the turn's own normalised gain.
    """
    factor = tokens.columns["clip_factor"]
    return 1.0 - scheme.clip_low * factor, 1.0 + scheme.clip_high * factor


@part(
    "bounds", "prior", source="DCPO, arXiv 2509.02333; SEEN-CODE", uses=WIDTHS,
    ranges={"prior_cap": (1.0, math.inf)},
)  # fmt: skip
def by_prior(scheme: Scheme, tokens: Tokens, ratio: torch.Tensor, *, prior_cap: float = 10.0) -> tuple[Bound, Bound]:
    """Widen the bounds of tokens that were unlikely when they were written.

    With q the old probability: low = (1 + sqrt(max(1 - 4 clip_low / q, 0))) / 2,
    high = (1 + sqrt(1 + 4 clip_high / q)) / 2, at most ``prior_cap``.
    """
    q = tokens.old_log_prob.exp().clamp(min=torch.finfo(tokens.old_log_prob.dtype).tiny)
    low = (1.0 + (1.0 - 4.0 * scheme.clip_low / q).clamp(min=0.0).sqrt()) / 2.0
    high = (1.0 + (1.0 + 4.0 * scheme.clip_high / q).sqrt()) / 2.0
    return low, high.clamp(max=prior_cap)


@part(
    "bounds", "search", source="BAPO, arXiv 2510.18927; SEEN-CODE (official)", tags=["of_minibatch"],
    ranges={
        "low_start": (0.0, 1.0), "low_end": (0.0, 1.0), "high_start": (1.0, math.inf), "high_end": (1.0, math.inf),
        "search_step": (1e-3, math.inf), "balance": (0.0, math.inf),
    },
)  # fmt: skip
def by_search(
    scheme: Scheme,
    tokens: Tokens,
    ratio: torch.Tensor,
    *,
    low_start: float = 0.6,
    low_end: float = 0.9,
    high_start: float = 1.2,
    high_end: float = 3.0,
    search_step: float = 0.05,
    balance: float = 0.5,
) -> tuple[Bound, Bound]:
    """Move the minibatch's bounds until its positive part is at least ``balance`` times its negative one.

    First the lower bound rises by steps to its end, then the upper one. The parts are the sums of
    min(ratio, high) A over A > 0 and of max(ratio, low) |A| over A < 0; without a negative part the
    search stops at once.
    """
    credit, ratio = tokens.credit, ratio.detach()
    gains, costs = credit.clamp(min=0.0), (-credit).clamp(min=0.0)
    lows, highs = _steps(low_start, low_end, search_step), _steps(high_start, high_end, search_step)
    # All steps at once; both parts grow from step to step, so the first that suffices is where to stop.
    cost = (torch.maximum(ratio, ratio.new_tensor(lows)[:, None, None]) * costs).sum(dim=(1, 2))
    gain = (torch.minimum(ratio, ratio.new_tensor(highs)[:, None, None]) * gains).sum(dim=(1, 2))
    balanced = (gain[0] >= balance * cost).tolist()
    if any(balanced):
        return lows[balanced.index(True)], high_start
    balanced = (gain >= balance * cost[-1]).tolist()
    return lows[-1], highs[balanced.index(True)] if any(balanced) else highs[-1]


def _steps(start: float, end: float, step: float) -> list[float]:
    """Return start, start + step, ..., the last one cut to the end."""
    steps = [start]
    while steps[-1] < end:
        steps.append(min(steps[-1] + step, end))
    return steps


@part(
    "bounds", "second_moment", source="M2PO, arXiv 2510.01161; SEEN-CODE (official)", uses=WIDTHS,
    tags=["of_minibatch"], ranges={"moment_max": (0.0, math.inf)},
)  # fmt: skip
def by_second_moment(
    scheme: Scheme, tokens: Tokens, ratio: torch.Tensor, *, moment_max: float = 0.04
) -> tuple[Bound, Bound]:
    """Clip only so much that the minibatch's harmful tokens keep a mean squared log-ratio within a limit.

    Harmful are tokens that have already moved the way that their advantage pushes them (A > 0 and
    ratio > 1, A < 0 and ratio < 1). Their log-ratios are cut at the largest one with which the mean
    is within ``moment_max``; the bounds are exp of plus and minus that, and at least as wide as
    clip_low and clip_high.
    """
    log_ratio = ratio.detach().log().expand_as(tokens.mask)
    harmful = tokens.mask & (tokens.credit * log_ratio > 0)
    width = second_moment_width(log_ratio[harmful], moment_max)
    return min(math.exp(-width), 1.0 - scheme.clip_low), max(math.exp(width), 1.0 + scheme.clip_high)


LARGEST_WIDTH = 80.0
"""exp of this is finite in single precision: a bound that never binds."""


def second_moment_width(log_ratio: torch.Tensor, moment_max: float) -> float:
    """Return the largest |log-ratio| (n,) at which cutting all keeps their mean square within a limit."""
    square = (log_ratio**2).sort().values
    n = len(square)
    if n == 0 or float(square.mean()) <= moment_max:
        return LARGEST_WIDTH
    later = torch.arange(n - 1, -1, -1, device=square.device)
    fits = square.cumsum(0) + square * later <= moment_max * n
    return float(square[fits].max().sqrt()) if bool(fits.any()) else 0.0


def _low_entropy(
    scheme: Scheme, batch: RolloutBatch, advantages: npt.NDArray[np.float64], *, entropy_quantile: float, **_: float
) -> dict[str, FloatArray]:
    """Return (M, L) 1 at tokens up to the quantile of their rollout's entropies."""
    mask, entropy = effective_mask(scheme, batch), batch.column("entropy")
    owner = np.broadcast_to(batch.turn_rollout[:, None], mask.shape)
    threshold = np.zeros(len(batch))
    rollouts = Segments(owner.ravel(), len(batch))
    for segments, rows in rollouts.matrices(mask.ravel()):
        threshold[segments] = np.quantile(entropy.ravel()[rows], entropy_quantile, axis=1)
    return {"low_entropy": (mask & (entropy <= threshold[owner])).astype(np.float64)}


@part(
    "bounds", "entropy", source="ASPO, arXiv 2510.06062 (Archer2.0); SEEN-CODE; ties INFERRED", uses=WIDTHS,
    needs=["entropy"], prepare=_low_entropy,
    ranges={"entropy_quantile": (0.0, 1.0), "high_entropy_clip": (0.0, 1.0)},
)  # fmt: skip
def by_entropy(
    scheme: Scheme,
    tokens: Tokens,
    ratio: torch.Tensor,
    *,
    entropy_quantile: float = 0.8,
    high_entropy_clip: float = 0.4,
) -> tuple[Bound, Bound]:
    """Give tokens above a quantile of their rollout's entropies wider bounds, on both sides."""
    low = tokens.columns["low_entropy"]
    return (
        1.0 - high_entropy_clip + (high_entropy_clip - scheme.clip_low) * low,
        1.0 + high_entropy_clip + (scheme.clip_high - high_entropy_clip) * low,
    )
