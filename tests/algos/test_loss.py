"""Losses: forms, gradients, masks, aggregation and metrics."""

import math

import numpy as np
import pytest
import torch

from algos import RECIPES, RolloutBatch, Scheme, advantages, make_scheme, policy_loss
from algos.surrogates.aggregation import effective_mask, token_weights
from algos.surrogates.forms import clipped
from algos.surrogates.kl import kl_penalty
from algos.surrogates.loss import loss_metrics, prepared_columns, token_losses
from algos.surrogates.tokens import Tokens

# Most tests give a scheme only what they are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(environment|task). not given, so all rollouts:UserWarning"),
    pytest.mark.filterwarnings("ignore:memory. .* remembers earlier updates:UserWarning"),
]

OF_THE_LOSS = (
    "surrogate", "ratio", "bounds", "clip_low", "clip_high", "dual_clip", "token_filter", "correction", "aggregation",
    "aggregation_constant", "dead_groups", "singleton",
)  # fmt: skip


def one_recipe_per_loss():
    """Return recipe names, without those whose loss another one has already."""
    found = {}
    for name, known in RECIPES.items():
        scheme = known.scheme
        options = tuple((k, v) for p in scheme.parts if p.axis in OF_THE_LOSS for k, v in scheme.options_of(p).items())
        found.setdefault((*(getattr(scheme, field) for field in OF_THE_LOSS), options), name)
    return list(found.values())


DISTINCT = one_recipe_per_loss()
PPO_LIKE = [
    name for name in DISTINCT
    if (RECIPES[name].scheme.ratio, RECIPES[name].scheme.bounds) == ("token", "fixed")
    and RECIPES[name].scheme.surrogate in ("ppo_clip", "reinforce")
]  # fmt: skip
"""Recipes whose loss the loops below know."""
WIDE = [
    *DISTINCT, "cispo:bounds=absolute", "grpo:ratio_cap=1.5", "grpo:ratio=rollout_product", "grpo:ratio=turn_mean",
    "gspo:aggregation=prompt_mean", "aspo:bounds=fixed", "grpo:token_filter=off_policy,drift_max=0.05",
    "grpo:token_filter=top_entropy,entropy_share=0.4", "grpo:token_filter=second_moment", "grpo:empty=counted",
]  # fmt: skip
"""Every part of a loss at least once, but for corrections and penalties."""


def of_minibatch(scheme):
    """Whether the loss is defined over whatever tokens are in the minibatch."""
    return any("of_minibatch" in part.tags for part in make_scheme(scheme).parts)


def whole_groups(scheme):
    return any("whole_groups" in part.tags for part in make_scheme(scheme).parts)


def one_token_each(n=1, **columns):
    return RolloutBatch.from_arrays(returns=[1.0] * n, prompt=[0] * n, **columns)


def random_case(seed, n=9, m=17, slots=4, **columns):
    random = np.random.default_rng(seed)
    owner = np.concatenate([np.arange(n), random.integers(0, n, m - n)])
    random.shuffle(owner)
    batch = RolloutBatch.from_arrays(
        returns=random.integers(0, 3, n), prompt=random.integers(0, 3, n), turn_rollout=owner,
        token_mask=random.random((m, slots)) < 0.6, value=random.normal(size=m), max_tokens=40,
        information_gain=random.normal(size=m), entropy=random.random((m, slots)), **columns,
    )  # fmt: skip
    new = torch.tensor(random.normal(size=(m, slots)) * 0.5 - 1, requires_grad=True)
    old = new.detach() + torch.tensor(random.normal(size=(m, slots)) * 0.3)
    return batch, new, old, random.normal(size=m)


def gradient(loss, log_prob):
    (result,) = torch.autograd.grad(loss, log_prob)
    return result


def tokens_of(scheme, batch, new, old, credit, turns=slice(None)):
    """The tokens of a minibatch of some turns, prepared for the whole batch."""
    mask = torch.tensor(effective_mask(scheme, batch))
    zero = torch.zeros((), dtype=new.dtype)
    columns = {name: column.double()[turns] for name, column in prepared_columns(scheme, batch, credit).items()}
    return Tokens(
        torch.where(mask, new, zero)[turns], torch.where(mask, old, zero)[turns], torch.tensor(credit)[:, None][turns],
        mask[turns], torch.tensor(batch.turn_rollout)[turns], len(batch), columns=columns,
    )  # fmt: skip


# Forms.

