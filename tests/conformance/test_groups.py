"""Prompts, groups and copies of rows."""

from collections import defaultdict
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

import agentic_gym

NOISE = {"reward_noise": 1.0, "slip": 0.2, "dense": True}


def test_groups_survive_a_thousand_uneven_episodes(env_id: str, tools: Any) -> None:
    """An episode is what its prompt, rollout key and messages say, after any number of autoresets.

    Rows of very different lengths share a batch; every episode is then replayed from its explicit
    identity alone, among other neighbours and with autoreset disabled.
    """
    n = 40
    engine = tools.engine_of(env_id, n, autoreset_mode="NextStep", num_prompts=16, **NOISE)
    _, info = engine.reset(seed=0)
    policy, done = tools.mixed(0), []
    running: list[list[np.ndarray]] = [[] for _ in range(n)]
    returns, ended = np.zeros(n), np.zeros(n, dtype=bool)
    while len(done) < 1000:
        prompt, rollout = info["prompt"], info["rollout"]
        message = policy(engine, info)
        _, reward, terminated, truncated, info = engine.step(message)
        for row in np.flatnonzero(~ended):
            running[row].append(message[row])
        returns += reward
        ended = terminated | truncated
        for row in np.flatnonzero(ended):
            # The identity does not change within an episode, its last turn included.
            assert (info["prompt"][row], info["rollout"][row]) == (prompt[row], rollout[row])
            done.append((prompt[row], rollout[row], running[row], returns[row], info["score"][row]))
            running[row], returns[row] = [], 0.0
    prompt, rollout = (np.array([episode[k] for episode in done]) for k in (0, 1))
    lengths = np.array([len(episode[2]) for episode in done])
    assert len(set(lengths)) > 1 or "Chain" in env_id or "Reason" in env_id
    assert len(set(rollout)) == len(done)
    script = np.zeros((lengths.max(), len(done), engine.grammar.n_slots), dtype=int)
    for index, episode in enumerate(done):
        script[: lengths[index], index] = episode[2]
    turns = iter(script)
    again = tools.run(
        tools.engine_of(env_id, len(done), num_prompts=16, **NOISE),
        lambda *_: next(turns),
        prompt=prompt,
        rollout=rollout,
    )
    np.testing.assert_array_equal(again.info["turn"], lengths)
    np.testing.assert_allclose(again.returns, [episode[3] for episode in done], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(again.info["score"], [episode[4] for episode in done])
    # One prompt is one task instance: its rollouts agree on everything that does not depend on messages.
    truths = defaultdict(set)
    for p, key, row in zip(prompt, again.first["state_key"], again.first["ground_truth"], strict=True):
        truths[p].add((key, *row))
    assert len(truths) > 8 and all(len(found) == 1 for found in truths.values())


def test_explicit_groups(env_id: str, tools: Any) -> None:
    engine = tools.engine_of(env_id, 6)
    observation, info = engine.reset(options={"prompt": [5, 5, 5, 9, 9, 9], "rollout": np.arange(6, dtype=np.uint8)})
    assert info["prompt"].tolist() == [5, 5, 5, 9, 9, 9] and info["rollout"].tolist() == [0, 1, 2, 3, 4, 5]
    assert (observation[:3] == observation[0]).all() and (observation[3:] == observation[3]).all()
    _, info = engine.reset(options={"prompt": 3})
    assert (info["prompt"] == 3).all() and len(set(info["rollout"])) == 6
    _, info = engine.reset(options={"rollout": 3})
    assert (info["rollout"] == 3).all() and len(set(info["prompt"])) > 1


def test_splits_have_their_own_prompts(env_id: str, tools: Any) -> None:
    engine, rows = tools.engine_of(env_id, 64), np.arange(64)
    train, test = (engine.reset(options={"prompt": rows, "split": split})[0] for split in ("train", "test"))
    assert (train != test).any(axis=1).mean() > 0.5
    # The split stays, through autoreset as well, until another one is named.
    np.testing.assert_array_equal(engine.reset(options={"prompt": rows})[0], test)
    np.testing.assert_array_equal(engine.reset(options={"prompt": rows, "split": "train"})[0], train)


def test_prompts_come_from_the_seeded_stream(env_id: str, tools: Any) -> None:
    """Without options every prompt is equally likely."""
    engine = tools.engine_of(env_id, 4000, num_prompts=8)
    counts = np.zeros(engine.num_prompts)
    engine.reset(seed=0)
    for _ in range(3):
        counts += np.bincount(engine.reset()[1]["prompt"], minlength=engine.num_prompts)
    expected = 12_000 / engine.num_prompts
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": -1}, r"options\['prompt'\]=-1 is not allowed: it must be in \[0, 4095\]"),
        ({"prompt": 4096}, r"options\['prompt'\]=4096 is not allowed: it must be in \[0, 4095\]"),
        ({"prompt": [0, 1, 4096]}, r"must be in \[0, 4095\]"),
        ({"prompt": [1, 2]}, "an integer or 3 integers"),
        ({"prompt": [[1, 2, 3]]}, "an integer or 3 integers"),
        ({"prompt": 1.0}, "an integer or 3 integers"),
        ({"prompt": True}, "an integer or 3 integers"),
        ({"rollout": -5}, r"options\['rollout'\]=-5"),
        ({"rollout": 2**63}, r"options\['rollout'\]"),
        ({"rollout": "a"}, r"options\['rollout'\]='a'"),
        ({"split": "dev"}, r"options\['split'\]='dev' is not allowed: it must be one of"),
        ({"promt": 1}, r"options=\['promt'\] are not allowed: they must be among"),
    ],
    ids=str,
)
def test_wrong_options_raise_and_change_nothing(options: dict[str, Any], message: str) -> None:
    """P38: the streams have not moved, whatever else the call asked for."""
    envs, twin = (agentic_gym.AgenticVectorEnv(3) for _ in range(2))
    with pytest.raises(ValueError, match=message):
        envs.reset(options=options)
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step(np.zeros((3, 2), dtype=int))
    envs.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        envs.reset(seed=1, options={"rollout": 1, "split": "test", **options})
    assert data_equivalence(envs.reset(), twin.reset(), exact=True)


