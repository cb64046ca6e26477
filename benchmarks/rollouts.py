"""Rollouts of the batch engine by a policy of any kind (needs no torch)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from agentic_gym import AgenticVectorEnv

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

Writer = Callable[[npt.NDArray[np.float32], dict[str, Any]], IntArray]
"""From observations and info to messages, all rows."""


class Played(NamedTuple):
    """Rollouts.

    Attributes:
        environment, prompt: (n,) which environment and prompt.
        value: (n,) sum of the reward components.
        reward: (n,) sum of the rewards.
        score, success, valid: (n,) as reported at the end.
        turns, tokens: (n,) how many.
        course: (T + 1, n) value after each turn, from turn 0; constant after the end.
    """

    environment: IntArray
    prompt: IntArray
    value: FloatArray
    reward: FloatArray
    score: FloatArray
    success: BoolArray
    valid: BoolArray
    turns: IntArray
    tokens: IntArray
    course: FloatArray


def make_engine(env_id: str, n_rows: int, autoreset_mode: str = "Disabled") -> AgenticVectorEnv:
    """Return the batch engine of an id."""
    return AgenticVectorEnv(n_rows, autoreset_mode=autoreset_mode, **gymnasium.spec(env_id).kwargs)


def play(engine: AgenticVectorEnv, write: Writer, group_size: int = 1, split: str = "test") -> Played:
    """Play one rollout per row: the first prompts of a split, ``group_size`` rollouts of each.

    Args:
        engine: rows without autoreset.
        write: writes the messages.
        group_size: rollouts of a prompt.
        split: which prompts.
    """
    rows = np.arange(engine.num_envs)
    options = {"prompt": rows // group_size % engine.num_prompts, "split": split, "rollout": rows}
    observation, info = engine.reset(options=options)
    reward, tokens = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    course, over = [np.zeros(len(rows))], np.zeros(len(rows), dtype=np.bool_)
    while not over.all():
        observation, gain, terminated, truncated, info = engine.step(write(observation, info))
        reward += gain
        tokens += info["token_count"]
        course.append(course[-1] + info["reward_components"].sum(axis=1))
        over = terminated | truncated
    return Played(
        info["environment"], info["prompt"], course[-1], reward, info["score"], info["is_success"],
        info["reward_valid"], info["turn"], tokens, np.stack(course),
    )  # fmt: skip


def expert(engine: AgenticVectorEnv) -> Writer:
    """Return the engine's expert."""
    return lambda observation, info: engine.expert_message()


def at_random(engine: AgenticVectorEnv, seed: int = 0) -> Writer:
    """Return the policy whose messages are random legal ones."""
    random, grammar = np.random.default_rng(seed), engine.grammar
    return lambda observation, info: grammar.sample(
        random.random((len(observation), grammar.n_slots)), info["environment"]
    )