FORM_CASES = [
    # ratio, advantage, dual, loss, d loss / d ratio; clip 0.2 / 0.28.
    (1.0, 1.0, None, -1.0, -1.0),
    (1.1, 2.0, None, -2.2, -2.0),
    (1.5, 1.0, None, -1.28, 0.0),
    (0.5, 1.0, None, -0.5, -1.0),
    (1.0, -1.0, None, 1.0, 1.0),
    (0.5, -1.0, None, 0.8, 0.0),
    (1.5, -1.0, None, 1.5, 1.0),
    (10.0, -1.0, None, 10.0, 1.0),
    (0.5, 0.0, None, 0.0, 0.0),
    (10.0, -1.0, 3.0, 3.0, 0.0),
    (2.0, -1.0, 3.0, 2.0, 1.0),
    (0.5, -1.0, 3.0, 0.8, 0.0),
    (1.0, 1.0, 3.0, -1.0, -1.0),
    (10.0, 1.0, 3.0, -1.28, 0.0),
    (0.1, 1.0, 3.0, -0.1, -1.0),
]


@pytest.mark.parametrize(("ratio", "advantage", "dual", "loss", "slope"), FORM_CASES)
def test_ppo_clip_and_p20_dual_clip(ratio, advantage, dual, loss, slope):
    r = torch.tensor([ratio], dtype=torch.float64, requires_grad=True)
    result = clipped(r, torch.tensor([advantage], dtype=torch.float64), 0.8, 1.28, dual)
    assert result.item() == pytest.approx(loss, abs=1e-12)
    assert gradient(result.sum(), r).item() == pytest.approx(slope, abs=1e-12)


@pytest.mark.parametrize(
    "scheme",
    ["grpo", "grpo:dual_clip=3,clip_high=0.28", "rloo", "agentrl", "gspo:clip_low=0.2,clip_high=0.2", "gmpo", "sapo",
     "abc", "grpo:ratio=turn_mean", "grpo:ratio=rollout_product", "luspo:clip_low=0.2,clip_high=0.2", "dcpo", "gapo"],
)  # fmt: skip
def test_gradients_equal_finite_differences(scheme):
    batch, new, old, credit = random_case(0)
    loss, _ = policy_loss(scheme, new, old, credit, batch)
    slope = gradient(loss, new)
    step = 1e-6
    for i, j in [(0, 0), (3, 1), (5, 2), (11, 3), (16, 0)]:
        shift = torch.zeros_like(new)
        shift[i, j] = step
        high, low = (policy_loss(scheme, new.detach() + s, old, credit, batch)[0] for s in (shift, -shift))
        assert slope[i, j].item() == pytest.approx((high - low).item() / (2 * step), abs=1e-7)


def test_p19_beyond_the_bound_the_gradient_is_zero():
    batch = one_token_each()
    new = torch.tensor([[math.log(1.5)]], requires_grad=True)
    loss, _ = policy_loss("grpo:clip_high=0.28", new, torch.zeros(1, 1), [1.0], batch)
    assert loss.item() == pytest.approx(-1.28)
    assert gradient(loss, new).item() == 0.0


def test_p13_rloo_is_not_clipped_and_has_no_ratio():
    batch, new, old, credit = random_case(1)
    loss, metrics = policy_loss("rloo", new, old - 5, credit, batch)
    assert metrics["clip_fraction"] == metrics["clip_fraction_low"] == metrics["clip_fraction_high"] == 0.0
    assert metrics["ratio_max"] > 10
    mask = torch.tensor(batch.token_mask)
    np.testing.assert_allclose(
        gradient(loss, new), torch.where(mask, -torch.tensor(credit)[:, None], 0.0) / mask.sum(), rtol=1e-12
    )


def test_the_sign_minimising_raises_good_tokens():
    more = {"entropy": np.ones((2, 1)), "information_gain": [0.0, 0.0]}
    batch = RolloutBatch.from_arrays(returns=[1.0, 0.0], prompt=[0, 0], **more)
    for scheme in DISTINCT:
        # clip_cov leaves one token of high covariance out: here there are only two.
        if scheme == "clip_cov":
            continue
        new = torch.zeros(2, 1, requires_grad=True)
        credit = np.array([1.0, 0.0]) if scheme == "reinforce" else np.array([0.5, -0.5])
        loss, _ = policy_loss(scheme, new, torch.zeros(2, 1), credit, batch)
        good, bad = gradient(loss, new)[:, 0].tolist()
        assert good < 0 <= bad or scheme == "reinforce"
        assert good < bad


def test_large_log_ratios_stay_finite():
    batch = one_token_each(4)
    new = torch.tensor([[200.0], [-200.0], [200.0], [-200.0]], requires_grad=True)
    for scheme in ("grpo", "agentrl", "rloo"):
        loss, metrics = policy_loss(scheme, new, torch.zeros(4, 1), [1.0, 1.0, -1.0, -1.0], batch)
        assert torch.isfinite(gradient(loss, new)).all()
        assert all(math.isfinite(value) for value in metrics.values())


# Aggregation.


