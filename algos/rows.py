"""Rows: environments that run side by side, each started from a prompt.

The collector's view of an environment. Three kinds are supported: the batch engine (any vector
environment with ``metadata["group_contract"]``), scalar Gymnasium environments (CartPole in its vector form), and the
environments inside an SB3 VecEnv. Where an environment does not know prompts, its reset seed is
the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor

IntArray = npt.NDArray[np.int64]
SEED_PROMPTS = 2**31 - 1
"""Where the seed is the prompt, this many prompts can be told apart."""
CONTRACT = ("grammar", "num_prompts", "prompt_cycle", "max_tokens", "environment_names")
"""What a vector environment has besides Gymnasium's API."""
KEPT = (
    "environment", "task", "prompt", "score", "is_success", "reward_components", "reward_valid",
    "state_key", "ground_truth", "process_reward",
)  # fmt: skip
"""What the trainer reads of ``info``, where it is there."""
MISSING: dict[str, Any] = {"score": np.nan, "is_success": False, "reward_valid": True}
"""Stands in where only some rows report; environments may report these at the end only."""


class Tick(NamedTuple):
    """One turn of k rows: observations, rewards, flags and what ``info`` says, rows first."""

    observation: Any
    reward: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    info: dict[str, npt.NDArray[Any]]


class Rows(Protocol):
    """What the collector needs; ``name`` is how messages call the environment."""

    n: int
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    grammar: Any
    num_prompts: int
    prompt_cycle: int
    max_tokens: int
    environment_names: tuple[str, ...]
    name: str

    def reset(self, prompt: IntArray, rollout: IntArray, split: str) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Start k <= n rollouts in the first k rows; return observations and info."""

    def step(self, active: IntArray, action: IntArray) -> Tick:
        """Step the rows ``active`` with their actions (k, L)."""


class VectorRows:
    """Rows of the batch engine: a vector environment with the group contract, autoreset disabled."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        """See the class docstring."""
        if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise ValueError(
                "env: a vector environment must have autoreset disabled; make it with autoreset_mode='Disabled'."
            )
        missing = [name for name in CONTRACT if not hasattr(env.unwrapped, name)]
        if missing:
            raise ValueError(f"env={env} lacks {missing}; give its id or a scalar environment instead.")
        self.env = env
        self.n = env.num_envs
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        base: Any = env.unwrapped
        self.grammar = base.grammar
        self.num_prompts = int(base.num_prompts)
        self.prompt_cycle = int(base.prompt_cycle)
        self.max_tokens = int(base.max_tokens)
        self.environment_names = tuple(base.environment_names)
        self.name = "+".join(self.environment_names)

    def reset(self, prompt: IntArray, rollout: IntArray, split: str) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Start k rollouts; the rows behind them start too, and what they do is thrown away."""
        k = len(prompt)
        everyone = np.arange(self.n) % k
        options = {"prompt": prompt[everyone], "rollout": rollout[everyone], "split": split}
        observation, info = self.env.reset(options=options)
        return _take(observation, np.arange(k)), {"prompt": prompt, **_kept(info, np.arange(k))}

    def step(self, active: IntArray, action: IntArray) -> Tick:
        """Rows that are not active have ended, and stand still."""
        messages = np.zeros((self.n, action.shape[1]), dtype=np.int64)
        messages[active] = action
        observation, reward, terminated, truncated, info = self.env.step(messages)
        return Tick(
            _take(observation, active), reward[active], terminated[active], truncated[active],
            _kept(info, active),
        )  # fmt: skip

    def branch(self, rows: IntArray, rollout: IntArray) -> None:
        """Let running rows go on under new rollout keys, as copies of them would."""
        base: Any = self.env.unwrapped
        base.fork(rows, rows, rollout)


