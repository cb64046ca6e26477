"""KL penalties: forms, importance weights, and the penalty in the reward."""

import math
import pickle

import numpy as np
import pytest
import torch

from algos import GroupPPO, RolloutBatch, advantages, make_scheme, policy_loss, update_memory
from algos.memory import Memory
from algos.parts import choices
from algos.surrogates.kl import (
    coefficient,
    controller,
    from_here_on,
    in_loss,
    in_reward,
    kl_penalty,
    observe,
    penalised,
)  # fmt: skip

# Most tests give a scheme only what they are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(environment|task). not given, so all rollouts:UserWarning"),
    pytest.mark.filterwarnings("ignore:memory. .* remembers earlier updates:UserWarning"),
]

CHAIN = {"policy": "MessagePolicy", "env": "agentic_gym/Chain-v0", "n_prompts": 16, "group_size": 8, "seed": 0,
         "env_kwargs": {"depth": 2, "difficulty": 0.0}}  # fmt: skip
IN_LOSS = ["k1", "k2", "k3", "abs", "k3_k2", "k3_corrected"]
IN_REWARD = ["reward_k1", "reward_k2", "reward_k3", "reward_abs"]


def value_and_slope(kind, difference, **options):
    scheme = make_scheme("grpo", kl=kind, kl_coef=1.0, surrogate="reinforce", **options)
    new = torch.tensor([[difference]], dtype=torch.float64, requires_grad=True)
    batch = RolloutBatch.from_arrays(returns=[1], prompt=[0])
    zero = torch.zeros(1, 1, dtype=torch.float64)
    loss, _ = policy_loss(scheme, new, zero, [0.0], batch, zero)
    return loss.item(), torch.autograd.grad(loss, new)[0].item()


def test_the_parts_that_there_are():
    assert choices("kl") == ("none", *IN_LOSS, *IN_REWARD)
    assert [k for k in choices("kl") if in_loss(make_scheme("grpo", kl=k))] == IN_LOSS
    assert [k for k in choices("kl") if in_reward(make_scheme("grpo", kl=k))] == IN_REWARD


@pytest.mark.parametrize("d", [0.0, 0.5, -0.5, 3.0])
def test_values_and_slopes(d):
    k3, k3_slope = math.exp(-d) + d - 1, 1 - math.exp(-d)
    expected = {
        "k1": (d, 1.0),
        "k2": (d**2 / 2, d),
        "k3": (k3, k3_slope),
        "abs": (abs(d), np.sign(d)),
        "k3_k2": (k3, d),
    }
    for kind, pair in expected.items():
        assert value_and_slope(kind, d) == pytest.approx(pair, abs=1e-12)


def test_a_cap_takes_the_gradient():
    assert value_and_slope("k3", -3.0, penalty_cap=10.0) == (10.0, 0.0)
    assert value_and_slope("k3", -2.0, penalty_cap=10.0)[1] != 0.0
    assert value_and_slope("k3_k2", -3.0, penalty_cap=10.0) == (10.0, -3.0)


def test_p22_the_corrected_penalty_weighs_by_the_ratio():
    batch = RolloutBatch.from_arrays(returns=[1], prompt=[0], token_mask=[[1, 1]])
    new = torch.tensor([[0.3, -0.1]], requires_grad=True)
    old, reference = torch.zeros(1, 2), torch.tensor([[0.5, -0.5]])
    k3 = kl_penalty("k3", new.detach(), reference)
    for scheme, ratio in (("grpo", new.detach().exp()), ("gspo", torch.full((1, 2), math.exp(0.1)))):
        loss, _ = policy_loss(f"{scheme}:kl=k3_corrected,kl_coef=2", new, old, [0.0], batch, reference)
        assert loss.item() == pytest.approx(2 * (ratio * k3).mean().item(), rel=1e-6)
    # The gradient goes through the ratio, too.
    loss, _ = policy_loss("grpo:kl=k3_corrected,kl_coef=1", new, old, [0.0], batch, reference)
    d = (new - reference).detach()
    expected = new.detach().exp() * (k3 + 1 - torch.exp(-d)) / 2
    np.testing.assert_allclose(torch.autograd.grad(loss, new)[0], expected, rtol=1e-5)