def loop_loss(scheme: Scheme, batch, new, old, credit):
    """Token by token."""
    new, old = new.detach().numpy(), old.numpy()
    per_rollout: dict[int, list[float]] = {}
    for turn, rollout in enumerate(batch.turn_rollout.tolist()):
        if not batch.counted[rollout] or (scheme.dead_groups == "excluded" and batch.dead[rollout]):
            continue
        for slot in range(new.shape[1]):
            if batch.token_mask[turn, slot]:
                a, ratio = credit[turn], math.exp(new[turn, slot] - old[turn, slot])
                if scheme.surrogate == "reinforce":
                    loss = -a * new[turn, slot]
                else:
                    clipped = min(max(ratio, 1 - scheme.clip_low), 1 + scheme.clip_high)
                    loss = -min(a * ratio, a * clipped)
                    if scheme.dual_clip and a < 0:
                        loss = min(loss, -scheme.dual_clip * a)
                per_rollout.setdefault(rollout, []).append(loss)
    every = [loss for losses in per_rollout.values() for loss in losses]
    if scheme.aggregation == "token_mean":
        return math.fsum(every) / len(every)
    if scheme.aggregation == "rollout_mean":
        return math.fsum(math.fsum(x) / len(x) for x in per_rollout.values()) / len(per_rollout)
    constant = scheme.aggregation_constant or batch.max_tokens
    return math.fsum(every) / constant / len(per_rollout)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "scheme",
    [
        *PPO_LIKE, "grpo:dead_groups=excluded", "dr_grpo:aggregation_constant=7", "grpo:dual_clip=1.1",
        "lite_ppo:clip_low=0.05,clip_high=0.4",
    ],
)  # fmt: skip
def test_losses_equal_loops(scheme, seed):
    valid = np.arange(9) != 4
    batch, new, old, credit = random_case(seed, valid=valid)
    loss, _ = policy_loss(scheme, new, old, credit, batch)
    assert loss.item() == pytest.approx(loop_loss(make_scheme(scheme), batch, new, old, credit), rel=1e-10)


def test_p06_the_constant_does_not_depend_on_padding():
    for width in (2, 50):
        mask = np.arange(width)[None] < 2
        batch = one_token_each(token_mask=mask, max_tokens=10)
        new = torch.zeros(1, width)
        for scheme in ("dr_grpo", "dr_grpo:aggregation_constant=10"):
            assert policy_loss(scheme, new, new, [1.0], batch)[0].item() == pytest.approx(-0.2)


def test_the_schemes_constant_goes_before_the_batchs():
    batch = one_token_each(max_tokens=10)
    zero = torch.zeros(1, 1)
    assert policy_loss("dr_grpo:aggregation_constant=4", zero, zero, [1.0], batch)[0].item() == -0.25
    assert policy_loss("dr_grpo", zero, zero, [1.0], one_token_each())[0].item() == -1.0


@pytest.mark.parametrize("scheme", [s for s in [*WIDE, "grpo:dead_groups=excluded"] if not of_minibatch(s)])
def test_p07_any_split_into_minibatches_adds_up(scheme):
    chosen = make_scheme(scheme)
    batch, new, old, credit = random_case(3, valid=np.arange(9) != 2)
    whole, _ = policy_loss(chosen, new, old, credit, batch)
    slope = gradient(whole, new)
    weights = torch.tensor(token_weights(chosen, batch))
    unit = batch.level("prompt").ids if whole_groups(chosen) else np.arange(9)
    for n in (1, 2, 3, 9):
        parts = np.array_split(np.random.default_rng(n).permutation(unit.max() + 1), n)
        turns = [np.flatnonzero(np.isin(unit[batch.turn_rollout], part)) for part in parts]
        sums = [
            (weights[t] * token_losses(chosen, tokens_of(chosen, batch, new, old, credit, torch.tensor(t)))).sum()
            for t in turns
        ]
        # What parts prepare for the whole update is kept in single precision.
        assert sum(sums).item() == pytest.approx(whole.item(), abs=1e-6)
        assert (gradient(sum(sums), new) - slope).abs().max().item() < 1e-6


@pytest.mark.parametrize(
    "scheme",
    [s for s in [*WIDE, "grpo:dead_groups=excluded", "dapo:kl=k3", "gspo:kl=k3_corrected"] if not of_minibatch(s)],
)
def test_losses_of_micro_batches_add_up(scheme):
    chosen = make_scheme(scheme)
    batch, new, old, credit = random_case(3, valid=np.arange(9) != 2)
    reference = None if chosen.kl == "none" else old - 0.1
    whole, metrics = policy_loss(chosen, new, old, credit, batch, reference)
    unit = batch.level("prompt").ids if whole_groups(chosen) else np.arange(9)
    turns = [np.isin(unit[batch.turn_rollout], part) for part in ([0, 2, 5], [1, 3, 7, 8], [4, 6])]
    parts = [policy_loss(chosen, new[t], old, credit, batch, reference, turns=t) for t in turns if t.any()]
    total = sum(loss for loss, _ in parts)
    assert total.item() == pytest.approx(whole.item(), abs=1e-12)
    assert (gradient(total, new) - gradient(whole, new)).abs().max().item() < 1e-12
    rows = policy_loss(chosen, new[turns[0]], old, credit, batch, reference, turns=np.flatnonzero(turns[0]))
    assert rows[0].item() == parts[0][0].item()
    assert set(rows[1]) == set(metrics)


