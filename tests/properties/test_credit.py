"""Properties that every recipe must have, on random ragged batches."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from algos import RECIPES, RolloutBatch, advantages, make_scheme, policy_loss

# What a change reward -> a * reward + b (a > 0) does to the advantages, where a and b are common to
# the whole batch, to each environment, or to each prompt: "same", "scaled" by a, or "other".
# Columns: batch a, batch b, environment a, environment b, prompt a, prompt b.
UNDER_AFFINE_CHANGE = {
    "reinforce": "scaled other scaled other scaled other",
    "grpo": "same same same same same same",
    "dr_grpo": "scaled same scaled same scaled same",
    "rloo": "scaled same scaled same scaled same",
    "reinforce_pp": "same same other other other other",
    "reinforce_pp_baseline": "same same other same other same",
    "lite_ppo": "same same other other other other",
    "agentrl": "same same same same same same",
    "erpo": "same same same same other other",
    "ppo": "other other other other other other",
}

# The widest level that an advantage depends on.
REACH = {
    "reinforce": "rollout", "grpo": "prompt", "dr_grpo": "prompt", "rloo": "prompt", "reinforce_pp": "batch",
    "reinforce_pp_baseline": "batch", "lite_ppo": "batch", "agentrl": "environment", "erpo": "environment",
    "ppo": "batch",
}  # fmt: skip

# Recipes in which a group whose returns are all equal has exact zeros.
DEAD_IS_ZERO = ("grpo", "dr_grpo", "rloo", "lite_ppo", "erpo")

# Recipes whose counted rollouts have advantages of (weighted) mean 0 in every environment.
SHIFTED = ("reinforce_pp", "reinforce_pp_baseline", "agentrl", "ppo")

FAST = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
QUIET = pytest.mark.filterwarnings("ignore:returns. no rollout")


def exact(recipe):
    """Without eps, so that invariances hold to rounding."""
    scheme = make_scheme(recipe)
    return scheme if "eps" in scheme.ignored() else dataclasses.replace(scheme, eps=0.0)


@st.composite
def tables(draw, whole=False):
    """Columns of a batch: 3 environments, groups of 1 to 6, rollouts of 0 to 4 turns of 0 to 4 tokens."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    n = sum(sizes)
    group = np.repeat(np.arange(len(sizes)), sizes)
    random.shuffle(group)
    environment = random.integers(0, 3, len(sizes))[group]
    returns = np.round(random.normal(size=n), 1) * 10.0 ** random.integers(-2, 3)
    # Some groups have no spread.
    dead = random.random(len(sizes)) < 0.3
    returns = np.where(dead[group], environment + 0.1 + 0.2, returns)
    owner = np.repeat(np.arange(n), random.integers(1 if whole else 0, 5, n))
    random.shuffle(owner)
    m = len(owner)
    valid = np.ones(n, np.bool_) if whole else random.random(n) < 0.85
    if not whole:
        returns[random.random(n) < 0.1] = np.nan
    return {
        "returns": returns, "prompt": group - 2, "environment": environment, "task": group % 2,
        "valid": valid, "turn_rollout": owner, "turn_reward": random.normal(size=m),
        "token_mask": random.random((m, 4)) < 0.7, "value": random.normal(size=m),
        "final_value": random.normal(size=n),
    }  # fmt: skip


def build(columns):
    return RolloutBatch.from_arrays(**columns)


def loss_and_gradient(scheme, columns, credit, seed=0):
    batch = build(columns)
    random = np.random.default_rng(seed)
    shape = batch.token_mask.shape
    new = torch.tensor(random.normal(size=shape) - 2, requires_grad=True)
    old = new.detach() + torch.tensor(random.normal(size=shape) * 0.3)
    loss, metrics = policy_loss(scheme, new, old, credit, batch)
    (slope,) = torch.autograd.grad(loss, new)
    return loss.item(), slope.numpy(), metrics, new.detach().numpy(), old.numpy()


def test_the_tables_name_every_recipe():
    assert set(UNDER_AFFINE_CHANGE) == set(REACH) == set(RECIPES)


