"""The engine as an SB3 VecEnv, and SB3's algorithms on it."""

from typing import Any

import numpy as np
import pytest
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecMonitor

from agentic_gym import IDS
from agentic_gym.families import FAMILIES
from agentic_gym.sb3 import AgenticVecEnv

SHORT = {"n_steps": 16, "batch_size": 32, "n_epochs": 1, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}


@pytest.mark.parametrize("family", [*FAMILIES, "Mixture"])
def test_equals_sb3_own_vec_env(family: str) -> None:
    """Observations, rewards, ends, terminal observations and episode statistics of DummyVecEnv."""
    knobs: dict[str, Any] = {"slip": 0.2, "reward_noise": 0.5}
    ours = AgenticVecEnv(3, family=family, **knobs)
    theirs = make_vec_env(f"agentic_gym/{family}-v0", n_envs=3, env_kwargs=knobs)
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    for env in (ours, theirs):
        env.seed(4)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    for one, two in zip(ours.reset_infos, theirs.reset_infos, strict=True):
        assert set(one) == set(two) and all(np.array_equal(one[name], two[name]) for name in one)
    ends = 0
    for _ in range(120):
        action = ours.engine.expert_message()
        one, two = ours.step(action), theirs.step(action)
        for a, b in zip(one[:3], two[:3], strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        for done, own, other in zip(one[2], one[3], two[3], strict=True):
            if done:
                ends += 1
                # Monitor rounds the return to six decimals; ours is exact.
                assert round(own["episode"]["r"], 6) == other["episode"]["r"]
                assert own["episode"]["l"] == other["episode"]["l"]
                for name in other:
                    if name != "episode":
                        assert np.array_equal(own[name], other[name]), name
                        assert type(own[name]) is type(other[name]), name
            else:
                assert own == {}
    assert ends >= 8
    ours.close()
    theirs.close()


@pytest.mark.parametrize("env_id", IDS)
def test_an_id_stands_for_its_family_and_knobs(env_id: str) -> None:
    ours, theirs = AgenticVecEnv(2, env_id, slip=0.2), make_vec_env(env_id, n_envs=2, env_kwargs={"slip": 0.2})
    ours.seed(1), theirs.seed(1)
    for _ in range(4):
        np.testing.assert_array_equal(ours.reset(), theirs.reset())
    assert all(member.knobs.slip == 0.2 for member in ours.engine.family.members)
    ours.seed(2)
    first, clone = ours.reset(), ours.engine.clone(2, "Disabled")
    np.testing.assert_array_equal(first, clone.reset(seed=2)[0])


def test_knobs_win_over_those_of_an_id() -> None:
    assert AgenticVecEnv(2, family="agentic_gym/SearchHard-v0", depth=3).engine.family.members[0].depth == 3
    assert AgenticVecEnv(2, "Reason").get_attr("environment_names") == [("Reason",)] * 2


def test_seeds_and_options_hold_for_one_reset() -> None:
    env = AgenticVecEnv(3, family="Search")
    env.seed(1)
    env.set_options({"prompt": np.array([4, 5, 6]), "split": "test"})
    first = env.reset()
    assert [info["prompt"] for info in env.reset_infos] == [4, 5, 6]
    env.reset()
    assert [info["prompt"] for info in env.reset_infos] != [4, 5, 6]
    env.seed(1)
    env.set_options([{"prompt": p, "split": "test"} for p in (4, 5, 6)])
    np.testing.assert_array_equal(env.reset(), first)
    for wrong in ([{"prompt": 1}, {}, {}], [{"split": "test"}, {"split": "train"}, {"split": "test"}]):
        env.set_options(wrong)
        with pytest.raises(ValueError, match="options"):
            env.reset()


def test_attributes_and_methods() -> None:
    env = AgenticVecEnv(3, family="Search", render_mode="rgb_array")
    env.reset()
    assert env.get_attr("num_prompts") == [4096] * 3 and env.get_attr("num_prompts", [1]) == [4096]
    assert env.has_attr("action_masks") and not env.has_attr("no_such_thing")
    np.testing.assert_array_equal(
        np.stack(env.env_method("expert_message", indices=[2])), env.engine.expert_message()[[2]]
    )
    assert env.env_method("close") == [None] * 3
    assert env.env_is_wrapped(Monitor) == [True] * 3 and env.env_is_wrapped(VecMonitor) == [False] * 3
    env.set_attr("note", 5)
    assert env.get_attr("note", 0) == [5]
    assert len(env.get_images()) == 3 and env.render().shape[2] == 3
    assert AgenticVecEnv(2).get_images() == [None, None]
    assert env.metadata["group_contract"] and env.metadata is not env.engine.metadata


def test_ppo_trains() -> None:
    env = AgenticVecEnv(8, family="Search")
    model = PPO("MlpPolicy", env, **SHORT).learn(128)
    assert model.num_timesteps == 128 and len(model.ep_info_buffer) > 0
    mean, _ = evaluate_policy(model, AgenticVecEnv(4, family="Search"), n_eval_episodes=4)
    assert -3 <= mean <= 1


@pytest.mark.parametrize("kind", ["engine", "scalar"])
def test_maskable_ppo_trains(kind: str) -> None:
    """P32, P33: through make_vec_env and on the engine; every action it takes is allowed in its slot."""
    if kind == "engine":
        env: Any = AgenticVecEnv(4, family="Database")
    else:
        env = make_vec_env("agentic_gym/Database-v0", n_envs=4)
    assert is_masking_supported(env)
    model = MaskablePPO("MlpPolicy", env, **SHORT).learn(64)
    observation = env.reset()
    for _ in range(5):
        masks = get_action_masks(env)
        assert masks.shape == (4, env.action_space.nvec.sum()) and masks.dtype == bool
        action, _ = model.predict(observation, action_masks=masks)
        slots = np.arange(action.shape[1])
        assert masks.reshape(4, len(slots), -1)[np.arange(4)[:, None], slots, action].all()
        observation, *_ = env.step(action)


def test_sb3_masks_are_those_of_the_info() -> None:
    env = AgenticVecEnv(4, family="Mixture")
    env.reset()
    masks = np.stack([info["action_mask"] for info in env.reset_infos])
    np.testing.assert_array_equal(get_action_masks(env), masks.astype(bool))