def test_micro_batches_with_a_correction_or_means_of_their_own():
    batch, new, old, credit = random_case(3)
    halves = [batch.turn_rollout < 4, batch.turn_rollout >= 4]
    rejecting = "grpo:correction=rejection,denominator=kept,weight_min=0.9,weight_max=1.1"
    behaviour = old + torch.tensor(np.random.default_rng(1).normal(size=old.shape) * 0.2)
    for scheme in ("grpo:correction=tis_rollout", rejecting):
        whole = policy_loss(scheme, new, old, credit, batch, behaviour_log_prob=behaviour)[0].item()
        parts = [
            policy_loss(scheme, new[t], old, credit, batch, behaviour_log_prob=behaviour, turns=t)[0].item()
            for t in halves
        ]
        assert sum(parts) == pytest.approx(whole, abs=1e-12)
    own = "grpo:aggregation=token_mean,tokens_of=minibatch"
    for t in halves:
        mine = policy_loss(own, new[t], old, credit, batch, turns=t)[0].item()
        tokens = batch.token_mask[t]
        each = policy_loss("grpo:aggregation=plain_sum", new[t], old, credit, batch, turns=t)[0].item()
        assert mine == pytest.approx(each / tokens.sum(), abs=1e-12)


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([0], "turns has 1 of the 2 turns of rollout 0; rollouts must be whole"),
        ([1, 0], "must be rising rows"),
        ([0, 0], "must be rising rows"),
        ([0.0, 1.0], "must be rising rows"),
        ([True, True], r"bool of shape \(3,\)"),
        ([0, 1, 3], r"turns must be in \[0, 2\]; they are from 0 to 3"),
        ([-1, 2], r"turns must be in \[0, 2\]"),
    ],
)
def test_turns_of_a_micro_batch_are_checked(turns, words):
    batch = RolloutBatch.from_arrays(
        returns=[1, 0], prompt=[0, 0], environment=[0, 0], task=[0, 0], turn_rollout=[0, 0, 1], turn_reward=[0, 1, 0]
    )
    zeros = torch.zeros(3, 1)
    with pytest.raises(ValueError, match=words):
        policy_loss("grpo", torch.zeros(len(turns), 1), zeros, [1.0, 1.0, -1.0], batch, turns=turns)
    with pytest.raises(ValueError, match=r"log_prob has shape \(3, 1\); it must have the token mask's, \(2, 1\)"):
        policy_loss("grpo", zeros, zeros, [1.0, 1.0, -1.0], batch, turns=[0, 1])


def test_which_losses_depend_on_the_minibatch():
    of = [s for s in WIDE if of_minibatch(s)]
    assert of == ["bapo", "m2po", "clip_cov", "kl_cov", "grpo:token_filter=second_moment"]
    assert [s for s in WIDE if whole_groups(s)] == ["gvpo"]


def test_p07_token_mean_of_a_ragged_batch():
    batch = RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 1], token_mask=[[1, 0, 0], [1, 1, 1]])
    assert token_weights(make_scheme("lite_ppo"), batch).tolist() == [[0.25, 0, 0], [0.25] * 3]
    assert token_weights(make_scheme("grpo"), batch).tolist() == [[0.5, 0, 0], [1 / 6] * 3]
    zero = torch.zeros(2, 3)
    assert policy_loss("lite_ppo", zero, zero, [-4.0, 0.0], batch)[0].item() == 1.0


def test_p08_what_is_masked_is_not_in_the_denominator():
    mask = np.ones((2, 4), np.bool_)
    new = torch.tensor(np.random.default_rng(0).normal(size=(2, 4)))
    alone = RolloutBatch.from_arrays(
        returns=[1], prompt=[0], token_mask=mask[:1], max_tokens=8, entropy=[[0.1, 0.4, 0.2, 0.3]], information_gain=[0]
    )  # fmt: skip
    for scheme in [s for s in WIDE if s != "grpo:empty=counted"]:
        expected = policy_loss(scheme, new[:1], new[:1] - 0.1, [2.0], alone)[0].item()
        for columns in (
            {"valid": [True, False], "token_mask": mask},
            {"token_mask": mask & np.array([[True], [False]])},
        ):
            if (scheme.startswith("gapo") or scheme == "a2tgpo") and "valid" not in columns:
                continue  # the comparison with the other rollout's reward is part of the loss
            batch = RolloutBatch.from_arrays(
                returns=[1, 5], prompt=[0, 0], max_tokens=8, entropy=np.tile(alone.entropy, (2, 1)),
                information_gain=[0, 0], **columns,
            )  # fmt: skip
            loss = policy_loss(scheme, new, new - 0.1, [2.0, 3.0], batch)[0].item()
            assert loss == pytest.approx(expected, rel=1e-12)


