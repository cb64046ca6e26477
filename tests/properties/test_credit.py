"""Properties that every recipe's credit must have, on random ragged batches."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from algos import RECIPES, RolloutBatch, advantages, make_scheme, policy_loss
from algos.memory import Memory

# Most tests give a scheme only what they are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(environment|task). not given, so all rollouts:UserWarning"),
    pytest.mark.filterwarnings("ignore:memory. .* remembers earlier updates:UserWarning"),
]

# Recipe -> the widest level that an advantage depends on, and what a change reward -> a * reward + b (a > 0) does to
# the advantages, where a and b are common to the whole batch, to each environment, or to each prompt: "same",
# "scaled" by a, or "other". Columns: batch a, batch b, environment a, environment b, prompt a, prompt b. Rewards are
# returns, turn rewards, components, the greedy return, and those of earlier updates; gains, process scores and the
# critic's values are not.
CREDIT = {
    "reinforce": "rollout: scaled other scaled other scaled other",
    "grpo": "prompt: same same same same same same",
    "grpo_population": "prompt: same same same same same same",
    "grpo_loo": "prompt: other same other same other same",
    "dr_grpo": "prompt: scaled same scaled same scaled same",
    "rloo": "prompt: scaled same scaled same scaled same",
    "reinforce_pp": "batch: same same other other other other",
    "reinforce_pp_baseline": "batch: same same other same other same",
    "remax": "rollout: scaled same scaled same scaled same",
    "opo": "prompt: scaled same scaled same scaled same",
    "gpg": "batch: scaled other scaled other scaled other",
    "lite_ppo": "batch: same same other other other other",
    "passk": "prompt: same same same same same same",
    "mapo": "prompt: other other other other other other",
    "krpo": "prompt: scaled other scaled other scaled other",
    "ngrpo": "prompt: other other other other other other",
    "mc_grpo": "prompt: same same same same same same",
    "gapo_robust": "prompt: same same same same same same",
    "maxrl": "prompt: same other same other same other",
    "a2po": "prompt: other same other same other same",
    "dcpo_smooth": "prompt: same same same same same same",
    "otb": "prompt: scaled other scaled other scaled other",
    "ppo": "batch: other other other other other other",
    "agentrl": "environment: same same same same same same",
    "erpo": "environment: same same same same other other",
    "disco": "batch: other other other other other other",
    "spo": "batch: other other other other other other",
    "spo_pp": "batch: other other other other other other",
    "rae": "rollout: scaled other scaled other other other",
    "signal_reshaping": "prompt: same same same same same same",
    "vgpo": "prompt: other other other other other other",
    "igpo": "prompt: other other other other other other",
    "a2tgpo": "prompt: same same same same same same",
    "mt_grpo": "prompt: other same other same other same",
    "mica": "prompt: other same other same other same",
    "gae_turn": "batch: other other other other other other",
    "empg": "batch: same same same same same same",
    "gigpo": "prompt: scaled other scaled other scaled other",
    "hgpo": "prompt: same other same other same other",
    "g2po": "prompt: scaled other scaled other scaled other",
    "graphgpo": "prompt: same same same same same same",
    "gdpo": "batch: same same same same same same",
    "weighted_sum": "prompt: same same same same same same",
    "maestro": "environment: same same same same other other",
}
REACH = {recipe: row.split(": ")[0] for recipe, row in CREDIT.items()}
UNDER_AFFINE_CHANGE = {recipe: row.split(": ")[1].split() for recipe, row in CREDIT.items()}

DECLARED = {
    ("same", "same"): "invariant",
    ("scaled", "same"): "shift_invariant",
    ("scaled", "other"): "scale_only",
}
"""What ``Recipe.under_affine`` calls a change common to the whole batch; all else is ``neither``."""

# Recipes whose losses are checked along with the credit: one of each kind of advantage.
WITH_LOSS = ("reinforce", "grpo", "dr_grpo", "reinforce_pp", "agentrl", "ppo", "otb", "gigpo", "gdpo")

FAST = settings(max_examples=7, deadline=None, suppress_health_check=list(HealthCheck))
QUIET = pytest.mark.filterwarnings("ignore:returns. no rollout")
EVERY = pytest.mark.parametrize("recipe", CREDIT)

PER_TOKEN = ("token_mask", "entropy", "log_prob", "probability_square", "token_value")
PER_TURN = (
    *PER_TOKEN, "turn_rollout", "turn_reward", "value", "information_gain", "process_reward", "state_key",
)  # fmt: skip


def plain(recipe):
    """Without draws: MAESTRO's depend on the order of the rollouts."""
    return make_scheme(recipe, **({"emphasis": 0.0} if recipe == "maestro" else {}))


