"""A base policy: imitation of an expert that errs on purpose.

Agentic RL starts from a model that sometimes succeeds. Here the expert's message is replaced by a
random legal one with a certain probability; per environment this error rate is chosen so that the
erring expert succeeds at the stated rate, and the policy is fitted to what that expert wrote.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from agentic_gym.grammar import DONE
from agentic_gym.knobs import check_integer, check_number
from algos.allocator import keep_freed_memory
from algos.collector import collect
from algos.group_ppo import GroupPPO
from algos.policies import MessagePolicy, Slots
from algos.rows import VectorRows
from algos.threads import limit_threads

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BISECTIONS = 12
MINIBATCH = 1024
SETTLING = 3
NUDGE = 0.05
BAND = (0.85, 1.25)
"""Imitation stops when every environment's success is between these shares of the stated rate."""


@dataclass(frozen=True)
class WarmStart:
    """What a warm start reached.

    Attributes:
        success_rate: the stated rate.
        error_rate: per environment, how often the expert erred.
        expert_success: per environment, the erring expert's success.
        policy_success: per environment, the policy's success afterwards (sampled messages).
        epochs: passes over the demonstrations.
    """

    success_rate: float
    error_rate: dict[str, float]
    expert_success: dict[str, float]
    policy_success: dict[str, float]
    epochs: int


@dataclass(frozen=True, eq=False)
class _Demonstrations:
    """States (m, F) that the erring expert met, and what it could have written there.

    The fit is to the expert's message with weight ``1 - error`` and to a random one with weight
    ``error``: the same optimum as fitting what was written, with less noise.
    """

    features: npt.NDArray[np.float32]
    right: IntArray
    random: IntArray
    environment: IntArray
    success: npt.NDArray[np.bool_]


def warmstart(
    model: GroupPPO,
    success_rate: float = 0.2,
    rollouts: int = 2048,
    max_epochs: int = 60,
    learning_rate: float = 2e-3,
    seed: int = 0,
) -> WarmStart:
    """Fit the model's policy to an erring expert; its optimiser state is left fresh.

    Args:
        model: a model whose environment has an expert (the environments of this package).
        success_rate: success of the base policy in every environment, in (0, 1).
        rollouts: demonstrations per environment.
        max_epochs: passes over the demonstrations at most.
        learning_rate: of the imitation.
        seed: of demonstrations and minibatches.

    Returns:
        What was reached; a warning names environments that end outside ``BAND`` times the rate.

    Raises:
        ValueError: if the environment has no expert, or a value is not allowed.
    """
    check_number("success_rate", success_rate, 0.0, 1.0, open_low=True)
    check_integer("rollouts", rollouts, 1, 2**24)
    rows = model.rows
    if not isinstance(rows, VectorRows):
        raise ValueError("warmstart needs an environment with an expert: one of agentic_gym's.")
    keep_freed_memory()
    with limit_threads(model.n_threads):
        return _warmstart(model, rows, success_rate, rollouts, max_epochs, learning_rate, seed)


def _warmstart(
    model: GroupPPO, rows: VectorRows, success_rate: float, rollouts: int,
    max_epochs: int, learning_rate: float, seed: int,
) -> WarmStart:  # fmt: skip
    random = np.random.default_rng(seed)
    names = rows.environment_names
    engine: Any = rows.env.unwrapped
    cycle_rows = math.ceil(rollouts * len(names) / rows.prompt_cycle) * rows.prompt_cycle
    teacher = _Teacher(engine.clone(cycle_rows, "Disabled"), random)
    error_rate = _choose_error_rates(teacher, success_rate)
    shown = teacher.demonstrate(error_rate)
    expert_success = teacher.success_by_environment(shown.success)
    pupil = engine.clone(512 * len(names), "Disabled")
    reached, epochs = _imitate(model.policy, shown, error_rate, pupil, success_rate, max_epochs, learning_rate, random)
    for name, success in zip(names, reached, strict=True):
        if not BAND[0] * success_rate <= success <= BAND[1] * success_rate:
            warnings.warn(
                f"warmstart: {name} has success {success:.3f} after {epochs} epochs, not {BAND[0]} to "
                f"{BAND[1]} times success_rate={success_rate}.",
                stacklevel=3,
            )
    return WarmStart(
        success_rate,
        _by_name(names, error_rate),
        _by_name(names, expert_success),
        _by_name(names, reached),
        epochs,
    )


def _by_name(names: tuple[str, ...], values: FloatArray) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=True)}