def test_p08_excluding_dead_groups_doubles_the_loss():
    batch = RolloutBatch.from_arrays(
        returns=[1, 0, 5, 5],
        prompt=["live", "live", "dead", "dead"],
        token_mask=np.ones((4, 3)),
        max_tokens=3,
    )
    new = torch.tensor(np.random.default_rng(0).normal(size=(4, 3)))
    for scheme in ("grpo", "dr_grpo", "lite_ppo", "erpo"):
        credit = advantages(scheme, batch)
        counted = policy_loss(scheme, new, new - 0.1, credit, batch)[0].item()
        excluded = policy_loss(f"{scheme}:dead_groups=excluded", new, new - 0.1, credit, batch)[0].item()
        assert counted != 0
        assert excluded == pytest.approx(2 * counted, rel=1e-12)


@pytest.mark.parametrize("scheme", [*WIDE, "grpo:kl=k3"])
def test_p08_all_masked_is_zero_with_zero_gradient(scheme):
    more = {"entropy": np.ones((2, 3)), "information_gain": [0, 0]}
    cases = [
        RolloutBatch.from_arrays(returns=[1, 2], prompt=[0, 0], token_mask=np.zeros((2, 3)), **more),
        RolloutBatch.from_arrays(returns=[1, 2], prompt=[0, 0], token_mask=np.ones((2, 3)), valid=[0, 0], **more),
    ]
    for batch in cases:
        new = torch.full((2, 3), np.nan, requires_grad=True)
        reference = {"reference_log_prob": new.detach()} if ":kl" in scheme else {}
        loss, metrics = policy_loss(scheme, new, new.detach(), [np.nan, np.inf], batch, **reference)
        assert loss.item() == 0.0
        assert gradient(loss, new).tolist() == [[0.0] * 3] * 2
        assert set(metrics.values()) == {0.0}


def test_rollouts_without_tokens_are_not_in_the_mean():
    mask = np.array([[1, 1], [0, 0]])
    batch = RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0], token_mask=mask, max_tokens=2)
    for scheme in ("grpo", "dr_grpo", "lite_ppo"):
        assert token_weights(make_scheme(scheme), batch).tolist() == [[0.5, 0.5], [0, 0]]


def test_effective_mask():
    batch = RolloutBatch.from_arrays(
        returns=[1, 0, 5, 5, np.nan], prompt=[0, 0, 1, 1, 1], token_mask=[[1, 0]] * 5, valid=[1, 1, 1, 1, 1]
    )
    assert effective_mask(make_scheme("grpo"), batch)[:, 0].tolist() == [True, True, True, True, False]
    assert effective_mask(make_scheme("grpo:dead_groups=excluded"), batch)[:, 0].tolist() == [
        True, True, False, False, False,
    ]  # fmt: skip


# What is masked, and what is not finite.


@pytest.mark.parametrize("scheme", [*WIDE, "grpo:kl=k2", "agentrl:kl=k3", "gspo:kl=k3_corrected"])
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 200.0, -200.0])
def test_p22_masked_garbage_changes_nothing(scheme, garbage):
    batch, new, old, credit = random_case(5, valid=np.arange(9) != 1)
    mask = torch.tensor(effective_mask(make_scheme(scheme), batch))
    reference = [old - 0.1] if ":kl" in scheme else []
    loss, metrics = policy_loss(scheme, new, old, credit, batch, *reference)
    slope = gradient(loss, new)
    dirty = [torch.where(mask, t.detach(), garbage) for t in (new, old, *reference)]
    dirty[0].requires_grad_()
    tokens = np.where(mask, credit[:, None], garbage)
    dirty_loss, dirty_metrics = policy_loss(scheme, dirty[0], dirty[1], tokens, batch, *dirty[2:])
    assert dirty_loss.item() == loss.item()
    assert dirty_metrics == metrics
    assert torch.equal(gradient(dirty_loss, dirty[0]), slope)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["log_prob", "old_log_prob", "advantages", "reference_log_prob"])
