"""A rollout is a function of environment, prompt, rollout key and messages, and of nothing else."""

import os
import random
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

import agentic_gym

NOISE = {"reward_noise": 1.0, "slip": 0.3, "dense": True}


def episodes(env: gymnasium.Env, seed: int | None, n: int = 5) -> Any:
    """Yield everything the environment says over n episodes of expert messages."""
    yield env.reset(seed=seed)
    for episode in range(n):
        over = False
        while not over:
            results = env.step(env.get_wrapper_attr("expert_message")())
            over = results[2] or results[3]
            yield results
        if episode < n - 1:
            yield env.reset()


def test_two_copies_agree(env_id: str) -> None:
    """P37: a seed also fixes the episodes after later resets."""
    one, two = (list(episodes(gymnasium.make(env_id, **NOISE), seed=3)) for _ in range(2))
    assert data_equivalence(one, two, exact=True)
    other = list(episodes(gymnasium.make(env_id, **NOISE), seed=4))
    assert not data_equivalence(one, other, exact=True)


def test_a_seed_wipes_the_past(env_id: str) -> None:
    """P37: also a split that was asked for before."""
    env = gymnasium.make(env_id, **NOISE)
    fresh = list(episodes(env, seed=3))
    env.reset(options={"split": "test", "prompt": 5})
    assert data_equivalence(fresh, list(episodes(env, seed=3)), exact=True)


def test_interleaved_environments_do_not_touch_each_other(env_id: str) -> None:
    """P37."""
    alone = [list(episodes(gymnasium.make(env_id, **NOISE), seed=seed)) for seed in (1, 2)]
    together = zip(*(episodes(gymnasium.make(env_id, **NOISE), seed=seed) for seed in (1, 2)), strict=False)
    for index, (one, two) in enumerate(together):
        assert data_equivalence(one, alone[0][index], exact=True)
        assert data_equivalence(two, alone[1][index], exact=True)


def test_unseeded_environments_differ() -> None:
    prompts = {gymnasium.make("agentic_gym/Search-v0").reset()[1]["rollout"] for _ in range(5)}
    assert len(prompts) == 5
    _, info = agentic_gym.AgenticVectorEnv(5).reset(seed=[1, None, None, 1, 2])
    assert len(set(info["rollout"])) == 4 and info["rollout"][0] == info["rollout"][3]


def test_numpy_integers_are_seeds() -> None:
    env, envs = gymnasium.make("agentic_gym/Search-v0").unwrapped, agentic_gym.AgenticVectorEnv(3, family="Search")
    assert data_equivalence(env.reset(seed=np.int64(5)), env.reset(seed=5), exact=True)
    expected = envs.reset(seed=5)
    for seed in (np.int64(5), np.array([5, 6, 7]), [5, 6, 7]):
        assert data_equivalence(envs.reset(seed=seed), expected, exact=True)


@pytest.mark.parametrize("seed", [-1, [1, 2], [1, -2, 3], 1.5, [1, 2, "a"]])
def test_wrong_seeds_raise_and_change_nothing(seed: Any) -> None:
    envs, twin = (agentic_gym.AgenticVectorEnv(3, family="Search") for _ in range(2))
    envs.reset(seed=5)
    twin.reset(seed=5)
    with pytest.raises((ValueError, TypeError, gymnasium.error.Error)):
        envs.reset(seed=seed)
    assert data_equivalence(envs.reset(), twin.reset(), exact=True)


def test_global_generators_are_left_alone(env_id: str) -> None:
    """P37."""
    before = random.getstate(), np.random.get_state()
    list(episodes(gymnasium.make(env_id, **NOISE), seed=None, n=2))
    envs = gymnasium.make_vec(env_id, num_envs=4)
    envs.reset(seed=0)
    envs.step(envs.unwrapped.expert_message())
    after = random.getstate(), np.random.get_state()
    assert data_equivalence(before, after, exact=True)


SCRIPT = """
import random, sys, hashlib
import numpy as np
before = random.getstate(), str(np.random.get_state())
import agentic_gym, gymnasium
assert before == (random.getstate(), str(np.random.get_state())), "the import touched a generator"
assert "torch" not in sys.modules and "stable_baselines3" not in sys.modules
digest = hashlib.sha256()
for env_id in agentic_gym.IDS:
    envs = gymnasium.make_vec(env_id, num_envs=8, slip=0.2, reward_noise=1.0)
    envs.reset(seed=0)
    for _ in range(6):
        observation, reward, *_, info = envs.step(envs.unwrapped.expert_message())
        for array in (observation, reward, info["state_key"], info["rollout"]):
            digest.update(array.tobytes())
print(digest.hexdigest())
"""


def test_processes_agree_whatever_their_hash_seed() -> None:
    """P37; and importing the package neither draws random numbers nor imports torch."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_a_row_does_not_depend_on_its_neighbours(env_id: str, tools: Any) -> None:
    """The same prompts, rollouts and messages in another order and company."""
    n, knobs = 24, {**NOISE, "filler": 1}
    prompt, rollout = np.arange(n) * 7, np.arange(n) * 11 + 3
    base = tools.engine_of(env_id, n, **knobs)
    played = tools.run(base, tools.mixed(1), prompt=prompt, rollout=rollout)
    order = np.random.default_rng(0).permutation(n)[: n // 2]
    turns = iter(played.messages)
    part = tools.run(
        tools.engine_of(env_id, len(order), **knobs),
        lambda *_: next(turns)[order],
        prompt=prompt[order],
        rollout=rollout[order],
    )
    for index in range(len(part.rewards)):
        np.testing.assert_array_equal(part.observations[index + 1], played.observations[index + 1][order])
        np.testing.assert_array_equal(part.rewards[index], played.rewards[index][order])
        np.testing.assert_array_equal(part.state_keys[index], played.state_keys[index][order])
    assert len(part.rewards) > 1 or "Reason" in env_id


def test_noise_is_common_only_if_asked_for(env_id: str, tools: Any) -> None:
    """``common_random_numbers`` gives a prompt's rollouts one noise; otherwise every key has its own."""
    for common in (True, False):
        engine = tools.engine_of(env_id, 64, slip=0.5, reward_noise=1.0, dense=True, common_random_numbers=common)
        for prompt in range(4):
            rewards = np.array(tools.run(engine, prompt=prompt, rollout=np.arange(64)).rewards)
            spread = np.ptp(rewards, axis=1)
            assert (spread == 0).all() if common else spread[0] > 0
