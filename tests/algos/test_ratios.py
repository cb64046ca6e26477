"""Importance ratios: value, gradient, masks, turns and minibatches."""

import math

import numpy as np
import pytest
import torch

from algos import RolloutBatch, make_scheme, policy_loss
from algos.surrogates.tokens import Tokens

KINDS = ["token", "turn_mean", "rollout_mean", "rollout_product"]


def tokens_of(difference, mask=None, rollout=None):
    """Tokens whose log-ratios (m, L) are given; the leaf is ``log_prob``."""
    new = torch.tensor(difference, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(new.shape, dtype=torch.bool) if mask is None else torch.tensor(mask)
    owner = torch.zeros(len(new), dtype=torch.long) if rollout is None else torch.tensor(rollout)
    zero = torch.zeros(new.shape, dtype=torch.float64)
    return Tokens(new, zero, zero[:, :1], mask, owner, int(owner.max()) + 1), new


def ratio(kind, tokens, **options):
    return make_scheme("grpo", ratio=kind, **options).run("ratio", tokens)


def test_p23_two_steps_cancel():
    tokens, _ = tokens_of([[0.2, -0.2]])
    assert ratio("rollout_mean", tokens).exp().item() == pytest.approx(1.0)
    batch = RolloutBatch.from_arrays(returns=[1], prompt=[0], token_mask=np.ones((1, 2)))
    narrow = {"clip_low": 0.1, "clip_high": 0.1}
    for kind, clipped in (("rollout_mean", 0.0), ("token", 0.5)):
        scheme = make_scheme("grpo", ratio=kind, **narrow)
        _, metrics = policy_loss(scheme, tokens.log_prob.detach(), tokens.old_log_prob, [1.0], batch)
        assert metrics["clip_fraction"] == clipped


def test_p23_long_rollouts_neither_explode_nor_vanish():
    tokens, _ = tokens_of(np.full((60, 5), 0.005))
    np.testing.assert_allclose(ratio("rollout_mean", tokens).exp().detach(), 1.00501, atol=1e-5)
    np.testing.assert_allclose(ratio("rollout_product", tokens).exp().detach(), 4.4817, atol=1e-4)
    tokens, _ = tokens_of(np.full((60, 5), math.log(0.7)))
    np.testing.assert_allclose(ratio("rollout_mean", tokens).exp().detach(), 0.7, rtol=1e-12)
    np.testing.assert_allclose(ratio("rollout_product", tokens).exp().detach(), math.exp(-20), rtol=1e-12)


def test_p23_turn_rows_do_not_matter_to_the_rollouts_ratio():
    difference = [[0.3, -0.1, 0.2, 0.05, -0.4, 0.6]]
    whole, _ = tokens_of(difference)
    rows, _ = tokens_of(np.reshape(difference, (3, 2)))
    for kind in ("rollout_mean", "rollout_product"):
        np.testing.assert_allclose(ratio(kind, rows).detach(), ratio(kind, whole).item(), rtol=1e-12)
    np.testing.assert_allclose(ratio("turn_mean", rows).detach()[:, 0], [0.1, 0.125, 0.1], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("garbage", [np.nan, np.inf, 200.0, -200.0])
def test_p23_masked_log_ratios_change_nothing(kind, garbage):
    mask = [[True, True, False], [True, False, False]]
    results = []
    for fill in (0.0, garbage):
        tokens, leaf = tokens_of(np.where(mask, 0.1, fill), mask)
        value = ratio(kind, tokens).expand(2, 3)[tokens.mask]
        (slope,) = torch.autograd.grad(value.sum(), leaf)
        results.append((value.tolist(), slope[tokens.mask].tolist()))
    assert results[0] == results[1]


def test_rollouts_are_told_apart_by_their_ids():
    tokens, _ = tokens_of([[0.1], [0.5], [0.3]], rollout=[1, 0, 1])
    np.testing.assert_allclose(ratio("rollout_mean", tokens).detach()[:, 0], [0.2, 0.5, 0.2])
    np.testing.assert_allclose(ratio("rollout_product", tokens).detach()[:, 0], [0.4, 0.5, 0.4])


@pytest.mark.parametrize("kind", ["turn_mean", "rollout_mean"])
def test_own_and_shared_gradients(kind):
    difference = [[0.3, -0.1], [0.2, 0.6]]
    own, shared = tokens_of(difference), tokens_of(difference)
    value = ratio(kind, own[0], gradient="own")
    other = ratio(kind, shared[0], gradient="shared")
    assert value.shape == (2, 2)
    np.testing.assert_allclose(value.detach(), other.detach().expand(2, 2))
    (slope,) = torch.autograd.grad(value[0, 0], own[1])
    assert slope.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    (slope,) = torch.autograd.grad(other[0, 0], shared[1])
    assert slope.tolist() == ([[0.5, 0.5], [0.0, 0.0]] if kind == "turn_mean" else [[0.25] * 2] * 2)


@pytest.mark.parametrize("kind", ["turn_mean", "rollout_mean"])
def test_both_gradients_agree_where_credit_and_weight_are_equal(kind):
    random = np.random.default_rng(0)
    batch = RolloutBatch.from_arrays(
        returns=[1, 0], prompt=[0, 0], turn_rollout=[0, 0, 1], token_mask=random.random((3, 5)) < 0.7
    )
    new = torch.tensor(random.normal(size=(3, 5)), requires_grad=True)
    old, credit = new.detach() + torch.tensor(random.normal(size=(3, 5))), [1.0, 1.0, -0.5]
    slopes, values = [], []
    for gradient in ("own", "shared"):
        scheme = make_scheme("grpo", ratio=kind, gradient=gradient, clip_low=0.5, clip_high=5.0)
        loss, _ = policy_loss(scheme, new, old, credit, batch)
        values.append(loss.item())
        slopes.append(torch.autograd.grad(loss, new)[0])
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_ratios_are_cut_and_have_no_gradient_beyond(kind):
    tokens, leaf = tokens_of([[200.0]])
    value = ratio(kind, tokens)
    assert value.item() == 20.0
    assert torch.autograd.grad(value.sum(), leaf)[0].item() == 0.0
    assert ratio(kind, tokens, max_log_ratio=3.0).item() == 3.0
    with pytest.raises(ValueError, match=r"max_log_ratio=81.0 is not allowed: .* in \[0.0, 80.0\]"):
        make_scheme("grpo", ratio=kind, max_log_ratio=81.0)


def test_a_gradient_is_an_option_of_means_only():
    with pytest.raises(ValueError, match="gradient='own' has no effect here"):
        make_scheme("grpo", gradient="own")
    with pytest.raises(ValueError, match=r"gradient='other' is not allowed: it must be one of \['own', 'shared'\]"):
        make_scheme("gspo", gradient="other")


@pytest.mark.parametrize("kind", KINDS)
def test_equal_policies_have_ratio_one(kind):
    batch = RolloutBatch.from_arrays(
        returns=[1, 0], prompt=[0, 0], turn_rollout=[0, 0, 1], token_mask=[[1, 1, 0], [0, 0, 0], [1, 0, 0]]
    )
    new = torch.tensor(np.random.default_rng(0).normal(size=(3, 3)))
    _, metrics = policy_loss(make_scheme("grpo", ratio=kind), new, new, [1.0, 1.0, -1.0], batch)
    assert metrics["ratio_mean"] == metrics["ratio_max"] == metrics["effective_sample_size"] == 1.0
    assert metrics["clip_fraction"] == metrics["approx_kl"] == metrics["saturation"] == 0.0


def test_rollouts_must_be_known():
    zero = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="rollout=None is not allowed here"):
        ratio("rollout_mean", Tokens(zero, zero, zero, zero == 0))
