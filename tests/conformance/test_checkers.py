"""Gymnasium's and SB3's own checkers, and what every environment must survive. Warnings are errors."""

import copy
import json
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from stable_baselines3.common.env_checker import check_env as sb3_check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import SubprocVecEnv

import agentic_gym
from agentic_gym.families import FAMILIES
from agentic_gym.mixture import Mixture

INFO = {
    "environment": int,
    "task": int,
    "prompt": int,
    "rollout": int,
    "turn": int,
    "score": float,
    "is_success": bool,
    "reward_components": np.float64,
    "reward_valid": bool,
    "ground_truth": np.int64,
    "state_key": int,
    "action_mask": np.int8,
    "token_count": int,
}


def test_gymnasium_check_env(env_id: str) -> None:
    check_env(gymnasium.make(env_id).unwrapped)


def test_sb3_check_env(env_id: str) -> None:
    sb3_check_env(gymnasium.make(env_id).unwrapped)


def test_passive_checker_has_nothing_to_say(env_id: str) -> None:
    env = gymnasium.make(env_id)
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(30):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    env.close()
    env.close()


def test_scalar_types(env_id: str) -> None:
    """P35: Python scalars, exact dtypes, and an info that JSON can hold once arrays are lists."""
    env = gymnasium.make(env_id)
    observation, info = env.reset(seed=1)
    legal = np.random.default_rng(0)
    for _ in range(40):
        assert observation.dtype == np.float32 and observation.shape == env.observation_space.shape
        assert observation in env.observation_space
        assert set(info) == set(INFO)
        for name, kind in INFO.items():
            value = info[name]
            assert type(value) is kind if kind in (int, float, bool) else value.dtype == kind, name
        json.dumps(info, default=lambda array: array.tolist())
        grammar = env.get_wrapper_attr("grammar")
        message = grammar.sample(legal.random((1, grammar.n_slots)), np.array([info["environment"]]))[0]
        observation, reward, terminated, truncated, info = env.step(message)
        assert type(reward) is float and type(terminated) is bool and type(truncated) is bool
        if terminated or truncated:
            observation, info = env.reset()


def test_action_space_starts_at_zero(env_id: str) -> None:
    """P34: SB3 ignores ``start``."""
    space = gymnasium.make(env_id).action_space
    assert isinstance(space, gymnasium.spaces.MultiDiscrete)
    assert (space.start == 0).all() and len(set(space.nvec)) == 1


def test_spec_json(env_id: str) -> None:
    """P41: a spec survives JSON and carries knobs into the constructor."""
    spec = copy.deepcopy(gymnasium.spec(env_id))
    spec.kwargs = {**spec.kwargs, "reward_scale": 7.0}
    again = gymnasium.envs.registration.EnvSpec.from_json(spec.to_json())
    assert again == spec
    env = gymnasium.make(again)
    assert all(member.knobs.reward_scale == 7.0 for member in env.unwrapped.engine.family.members)
    assert env.spec.to_json()


def test_module_id_imports_the_package() -> None:
    """P40."""
    assert gymnasium.make("agentic_gym:agentic_gym/Chain-v0").unwrapped.engine.family.name == "Chain"


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_continue_identically(env_id: str, copier: Any) -> None:
    """P40: mid-rollout, and beyond the next resets."""
    env = gymnasium.make(env_id, reward_noise=1.0, slip=0.3, dense=True)
    env.reset(seed=4)
    if "Reason" not in env_id:  # it has one turn
        env.step(env.get_wrapper_attr("expert_message")())
    twin = copier(env)
    random = np.random.default_rng(0)
    for _ in range(40):
        message = random.integers(env.action_space.nvec)
        if random.random() < 0.7:
            message = env.get_wrapper_attr("expert_message")()
        one, two = env.step(message), twin.step(message)
        assert data_equivalence(one, two, exact=True)
        if one[2] or one[3]:
            assert data_equivalence(env.reset(), twin.reset(), exact=True)


def test_render_modes(env_id: str) -> None:
    for mode, kind in ((None, type(None)), ("ansi", str), ("rgb_array", np.ndarray)):
        env = gymnasium.make(env_id, render_mode=mode, disable_env_checker=mode is None)
        env.reset(seed=0)
        before = env.unwrapped.render() if mode is None else env.render()
        env.step(env.get_wrapper_attr("expert_message")())
        after = env.unwrapped.render() if mode is None else env.render()
        assert type(before) is type(after) is kind
        if mode == "ansi":
            assert after.startswith(before) and "agent: " in after[len(before) :]
        if mode == "rgb_array":
            assert after.dtype == np.uint8 and after.ndim == 3 and after.shape[2] == 3
            assert (before != after).any() and (before == 255).any()


def test_vector_render(env_id: str) -> None:
    envs = gymnasium.make_vec(env_id, num_envs=2, render_mode="ansi")
    envs.reset(seed=0)
    frames = envs.render()
    assert len(frames) == 2 and all("\nworld: " in frame for frame in frames)
    with pytest.raises(ValueError, match="render_mode='human'"):
        agentic_gym.AgenticVectorEnv(1, render_mode="human")


def test_action_masks_through_wrappers(env_id: str) -> None:
    """P33: sb3-contrib finds the masks behind wrappers; they agree with ``info["action_mask"]``."""
    env = Monitor(gymnasium.make(env_id, max_episode_steps=50))
    _, info = env.reset(seed=0)
    mask = env.get_wrapper_attr("action_masks")()
    assert mask.dtype == bool and mask.shape == (env.action_space.nvec.sum(),)
    np.testing.assert_array_equal(mask, info["action_mask"])
    # The mask leaves room for every legal message and is of use: it forbids something.
    message = env.get_wrapper_attr("expert_message")()
    assert mask.reshape(len(message), -1)[np.arange(len(message)), message].all() and not mask.all()
    vec_env = make_vec_env(env_id, n_envs=2)
    vec_env.reset()
    assert np.stack(vec_env.env_method("action_masks")).shape == (2, len(mask))


def test_action_masks_in_a_subprocess() -> None:
    """P33."""
    venv = make_vec_env(
        "agentic_gym/Search-v0", n_envs=2, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}
    )
    try:
        venv.seed(3)
        venv.reset()
        masks = venv.env_method("action_masks")
    finally:
        venv.close()
    assert len(masks) == 2 and masks[0].dtype == bool


def test_docs_have_gymnasium_sections() -> None:
    titles = ["Description", "Action Space", "Observation Space", "Starting State", "Rewards", "Episode End"]
    for family in (*FAMILIES.values(), Mixture):
        found = [line[7:] for line in (family.__doc__ or "").splitlines() if line.startswith("    ## ")]
        assert [title for title in found if title in titles] == titles
        assert {"Arguments", "Version History"} < set(found)
    assert gymnasium.make("agentic_gym/Search-v0").unwrapped.__doc__ == FAMILIES["Search"].__doc__