def test_the_corrected_penalty_is_unbiased_off_policy():
    policy, old, reference = (torch.tensor(p, dtype=torch.float64).log() for p in
                              ([0.6, 0.3, 0.1], [0.3, 0.3, 0.4], [0.2, 0.3, 0.5]))  # fmt: skip
    exact = (policy.exp() * (policy - reference)).sum().item()
    corrected = (old.exp() * (policy - old).exp() * kl_penalty("k3", policy, reference)).sum().item()
    assert corrected == pytest.approx(exact, rel=1e-12)


# In the reward.


def reward_case():
    batch = RolloutBatch.from_arrays(
        returns=[1.0, 0.0, None], prompt=[0, 0, 0], turn_rollout=[0, 0, 1, 2], turn_reward=[0.0, 1.0, 0.0, np.nan],
        token_mask=[[1, 1], [1, 0], [1, 1], [1, 1]],
    )  # fmt: skip
    log_prob = torch.tensor([[0.1, 0.2], [0.3, 99.0], [-0.4, 0.0], [0.0, 0.0]])
    return batch, log_prob, torch.zeros(4, 2)


def test_the_penalty_is_taken_from_the_turns_rewards():
    batch, log_prob, reference = reward_case()
    memory = Memory()
    result = penalised(make_scheme("grpo:kl=reward_k1,kl_coef=0.5"), batch, log_prob, reference, memory)
    np.testing.assert_allclose(result.turn_reward, [-0.15, 0.85, 0.2, np.nan], rtol=1e-6)
    np.testing.assert_allclose(result.returns, [0.7, 0.2, np.nan], rtol=1e-6)
    np.testing.assert_allclose(batch.returns, [1.0, 0.0, np.nan])
    assert result.counted.tolist() == [True, True, False]
    # Mean over rollouts of the mean over their tokens; the one without a reward does not count.
    assert controller(make_scheme("grpo:kl=reward_k1"), memory).kl == pytest.approx((0.2 - 0.2) / 2, abs=1e-7)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "abs"])
def test_every_penalty_can_be_taken_from_the_rewards(kind):
    batch, log_prob, reference = reward_case()
    result = penalised(make_scheme(f"grpo:kl=reward_{kind},kl_coef=0.5"), batch, log_prob, reference, Memory())
    each = kl_penalty(kind, log_prob, reference).numpy()
    assert result.returns[0] == pytest.approx(1.0 - 0.5 * (each[0].sum() + each[1, 0]), rel=1e-6)


def test_a_penalty_in_the_rewards_can_be_capped():
    batch, log_prob, reference = reward_case()
    capped = penalised(
        make_scheme("grpo:kl=reward_k3,kl_coef=1,penalty_cap=0.001"), batch, log_prob, reference, Memory()
    )
    each = np.minimum(kl_penalty("k3", log_prob, reference).numpy(), 0.001)
    assert capped.returns[0] == pytest.approx(1.0 - (each[0].sum() + each[1, 0]), rel=1e-6)


def test_the_loss_has_no_penalty_then():
    batch, log_prob, _ = reward_case()
    scheme = make_scheme("grpo:kl=reward_k1")
    plain = policy_loss("grpo", log_prob, log_prob - 0.1, [1.0] * 4, batch)
    assert policy_loss(scheme, log_prob, log_prob - 0.1, [1.0] * 4, batch) == plain
    with pytest.raises(ValueError, match="reference_log_prob is given, but kl='reward_k1'"):
        policy_loss(scheme, log_prob, log_prob, [1.0] * 4, batch, log_prob)


