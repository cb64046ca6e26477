"""The batch engine as a stable-baselines3 VecEnv (import this module only with SB3 installed).

from stable_baselines3 import PPO
from agentic_gym.sb3 import AgenticVecEnv
PPO("MlpPolicy", AgenticVecEnv(64, family="Search")).learn(100_000)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from agentic_gym.engine import AgenticVectorEnv


class AgenticVecEnv(VecEnv):
    """Many rows with SB3's interface, stepped together by the batch engine.

    Ended rows restart in the same step, as SB3 expects. The info of an ended row has everything
    that the engine reports, ``terminal_observation``, ``TimeLimit.truncated`` and, as SB3's
    Monitor would add, ``episode`` (with the return unrounded); the info of other rows is empty,
    because building it would take longer than the step.

    Args:
        num_envs: number of rows.
        family: a family's name, ``"Mixture"``, or an id such as ``"agentic_gym/SearchHard-v0"``.
        **arguments: as for ``AgenticVectorEnv``.
    """

    def __init__(self, num_envs: int = 1, family: str | None = None, **arguments: Any) -> None:
        """See the class docstring."""
        self.engine = AgenticVectorEnv(num_envs, family, autoreset_mode=AutoresetMode.SAME_STEP, **arguments)
        super().__init__(num_envs, self.engine.single_observation_space, self.engine.single_action_space)
        self.metadata = {**self.engine.metadata}
        self._actions: npt.NDArray[np.int64] | None = None
        self._returns = np.zeros(num_envs)
        self._start = time.time()

    def reset(self) -> npt.NDArray[np.float32]:
        """Start all rows; seeds and options given before apply to this reset only."""
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        observation, info = self.engine.reset(seed=seeds, options=_join_options(self._options))
        self.reset_infos = [_row(info, row) for row in range(self.num_envs)]
        self._returns[:] = 0.0
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: npt.NDArray[np.int64]) -> None:
        """Remember the actions."""
        self._actions = np.asarray(actions)

    def step_wait(
        self,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry the actions out."""
        assert self._actions is not None, "call step_async() first"
        observation, reward, terminated, truncated, info = self.engine.step(self._actions)
        self._returns += reward
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(done).tolist():
            infos[row] = _row(info["final_info"], row) | {
                "terminal_observation": info["final_obs"][row],
                "TimeLimit.truncated": bool(truncated[row] and not terminated[row]),
                "episode": {
                    "r": float(self._returns[row]),
                    "l": int(info["final_info"]["turn"][row]),
                    "t": round(time.time() - self._start, 6),
                },
            }
        self._returns[done] = 0.0
        return observation, reward.astype(np.float32), done, infos

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return (num_envs, L * V), see the engine."""
        return self.engine.action_masks()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the engine, once per row."""
        return [getattr(self.engine, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the engine; rows cannot differ."""
        setattr(self.engine, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of the engine, once for all rows, and take the rows of what it returns."""
        result = getattr(self.engine, method_name)(*args, **kwargs)
        return [None if result is None else result[row] for row in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Say that rows are monitored, because ``info["episode"]`` is there; nothing else wraps them."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[npt.NDArray[np.uint8] | None]:
        """Return the rows' pictures."""
        frames = self.engine.render()
        return [None] * self.num_envs if frames is None else list(frames)


def _row(info: dict[str, Any], row: int) -> dict[str, Any]:
    values = {name: array[row] for name, array in info.items() if not name.startswith("_")}
    return {name: v.copy() if isinstance(v, np.ndarray) else v.item() for name, v in values.items()}


def _join_options(options: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join the options of all rows; an option may also be given for all rows at once, as an array."""
    if any(set(option) != set(options[0]) for option in options):
        raise ValueError(f"options={options!r} are not allowed: every row must name the same options.")
    joint = {}
    for name, value in options[0].items():
        same = np.ndim(value) > 0 or all(option[name] == value for option in options)
        if not same and name == "split":
            raise ValueError("options['split'] is not allowed to differ between rows.")
        joint[name] = value if same else np.array([option[name] for option in options])
    return joint