def exact(recipe):
    """Also without eps, so that invariances hold to rounding."""
    scheme = plain(recipe)
    return scheme if "eps" in scheme.ignored() else dataclasses.replace(scheme, eps=0.0)


@st.composite
def tables(draw, recipe, whole=False):
    """Columns of a batch: 3 environments, groups of 1 to 6, rollouts of 0 to 4 turns of 0 to 4 tokens."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    n = sum(sizes)
    group = np.repeat(np.arange(len(sizes)), sizes)
    random.shuffle(group)
    environment = random.integers(0, 3, len(sizes))[group]
    # Binary fractions, so that sums with offsets are exact.
    returns = random.integers(-8, 9, n) * 2.0 ** random.integers(-6, 5)
    components = random.integers(-8, 9, (n, 3)) / 4.0
    if not whole:
        returns[random.random(n) < 0.1] = np.nan
        components[random.random((n, 3)) < 0.1] = np.nan
    # Some groups have no spread but that of rounding.
    dead = (random.random(len(sizes)) < 0.3)[group]
    alike = environment + random.choice([0.3, 0.1 + 0.2], n)
    returns = np.where(dead & ~np.isnan(returns), alike, returns)
    components = np.where(dead[:, None], 0.25, components)
    owner = np.repeat(np.arange(n), random.integers(1 if whole else 0, 5, n))
    random.shuffle(owner)
    m = len(owner)
    reward = random.normal(size=m)
    return {
        "returns": returns, "prompt": group - 2, "environment": environment, "task": group % 2,
        "valid": np.ones(n, np.bool_) if whole else random.random(n) < 0.85, "turn_rollout": owner,
        "turn_reward": np.abs(reward) if recipe == "vgpo" else reward, "token_mask": random.random((m, 4)) < 0.7,
        "components": components, "information_gain": random.normal(size=m), "process_reward": random.random(m),
        "state_key": random.integers(-2, 2, m), "success": random.random(n) < 0.5, "truncated": random.random(n) < 0.2,
        "greedy_return": random.integers(-8, 9, len(sizes))[group] / 2.0,
        "drift": np.where(random.random(n) < 0.2, np.nan, random.random(n) / 20), "context": random.normal(size=(n, 2)),
        "entropy": random.random((m, 4)), "log_prob": -random.random((m, 4)),
        "probability_square": random.random((m, 4)), "value": random.normal(size=m),
        "token_value": random.normal(size=(m, 4)), "final_value": random.normal(size=n),
    }  # fmt: skip


def build(columns):
    return RolloutBatch.from_arrays(**columns)


def after_history(scheme, columns, earlier=None):
    """Credit of a batch when the same, or an earlier one, has been seen before."""
    memory = Memory()
    if any(part.after_update for part in scheme.parts):
        past = build(columns if earlier is None else earlier)
        advantages(scheme, past, memory)
        for part in scheme.parts:
            if part.after_update is not None:
                part.after_update(scheme, past, memory, **scheme.options_of(part))
    return advantages(scheme, build(columns), memory)


def loss_and_gradient(scheme, columns, credit, seed=0):
    batch = build(columns)
    random = np.random.default_rng(seed)
    shape = batch.token_mask.shape
    new = torch.tensor(random.normal(size=shape) - 2, requires_grad=True)
    old = new.detach() + torch.tensor(random.normal(size=shape) * 0.3)
    loss, metrics = policy_loss(scheme, new, old, credit, batch)
    (slope,) = torch.autograd.grad(loss, new)
    return loss.item(), slope.numpy(), metrics, new.detach().numpy(), old.numpy()


# The tables and what recipes declare.

CREDIT_FIELDS = (
    "signal", "baseline", "baseline_kind", "scale", "scale_kind", "accumulation", "whitening", "whitening_weight",
    "weights",
)  # fmt: skip


def credit_of(recipe):
    return tuple(getattr(RECIPES[recipe].scheme, name) for name in CREDIT_FIELDS)


def row_of(recipe):
    """The recipe itself, or one of the table with the same credit."""
    twins = [name for name in CREDIT if credit_of(name) == credit_of(recipe)]
    return recipe if recipe in twins else twins[0]


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_declare_what_the_tables_say(recipe):
    row = row_of(recipe)
    on_factor, on_offset = UNDER_AFFINE_CHANGE[row][:2]
    assert RECIPES[recipe].under_affine == DECLARED.get((on_factor, on_offset), "neither")
    assert RECIPES[recipe].dead_groups == RECIPES[row].dead_groups


# Order, levels, groups.


def reordered(columns, rollouts, random):
    """Rows in another order; each rollout's own turns keep theirs."""
    place = np.argsort(rollouts)
    shuffled = random.permutation(columns["turn_rollout"])
    turns = np.empty(len(shuffled), np.int64)
    for rollout in range(len(rollouts)):
        turns[shuffled == rollout] = np.flatnonzero(columns["turn_rollout"] == rollout)
    changed = {name: values[turns if name in PER_TURN else rollouts] for name, values in columns.items()}
    return {**changed, "turn_rollout": place[changed["turn_rollout"]]}, turns


