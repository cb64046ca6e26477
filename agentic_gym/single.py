"""The scalar environment: a one-row view of the batch engine."""

from __future__ import annotations

import operator
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from agentic_gym.engine import RENDER_MODES, AgenticVectorEnv


class AgenticEnv(gymnasium.Env[npt.NDArray[np.float32], npt.NDArray[np.int64]]):
    """One rollout at a time; dynamics, rewards and info are the engine's.

    Args:
        family: name of the family, ``"Mixture"``, or an id of this package; ``None`` takes ``"Chain"``.
        render_mode: ``None``, ``"ansi"`` or ``"rgb_array"``.
        **knobs: the family's knobs.

    A limit given to ``gymnasium.make`` as ``max_episode_steps`` is a wrapper that the environment does
    not know of: it cuts rollouts off before their reward is delivered, unless ``dense`` is set. Use the
    knob ``max_turns`` instead.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": list(RENDER_MODES),
        "render_fps": 2,
        "group_contract": True,
    }

    def __init__(self, family: str | None = None, render_mode: str | None = None, **knobs: Any) -> None:
        """See the class docstring."""
        self.engine = AgenticVectorEnv(
            1, family=family, autoreset_mode=AutoresetMode.DISABLED, render_mode=render_mode, **knobs
        )
        self.render_mode = render_mode
        self.observation_space = self.engine.single_observation_space
        self.action_space = self.engine.single_action_space
        self.grammar = self.engine.grammar
        self.environment_names = self.engine.environment_names
        self.num_prompts = self.engine.num_prompts
        self.prompt_cycle = self.engine.prompt_cycle
        self.max_tokens = self.engine.max_tokens
        self.__doc__ = self.engine.family.__doc__

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Start a rollout; ``options`` may name ``prompt``, ``rollout`` (ints) and ``split``.

        Raises:
            ValueError: if an option is unknown or has a value that is not allowed.
        """
        if options and "reset_mask" in options:
            raise ValueError("options['reset_mask'] is not allowed in a scalar environment.")
        super().reset(seed=None if seed is None else operator.index(seed))
        observation, info = self.engine.reset(seed=seed, options=options)
        return observation[0], _scalars(info)

    def step(self, action: npt.ArrayLike) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Carry out one message, an integer array (L,).

        Raises:
            ValueError: if the action has the wrong shape, type or range.
            gymnasium.error.ResetNeeded: if the rollout has ended or was never started.
        """
        message = np.asarray(action)
        shape = self.action_space.shape
        if message.shape != shape:
            raise ValueError(f"action of shape {message.shape} is not allowed: it must have shape {shape}.")
        observation, reward, terminated, truncated, info = self.engine.step(message[None])
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), _scalars(info)

    def render(self) -> Any:
        """Return the transcript as text (``ansi``) or as a picture (``rgb_array``)."""
        frames = self.engine.render()
        return None if frames is None else frames[0]

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return (L * V,) whether a token is legal in a slot for some prefix (for sb3-contrib)."""
        return np.asarray(self.engine.action_masks()[0])

    def expert_message(self) -> npt.NDArray[np.int64]:
        """Return the expert's message (L,) for the current state."""
        return np.asarray(self.engine.expert_message()[0])

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of everything that determines the rest of the rollout."""
        return self.engine.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go back to a snapshot."""
        self.engine.restore(snapshot)


def _scalars(info: dict[str, Any]) -> dict[str, Any]:
    """Take row 0, with numbers as Python numbers."""
    rows = {name: values[0] for name, values in info.items() if not name.startswith("_")}
    return {name: value.copy() if isinstance(value, np.ndarray) else value.item() for name, value in rows.items()}