def test_values_in_the_loss_must_be_finite(which, broken):
    batch = one_token_each(2)
    values = {name: torch.zeros(2, 1) for name in ("log_prob", "old_log_prob", "reference_log_prob")}
    values["advantages"] = torch.ones(2)
    values[which][1] = broken
    with pytest.raises(ValueError, match=f"^{which} has values that are not finite among the tokens"):
        policy_loss("grpo:kl=k3", batch=batch, **values)


def test_log_probabilities_must_be_tensors():
    batch, good = one_token_each(2), torch.zeros(2, 1)
    with pytest.raises(TypeError, match=r"^log_prob is of type ndarray; it must be a torch.Tensor"):
        policy_loss("grpo", np.zeros((2, 1)), good, [1.0, -1.0], batch)
    with pytest.raises(TypeError, match=r"^old_log_prob is of type NoneType"):
        policy_loss("grpo", good, None, [1.0, -1.0], batch)
    with pytest.raises(TypeError, match=r"^reference_log_prob is of type list"):
        policy_loss("grpo:kl=k3", good, good, [1.0, -1.0], batch, [[0.0], [0.0]])


def test_wrong_shapes_are_named():
    batch = one_token_each(3, token_mask=np.ones((3, 2)))
    good = torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"^log_prob has shape \(3, 1\); it must have the token mask's, \(3, 2\)"):
        policy_loss("grpo", torch.zeros(3, 1), good, [0.0] * 3, batch)
    with pytest.raises(ValueError, match=r"^old_log_prob has shape \(3,\)"):
        policy_loss("grpo", good, torch.zeros(3), [0.0] * 3, batch)
    with pytest.raises(ValueError, match=r"^reference_log_prob has shape \(2, 2\)"):
        policy_loss("grpo:kl=k1", good, good, [0.0] * 3, batch, torch.zeros(2, 2))
    for wrong in ([0.0] * 2, np.zeros((3, 3)), np.zeros((3, 2, 1)), 1.0):
        with pytest.raises(ValueError, match="advantages have shape"):
            policy_loss("grpo", good, good, wrong, batch)


def test_advantages_per_turn_or_per_token_in_any_container():
    batch, new, old, credit = random_case(6)
    expected = policy_loss("grpo", new, old, credit, batch)[0].item()
    wide = np.repeat(credit[:, None], 4, axis=1)
    for form in (
        credit.tolist(),
        torch.tensor(credit),
        torch.tensor(credit)[:, None],
        wide,
        torch.tensor(wide),
    ):
        assert policy_loss("grpo", new, old, form, batch)[0].item() == expected


def test_no_gradient_reaches_old_log_probs_advantages_or_reference():
    batch, new, old, credit = random_case(7)
    others = [t.clone().requires_grad_() for t in (old, torch.tensor(credit), old)]
    loss, _ = policy_loss("grpo:kl=k3", new, others[0], others[1], batch, others[2])
    loss.backward()
    assert all(t.grad is None for t in others)
    assert new.grad is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lower_precision_agrees(dtype):
    batch, new, old, credit = random_case(8)
    low_new, low_old = new.detach().to(dtype).requires_grad_(), old.to(dtype)
    loss, _ = policy_loss("grpo", low_new, low_old, credit, batch)
    reference, _ = policy_loss("grpo", low_new.detach().double(), low_old.double(), credit, batch)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(reference.item(), abs=1e-5)
    assert gradient(loss, low_new).dtype == dtype


# Metrics.


def test_p25_the_loss_of_a_first_pass_is_zero_but_not_its_gradient():
    ragged = np.arange(3) < np.array([1, 3, 2, 2])[:, None]
    batch = RolloutBatch.from_arrays(returns=[1, 0, 0, 1], prompt=[0, 0, 1, 1], token_mask=ragged)
    new = torch.full((4, 3), -0.7, requires_grad=True)
    loss, _ = policy_loss("grpo", new, new.detach(), advantages("grpo", batch), batch)
    assert abs(loss.item()) < 1e-7
    assert gradient(loss, new).norm() > 0.1
    token_mean = "grpo:aggregation=token_mean"
    loss, _ = policy_loss(token_mean, new, new.detach(), advantages(token_mean, batch), batch)
    assert abs(loss.item()) > 0.1


def test_p26_clip_fractions_count_what_binds():
    ratios = torch.tensor([[0.5], [1.5], [0.5], [1.5], [2.0]])
    credit = [1.0, 1.0, -1.0, -1.0, 0.0]
    _, metrics = policy_loss("grpo", ratios.log(), torch.zeros(5, 1), credit, one_token_each(5))
    assert metrics["clip_fraction_low"] == pytest.approx(0.2)
    assert metrics["clip_fraction_high"] == pytest.approx(0.2)
    assert metrics["clip_fraction"] == pytest.approx(0.4)
    assert metrics["ratio_mean"] == pytest.approx(1.2)
    assert metrics["ratio_max"] == pytest.approx(2.0)
    assert metrics["effective_sample_size"] == pytest.approx(6.0**2 / 9.0 / 5)
    assert metrics["approx_kl"] == pytest.approx(np.mean(ratios.numpy() - 1 - np.log(ratios.numpy())), rel=1e-5)
    padded = one_token_each(5, token_mask=[[1, 0, 0]] * 5)
    wide = torch.cat([ratios.log(), torch.full((5, 2), 9.0)], dim=1)
    _, again = policy_loss("grpo", wide, torch.zeros(5, 3), credit, padded)
    assert again == metrics