@pytest.mark.parametrize(("kl", "error"), [(0.3, 0.2), (0.11, 0.1), (0.1, 0.0), (0.05, -0.2), (0.0, -0.2)])
def test_the_coefficient_follows_the_target(kl, error):
    scheme = make_scheme("grpo:kl=reward_k1,kl_coef=0.5,kl_target=0.1,kl_horizon=100")
    memory = Memory()
    batch = RolloutBatch.from_arrays(returns=[1] * 10, prompt=[0] * 10)
    penalised(scheme, batch, torch.full((10, 1), kl), torch.zeros(10, 1), memory)
    update_memory(scheme, batch, memory)
    assert controller(scheme, memory).coefficient == pytest.approx(0.5 * (1 + error * 10 / 100), rel=1e-5)


def test_the_coefficient_changes_by_a_fifth_at_most():
    scheme = make_scheme("grpo:kl=k3,kl_coef=0.5,kl_target=0.1,kl_horizon=1")
    memory = Memory()
    batch = RolloutBatch.from_arrays(returns=[1] * 10, prompt=[0] * 10)
    observe(scheme, batch, torch.zeros(10, 1), torch.zeros(10, 1), memory)
    update_memory(scheme, batch, memory)
    assert controller(scheme, memory).coefficient == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("kl", "target", "grows"), [("k3", 1e-6, True), ("k2", 10.0, False), ("reward_k1", 10.0, False)]
)
def test_the_coefficient_follows_in_loss_and_reward_alike(kl, target, grows):
    model = GroupPPO(**CHAIN, scheme=f"grpo:kl={kl},kl_coef=0.01,kl_target={target},kl_horizon=16", learning_rate=1e-2)
    model.learn(3000, log_interval=None)
    coefficient = controller(model.scheme, model._memory).coefficient
    assert coefficient > 0.015 if grows else coefficient < 0.005


def test_the_loss_has_the_coefficient_of_now():
    """Parameters part as soon as the coefficient does: from the second update on, whose KL is not 0."""
    fixed, following = (
        GroupPPO(**CHAIN, scheme=f"grpo:kl=k3,kl_coef=0.5{target}", learning_rate=1e-2)
        for target in ("", ",kl_target=0.1,kl_horizon=16")
    )
    for model in (fixed, following):
        model.learn(1, log_interval=None)
    assert torch.equal(fixed.policy.flat_parameters, following.policy.flat_parameters)
    assert controller(following.scheme, following._memory).coefficient == pytest.approx(0.4)
    for model in (fixed, following):
        model.learn(1, log_interval=None, reset_num_timesteps=False)
    assert not torch.equal(fixed.policy.flat_parameters, following.policy.flat_parameters)
    assert following.logger.name_to_value["train/kl_coef"] == pytest.approx(0.4)


@pytest.mark.parametrize("scheme", ["gspo", "gspo_token", "grpo"])
@pytest.mark.parametrize("kl", [*IN_LOSS, *IN_REWARD])
def test_a_target_goes_with_every_ratio(scheme, kl):
    model = GroupPPO(**CHAIN, scheme=f"{scheme}:kl={kl},kl_target=0.1")
    model.learn(400, log_interval=None)
    assert controller(model.scheme, model._memory).rollouts == 128


def test_a_loop_of_ones_own_follows_the_target():
    batch, log_prob, reference = reward_case()
    scheme = make_scheme("grpo:kl=k3,kl_coef=0.5,kl_target=0.001,kl_horizon=4")
    memory, losses = Memory(), []
    for _ in range(3):
        observe(scheme, batch, log_prob, reference, memory)
        loss, _ = policy_loss(scheme, log_prob, log_prob, [0.0] * 4, batch, reference, memory=memory)
        losses.append(float(loss))
        update_memory(scheme, batch, memory)
    rollouts = controller(scheme, memory).rollouts
    growth = 1 + 0.2 * rollouts / 4
    assert rollouts > 0 and losses == pytest.approx([losses[0], losses[0] * growth, losses[0] * growth**2], rel=1e-5)
    assert controller(scheme, memory).coefficient == pytest.approx(0.5 * growth**3)
    fixed, _ = policy_loss(scheme, log_prob, log_prob, [0.0] * 4, batch, reference)
    assert float(fixed) == pytest.approx(losses[0])


