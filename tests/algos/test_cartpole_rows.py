"""CartPole's rows do what scalar environments do with the same seeds."""

import gymnasium
import numpy as np
import pytest

from algos import GroupPPO
from algos.cartpole_rows import CartPoleRows
from algos.rows import ScalarRows, make_rows


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("arguments", [{}, {"sutton_barto_reward": True}])
def test_rows_equal_scalar_environments(split, arguments):
    """Observations, rewards and ends, exactly, until every rollout has ended."""
    ours = make_rows("CartPole-v1", 12, arguments)
    theirs = ScalarRows([gymnasium.make("CartPole-v1", **arguments) for _ in range(12)])
    assert isinstance(ours, CartPoleRows)
    prompt, random = np.repeat([5, 0, 2**31 - 2], 3), np.random.default_rng(0)
    starts = [rows.reset(prompt, np.arange(9), split) for rows in (ours, theirs)]
    assert np.array_equal(starts[0][0], starts[1][0])
    assert np.array_equal(starts[0][1]["prompt"], prompt)
    active = np.arange(9)
    while len(active):
        action = random.integers(2, size=(len(active), 1))
        one, other = ours.step(active, action), theirs.step(active, action)
        for name in ("observation", "reward", "terminated", "truncated"):
            mine, reference = getattr(one, name), getattr(other, name)
            assert mine.dtype == reference.dtype
            assert np.array_equal(mine, reference), name
        active = active[~(one.terminated | one.truncated)]


def test_the_time_limit_truncates():
    """The steps of the specification, and no termination, while the pole is held up."""
    rows = make_rows("CartPole-v0", 1)
    observation, _ = rows.reset(np.array([0]), np.array([0]), "train")
    for step in range(200):
        # A linear rule that balances the pole.
        push = np.array([[int(observation[0] @ [0.1, 0.5, 1.0, 1.0] > 0)]])
        tick = rows.step(np.array([0]), push)
        observation = tick.observation
        assert bool(tick.truncated[0]) == (step == 199)
        assert not tick.terminated[0]


@pytest.mark.parametrize("arguments", [{"render_mode": "rgb_array"}, {"disable_env_checker": True}])
def test_other_arguments_take_scalar_environments(arguments):
    """What the vector version does not have is left to the scalar one."""
    assert isinstance(make_rows("CartPole-v1", 2, arguments), ScalarRows)


def test_wrapped_environments_stay_scalar():
    """A wrapper would be passed over."""
    env = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: reward / 2)
    assert isinstance(make_rows(env, 2), ScalarRows)


def test_training_uses_them():
    """From an id as well as from an environment."""
    for env in ("CartPole-v1", gymnasium.make("CartPole-v1")):
        model = GroupPPO("MessagePolicy", env, n_prompts=2, group_size=2, seed=0)
        assert isinstance(model.rows, CartPoleRows)
        assert model.learn(50, log_interval=None).num_timesteps >= 50