def test_p26_asymmetric_bounds_have_their_own_fractions():
    ratios = torch.tensor([[0.75], [1.25], [0.75], [1.25]])
    credit = [-1.0, 1.0, -1.0, 1.0]
    _, metrics = policy_loss(
        "grpo:clip_low=0.2,clip_high=0.3", ratios.log(), torch.zeros(4, 1), credit, one_token_each(4)
    )
    assert (metrics["clip_fraction_low"], metrics["clip_fraction_high"]) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("scheme", "positive", "negative"),
    [
        # Ratios .1, .5, 1, 2, 9, 30; the shares below 1 and above 1 that are bound, by the sign of the advantage.
        ("grpo", (0, 3), (2, 0)),
        ("grpo:dual_clip=3", (0, 3), (2, 2)),
        ("grpo:ratio_cap=4", (0, 3), (2, 2)),
        ("gmpo", (0, 3), (2, 0)),
        ("abc:clip_low=0.2,clip_high=0.2", (2, 3), (2, 3)),
        ("dppo_tv", (0, 2), (0, 1)),
        ("cispo", (0, 2), (0, 2)),
        ("topr:ratio=token", (0, 0), (0, 3)),
        # Weights are 1 / ratio for A > 0, the ratio for A < 0, and at most 3.
        ("grpo:surrogate=aspo", (1, 3), (2, 2)),
        # The KLs are .042, .006, 0, .010, .21 and 2.1; the last ratio is above the truncation, too.
        ("dppo_kl:clip_low=0.04,clip_high=0.05", (0, 2), (1, 1)),
        ("sapo", (0, 1), (0, 1)),  # Its gate has no slope left at 30.
        ("reinforce", (0, 0), (0, 0)),
    ],
)
def test_p26_clip_fractions_of_every_kind_of_clip(scheme, positive, negative):
    ratios = torch.tensor([[0.1], [0.5], [1.0], [2.0], [9.0], [30.0]])
    old = torch.full((6, 1), 0.03).log()
    for sign, (low, high) in ((1.0, positive), (-1.0, negative)):
        _, metrics = policy_loss(scheme, ratios.log() + old, old, [sign] * 6, one_token_each(6))
        assert metrics["clip_fraction_low"] == pytest.approx(low / 6), sign
        assert metrics["clip_fraction_high"] == pytest.approx(high / 6), sign
        assert metrics["clip_fraction"] == pytest.approx((low + high) / 6)


def test_p26_what_filters_and_corrections_leave_out_is_not_clipped():
    ratios, old = torch.tensor([[0.5], [2.0], [1.0], [1.0]]), torch.zeros(4, 1)
    batch, credit = one_token_each(4), [-1.0, 1.0, -1.0, 1.0]
    behaviour = old - torch.tensor([[3.0], [0.0], [3.0], [0.0]])
    scheme = "grpo:correction=rejection"
    _, metrics = policy_loss(scheme, ratios.log(), old, credit, batch, behaviour_log_prob=behaviour)
    assert (metrics["clip_fraction_low"], metrics["clip_fraction_high"]) == (0.0, 0.25)
    assert metrics["saturation"] == 0.75


def test_approx_kl_keeps_its_precision_near_one_and_is_not_negative():
    small = torch.tensor([[1e-4], [-1e-4], [1e-6], [0.0]])
    _, metrics = policy_loss("grpo", small, torch.zeros(4, 1), [1.0] * 4, one_token_each(4))
    assert metrics["approx_kl"] == pytest.approx(2 * 0.5e-8 / 4, rel=0.01)
    random = torch.tensor(np.random.default_rng(0).normal(size=(500, 1)) * 1e-7, dtype=torch.float32)
    _, metrics = policy_loss("grpo", random, torch.zeros(500, 1), [1.0] * 500, one_token_each(500))
    assert metrics["approx_kl"] >= 0.0


def test_metrics_are_the_same_for_every_scheme_where_nothing_is_clipped():
    batch, new, old, credit = random_case(9)
    close = old + 0.01 * (new.detach() - old)
    every = [policy_loss(scheme, close, old, credit, batch)[1] for scheme in PPO_LIKE]
    assert all(metrics == every[0] for metrics in every)


