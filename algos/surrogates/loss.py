"""The policy loss: of a minibatch inside the trainer, and of a whole batch without it."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import torch

from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.parts import find
from algos.scheme import Scheme, SchemeLike, make_scheme
from algos.surrogates.aggregation import counts_minibatches, effective_mask, token_weights
from algos.surrogates.corrections import without_rejected
from algos.surrogates.kl import coefficient, in_loss
from algos.surrogates.ratios import MAX_LOG_RATIO
from algos.surrogates.tokens import Tokens


def token_losses(scheme: Scheme, tokens: Tokens, kl_coef: float | None = None) -> torch.Tensor:
    """Return the loss of every token, (m, L) or (m, 1), to be minimised.

    Args:
        scheme: the choices.
        tokens: of a minibatch.
        kl_coef: weight of a KL penalty in the loss, where it has moved from the scheme's.
    """
    losses = _policy_losses(scheme, tokens)
    if not in_loss(scheme):
        return losses
    return losses + (scheme.kl_coef if kl_coef is None else kl_coef) * scheme.run("kl", tokens)


def _policy_losses(scheme: Scheme, tokens: Tokens) -> torch.Tensor:
    """Return the losses without a KL penalty."""
    log_ratio = scheme.run("ratio", tokens)
    losses: torch.Tensor = scheme.run("surrogate", tokens, log_ratio)
    m, length = tokens.mask.shape
    # A sum over tokens would be spread over all of them, silently.
    if losses.shape not in ((m, 1), (m, length)):
        raise ValueError(
            f"surrogate={scheme.surrogate!r} returned the shape {tuple(losses.shape)}; it must be one loss per token, "
            f"{(m, length)}, or per turn, {(m, 1)}."
        )
    if scheme.token_filter != "none":
        losses = losses * scheme.run("token_filter", tokens, log_ratio)
    if scheme.correction != "none":
        losses = losses * scheme.run("correction", tokens)
    return losses


def prepared_columns(
    scheme: Scheme, batch: RolloutBatch, advantages: npt.NDArray[np.float64], rollouts: RolloutBatch | None = None
) -> dict[str, torch.Tensor]:
    """Return what the scheme's parts prepare for a whole update, name -> (M, 1) or (M, L) float32.

    Args:
        scheme: has the parts.
        batch: its tokens are those in the loss.
        advantages: (M,) or (M, L).
        rollouts: the same with all tokens that were written, for parts that compare rollouts or turns; by
            default the batch.
    """
    rollouts = batch if rollouts is None else rollouts
    columns: dict[str, torch.Tensor] = {}
    for chosen in scheme.parts:
        if chosen.prepare is not None:
            seen = rollouts if "of_rollouts" in chosen.tags else batch
            for name, values in chosen.prepare(scheme, seen, advantages, **scheme.options_of(chosen)).items():
                columns[name] = as_float32(values.reshape(len(values), -1))
    return columns


def policy_loss(
    scheme: SchemeLike,
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: npt.ArrayLike | torch.Tensor,
    batch: RolloutBatch,
    reference_log_prob: torch.Tensor | None = None,
    behaviour_log_prob: torch.Tensor | None = None,
    memory: Memory | None = None,
    turns: npt.ArrayLike | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """Compute the loss to minimise.

    What is masked may hold anything; it changes neither values nor gradients.

    For micro-batches give the ``turns`` that ``log_prob`` is of, and everything else of the whole batch: the
    losses of the parts, and their gradients, add up to those of the whole. Exceptions are what looks at a
    minibatch, and sees the micro-batch (``bapo``, ``m2po``, ``clip_cov``, ``kl_cov``, the token filter
    ``second_moment``), and ``tokens_of=minibatch``, where every micro-batch is a mean of its own.

    Args:
        scheme: a recipe name, a ``Scheme``, or a recipe with overrides.
        log_prob: (M, L) current log-probabilities of the tokens, with gradient; of the ``turns`` only if
            these are given.
        old_log_prob: (M, L) those of the policy that the ratio is taken to: the one that wrote the
            tokens, unless ``behaviour_log_prob`` says otherwise.
        advantages: (M,) per turn, or (M, L) per token.
        batch: the rollouts; its token mask and valid rollouts decide what is in the loss.
        reference_log_prob: (M, L) those of the reference policy, for schemes with a KL penalty in the
            loss; one in the reward is taken from the batch's rewards by ``surrogates.kl.penalised``.
        behaviour_log_prob: (M, L) those of the policy that wrote the tokens, for schemes with a
            correction.
        memory: keeps the coefficient of a KL penalty with a ``kl_target``, which follows what
            ``surrogates.kl.observe`` sees before and ``update_memory`` after each update; without one
            it is ``kl_coef``.
        turns: (m,) rising rows of turns, or (M,) bool, of whole rollouts; ``log_prob`` is (m, L) then. None
            is all.

    Returns:
        A scalar tensor and the metrics ``clip_fraction_low``, ``clip_fraction_high`` and
        ``clip_fraction`` (share of the tokens from which the surrogate takes the gradient or, where it
        limits weights only, a part of the weight, with a ratio below 1, above, and both),
        ``ratio_mean``, ``ratio_max``, ``approx_kl`` (k3 to the policy that wrote the tokens),
        ``effective_sample_size`` (share of the tokens), ``saturation`` (share of the tokens with an
        advantage whose loss has no gradient) and, with a KL penalty in the loss, ``kl`` (its mean),
        over the tokens in the loss.

    Raises:
        TypeError: if log-probabilities are no tensors.
        ValueError: if a shape is wrong, a log-probability or advantage in the loss is not finite,
            the reference is missing or not wanted, or ``turns`` cut a rollout.
    """
    chosen = make_scheme(scheme)
    _check_tensors(
        log_prob=log_prob, old_log_prob=old_log_prob, reference_log_prob=reference_log_prob,
        behaviour_log_prob=behaviour_log_prob,
    )  # fmt: skip
    if (reference_log_prob is not None) != in_loss(chosen):
        given = "not given" if reference_log_prob is None else "given"
        raise ValueError(f"reference_log_prob is {given}, but kl={chosen.kl!r}: it is for a KL penalty only.")
    if (behaviour_log_prob is None) != (chosen.correction == "none"):
        given = "not given" if behaviour_log_prob is None else "given"
        raise ValueError(f"behaviour_log_prob is {given}, but correction={chosen.correction!r}.")
    shape = batch.token_mask.shape
    part = _whole_rollouts(batch, turns)
    mask = torch.as_tensor(effective_mask(chosen, batch), device=log_prob.device)
    # Half precision is too coarse for weights such as 1 / number of tokens.
    precision = torch.promote_types(log_prob.dtype, torch.float32)
    tensors = {
        "old_log_prob": old_log_prob.detach(),
        "reference_log_prob": None if reference_log_prob is None else reference_log_prob.detach(),
        "behaviour_log_prob": None if behaviour_log_prob is None else behaviour_log_prob.detach(),
        "advantages": _credit(advantages, shape, precision, log_prob.device),
    }
    kept = {name: _kept(name, t, shape, mask, precision) for name, t in tensors.items() if t is not None}
    credit = kept.pop("advantages")
    values = credit.double().cpu().numpy()
    if np.ndim(advantages) == 1:
        # Every turn's, at its first token that is not masked: there are zeros at those that are.
        values = np.take_along_axis(values, mask.cpu().numpy().argmax(axis=1)[:, None], axis=1)[:, 0]
    rollouts = batch
    batch = without_rejected(chosen, batch, kept["old_log_prob"], kept.get("behaviour_log_prob"))
    mask = torch.as_tensor(effective_mask(chosen, batch), device=log_prob.device)
    prepared = prepared_columns(chosen, batch, values, rollouts)
    weights = torch.as_tensor(token_weights(chosen, batch), dtype=precision, device=log_prob.device)[part]
    if turns is not None and counts_minibatches(chosen):
        weights = weights / weights.sum().clamp(min=torch.finfo(precision).tiny)
    mask = mask[part]
    tokens = Tokens(
        _kept("log_prob", log_prob, tuple(mask.shape), mask, precision),
        advantage=torch.where(mask, credit[part], 0.0),
        mask=mask,
        rollout=torch.as_tensor(batch.turn_rollout, device=log_prob.device)[part],
        n_rollouts=len(batch),
        columns={name: column.to(credit)[part] for name, column in prepared.items()},
        **{name: torch.where(mask, tensor[part], 0.0) for name, tensor in kept.items()},
    )
    losses = token_losses(chosen, tokens, None if memory is None else coefficient(chosen, memory))
    # Selecting before summing: padding must not even change the rounding.
    return (weights[mask] * losses.expand_as(mask)[mask]).sum(), loss_metrics(chosen, tokens)


def _whole_rollouts(batch: RolloutBatch, turns: npt.ArrayLike | None) -> slice | torch.Tensor:
    """Return which rows of the batch's turns are meant.

    Raises:
        ValueError: if they are no rows, or a rollout is cut.
    """
    if turns is None:
        return slice(None)
    given = np.asarray(turns)
    rows = np.flatnonzero(given) if given.dtype == np.bool_ and given.shape == (batch.n_turns,) else given
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or (np.diff(rows.astype(np.int64)) <= 0).any():
        raise ValueError(
            f"turns has shape {given.shape} and type {given.dtype}; it must be rising rows (m,), or bool of shape "
            f"{(batch.n_turns,)}."
        )
    if len(rows) and not 0 <= rows.min() <= rows.max() < batch.n_turns:
        raise ValueError(f"turns must be in [0, {batch.n_turns - 1}]; they are from {rows.min()} to {rows.max()}.")
    chosen = np.bincount(batch.turn_rollout[rows], minlength=len(batch))
    cut = np.flatnonzero((chosen > 0) & (chosen < batch.turns_per_rollout))
    if len(cut):
        raise ValueError(
            f"turns has {chosen[cut[0]]} of the {batch.turns_per_rollout[cut[0]]} turns of rollout {cut[0]}; rollouts "
            "must be whole."
        )
    return torch.from_numpy(rows.astype(np.int64))


def _check_tensors(**given: object) -> None:
    for name, tensor in given.items():
        if not isinstance(tensor, torch.Tensor) and (tensor is not None or name in ("log_prob", "old_log_prob")):
            raise TypeError(f"{name} is of type {type(tensor).__name__}; it must be a torch.Tensor.")


def _credit(
    advantages: npt.ArrayLike | torch.Tensor, shape: tuple[int, ...], precision: torch.dtype, device: torch.device
) -> torch.Tensor:
    credit = torch.as_tensor(advantages, dtype=precision, device=device).detach()
    credit = credit[:, None] if credit.ndim == 1 else credit
    if credit.ndim != 2 or credit.shape[0] != shape[0] or credit.shape[1] not in (1, shape[1]):
        raise ValueError(f"advantages have shape {tuple(credit.shape)}; they must be {shape[:1]} or {shape}.")
    return credit.expand(*shape)


def _kept(
    name: str, tensor: torch.Tensor, shape: tuple[int, ...], mask: torch.Tensor, precision: torch.dtype
) -> torch.Tensor:
    """Check a tensor and put 0 where it is masked: what is there may be anything."""
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it must have the token mask's, {shape}.")
    if not torch.isfinite(tensor[mask]).all():
        raise ValueError(f"{name} has values that are not finite among the tokens in the loss.")
    return torch.where(mask, tensor.to(precision), torch.zeros((), dtype=precision, device=tensor.device))


METRICS = (
    "clip_fraction_low", "clip_fraction_high", "clip_fraction", "ratio_mean", "ratio_max", "approx_kl",
    "effective_sample_size", "saturation",
)  # fmt: skip


def loss_metrics(scheme: Scheme, tokens: Tokens, slope: torch.Tensor | None = None) -> dict[str, float]:
    """Summarise the tokens in the loss; only clips that bind are counted, whatever the surrogate.

    Args:
        scheme: the choices.
        tokens: of a minibatch.
        slope: (m, L) gradient of the loss to the log-probabilities where it is known; else, and with a
            KL penalty in the loss, it is computed.
    """
    mask = tokens.mask
    n = int(mask.sum())
    if n == 0:
        return dict.fromkeys((*METRICS, "kl") if in_loss(scheme) else METRICS, 0.0)
    if slope is None or in_loss(scheme):
        slope = _slope(scheme, tokens)
    with torch.no_grad():
        log_ratio = scheme.run("ratio", tokens).expand_as(mask)
        ratio, advantage = log_ratio.exp(), tokens.advantage.expand_as(mask)
        live = mask & (advantage != 0)
        bound = live & _bound(scheme, tokens, log_ratio, ratio, slope)
        low, high = (bound & (ratio < 1)).sum() / n, (bound & (ratio >= 1)).sum() / n
        behaviour = tokens.old_log_prob if tokens.behaviour_log_prob is None else tokens.behaviour_log_prob
        difference = (tokens.log_prob - behaviour).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)[mask]
        # expm1, because ratio - 1 would lose small differences to rounding.
        k3 = (torch.expm1(difference) - difference).clamp(min=0.0).mean()
        ratio = ratio[mask]
        ess = ratio.sum() ** 2 / (ratio**2).sum() / n
        saturated = (live & (slope == 0)).sum() / live.sum().clamp(min=1)
        values = torch.stack([low, high, low + high, ratio.mean(), ratio.max(), k3, ess, saturated]).tolist()
        metrics = dict(zip(METRICS, values, strict=True))
        if in_loss(scheme):
            metrics["kl"] = float(scheme.run("kl", tokens)[mask].mean())
    return metrics


def _bound(
    scheme: Scheme, tokens: Tokens, log_ratio: torch.Tensor, ratio: torch.Tensor, slope: torch.Tensor
) -> torch.Tensor:
    """Say which tokens (m, L) a clip takes the gradient or a part of their weight from."""
    bound = slope == 0
    # What filters and corrections leave out, no clip has touched.
    if scheme.token_filter != "none":
        bound = bound & (scheme.run("token_filter", tokens, log_ratio) != 0)
    if scheme.correction != "none":
        bound = bound & (scheme.run("correction", tokens) != 0)
    surrogate = find("surrogate", scheme.surrogate)
    if surrogate.capped is not None:
        bound = bound | surrogate.capped(scheme, tokens, ratio, **scheme.options_of(surrogate))
    return bound


def _slope(scheme: Scheme, tokens: Tokens) -> torch.Tensor:
    """Return the gradient (m, L) of the losses, a KL penalty aside, to the log-probabilities."""
    leaf = tokens.log_prob.detach().requires_grad_()
    with torch.enable_grad():
        losses = _policy_losses(scheme, dataclasses.replace(tokens, log_prob=leaf)).expand_as(tokens.mask)
        (slope,) = torch.autograd.grad(losses, leaf, tokens.mask.to(losses.dtype))
    return slope


def as_float32(values: npt.NDArray[np.float64]) -> torch.Tensor:
    """Convert statistics to the network's precision."""
    return torch.from_numpy(values.astype(np.float32))
