"""Surrogates: slopes at single tokens, published vectors, loops, groups, and numerics."""

import math
import warnings

import numpy as np
import pytest
import torch

from algos import RECIPES, GroupPPO, RolloutBatch, make_scheme, policy_loss
from algos.parts import choices
from algos.surrogates.covariance import covariance
from algos.surrogates.future import discounted_future
from algos.surrogates.tokens import Tokens
from algos.update import UpdateTensors, _grouped


def one_token_each(n, **columns):
    return RolloutBatch.from_arrays(returns=[1.0] * n, prompt=[0] * n, **columns)


def loss_and_slope(scheme, ratio, advantage, old=-1.0):
    """Loss of one token in a rollout of its own, and its slope in log p."""
    new = torch.tensor([[old + math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    loss, _ = policy_loss(scheme, new, torch.full_like(new, old), [advantage], one_token_each(1))
    return loss.item(), torch.autograd.grad(loss, new)[0].item()


SLOPES = [
    # scheme, ratio, advantage, slope of the loss in log p.
    ("cispo:clip_low=0.2,clip_high=0.28", 1.5, 1.0, -1.28),  # P19: the clipped point keeps its gradient
    ("cispo:clip_low=0.2,clip_high=0.28", 0.5, 1.0, -0.8),
    ("cispo:clip_low=0.2,clip_high=0.28", 1.1, -2.0, 2.2),
    ("cispo", 9.0, 1.0, -5.0),
    ("cispo", 0.01, 1.0, -0.01),
    ("cispo:bounds=absolute,ratio_max=1.28", 1.5, 1.0, -1.28),
    ("cispo:bounds=absolute,ratio_max=0.2", 1.5, 1.0, -0.2),
    ("sapo", 1.0, 1.0, -1.0),
    ("sapo", 1.0, -1.0, 1.0),
    ("sapo", 2.0, 1.0, -0.7864 * 2),
    ("sapo", 3.0, 1.0, -0.41997 * 3),
    ("sapo", 1e-12, 1.0, 0.0),
    ("gmpo", 1.2, 1.0, -1.2),
    ("gmpo", 2.0, 1.0, 0.0),
    ("gmpo", 0.1, 1.0, -0.1),
    ("gmpo", 0.5, -1.0, 0.0),
    ("gmpo", 2.0, -1.0, 2.0),
    ("abc", 1.1, 1.0, -1.1),
    ("abc", 1.3, 1.0, 0.0),
    ("abc", 0.7, 1.0, 0.0),
    ("abc", 1.1, -1.0, 1.1),
    ("abc", 1.3, -1.0, 0.0),
    ("abc", 0.7, -1.0, 0.0),
    ("abc:negative_clip_high=0.5", 1.3, -1.0, 1.3),
    ("abc:clip_high=0.5", 1.3, 1.0, -1.3),
    ("abc:negative_clip_low=0.5", 0.7, -1.0, 0.7),
    ("aspo:bounds=fixed", 0.5, 1.0, -2.0),
    ("aspo:bounds=fixed", 1.1, 1.0, -1 / 1.1),
    ("aspo:bounds=fixed", 1.3, 1.0, 0.0),
    ("aspo:bounds=fixed", 0.2, 1.0, -3.0),
    ("aspo:bounds=fixed,soft_dual_clip=6", 0.2, 1.0, -5.0),
    ("aspo:bounds=fixed", 0.9, -1.0, 0.9),
    ("aspo:bounds=fixed", 0.7, -1.0, 0.0),
    ("aspo:bounds=fixed", 2.0, -1.0, 2.0),
    ("aspo:bounds=fixed", 5.0, -1.0, 3.0),
    ("topr", 5.0, 1.0, -1.0),
    ("topr", 0.1, 1.0, -1.0),
    ("topr", 5.0, -1.0, 1.0),
    ("topr", 0.1, -1.0, 0.1),
    ("topr:positive_low=0,positive_high=2", 5.0, 1.0, -2.0),
    ("topr:positive_low=0,positive_high=2", 0.5, 1.0, -0.5),
    ("dro", 1.0, 1.0, -1.0),
    ("dro", math.e, 1.0, -1.0 + 0.1),
    ("dro:dro_beta=2", math.exp(-3), -1.0, 1.0 - 6.0),
    ("grpo:ratio_cap=4", 9.0, -1.0, 0.0),
    ("grpo:ratio_cap=4", 3.0, -1.0, 3.0),
    ("grpo:ratio_cap=4", 9.0, 1.0, 0.0),
    ("kl_cov", 2.0, 1.0, -2.0 + 1.0),
    ("kl_cov", 0.5, 1.0, -0.5 - 1.0),
]


@pytest.mark.parametrize(("scheme", "ratio", "advantage", "slope"), SLOPES)
def test_slopes(scheme, ratio, advantage, slope):
    assert loss_and_slope(scheme, ratio, advantage)[1] == pytest.approx(slope, abs=1e-4)


@pytest.mark.parametrize("old", [-0.1, -1.0, -30.0])
def test_p19_weights_are_detached(old):
    """The slope is the weight, whatever log p itself is."""
    for scheme, weight in (("cispo", 2.0), ("topr", 1.0), ("vespo", 0.1991), ("gspo:surrogate=cispo", 1.0004)):
        loss, slope = loss_and_slope(scheme, 2.0, 1.0, old)
        assert slope == pytest.approx(-weight, abs=1e-4)
        assert loss == pytest.approx(slope * (old + math.log(2.0)), rel=1e-6)


VESPO = {
    1.0: [(0.5, 1.1204), (1.0, 1.0), (1.5, 0.5020), (2.0, 0.1991), (3.0, 0.0223)],
    -1.0: [(0.5, 0.3398), (1.0, 1.0), (1.5, 1.2416), (2.0, 1.0827), (3.0, 0.4945)],
}


@pytest.mark.parametrize("advantage", VESPO)
def test_vespo_vectors(advantage):
    for w, phi in VESPO[advantage]:
        assert loss_and_slope("vespo", w, advantage)[1] == pytest.approx(-phi * advantage, abs=5e-5)


def test_vespo_takes_the_whole_rollout():
    batch = RolloutBatch.from_arrays(returns=[1], prompt=[0], turn_rollout=[0, 0], token_mask=[[1, 1], [1, 0]])
    new = torch.full((2, 2), math.log(2.0) / 3, dtype=torch.float64, requires_grad=True)
    loss, _ = policy_loss("vespo", new, torch.zeros(2, 2), [1.0, 1.0], batch)
    np.testing.assert_allclose(torch.autograd.grad(loss, new)[0] * 3, [[-0.1991, -0.1991], [-0.1991, 0]], atol=5e-5)


@pytest.mark.parametrize(("ratio", "slope"), [(1e-8, 0.786), (1.0, 1.0), (2.0, 0.786), (3.0, 0.42)])
def test_sapo_gate(ratio, slope):
    """The slope of the gate in the ratio itself."""
    assert loss_and_slope("sapo", ratio, 1.0)[1] / ratio == pytest.approx(-slope, abs=5e-4)


def trusted(scheme, p, q, advantage):
    """Whether DPPO lets a token through whose probability went from q to p."""
    return loss_and_slope(scheme, p / q, advantage, old=math.log(q))[1] != 0.0


def test_dppo_masks_by_probability():
    for p, q, good, bad in [(0.5, 0.25, False, True), (0.4, 0.25, True, True), (0.2, 0.5, True, False),
                            (0.02, 0.001, True, True)]:  # fmt: skip
        assert trusted("dppo_tv", p, q, 1.0) is good
        assert trusted("dppo_tv", p, q, -1.0) is bad

    def kl(p, q):
        return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))

    for p, q in [(0.5, 0.25), (0.3, 0.25), (0.1, 0.25), (0.02, 0.001), (0.001, 0.02), (0.9, 0.6)]:
        far = kl(p, q) > 0.05
        assert trusted("dppo_kl", p, q, 1.0) is not (far and p > q)
        assert trusted("dppo_kl", p, q, -1.0) is not (far and p < q)


def test_dppo_through_the_ratio_has_no_gradient_above_the_truncation():
    for kind in ("dppo_tv", "dppo_kl"):
        for ratio, old in ((2.0, math.log(0.01)), (0.9, math.log(0.5))):
            plain = loss_and_slope(kind, ratio, 1.0, old=old)
            through = loss_and_slope(f"{kind}:gradient=ratio", ratio, 1.0, old=old)
            assert through == pytest.approx((-ratio, plain[1]))
        assert loss_and_slope(f"{kind}:gradient=ratio", 100.0, 1.0, old=math.log(1e-4)) == pytest.approx((-20.0, 0.0))


def test_dppo_is_truncated():
    assert loss_and_slope("dppo_tv", 100.0, 1.0, old=math.log(1e-4))[1] == pytest.approx(-20.0)
    assert loss_and_slope("dppo_tv:truncation=3", 100.0, 1.0, old=math.log(1e-4))[1] == pytest.approx(-3.0)


def test_two_sided_clip_must_be_above_the_upper_bound():
    with pytest.raises(ValueError, match=r"ratio_cap=1\.2 is not allowed: it must be above the upper bound, 1\.28"):
        loss_and_slope("grpo:ratio_cap=1.2,clip_high=0.28", 1.0, 1.0)


def test_p20_dual_clip_is_refused_where_it_does_not_apply():
    for name in set(choices("surrogate")) - {"ppo_clip", "fipo"}:
        more = {"bounds": "fixed"} if name in ("cispo", "abc", "aspo", "clip_cov") else {}
        with pytest.raises(ValueError, match="dual_clip=3 has no effect here"):
            make_scheme("grpo", surrogate=name, dual_clip=3, **more)


# Whole rollouts.


def random_case(seed, n=6, m=14, slots=3):
    random = np.random.default_rng(seed)
    owner = np.concatenate([np.arange(n), random.integers(0, n, m - n)])
    random.shuffle(owner)
    batch = RolloutBatch.from_arrays(
        returns=random.normal(size=n), prompt=np.arange(n) % 2, turn_rollout=owner,
        token_mask=random.random((m, slots)) < 0.7, entropy=random.random((m, slots)),
        information_gain=random.normal(size=m),
    )  # fmt: skip
    new = torch.tensor(random.normal(size=(m, slots)) - 1, requires_grad=True)
    return batch, new, new.detach() + torch.tensor(random.normal(size=(m, slots)) * 0.4)


def rollout_tokens(batch, rollout):
    """The (turn, slot) of a rollout's tokens, in order."""
    turns = np.flatnonzero(batch.turn_rollout == rollout)
    return [(t, s) for t in turns for s in np.flatnonzero(batch.token_mask[t])]


def test_gmpo_equals_loops():
    batch, new, old = random_case(0)
    credit = np.array([0.7, -1.2, 0.3, -0.4, 0.0, 2.0])
    loss, _ = policy_loss("gmpo", new, old, credit[batch.turn_rollout], batch)
    expected = []
    for i, a in enumerate(credit):
        d = [(new - old)[t, s].item() for t, s in rollout_tokens(batch, i)]
        kept = [min(x, 0.4) if a > 0 else max(x, -0.4) if a < 0 else 0.0 for x in d]
        expected.append(-a * math.exp(np.mean(kept)))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-12)


