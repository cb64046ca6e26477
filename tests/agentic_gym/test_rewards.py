"""RewardTransform by hand; the contract with environments is in tests/conformance/test_rewards.py."""

import numpy as np
import pytest

from agentic_gym import streams
from agentic_gym.knobs import Knobs
from agentic_gym.rewards import RewardTransform

KEY = streams.mix(np.arange(4))
TURN = np.array([1, 2, 3, 4])


def deliver(transform: RewardTransform, environment: list[int], ended: list[bool], **kwargs: object) -> np.ndarray:
    arguments = {"value": np.array([1.0, 2.0, 3.0, 4.0]), "earned": np.array([10.0, 20.0, 30.0, 40.0]), **kwargs}
    return transform.deliver(np.array(environment), ended=np.array(ended), key=KEY, turn=TURN, **arguments)


def test_delivery_by_hand() -> None:
    """Final: earned at the end; dense: the turn's value; the offset at the end only."""
    transform = RewardTransform([Knobs(reward_scale=2.0, reward_offset=5.0), Knobs(reward_offset=-1.0, dense=True)])
    rewards = deliver(transform, [0, 0, 1, 1], [False, True, False, True])
    assert rewards.tolist() == [0.0, 45.0, 3.0, 3.0] and rewards.dtype == np.float64


def test_nothing_is_delivered_early_whatever_the_noise() -> None:
    noisy = RewardTransform([Knobs(reward_noise=1.0)])
    rewards = deliver(noisy, [0] * 4, [False, True, False, False])
    assert rewards[[0, 2, 3]].tolist() == [0.0, 0.0, 0.0] and rewards[1] != 20.0


@pytest.mark.parametrize("distribution", ["normal", "student_t"])
def test_noise_is_a_function_of_key_and_turn(distribution: str) -> None:
    """Scaled with the reward; only where the environment has noise."""
    knobs = Knobs(reward_noise=0.5, reward_noise_dist=distribution, reward_scale=3.0, dense=True)
    transform = RewardTransform([knobs, Knobs(dense=True), Knobs(reward_noise=0.5, dense=True)])
    rewards = deliver(transform, [0, 1, 2, 0], [False] * 4)
    draw = getattr(streams, distribution)(KEY, streams.REWARD, TURN)
    assert rewards[1] == 2.0
    np.testing.assert_allclose(rewards[[0, 3]], 3.0 * (np.array([1.0, 4.0]) + 0.5 * draw[[0, 3]]))
    np.testing.assert_allclose(rewards[2], 3.0 + 0.5 * streams.normal(KEY, streams.REWARD, TURN)[2])


def test_large_and_small_scales_keep_double_precision() -> None:
    """Rewards are float64: 1e6 + 0.01 does not collapse, 3.3e-7 does not vanish."""
    big = RewardTransform([Knobs(reward_offset=1e6, dense=True, reward_scale=0.01)])
    assert deliver(big, [0] * 4, [True] * 4)[0] == 1e6 + 0.01
    small = RewardTransform([Knobs(reward_scale=3.3e-7, dense=True)])
    assert deliver(small, [0] * 4, [True] * 4)[0] == 3.3e-7