class ScalarRows:
    """Rows of scalar environments, stepped one by one, only while their rollout runs."""

    def __init__(self, cells: Sequence[Any]) -> None:
        """Take environments with Gymnasium's scalar ``reset`` and ``step``."""
        self.cells = list(cells)
        self.n = len(self.cells)
        first = self.cells[0]
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.knows_prompts = bool(first.metadata.get("group_contract"))
        self.grammar = _attribute(first, "grammar", None)
        self.num_prompts = int(_attribute(first, "num_prompts", SEED_PROMPTS))
        self.prompt_cycle = int(_attribute(first, "prompt_cycle", 1))
        self.max_tokens = int(_attribute(first, "max_tokens", _episode_tokens(first)))
        self.environment_names = tuple(_attribute(first, "environment_names", ("environment",)))
        self.name = getattr(_attribute(first, "spec", None), "id", type(first).__name__)
        self._discrete = isinstance(self.action_space, gymnasium.spaces.Discrete)

    def reset(self, prompt: IntArray, rollout: IntArray, split: str) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Reset the first k cells; without prompts the seed is the prompt, and splits use other seeds."""
        results = []
        for cell, p, r in zip(self.cells, prompt, rollout, strict=False):
            if self.knows_prompts:
                results.append(cell.reset(options={"prompt": int(p), "rollout": int(r), "split": split}))
            else:
                results.append(cell.reset(seed=seed_of(int(p), split)))
        observations, infos = zip(*results, strict=True)
        # Explicit identity also where the environment has none.
        info = {"prompt": np.array(prompt), **self._info(infos)}
        return _stack(self.observation_space, observations), info

    def step(self, active: IntArray, action: IntArray) -> Tick:
        """Step the active cells."""
        taken = [int(a[0]) if self._discrete else a for a in action]
        results = [self.cells[row].step(a) for row, a in zip(active, taken, strict=True)]
        observations, rewards, terminated, truncated, infos = zip(*results, strict=True)
        return Tick(
            _stack(self.observation_space, observations), np.array(rewards, dtype=np.float64),
            np.array(terminated, dtype=np.bool_), np.array(truncated, dtype=np.bool_), self._info(infos),
        )  # fmt: skip

    def _info(self, infos: Sequence[Mapping[str, Any]]) -> dict[str, npt.NDArray[Any]]:
        """Without the group contract only what is SB3's convention can be trusted to mean the same."""
        names = KEPT if self.knows_prompts else ("is_success",)
        return {
            name: np.stack([np.asarray(i.get(name, MISSING.get(name))) for i in infos])
            for name in names
            if (any if name in MISSING else all)(name in i for i in infos)
        }


class _VecEnvCell:
    """One environment inside an SB3 VecEnv, reached without the VecEnv's autoreset."""

    def __init__(self, env: VecEnv, index: int) -> None:
        self.vec_env, self._index = env, index
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata = env.get_attr("metadata", index)[0]

    def reset(self, **arguments: Any) -> Any:
        return self.vec_env.env_method("reset", indices=self._index, **arguments)[0]

    def step(self, action: Any) -> Any:
        return self.vec_env.env_method("step", action, indices=self._index)[0]

    def get_wrapper_attr(self, name: str) -> Any:
        # Asking first: a subprocess would die of the AttributeError.
        if not self.vec_env.has_attr(name):
            raise AttributeError(name)
        return self.vec_env.get_attr(name, self._index)[0]


def make_rows(env: Any, n_rows: int, env_kwargs: Mapping[str, Any] | None = None) -> Rows:
    """Build rows from whatever a user has.

    Args:
        env: an id, a Gymnasium Env or VectorEnv, or an SB3 VecEnv.
        n_rows: how many rows are wanted. Where ``env`` can be made again from its spec, exactly as
            many are made; otherwise its own rows are used, in several waves if they are fewer.
        env_kwargs: arguments for an id.

    Raises:
        TypeError: if ``env`` is none of these.
        ValueError: if a vector environment cannot start groups, or has a wrapper that would be
            passed over.
    """
    if env_kwargs is not None and not isinstance(env_kwargs, Mapping):
        raise TypeError(f"env_kwargs={env_kwargs!r} is not allowed: it must be a dict of the environment's arguments.")
    if env_kwargs and not isinstance(env, str):
        raise ValueError(f"env_kwargs={dict(env_kwargs)!r} are only allowed where env is an id.")
    if isinstance(env, str):
        return _rows_of_spec(_spec(env), n_rows, dict(env_kwargs or {}))
    if isinstance(env, VecEnv):
        return _rows_of_vec_env(env, n_rows)
    if isinstance(env, SyncVectorEnv):
        return ScalarRows(env.envs)
    if isinstance(env, VectorEnv):
        if not env.metadata.get("group_contract"):
            raise ValueError(
                f"env={env} cannot start a row from a prompt or seed of its own; "
                "give its id or a scalar environment instead."
            )
        if hasattr(env, "clone"):
            return VectorRows(env.clone(n_rows, autoreset_mode=AutoresetMode.DISABLED))
        return VectorRows(env)
    if isinstance(env, gymnasium.Env):
        if env.spec is not None and not env.spec.additional_wrappers:
            return _rows_of_spec(env.spec, n_rows, {})
        return ScalarRows([env])
    raise TypeError(f"env={env!r} is not allowed: give an id, a Gymnasium Env or VectorEnv, or an SB3 VecEnv.")


