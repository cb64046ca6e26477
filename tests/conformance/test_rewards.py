"""How values become rewards, in every environment and in mixtures."""

from typing import Any

import numpy as np
import pytest

import agentic_gym
from agentic_gym.mixture import PRESETS


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("noise", ["none", "normal", "student_t"])
def test_affine_contract(env_id: str, tools: Any, dense: bool, noise: str) -> None:
    """A positive affine change of the reward changes neither dynamics nor score, and maps returns affinely."""
    knobs = {"dense": dense, "slip": 0.2, "filler": 1}
    if noise != "none":
        knobs |= {"reward_noise": 0.7, "reward_noise_dist": noise}
    plain, changed = (
        tools.run(tools.engine_of(env_id, 60, **knobs, **affine), tools.mixed(3))
        for affine in ({"reward_scale": 1.0}, {"reward_scale": 250.0, "reward_offset": -40.0})
    )
    for one, two in zip(plain.observations, changed.observations, strict=True):
        np.testing.assert_array_equal(one, two)
    for name in ("score", "is_success", "turn", "state_key", "token_count"):
        np.testing.assert_array_equal(plain.info[name], changed.info[name])
    np.testing.assert_allclose(changed.returns, 250.0 * plain.returns - 40.0, rtol=1e-12, atol=1e-9)
    assert np.ptp(plain.returns) > 0


