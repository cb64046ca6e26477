"""Optional columns of a batch, measured after the collection where the scheme needs them.

All are computed over all turns at once, with the parameters that wrote in place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentic_gym.grammar import DONE
from algos.batch import RolloutBatch
from algos.collector import Trajectories
from algos.policies import FloatArray as Features
from algos.policies import MessagePolicy, Written
from algos.sampling.trainer import Trainer
from algos.sampling.writers import parameters_in_place, stale_policy
from algos.scheme import Scheme
from algos.segments import FloatArray, IntArray, divide, totals

LAST_ROLLOUTS = "last_rollouts"
MOST_TURNS = 2**16
"""So many turns of past rollouts are kept, about 32 MB with 100 features."""

Shape = Callable[[Trajectories], Trajectories]


def measure(trainer: Trainer, data: Trajectories, shape: Shape = lambda data: data) -> Trajectories | None:
    """Fill the columns that the scheme needs.

    Args:
        trainer: the collection that the rollouts are from.
        data: the rollouts that the sampler kept.
        shape: what was done to their returns, for others that they are compared with.

    Returns:
        The same rollouts; None if a callback stopped the training while a column was measured.

    Raises:
        ValueError: if the environment does not give what a column is made of; names scheme, column
            and environment.
    """
    for name in sorted(trainer.scheme.needs & COLUMNS.keys()):
        values = COLUMNS[name](trainer, data, shape)
        if values is None:
            return None
        column: dict[str, Any] = {name: values}
        data = dataclasses.replace(data, batch=dataclasses.replace(data.batch, **column))
    for name in sorted(trainer.scheme.needs & _BATCH_COLUMNS):
        if getattr(data.batch, name) is None:
            raise missing(trainer, name, f"it reports no {SOURCES.get(name, name)}")
    return data


def missing(trainer: Trainer, column: str, reason: str) -> ValueError:
    """Return the error for a column that the environment does not allow."""
    return ValueError(
        f"{scheme_name(trainer.scheme, column)} needs the column {column!r}, which {trainer.rows.name} does not have: "
        f"{reason}."
    )


def scheme_name(scheme: Scheme, column: str) -> str:
    """Say which scheme, and which of its parts, needs a column."""
    from algos.recipes import RECIPES

    names = [name for name, recipe in RECIPES.items() if recipe.scheme == scheme]
    parts = [f"{part.axis}={part.name!r}" for part in scheme.parts if column in part.needs]
    return f"scheme={names[0]!r} ({', '.join(parts)})" if names else f"the scheme with {', '.join(parts)}"


# Information gain.


def information_gain(trainer: Trainer, data: Trajectories, shape: Shape) -> FloatArray:
    """Return (M,) by how much each turn changed the probability of the right answer.

    The right answer is that of the turn's state, if it were given at once, before the turn and in
    the state after it; its probability is the geometric mean over its tokens. A rollout's last turn
    has no state after it, and gets 0. The option ``gain`` of the scheme's signal says whether
    probabilities or their logarithms are differenced.
    """
    signal = next(part for part in trainer.scheme.parts if part.axis == "signal")
    kind = trainer.scheme.options_of(signal).get("gain", "probability")
    return gains(trainer, data, logarithm=kind == "log_probability", column="information_gain")


def gains(trainer: Trainer, data: Trajectories, logarithm: bool, column: str) -> FloatArray:
    """Return (M,) the gains, as above."""
    if data.ground_truth is None:
        raise missing(trainer, column, "it reports no info['ground_truth']")
    policy, truth = trainer.policy, data.ground_truth
    following = next_turn(data.batch)
    turns = np.flatnonzero(following >= 0)
    after = following[turns]
    value = mean_log_prob(policy, data.features, truth)
    reached = value[after]
    # Where the right answer became another, the old one is read again in the new state.
    changed = (truth[turns] != truth[after]).any(axis=1)
    if changed.any():
        reached[changed] = mean_log_prob(policy, data.features[after[changed]], truth[turns[changed]])
    before = value[turns]
    result = np.zeros(data.batch.n_turns)
    result[turns] = reached - before if logarithm else np.exp(reached) - np.exp(before)
    return result


def mean_log_prob(policy: MessagePolicy, features: Features, message: IntArray) -> FloatArray:
    """Return (n,) the mean log-probability of the tokens of messages (n, L), if they were written now."""
    written = policy.read(features, message)
    counted = (written.state != DONE).sum(axis=1)
    return written.log_prob.sum(axis=1, dtype=np.float64) / np.maximum(counted, 1)


def next_turn(batch: RolloutBatch) -> IntArray:
    """Return (M,) the row of the rollout's next turn, -1 at its last."""
    order = np.argsort(batch.turn_rollout, kind="stable")
    following = np.full(batch.n_turns, -1)
    same = batch.turn_rollout[order[1:]] == batch.turn_rollout[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    return following


def process_reward(trainer: Trainer, data: Trajectories, shape: Shape) -> FloatArray:
    """Return (M,) ``info["process_reward"]``, or, in its stead, the gain in probability where positive.

    The stand-in is INFERRED: the sources have judges of steps.
    """
    if data.batch.process_reward is not None:
        return data.batch.process_reward
    return np.maximum(gains(trainer, data, logarithm=False, column="process_reward"), 0.0)


# Distributions of the policy that wrote.


def entropy(trainer: Trainer, data: Trajectories, shape: Shape) -> FloatArray:
    """Return (M, L) the entropy of each slot's distribution."""
    return by_writer(trainer, data, lambda p, log_p: -(p * np.maximum(log_p, -1e30)).sum(axis=0))


def probability_square(trainer: Trainer, data: Trajectories, shape: Shape) -> FloatArray:
    """Return (M, L) the sum of squared probabilities of each slot's choices."""
    return by_writer(trainer, data, lambda p, log_p: (p**2).sum(axis=0))


def by_writer(trainer: Trainer, data: Trajectories, statistic: Callable[[Features, Features], Any]) -> FloatArray:
    """Return a statistic (M, L) of the distributions (W, n), each turn's under the policy that wrote it."""
    result = per_slot(trainer.policy, data, statistic)
    if data.stale is not None and data.stale.any():
        with parameters_in_place(trainer.policy, stale_policy(trainer.memory)["parameters"]):
            result = np.where(data.stale[:, None], per_slot(trainer.policy, data, statistic), result)
    return result


def per_slot(policy: MessagePolicy, data: Trajectories, statistic: Callable[[Features, Features], Any]) -> FloatArray:
    """Return a statistic (M, L) of the distributions (W, n) under the policy's present parameters."""
    result = np.zeros(data.state.shape)

    def choose(slot: int, probability: Features, log_p: Features) -> IntArray:
        result[:, slot] = statistic(probability, log_p)
        return data.position[:, slot]

    policy.compose(data.features, choose)
    return np.where(data.batch.token_mask, result, 0.0)


def log_prob(trainer: Trainer, data: Trajectories, shape: Shape) -> FloatArray:
    """Return (M, L) the log-probabilities that were stored when the tokens were written."""
    return data.log_prob.astype(np.float64)


# Rollouts.


def context(trainer: Trainer, data: Trajectories, shape: Shape) -> FloatArray:
    """Return (N, D) the features in which each rollout's last message was written."""
    last = next_turn(data.batch) < 0
    result = np.zeros((len(data.batch), data.features.shape[1]))
    result[data.batch.turn_rollout[last]] = data.features[last]
    return result


def greedy_return(trainer: Trainer, data: Trajectories, shape: Shape) -> FloatArray | None:
    """Return (N,) the return of one rollout of the same prompt with the likeliest tokens.

    It gets the same transform and shaping of rewards, and its turns are counted. Where it cannot be
    scored, the mean return of the prompt's rollouts stands in: INFERRED.
    """
    prompts, index = np.unique(data.prompt, return_inverse=True)
    greedy = trainer.run(prompts, greedy=True)
    if greedy is None:
        return None
    batch = shape(greedy).batch
    groups = data.batch.level("prompt")
    average = groups.mean(data.batch.outcome, data.batch.counted.astype(float))[groups.ids]
    return np.where(batch.counted[index], batch.outcome[index], average)


@dataclass
class LastRollouts:
    """The last rollout of each prompt, oldest first; at most ``MOST_TURNS`` turns in all.

    Attributes:
        kept: prompt -> features (t, F) and state, previous, position, log_prob (t, L) of its turns.
        turns: how many turns are kept.
    """

    kept: dict[tuple[Any, Any], tuple[npt.NDArray[Any], ...]]
    turns: int = 0

    def store(self, prompt: tuple[Any, Any], columns: tuple[npt.NDArray[Any], ...]) -> None:
        """Keep a rollout instead of the prompt's last one; forget the oldest if there are too many."""
        self.turns -= len(self.kept.pop(prompt, ((),))[0])
        self.kept[prompt] = columns
        self.turns += len(columns[0])
        while self.turns > MOST_TURNS and len(self.kept) > 1:
            self.turns -= len(self.kept.pop(next(iter(self.kept)))[0])


def drift(trainer: Trainer, data: Trajectories, shape: Shape) -> FloatArray:
    """Return (N,) how far the policy has moved on the prompt's last stored rollout since it was written.

    The mean over its tokens of |log p then - log p now| (SPO's code). NaN at a prompt's first visit,
    and where the rollout was forgotten since, see ``LastRollouts``. The prompt's last row in this
    batch is then stored in its place.
    """
    memory: LastRollouts = trainer.memory.get(LAST_ROLLOUTS, lambda: LastRollouts({}))
    batch = data.batch
    groups = batch.level("prompt")
    last = np.zeros(groups.size, dtype=np.int64)
    last[groups.ids] = np.arange(len(batch))
    prompts = list(zip(batch.environment[last].tolist(), batch.prompt[last].tolist(), strict=True))
    moved = _distance(trainer.policy, [memory.kept.get(prompt) for prompt in prompts])
    turns = np.argsort(batch.turn_rollout, kind="stable")
    bounds = np.cumsum(batch.turns_per_rollout)
    for prompt, rollout in zip(prompts, last.tolist(), strict=True):
        rows = turns[bounds[rollout] - batch.turns_per_rollout[rollout] : bounds[rollout]]
        small = (getattr(data, name)[rows].astype(np.int32) for name in ("state", "previous", "position"))
        memory.store(prompt, (data.features[rows], *small, data.log_prob[rows]))
    return moved[groups.ids]


def _distance(policy: MessagePolicy, rollouts: list[tuple[npt.NDArray[Any], ...] | None]) -> FloatArray:
    """Return (k,) the mean absolute log-ratio of each rollout's tokens, NaN where there is none."""
    result = np.full(len(rollouts), np.nan)
    known = [index for index, columns in enumerate(rollouts) if columns is not None]
    if not known:
        return result
    pieces = [columns for columns in rollouts if columns is not None]
    features, state, _, position, then = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    now: Written = policy.compose(features, lambda slot, *_: position[:, slot].astype(np.int64))
    counted = state != DONE
    owner = np.repeat(np.arange(len(known)), [len(columns[0]) for columns in pieces])
    distance = np.where(counted, np.abs(then - now.log_prob), 0.0).sum(axis=1)
    result[known] = divide(totals(owner, distance, len(known)), totals(owner, counted.sum(axis=1), len(known)))
    return result


COLUMNS: Mapping[str, Callable[[Trainer, Trajectories, Shape], FloatArray | None]] = {
    "information_gain": information_gain,
    "process_reward": process_reward,
    "entropy": entropy,
    "probability_square": probability_square,
    "log_prob": log_prob,
    "greedy_return": greedy_return,
    "drift": drift,
    "context": context,
}
"""What is measured here; success, truncated, components, state keys and values the collector records."""

SOURCES = {"components": "info['reward_components']", "state_key": "info['state_key']"}
_BATCH_COLUMNS = frozenset(field.name for field in dataclasses.fields(RolloutBatch))