def _rows_of_vec_env(env: VecEnv, n_rows: int) -> Rows:
    while isinstance(env, VecMonitor):
        env = env.venv
    if isinstance(env, VecEnvWrapper):
        raise ValueError(
            f"env: the wrapper {type(env).__name__} is not allowed, because rollouts are started and "
            "stepped behind it; wrap the environments inside instead."
        )
    engine = getattr(env, "engine", None)
    if engine is not None:
        return VectorRows(engine.clone(n_rows, autoreset_mode=AutoresetMode.DISABLED))
    return ScalarRows([_VecEnvCell(env, index) for index in range(env.num_envs)])


def _spec(env_id: str) -> Any:
    module, separator, name = env_id.partition(":")
    if separator:
        __import__(module)
    else:
        name = env_id
    # Imported late; importing the package registers its ids.
    from agentic_gym.registration import find_spec

    return find_spec(name)


def _rows_of_spec(spec: Any, n_rows: int, arguments: dict[str, Any]) -> Rows:
    if spec.vector_entry_point is not None:
        knows_prompts = str(spec.vector_entry_point).startswith("agentic_gym.")
        if knows_prompts:
            return VectorRows(gymnasium.make_vec(spec, num_envs=n_rows, autoreset_mode="Disabled", **arguments))
    if _is_plain_cartpole(spec, arguments):
        from algos.cartpole_rows import CartPoleRows

        return CartPoleRows(spec, n_rows, {**spec.kwargs, **arguments})
    return ScalarRows([gymnasium.make(spec, **arguments) for _ in range(n_rows)])


def _is_plain_cartpole(spec: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether rows can be stepped together, as Gymnasium's own vector version of the environment does."""
    entry = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    return (
        spec.entry_point == entry and spec.max_episode_steps is not None and not spec.additional_wrappers
        and set(spec.kwargs) | set(arguments) <= {"sutton_barto_reward"}
    )  # fmt: skip


def seed_of(prompt: int, split: str) -> int:
    """Return the reset seed that stands for a prompt; the splits use other seeds."""
    return prompt if split == "train" else SEED_PROMPTS - 1 - prompt


def _attribute(env: Any, name: str, default: Any) -> Any:
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        return default


def _episode_tokens(env: Any) -> int:
    """Tokens of the longest episode by the environment's spec; 1 where it states no limit."""
    limit = getattr(_attribute(env, "spec", None), "max_episode_steps", None)
    return (limit or 1) * int(np.prod(env.action_space.shape, dtype=np.int64))


def _stack(space: gymnasium.Space[Any], observations: Sequence[Any]) -> Any:
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: np.stack([o[name] for o in observations]) for name in space.spaces}
    return np.stack([np.asarray(o) for o in observations])


def _take(observation: Any, rows: IntArray) -> Any:
    """Copy the observations of some rows."""
    if isinstance(observation, dict):
        return {name: values[rows] for name, values in observation.items()}
    return observation[rows]


def _kept(info: Mapping[str, Any], rows: IntArray) -> dict[str, npt.NDArray[Any]]:
    return {name: info[name][rows] for name in KEPT if name in info}
