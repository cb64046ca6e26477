"""The native vector environment against Gymnasium's own, in all autoreset modes."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import agentic_gym

MODES = [mode.value for mode in AutoresetMode]
NOISE = {"reward_noise": 1.0, "slip": 0.2, "dense": True}


def make(env_id: str, kind: str, mode: str, n: int = 3, **knobs: Any) -> gymnasium.vector.VectorEnv:
    if kind == "native":
        return gymnasium.make_vec(env_id, num_envs=n, autoreset_mode=mode, **knobs)
    vector_kwargs = {"autoreset_mode": AutoresetMode(mode)}
    return gymnasium.make_vec(env_id, num_envs=n, vectorization_mode=kind, vector_kwargs=vector_kwargs, **knobs)


def messages(envs: gymnasium.vector.VectorEnv, reference: agentic_gym.AgenticVectorEnv, random: Any) -> Any:
    """Mostly the expert's messages, so that rollouts get somewhere, else any tokens."""
    tokens = random.integers(envs.single_action_space.nvec, size=envs.action_space.shape)
    return np.where(random.random((envs.num_envs, 1)) < 0.8, reference.expert_message(), tokens)


def assert_same_info(one: dict[str, Any], two: dict[str, Any], rows: np.ndarray | None = None) -> None:
    assert set(one) == set(two)
    for name, values in one.items():
        mask = one[f"_{name}"] if f"_{name}" in one else (slice(None) if rows is None else rows)
        if isinstance(values, dict):
            assert_same_info(values, two[name])
        elif values.dtype == object:
            assert all(np.array_equal(a, b) for a, b in zip(values, two[name], strict=True)), name
        else:
            assert values.dtype == two[name].dtype, name
            np.testing.assert_array_equal(values[mask], two[name][mask], name)