def test_metrics_of_exploding_ratios_are_finite():
    log_ratio = torch.tensor([200.0, -200.0, 0.0])
    rows = log_ratio[:, None]
    tokens = Tokens(rows, torch.zeros(3, 1), torch.ones(3, 1), torch.ones(3, 1, dtype=torch.bool))
    metrics = loss_metrics(make_scheme("grpo"), tokens)
    assert all(math.isfinite(value) for value in metrics.values())
    # The bound takes the gradient of one, and the cut of log-ratios that of the other.
    assert metrics["clip_fraction_low"] == metrics["clip_fraction_high"] == pytest.approx(1 / 3)


# KL penalty.


def test_kl_estimators():
    d = torch.tensor([0.0, 0.5, -0.5, 2.0], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(4, dtype=torch.float64)
    x = d.detach()
    expected = {
        "k1": (x, torch.ones(4, dtype=torch.float64)),
        "k2": (x**2 / 2, x),
        "k3": (torch.exp(-x) + x - 1, 1 - torch.exp(-x)),
    }
    for kind, (value, slope) in expected.items():
        penalty = kl_penalty(kind, d, zero)
        np.testing.assert_allclose(penalty.detach(), value, atol=1e-15)
        np.testing.assert_allclose(gradient(penalty.sum(), d), slope, atol=1e-15)
        penalty = kl_penalty(kind, d.detach(), zero.clone().requires_grad_())
        assert not penalty.requires_grad
    # Only what is exponentiated is cut.
    far = torch.tensor([500.0, -500.0], requires_grad=True)
    slopes = {"k1": [1.0, 1.0], "k2": [500.0, -500.0], "k3": [0.0, 0.0]}
    for kind, slope in slopes.items():
        penalty = kl_penalty(kind, far, torch.zeros(2))
        assert torch.isfinite(penalty).all()
        assert gradient(penalty.sum(), far).tolist() == slope


def test_kl_estimators_agree_on_average():
    policy = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64).log()
    reference = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()
    exact = (policy.exp() * (policy - reference)).sum().item()
    for kind in ("k1", "k3"):
        value = (policy.exp() * kl_penalty(kind, policy, reference)).sum().item()
        assert value == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_the_penalty_is_added_with_the_same_weights(kind):
    batch, new, old, credit = random_case(10)
    reference = old - 0.3
    for scheme in ("grpo", "dr_grpo", "rloo", "agentrl"):
        plain, metrics = policy_loss(scheme, new, old, credit, batch)
        loss, with_kl = policy_loss(f"{scheme}:kl={kind},kl_coef=0.5", new, old, credit, batch, reference)
        penalty = kl_penalty(kind, new.detach(), reference)
        weights = torch.tensor(token_weights(make_scheme(scheme), batch))
        assert loss.item() == pytest.approx((plain + 0.5 * (weights * penalty).sum()).item(), rel=1e-12)
        mean = penalty[torch.tensor(batch.token_mask)].mean().item()
        assert with_kl == metrics | {"kl": pytest.approx(mean, rel=1e-12)}


def test_p11_p21_the_penalty_acts_on_dead_groups_unless_they_are_excluded():
    batch = RolloutBatch.from_arrays(returns=[1, 1, 0, 1], prompt=["dead", "dead", "live", "live"])
    new = torch.zeros(4, 1, requires_grad=True)
    reference = torch.full((4, 1), -0.5)
    slopes = {}
    for dead in ("counted", "excluded"):
        scheme = make_scheme("lite_ppo", kl="k3", kl_coef=0.1, dead_groups=dead)
        loss, _ = policy_loss(scheme, new, torch.zeros(4, 1), advantages(scheme, batch), batch, reference)
        slopes[dead] = gradient(loss, new)[:, 0]
    assert (slopes["counted"][:2] != 0).all()
    assert slopes["excluded"][:2].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(slopes["excluded"][2:], 2 * slopes["counted"][2:], rtol=1e-6)


def test_a_reference_is_required_exactly_where_it_is_used():
    batch, new, old, credit = random_case(11)
    with pytest.raises(ValueError, match="reference_log_prob is not given, but kl='k3'"):
        policy_loss("grpo:kl=k3", new, old, credit, batch)
    with pytest.raises(ValueError, match="reference_log_prob is given, but kl='none'"):
        policy_loss("grpo", new, old, credit, batch, old)
    with pytest.raises(ValueError, match="reference_log_prob is not given, but kl='k2'"):
        policy_loss("grpo:kl=k2", new, old, credit, batch)
    tokens = tokens_of(make_scheme("grpo"), batch, new, old, credit)
    with pytest.raises(ValueError, match="reference_log_prob=None is not allowed with a KL penalty"):
        token_losses(make_scheme("grpo:kl=k2"), tokens)