def test_gmpo_has_grpos_gradient_on_policy():
    batch, new, _ = random_case(1)
    credit = np.array([0.7, -1.2, 0.3, -0.4, 0.5, 2.0])[batch.turn_rollout]
    slopes = [
        torch.autograd.grad(policy_loss(scheme, new, new.detach(), credit, batch)[0], new)[0]
        for scheme in ("gmpo", "grpo", "gspo", "gspo_token")
    ]
    for slope in slopes[1:]:
        np.testing.assert_allclose(slope, slopes[0], atol=1e-15)


def test_luspo_is_gspo_times_length():
    batch, new, old = random_case(2)
    for i in range(6):
        credit = np.zeros(6)
        credit[i] = 1.0
        gspo, luspo = (
            policy_loss(f"{name}:clip_low=0.1,clip_high=0.1", new, old, credit[batch.turn_rollout], batch)[0].item()
            for name in ("gspo", "luspo")
        )
        assert luspo == pytest.approx(gspo * batch.tokens_per_rollout[i], rel=1e-12)


def test_discounted_future_equals_loops():
    batch, new, old = random_case(3)
    tokens = Tokens(new, old, old, torch.tensor(batch.token_mask), torch.tensor(batch.turn_rollout), len(batch))
    values = torch.where(tokens.mask, new.detach(), torch.zeros_like(old))
    result = discounted_future(tokens, values, 0.7)
    assert not result[~tokens.mask].any()
    for i in range(len(batch)):
        cells = rollout_tokens(batch, i)
        for k, cell in enumerate(cells):
            expected = sum(0.7**j * values[later].item() for j, later in enumerate(cells[k:]))
            assert result[cell].item() == pytest.approx(expected, rel=1e-12)