@pytest.mark.parametrize("mode", MODES)
def test_native_equals_sync(env_id: str, mode: str) -> None:
    """The same seeds give the same everything, info and dtypes included (P29 for the reset tick)."""
    native, sync = (make(env_id, kind, mode, **NOISE) for kind in ("native", "sync"))
    assert native.single_observation_space == sync.single_observation_space
    assert native.single_action_space == sync.single_action_space
    (observation, info), (observation_2, info_2) = native.reset(seed=7), sync.reset(seed=7)
    np.testing.assert_array_equal(observation, observation_2)
    assert_same_info(info_2, info)
    random = np.random.default_rng(0)
    for _ in range(45):
        action = messages(native, native.unwrapped, random)
        one, two = native.step(action), sync.step(action)
        for a, b in zip(one[:4], two[:4], strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        assert_same_info(two[4], one[4])
        over = one[2] | one[3]
        if mode == "Disabled" and over.any():
            one, two = native.reset(options={"reset_mask": over}), sync.reset(options={"reset_mask": over})
            np.testing.assert_array_equal(one[0], two[0])
            assert_same_info(two[1], {name: one[1][name] for name in two[1]} | {n: over for n in two[1] if n[0] == "_"})
    native.close()
    sync.close()


@pytest.mark.parametrize("mode", MODES)
def test_async_equals_sync(mode: str) -> None:
    envs = [make("agentic_gym/Search-v0", kind, mode, n=2) for kind in ("async", "sync")]
    try:
        results = [env.reset(seed=1) for env in envs]
        assert data_equivalence(*results, exact=True)
        twin = make("agentic_gym/Search-v0", "native", mode, n=2)
        twin.reset(seed=1)
        for _ in range(2):
            action = twin.unwrapped.expert_message()
            results = [env.step(action) for env in envs]
            twin.step(action)
            assert data_equivalence(*results, exact=True)
    finally:
        for env in envs:
            env.close()


def test_async_with_spawn_and_a_module_id() -> None:
    """P40: a child that starts from nothing finds the id; its error comes back with its message."""
    envs = gymnasium.make_vec(
        "agentic_gym:agentic_gym/Chain-v0",
        num_envs=1,
        vectorization_mode="async",
        vector_kwargs={"context": "spawn", "shared_memory": True},
    )
    try:
        _, info = envs.reset(seed=1)
        assert info["prompt"].shape == (1,)
        with pytest.raises(ValueError, match=r"options\['prompt'\]=-1 is not allowed"), pytest.warns():
            envs.reset(options={"prompt": -1})
    finally:
        envs.close(terminate=True)


@pytest.mark.parametrize("kind", ["native", "sync"])
@pytest.mark.parametrize("mode", MODES)
def test_episode_statistics(kind: str, mode: str) -> None:
    """P29, P43: five episodes of three turns with reward 1/3 each, counted without the reset tick."""
    envs = RecordEpisodeStatistics(make("agentic_gym/Chain-v0", kind, mode, n=2, depth=3, graded=True, dense=True))
    reference = make("agentic_gym/Chain-v0", "native", mode, n=2, depth=3, graded=True, dense=True)
    envs.reset(seed=0)
    reference.reset(seed=0)
    returns, lengths = [], []
    while len(returns) < 10:
        action = reference.unwrapped.expert_message()
        _, _, terminated, truncated, info = envs.step(action)
        _, _, over, _, _ = reference.step(action)
        np.testing.assert_array_equal(over, terminated)
        assert not truncated.any()
        for row in np.flatnonzero(terminated):
            found = info["final_info"] if mode == "SameStep" and "episode" not in info else info
            returns.append(found["episode"]["r"][row])
            lengths.append(found["episode"]["l"][row])
        if mode == "Disabled" and over.all():
            options = {"reset_mask": over}
            envs.reset(options=dict(options))
            reference.reset(options=dict(options))
    np.testing.assert_allclose(returns, 1.0)
    assert set(lengths) == {3}


def test_next_step_reset_tick(env_id: str) -> None:
    """P29: the tick after an end ignores the message, gives reward 0 and shows the new rollout."""
    envs = gymnasium.make_vec(env_id, num_envs=16, autoreset_mode="NextStep", reward_offset=3.0)
    twin = gymnasium.make_vec(env_id, num_envs=16, autoreset_mode="NextStep", reward_offset=3.0)
    envs.reset(seed=0)
    twin.reset(seed=0)
    random, ticks = np.random.default_rng(0), 0
    ended = np.zeros(16, dtype=bool)
    for _ in range(80):
        message = envs.unwrapped.expert_message()
        other = np.where(ended[:, None], random.integers(envs.single_action_space.nvec[0], size=message.shape), message)
        observation, reward, terminated, truncated, info = envs.step(message)
        assert data_equivalence((observation, reward), twin.step(other)[:2], exact=True)
        assert (reward[ended] == 0).all() and (info["turn"][ended] == 0).all()
        assert (info["token_count"][ended] == 0).all() and not info["is_success"][ended].any()
        assert (info["reward_components"][ended] == 0).all()
        assert not (terminated | truncated)[ended].any()
        ticks += int(ended.sum())
        ended = terminated | truncated
    assert ticks >= 16


def test_same_step_reports_the_end_and_the_new_beginning(env_id: str) -> None:
    """final_obs and final_info are what an environment without autoreset shows."""
    same, disabled = (make(env_id, "native", mode, n=12, **NOISE) for mode in ("SameStep", "Disabled"))
    same.reset(seed=0)
    disabled.reset(seed=0)
    for _ in range(20):
        message = same.unwrapped.expert_message()
        observation, reward, terminated, truncated, info = same.step(message)
        expected = disabled.step(message)
        over = terminated | truncated
        assert data_equivalence((reward, terminated, truncated), expected[1:4], exact=True)
        assert ("final_info" in info) == ("final_obs" in info) == bool(over.any())
        if over.any():
            np.testing.assert_array_equal(info["_final_info"], over)
            np.testing.assert_array_equal(info["_final_obs"], over)
            for row in range(12):
                if over[row]:
                    np.testing.assert_array_equal(info["final_obs"][row], expected[0][row])
                else:
                    assert info["final_obs"][row] is None
            for name, values in info["final_info"].items():
                if name[0] == "_":
                    np.testing.assert_array_equal(values, over)
                else:
                    assert values.dtype == expected[4][name].dtype
                    np.testing.assert_array_equal(values[over], expected[4][name][over])
            again = disabled.reset(options={"reset_mask": over})
            expected = (again[0], *expected[1:4], again[1])
        np.testing.assert_array_equal(observation, expected[0])
        assert (info["turn"][over] == 0).all()


def test_all_modes_play_the_same_episodes(env_id: str, tools: Any) -> None:
    """P43: (prompt, rollout, return, length) of every episode, whatever the mode."""
    episodes: dict[str, list[set[tuple[Any, ...]]]] = {}
    for mode in MODES:
        envs = make(env_id, "native", mode, n=4, **NOISE)
        _, info = envs.reset(seed=3)
        found: list[list[tuple[Any, ...]]] = [[] for _ in range(4)]
        returns = np.zeros(4)
        while min(map(len, found)) < 4:
            identity = info["prompt"], info["rollout"]
            _, reward, terminated, truncated, info = envs.step(envs.unwrapped.expert_message())
            over = terminated | truncated
            returns += reward
            final = info.get("final_info", info)
            for row in np.flatnonzero(over):
                found[row].append((*(int(i[row]) for i in identity), float(returns[row]), int(final["turn"][row])))
            returns[over] = 0.0
            if mode == "Disabled" and over.any():
                _, info = envs.reset(options={"reset_mask": over})
        episodes[mode] = [rows[:4] for rows in found]
    assert episodes["NextStep"] == episodes["SameStep"] == episodes["Disabled"]


def test_ended_rows_stand_still(env_id: str, tools: Any) -> None:
    """Autoreset disabled: no reward, flags kept, nothing changes; P38: stepping only ended rows raises."""
    engine = tools.engine_of(env_id, 32, **NOISE)
    _, info = engine.reset(seed=0)
    policy, over, last = tools.mixed(2), np.zeros(32, dtype=bool), None
    while not over.all():
        now = engine.step(policy(engine, info))
        info = now[4]
        if last is not None and over.any():
            assert (now[1][over] == 0).all()
            assert (info["reward_components"][over] == 0).all() and (info["token_count"][over] == 0).all()
            for index in (0, 2, 3):
                np.testing.assert_array_equal(now[index][over], last[index][over])
            for name in ("turn", "score", "is_success", "state_key", "prompt", "rollout"):
                np.testing.assert_array_equal(info[name][over], last[4][name][over])
        over, last = now[2] | now[3], now
    before = tools.everything(engine)
    with pytest.raises(gymnasium.error.ResetNeeded):
        engine.step(engine.expert_message())
    assert data_equivalence(before, tools.everything(engine), exact=True)


def test_scalar_step_after_the_end_raises_and_changes_nothing(env_id: str, tools: Any) -> None:
    """P38."""
    env = gymnasium.make(env_id)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.unwrapped.step(env.action_space.sample())
    env.reset(seed=0)
    over = False
    while not over:
        message = env.get_wrapper_attr("expert_message")()
        _, _, terminated, truncated, _ = env.step(message)
        over = terminated or truncated
    before = tools.everything(env.unwrapped.engine)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(message)
    assert data_equivalence(before, tools.everything(env.unwrapped.engine), exact=True)


def test_reset_mask_leaves_other_rows_alone(env_id: str, tools: Any) -> None:
    """Also with options for the rows that are reset, which need not be valid for one row only."""
    engine, twin = (tools.engine_of(env_id, 6, **NOISE) for _ in range(2))
    engine.reset(seed=0)
    twin.reset(seed=0)
    engine.step(engine.expert_message())
    twin.step(twin.expert_message())
    mask = np.array([True, False, True, False, False, False])
    options = {"reset_mask": mask, "prompt": np.arange(6) + 20, "rollout": 5, "split": "test"}
    _, info = engine.reset(seed=99, options=options)
    assert info["prompt"][mask].tolist() == [20, 22] and (info["rollout"][mask] == 5).all()
    assert (info["turn"] == np.where(mask, 0, 1)).all()
    for _ in range(12):
        message = np.where(mask[:, None], engine.expert_message(), twin.expert_message())
        if (~mask & ~(engine._book["terminated"] | engine._book["truncated"])).sum() == 0:
            break
        one, two = engine.step(message), twin.step(message)
        assert data_equivalence([a[~mask] for a in one[:4]], [a[~mask] for a in two[:4]], exact=True)
    # The other rows' streams have not moved either.
    later, expected = (e.reset(options={"reset_mask": ~mask})[1]["rollout"] for e in (engine, twin))
    np.testing.assert_array_equal(later[~mask], expected[~mask])


@pytest.mark.parametrize("mask", [np.zeros(3, bool), np.ones(4, bool), [True, False, True], np.ones(3, int)], ids=str)
def test_wrong_reset_masks(mask: Any) -> None:
    envs = agentic_gym.AgenticVectorEnv(3, autoreset_mode="Disabled")
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="reset_mask"):
        envs.reset(options={"reset_mask": mask})
    with pytest.raises(ValueError, match="first reset"):
        agentic_gym.AgenticVectorEnv(3).reset(options={"reset_mask": np.array([True, False, True])})
    with pytest.raises(ValueError, match="reset_mask"):
        gymnasium.make("agentic_gym/Chain-v0").reset(options={"reset_mask": np.array([True])})