class _Teacher:
    """An expert that errs, on a fixed set of prompts and with fixed random numbers."""

    def __init__(self, engine: Any, random: np.random.Generator) -> None:
        self.engine = engine
        self.prompt = np.arange(engine.num_envs) % engine.num_prompts
        self.rollout = random.integers(2**63 - 1, size=engine.num_envs)
        self.noise_seed = int(random.integers(2**31))
        self.environment = np.zeros(0, dtype=np.int64)

    def demonstrate(self, error_rate: FloatArray) -> _Demonstrations:
        """Run all rollouts with the given error rate per environment (E,)."""
        noise = np.random.default_rng(self.noise_seed)
        engine, grammar = self.engine, self.engine.grammar
        observation, info = engine.reset(options={"prompt": self.prompt, "rollout": self.rollout})
        self.environment = info["environment"]
        dialect = self.environment if grammar.dialect_features else np.zeros_like(self.environment)
        over = np.zeros(engine.num_envs, dtype=np.bool_)
        columns: list[tuple[npt.NDArray[Any], ...]] = []
        error = error_rate[self.environment]
        while not over.all():
            errs = noise.random(engine.num_envs) < error
            random = grammar.sample(noise.random((engine.num_envs, grammar.n_slots)), dialect)
            right = engine.expert_message()
            message = np.where(errs[:, None], random, right)
            columns.append((observation[~over], right[~over], random[~over], self.environment[~over]))
            observation, _, terminated, truncated, info = engine.step(message)
            over = terminated | truncated
        features, right, random, environment = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        return _Demonstrations(features, right, random, environment, info["is_success"])

    def success_by_environment(self, success: npt.NDArray[np.bool_]) -> FloatArray:
        size = len(self.engine.environment_names)
        count = np.bincount(self.environment, minlength=size)
        return np.bincount(self.environment, weights=success, minlength=size) / count


def _choose_error_rates(teacher: _Teacher, success_rate: float) -> FloatArray:
    """Bisect every environment's error rate, all at once; success falls as the rate rises."""
    size = len(teacher.engine.environment_names)
    low, high = np.zeros(size), np.ones(size)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        success = teacher.success_by_environment(teacher.demonstrate(middle).success)
        low, high = (
            np.where(success > success_rate, middle, low),
            np.where(success > success_rate, high, middle),
        )
    return low


def _imitate(
    policy: MessagePolicy, shown: _Demonstrations, error_rate: FloatArray, pupil: Any,
    success_rate: float, max_epochs: int, learning_rate: float, random: np.random.Generator,
) -> tuple[FloatArray, int]:  # fmt: skip
    """Minimise the cross-entropy of the demonstrations until the success is in the band.

    A network imitates imperfectly, so the error rate of an environment whose success is out of the
    band is moved a little after every epoch.
    """
    both = [policy.read(shown.features, message) for message in (shown.right, shown.random)]
    state, previous, position = (
        np.concatenate([getattr(written, name) for written in both]) for name in ("state", "previous", "position")
    )
    features = np.concatenate([shown.features, shown.features])
    slots = policy.slots(features, state, previous, position)
    counted = (state != DONE).astype(np.float32)
    optimizer = torch.optim.Adam([policy.flat_parameters], lr=learning_rate, fused=True)
    low, high = BAND[0] * success_rate, BAND[1] * success_rate
    error_rate = error_rate.copy()
    for epoch in range(1, max_epochs + 1):
        error = error_rate[shown.environment]
        weights = torch.from_numpy(np.concatenate([1.0 - error, error]).astype(np.float32)[:, None] * counted)
        _fit(policy, optimizer, slots, weights, random)
        success = _success(policy, pupil, random)
        if np.all((success >= low) & (success <= high)):
            break
        if epoch >= SETTLING:
            error_rate = np.where(success < low, error_rate * (1 - NUDGE), error_rate)
            error_rate = np.where(success > high, 1 - (1 - error_rate) * (1 - NUDGE), error_rate)
    return success, epoch


def _fit(
    policy: MessagePolicy, optimizer: torch.optim.Optimizer, slots: Slots,
    weights: torch.Tensor, random: np.random.Generator,
) -> None:  # fmt: skip
    """One pass over the demonstrations."""
    flat = policy.flat_parameters
    assert flat.grad is not None
    order = torch.from_numpy(random.permutation(len(weights)))
    for start in range(0, len(order), MINIBATCH):
        chosen = order[start : start + MINIBATCH]
        log_prob = policy.log_probs(Slots(*(tensor[chosen] for tensor in slots)))
        flat.grad.zero_()
        (-(log_prob * weights[chosen]).sum() / len(chosen)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _success(policy: MessagePolicy, pupil: Any, random: np.random.Generator) -> FloatArray:
    rows = VectorRows(pupil)
    prompt = np.arange(rows.n) % rows.num_prompts
    data = collect(rows, policy, prompt, random.integers(2**63 - 1, size=rows.n), random)
    assert data is not None
    environment = data.batch.environment
    size = len(rows.environment_names)
    count = np.maximum(np.bincount(environment, minlength=size), 1)
    return np.bincount(environment, weights=data.success, minlength=size) / count
