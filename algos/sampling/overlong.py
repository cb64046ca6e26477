"""What long and truncated rollouts cost, with any sampler."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from agentic_gym.knobs import check_bool, check_integer, check_number
from algos.batch import RolloutBatch
from algos.collector import Trajectories
from algos.segments import FloatArray

MaskTruncated = bool | Literal["loss", "all"]


@dataclass(frozen=True)
class Overlong:
    """DAPO's soft penalty on long rollouts (arXiv 2503.14476; SEEN-CODE).

    A rollout with L tokens gets -factor (L - (limit - buffer)) / buffer, not more than 0 and, if it is
    ``capped``, not less than -factor, added to its return and to the reward of its last turn, after the sampler has
    chosen and before credit. Rewards that are logged, and those that samplers look at, are without.

    Attributes:
        buffer: tokens before the limit in which the penalty grows, >= 1 (the source: a fifth of the
            limit).
        limit: L_max; None takes the environment's largest number of tokens.
        factor: the largest penalty, in the rewards' units; if it is not capped, that at the limit.
        capped: whether it stops growing at the limit (the paper, OpenRLHF, TRL) or goes on (verl, NeMo-RL);
            that matters only where rollouts can be longer than ``limit``.

    Raises:
        ValueError: if a value is not allowed.
    """

    buffer: int
    limit: int | None = None
    factor: float = 1.0
    capped: bool = True

    def __post_init__(self) -> None:
        """Check the values."""
        check_integer("buffer", self.buffer, 1, 2**31)
        if self.limit is not None:
            check_integer("limit", self.limit, self.buffer, 2**31)
        check_number("factor", self.factor, 0.0, math.inf)
        check_bool("capped", self.capped)

    def penalty(self, tokens: FloatArray, max_tokens: int) -> FloatArray:
        """Return what is added to the returns of rollouts with so many tokens (N,), at most 0."""
        limit = max_tokens if self.limit is None else self.limit
        excess = (tokens - (limit - self.buffer)) / self.buffer
        return -self.factor * np.clip(excess, 0.0, 1.0 if self.capped else np.inf)

    def shape(self, data: Trajectories) -> Trajectories:
        """Add the penalty to returns and last rewards."""
        batch = data.batch
        penalty = self.penalty(batch.tokens_per_rollout, batch.max_tokens)
        last = batch.turn_index == batch.turns_per_rollout[batch.turn_rollout] - 1
        reward = batch.turn_reward + np.where(last, penalty[batch.turn_rollout], 0.0)
        return dataclasses.replace(
            data, batch=dataclasses.replace(batch, returns=batch.returns + penalty, turn_reward=reward)
        )


def make_overlong(overlong: Any) -> Overlong | None:
    """Return the penalty from itself, from a mapping of its attributes, or None.

    Raises:
        TypeError: if it is none of these, or the mapping has other names.
    """
    if overlong is None or isinstance(overlong, Overlong):
        return overlong
    if isinstance(overlong, dict):
        names = [field.name for field in dataclasses.fields(Overlong)]
        if not set(overlong) <= set(names) or "buffer" not in overlong:
            raise TypeError(f"overlong={overlong!r} is not allowed: it must have 'buffer', and may have only {names}.")
        return Overlong(**overlong)
    raise TypeError(f"overlong={overlong!r} is not allowed: give an Overlong, a dict of its attributes, or None.")


def check_mask(mask: Any) -> Literal["no", "loss", "all"]:
    """Return ``mask_truncated`` in its one spelling.

    Raises:
        ValueError: if it is not allowed.
    """
    if isinstance(mask, bool):
        return "loss" if mask else "no"
    if mask in ("no", "loss", "all"):
        return mask
    raise ValueError(f"mask_truncated={mask!r} is not allowed: it must be False, True, 'loss' or 'all'.")


def without_truncated(data: Trajectories) -> Trajectories:
    """Take truncated rollouts out of statistics and loss."""
    return dataclasses.replace(data, batch=dataclasses.replace(data.batch, valid=data.batch.valid & ~data.truncated))


def loss_batch(batch: RolloutBatch) -> RolloutBatch:
    """Return the batch whose tokens are those of rollouts that were not truncated, for the loss.

    Group statistics are computed on the original: there truncated rollouts still count, as in TRL
    (SEEN-CODE). Here they also leave the loss's denominators: INFERRED.
    """
    assert batch.truncated is not None
    kept = ~batch.truncated[batch.turn_rollout]
    return dataclasses.replace(batch, token_mask=batch.token_mask & kept[:, None])
