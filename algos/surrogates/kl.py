"""Estimators of KL(policy || reference) per token (Schulman, "Approximating KL divergence", 2020).

With d = log p - log p_reference at a token that the policy wrote. Every function takes
(scheme, tokens) and returns the penalty of every token, (m, L), with gradient, or None. Parts with
the tag ``in_reward`` are subtracted from the rewards, before credit, instead of added to the loss.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.parts import find, part
from algos.scheme import Scheme
from algos.segments import FloatArray, divide, totals
from algos.surrogates.tokens import Tokens

MAX_DIFFERENCE = 20.0
"""-d is cut here where it is exponentiated, as verl does; beyond it there is no gradient."""
NEEDS = ("reference_log_prob",)
USES = ("kl_coef", "kl_target")
CAP = {"penalty_cap": (0.0, math.inf)}
Bearing = Literal["rollout", "following", "own"]
"""Whose penalties count against a token: the rollout's, its own and those of the tokens after it, or its own."""


@dataclass
class KLController:
    """The coefficient of a penalty that follows a target, and the KL that was last seen.

    Attributes:
        start: the scheme's ``kl_coef``, where it began.
        coefficient: at present.
        kl: mean over rollouts of the mean over their tokens, by the penalty's estimator.
        rollouts: how many there were.
    """

    start: float
    coefficient: float
    kl: float = 0.0
    rollouts: int = 0


@part("kl", "none", source="-")
def none(scheme: Scheme, tokens: Tokens) -> torch.Tensor | None:
    """No penalty."""
    return None


@part("kl", "k1", source="Schulman 2020; SEEN-CODE (verl)", uses=USES, needs=NEEDS)
def k1(scheme: Scheme, tokens: Tokens) -> torch.Tensor:
    """d: unbiased as a value.

    As a loss its gradient does not depend on the reference, and is zero on average on-policy. It is
    here for comparison.
    """
    return _difference(tokens)


@part("kl", "k2", source="Schulman 2020; SEEN-CODE (verl)", uses=USES, needs=NEEDS)
def k2(scheme: Scheme, tokens: Tokens) -> torch.Tensor:
    """d^2 / 2: biased as a value; its gradient is the unbiased KL gradient on-policy."""
    return _difference(tokens) ** 2 / 2


@part("kl", "k3", source="DeepSeekMath, arXiv 2402.03300; SEEN-CODE", uses=USES, needs=NEEDS, ranges=CAP)
def k3(scheme: Scheme, tokens: Tokens, *, penalty_cap: float | None = None) -> torch.Tensor:
    """exp(-d) + d - 1: unbiased and never negative.

    * ``penalty_cap``: the penalty is at most this (verl: 10), without gradient beyond.
    """
    d = _difference(tokens).clamp(-MAX_DIFFERENCE, MAX_DIFFERENCE)
    penalty = torch.expm1(-d) + d
    return penalty if penalty_cap is None else penalty.clamp(max=penalty_cap)


@part("kl", "abs", source="verl's kl_penalty; SEEN-CODE (verl)", uses=USES, needs=NEEDS)
def absolute(scheme: Scheme, tokens: Tokens) -> torch.Tensor:
    """The size of d: a penalty of the same strength for any difference."""
    return _difference(tokens).abs()


@part("kl", "k3_k2", source="verl's k3+; SEEN-CODE (verl)", uses=USES, needs=NEEDS, ranges=CAP)
def k3_k2(scheme: Scheme, tokens: Tokens, *, penalty_cap: float | None = None) -> torch.Tensor:
    """Give the value of k3 and the gradient of k2: both unbiased on-policy."""
    gradient = k2(scheme, tokens)
    return gradient - gradient.detach() + k3(scheme, tokens, penalty_cap=penalty_cap).detach()


@part(
    "kl", "k3_corrected", source="TRL's use_bias_correction_kl; SEEN-CODE (TRL, NeMo-RL)", uses=[*USES, "ratio"],
    needs=NEEDS, ranges=CAP,
)  # fmt: skip
def k3_corrected(scheme: Scheme, tokens: Tokens, *, penalty_cap: float | None = None) -> torch.Tensor:
    """Multiply k3 by the scheme's ratio, with gradient through both: unbiased off-policy too."""
    ratio: torch.Tensor = scheme.run("ratio", tokens)
    return ratio.exp() * k3(scheme, tokens, penalty_cap=penalty_cap)


