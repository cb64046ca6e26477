"""Samplers inside the trainer: which rollouts an update gets, and that training can go on from a file."""

import warnings
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback

import agentic_gym  # noqa: F401  registers the ids
from algos import RECIPES, GroupPPO, RolloutBatch
from algos.advantages import advantages
from algos.policies import MessagePolicy
from algos.progress import TurnProgress
from algos.sampling.filters import _differs
from algos.sampling.writers import CutsWriter
from algos.segments import Segments
from algos.surrogates.aggregation import token_weights
from algos.warmstart import warmstart

CHAIN, SEARCH = "agentic_gym/Chain-v0", "agentic_gym/Search-v0"
SIZES = {CHAIN: {"options": 16}, SEARCH: {"entities": 8, "relations": 4}}
"""Small enough for a few rollouts to succeed."""
SMALL = {"n_prompts": 4, "group_size": 4, "n_epochs": 1, "n_minibatches": 2, "seed": 0}


def small_model(scheme="grpo", env=SEARCH, env_kwargs=None, **changes):
    env_kwargs = {**SIZES.get(env, {}), **(env_kwargs or {})}
    return GroupPPO("MessagePolicy", env, scheme=scheme, env_kwargs=env_kwargs, **{**SMALL, **changes})


class _Calls(BaseCallback):
    def __init__(self, ticks=10**9):
        super().__init__()
        self.ticks = ticks

    def _on_step(self):
        return self.n_calls < self.ticks


def collected(model, callback=None):
    """Collect for one update, without training."""
    model._start(10**9, False, "run")
    hooks = model._init_callback(callback)
    return model.collect_rollouts(hooks, TurnProgress(1, enabled=False))


def updates(model, n):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no learning signal")
        for _ in range(n):
            model.learn(1, log_interval=None, reset_num_timesteps=False)
    return model


# Every recipe.


@pytest.mark.parametrize("env", [SEARCH, CHAIN])
@pytest.mark.parametrize("scheme", sorted(RECIPES))
@pytest.mark.filterwarnings("ignore:sampling='dynamic'")
def test_every_recipe_trains(env, scheme):
    kwargs = {"depth": 1} if env == CHAIN else {"reward_offset": 2.0} if scheme == "vgpo" else {}
    model = small_model(scheme, env, env_kwargs=kwargs)
    credit = []

    def train(data, train=model.train):
        credit.append(np.abs(advantages(model.scheme, data.batch, model._memory)).max())
        train(data)

    if scheme != "maestro":  # its conductor draws anew each time
        model.train = train
    before = model.policy.flat_parameters.clone()
    updates(model, 2)
    assert model._n_updates == 2
    assert torch.isfinite(model.policy.flat_parameters).all()
    if scheme == "maestro" or max(credit) > 0:
        assert not torch.equal(before, model.policy.flat_parameters)
    assert all(np.isfinite(value) for value in model.logger.name_to_value.values())


SAMPLED = [
    "grpo", "spo:group", "dcpo_smooth", "maestro", "rae", "grpo:sampling=dynamic", "grpo:sampling=prioritised",
    "spo:sampling=prioritised", "grpo:sampling=trace", "grpo:sampling=cross_policy,refresh=2",
    "empg:sampling=cross_policy,refresh=2", "grpo:sampling=top_variance", "grpo:sampling=cuts", "remax",
]  # fmt: skip


@pytest.mark.parametrize("scheme", SAMPLED)
def test_training_goes_on_exactly_from_a_file(scheme, tmp_path):
    """Prompts are few, so that they are met again and that epochs of prompts end."""
    changes = {"group_size": 1, "n_prompts": 8} if scheme == "spo:group" else {}
    env = gymnasium.make(SEARCH, num_prompts=10, depth=2)
    model = small_model(scheme.removesuffix(":group"), env, learning_rate=1e-2, **changes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="sampling='dynamic'")
        updates(model, 3).save(tmp_path / "model")
        loaded = GroupPPO.load(tmp_path / "model", env=env)
        middle = model.policy.flat_parameters.clone()
        for trained in (model, loaded):
            updates(trained, 4)
    assert not torch.equal(middle, model.policy.flat_parameters)
    assert torch.equal(model.policy.flat_parameters, loaded.policy.flat_parameters)
    assert model.num_timesteps == loaded.num_timesteps
    assert set(model._memory._kept) == set(loaded._memory._kept)