def fipo_weight(own, future, advantage, high=1.2, low=1.0):
    weight = min(max(math.exp(future), low), high)
    return min(max(weight, 0.8), 1.0) if advantage < 0 and math.exp(own) > 4.0 else weight


@pytest.mark.parametrize("outlier", [None, 1.5])
def test_fipo_equals_loops(outlier):
    batch, new, old = random_case(4)
    credit = np.array([0.7, -1.2, 0.3, -0.4, -0.5, 2.0])
    cells = rollout_tokens(batch, 1)
    old[cells[0]] = new[cells[0]].detach() - 2.0  # a token with A < 0 and a ratio above 4
    loss, _ = policy_loss(
        make_scheme("fipo", outlier_ratio=outlier, influence_low=0.8), new, old, credit[batch.turn_rollout], batch
    )
    total, n = 0.0, 0
    for i, a in enumerate(credit):
        d = [(new - old)[cell].item() for cell in rollout_tokens(batch, i)]
        counted = [0.0 if outlier and math.exp(x) > outlier else x for x in d]
        for k, own in enumerate(d):
            future = sum(2 ** (-j / 32) * x for j, x in enumerate(counted[k:]))
            ratio = math.exp(own)
            ppo = max(-a * ratio, -a * min(max(ratio, 0.8), 1.2))
            total, n = total + ppo * fipo_weight(own, future, a, low=0.8), n + 1
    assert loss.item() == pytest.approx(total / n, rel=1e-12)


