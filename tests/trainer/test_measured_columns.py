"""Columns that the trainer measures after collecting, each against a plain computation."""

import dataclasses
import itertools
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import algos.measure as measured
from agentic_gym.grammar import DONE
from algos import GroupPPO, make_scheme
from algos.collector import collect
from algos.measure import COLUMNS, LastRollouts, gains, mean_log_prob
from algos.progress import TurnProgress

CHAIN, SEARCH = "agentic_gym/Chain-v0", "agentic_gym/Search-v0"
SIZES = {CHAIN: {"options": 16}, SEARCH: {"entities": 8, "relations": 4}}
"""Small enough for a few rollouts to succeed."""
SMALL = {"n_prompts": 4, "group_size": 4, "n_epochs": 1, "n_minibatches": 2, "seed": 0}


def small_model(scheme, env=SEARCH, env_kwargs=None, **changes):
    env_kwargs = {**SIZES.get(env, {}), **(env_kwargs or {})}
    return GroupPPO("MessagePolicy", env, scheme=scheme, env_kwargs=env_kwargs, **{**SMALL, **changes})


def collected(model):
    model._start(10**9, False, "run")
    return model.collect_rollouts(model._init_callback(None), TurnProgress(1, enabled=False))


def updates(model, n):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no learning signal")
        for _ in range(n):
            model.learn(1, log_interval=None, reset_num_timesteps=False)
    return model


def turns_of(data, rollout):
    rows = np.flatnonzero(data.batch.turn_rollout == rollout)
    return rows[np.argsort(data.batch.turn_index[rows])]


def test_exactly_what_the_scheme_needs_is_measured():
    for scheme in ("grpo", "igpo", "empg", "otb", "spo:sampling=uniform", "maestro", "remax", "mt_grpo", "gigpo"):
        batch = collected(small_model(scheme)).batch
        needs = make_scheme(scheme).needs
        for name in COLUMNS:
            assert (getattr(batch, name) is not None) == (name in needs)
        assert batch.success.dtype == batch.truncated.dtype == np.bool_
        for name, size in (("success", len(batch)), ("drift", len(batch)), ("entropy", batch.n_turns)):
            assert getattr(batch, name) is None or len(getattr(batch, name)) == size


def test_the_rollouts_are_those_of_a_scheme_without_columns():
    """Measuring draws no random numbers of its own."""
    plain = collected(small_model("grpo"))
    for scheme in ("igpo", "empg", "otb", "spo:sampling=uniform", "maestro", "mt_grpo"):
        data = collected(small_model(scheme))
        np.testing.assert_array_equal(plain.features, data.features)
        np.testing.assert_array_equal(plain.log_prob, data.log_prob)


# Information gain.


@pytest.mark.parametrize("gain", ["probability", "log_probability"])
@pytest.mark.parametrize("env", [SEARCH, CHAIN, "agentic_gym/Mixture-v0"])
def test_information_gain_is_the_change_of_the_answers_probability(gain, env):
    model = updates(small_model(f"igpo:gain={gain}", env, learning_rate=1e-2), 2)
    data = collected(model)
    policy, batch = model.policy, data.batch
    expected = np.zeros(batch.n_turns)
    for rollout in range(len(batch)):
        rows = turns_of(data, rollout)
        for this, following in itertools.pairwise(rows):
            truth = data.ground_truth[[this]]
            before, after = (float(policy.answer_probability(data.features[[t]], truth)[0]) for t in (this, following))
            expected[this] = after - before if gain == "probability" else np.log(after) - np.log(before)
        assert batch.information_gain[rows[-1]] == 0.0
    np.testing.assert_allclose(batch.information_gain, expected, atol=1e-5)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(
        np.exp(mean_log_prob(policy, data.features, data.ground_truth)),
        policy.answer_probability(data.features, data.ground_truth), rtol=1e-5,
    )  # fmt: skip


def test_the_right_answer_is_the_one_before_the_turn():
    model = small_model("igpo")
    data = collected(model)
    rows = turns_of(data, int(np.argmax(data.batch.turns_per_rollout)))
    truth = data.ground_truth.copy()
    first = truth[rows[0]].copy()
    # Let the right answer be another entity from the second turn on.
    others = {tuple(t) for t in truth.tolist()} - {tuple(first.tolist())}
    truth[rows[1:]] = others.pop()
    changed = dataclasses.replace(data, ground_truth=truth)
    trainer = model._trainer(lambda *_: True)
    gain = gains(trainer, changed, logarithm=False, column="information_gain")
    after, before = (
        float(model.policy.answer_probability(data.features[[t]], first[None])[0]) for t in (rows[1], rows[0])
    )
    assert gain[rows[0]] == pytest.approx(after - before, abs=1e-6)
    assert gain[rows[0]] == pytest.approx(data.batch.information_gain[rows[0]], abs=1e-6)
    assert gain[rows[1]] != pytest.approx(data.batch.information_gain[rows[1]], abs=1e-9)