@pytest.mark.parametrize("scheme", ["spo", "spo:sampling=prioritised", "remax", "rae", "reinforce_pp", "spo_pp"])
def test_single_rollouts(scheme):
    model = small_model(scheme, group_size=1, n_prompts=16)
    before = model.policy.flat_parameters.clone()
    updates(model, 2)
    assert not torch.equal(before, model.policy.flat_parameters)
    for compared in ("grpo", "mt_grpo", "reinforce:sampling=dynamic"):
        with pytest.raises(ValueError, match=r"group_size=1 is not allowed.* groups need at least 2"):
            small_model(compared, group_size=1)


def test_a_callback_stops_every_sampler():
    for sampling in ("dynamic", "top_variance", "prioritised", "trace", "cuts", "cross_policy"):
        model = small_model(f"remax:sampling={sampling}")
        assert collected(model, _Calls(2)) is None
        model = small_model(f"remax:sampling={sampling}")
        ticks = _Calls()
        data = collected(model, ticks)
        assert data is not None
        # Stopped at the last tick, which is that of the greedy rollouts.
        again = small_model(f"remax:sampling={sampling}")
        assert collected(again, _Calls(ticks.n_calls)) is None


# Dynamic sampling (P50).


class Given(gymnasium.Env):
    """One turn; the reward is a function of prompt and rollout key."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"group_contract": True, "render_modes": []}  # noqa: RUF012
    num_prompts, prompt_cycle, max_tokens, environment_names, grammar = 1000, 1, 1, ("given",), None

    def __init__(self, reward, info=lambda prompt: {}):
        self.reward, self.info = reward, info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start = options
        return np.zeros(1, np.float32), {"prompt": options["prompt"], **self.info(options["prompt"])}

    def step(self, action):
        prompt, rollout = self.start["prompt"], self.start["rollout"]
        return np.zeros(1, np.float32), self.reward(prompt, rollout), True, False, self.info(prompt)


def given(reward, scheme, info=lambda prompt: {}, **changes):
    return small_model(scheme, Given(reward, info), **changes)


def live_groups(data):
    groups = data.batch.level("prompt")
    return int((~groups.constant(data.batch.outcome, data.batch.counted)).sum())


def test_p50_dynamic_keeps_groups_that_differ_and_refills():
    model = given(lambda p, r: float(p % 3 == 0 and r % 2), "grpo:sampling=dynamic")
    data = collected(model)
    assert live_groups(data) == len(np.unique(data.prompt)) == 4
    assert len(data.batch) == 16
    assert (data.prompt % 3 == 0).all()
    assert model.logger.name_to_value["sampling/attempts"] >= 2
    # Every turn is counted, and the log is of all rollouts, kept or not.
    assert model.num_timesteps > 16
    assert model.logger.name_to_value["rollout/ep_rew_mean"] < data.batch.returns.mean()


@pytest.mark.parametrize("criterion", ["differ", "std", "mean"])
def test_criteria_of_dynamic_sampling_agree_on_verdicts(criterion):
    model = given(lambda p, r: float(p % 3 == 0 and r % 2), f"grpo:sampling=dynamic,criterion={criterion}")
    reference = given(lambda p, r: float(p % 3 == 0 and r % 2), "grpo:sampling=dynamic")
    np.testing.assert_array_equal(collected(model).prompt, collected(reference).prompt)


@pytest.mark.parametrize(("criterion", "kept"), [("differ", 4), ("std", 0), ("mean", 4)])
def test_criteria_of_dynamic_sampling_differ_on_tiny_spreads(criterion, kept):
    scheme = f"grpo:sampling=dynamic,criterion={criterion},max_attempts=1,fallback=skip"
    model = given(lambda p, r: 0.5 + 1e-7 * (r % 2), scheme)
    data = collected(model) if kept else None
    if not kept:
        with pytest.warns(UserWarning, match="only 0 of 4 groups differ"):
            data = collected(model)
    assert len(np.unique(data.prompt)) == kept


@pytest.mark.parametrize("fallback", ["train", "skip"])
def test_p50_constant_rewards_end_after_the_attempts(fallback):
    model = given(lambda p, r: 1.0, f"grpo:sampling=dynamic,max_attempts=3,fallback={fallback}")
    before = model.policy.flat_parameters.clone()
    with pytest.warns(UserWarning, match=r"max_attempts=3 only 0 of 4 groups differ in spread_of='return'"):
        model.learn(1, log_interval=None)
    assert model.num_timesteps == 3 * 16
    assert model.logger.name_to_value["sampling/attempts"] == 3
    # The warning is given once.
    updates(model, 2)
    assert torch.equal(before, model.policy.flat_parameters)
    assert model._n_updates == (3 if fallback == "train" else 0)


def test_p50_too_few_groups():
    for fallback, kept in (("train", 1), ("skip", 0)):
        model = given(lambda p, r: float(r % 2 and p == 7), f"grpo:sampling=dynamic,max_attempts=4,fallback={fallback}")
        model.rows.num_prompts = 8
        with pytest.warns(UserWarning, match=f"of 4 groups differ.*fallback='{fallback}'"):
            data = collected(model)
        assert len(np.unique(data.prompt)) == kept


def test_p50_the_key_can_be_the_outcome_instead_of_a_shaped_return():
    info = {"is_success": False, "score": 0.5, "reward_components": np.array([1.0, 2.0])}

    def reward(p, r):
        return 0.01 if r % 2 else 0.02

    assert live_groups(collected(given(reward, "grpo:sampling=dynamic", lambda p: info))) == 4
    for key in ("success", "score", "component,spread_component=1", "any_component"):
        model = given(reward, f"grpo:sampling=dynamic,max_attempts=2,fallback=skip,spread_of={key}", lambda p: info)
        with pytest.warns(UserWarning, match="only 0 of 4 groups differ"):
            assert len(collected(model).batch) == 0
    none = "spread_component=0 .* there are 0 components"
    for key, words in (("score", "reports no score"), ("component", none), ("any_component", none)):
        with pytest.raises(ValueError, match=words):
            collected(given(reward, f"grpo:sampling=dynamic,spread_of={key}"))


@pytest.mark.parametrize("criterion", ["differ", "std", "mean"])
def test_one_component_that_differs_is_enough(criterion):
    """Neither the returns nor the first component tell the last two rollouts apart."""
    components = [[0, 0], [0, 0], [1, 0], [0, 1], [0, 1], [0, 0]]
    batch = RolloutBatch.from_arrays(
        returns=[0, 0, 1, 1, 1, 1], prompt=[0, 0, 1, 1, 2, 2], environment=[0] * 6, task=[0] * 6, components=components
    )
    data = SimpleNamespace(batch=batch)
    assert _differs(data, "any_component", 0, criterion).tolist() == [False, False, True, True, True, True]
    assert _differs(data, "component", 0, criterion).tolist() == [False, False, True, True, False, False]


def test_dynamic_looks_at_returns_before_shaping():
    model = small_model("grpo:sampling=dynamic,max_attempts=1,fallback=skip", overlong={"buffer": 20})
    with pytest.warns(UserWarning, match="groups differ"):
        collected(model)


# RAGEN.


def test_top_variance_keeps_the_groups_that_spread_most():
    model = given(lambda p, r: float(p) * (r % 2), "grpo:sampling=top_variance", group_size=8)
    data = collected(model)
    assert model.num_timesteps == 4 * 4 * 8
    assert len(data.batch) == 4 * 8
    everything = model.logger.name_to_value["rollout/ep_rew_mean"]
    assert data.batch.returns.mean() > everything
    few = collected(given(lambda p, r: 100.0 * (p % 4 == 0) * (r % 2), "grpo:sampling=top_variance,keep=variance"))
    assert (few.prompt % 4 == 0).all()


# SPO.


def test_prioritised_prefers_prompts_between_success_and_failure():
    model = given(
        lambda p, r: float(p % 4 == 0) if p % 4 < 2 else float(r % 2), "spo:sampling=prioritised,candidates=40"
    )
    model.rows.num_prompts = 40
    updates(model, 60)
    drawn = np.concatenate([collected(model).prompt[::4] for _ in range(40)])
    assert (drawn % 4 >= 2).mean() > 0.65
    assert len(np.unique(drawn)) > 20
    # Without replacement, unless there are too few.
    data = collected(model)
    assert len(np.unique(data.prompt)) == 4
    model = given(lambda p, r: 0.0, "spo:sampling=prioritised,candidates=2")
    assert len(collected(model).batch) == 16


def test_prioritised_keeps_a_tracker_of_its_own_where_the_scheme_has_none():
    model = updates(given(lambda p, r: float(p % 2), "grpo:sampling=prioritised"), 3)
    tracker = model._memory.get("beta_tracker", dict)
    assert 4 <= len(tracker.rows) <= 12
    for (_, prompt), row in tracker.rows.items():
        assert (tracker.columns["value"][row] > 0.5) == (prompt % 2 == 1)


# CUTS.


def test_cuts_without_a_share_is_ordinary_sampling():
    weights = [
        updates(small_model(f"grpo{s}"), 2).policy.flat_parameters
        for s in ("", ":sampling=cuts,cuts_share=0", ":sampling=cuts,warm=1000", ":sampling=cuts")
    ]
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[0], weights[3])


def sharp_policy(rows):
    policy = MessagePolicy(
        rows.observation_space, rows.action_space, lambda _: 1e-3, grammar=rows.grammar, temperature=0.2
    )
    policy.pair_bias.data.normal_(generator=torch.Generator().manual_seed(0))
    return policy


def test_cuts_rollouts_have_the_policys_own_log_probs_and_likely_tokens():
    model = small_model("grpo:sampling=cuts,min_probability=0.2", group_size=8)
    model.policy = sharp_policy(model.rows)
    data = collected(model)
    read = model.policy.read(data.features, model.policy.grammar.tokens[data.state, data.position])
    np.testing.assert_allclose(read.log_prob, data.log_prob, atol=1e-5)
    member = np.arange(len(data.batch)) % 8
    cut = member[data.batch.turn_rollout] >= 4
    mask = data.batch.token_mask
    assert np.exp(data.log_prob[cut][mask[cut]]).min() >= 0.2 - 1e-6
    assert np.exp(data.log_prob[~cut][mask[~cut]]).min() < 0.2


def test_the_first_tokens_of_a_rollout_are_ordinary():
    model = small_model(env=CHAIN)
    policy = sharp_policy(model.rows)
    features = np.random.default_rng(0).random((2000, model.observation_space.shape[0]), dtype=np.float32)
    writer = CutsWriter(policy, np.ones(2000, bool), 2, 0.0, warm=3)
    rollouts, random, same = np.arange(2000), np.random.default_rng(1), np.random.default_rng(1)
    first, ordinary = writer.write(features, rollouts, random), policy.write(features, same)
    assert (first.message == ordinary.message).all()
    second, ordinary = writer.write(features, rollouts, random), policy.write(features, same)
    assert (second.position[:, 0] == ordinary.position[:, 0]).all()
    assert (second.position[:, 1] != ordinary.position[:, 1]).any()


# AgentRL.


def test_cross_policy_stores_the_writers_log_probs():
    model = small_model("grpo:sampling=cross_policy,refresh=3", group_size=16, learning_rate=3e-2)
    collected(model)
    updates(model, 2)
    copy = model._memory.get("stale_policy", dict)
    assert copy["update"] == 0
    own = model.policy.flat_parameters.clone()
    data = collected(model)
    assert torch.equal(own, model.policy.flat_parameters)
    assert 0.1 < data.stale.mean() < 0.4
    message = model.policy.grammar.tokens[data.state, data.position]
    for parameters, turns in ((own.numpy(), ~data.stale), (copy["parameters"], data.stale)):
        model.policy.flat_parameters.numpy()[:] = parameters
        read = model.policy.read(data.features, message).log_prob
        np.testing.assert_allclose(read[turns], data.log_prob[turns], atol=1e-5)
        assert np.abs(read[~turns] - data.log_prob[~turns]).max() > 1e-3
    model.policy.flat_parameters.numpy()[:] = own.numpy()
    updates(model, 2)
    assert copy["update"] == 3


def test_cross_policy_with_share_zero_is_the_policy_itself():
    data = collected(small_model("grpo:sampling=cross_policy,stale_share=0"))
    assert not data.stale.any()


# TRACE.


@pytest.mark.parametrize("knobs", [{}, {"slip": 0.3}])
def test_trace_continues_rollouts_from_their_prefixes(knobs):
    model = small_model("grpo:sampling=trace", group_size=8, env_kwargs=knobs)
    updates(model, 1)
    turns = model.num_timesteps
    data = collected(model)
    assert len(data.batch) == 32
    n_roots = 32 - int(model.logger.name_to_value["sampling/continuations"])
    assert n_roots == 16
    batch = data.batch
    order = np.lexsort((batch.turn_index, batch.turn_rollout))
    bounds = np.cumsum(batch.turns_per_rollout)
    turns_of = [order[stop - size : stop] for stop, size in zip(bounds, batch.turns_per_rollout, strict=True)]
    shared = 0
    for rollout in range(n_roots, 32):
        # The root that it was taken from has the same prompt and the same key.
        (root,) = np.flatnonzero(data.rollout[:n_roots] == data.rollout[rollout])
        assert data.prompt[root] == data.prompt[rollout]
        mine, its = turns_of[rollout], turns_of[root]
        depth = 0
        while depth < min(len(mine), len(its)) and (data.position[mine[depth]] == data.position[its[depth]]).all():
            depth += 1
        assert depth >= 1
        for name in ("features", "state", "previous", "log_prob", "entropy"):
            column = getattr(data, name)
            np.testing.assert_array_equal(column[mine[:depth]], column[its[:depth]])
        shared += 1
        assert batch.turns_per_rollout[rollout] > 1
    assert shared == 16
    # Turns that were taken over are not counted again.
    taken = model.num_timesteps - turns
    assert batch.n_turns - taken >= 16
    assert taken >= batch.turns_per_rollout[:n_roots].sum() + 16
    read = model.policy.read(data.features, model.policy.grammar.tokens[data.state, data.position])
    np.testing.assert_allclose(read.log_prob, data.log_prob, atol=1e-5)
    groups = Segments.by(batch.prompt)
    assert groups.sum(np.ones(32)).min() >= 2


def test_continuations_have_noise_of_their_own():
    """With all tools failing at random, equal messages must not have equal ends."""
    model = small_model("grpo:sampling=trace", group_size=16, n_prompts=2, env_kwargs={"reward_noise": 1.0})
    data = collected(model)
    assert len(np.unique(data.batch.returns)) == len(data.batch)


def test_trace_learns_which_states_succeed_and_goes_where_results_are_mixed():
    model = small_model("grpo:sampling=trace", n_prompts=16, group_size=8, env_kwargs={"depth": 2}, learning_rate=0.0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="warmstart")
        warmstart(model, 0.5, rollouts=512)
    updates(model, 15)
    predictor = model._memory.get("success_predictor", dict)
    assert predictor.pending is None
    data = collected(model)
    assert predictor.pending is not None
    said, success = predictor(data.features), data.success[data.batch.turn_rollout]
    # The share of pairs in which the successful rollout's state has the higher prediction.
    assert (said[success][:, None] > said[~success]).mean() > 0.6
    groups = Segments.by(data.prompt)
    assert groups.size == model.logger.name_to_value["sampling/prompts"]
    assert (~groups.constant(data.success.astype(float), data.batch.counted)).mean() > 0.6


def test_trace_with_single_turns_rolls_prompts_out_more_often():
    model = small_model("grpo:sampling=trace", CHAIN, env_kwargs={"depth": 1})
    data = collected(model)
    assert len(data.batch) == 16
    assert (data.batch.turns_per_rollout == 1).all()


def test_trace_needs_rows_that_can_be_copied():
    with pytest.raises(ValueError, match=r"sampling='trace' .*copied.*env=CartPole-v1 cannot"):
        collected(small_model("grpo:sampling=trace", "CartPole-v1"))


# Truncated and long rollouts.


def test_truncated_rollouts_leave_the_loss_or_everything():
    arguments = {"env": CHAIN, "env_kwargs": {"depth": 3, "max_episode_steps": 2, "graded": True, "dense": True}}
    weights = {
        mask: updates(small_model("grpo", mask_truncated=mask, **arguments), 1).policy.flat_parameters
        for mask in (False, True, "loss", "all")
    }
    # All rollouts are truncated: no loss is left.
    assert torch.equal(weights[True], weights["all"])
    assert torch.equal(weights[True], weights["loss"])
    assert not torch.equal(weights[True], weights[False])


def test_truncated_rollouts_out_of_the_loss_still_count_in_statistics():
    seen = {}
    for mask in (True, "all"):
        model = small_model("grpo", mask_truncated=mask, group_size=16, env_kwargs={"max_turns": 3})
        data = collected(model)
        assert 0 < data.truncated.sum() < len(data.truncated)
        seen[mask] = advantages("dr_grpo", data.batch), data
        assert (data.batch.counted == (~data.truncated if mask == "all" else True)).all()
        weights = []

        def spy(scheme, batch, weights=weights):
            weights.append(batch.token_mask)
            return token_weights(scheme, batch)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("algos.group_ppo.token_weights", spy)
            model.train(data)
        in_loss = weights[0].any(axis=1)
        if mask is True:
            assert (in_loss == ~data.truncated[data.batch.turn_rollout]).all()
    first, second = (seen[mask][0] for mask in (True, "all"))
    assert not np.allclose(first, second)


def test_overlong_penalty_reaches_credit_but_not_the_log():
    plain, shaped = (
        small_model("reinforce", overlong=overlong) for overlong in (None, {"buffer": 10, "limit": 12, "factor": 3.0})
    )
    first, second = collected(plain), collected(shaped)
    penalty = second.batch.returns - first.batch.returns
    np.testing.assert_allclose(penalty, shaped.overlong.penalty(first.batch.tokens_per_rollout, 1))
    assert penalty.min() < 0
    key = "rollout/ep_rew_mean"
    assert plain.logger.name_to_value[key] == shaped.logger.name_to_value[key]