def test_fipos_weights_are_detached():
    batch, new, _ = random_case(5)
    credit = np.ones(len(batch.turn_rollout))
    slopes = [
        torch.autograd.grad(policy_loss(s, new, new.detach(), credit, batch)[0], new)[0]
        for s in ("fipo", "grpo:aggregation=token_mean")
    ]
    np.testing.assert_allclose(slopes[0], slopes[1], atol=1e-15)


# Covariance.


def test_covariance_leaves_masked_tokens_out():
    mask = torch.tensor([[True, True], [True, False]])
    tokens = Tokens(torch.tensor([[1.0, 2.0], [3.0, 99.0]]), torch.zeros(2, 2), torch.tensor([[1.0], [-2.0]]), mask)
    expected = np.array([[1.0 * -1.0, 0.0], [-2.0 * 1.0, 0.0]])
    np.testing.assert_allclose(torch.where(mask, covariance(tokens), 0.0), expected)


def test_clip_cov_leaves_out_as_many_as_it_says():
    random = np.random.default_rng(0)
    new = torch.tensor(random.normal(size=(200, 1)), requires_grad=True)
    credit = new.detach()[:, 0].numpy() * 3.0
    batch = one_token_each(200)
    slopes = []
    for share, out in ((2e-4, 1), (0.05, 10), (1.0, None)):
        scheme = make_scheme("clip_cov", cov_share=share)
        loss, _ = policy_loss(scheme, new, new.detach(), credit, batch)
        slope = torch.autograd.grad(loss, new)[0][:, 0].numpy()
        tokens = Tokens(new, new, torch.tensor(credit)[:, None], torch.ones(200, 1, dtype=torch.bool))
        cov = covariance(tokens)[:, 0].numpy()
        candidates = (cov > 1.0) & (cov < 5.0)
        zero = slope == 0
        assert (zero <= candidates).all()
        assert zero.sum() == (candidates.sum() if out is None else out)
        slopes.append(slope)
    assert not np.array_equal(slopes[0], slopes[1])


