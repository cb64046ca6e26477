"""The policy loss of a whole batch, usable without the trainer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from algos.batch import RolloutBatch
from algos.scheme import Scheme, SchemeLike, make_scheme
from algos.surrogates.aggregation import effective_mask, token_weights
from algos.surrogates.forms import token_losses


def policy_loss(
    scheme: SchemeLike,
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: npt.ArrayLike | torch.Tensor,
    batch: RolloutBatch,
) -> tuple[torch.Tensor, dict[str, float]]:
    """Compute the loss to minimise.

    Args:
        scheme: a recipe name, a ``Scheme``, or a recipe with overrides.
        log_prob: (M, L) current log-probabilities of the tokens, with gradient.
        old_log_prob: (M, L) those of the policy that wrote them.
        advantages: (M,) per turn, or (M, L) per token.
        batch: the rollouts; its token mask and valid rollouts decide what is in the loss.

    Returns:
        A scalar tensor and the metrics ``clip_fraction_low``, ``clip_fraction_high``,
        ``clip_fraction``, ``ratio_mean``, ``ratio_max``, ``approx_kl`` (k3) and
        ``effective_sample_size`` (share of the tokens), over the tokens in the loss.

    Raises:
        ValueError: if a shape is wrong, or a log-probability or advantage in the loss is not finite.
    """
    chosen = make_scheme(scheme)
    shape = batch.token_mask.shape
    for name, tensor in (("log_prob", log_prob), ("old_log_prob", old_log_prob)):
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; it must have the token mask's, {shape}."
            )
    advantage = torch.as_tensor(advantages, dtype=log_prob.dtype, device=log_prob.device)
    advantage = advantage[:, None] if advantage.ndim == 1 else advantage
    if advantage.shape[0] != shape[0] or advantage.shape[1] not in (1, shape[1]):
        raise ValueError(
            f"advantages have shape {tuple(advantage.shape)}; they must be {shape[:1]} or {shape}."
        )
    mask = torch.as_tensor(effective_mask(chosen, batch), device=log_prob.device)
    weights = torch.as_tensor(token_weights(chosen, batch), dtype=log_prob.dtype, device=log_prob.device)
    # Selecting, not multiplying: what is masked may hold anything.
    new, old = log_prob[mask], old_log_prob.detach()[mask]
    credit = advantage.expand(*shape)[mask]
    for name, values in (("log_prob", new), ("old_log_prob", old), ("advantages", credit)):
        if not torch.isfinite(values).all():
            raise ValueError(f"{name} has values that are not finite among the tokens in the loss.")
    losses, ratio = token_losses(chosen, new, old, credit)
    # An empty selection has a zero loss that still depends on log_prob, so that backward works.
    loss = (weights[mask] * losses).sum() if new.numel() else log_prob[mask].sum()
    return loss, loss_metrics(chosen, ratio.detach(), new.detach() - old, credit)


def loss_metrics(
    scheme: Scheme, ratio: torch.Tensor, log_ratio: torch.Tensor, advantage: torch.Tensor
) -> dict[str, float]:
    """Summarise the tokens in the loss (one dimension); only clips that bind are counted."""
    n = ratio.numel()
    if n == 0:
        names = (
            "clip_fraction_low",
            "clip_fraction_high",
            "clip_fraction",
            "ratio_mean",
            "ratio_max",
            "approx_kl",
        )
        return {**dict.fromkeys(names, 0.0), "effective_sample_size": 0.0}
    clips = scheme.surrogate == "ppo_clip"
    low = ((advantage < 0) & (ratio < 1.0 - scheme.clip_low)).sum() * clips
    high = ((advantage > 0) & (ratio > 1.0 + scheme.clip_high)).sum() * clips
    k3 = (ratio - 1.0 - log_ratio).mean()
    ess = ratio.sum() ** 2 / (ratio**2).sum() / n
    values = torch.stack([low / n, high / n, ratio.mean(), ratio.max(), k3, ess]).tolist()
    names = ("clip_fraction_low", "clip_fraction_high", "ratio_mean", "ratio_max", "approx_kl")
    metrics = dict(zip(names, values[:5], strict=True))
    return metrics | {"clip_fraction": values[0] + values[1], "effective_sample_size": values[5]}


def as_float32(values: npt.NDArray[np.float64]) -> torch.Tensor:
    """Convert statistics to the network's precision."""
    return torch.from_numpy(values.astype(np.float32))