def test_components_sum_to_the_reward(env_id: str, tools: Any) -> None:
    """P39: each turn where delivery is dense; else at the end, and nothing before. Both sums are equal."""
    knobs = {"slip": 0.1, "reward_scale": 1.0}
    dense, final = (
        tools.run(tools.engine_of(env_id, 80, dense=flag, **knobs), tools.mixed(1)) for flag in (True, False)
    )
    for reward, components in zip(dense.rewards, dense.components, strict=True):
        np.testing.assert_allclose(reward, components.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(final.returns, dense.returns, rtol=1e-12)
    np.testing.assert_allclose(final.returns, final.values, rtol=1e-12)
    turn = np.arange(1, len(final.rewards) + 1)[:, None]
    assert (np.array(final.rewards)[turn < final.info["turn"]] == 0).all()
    assert any((reward != 0).any() for reward in dense.rewards[:-1]) or env_id.split("/")[1][:6] in ("Search", "Reason")


def test_offset_is_paid_once(env_id: str, tools: Any) -> None:
    for dense in (True, False):
        without, offset = (
            tools.run(tools.engine_of(env_id, 20, dense=dense, reward_offset=o), tools.mixed(2)).rewards
            for o in (0.0, 100.0)
        )
        difference = np.array(offset) - np.array(without)
        np.testing.assert_allclose(difference.sum(axis=0), 100.0)
        assert ((np.abs(difference) < 1e-9) | (np.abs(difference - 100.0) < 1e-9)).all()


@pytest.mark.parametrize("distribution", ["normal", "student_t"])
def test_noise_has_its_size_and_no_bias(env_id: str, tools: Any, distribution: str) -> None:
    """In units of value, independent from row to row and from turn to turn; scores do not feel it."""
    n, knobs = 4000, {"reward_noise": 0.5, "reward_noise_dist": distribution}
    quiet = tools.run(tools.engine_of(env_id, n))
    noisy = tools.run(tools.engine_of(env_id, n, **knobs))
    np.testing.assert_array_equal(quiet.info["score"], noisy.info["score"])
    scale = np.array([m.knobs.reward_scale for m in tools.engine_of(env_id, 1).family.members])
    noise = (noisy.returns - quiet.returns) / scale[quiet.info["environment"]]
    assert abs(noise.mean()) < 4 * 0.5 / np.sqrt(n)
    # Quartiles, because the sample variance of Student's t with 3 degrees of freedom hardly converges.
    quartile = 0.6745 if distribution == "normal" else 0.7649 / np.sqrt(3)
    np.testing.assert_allclose(np.quantile(noise / 0.5, [0.25, 0.75]), [-quartile, quartile], atol=0.06)


def test_dense_noise_is_drawn_every_turn(tools: Any) -> None:
    engine = tools.engine_of("agentic_gym/Chain-v0", 3000, depth=3, dense=True, reward_noise=1.0)
    noise = np.array(tools.run(engine, tools.random_legal()).rewards)
    correlation = np.corrcoef(noise)
    assert np.abs(correlation - np.eye(3)).max() < 4 / np.sqrt(3000)
    np.testing.assert_allclose(noise.std(axis=1), 1.0, atol=0.06)


def test_illegal_messages_cost_their_penalty(env_id: str, tools: Any) -> None:
    """They use a turn up, change nothing in the world, and never crash."""
    engine = tools.engine_of(env_id, 300, dense=True, reward_scale=1.0, slip=0.5)
    _, info = engine.reset(seed=0)
    penalty = np.array([member.illegal_penalty for member in engine.family.members])
    policy, over, seen = tools.random_tokens(0), np.zeros(300, dtype=bool), 0
    while not over.all():
        message = policy(engine, info)
        illegal = ~engine.grammar.parse(message, info["environment"]).legal & ~over
        state_key, score = info["state_key"], info["score"]
        observation, _, terminated, truncated, info = engine.step(message)
        np.testing.assert_array_equal(info["reward_components"][illegal, -1], penalty[info["environment"][illegal]])
        assert (info["reward_components"][~illegal, -1] == 0).all()
        assert (observation[illegal, -1] == 1).all() and (observation[illegal, -2] == 0).all()
        running = illegal & ~(terminated | truncated)
        np.testing.assert_array_equal(info["state_key"][running], state_key[running])
        np.testing.assert_array_equal(info["score"][running], score[running])
        seen += int(illegal.sum())
        over = terminated | truncated
    assert seen > 200 and not info["is_success"].all()


def test_slips_have_their_frequency_and_no_effect(env_id: str, tools: Any) -> None:
    engine = tools.engine_of(env_id, 2000, slip=0.3)
    _, before = engine.reset(seed=0)
    observation, *_, info = engine.step(engine.expert_message())
    slipped = observation[:, -2] == 1
    assert abs(slipped.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 2000)
    np.testing.assert_array_equal(info["state_key"][slipped], before["state_key"][slipped])
    assert (info["state_key"][~slipped] != before["state_key"][~slipped]).all()


def test_filler_counts_but_changes_nothing(env_id: str, tools: Any) -> None:
    """Filler tokens make a message longer; world, score and reward do not notice."""
    plain, padded = (tools.engine_of(env_id, 200, filler=k) for k in (0, 3))
    policy = tools.mixed(5)
    base = tools.run(plain, policy)
    extra = np.random.default_rng(0).integers(4, size=(len(base.messages), 200))
    script = []
    for message, filler in zip(base.messages, extra, strict=True):
        long = np.zeros((200, padded.grammar.n_slots), dtype=int)
        long[:, : plain.grammar.n_slots] = message
        parse = plain.grammar.parse(message, base.first["environment"])
        length = np.where(parse.legal, parse.counted.sum(axis=1), 0)
        for row in np.flatnonzero(parse.legal):
            long[row, length[row] :] = 0
            long[row, length[row] : length[row] + filler[row]] = 1
        script.append((long, length, filler, parse.legal))
    turns = iter(script)
    again = tools.run(padded, lambda *_: next(turns)[0])
    for one, two in zip(base.rewards, again.rewards, strict=True):
        np.testing.assert_array_equal(one, two)
    for name in ("score", "is_success", "turn", "state_key"):
        np.testing.assert_array_equal(base.info[name], again.info[name])
    # The last turn's count: the message, its filler, and an end token unless all filler slots are used.
    long, length, filler, legal = script[0]
    padded.reset(seed=0)
    count = padded.step(long)[4]["token_count"]
    expected = length + filler + (filler < 3)
    np.testing.assert_array_equal(count[legal], expected[legal])


def test_turn_limit(env_id: str, tools: Any) -> None:
    """P31: used-up turns truncate where they are a budget, terminate where they end the task."""
    engine = tools.engine_of(env_id, 50)
    # All-end messages are illegal everywhere, so nothing ends before the limit.
    played = tools.run(engine, lambda e, info: np.zeros(e.action_space.shape, dtype=int))
    members = engine.family.members
    for row, environment in enumerate(played.info["environment"]):
        member = members[environment]
        assert played.info["turn"][row] == member.turn_limit
        assert played.terminated[row] == member.limit_ends_task == (not played.truncated[row])
    assert not played.info["is_success"].any()


@pytest.mark.parametrize("depth", [1, 3])
def test_chain_terminates_at_its_depth(tools: Any, depth: int) -> None:
    """P31: a depth of one as well; never a truncation."""
    for policy in (tools.expert, tools.random_tokens()):
        played = tools.run(tools.engine_of("agentic_gym/Chain-v0", 50, depth=depth), policy)
        assert played.terminated.all() and not played.truncated.any() and (played.info["turn"] == depth).all()


def test_success_outscores_failure(env_id: str, tools: Any) -> None:
    """P39: no failing rollout earns more than a successful one of its prompt, however long either takes."""
    engine = tools.engine_of(env_id, 3000, slip=0.1)
    played = tools.run(engine, tools.mixed(0), prompt=np.repeat(np.arange(30) % engine.num_prompts, 100))
    valid, success = played.info["reward_valid"], played.info["is_success"]
    # Illegal messages are fined on top.
    legal = played.values - np.sum(played.components, axis=0)[:, -1]
    compared = 0
    for environment, member in enumerate(engine.family.members):
        rows = valid & (played.info["environment"] == environment)
        right, wrong = rows & success, rows & ~success
        if right.any() and wrong.any():
            assert played.info["score"][wrong].max() < played.info["score"][right].min()
        for prompt in set(played.info["prompt"][right]):
            same = played.info["prompt"] == prompt
            # The desk's outcomes have heavy tails: only on average is a right decision worth more.
            if (wrong & same).any() and member.name != "Desk":
                assert legal[wrong & same].max() < legal[right & same].min()
                compared += 1
    assert compared > 0 or "Deep" in env_id or "Desk" in env_id or "Long" in env_id


SCORES = {
    "Reason": lambda t: t,
    "Search": lambda t: (t == 1).astype(float),
    "Household": lambda t: t / 10,
    "Shop": lambda t: t / 100,
    "Database": lambda t: np.clip(1 + t / 50, 0, 1),
    "Chain": lambda t: t,
}
"""Score as a function of the components' sum; the other families' own tests state theirs."""


def test_score_at_every_end(env_id: str, tools: Any) -> None:
    """The score follows from the components as documented, truncated rollouts included."""
    engine = tools.engine_of(env_id, 2000, slip=0.2)
    played = tools.run(engine, tools.mixed(0))
    assert played.truncated.any() or all(member.limit_ends_task for member in engine.family.members)
    components = np.sum(played.components, axis=0)[:, :-1]
    for environment, member in enumerate(engine.family.members):
        rows = (played.info["environment"] == environment) & played.info["reward_valid"]
        total, score = components[rows].sum(axis=1), played.info["score"][rows]
        if member.name in SCORES:
            np.testing.assert_allclose(score, SCORES[member.name](total), atol=1e-12)
        low, high = member.value_range
        assert (total >= low - 1e-9).all() and (total <= high + 1e-9).all()


@pytest.mark.parametrize("policy", ["expert", "mixed"])
def test_success_is_never_claimed_early(env_id: str, tools: Any, policy: str) -> None:
    engine = tools.engine_of(env_id, 300)
    _, info = engine.reset(seed=0)
    assert not info["is_success"].any()
    over, act = np.zeros(300, dtype=bool), tools.expert if policy == "expert" else tools.mixed(0)
    while not over.all():
        _, _, terminated, truncated, info = engine.step(act(engine, info))
        over = terminated | truncated
        assert not info["is_success"][~over].any() and not info["is_success"][truncated].any()
        assert info["reward_valid"][~over].all() and not info["is_success"][~info["reward_valid"]].any()
    assert info["is_success"][info["reward_valid"]].all() == (policy == "expert")


@pytest.mark.parametrize("preset", PRESETS)
def test_mixture_presets_run_with_all_knobs(preset: str, tools: Any) -> None:
    """Each environment of a mixture keeps its own knobs."""
    engine = tools.engine_of("agentic_gym/Mixture-v0", 400, preset=preset)
    info = tools.run(engine).info
    assert set(info["environment"]) == set(range(len(engine.environment_names)))
    # Only Repair's infrastructure can fail the expert.
    failing = np.array([member.name == "Repair" for member in engine.family.members])[info["environment"]]
    assert info["reward_valid"][~failing].all() and info["is_success"][info["reward_valid"]].all()
    noisy = tools.engine_of(
        "agentic_gym/Mixture-v0", 400, preset=preset, slip=0.2, dense=True, filler=2, reward_noise=1.0,
        reward_noise_dist="student_t", common_random_numbers=True, reward_offset=3.0,
    )  # fmt: skip
    played = tools.run(noisy, tools.mixed(0))
    assert np.isfinite(played.returns).all() and noisy.grammar.n_slots >= 5


def test_per_environment_knobs_in_a_mixture(tools: Any) -> None:
    environments = [
        {"name": "a", "family": "Chain", "depth": 1, "reward_scale": 10.0, "reward_offset": 5.0},
        {"name": "b", "family": "Chain", "depth": 1, "slip": 1.0},
        {"name": "c", "family": "Chain", "depth": 2, "graded": True, "dense": True},
        {"name": "d", "family": "Chain", "depth": 1, "reward_noise": 2.0, "common_random_numbers": True},
        {"name": "e", "family": "Search", "filler": 2},
    ]
    engine = agentic_gym.AgenticVectorEnv(1000, family="Mixture", environments=environments, autoreset_mode="Disabled")
    played = tools.run(engine, rollout=np.arange(1000))
    environment = played.info["environment"]
    assert (played.returns[environment == 0] == 15.0).all()
    assert (played.returns[environment == 1] == 0.0).all()
    assert (np.array(played.rewards)[:2, environment == 2] == 0.5).all()
    noise = played.returns[environment == 3]
    prompt = played.info["prompt"][environment == 3]
    assert noise.std() > 1.0
    for p in set(prompt):
        assert len(set(noise[prompt == p])) == 1  # common to the prompt's rollouts
    assert (played.returns[environment == 4] == 1.0).all()