def test_clip_cov_without_candidates_is_ppo():
    batch, new, old = random_case(6)
    credit = np.zeros(14) + 0.1
    losses = [policy_loss(s, new, old, credit, batch)[0].item() for s in ("clip_cov", "grpo:aggregation=token_mean")]
    assert losses[0] == losses[1]


def test_kl_cov_adds_to_the_largest_covariances():
    new = torch.tensor([[0.0], [1.0], [2.0], [-3.0]], requires_grad=True)
    old, credit = new.detach() - torch.tensor([[0.1], [0.2], [0.3], [0.4]]), [0.0, 1.0, 2.0, -3.0]
    slopes = {}
    for share in (0.25, 0.5):
        loss, _ = policy_loss(make_scheme("kl_cov", kl_cov_share=share), new, old, credit, one_token_each(4))
        ratio = (new.detach() - old).exp()[:, 0].numpy()
        slopes[share] = torch.autograd.grad(loss, new)[0][:, 0].numpy() * 4 + credit * ratio
    np.testing.assert_allclose(slopes[0.25], [0, 0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(slopes[0.5], [0, 0, 1, 1], atol=1e-6)


# GVPO and whole groups.


def test_gvpo_equals_loops():
    batch, new, old = random_case(7)
    groups = batch.prompt
    reward = batch.returns
    mean_reward = np.array([reward[groups == g].mean() for g in groups])
    loss, _ = policy_loss("gvpo", new, old, (reward - mean_reward)[batch.turn_rollout], batch)
    expected = 0.0
    for g in (0, 1):
        members = [i for i in np.flatnonzero(groups == g) if rollout_tokens(batch, i)]
        sums = {i: 0.1 * sum((new - old)[c].item() for c in rollout_tokens(batch, i)) for i in members}
        centre = np.mean(list(sums.values()))
        errors = [sums[i] - centre - (reward[i] - mean_reward[i]) for i in members]
        expected += 0.5 * sum(e**2 for e in errors) / (len(members) - 1) * len(members)
    assert loss.item() == pytest.approx(expected / 6, rel=1e-6)


def test_gvpo_begins_as_reinforce():
    batch, new, _ = random_case(8)
    credit = np.array([1.0, -0.5, 0.25, 0.5, -1.25, 0.0])[batch.turn_rollout]
    loss, _ = policy_loss("gvpo", new, new.detach(), credit, batch)
    slope = torch.autograd.grad(loss, new)[0]
    plain, _ = policy_loss("grpo:surrogate=reinforce,aggregation=token_sum", new, new.detach(), credit, batch)
    np.testing.assert_allclose(slope, 0.1 * 3 / 2 * torch.autograd.grad(plain, new)[0], rtol=1e-6)


def test_gvpo_groups_of_one_and_cut_groups():
    batch = RolloutBatch.from_arrays(returns=[1, 0, 1], prompt=[0, 1, 1])
    new = torch.zeros(3, 1, requires_grad=True)
    loss, _ = policy_loss("gvpo", new, torch.zeros(3, 1), [5.0, -0.5, 0.5], batch)
    assert torch.autograd.grad(loss, new)[0][0].item() == 0.0
    scheme = make_scheme("gvpo")
    values = {"prompt_id": 1.0, "prompt_size": 2.0, "rollout_advantage": 0.5, "factor": 1.0, "share": 1.0}
    columns = {name: torch.tensor([[value]]) for name, value in values.items()}
    tokens = Tokens(*torch.zeros(3, 1, 1), torch.ones(1, 1, dtype=torch.bool), torch.tensor([2]), 3, columns=columns)
    with pytest.raises(ValueError, match="a minibatch cuts a group of rollouts; surrogate='gvpo' needs whole groups"):
        scheme.run("surrogate", tokens, tokens.log_prob)


def test_groups_are_brought_together_in_the_order_of_their_first_rollouts():
    rank = torch.tensor([5, 0, 3, 1, 4, 2])
    prompt = torch.tensor([0, 1, 2, 0, 1, 2])
    place, order = _grouped(rank, prompt)
    assert order.tolist() == [1, 1, 0, 0, 2, 2]
    assert place.tolist() == [3, 0, 5, 2, 1, 4]


@pytest.mark.parametrize("n_minibatches", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("scheme", ["gvpo", "grpo"])
def test_minibatches_keep_groups_where_they_must(monkeypatch, n_minibatches, scheme):
    model = GroupPPO(
        "MessagePolicy", "agentic_gym/Chain-v0", scheme=scheme, n_prompts=6, group_size=4, n_epochs=2,
        n_minibatches=n_minibatches, seed=0, env_kwargs={"depth": 3, "difficulty": 0.0},
    )  # fmt: skip
    seen = []
    cut = UpdateTensors.minibatches

    def spy(self, n):
        parts = list(cut(self, n))
        assert sum(len(part.rollout) for part in parts) == len(self.rollout)
        seen.append(parts)
        yield from parts

    monkeypatch.setattr(UpdateTensors, "minibatches", spy)
    model.learn(1, log_interval=None)
    for parts in seen:
        assert len(parts) == n_minibatches
        sizes = [len(part.rollout.unique()) for part in parts]
        assert sum(sizes) == 24
        if scheme == "gvpo":
            ids = [set(part.columns["prompt_id"][:, 0].tolist()) for part in parts]
            assert sum(map(len, ids)) == len(set().union(*ids)) == 6
            assert all(size % 4 == 0 for size in sizes)


def test_whole_groups_need_as_many_prompts_as_minibatches():
    with pytest.raises(
        ValueError, match=r"n_minibatches=4 is not allowed with surrogate='gvpo': .* at most n_prompts=3"
    ):
        GroupPPO("MessagePolicy", "agentic_gym/Chain-v0", scheme="gvpo", n_prompts=3, n_minibatches=4)


# Metrics, numerics, training.


def test_saturation_counts_tokens_with_an_advantage_and_no_gradient():
    ratio = torch.tensor([[0.5], [1.5], [0.5], [1.5], [1.0], [9.0]])
    credit = [1.0, 1.0, -1.0, -1.0, 0.0, -1.0]
    shares = {"grpo": 2 / 5, "grpo:dual_clip=3": 3 / 5, "cispo": 0.0, "rloo": 0.0, "abc": 1.0,
              "cispo:token_filter=off_policy": 1 / 5}  # fmt: skip
    for scheme, share in shares.items():
        _, metrics = policy_loss(scheme, ratio.log(), torch.zeros(6, 1), credit, one_token_each(6))
        assert metrics["saturation"] == pytest.approx(share), scheme
    _, metrics = policy_loss("grpo", ratio.log(), torch.zeros(6, 1), [0.0] * 6, one_token_each(6))
    assert metrics["saturation"] == 0.0


EVERY = [
    *(f"grpo:surrogate={name}" for name in choices("surrogate")),
    *(f"grpo:bounds={name}" for name in choices("bounds")),
    *(f"grpo:ratio={name}" for name in choices("ratio")),
    *(f"grpo:token_filter={name}" for name in choices("token_filter")),
    *(f"grpo:correction={name}" for name in choices("correction")),
    *(f"grpo:aggregation={name}" for name in choices("aggregation")),
    *(f"grpo:kl={name}" for name in choices("kl") if not name.startswith("reward")),
    "aspo", "a2tgpo", "gapo", "gspo_token", "grpo:correction=icepop,level=rollout,normalise=true",
    "grpo:correction=rejection,measure=k3,over=max", "gspo:kl=k3_corrected",
    "grpo:correction=rejection,denominator=kept", "grpo:correction=rejection,over=sum,denominator=kept",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scheme", EVERY)
def test_extremes_stay_finite(scheme, dtype):
    """Log-ratios of 200, advantages of 0, rollouts and turns without tokens, probabilities of 0."""
    random = np.random.default_rng(0)
    batch, _, _ = random_case(9, n=8, m=20)
    mask = batch.token_mask & (batch.turn_rollout != 2)[:, None]
    batch = RolloutBatch.from_arrays(
        returns=[1, 0, 1, 0, 1, 0, 1, 1], prompt=np.arange(8) % 2, turn_rollout=batch.turn_rollout, token_mask=mask,
        entropy=batch.entropy, information_gain=batch.information_gain,
    )  # fmt: skip
    shape = batch.token_mask.shape
    old = torch.tensor(random.choice([-0.01, -1.0, -200.0, -900.0], size=shape), dtype=dtype)
    new = torch.tensor(random.choice([0.0, 0.1, -200.0, 200.0], size=shape), dtype=dtype) + old
    new.requires_grad_()
    others = {}
    if ":kl" in scheme:
        others["reference_log_prob"] = old + torch.tensor(random.choice([0.0, 200.0, -200.0], size=shape), dtype=dtype)
    if ":correction" in scheme and "none" not in scheme:
        others["behaviour_log_prob"] = old + torch.tensor(random.choice([0.0, 200.0, -200.0], size=shape), dtype=dtype)
    for scale in (0.0, 1.0):
        credit = scale * random.choice([-1.0, 0.0, 1.0], size=shape[0])
        if ":kl=none" in scheme or ":correction=none" in scheme:
            others = {}
        loss, metrics = policy_loss(scheme, new, old, credit, batch, **others)
        (slope,) = torch.autograd.grad(loss, new)
        assert torch.isfinite(loss)
        assert torch.isfinite(slope).all()
        assert all(math.isfinite(value) for value in metrics.values())
        assert not slope[~torch.tensor(batch.token_mask)].any()
        if scale == 0.0 and not any(word in scheme for word in ("kl", "dro", "gvpo")):
            assert not slope.any()


@pytest.mark.parametrize("scheme", EVERY)
def test_values_that_are_not_finite_are_refused(scheme):
    batch, new, old = random_case(10)
    turn, slot = np.argwhere(batch.token_mask)[3]
    broken = new.detach().clone()
    broken[turn, slot] = math.nan
    others = {"reference_log_prob": old} if ":kl" in scheme and "none" not in scheme else {}
    if ":correction" in scheme and "none" not in scheme:
        others["behaviour_log_prob"] = old
    with pytest.raises(ValueError, match="log_prob has values that are not finite among the tokens in the loss"):
        policy_loss(scheme, broken, old, np.ones(14), batch, **others)


FROM_THE_COLLECTOR = [
    "dapo", "gspo", "gspo_token", "cispo", "sapo", "gmpo", "gapo", "dcpo", "bapo", "m2po", "abc", "topr", "dppo_tv",
    "dppo_kl", "vespo", "luspo", "fipo", "clip_cov", "kl_cov", "dro", "gvpo",
]  # fmt: skip
"""Recipes that need no column that only some environments give."""


@pytest.mark.filterwarnings("ignore:sampling='dynamic'")
@pytest.mark.parametrize("scheme", FROM_THE_COLLECTOR)
def test_p24_ratios_are_one_without_learning_and_recipes_train(scheme):
    settings = {
        "scheme": scheme, "n_prompts": 16, "group_size": 8, "n_epochs": 2, "n_minibatches": 2, "seed": 0,
        "env_kwargs": {"depth": 2, "difficulty": 0.0},
    }  # fmt: skip
    still = GroupPPO("MessagePolicy", "agentic_gym/Chain-v0", learning_rate=0.0, **settings).learn(1, log_interval=None)
    logged = still.logger.name_to_value
    assert abs(logged["train/ratio_mean"] - 1) < 1e-5
    assert abs(logged["train/ratio_max"] - 1) < 1e-5
    # Clip-Cov takes the gradient of some tokens whatever their ratio.
    assert (logged["train/clip_fraction"] > 0.0) == (scheme == "clip_cov")
    moving = GroupPPO("MessagePolicy", "agentic_gym/Chain-v0", learning_rate=1e-2, **settings)
    before = moving.policy.flat_parameters.clone()
    logged = moving.learn(100, log_interval=None).logger.name_to_value
    assert not torch.equal(before, moving.policy.flat_parameters)
    assert logged["train/ratio_max"] != 1.0
    assert logged["train/skipped_steps"] == 0
    assert all(np.isfinite(value) for value in logged.values())


def test_every_recipe_of_this_kind_says_what_it_is():
    from algos.recipes.losses import LOSSES

    assert set(LOSSES) <= set(RECIPES)
    assert {*FROM_THE_COLLECTOR, "a2tgpo", "aspo"} == set(LOSSES)


def test_p19_clipping_that_can_never_act_is_reported():
    one = {"n_epochs": 1, "n_minibatches": 1, "env": "agentic_gym/Chain-v0"}
    for scheme in ("cispo", "gspo", "dcpo"):
        with pytest.warns(UserWarning, match="clipping inactive: with n_epochs=1, n_minibatches=1 and staleness=0"):
            GroupPPO("MessagePolicy", scheme=scheme, **one)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GroupPPO("MessagePolicy", scheme="cispo", staleness=1, **one)
        GroupPPO("MessagePolicy", scheme="cispo", **{**one, "n_epochs": 2})
        GroupPPO("MessagePolicy", scheme="grpo", **one)
        GroupPPO("MessagePolicy", scheme="topr", **one)


@pytest.mark.parametrize("scheme", ["grpo", "gspo", "gvpo", "kl_cov", "grpo:kl=k3"])
def test_the_trainers_own_gradient_tells_the_saturation(monkeypatch, scheme):
    import algos.group_ppo

    seen = []
    compute = algos.group_ppo.loss_metrics

    def spy(chosen, tokens, slope):
        seen.append((compute(chosen, tokens, slope), compute(chosen, tokens)))
        return seen[-1][0]

    monkeypatch.setattr(algos.group_ppo, "loss_metrics", spy)
    model = GroupPPO(
        "MessagePolicy", "agentic_gym/Chain-v0", scheme=scheme, seed=0, learning_rate=3e-2,
        env_kwargs={"depth": 2, "difficulty": 0.0},
    )  # fmt: skip
    model.learn(1, log_interval=None)
    assert len(seen) == 4
    assert all(fast == slow for fast, slow in seen)
    if scheme == "grpo":
        assert any(fast["saturation"] > 0 for fast, _ in seen)