@QUIET
@EVERY
@FAST
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(recipe, data, seed):
    columns, random = data.draw(tables(recipe)), np.random.default_rng(seed)
    rollouts = random.permutation(len(columns["returns"]))
    if recipe == "krpo":
        # Its filter reads each group's rollouts in their order; groups may change places.
        for prompt in np.unique(columns["prompt"]):
            places = np.flatnonzero(columns["prompt"][rollouts] == prompt)
            rollouts[places] = np.sort(rollouts[places])
    changed, turns = reordered(columns, rollouts, random)
    scheme = exact(recipe)
    credit, other = after_history(scheme, columns), after_history(scheme, changed)
    np.testing.assert_allclose(other, credit[turns], rtol=1e-9, atol=1e-9)
    if recipe in WITH_LOSS:
        loss, slope, _, new, old = loss_and_gradient(scheme, columns, credit)
        leaf = torch.tensor(new[turns], requires_grad=True)
        again, _ = policy_loss(scheme, leaf, torch.tensor(old[turns]), credit[turns], build(changed))
        (slope_again,) = torch.autograd.grad(again, leaf)
        assert again.item() == pytest.approx(loss, rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(slope_again, slope[turns], rtol=1e-12, atol=1e-12)


@QUIET
@EVERY
@FAST
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_groups_do_not_mix_beyond_the_recipes_reach(recipe, data, seed):
    columns, random = data.draw(tables(recipe)), np.random.default_rng(seed)
    n, owner = len(columns["returns"]), columns["turn_rollout"]
    unit = {
        "rollout": np.arange(n), "prompt": columns["prompt"], "environment": columns["environment"],
        "batch": np.zeros(n, int),
    }[REACH[recipe]]  # fmt: skip
    others = unit != unit[random.integers(n)]
    changed = dict(columns)
    for name in ("returns", "components", "turn_reward", "information_gain", "process_reward"):
        values, rows = columns[name], others[owner] if name in PER_TURN else others
        there = np.abs(random.normal(size=values.shape)) * 1e3
        changed[name] = np.where(rows.reshape(-1, *[1] * (values.ndim - 1)), there, values)
    changed["valid"] = np.where(others, random.random(n) < 0.5, columns["valid"])
    changed["success"] = np.where(others, random.random(n) < 0.5, columns["success"])
    before, after = advantages(plain(recipe), build(columns)), advantages(plain(recipe), build(changed))
    assert (after[~others[owner]] == before[~others[owner]]).all()


def fixed_columns():
    """Two environments with a group of three and one of two each, of unequal spread, length and mean."""
    random = np.random.default_rng(0)
    returns = np.array([0, 1, 4, 5, 9, 2, 2.5, 6, 3, 7.0])
    owner = np.repeat(np.arange(10), [1, 2, 1, 3, 1, 2, 1, 3, 1, 2])
    m = len(owner)
    return {
        "returns": returns, "prompt": np.repeat([-2, -1, 0, 1], [3, 2, 3, 2]), "environment": np.repeat([0, 1], 5),
        "turn_rollout": owner, "turn_reward": random.random(m), "valid": np.ones(10, np.bool_),
        "value": random.normal(size=m), "components": random.normal(size=(10, 3)), "context": np.zeros((10, 1)),
        "information_gain": random.normal(size=m), "process_reward": random.random(m), "state_key": np.zeros(m, int),
        "success": np.arange(10) % 2 == 0, "truncated": np.zeros(10, np.bool_), "greedy_return": np.arange(10.0),
        "drift": np.zeros(10), "entropy": random.random((m, 1)), "log_prob": -random.random((m, 1)),
        "probability_square": random.random((m, 1)), "token_value": random.normal(size=(m, 1)),
    }  # fmt: skip


@EVERY
def test_recipes_reach_as_far_as_the_table_says(recipe):
    columns, scheme = fixed_columns(), plain(recipe)
    owner, before = columns["turn_rollout"], advantages(scheme, build(columns))
    # Another reward of the last group's first rollout; the last group left out altogether.
    only = np.arange(10) == 8
    rewarded = change_rewards(columns, only, np.where(only, 1.0, 1.0), np.where(only, 0.7, 0.0))
    excluded = {**columns, "valid": np.arange(10) < 8}
    levels = {"batch": owner < 5, "environment": (owner >= 5) & (owner < 8), "prompt": owner == 9}
    reached = ["rollout"]
    for changed, ours in ((rewarded, [8]), (excluded, [8, 9])):
        moved = (before != advantages(scheme, build(changed))).reshape(len(owner), -1).any(axis=1)
        reached += [level for level, turns in levels.items() if moved[turns & ~np.isin(owner, ours)].any()]
    assert min(reached, key=["batch", "environment", "prompt", "rollout"].index) == REACH[recipe]


# Affine changes.


def change_rewards(columns, unit, factor, offset):
    """Change rewards by a factor and an offset of each rollout; the last turn gets the offset."""
    owner, a, b = columns["turn_rollout"], factor, offset
    reward = columns["turn_reward"] * a[owner]
    last = np.full(len(a), -1)
    last[owner] = np.arange(len(owner))
    reward[last[last >= 0]] += b[last >= 0]
    return {
        **columns,
        "returns": columns["returns"] * a + b,
        "turn_reward": reward,
        "components": columns["components"] * a[:, None] + b[:, None],
        "greedy_return": columns["greedy_return"] * a + b,
    }


LEVEL_OF = {
    "batch": lambda c: np.zeros(len(c["returns"]), int),
    "environment": lambda c: c["environment"],
    "prompt": lambda c: c["prompt"] + 2,
}


def affine_cases(recipe, columns, factor, offset):
    """Yield each level's effect, its name, the changed columns, and the factor of every turn."""
    effects = UNDER_AFFINE_CHANGE[recipe]
    for i, (level, unit_of) in enumerate(LEVEL_OF.items()):
        unit = unit_of(columns)
        ones, zeros = np.ones(len(unit)), np.zeros(len(unit))
        yield effects[2 * i], f"{level} a", change_rewards(columns, unit, factor[unit], zeros), factor[unit]
        yield effects[2 * i + 1], f"{level} b", change_rewards(columns, unit, ones, offset[unit]), ones


@QUIET
@EVERY
@FAST
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_affine_changes_do_what_the_table_says(recipe, data, seed):
    columns, random = data.draw(tables(recipe)), np.random.default_rng(seed)
    # A missing component counts 0 in a sum, also after a change of the others.
    columns["components"] = np.nan_to_num(columns["components"])
    scheme = exact(recipe)
    before = after_history(scheme, columns)
    factor, offset = np.exp(random.normal(size=8)), np.abs(random.normal(size=8)) * 100
    for effect, case, changed, a in affine_cases(recipe, columns, factor, offset):
        if effect != "other":
            a = a[columns["turn_rollout"]].reshape(-1, *[1] * (before.ndim - 1))
            expected = before * (a if effect == "scaled" else 1.0)
            after = after_history(scheme, changed)
            np.testing.assert_allclose(after, expected, rtol=1e-8, atol=1e-8, err_msg=case)


@EVERY
def test_affine_changes_of_kind_other_do_change_the_advantages(recipe):
    columns, scheme = fixed_columns(), exact(recipe)
    before = after_history(scheme, columns)
    factor, offset = np.array([2.0, 3.0, 5.0, 7.0]), np.array([20.0, 30.0, 50.0, 70.0])
    for effect, case, changed, a in affine_cases(recipe, columns, factor, offset):
        after = after_history(scheme, changed)
        a = a[columns["turn_rollout"]].reshape(-1, *[1] * (before.ndim - 1))
        close = {"same": np.allclose(after, before, rtol=1e-9), "scaled": np.allclose(after, a * before, rtol=1e-9)}
        assert close.get(effect, not any(close.values())), (case, effect)


@QUIET
@pytest.mark.parametrize("recipe", [r for r in CREDIT if UNDER_AFFINE_CHANGE[r][1] == "same"])
@FAST
@given(data=st.data())
def test_offsets_of_a_million_cost_no_precision(recipe, data):
    columns = data.draw(tables(recipe))
    # Of exact numbers, because what the sum rounds away is not the recipe's fault.
    columns["returns"] = np.round(columns["returns"] * 64) / 64
    columns["components"] = np.nan_to_num(columns["components"])
    million = np.full(len(columns["returns"]), 1e6)
    raised = change_rewards(columns, None, million * 0 + 1, million)
    scheme = exact(recipe)
    np.testing.assert_allclose(after_history(scheme, raised), after_history(scheme, columns), rtol=1e-6, atol=1e-6)


# Groups without spread.


@QUIET
@pytest.mark.parametrize("recipe", [r for r in CREDIT if RECIPES[r].dead_groups == "zero"])
@FAST
@given(data=st.data())
def test_dead_groups_are_exactly_zero_where_declared(recipe, data):
    columns = data.draw(tables(recipe))
    # Groups of equal returns may be so by chance; where components are what is credited, they are equal too.
    columns["components"] = columns["returns"][:, None] * [1.0, 0.5, -0.25]
    batch = build(columns)
    for scheme in (make_scheme(recipe), exact(recipe)):
        credit = advantages(scheme, batch)
        assert (credit[batch.dead[batch.turn_rollout]] == 0).all()


@pytest.mark.parametrize("recipe", [r for r in CREDIT if RECIPES[r].dead_groups == "signal"])
def test_dead_groups_have_a_signal_where_declared(recipe):
    earlier, columns = fixed_columns(), fixed_columns()
    columns["returns"] = np.where(columns["prompt"] == 0, 2.0, columns["returns"])
    batch = build(columns)
    assert batch.dead.tolist() == (columns["prompt"] == 0).tolist()
    credit = after_history(make_scheme(recipe), columns, earlier)
    assert (credit[batch.dead[batch.turn_rollout]] != 0).any()


# What does not count.


@QUIET
@EVERY
@FAST
@given(data=st.data(), extra=st.integers(1, 5))
def test_padding_changes_nothing(recipe, data, extra):
    columns = data.draw(tables(recipe))
    m = len(columns["turn_rollout"])
    garbage = np.random.default_rng(extra).choice([np.nan, np.inf, 200.0, -200.0], (m, extra))
    padded = {**columns, "token_mask": np.pad(columns["token_mask"], ((0, 0), (0, extra)))}
    padded |= {n: np.concatenate([columns[n], garbage], axis=1) for n in PER_TOKEN if n != "token_mask"}
    credit, again = advantages(recipe, build(columns)), advantages(recipe, build(padded))
    assert (again[:, :4] if again.ndim == 2 else again).tolist() == credit.tolist()
    if again.ndim == 2:
        assert (again[:, 4:] == 0).all()
    if recipe in WITH_LOSS:
        loss, slope, metrics, new, old = loss_and_gradient(recipe, columns, credit)
        leaf = torch.tensor(np.concatenate([new, garbage], axis=1), requires_grad=True)
        stale = torch.tensor(np.concatenate([old, garbage[:, ::-1]], axis=1))
        loss_again, metrics_again = policy_loss(recipe, leaf, stale, again, build(padded))
        (slope_again,) = torch.autograd.grad(loss_again, leaf)
        assert loss_again.item() == loss
        assert metrics_again == metrics
        assert (slope_again.numpy()[:, :4] == slope).all()
        assert (slope_again.numpy()[:, 4:] == 0).all()


def with_garbage(columns, gone, random):
    """Put anything into the rows of rollouts that do not count."""
    dirty = dict(columns)
    dirty["valid"] = columns["valid"] & ~(gone & (random.random(len(gone)) < 0.5))
    for name, values in columns.items():
        rows = gone[columns["turn_rollout"]] if name in PER_TURN else gone
        rows = rows.reshape(-1, *[1] * (values.ndim - 1))
        if name in ("returns", "turn_reward"):
            # Infinite rewards may be only where a rollout is invalid.
            bad = random.choice([np.nan, np.inf, 1e9], values.shape)
            invalid = ~dirty["valid"] if name == "returns" else ~dirty["valid"][columns["turn_rollout"]]
            dirty[name] = np.where(rows & invalid, bad, np.where(rows, np.nan, values))
        elif values.dtype == np.float64:
            dirty[name] = np.where(rows, random.choice([np.nan, np.inf, -np.inf, 1e9], values.shape), values)
        elif name in ("success", "truncated"):
            dirty[name] = values ^ rows
        elif name == "state_key":
            dirty[name] = np.where(rows, random.integers(-9, 9, values.shape), values)
    return dirty


@QUIET
@EVERY
@FAST
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_rollouts_that_do_not_count_leave_no_trace(recipe, data, seed):
    columns, random = data.draw(tables(recipe)), np.random.default_rng(seed)
    batch = build(columns)
    kept, turns = np.flatnonzero(batch.counted), np.flatnonzero(batch.counted[batch.turn_rollout])
    assume(len(kept))
    place = np.cumsum(batch.counted) - 1
    clean = {name: values[turns if name in PER_TURN else kept] for name, values in columns.items()}
    clean["turn_rollout"] = place[clean["turn_rollout"]]
    dirty = with_garbage(columns, ~batch.counted, random)
    of_gone = ~batch.counted[batch.turn_rollout]
    scheme = make_scheme(recipe)
    expected, credit = after_history(scheme, clean), after_history(scheme, dirty)
    assert credit[turns].tolist() == expected.tolist()
    assert (credit[of_gone] == 0).all()
    if recipe in WITH_LOSS:
        loss, slope, metrics, new, old = loss_and_gradient(recipe, dirty, credit)
        leaf = torch.tensor(new[turns], requires_grad=True)
        again, metrics_again = policy_loss(recipe, leaf, torch.tensor(old[turns]), expected, build(clean))
        (slope_again,) = torch.autograd.grad(again, leaf)
        assert again.item() == loss
        assert metrics_again == metrics
        assert (slope_again.numpy() == slope[turns]).all()
        assert (slope[of_gone] == 0).all()


@QUIET
@EVERY
@FAST
@given(data=st.data(), power=st.integers(-12, 12), offset=st.sampled_from([0.0, 1e6, -1e6]))
def test_everything_is_finite(recipe, data, power, offset):
    columns = data.draw(tables(recipe))
    for name in ("returns", "components", "turn_reward", "greedy_return"):
        columns[name] = columns[name] * 10.0**power + (offset if name != "turn_reward" else 0.0)
    for scheme in (make_scheme(recipe), exact(recipe)):
        credit = after_history(scheme, columns)
        assert credit.dtype == np.float64
        assert credit.shape in (columns["turn_rollout"].shape, columns["token_mask"].shape)
        assert np.isfinite(credit).all()
        if recipe in WITH_LOSS:
            loss, slope, metrics, *_ = loss_and_gradient(scheme, columns, credit)
            assert np.isfinite([loss, *metrics.values()]).all()
            assert np.isfinite(slope).all()


@QUIET
@EVERY
@FAST
@given(data=st.data())
def test_a_fresh_memory_is_no_memory_and_reading_does_not_write(recipe, data):
    batch, memory, scheme = build(data.draw(tables(recipe))), Memory(), plain(recipe)
    expected = advantages(scheme, batch).tolist()
    assert advantages(scheme, batch, memory).tolist() == expected
    assert advantages(scheme, batch, memory).tolist() == expected
    assert advantages(recipe, batch, Memory()).tolist() == advantages(recipe, batch).tolist()


# Identities.


@pytest.mark.parametrize("recipe", [r for r in CREDIT if RECIPES[r].scheme.whitening != "none"])
@FAST
@given(data=st.data())
def test_whitened_advantages_have_mean_0_and_spread_1(recipe, data):
    scheme, batch = exact(recipe), build(data.draw(tables(recipe, whole=True)))
    credit, owner = advantages(scheme, batch), batch.turn_rollout
    if credit.ndim == 2:
        assert scheme.whitening_weight == "token"
        weights = batch.token_mask.astype(float)
    else:
        weights = (
            batch.written
            * {
                "rollout": 1.0 / np.maximum(batch.written_turns[owner], 1),
                "turn": np.ones(len(owner)),
                "token": batch.tokens_per_turn,
            }[scheme.whitening_weight]
        )
    level = batch.level(scheme.whitening)
    for unit in range(level.size):
        chosen = level.ids[owner] == unit
        a, w = credit[chosen].ravel(), weights[chosen].ravel()
        if (a != 0).any():
            assert np.average(a, weights=w) == pytest.approx(0.0, abs=1e-9)
            assert (w * a**2).sum() / (w.sum() - 1) == pytest.approx(1.0, rel=1e-9)


@FAST
@given(columns=tables("grpo", whole=True))
def test_rloo_is_g_over_g_minus_1_times_dr_grpo(columns):
    batch = build(columns)
    groups = batch.level("prompt")
    size = groups.sum(np.ones(len(batch)))[groups.ids][batch.turn_rollout]
    factor = np.where(size > 1, size / np.maximum(size - 1, 1), 0.0)
    np.testing.assert_allclose(advantages("rloo", batch), factor * advantages("dr_grpo", batch), rtol=1e-12)


@FAST
@given(columns=tables("grpo", whole=True))
def test_with_one_environment_erpo_is_lite_ppo_and_with_one_prompt_each_is_grpo(columns):
    one = build({**columns, "environment": np.zeros(len(columns["returns"]), int)})
    assert advantages("erpo", one).tolist() == advantages("lite_ppo", one).tolist()
    each = build({**columns, "environment": columns["prompt"]})
    np.testing.assert_allclose(advantages("erpo", each), advantages("grpo", each), rtol=1e-12)
