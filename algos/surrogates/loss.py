"""The policy loss of a whole batch, usable without the trainer."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from algos.batch import RolloutBatch
from algos.scheme import Scheme, SchemeLike, make_scheme
from algos.surrogates.aggregation import effective_mask, token_weights
from algos.surrogates.forms import MAX_LOG_RATIO, token_losses
from algos.surrogates.kl import kl_penalty


def policy_loss(
    scheme: SchemeLike,
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: npt.ArrayLike | torch.Tensor,
    batch: RolloutBatch,
    reference_log_prob: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """Compute the loss to minimise.

    What is masked may hold anything; it changes neither values nor gradients.

    Args:
        scheme: a recipe name, a ``Scheme``, or a recipe with overrides.
        log_prob: (M, L) current log-probabilities of the tokens, with gradient.
        old_log_prob: (M, L) those of the policy that wrote them.
        advantages: (M,) per turn, or (M, L) per token.
        batch: the rollouts; its token mask and valid rollouts decide what is in the loss.
        reference_log_prob: (M, L) those of the reference policy, for schemes with a KL penalty.

    Returns:
        A scalar tensor and the metrics ``clip_fraction_low``, ``clip_fraction_high``,
        ``clip_fraction``, ``ratio_mean``, ``ratio_max``, ``approx_kl`` (k3 to the policy that wrote
        the tokens), ``effective_sample_size`` (share of the tokens) and, with a KL penalty, ``kl``
        (its mean), over the tokens in the loss.

    Raises:
        ValueError: if a shape is wrong, a log-probability or advantage in the loss is not finite,
            or the reference is missing or not wanted.
    """
    chosen = make_scheme(scheme)
    shape = batch.token_mask.shape
    tensors = {"log_prob": log_prob, "old_log_prob": old_log_prob.detach()}
    if reference_log_prob is not None:
        tensors["reference_log_prob"] = reference_log_prob.detach()
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it must have the token mask's, {shape}.")
    # Half precision is too coarse for weights such as 1 / number of tokens.
    precision = torch.promote_types(log_prob.dtype, torch.float32)
    credit = torch.as_tensor(advantages, dtype=precision, device=log_prob.device).detach()
    credit = credit[:, None] if credit.ndim == 1 else credit
    if credit.ndim != 2 or credit.shape[0] != shape[0] or credit.shape[1] not in (1, shape[1]):
        raise ValueError(f"advantages have shape {tuple(credit.shape)}; they must be {shape[:1]} or {shape}.")
    tensors["advantages"] = credit.expand(*shape)
    mask = torch.as_tensor(effective_mask(chosen, batch), device=log_prob.device)
    # Selecting, not multiplying: what is masked may hold anything.
    kept = {name: tensor[mask].to(precision) for name, tensor in tensors.items()}
    for name, values in kept.items():
        if not torch.isfinite(values).all():
            raise ValueError(f"{name} has values that are not finite among the tokens in the loss.")
    new, old, reference = kept["log_prob"], kept["old_log_prob"], kept.get("reference_log_prob")
    losses, ratio = token_losses(chosen, new, old, kept["advantages"], reference)
    weights = torch.as_tensor(token_weights(chosen, batch), dtype=precision, device=log_prob.device)
    loss = (weights[mask] * losses).sum()
    metrics = loss_metrics(chosen, ratio.detach(), new.detach() - old, kept["advantages"])
    if reference is not None:
        penalty = kl_penalty(chosen.kl, new.detach(), reference)
        metrics["kl"] = float(penalty.mean()) if penalty.numel() else 0.0
    return loss, metrics


METRICS = (
    "clip_fraction_low", "clip_fraction_high", "clip_fraction", "ratio_mean", "ratio_max", "approx_kl",
    "effective_sample_size",
)  # fmt: skip


def loss_metrics(
    scheme: Scheme, ratio: torch.Tensor, log_ratio: torch.Tensor, advantage: torch.Tensor
) -> dict[str, float]:
    """Summarise the tokens in the loss (one dimension); only clips that bind are counted."""
    n = ratio.numel()
    if n == 0:
        return dict.fromkeys(METRICS, 0.0)
    ratio = ratio.clamp(max=math.exp(MAX_LOG_RATIO))
    clips = scheme.surrogate == "ppo_clip"
    low = ((advantage < 0) & (ratio < 1.0 - scheme.clip_low)).sum() / n * clips
    high = ((advantage > 0) & (ratio > 1.0 + scheme.clip_high)).sum() / n * clips
    difference = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    # expm1, because ratio - 1 would lose small differences to rounding.
    k3 = (torch.expm1(difference) - difference).clamp(min=0.0).mean()
    ess = ratio.sum() ** 2 / (ratio**2).sum() / n
    values = torch.stack([low, high, low + high, ratio.mean(), ratio.max(), k3, ess]).tolist()
    return dict(zip(METRICS, values, strict=True))


def as_float32(values: npt.NDArray[np.float64]) -> torch.Tensor:
    """Convert statistics to the network's precision."""
    return torch.from_numpy(values.astype(np.float32))