@QUIET
@pytest.mark.parametrize("recipe", RECIPES)
@FAST
@given(columns=tables(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(recipe, columns, seed):
    random = np.random.default_rng(seed)
    n, m = len(columns["returns"]), len(columns["turn_rollout"])
    rollouts = random.permutation(n)
    place = np.argsort(rollouts)
    # Interleave the turns anew; each rollout's own turns keep their order.
    shuffled = random.permutation(columns["turn_rollout"])
    turns = np.empty(m, np.int64)
    for rollout in range(n):
        turns[shuffled == rollout] = np.flatnonzero(columns["turn_rollout"] == rollout)
    changed = {
        name: values[turns] if name in ("turn_reward", "token_mask", "value") else values[rollouts]
        for name, values in columns.items()
        if name != "turn_rollout"
    } | {"turn_rollout": place[columns["turn_rollout"][turns]]}
    scheme = exact(recipe)
    credit, other = advantages(scheme, build(columns)), advantages(scheme, build(changed))
    np.testing.assert_allclose(other, credit[turns], rtol=1e-9, atol=1e-9)
    loss, slope, _, new, old = loss_and_gradient(scheme, columns, credit)
    leaf = torch.tensor(new[turns], requires_grad=True)
    again, _ = policy_loss(scheme, leaf, torch.tensor(old[turns]), credit[turns], build(changed))
    (slope_again,) = torch.autograd.grad(again, leaf)
    assert again.item() == pytest.approx(loss, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(slope_again, slope[turns], rtol=1e-12, atol=1e-12)


LEVEL_OF = {"batch": lambda c: np.zeros(len(c["returns"]), int), "environment": lambda c: c["environment"],
            "prompt": lambda c: c["prompt"] + 2}  # fmt: skip


def change_rewards(columns, level, factor, offset):
    """Change rewards by a factor and an offset of each unit of a level; the last turn gets the offset."""
    unit = LEVEL_OF[level](columns)
    a, b = factor[unit], offset[unit]
    owner = columns["turn_rollout"]
    reward = columns["turn_reward"] * a[owner]
    for rollout in range(len(unit)):
        turns = np.flatnonzero(owner == rollout)
        if len(turns):
            reward[turns[-1]] += b[rollout]
    return {**columns, "returns": columns["returns"] * a + b, "turn_reward": reward}, a[owner]


@QUIET
@pytest.mark.parametrize("recipe", RECIPES)
@FAST
@given(columns=tables(), seed=st.integers(0, 2**32 - 1))
def test_affine_changes_do_what_the_table_says(recipe, columns, seed):
    random = np.random.default_rng(seed)
    scheme = exact(recipe)
    before = advantages(scheme, build(columns))
    effects = UNDER_AFFINE_CHANGE[recipe].split()
    for level, (on_factor, on_offset) in zip(LEVEL_OF, zip(effects[::2], effects[1::2], strict=True), strict=True):
        for effect, factor, offset in (
            (on_factor, np.exp(random.normal(size=8)), np.zeros(8)),
            (on_offset, np.ones(8), random.normal(size=8) * 100),
        ):
            changed, a = change_rewards(columns, level, factor, offset)
            after = advantages(scheme, build(changed))
            if effect != "other":
                expected = before * (a if effect == "scaled" else 1.0)
                np.testing.assert_allclose(after, expected, rtol=1e-8, atol=1e-8)


def fixed_columns():
    """Two environments with two groups each, of unequal spread, length and mean."""
    returns = np.array([0, 1, 5, 9, 2, 2.5, 7, 3.0])
    owner = np.repeat(np.arange(8), [1, 2, 3, 1, 2, 1, 1, 2])
    random = np.random.default_rng(0)
    return {
        "returns": returns, "prompt": np.repeat([-2, -1, 0, 1], 2), "environment": np.repeat([0, 1], 4),
        "turn_rollout": owner, "turn_reward": random.normal(size=len(owner)), "valid": np.ones(8, np.bool_),
        "value": random.normal(size=len(owner)),
    }  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_affine_changes_of_kind_other_do_change_the_advantages(recipe):
    columns, scheme = fixed_columns(), exact(recipe)
    before = advantages(scheme, build(columns))
    effects = UNDER_AFFINE_CHANGE[recipe].split()
    factor, offset = np.array([2.0, 3.0, 5.0, 7.0]), np.array([20.0, 30.0, 50.0, 70.0])
    for level, (on_factor, on_offset) in zip(LEVEL_OF, zip(effects[::2], effects[1::2], strict=True), strict=True):
        for effect, change in ((on_factor, (factor, offset * 0)), (on_offset, (factor * 0 + 1, offset))):
            changed, a = change_rewards(columns, level, *change)
            after = advantages(scheme, build(changed))
            close = {
                "same": np.allclose(after, before, rtol=1e-9),
                "scaled": np.allclose(after, a * before, rtol=1e-9),
            }
            assert close.get(effect, not any(close.values())), (level, effect)


@QUIET
@pytest.mark.parametrize("recipe", [r for r in RECIPES if "same" in UNDER_AFFINE_CHANGE[r].split()[1]])
@FAST
@given(columns=tables())
def test_offsets_of_a_million_cost_no_precision(recipe, columns):
    scheme = exact(recipe)
    raised = {**columns, "returns": columns["returns"] + 1e6}
    # What the sum rounds away is not the recipe's fault.
    columns = {**columns, "returns": raised["returns"] - 1e6}
    np.testing.assert_allclose(
        advantages(scheme, build(raised)), advantages(scheme, build(columns)), rtol=1e-6, atol=1e-6
    )


@QUIET
@pytest.mark.parametrize("recipe", RECIPES)
@FAST
@given(columns=tables(), extra=st.integers(1, 5))
def test_padding_changes_nothing(recipe, columns, extra):
    credit = advantages(recipe, build(columns))
    m = len(columns["turn_rollout"])
    padded = {**columns, "token_mask": np.pad(columns["token_mask"], ((0, 0), (0, extra)))}
    assert advantages(recipe, build(padded)).tolist() == credit.tolist()
    loss, slope, metrics, new, old = loss_and_gradient(recipe, columns, credit)
    garbage = np.random.default_rng(extra).choice([np.nan, np.inf, 200.0, -200.0], (m, extra))
    leaf = torch.tensor(np.concatenate([new, garbage], axis=1), requires_grad=True)
    stale = torch.tensor(np.concatenate([old, garbage[:, ::-1]], axis=1))
    again, metrics_again = policy_loss(recipe, leaf, stale, credit, build(padded))
    (slope_again,) = torch.autograd.grad(again, leaf)
    assert again.item() == loss
    assert metrics_again == metrics
    assert (slope_again.numpy()[:, :4] == slope).all()
    assert (slope_again.numpy()[:, 4:] == 0).all()


@QUIET
@pytest.mark.parametrize("recipe", RECIPES)
@FAST
@given(columns=tables(), seed=st.integers(0, 2**32 - 1))
def test_groups_do_not_mix_beyond_the_recipes_reach(recipe, columns, seed):
    random = np.random.default_rng(seed)
    reach = REACH[recipe]
    n = len(columns["returns"])
    unit = {
        "rollout": np.arange(n), "prompt": columns["prompt"], "environment": columns["environment"],
        "batch": np.zeros(n, int),
    }[reach]  # fmt: skip
    chosen = unit[random.integers(n)]
    others = unit != chosen
    changed = {**columns, "returns": np.where(others, random.normal(size=n) * 1e3, columns["returns"])}
    changed["valid"] = np.where(others, random.random(n) < 0.5, columns["valid"])
    mine = ~others[columns["turn_rollout"]]
    assert (advantages(recipe, build(changed))[mine] == advantages(recipe, build(columns))[mine]).all()


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_reach_as_far_as_the_table_says(recipe):
    columns = fixed_columns()
    before = advantages(recipe, build(columns))
    owner = columns["turn_rollout"]
    # Change the last rollout, of another environment, of another prompt, or of the same prompt.
    same = {
        "batch": owner < 4,
        "environment": (owner >= 4) & (owner < 6),
        "prompt": owner == 6,
        "rollout": owner == 7,
    }
    changed, _ = change_rewards(columns, "batch", np.ones(8), np.zeros(8))
    changed["returns"] = columns["returns"] + np.array([0] * 7 + [0.7])
    changed["turn_reward"] = columns["turn_reward"] + (owner == 7) * 0.7
    moved = before != advantages(recipe, build(changed))
    reached = [level for level, turns in same.items() if moved[turns].any()]
    assert reached[0] == REACH[recipe]


@QUIET
@pytest.mark.parametrize("recipe", DEAD_IS_ZERO)
@FAST
@given(columns=tables())
def test_dead_groups_are_exactly_zero(recipe, columns):
    batch = build(columns)
    for scheme in (make_scheme(recipe), exact(recipe)):
        credit = advantages(scheme, batch)
        assert (credit[batch.dead[batch.turn_rollout]] == 0).all()
    counted = batch.counted[batch.turn_rollout]
    live = counted & ~batch.dead[batch.turn_rollout]
    spread = batch.level("prompt")
    assert all(
        np.unique(batch.returns[(spread.ids == g) & batch.counted]).size > 1
        for g in set(spread.ids[batch.turn_rollout[live]].tolist())
    )


@QUIET
@pytest.mark.parametrize("recipe", RECIPES)
@FAST
@given(columns=tables(), seed=st.integers(0, 2**32 - 1))
def test_rollouts_that_do_not_count_leave_no_trace(recipe, columns, seed):
    random = np.random.default_rng(seed)
    batch = build(columns)
    kept = np.flatnonzero(batch.counted)
    assume(len(kept))
    turns = np.flatnonzero(batch.counted[batch.turn_rollout])
    place = np.cumsum(batch.counted) - 1
    clean = {
        name: values[turns] if len(values) == batch.n_turns and name in PER_TURN else values[kept]
        for name, values in columns.items()
    } | {"turn_rollout": place[columns["turn_rollout"][turns]]}
    # Whatever the others hold.
    dirty = dict(columns)
    gone = ~batch.counted
    dirty["valid"] = columns["valid"] & ~(gone & (random.random(len(gone)) < 0.5))
    dirty["returns"] = np.where(
        gone & ~dirty["valid"], random.choice([np.nan, np.inf, 1e9], len(gone)), columns["returns"]
    )
    of_gone = gone[columns["turn_rollout"]]
    for name in ("turn_reward", "value"):
        dirty[name] = np.where(of_gone, random.choice([np.nan, 1e9], batch.n_turns), columns[name])
    expected, credit = advantages(recipe, build(clean)), advantages(recipe, build(dirty))
    assert credit[turns].tolist() == expected.tolist()
    assert (credit[of_gone] == 0).all()
    loss, slope, metrics, new, old = loss_and_gradient(recipe, dirty, credit)
    leaf = torch.tensor(new[turns], requires_grad=True)
    again, metrics_again = policy_loss(recipe, leaf, torch.tensor(old[turns]), expected, build(clean))
    (slope_again,) = torch.autograd.grad(again, leaf)
    assert again.item() == loss
    assert metrics_again == metrics
    assert (slope_again.numpy() == slope[turns]).all()
    assert (slope[of_gone] == 0).all()


PER_TURN = ("turn_rollout", "turn_reward", "token_mask", "value")


@QUIET
@pytest.mark.parametrize("recipe", RECIPES)
@FAST
@given(columns=tables(), power=st.integers(-12, 12), offset=st.sampled_from([0.0, 1e6, -1e6]))
def test_everything_is_finite(recipe, columns, power, offset):
    changed = {**columns, "returns": columns["returns"] * 10.0**power + offset}
    for scheme in (make_scheme(recipe), exact(recipe)):
        credit = advantages(scheme, build(changed))
        assert credit.dtype == np.float64
        assert credit.shape == columns["turn_rollout"].shape
        assert np.isfinite(credit).all()
        loss, slope, metrics, *_ = loss_and_gradient(scheme, changed, credit)
        assert np.isfinite([loss, *metrics.values()]).all()
        assert np.isfinite(slope).all()


@pytest.mark.parametrize("recipe", SHIFTED)
@FAST
@given(columns=tables(whole=True))
def test_whitened_advantages_have_mean_0_and_spread_1(recipe, columns):
    scheme = exact(recipe)
    batch = build(columns)
    credit = advantages(scheme, batch)
    level = batch.level(scheme.whitening)
    weights = batch.tokens_per_turn if scheme.whitening_weight == "token" else batch.written
    for unit in range(level.size):
        rows = level.ids[batch.turn_rollout] == unit
        a, w = credit[rows], weights[rows].astype(float)
        if (a != 0).any():
            assert np.average(a, weights=w) == pytest.approx(0.0, abs=1e-9)
            assert (w * a**2).sum() / (w.sum() - 1) == pytest.approx(1.0, rel=1e-9)


@FAST
@given(columns=tables(whole=True))
def test_rloo_is_g_over_g_minus_1_times_dr_grpo(columns):
    batch = build(columns)
    groups = batch.level("prompt")
    size = groups.sum(np.ones(len(batch)))[groups.ids][batch.turn_rollout]
    factor = np.where(size > 1, size / np.maximum(size - 1, 1), 0.0)
    np.testing.assert_allclose(advantages("rloo", batch), factor * advantages("dr_grpo", batch), rtol=1e-12)


@FAST
@given(columns=tables(whole=True))
def test_with_one_environment_erpo_is_lite_ppo_and_with_one_prompt_each_is_grpo(columns):
    one = build({**columns, "environment": np.zeros(len(columns["returns"]), int)})
    assert advantages("erpo", one).tolist() == advantages("lite_ppo", one).tolist()
    each = build({**columns, "environment": columns["prompt"]})
    np.testing.assert_allclose(advantages("erpo", each), advantages("grpo", each), rtol=1e-12)