def test_max_episode_steps(env_id: str) -> None:
    """P41, P31: honoured by make and make_vec; the rollout is cut off and is no success."""
    env = gymnasium.make(env_id, max_episode_steps=1)
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step(env.get_wrapper_attr("expert_message")())
    # One turn is all that a question has: its own limit comes first.
    own_end = "Reason" in env_id
    assert truncated and terminated == own_end and info["is_success"] == own_end
    for kind in ("native", "sync"):
        envs = make(env_id, kind, "NextStep", max_episode_steps=1)
        reference = make(env_id, "native", "NextStep", max_episode_steps=1)
        envs.reset(seed=0)
        reference.reset(seed=0)
        _, _, terminated, truncated, info_2 = envs.step(reference.unwrapped.expert_message())
        # Gymnasium's wrapper sets its flag besides; the engine names the one reason.
        assert (truncated == (not own_end or kind == "sync")).all()
        assert (terminated == own_end).all() and info_2["score"][0] == info["score"]
    with pytest.raises(ValueError, match="max_episode_steps=0"):
        make(env_id, "native", "NextStep", max_episode_steps=0)


def test_returned_arrays_belong_to_the_caller(env_id: str) -> None:
    """P36: nothing is shared between calls, nothing returned changes later, actions are not touched."""
    for mode in MODES:
        envs, twin = (make(env_id, "native", mode, n=3) for _ in range(2))
        envs.reset(seed=0)
        twin.reset(seed=0)
        kept: list[tuple[np.ndarray, np.ndarray]] = []
        for _ in range(12):
            if mode == "Disabled" and (envs._book["terminated"] | envs._book["truncated"]).all():
                break
            message = envs.unwrapped.expert_message()
            original = message.copy()
            *result, info = envs.step(message)
            np.testing.assert_array_equal(message, original)
            expected = twin.step(message)
            np.testing.assert_array_equal(result[0], expected[0])
            final = info.pop("final_info", {})
            arrays = [*result, *info.values(), *final.values()]
            for array in arrays:
                assert not any(np.shares_memory(array, other) for other, _ in kept if array.dtype != object)
            assert all(np.array_equal(old, copy) for old, copy in kept)
            kept = [(array, array.copy()) for array in arrays if array.dtype != object]
            for array, _ in kept[:4]:
                array[...] = 1  # vandalism that must not matter
            kept = [(array, array.copy()) for array, _ in kept]