def kl_penalty(kind: str, log_prob: torch.Tensor, reference_log_prob: torch.Tensor) -> torch.Tensor:
    """Return the penalty of every token, outside a scheme."""
    mask = torch.ones_like(log_prob, dtype=torch.bool)
    tokens = Tokens(log_prob, log_prob, log_prob, mask, reference_log_prob=reference_log_prob)
    penalty: torch.Tensor = find("kl", kind).function(None, tokens)
    return penalty


def _difference(tokens: Tokens) -> torch.Tensor:
    if tokens.reference_log_prob is None:
        raise ValueError("reference_log_prob=None is not allowed with a KL penalty: give those of the reference.")
    return tokens.log_prob - tokens.reference_log_prob.detach()


# In the reward.


@part(
    "kl", "reward_k1", source="RLHF practice; SEEN-CODE (verl, OpenRLHF)", uses=USES, needs=NEEDS,
    tags=["in_reward"],
)  # fmt: skip
def reward_k1(scheme: Scheme, tokens: Tokens, *, bears: Bearing = "rollout") -> torch.Tensor:
    """Take k1 from the rewards.

    * ``bears``: the penalties that count against a token: those of its whole ``rollout``, through the
      returns (verl's grpo); those of its own and the ``following`` tokens, taken from its credit before
      whitening (REINFORCE++, arXiv 2501.03262; SEEN-NOTE); or its ``own`` (NeMo-RL; SEEN-CODE).
    """
    return k1(scheme, tokens)


@part(
    "kl", "reward_k2", source="RLHF practice; SEEN-CODE (verl)", uses=USES, needs=NEEDS,
    tags=["in_reward"],
)  # fmt: skip
def reward_k2(scheme: Scheme, tokens: Tokens, *, bears: Bearing = "rollout") -> torch.Tensor:
    """Take k2 from the rewards; ``bears`` as of ``reward_k1``."""
    return k2(scheme, tokens)


@part(
    "kl", "reward_k3", source="RLHF practice; SEEN-CODE (verl, NeMo-RL)", uses=USES, needs=NEEDS,
    tags=["in_reward"], ranges=CAP,
)  # fmt: skip
def reward_k3(
    scheme: Scheme, tokens: Tokens, *, bears: Bearing = "rollout", penalty_cap: float | None = None
) -> torch.Tensor:
    """Take k3 from the rewards; ``bears`` as of ``reward_k1``, the cap as, in the loss, of ``k3``."""
    return k3(scheme, tokens, penalty_cap=penalty_cap)


@part(
    "kl", "reward_abs", source="verl's kl_penalty; SEEN-CODE (verl)", uses=USES, needs=NEEDS,
    tags=["in_reward"],
)  # fmt: skip
def reward_abs(scheme: Scheme, tokens: Tokens, *, bears: Bearing = "rollout") -> torch.Tensor:
    """Take abs from the rewards; ``bears`` as of ``reward_k1``."""
    return absolute(scheme, tokens)


def in_reward(scheme: Scheme) -> bool:
    """Whether the scheme's penalty goes to the rewards."""
    return "in_reward" in find("kl", scheme.kl).tags


def in_loss(scheme: Scheme) -> bool:
    """Whether the scheme's penalty goes to the loss."""
    return scheme.kl != "none" and not in_reward(scheme)


def controller(scheme: Scheme, memory: Memory) -> KLController:
    """Return what the memory keeps; it starts anew where the scheme's ``kl_coef`` is another."""
    control = memory.get("kl_controller", lambda: KLController(scheme.kl_coef, scheme.kl_coef))
    if control.start != scheme.kl_coef:
        control.start = control.coefficient = scheme.kl_coef
    return control


def coefficient(scheme: Scheme, memory: Memory) -> float:
    """Return the penalty's weight: ``kl_coef``, or what has become of it with a ``kl_target``."""
    return scheme.kl_coef if scheme.kl_target is None else controller(scheme, memory).coefficient