def test_another_coefficient_starts_anew():
    """Also in a model that goes on with another scheme: the memory must not win."""
    memory = Memory()
    control = controller(make_scheme("grpo:kl=k3,kl_coef=0.5,kl_target=0.1"), memory)
    control.coefficient = 0.9
    assert coefficient(make_scheme("grpo:kl=k3,kl_coef=0.5,kl_target=0.1"), memory) == 0.9
    assert coefficient(make_scheme("grpo:kl=k3,kl_coef=0.5"), memory) == 0.5
    assert coefficient(make_scheme("grpo:kl=k3,kl_coef=0.2,kl_target=0.1"), memory) == 0.2


def test_schemes_saved_with_the_target_as_an_option():
    new = make_scheme("grpo:kl=reward_k3,kl_target=0.1,kl_horizon=50,penalty_cap=3")
    state = {name: value for name, value in vars(new).items() if name not in ("kl_target", "kl_horizon")}
    state["options"] = (("kl_horizon", 50.0), ("kl_target", 0.1), ("penalty_cap", 3.0))
    old = object.__new__(type(new))
    old.__setstate__(state)
    assert old == new
    assert pickle.loads(pickle.dumps(new)) == new


def test_a_target_needs_a_memory_and_a_penalty():
    batch, _, _ = reward_case()
    with pytest.warns(UserWarning, match=r"kl_target=0.1 remembers earlier updates"):
        advantages("grpo:kl=k3,kl_target=0.1", batch)
    with pytest.raises(ValueError, match=r"kl_target=0.1 has no effect here: kl is 'none'"):
        make_scheme("grpo:kl_target=0.1")
    with pytest.raises(ValueError, match="kl_horizon=7 has no effect here"):
        make_scheme("grpo:kl=k3,kl_horizon=7")


def test_a_fixed_coefficient_stays():
    model = GroupPPO(**CHAIN, scheme="grpo:kl=reward_k1,kl_coef=0.01", learning_rate=1e-2)
    model.learn(600, log_interval=None)
    logged = model.logger.name_to_value
    assert logged["train/kl_coef"] == 0.01
    assert logged["train/kl"] != 0.0


def test_training_with_the_penalty_in_the_reward():
    """At the first update policy and reference agree, so nothing is subtracted; later on there is."""
    plain, kept = (
        GroupPPO(**CHAIN, scheme=scheme, learning_rate=1e-2) for scheme in ("grpo", "grpo:kl=reward_k3,kl_coef=1")
    )
    for model in (plain, kept):
        model.learn(1, log_interval=None)
    assert torch.equal(plain.policy.flat_parameters, kept.policy.flat_parameters)
    for model in (plain, kept):
        model.learn(1, log_interval=None, reset_num_timesteps=False)
    assert not torch.equal(plain.policy.flat_parameters, kept.policy.flat_parameters)


@pytest.mark.parametrize("kl", IN_LOSS)
def test_training_with_the_penalty_in_the_loss(kl):
    model = GroupPPO(**CHAIN, scheme=f"grpo:kl={kl},kl_coef=0.1", learning_rate=1e-2)
    model.learn(600, log_interval=None)
    assert all(np.isfinite(value) for value in model.logger.name_to_value.values())


def test_the_penalty_gives_dead_groups_a_signal():
    batch = RolloutBatch.from_arrays(returns=[1, 1], prompt=[0, 0])
    scheme = make_scheme("dr_grpo:kl=reward_k1,kl_coef=1")
    assert not advantages(scheme, batch).any()
    result = penalised(scheme, batch, torch.tensor([[0.2], [0.4]]), torch.zeros(2, 1), Memory())
    np.testing.assert_allclose(advantages(scheme, result), [0.1, -0.1], rtol=1e-6)


# Whose penalties count against a token.