@pytest.mark.parametrize(
    "action",
    [
        np.zeros((3, 2)),
        np.zeros((2, 2), int),
        np.zeros((3, 3), int),
        np.zeros(3, int),
        np.zeros((3, 2), bool),
        np.full((3, 2), 8),
        np.full((3, 2), -1),
        np.full((3, 2), 2**40),
        None,
        [["press", "option-1"]] * 3,
    ],
    ids=lambda action: f"{np.asarray(action).dtype}{np.shape(action)}",
)
def test_wrong_actions_raise_and_change_nothing(action: Any, tools: Any) -> None:
    """P38: shape, dtype, range."""
    envs = agentic_gym.AgenticVectorEnv(3, options=4)
    envs.reset(seed=0)
    before = tools.everything(envs)
    with pytest.raises(ValueError, match="action"):
        envs.step(action)
    assert data_equivalence(before, tools.everything(envs), exact=True)


@pytest.mark.parametrize("action", [np.zeros(2), np.zeros(3, int), np.array([[2, 4]]), 3, np.full(2, 99), "press"])
def test_wrong_scalar_actions_raise(action: Any) -> None:
    """P38."""
    env = gymnasium.make("agentic_gym/Chain-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action"):
        env.step(action)
    assert env.step([2, 4])[4]["turn"] == 1