def adapt(scheme: Scheme, memory: Memory) -> None:
    """Raise the coefficient where the KL was above the scheme's target, lower it where it was below."""
    if scheme.kl_target is not None:
        control = controller(scheme, memory)
        error = min(max(control.kl / scheme.kl_target - 1.0, -0.2), 0.2)
        control.coefficient *= 1.0 + error * min(control.rollouts / scheme.kl_horizon, 1.0)


def penalised(
    scheme: Scheme, batch: RolloutBatch, log_prob: torch.Tensor, reference_log_prob: torch.Tensor, memory: Memory
) -> RolloutBatch:
    """Subtract the scheme's KL penalty from the rewards.

    Args:
        scheme: with a penalty in the reward.
        batch: the rollouts, with the environment's rewards.
        log_prob: (M, L) of the policy at the start of the update.
        reference_log_prob: (M, L) of the reference policy.
        memory: keeps the coefficient, and the KL for its adaptation.

    Returns:
        The batch with each turn's penalty taken from ``turn_reward``, and all of a rollout's from
        ``returns``; where tokens bear their own penalties, with these in ``token_penalty`` instead.
        Everything else is as before.
    """
    penalty = coefficient(scheme, memory) * observe(scheme, batch, log_prob, reference_log_prob, memory)
    bears = bearing(scheme)
    if bears == "own":
        return dataclasses.replace(batch, token_penalty=penalty)
    if bears == "following":
        return dataclasses.replace(batch, token_penalty=from_here_on(batch, penalty))
    per_turn = penalty.sum(axis=1)
    return dataclasses.replace(
        batch,
        turn_reward=batch.turn_reward - per_turn,
        returns=batch.returns - totals(batch.turn_rollout, per_turn, len(batch)),
    )


def bearing(scheme: Scheme) -> str | None:
    """Return whose penalties count against a token, see ``Bearing``; None without a penalty in the reward."""
    bears: str | None = scheme.options_of(find("kl", scheme.kl)).get("bears")
    return bears


def from_here_on(batch: RolloutBatch, values: FloatArray) -> FloatArray:
    """Return (M, L) the sum of the values of a token and of those after it in its rollout."""
    within = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
    until = np.empty(batch.n_turns)
    until[batch.in_order] = np.cumsum(within[batch.in_order, 0])
    # Turns of later rollouts are in both terms of the difference, or in none.
    last = batch.in_order[(batch.first_place + batch.turns_per_rollout - 1)[batch.turn_rollout]]
    later = until[last] - until
    return np.asarray(within + later[:, None])


def observe(
    scheme: Scheme, batch: RolloutBatch, log_prob: torch.Tensor, reference_log_prob: torch.Tensor, memory: Memory
) -> FloatArray:
    """Let the controller see the KL of an update's rollouts at its start; ``update_memory`` adapts it afterwards.

    Args:
        scheme: with a penalty.
        batch: the rollouts.
        log_prob: (M, L) of the policy at the start of the update.
        reference_log_prob: (M, L) of the reference policy.
        memory: keeps the coefficient, and the KL for its adaptation.

    Returns:
        Every token's penalty (M, L), 0 where the mask is, without coefficient.
    """
    mask = torch.as_tensor(batch.token_mask)
    tokens = Tokens(
        log_prob.double(), log_prob.double(), torch.zeros_like(mask), mask, torch.as_tensor(batch.turn_rollout),
        len(batch), reference_log_prob=reference_log_prob.double(),
    )  # fmt: skip
    penalty = np.where(batch.token_mask, scheme.run("kl", tokens).detach().numpy(), 0.0)
    control = controller(scheme, memory)
    kept = batch.counted & (batch.tokens_per_rollout > 0)
    control.rollouts = int(kept.sum())
    mean = divide(totals(batch.turn_rollout, penalty.sum(axis=1), len(batch)), batch.tokens_per_rollout)[kept]
    control.kl = float(mean.mean()) if control.rollouts else 0.0
    return np.asarray(penalty)
