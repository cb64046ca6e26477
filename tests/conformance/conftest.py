"""What the conformance tests share: every id, and a way to run rollouts to their ends."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import agentic_gym
from agentic_gym.engine import AgenticVectorEnv

Policy = Callable[[AgenticVectorEnv, dict[str, Any]], np.ndarray]


def expert(engine: AgenticVectorEnv, info: dict[str, Any]) -> np.ndarray:
    return engine.expert_message()


def random_legal(seed: int = 0) -> Policy:
    random = np.random.default_rng(seed)

    def policy(engine: AgenticVectorEnv, info: dict[str, Any]) -> np.ndarray:
        uniform = random.random((engine.num_envs, engine.grammar.n_slots))
        return engine.grammar.sample(uniform, info["environment"])

    return policy


def random_tokens(seed: int = 0) -> Policy:
    """Mostly illegal messages."""
    random = np.random.default_rng(seed)

    def policy(engine: AgenticVectorEnv, info: dict[str, Any]) -> np.ndarray:
        return random.integers(engine.grammar.n_tokens, size=(engine.num_envs, engine.grammar.n_slots))

    return policy


def mixed(seed: int = 0) -> Policy:
    """Expert, legal and illegal messages: visits successes, failures and all states between."""
    random, legal, tokens = np.random.default_rng(seed), random_legal(seed), random_tokens(seed)

    def policy(engine: AgenticVectorEnv, info: dict[str, Any]) -> np.ndarray:
        choice = random.choice(3, size=(engine.num_envs, 1), p=[0.6, 0.3, 0.1])
        return np.choose(choice, [expert(engine, info), legal(engine, info), tokens(engine, info)])

    return policy


@dataclass
class Played:
    """Rollouts that have run to their ends: (T, n) per turn, (n,) per rollout."""

    first: dict[str, Any]
    observations: list[np.ndarray] = field(default_factory=list)
    rewards: list[np.ndarray] = field(default_factory=list)
    components: list[np.ndarray] = field(default_factory=list)
    state_keys: list[np.ndarray] = field(default_factory=list)
    messages: list[np.ndarray] = field(default_factory=list)
    terminated: Any = None
    truncated: Any = None
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def returns(self) -> np.ndarray:
        return np.sum(self.rewards, axis=0)

    @property
    def values(self) -> np.ndarray:
        return np.sum(self.components, axis=(0, 2))


def run(engine: AgenticVectorEnv, policy: Policy = expert, seed: int | None = 0, **options: Any) -> Played:
    """Run every row of an engine with autoreset disabled to its end."""
    observation, info = engine.reset(seed=seed, options=options)
    played = Played(info, [observation])
    over = np.zeros(engine.num_envs, dtype=bool)
    while not over.all():
        message = policy(engine, info)
        observation, reward, terminated, truncated, info = engine.step(message)
        over = terminated | truncated
        played.messages.append(message)
        played.observations.append(observation)
        played.rewards.append(reward)
        played.components.append(info["reward_components"])
        played.state_keys.append(info["state_key"])
    played.terminated, played.truncated, played.info = terminated, truncated, info
    return played


def engine_of(env_id: str, num_envs: int, **knobs: Any) -> AgenticVectorEnv:
    """Make a native engine with autoreset disabled."""
    arguments = {**agentic_gym.registration.TABLE[env_id.split("/")[1]], "autoreset_mode": "Disabled", **knobs}
    return AgenticVectorEnv(num_envs, **arguments)


def everything(engine: AgenticVectorEnv) -> dict[str, Any]:
    """What determines an engine's future, in a form that can be compared."""
    snapshot = engine.snapshot()
    generator = snapshot.pop("random")
    return {**snapshot, "random": generator and generator.bit_generator.state}


class Toolbox:
    """The functions above, reachable from test modules (which cannot import this file)."""

    run, engine_of = staticmethod(run), staticmethod(engine_of)
    expert, random_legal = staticmethod(expert), staticmethod(random_legal)
    everything = staticmethod(everything)
    random_tokens, mixed = staticmethod(random_tokens), staticmethod(mixed)


@pytest.fixture(scope="session")
def tools() -> type[Toolbox]:
    return Toolbox


@pytest.fixture(params=agentic_gym.IDS)
def env_id(request: pytest.FixtureRequest) -> str:
    return str(request.param)
