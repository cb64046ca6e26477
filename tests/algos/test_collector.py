"""The collector: what it stores, and when it ends."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from algos import GroupPPO, MessagePolicy, advantages
from algos.collector import collect
from algos.diagnostics import group_metrics, rollout_metrics
from algos.rows import ScalarRows, make_rows
from algos.surrogates.loss import as_float32


class Scripted(gymnasium.Env):
    """Hands out the given rewards, then ends with the given flags; the observation is the turn."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"group_contract": True, "render_modes": []}  # noqa: RUF012
    max_tokens = 10

    def __init__(self, rewards, terminated=True, truncated=False, info=None):
        self.rewards, self.flags, self.info = rewards, (terminated, truncated), info or {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {"prompt": options["prompt"], **self.info}

    def step(self, action):
        reward = self.rewards[self.t]
        self.t += 1
        terminated, truncated = self.flags if self.t == len(self.rewards) else (False, False)
        return np.full(1, self.t, np.float32), reward, terminated, truncated, dict(self.info)


def policy_for(rows, **arguments):
    return MessagePolicy(
        rows.observation_space,
        rows.action_space,
        lambda _: 1e-3,
        grammar=rows.grammar,
        init_seed=1,
        **arguments,
    )


def run(*envs, prompt=None, **policy_arguments):
    rows = ScalarRows(envs)
    policy = policy_for(rows, **policy_arguments)
    prompt = np.zeros(len(envs), int) if prompt is None else np.array(prompt)
    return collect(rows, policy, prompt, np.arange(len(envs)), np.random.default_rng(0)), policy


def test_the_return_is_the_undiscounted_sum_in_float64():
    data, _ = run(Scripted([0.2, 0, 0.3]), Scripted([1e9, 0.125]))
    assert data.batch.returns.tolist() == [0.5, 1e9 + 0.125]
    assert data.batch.turn_reward.dtype == data.batch.returns.dtype == np.float64
    assert data.batch.max_tokens == 10


def test_p04_rewards_that_cancel_leave_no_noise():
    data, _ = run(Scripted([0.1, 0.2, -0.3]), Scripted([0.0]), Scripted([0.3, -0.1, -0.2]))
    assert data.batch.returns.tolist() == [0.0, 0.0, 0.0]
    assert data.batch.dead.all()
    data, _ = run(Scripted([1e-9, -1e-10]), Scripted([-1e-9]))
    assert data.batch.returns.tolist() == [1e-9 - 1e-10, -1e-9]


def test_p05_unscorable_and_infinite_rewards():
    data, _ = run(Scripted([1.0, np.nan]), Scripted([1.0]), Scripted([3.0]))
    assert data.batch.counted.tolist() == [False, True, True]
    np.testing.assert_allclose(advantages("dr_grpo", data.batch), [0, -1, 1, 0])
    with pytest.raises(ValueError, match="group prompt=7 has an infinite return"):
        run(Scripted([1.0]), Scripted([np.inf, 1.0]), prompt=[3, 7])


def test_p30_p31_flags_and_final_values():
    envs = [Scripted([1, 1], *flags) for flags in ((True, False), (False, True), (True, True))]
    data, policy = run(*envs, critic=True)
    assert data.terminated.tolist() == [True, False, True]
    assert data.truncated.tolist() == [False, True, True]
    assert data.batch.turns_per_rollout.tolist() == [2, 2, 2]
    bootstrap = policy.values(np.full((1, 1), 2, np.float32))[0]
    assert data.batch.final_value.tolist() == pytest.approx([0.0, bootstrap, 0.0], rel=1e-6)
    assert bootstrap != 0
    expected = policy.values(data.features)
    np.testing.assert_allclose(data.batch.value, expected, rtol=1e-6)


def test_p31_the_turn_limit_truncates():
    rows = make_rows("agentic_gym/Chain-v0", 4, {"depth": 10, "max_episode_steps": 5})
    data = collect(rows, policy_for(rows), np.arange(4), np.arange(4), np.random.default_rng(0))
    late = data.batch.turns_per_rollout == 5
    assert (data.truncated == late).all()
    assert not (data.truncated & (data.terminated | data.success)).any()
    assert data.batch.turns_per_rollout.min() >= 1


@pytest.mark.parametrize("env_id", ["agentic_gym/Search-v0", "agentic_gym/Mixture-v0", "CartPole-v1"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_stored_log_probs_are_those_of_the_policy(env_id, temperature):
    rows = make_rows(env_id, 12)
    policy = policy_for(rows, temperature=temperature)
    prompt = np.repeat(np.arange(4), 3)
    data = collect(rows, policy, prompt, np.arange(12), np.random.default_rng(0))
    message = policy.grammar.tokens[data.state, data.position]
    read = policy.read(data.features, message)
    np.testing.assert_allclose(read.log_prob, data.log_prob, atol=1e-5)
    assert read.state.tolist() == data.state.tolist()
    assert read.previous.tolist() == data.previous.tolist()
    assert (data.log_prob[data.batch.token_mask] < 0).any()
    assert (data.log_prob[~data.batch.token_mask] == 0).all()
    assert (data.log_prob.sum(axis=1) <= 0).all()


def test_on_tick_counts_turns_and_can_stop():
    rows = ScalarRows([Scripted([1.0] * n) for n in (1, 3, 2)])
    policy, ticks = policy_for(rows), []
    arguments = (rows, policy, np.zeros(3, int), np.arange(3), np.random.default_rng(0))
    assert collect(*arguments, on_tick=lambda turns, *_: ticks.append(turns) is None) is not None
    assert ticks == [3, 2, 1]
    ticks.clear()
    assert collect(*arguments, on_tick=lambda turns, *_: ticks.append(turns) or len(ticks) < 2) is None
    assert ticks == [3, 2]


def test_columns_reported_at_times_only_are_left_out():
    class Sometimes(Scripted):
        def step(self, action):
            *result, info = super().step(action)
            return *result, (info if self.t == 1 else {})

    rows = [Sometimes([1.0] * 3, info={"state_key": 5, "reward_components": np.array([1.0, 2.0])})]
    data, _ = run(*rows)
    assert data.batch.state_key is None
    assert data.batch.components is None
    data, _ = run(Scripted([1.0] * 3, info={"state_key": 5, "reward_components": np.array([1.0, 2.0])}))
    assert data.batch.state_key.tolist() == [5, 5, 5]
    assert data.batch.components.tolist() == [[3.0, 6.0]]


# Diagnostics.


@pytest.mark.filterwarnings("ignore:returns. no rollout")
def test_rollout_metrics():
    info = [{"environment": e, "score": s, "is_success": s == 1.0} for e, s in ((0, 1.0), (0, 0.5), (1, 0.0))]
    data, _ = run(
        Scripted([1.0], info=info[0]), Scripted([2.0, 2.0], info=info[1]),
        Scripted([np.nan], False, True, info[2]), prompt=[0, 0, 0],
    )  # fmt: skip
    metrics = rollout_metrics(data, ("first", "second"))
    assert metrics["rollout/ep_rew_mean"] == 2.5
    assert metrics["rollout/ep_len_mean"] == pytest.approx(4 / 3)
    assert metrics["rollout/tokens_mean"] == pytest.approx(4 / 3)
    assert metrics["rollout/success_rate"] == pytest.approx(1 / 3)
    assert metrics["rollout/truncated"] == pytest.approx(1 / 3)
    assert metrics["rollout/invalid"] == pytest.approx(1 / 3)
    assert (metrics["env/first/score"], metrics["env/second/score"]) == (0.75, 0.0)
    assert (metrics["env/first/return"], metrics["env/second/return"]) == (2.5, 0.0)
    assert metrics["rollout/entropy"] == pytest.approx(np.log(2), abs=0.01)


def test_p09_group_metrics_count_groups_without_signal():
    envs = [Scripted([r]) for r in (1.0, 3.0, 5.0, 5.0, 9.0, np.nan)]
    data, _ = run(*envs, prompt=[0, 0, 1, 1, 2, 2])
    credit = advantages("dr_grpo", data.batch)
    metrics = group_metrics(data, credit, ("only",))
    assert metrics["group/frac_reward_zero_std"] == pytest.approx(2 / 3)
    assert metrics["group/reward_std"] == pytest.approx(2**0.5 / 3)
    assert metrics["group/advantage_max"] == 1.0
    assert metrics["group/advantage_mean"] == 0.0
    assert metrics["group/advantage_std"] == pytest.approx((2 / 5) ** 0.5)
    assert metrics["group/advantage_size/turn_0"] == pytest.approx(2 / 5)


def test_group_metrics_by_environment_and_turn():
    envs = [Scripted([r] * n, info={"environment": e}) for r, n, e in ((1.0, 1, 0), (3.0, 1, 0), (2.0, 2, 1))]
    data, _ = run(*envs, prompt=[0, 0, 1])
    credit = np.where(data.batch.turn_rollout == 2, 5.0, -1.0)
    metrics = group_metrics(data, credit, ("a", "b"))
    assert (metrics["group/advantage_size/a"], metrics["group/advantage_size/b"]) == (1.0, 5.0)
    assert metrics["group/advantage_size/turn_0"] == pytest.approx(7 / 3)
    assert metrics["group/advantage_size/turn_1"] == 5.0


@pytest.mark.filterwarnings("ignore:returns. no rollout")
def test_metrics_are_finite_where_nothing_counts():
    data, _ = run(Scripted([np.nan]), Scripted([np.nan, 1.0]))
    metrics = rollout_metrics(data, ("only",)) | group_metrics(data, np.zeros(3), ("only",))
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["rollout/invalid"] == 1.0


# Through the trainer.


def test_p10_the_loss_sees_the_schemes_advantages():
    class Spying(GroupPPO):
        def train(self, data):
            self.expected = as_float32(advantages(self.scheme, data.batch))
            self.seen = []
            super().train(data)

        def _loss(self, part, *arguments):
            self.seen.append(part.advantage.reshape(-1))
            return super()._loss(part, *arguments)

    class Varied(Scripted):
        def reset(self, *, seed=None, options=None):
            self.rewards = [0.5, float(options["rollout"] % 7)]
            return super().reset(options=options)

    model = Spying(
        "MessagePolicy", Varied([]), scheme="dr_grpo", n_prompts=4, group_size=4, n_epochs=1, n_minibatches=4,
        diagnostics_interval=0, seed=0,
    )  # fmt: skip
    model.rows.num_prompts = 5
    model.learn(1, log_interval=None)
    seen = sorted(value for part in model.seen for value in part.tolist())
    assert seen == sorted(model.expected.tolist())
    assert len(model.seen) == 4
    assert any(seen)


def test_p14_training_without_signal_warns():
    model = GroupPPO("MessagePolicy", Scripted([1.0]), n_prompts=2, group_size=2, n_epochs=1, n_minibatches=1)
    model.rows.num_prompts = 3
    with pytest.warns(UserWarning, match="no learning signal: all advantages of the first .* updates are zero"):
        model.learn(100, log_interval=None)


@pytest.mark.parametrize("kl", ["none", "k2", "k3"])
def test_a_kl_penalty_holds_the_policy_at_its_reference(kl):
    scheme = "grpo" if kl == "none" else f"grpo:kl={kl},kl_coef=1000"
    model = GroupPPO(
        "MessagePolicy", "agentic_gym/Chain-v0", scheme=scheme, n_prompts=8, group_size=8, n_minibatches=1,
        learning_rate=1e-2, seed=0, env_kwargs={"depth": 1},
    )  # fmt: skip
    features = np.random.default_rng(0).random((20, model.policy.actor.widths[0]), dtype=np.float32)
    before = model.policy.actor(torch.from_numpy(features)).detach().numpy()
    model.learn(64 * 10, log_interval=None)
    moved = np.abs(model.policy.actor(torch.from_numpy(features)).detach().numpy() - before).mean()
    assert (moved > 0.05) == (kl == "none")
