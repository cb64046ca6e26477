"""Known truth: expected return and score of the best, the random and the worst policy."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.engine import AgenticVectorEnv
from agentic_gym.family import FloatArray, IntArray

ROLLOUTS = 8192
"""Rollouts per estimate, a fixed set of test prompts and keys, so that a truth never changes."""


@dataclass(frozen=True)
class Truth:
    """Expected score of reference policies in one environment, measured on fixed rollouts.

    Attributes:
        environment: its name.
        best_score: the expert's mean score.
        random_score: mean score of uniformly random legal messages.
        best_value: the expert's mean value (before scale and offset).
        random_value: the random policy's mean value.
        worst_value: lowest value that a rollout of legal messages can have.
        best_score_se: standard error of ``best_score``.
        random_score_se: standard error of ``random_score``.
    """

    environment: str
    best_score: float
    random_score: float
    best_value: float
    random_value: float
    worst_value: float
    best_score_se: float
    random_score_se: float

    def normalise(self, score: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Map scores so that 0 is the random policy and 1 the expert."""
        return (np.asarray(score) - self.random_score) / (self.best_score - self.random_score)


def truth(env_id: str, **knobs: Any) -> tuple[Truth, ...]:
    """Measure the reference policies of an id, one entry per environment.

    Args:
        env_id: a registered id, for example ``"agentic_gym/Search-v0"``.
        **knobs: knobs that differ from the id's own. Scale, offset and noise of the reward do not
            matter: values and scores are taken before them.
    """
    registered = gymnasium.spec(env_id).kwargs
    return _measure(json.dumps({**registered, **knobs}, sort_keys=True))


@functools.cache
def _measure(arguments: str) -> tuple[Truth, ...]:
    engine = AgenticVectorEnv(ROLLOUTS, autoreset_mode="Disabled", **json.loads(arguments))
    environment, best_score, best_value = _rollout(engine, "expert")
    _, random_score, random_value = _rollout(engine, "random")
    result = []
    for index, name in enumerate(engine.environment_names):
        rows = environment == index
        if rows.sum() < 2:
            raise ValueError(f"environments: {name} is too rare to measure in {ROLLOUTS} rollouts.")
        root = np.sqrt(rows.sum())
        truth = Truth(
            name,
            float(best_score[rows].mean()),
            float(random_score[rows].mean()),
            float(best_value[rows].mean()),
            float(random_value[rows].mean()),
            engine.family.members[index].value_range[0],
            float(best_score[rows].std(ddof=1) / root),
            float(random_score[rows].std(ddof=1) / root),
        )
        result.append(truth)
    return tuple(result)


def _rollout(engine: AgenticVectorEnv, policy: str) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return environment, score and value of a fixed set of rollouts."""
    rows = np.arange(engine.num_envs)
    options = {"prompt": rows % engine.num_prompts, "split": "test", "rollout": rows}
    _, info = engine.reset(options=options)
    value, turn, over = np.zeros(engine.num_envs), 0, np.zeros(engine.num_envs, dtype=np.bool_)
    while not over.all():
        turn += 1
        if policy == "expert":
            message = engine.expert_message()
        else:
            draws = streams.uniform(streams.mix(rows)[:, None], turn, np.arange(engine.grammar.n_slots))
            message = engine.grammar.sample(draws, info["environment"])
        _, _, terminated, truncated, info = engine.step(message)
        value += info["reward_components"].sum(axis=1)
        over = terminated | truncated
    return info["environment"], info["score"], value
