"""CartPole in rows: Gymnasium's vector environment, whose rows start from seeds of their own.

Gymnasium's ``CartPoleVectorEnv`` draws the starts of all rows from one seed, but a group of rollouts
starts from one state. Here each row starts where the scalar environment starts with that row's seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.utils import seeding

from algos.rows import SEED_PROMPTS, IntArray, Tick, seed_of

START = 0.05
"""Each of the four numbers of a start is uniform in [-START, START]."""


class CartPoleRows:
    """Rows of CartPole, stepped together; the prompt is the reset seed.

    Args:
        spec: Gymnasium's specification, for its name and its limit on steps.
        n_rows: number of rows.
        arguments: arguments of the environment.
    """

    grammar = None
    num_prompts = SEED_PROMPTS
    prompt_cycle = 1
    environment_names: tuple[str, ...] = ("environment",)

    def __init__(self, spec: Any, n_rows: int, arguments: dict[str, Any]) -> None:
        """See the class docstring."""
        self.env: Any = CartPoleVectorEnv(n_rows, max_episode_steps=spec.max_episode_steps, **arguments)
        self.n, self.name, self.max_tokens = n_rows, spec.id, spec.max_episode_steps
        self.observation_space = self.env.single_observation_space
        self.action_space = self.env.single_action_space

    def reset(self, prompt: IntArray, rollout: IntArray, split: str) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Start k <= n rollouts in the first k rows."""
        self.env.reset(seed=0)
        seeds, place = np.unique(prompt, return_inverse=True)
        starts = np.array([start_state(seed_of(int(seed), split)) for seed in seeds])
        # What the rows behind them do is thrown away.
        self.env.state = np.resize(starts[place], (self.n, 4)).T.copy()
        return starts[place].astype(np.float32), {"prompt": np.array(prompt)}

    def step(self, active: IntArray, action: IntArray) -> Tick:
        """Step all rows; those that have ended start again, which nobody sees."""
        pushed = np.zeros(self.n, dtype=np.int64)
        pushed[active] = action[:, 0]
        observation, reward, terminated, truncated, _ = self.env.step(pushed)
        return Tick(
            observation[active], reward[active].astype(np.float64), terminated[active], truncated[active], {}
        )  # fmt: skip


def start_state(seed: int) -> npt.NDArray[np.float64]:
    """Return where the scalar environment starts, (4,)."""
    random, _ = seeding.np_random(seed)
    return random.uniform(-START, START, size=4)
