"""From a scheme and a batch to advantages: signal (with baseline and scale), weights, whitening."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from algos import parts
from algos.advantages.levels import whiten
from algos.advantages.table import Table
from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.scheme import Scheme, SchemeLike, make_scheme
from algos.segments import FloatArray, Segments, divide
from algos.surrogates.kl import adapt


def advantages(scheme: SchemeLike, batch: RolloutBatch, memory: Memory | None = None) -> FloatArray:
    """Compute the advantage of every turn.

    Rollouts that are invalid or could not be scored leave no trace: they enter no statistic and
    get 0.

    Args:
        scheme: a recipe name, a ``Scheme``, or a recipe with overrides, see ``make_scheme``.
        batch: the rollouts.
        memory: what the scheme remembers of earlier updates, see ``update_memory``; without one it
            remembers nothing.

    Returns:
        float64 array (M,), shared by all tokens of a turn; (M, L) for schemes that credit tokens, and where
        the batch has a ``token_penalty``.

    Raises:
        ValueError: if the scheme needs a column that the batch does not have, or that is not finite
            where it is read, or a part returns something of another shape, or not finite.
        TypeError: if a part returns no array.
    """
    # Dropping what does not matter, as make_scheme does, would cost a trainer more than some credit does.
    chosen = scheme if isinstance(scheme, Scheme) else make_scheme(scheme)
    _warn_of_levels(chosen, batch)
    if memory is None:
        _warn_of_memory(chosen)
        memory = Memory()
    per_turn = _is_per_turn("signal", chosen.signal)
    credit = _checked(chosen, "signal", chosen.run("signal", batch, memory), batch, per_turn)
    if not per_turn and _is_per_turn("weights", chosen.weights):
        credit, per_turn = credit[batch.turn_rollout], True
    credit = _checked(chosen, "weights", chosen.run("weights", credit, Table(batch, memory, per_turn)), batch, per_turn)
    if batch.token_penalty is not None:
        credit, per_turn = _less_penalty(credit if per_turn else credit[batch.turn_rollout], batch), True
    if chosen.whitening != "none":
        credit = _whitened(chosen, credit, batch, per_turn)
    return credit if per_turn else credit[batch.turn_rollout]


def _checked(scheme: Scheme, axis: str, credit: Any, batch: RolloutBatch, per_turn: bool) -> FloatArray:
    """Return what a part has returned; parts may be anybody's.

    Raises:
        TypeError: if it is no array.
        ValueError: if it has another shape than its axis' or is not finite.
    """
    name = f"{axis}={getattr(scheme, axis)!r}"
    if not isinstance(credit, np.ndarray):
        raise TypeError(f"{name} returned {type(credit).__name__}; it must return a NumPy array.")
    shapes = [(batch.n_turns,), batch.token_mask.shape] if per_turn else [(len(batch),)]
    if credit.shape not in shapes:
        wanted = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"{name} returned the shape {credit.shape}; it must be {wanted}.")
    if not np.isfinite(credit).all():
        raise ValueError(f"{name} returned {credit[~np.isfinite(credit)][0]}; all values must be finite.")
    return credit


def update_memory(scheme: SchemeLike, batch: RolloutBatch, memory: Memory) -> None:
    """Let the scheme remember a batch; to be called after each update on it.

    Args:
        scheme: as in ``advantages``.
        batch: the rollouts of the update.
        memory: changed in place.
    """
    chosen = scheme if isinstance(scheme, Scheme) else make_scheme(scheme)
    for part in chosen.parts:
        if part.after_update is not None:
            part.after_update(chosen, batch, memory, **chosen.options_of(part))
    adapt(chosen, memory)


def _warn_of_memory(scheme: Scheme) -> None:
    keeping = [f"{part.axis}={part.name!r}" for part in scheme.parts if part.after_update is not None]
    if scheme.kl_target is not None:
        keeping.append(f"kl_target={scheme.kl_target:g}")
    if keeping:
        warnings.warn(
            f"memory: {' and '.join(keeping)} remembers earlier updates, and starts anew at every call. Give the same "
            "Memory() at every call, and call update_memory(scheme, batch, memory) after each update.",
            stacklevel=3,
        )


def _warn_of_levels(scheme: Scheme, batch: RolloutBatch) -> None:
    for field in ("baseline", "scale", "whitening"):
        level = getattr(scheme, field)
        if level in batch.assumed:
            warnings.warn(
                f"{level}: not given, so all rollouts count as one {level}, and {field}={level!r} is that of the "
                f"batch. Give RolloutBatch.from_arrays(..., {level}=ids).",
                stacklevel=3,
            )


def _is_per_turn(axis: str, name: str) -> bool:
    """Whether a part returns (M,) or (M, L) instead of (N,)."""
    return "per_turn" in parts.find(axis, name).tags


def _less_penalty(credit: FloatArray, batch: RolloutBatch) -> FloatArray:
    """Take tokens' own penalties (M, L) from credit, (M,) or (M, L)."""
    counted = batch.token_mask & batch.counted[batch.turn_rollout][:, None]
    return np.asarray(credit.reshape(batch.n_turns, -1) - np.where(counted, batch.column("token_penalty"), 0.0))


def _whitened(scheme: Scheme, credit: FloatArray, batch: RolloutBatch, per_turn: bool) -> FloatArray:
    """Whiten rollouts (N,), turns (M,) or tokens (M, L); ``whitening_weight`` says what counts once."""
    turns, tokens = batch.written_turns, batch.tokens_per_rollout
    kind, level = scheme.whitening_weight, batch.level(scheme.whitening)
    if not per_turn:
        counts = {"rollout": (turns > 0).astype(np.float64), "turn": turns, "token": tokens}
        return whiten(scheme, credit, level, counts[kind] * batch.counted)
    owner = batch.turn_rollout
    mask = batch.token_mask if credit.ndim == 2 else batch.written
    # What one row shares its rollout's or its turn's weight with.
    shares = {
        "rollout": tokens[owner] if credit.ndim == 2 else turns[owner],
        "turn": batch.tokens_per_turn.astype(float) if credit.ndim == 2 else np.ones(len(owner)),
        "token": np.ones(len(owner)),
    }
    weights = divide(batch.counted[owner].astype(np.float64), shares[kind])
    if credit.ndim == 2:
        ids = np.repeat(level.ids[owner], credit.shape[1])
        flat = whiten(scheme, credit.ravel(), Segments(ids, level.size), (mask * weights[:, None]).ravel())
        return flat.reshape(credit.shape)
    if kind == "token":
        weights = weights * batch.tokens_per_turn
    return whiten(scheme, credit, Segments(level.ids[owner], level.size), mask * weights)
