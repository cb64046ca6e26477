"""Known truth: expected return and score of the best, the random and the worst policy.

What has a closed form is taken from it; the rest is measured on a fixed set of rollouts. The
measurements of the registered ids are kept in ``truths.json`` beside this file.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.engine import AgenticVectorEnv
from agentic_gym.family import BoolArray, Family, FloatArray, IntArray
from agentic_gym.registration import find_spec

ROLLOUTS = 8192
"""Rollouts per estimate, a fixed set of test prompts and keys, so that a truth never changes."""
STORE = Path(__file__).with_name("truths.json")
"""The measured truths of the registered ids."""
REWARD_KNOBS = ("reward_scale", "reward_offset", "reward_noise", "reward_noise_dist", "dense")
"""Knobs that a truth does not depend on: values and scores are taken before them."""


@dataclass(frozen=True)
class Truth:
    """Expected score of reference policies in one environment.

    Standard errors are 0 where a closed form is known.

    Attributes:
        environment: its name.
        best_score: the expert's mean score.
        random_score: mean score of uniformly random legal messages.
        best_value: the expert's mean value (before scale and offset).
        random_value: the random policy's mean value.
        worst_value: lowest value that a rollout of legal messages can have.
        best_score_se: standard error of ``best_score``.
        random_score_se: standard error of ``random_score``.
        best_value_se: standard error of ``best_value``.
        random_value_se: standard error of ``random_value``.
        chance_score: highest expected score of a policy that ignores the observation, without tool
            failures.
    """

    environment: str
    best_score: float
    random_score: float
    best_value: float
    random_value: float
    worst_value: float
    best_score_se: float
    random_score_se: float
    best_value_se: float
    random_value_se: float
    chance_score: float

    def normalise(self, score: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Map scores so that 0 is the random policy and 1 the expert."""
        return (np.asarray(score) - self.random_score) / (self.best_score - self.random_score)


def truth(env_id: str, **knobs: Any) -> tuple[Truth, ...]:
    """Return the scores and values of the reference policies of an id, one entry per environment.

    Rollouts whose reward is not valid do not count.

    Args:
        env_id: a registered id, for example ``"agentic_gym/Search-v0"``.
        **knobs: knobs that differ from the id's own. Scale, offset and noise of the reward do not
            matter: values and scores are taken before them.

    Raises:
        ValueError: if a knob has a value that is not allowed, or an environment is too rare.
        TypeError: if a knob is unknown.
        gymnasium.error.Error: if the id is unknown; names the one that may be meant.
    """
    arguments = {**find_spec(env_id).kwargs, **knobs}
    AgenticVectorEnv(1, **arguments)  # Says what is wrong with the knobs, those of the reward included.
    relevant = _relevant(arguments)
    stored = stored_truths().get(env_id)
    if stored is not None and stored.knobs == relevant:
        return stored.truths
    return measure(relevant)


def measure(arguments: Mapping[str, Any], closed_forms: bool = True) -> tuple[Truth, ...]:
    """Measure the reference policies of a family or mixture, whatever is stored.

    Args:
        arguments: ``family`` and knobs.
        closed_forms: take what has a closed form from there, with standard error 0.

    Raises:
        ValueError: if an environment is too rare to be measured.
    """
    return _measure(json.dumps(_relevant(arguments), sort_keys=True), closed_forms)


class Stored(NamedTuple):
    """The truths of an id, and the knobs for which they hold."""

    knobs: dict[str, Any]
    truths: tuple[Truth, ...]


@functools.cache
def stored_truths(path: Path = STORE) -> dict[str, Stored]:
    """Return id -> what is stored of it."""
    if not path.exists():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {
        env_id: Stored(entry["knobs"], tuple(Truth(**truth) for truth in entry["truths"]))
        for env_id, entry in entries.items()
    }


def store_truths(env_ids: Iterable[str], path: Path = STORE) -> None:
    """Measure ids at their own knobs and write the file, whole or not at all.

    Args:
        env_ids: all the ids that the file is to hold.
        path: where to write.
    """
    entries = {}
    for env_id in env_ids:
        knobs = _relevant(gymnasium.spec(env_id).kwargs)
        entries[env_id] = {"knobs": knobs, "truths": [asdict(truth) for truth in measure(knobs)]}
    text = json.dumps(entries, indent=2, allow_nan=False) + "\n"
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        temporary = Path(file.name)
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    stored_truths.cache_clear()


def _relevant(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the knobs that a truth does not depend on; what remains is as JSON gives it back."""
    kept = {name: value for name, value in arguments.items() if name not in REWARD_KNOBS}
    return dict(json.loads(json.dumps(kept)))


class _Played(NamedTuple):
    """Environment, score, value and validity of rollouts, all (n,)."""

    environment: IntArray
    score: FloatArray
    value: FloatArray
    valid: BoolArray


@functools.cache
def _measure(arguments: str, closed_forms: bool) -> tuple[Truth, ...]:
    engine = AgenticVectorEnv(ROLLOUTS, autoreset_mode="Disabled", **json.loads(arguments))
    played = {policy: _rollout(engine, policy) for policy in ("best", "random")}
    names = zip(engine.environment_names, engine.family.members, strict=True)
    return tuple(
        _truth(name, index, member, played, member.closed_forms() if closed_forms else {})
        for index, (name, member) in enumerate(names)
    )


def _truth(
    name: str, index: int, member: Family, played: Mapping[str, _Played], closed_forms: Mapping[str, float]
) -> Truth:
    """Put the numbers of one environment together."""
    found = {}
    for policy, rollouts in played.items():
        rows = (rollouts.environment == index) & rollouts.valid
        if rows.sum() < 2:
            raise ValueError(f"environments: {name} is too rare to measure in {ROLLOUTS} rollouts.")
        for kind, values in (("score", rollouts.score[rows]), ("value", rollouts.value[rows])):
            key = f"{policy}_{kind}"
            if key in closed_forms:
                found[key], found[f"{key}_se"] = float(closed_forms[key]), 0.0
            else:
                error = values.std(ddof=1) / np.sqrt(len(values))
                found[key], found[f"{key}_se"] = float(values.mean()), float(error)
    worst, chance = float(member.value_range[0]), float(member.chance())
    return Truth(environment=name, worst_value=worst, chance_score=chance, **found)


def _rollout(engine: AgenticVectorEnv, policy: str) -> _Played:
    """Play a fixed set of rollouts."""
    rows = np.arange(engine.num_envs)
    options = {"prompt": rows % engine.num_prompts, "split": "test", "rollout": rows}
    _, info = engine.reset(options=options)
    value, turn, over = np.zeros(engine.num_envs), 0, np.zeros(engine.num_envs, dtype=np.bool_)
    while not over.all():
        turn += 1
        if policy == "best":
            message = engine.expert_message()
        else:
            draws = streams.uniform(streams.mix(rows)[:, None], turn, np.arange(engine.grammar.n_slots))
            message = engine.grammar.sample(draws, info["environment"])
        _, _, terminated, truncated, info = engine.step(message)
        value += info["reward_components"].sum(axis=1)
        over = terminated | truncated
    return _Played(info["environment"], info["score"], value, info["reward_valid"])