def test_gains_are_finite_where_probabilities_vanish():
    model = small_model("igpo:gain=log_probability")
    model.policy.temperature = 0.001
    assert np.isfinite(collected(model).batch.information_gain).all()


# Process rewards.


def test_the_stand_in_for_process_rewards_is_the_positive_gain():
    data, gain = collected(small_model("mt_grpo")), collected(small_model("igpo")).batch.information_gain
    np.testing.assert_array_equal(data.batch.process_reward, np.maximum(gain, 0.0))
    assert gain.min() < 0 < gain.max()


class Stepwise(gymnasium.Env):
    """Three turns; gives the process rewards 0, 1, 2, or whatever else ``info`` says."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(3)
    metadata = {"group_contract": True, "render_modes": []}  # noqa: RUF012
    num_prompts, prompt_cycle, max_tokens, environment_names, grammar = 50, 1, 3, ("stepwise",), None

    def __init__(self, info):
        self.info = info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        self.start = options
        return np.zeros(1, np.float32), {"prompt": options["prompt"]}

    def step(self, action):
        self.turn += 1
        info = self.info(self.turn - 1)
        reward = float(action) if self.turn == 3 else 0.0
        return np.full(1, self.turn, np.float32), reward, self.turn == 3, False, info


def test_process_rewards_of_the_environment_are_taken():
    data = collected(small_model("mt_grpo", Stepwise(lambda turn: {"process_reward": float(turn)})))
    np.testing.assert_array_equal(data.batch.process_reward, data.batch.turn_index)


# Distributions.


@pytest.mark.parametrize("scheme", ["empg", "empg:sampling=cross_policy", "empg:sampling=cuts"])
def test_entropies_are_those_of_the_writer(scheme):
    model = updates(small_model(scheme, "agentic_gym/Mixture-v0", learning_rate=3e-2), 3)
    data = collected(model)
    np.testing.assert_allclose(data.batch.entropy.sum(axis=1), data.entropy, atol=1e-4)
    assert (data.batch.entropy[~data.batch.token_mask] == 0).all()
    assert data.batch.entropy.max() > 0.5


def test_columns_are_measured_with_the_stale_parameters():
    model = updates(small_model("empg", staleness=2, learning_rate=3e-2), 3)
    data = collected(model)
    np.testing.assert_allclose(data.batch.entropy.sum(axis=1), data.entropy, atol=1e-4)
    slots = model.policy.slots(data.features, data.state, data.previous, data.position)
    now = model.policy.entropies(slots).detach().numpy()
    assert np.abs(now - data.batch.entropy).max() > 1e-3


def test_probability_squares_and_log_probs():
    model = updates(small_model("otb"), 2)
    data = collected(model)
    grammar = model.policy.grammar
    scores = model.policy.actor(torch.from_numpy(data.features)).detach().numpy()
    logits = scores[np.arange(len(scores))[:, None, None], grammar.column[data.state]]
    logits = logits + model.policy.pair_bias.detach().numpy()[data.previous]
    p = np.where(grammar.legal[data.state], np.exp(logits), 0.0)
    p /= p.sum(axis=-1, keepdims=True)
    mask = data.batch.token_mask
    np.testing.assert_allclose(data.batch.probability_square[mask], (p**2).sum(-1)[mask], atol=1e-5)
    assert (data.batch.probability_square[~mask] == 0).all()
    np.testing.assert_array_equal(data.batch.log_prob, data.log_prob)


# Greedy rollouts.


def test_greedy_returns_are_of_the_same_prompts_and_are_counted():
    model = small_model("remax", env_kwargs={"reward_offset": 3.0, "reward_scale": 10.0})
    data = collected(model)
    prompts = np.unique(data.prompt)
    greedy = collect(
        model.rows, model.policy, prompts, np.zeros(len(prompts), int), np.random.default_rng(0), deterministic=True
    )
    expected = dict(zip(prompts.tolist(), greedy.batch.returns.tolist(), strict=True))
    assert data.batch.greedy_return.tolist() == [expected[p] for p in data.prompt.tolist()]
    assert model.num_timesteps == data.batch.n_turns + greedy.batch.n_turns
    assert model.logger.name_to_value["rollout/ep_len_mean"] == data.batch.n_turns / len(data.batch)


def test_greedy_returns_are_shaped_as_the_others():
    plain, shaped = (collected(small_model("remax", overlong=o)) for o in (None, {"buffer": 1, "limit": 1}))
    np.testing.assert_allclose(shaped.batch.greedy_return, plain.batch.greedy_return - 1.0)


def test_where_the_greedy_rollout_has_no_score_the_mean_stands_in():
    model = small_model("remax")
    data = collected(model)
    trainer = model._trainer(lambda *_: True)
    prompts = np.unique(data.prompt)
    run = trainer.run

    def unscored(prompt, greedy):
        result = run(prompt, greedy=greedy)
        returns = np.where(prompt == prompts[1], np.nan, 7.0)
        return dataclasses.replace(result, batch=dataclasses.replace(result.batch, returns=returns))

    trainer.run = unscored
    column = measured.greedy_return(trainer, data, lambda data: data)
    silent = data.prompt == prompts[1]
    assert column[silent].tolist() == [data.batch.returns[silent].mean()] * 4
    assert (column[~silent] == 7.0).all()


# Drift.


def test_drift_is_measured_on_the_last_rollout_of_the_prompt():
    env = gymnasium.make(SEARCH, num_prompts=4)
    model = small_model("spo", env, learning_rate=1e-2)
    first = collected(model)
    assert np.isnan(first.batch.drift).all()
    model.train(first)
    second = collected(model)
    policy = model.policy
    for prompt in range(4):
        rows = turns_of(first, np.flatnonzero(first.batch.prompt == prompt)[-1])
        message = policy.grammar.tokens[first.state[rows], first.position[rows]]
        now = policy.read(first.features[rows], message).log_prob
        mask = first.state[rows] != DONE
        expected = np.abs(first.log_prob[rows] - now)[mask].mean()
        assert expected > 1e-4
        np.testing.assert_allclose(second.batch.drift[second.batch.prompt == prompt], expected, rtol=1e-3)
    # Without a step in between nothing has moved.
    third = collected(model)
    np.testing.assert_allclose(third.batch.drift, 0.0, atol=1e-5)


def test_last_rollouts_are_bounded(monkeypatch):
    monkeypatch.setattr(measured, "MOST_TURNS", 10)
    memory = LastRollouts({})
    for prompt in range(6):
        memory.store((0, prompt), (np.zeros((4, 2)),))
    assert list(memory.kept) == [(0, 4), (0, 5)]
    assert memory.turns == 8
    memory.store((0, 4), (np.zeros((3, 2)),))
    assert list(memory.kept) == [(0, 5), (0, 4)]
    assert memory.turns == 7
    memory.store((0, 9), (np.zeros((30, 2)),))
    assert list(memory.kept) == [(0, 9)]
    assert memory.turns == 30


# Context, and what is missing.


def test_context_is_what_the_last_message_was_written_in():
    data = collected(small_model("maestro"))
    for rollout in range(len(data.batch)):
        np.testing.assert_array_equal(data.batch.context[rollout], data.features[turns_of(data, rollout)[-1]])


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        ("igpo", r"scheme='igpo' \(signal='information_gain'\).*'information_gain'.*CartPole-v1.*ground_truth"),
        ("mica", "scheme='mica'.*'information_gain'.*CartPole-v1"),
        ("signal_reshaping", r"\(weights='process'\).*'process_reward'.*CartPole-v1"),
        ("gdpo", r"scheme='gdpo' \(signal='components'\).*'components'.*CartPole-v1.*info\['reward_components'\]"),
        ("gigpo:gamma=0.5", r"the scheme with signal='anchor_return'.*'state_key'.*CartPole-v1.*info\['state_key'\]"),
    ],
)
def test_environments_that_lack_something_are_named(scheme, words):
    with pytest.raises(ValueError, match=words):
        collected(small_model(scheme, "CartPole-v1"))


@pytest.mark.parametrize("scheme", ["spo", "remax", "empg", "otb"])
def test_what_needs_nothing_of_the_environment_works_everywhere(scheme):
    assert updates(small_model(scheme, "CartPole-v1"), 2)._n_updates == 2