def interleaved_case():
    """Two rollouts whose turns alternate, with a hole in a mask, and a third that does not count."""
    batch = RolloutBatch.from_arrays(
        returns=[1.0, 0.0, None], prompt=[0, 0, 0], turn_rollout=[0, 1, 0, 1, 2],
        token_mask=[[1, 0, 1], [1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]],
    )  # fmt: skip
    return batch, torch.tensor([[1, 50, 2], [4, 8, 50], [16, 32, 64], [128, 50, 50], [7, 7, 7]]) / 100.0


@pytest.mark.parametrize(
    ("bears", "per_token"),
    [
        ("own", [[1, 0, 2], [4, 8, 0], [16, 32, 64], [128, 0, 0]]),
        ("following", [[115, 0, 114], [140, 136, 0], [112, 96, 64], [128, 0, 0]]),
    ],
)
def test_tokens_may_bear_penalties_of_their_own(bears, per_token):
    batch, log_prob = interleaved_case()
    scheme = make_scheme(f"dr_grpo:kl=reward_k1,kl_coef=0.5,bears={bears}")
    result = penalised(scheme, batch, log_prob, torch.zeros_like(log_prob), Memory())
    np.testing.assert_array_equal(result.returns, batch.returns)
    credit = advantages(scheme, result)
    expected = np.array([0.5, -0.5, 0.5, -0.5])[:, None] - 0.5 * np.array(per_token) / 100.0
    mask = batch.token_mask[:4]
    np.testing.assert_allclose(credit[:4][mask], expected[mask], rtol=1e-6)
    assert not credit[4].any()


def test_reinforce_pp_whitens_what_penalties_leave_of_the_return():
    batch, log_prob = interleaved_case()
    scheme = make_scheme("reinforce_pp:kl=reward_k1,kl_coef=0.5,bears=following,eps=0")
    result = penalised(scheme, batch, log_prob, torch.zeros_like(log_prob), Memory())
    credit = advantages(scheme, result)[batch.token_mask & (batch.turn_rollout < 2)[:, None]]
    raw = np.array([1, 1, 0, 0, 1, 1, 1, 0]) - np.array([115, 114, 140, 136, 112, 96, 64, 128]) / 200.0
    np.testing.assert_allclose(credit, (raw - raw.mean()) / raw.std(ddof=1), rtol=1e-6)


def test_rollouts_without_turns_bear_nothing():
    batch = RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0], turn_rollout=[1], turn_reward=[0])
    assert from_here_on(batch, np.array([[3.0]])).tolist() == [[3.0]]
    none = RolloutBatch.from_arrays(
        returns=[1, 0], prompt=[0, 0], turn_rollout=np.zeros(0, int), turn_reward=[], token_mask=np.zeros((0, 2))
    )
    assert from_here_on(none, np.zeros((0, 2))).shape == (0, 2)


def test_with_one_token_it_does_not_matter_whose_penalties_count():
    batch = RolloutBatch.from_arrays(returns=[1, 0, 1], prompt=[0, 0, 0])
    log_prob = torch.tensor([[0.1], [0.5], [0.2]])
    results = []
    for bears in ("rollout", "following", "own"):
        # Without a baseline, a penalty before or after it is the same.
        scheme = make_scheme(f"reinforce:kl=reward_k1,kl_coef=1,bears={bears}")
        results.append(advantages(scheme, penalised(scheme, batch, log_prob, torch.zeros(3, 1), Memory())).reshape(3))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-6)


def test_signals_of_components_take_penalties_of_tokens_only():
    with pytest.raises(ValueError, match="bears='own'"):
        make_scheme("gdpo:kl=reward_k1")
    assert make_scheme("gdpo:kl=reward_k1,bears=own").kl == "reward_k1"


@pytest.mark.parametrize("bears", ["following", "own"])
def test_training_where_tokens_bear_their_penalties(bears):
    model = GroupPPO(
        **CHAIN, scheme=f"reinforce_pp:kl=reward_k1,kl_coef=0.01,bears={bears}", learning_rate=1e-2,
    )  # fmt: skip
    model.learn(600, log_interval=None)
    assert all(np.isfinite(value) for value in model.logger.name_to_value.values())
    assert model.logger.name_to_value["train/kl"] > 0
