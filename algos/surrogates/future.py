"""FIPO: tokens are weighed by how the tokens after them have moved. See ``forms`` for what a surrogate is."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from algos.parts import part
from algos.scheme import Scheme
from algos.surrogates.forms import CLIPPED, clipped
from algos.surrogates.ratios import MAX_LOG_RATIO
from algos.surrogates.tokens import Tokens

POSITIVE = (1e-6, math.inf)


@part(
    "surrogate", "fipo", source="FIPO, arXiv 2603.19835; SEEN-CODE (ms-swift); distance across turns INFERRED",
    uses=[*CLIPPED, "dual_clip"],
    ranges={
        "half_life": POSITIVE, "influence_low": (0.0, 1.0), "influence_high": (1.0, math.inf),
        "outlier_ratio": POSITIVE, "unsafe_ratio": POSITIVE, "unsafe_low": (0.0, 1.0),
    },
)  # fmt: skip
def fipo(
    scheme: Scheme,
    tokens: Tokens,
    log_ratio: torch.Tensor,
    *,
    half_life: float = 32.0,
    influence_low: float = 1.0,
    influence_high: float = 1.2,
    outlier_ratio: float | None = None,
    unsafe_ratio: float = 4.0,
    unsafe_low: float = 0.8,
) -> torch.Tensor:
    """PPO's clipped loss times exp(F), cut to [influence_low, influence_high], without gradient.

    F is the sum of the log-ratios of this and the rollout's later tokens, each discounted by 1/2 per
    ``half_life`` tokens of the policy; tokens with a ratio above ``outlier_ratio`` count 0. Where
    A < 0 and the ratio is above ``unsafe_ratio`` the weight is cut to [unsafe_low, 1].
    """
    ratio = log_ratio.exp()
    low, high = scheme.run("bounds", tokens, ratio)
    losses = clipped(ratio, tokens.advantage, low, high, scheme.dual_clip)
    own = tokens.log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    counted = own if outlier_ratio is None else torch.where(own.exp() > outlier_ratio, torch.zeros_like(own), own)
    future = discounted_future(tokens, counted, 2.0 ** (-1.0 / half_life))
    weight = future.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().clamp(influence_low, influence_high)
    unsafe = (tokens.advantage < 0) & (own > math.log(unsafe_ratio))
    return losses * torch.where(unsafe, weight.clamp(unsafe_low, 1.0), weight)


def discounted_future(tokens: Tokens, values: torch.Tensor, discount: float) -> torch.Tensor:
    """Return (m, L) the discounted sum of values over this and the rollout's later tokens; 0 where masked.

    In NumPy, which starts operations on few numbers sooner; nothing here has a gradient.
    """
    owner, each = tokens.owner.cpu().numpy(), values.cpu().numpy()
    turn, slot = tokens.mask.cpu().numpy().nonzero()
    order = owner[turn].argsort(kind="stable")
    turn, slot = turn[order], slot[order]
    rollout = owner[turn]
    count = np.bincount(rollout, minlength=tokens.n_rollouts)
    place = np.arange(len(turn)) - (count.cumsum() - count)[rollout]
    width = int(count.max(initial=0))
    padded = np.zeros((tokens.n_rollouts, width), dtype=each.dtype)
    padded[rollout, place] = each[turn, slot]
    result = np.zeros_like(each)
    result[turn, slot] = (padded @ _powers(width, discount, each.dtype))[rollout, place]
    return torch.from_numpy(result).to(values.device)


@functools.lru_cache(maxsize=64)
def _powers(width: int, discount: float, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return (width, width) the discount of what token i counts for token j <= i, and 0 for j > i."""
    steps = np.arange(width)
    distance = steps[:, None] - steps[None, :]
    powers = np.where(distance >= 0, float(discount) ** np.maximum(distance, 0), 0.0).astype(dtype)
    powers.setflags(write=False)
    return powers