def test_snapshot_and_restore(env_id: str, tools: Any) -> None:
    """A snapshot continues identically: in the same environment and in a fresh one, later resets included."""
    knobs = {**NOISE, "autoreset_mode": "NextStep", "render_mode": "ansi"}
    engine, fresh = (tools.engine_of(env_id, 5, **knobs) for _ in range(2))
    _, info = engine.reset(seed=0)
    policy = tools.mixed(0)
    for _ in range(3):
        info = engine.step(policy(engine, info))[4]
    snapshot = engine.snapshot()
    script, expected = [], []
    for _ in range(25):
        script.append(policy(engine, info))
        expected.append(engine.step(script[-1]))
        info = expected[-1][4]
    text, later = engine.render(), engine.reset()
    for other in (engine, fresh):
        other.restore(snapshot)
        for message, results in zip(script, expected, strict=True):
            assert data_equivalence(other.step(message), results, exact=True)
        assert other.render() == text
        assert data_equivalence(other.reset(), later, exact=True)
    with pytest.raises(ValueError, match="snapshot has 5 rows"):
        tools.engine_of(env_id, 4).restore(snapshot)
    with pytest.raises(gymnasium.error.ResetNeeded):
        tools.engine_of(env_id, 4).snapshot()


def test_scalar_snapshot_and_restore(env_id: str) -> None:
    env, fresh = (gymnasium.make(env_id, **NOISE).unwrapped for _ in range(2))
    env.reset(seed=0)
    if "Reason" not in env_id:  # it has one turn
        env.step(env.expert_message())
    snapshot = env.snapshot()
    message = env.expert_message()
    expected, later = env.step(message), env.reset()
    fresh.restore(snapshot)
    assert data_equivalence(fresh.step(message), expected, exact=True)
    assert data_equivalence(fresh.reset(), later, exact=True)


def test_fork(env_id: str, tools: Any) -> None:
    """Copies see the source's noise, or noise of their own; other rows and later episodes do not change."""
    engine, twin = (tools.engine_of(env_id, 8, render_mode="ansi", **NOISE) for _ in range(2))
    for e in (engine, twin):
        e.reset(seed=0, options={"prompt": np.arange(8), "rollout": 7})
        if "Reason" not in env_id:
            e.step(e.expert_message())
    engine.fork([0, 1], [1, 2])  # simultaneous: row 2 gets the old row 1
    for one, two in ((0, 1), (1, 2)):
        assert engine.render()[two] == twin.render()[one]
    message = twin.expert_message()
    forked = message[[0, 0, 1, 3, 4, 5, 6, 7]]
    for one, two in zip(engine.step(forked)[:4], twin.step(message)[:4], strict=True):
        np.testing.assert_array_equal(one, two[[0, 0, 1, 3, 4, 5, 6, 7]])
    later, expected = engine.reset()[1], twin.reset()[1]
    np.testing.assert_array_equal(later["rollout"], expected["rollout"])
    # With keys of their own, copies of one state meet different noise.
    engine.fork(np.zeros(7, int), np.arange(1, 8), rollout=np.arange(1, 8))
    _, reward, _, _, info = engine.step(engine.expert_message())
    assert info["rollout"].tolist()[1:] == [1, 2, 3, 4, 5, 6, 7] and (info["prompt"] == info["prompt"][0]).all()
    assert len(set(reward)) == 8


@pytest.mark.parametrize(
    "arguments",
    [
        ([0], [3]),
        ([-1], [0]),
        ([0, 1], [2]),
        ([0, 0], [1, 1]),
        ([0.0], [1]),
        ([True], [1]),
        ([0], [1], [-1]),
        ([0], [1], [1, 2]),
        ([0], [1], 0.5),
    ],
    ids=str,
)
def test_wrong_forks_raise_and_change_nothing(arguments: tuple[Any, ...], tools: Any) -> None:
    envs = agentic_gym.AgenticVectorEnv(3)
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.fork(0, 1)
    envs.reset(seed=0)
    before = tools.everything(envs)
    with pytest.raises(ValueError, match=r"(source|target|rollout)="):
        envs.fork(*arguments)
    assert data_equivalence(before, tools.everything(envs), exact=True)


def test_clone_has_the_same_knobs(env_id: str, tools: Any) -> None:
    engine = tools.engine_of(env_id, 3, max_episode_steps=9, **NOISE)
    clone = engine.clone(7, "SameStep")
    assert clone.num_envs == 7 and clone.arguments == engine.arguments
    options = {"prompt": 3, "rollout": 4}
    np.testing.assert_array_equal(clone.reset(options=options)[0][:3], engine.reset(options=options)[0])
