"""Advantages of the recipes: published vectors, known pitfalls, and loops."""

import math
import statistics
import time
import warnings

import numpy as np
import pytest

from algos import RECIPES, Memory, RolloutBatch, Scheme, advantages, make_scheme, update_memory

# Most tests give a scheme only what they are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(environment|task). not given, so all rollouts:UserWarning"),
    pytest.mark.filterwarnings("ignore:memory. .* remembers earlier updates:UserWarning"),
]

ROOT = math.sqrt(0.5)


def rollouts(returns, prompt=None, **columns):
    """A batch of one-turn rollouts, by default of one prompt."""
    return RolloutBatch.from_arrays(returns=returns, prompt=[0] * len(returns) if prompt is None else prompt, **columns)


def with_lengths(returns, lengths, prompt=None, **columns):
    """One-turn rollouts with so many tokens each."""
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return rollouts(returns, prompt, token_mask=mask, **columns)


def close(actual, expected, tolerance=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


# Published vectors: schemes.md B7, agentic-credit.md 11 C and D.


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("grpo", [1.499997, -0.499999, -0.499999, -0.499999]),
        ("grpo:ddof=0,eps=0", [1.7320508, -0.5773503, -0.5773503, -0.5773503]),
        ("dr_grpo", [0.75, -0.25, -0.25, -0.25]),
        ("rloo", [1.0, -1 / 3, -1 / 3, -1 / 3]),
        ("reinforce", [1.0, 0.0, 0.0, 0.0]),
        ("lite_ppo:eps=0", [1.5, -0.5, -0.5, -0.5]),
        ("erpo:eps=0", [1.5, -0.5, -0.5, -0.5]),
    ],
)
def test_vectors_of_one_group(scheme, expected):
    batch = with_lengths([1, 0, 0, 0], [10, 20, 30, 40])
    close(advantages(scheme, batch), expected)
    assert advantages(scheme, batch).dtype == np.float64


def test_vector_erpo():
    batch = rollouts([1, 1, 1, 0, 0, 0, 0, 0], ["a"] * 4 + ["b"] * 4)
    close(advantages("erpo:eps=0,ddof=0", batch), [0.516398] * 3 + [-1.549193] + [0] * 4)
    close(advantages("erpo:eps=0", batch), [0.483046] * 3 + [-1.449138] + [0] * 4)
    close(advantages("grpo:eps=0", batch), [0.5] * 3 + [-1.5] + [0] * 4)
    assert advantages("erpo", batch)[4:].tolist() == [0.0] * 4


def test_vector_agentrl():
    # GRPO's advantage of two rollouts is +-sqrt(1/2); the whitening is affine, so +-1 gives the same.
    batch = with_lengths([1, 0], [2, 6])
    close(advantages("agentrl:eps=0", batch), [1.620185, -0.540062])
    close(advantages("agentrl:eps=0,ddof=0", batch), [1.732051, -0.577350])
    close(advantages("agentrl", batch), [1.620185, -0.540062], 5e-6)


def test_the_eps_of_every_recipe():
    spread = math.sqrt(0.5)  # of [1, 0]
    close(advantages("grpo", rollouts([1, 0])), np.array([0.5, -0.5]) / (spread + 1e-6), 1e-12)
    close(advantages("lite_ppo", rollouts([1, 0])), np.array([0.5, -0.5]) / (spread + 1e-6), 1e-12)
    close(advantages("erpo", rollouts([1, 0])), np.array([0.5, -0.5]) / (spread + 1e-6), 1e-12)
    inside = np.array([0.5, -0.5]) * 1e-3 / math.sqrt(0.5e-6 + 1e-8)
    close(advantages("reinforce_pp", rollouts([1e-3, 0])), inside, 1e-12)
    close(advantages("reinforce_pp_baseline", rollouts([1e-3, 0])), inside, 1e-12)


# Pitfalls, part A.


def test_p01_groups_of_any_size_by_id():
    batch = rollouts([1, 2, 3, 4, 5, 5, 5, 0, 0, 0, 1], ["a"] * 4 + ["b"] * 3 + ["c"] * 4)
    assert advantages("grpo", batch)[4:7].tolist() == [0.0, 0.0, 0.0]
    close(advantages("grpo:eps=0", rollouts([1, 3, 5], ["a", "a", "b"])), [-ROOT, ROOT, 0])
    order = [2, 0, 1]
    mixed = rollouts([[1, 3, 5][i] for i in order], [["a", "a", "b"][i] for i in order])
    assert advantages("grpo", mixed).tolist() == [
        advantages("grpo", rollouts([1, 3, 5], ["a", "a", "b"])).tolist()[i] for i in order
    ]


def test_p02_interleaved_groups():
    batch = rollouts([0, 100, 1, 101], ["a", "b", "a", "b"])
    close(advantages("grpo:eps=0", batch), [-ROOT, -ROOT, ROOT, ROOT])


def test_p03_small_spreads_and_large_offsets():
    batch = rollouts([1.0, 1.00001, 2.0, 2.00001], ["a", "a", "b", "b"])
    close(advantages("grpo:eps=1e-6", batch), [-0.6195, 0.6195, -0.6195, 0.6195], 1e-4)
    close(advantages("grpo", rollouts([1e6, 1e6 + 1])), [-ROOT, ROOT], 1e-5)


def test_conventions_place_of_eps():
    batch = rollouts([0, 0.001])
    close(advantages("grpo:eps=1e-4", batch), [-0.6195, 0.6195], 1e-4)
    close(advantages("grpo:eps=1e-4,eps_placement=inside", batch), [-0.0499, 0.0499], 1e-4)


DEAD_IS_ZERO = [
    "grpo", "grpo_population", "grpo_loo", "dr_grpo", "rloo", "lite_ppo", "erpo", "opo", "gpg", "passk", "mapo",
    "mc_grpo", "gapo_robust", "maxrl", "a2po", "disco",
]  # fmt: skip


@pytest.mark.parametrize("scheme", DEAD_IS_ZERO)
@pytest.mark.parametrize(
    "returns",
    [[0.1 + 0.2, 0.3], [7.0] * 5, np.full(1000, 0.1, np.float32), [1e6 + 0.1] * 3, [0, 0], [-0.0, 0.0]],
)
def test_p04_dead_groups_are_exactly_zero(scheme, returns):
    dead = len(returns)
    batch = rollouts([*returns, 1.0, 4.0, 8.0], [0] * dead + [1, 1, 1])
    for chosen in (scheme, {"recipe": scheme, **({} if "eps" in make_scheme(scheme).ignored() else {"eps": 0})}):
        credit = advantages(chosen, batch)
        assert credit[:dead].tolist() == [0.0] * dead
        assert (credit[dead:] != 0).any()
        assert advantages(chosen, rollouts(returns)).tolist() == [0.0] * dead


@pytest.mark.parametrize("scheme", ["grpo:eps=0", "lite_ppo:eps=0", "erpo:eps=0", "agentrl:eps=0"])
def test_p05_unscorable_rollouts_are_left_out(scheme):
    close(advantages(scheme, rollouts([None, 1, 3])), [0, -ROOT, ROOT])
    close(advantages(scheme, rollouts([9, 1, 3], valid=[False, True, True])), [0, -ROOT, ROOT])


ALONE = {"reinforce": 5.0, "remax": 3.0, "rae": 5.0, "otb": 5.0, "vgpo": 0.5}
"""Recipes that do not need company: what a lone rollout with a return of 5 gets."""


def with_every_column(returns, prompt, owner=None, length=2, seed=0, **columns):
    """A batch with whatever any scheme asks for."""
    random = np.random.default_rng(seed)
    n, m = len(returns), len(returns) if owner is None else len(owner)
    random_columns = {
        "components": random.normal(size=(n, 3)), "information_gain": random.normal(size=m),
        "process_reward": random.random(m), "state_key": random.integers(0, 2**62, 40)[random.integers(0, 40, m)],
        "success": random.random(n) < 0.4, "truncated": random.random(n) < 0.1, "greedy_return": np.full(n, 2.0),
        "drift": random.random(n) / 10, "entropy": random.random((m, length)), "log_prob": -random.random((m, length)),
        "probability_square": random.random((m, length)), "context": random.normal(size=(n, 4)),
        "value": random.normal(size=m), "final_value": np.zeros(n), "token_mask": np.ones((m, length), np.bool_),
        "turn_rollout": owner,
    }  # fmt: skip
    return rollouts(returns, prompt, **random_columns | columns)


@pytest.mark.parametrize("recipe", RECIPES)
def test_p09_a_group_of_one(recipe):
    expected = ALONE.get(recipe, 0.0)
    alone = with_every_column([5.0], [0], length=1)
    assert advantages(recipe, alone).ravel().tolist() == [pytest.approx(expected)]
    both = with_every_column([5.0, 7.0], [0, 0], length=1, valid=[1, 0])
    assert advantages(recipe, both).ravel().tolist() == [pytest.approx(expected), 0.0]


@pytest.mark.parametrize("recipe", RECIPES)
def test_batches_in_which_nothing_counts_or_nothing_was_written(recipe):
    nothing = with_every_column([1.0, 2.0], [0, 0], valid=[False, False])
    assert (advantages(recipe, nothing) == 0).all()
    silent = with_every_column([1.0, 2.0], [0, 0], token_mask=np.zeros((2, 2), np.bool_))
    assert np.isfinite(advantages(recipe, silent)).all()
    empty = with_every_column([1.0, 2.0], [0, 0], np.zeros(0, np.int64))
    assert advantages(recipe, empty).shape in ((0,), (0, 2))


def test_p09_groups_of_one_beside_others():
    batch = rollouts([5.0, 1.0, 3.0], ["a", "b", "b"])
    for scheme in ("grpo", "dr_grpo", "rloo", "lite_ppo", "erpo"):
        assert advantages(scheme, batch)[0] == 0.0


def test_a_group_of_one_can_keep_its_return():
    batch = rollouts([5.0, 1.0, 3.0], ["a", "b", "b"])
    close(advantages("grpo:singleton=raw,eps=0", batch), [5.0, -ROOT, ROOT])
    close(advantages("rloo:singleton=raw", batch), [5.0, -2.0, 2.0])
    # A wider scale still divides.
    close(advantages("lite_ppo:singleton=raw,eps=0", batch), [2.5, -0.5, 0.5])
    close(advantages("grpo:baseline=none,eps=0", batch), [0, ROOT, 3 * ROOT])
    invalid = rollouts([5.0, 1.0, 3.0], ["a", "b", "b"], valid=[0, 1, 0])
    close(advantages("grpo:singleton=raw", invalid), [0.0, 1.0, 0.0])


def test_p11_four_outcomes_of_scale():
    batch = rollouts([0, 1, 0, 10], ["a", "a", "b", "b"])
    batch_spread = statistics.stdev([0, 1, 0, 10])
    expected = {
        "none": [-0.5, 0.5, -5, 5],
        "prompt": [-ROOT, ROOT, -ROOT, ROOT],
        "batch": [-0.5 / batch_spread, 0.5 / batch_spread, -5 / batch_spread, 5 / batch_spread],
    }
    spellings = {"none": ("none", False), "prompt": ("prompt", "group", True), "batch": ("batch",)}
    for level, values in expected.items():
        for value in spellings[level]:
            close(advantages(make_scheme({"recipe": "grpo", "scale": value}), batch), values, 1e-5)
    centred = statistics.stdev([-0.5, 0.5, -5, 5])
    close(
        advantages("grpo:scale=batch,scale_kind=centred_std,eps=0", batch),
        np.array([-0.5, 0.5, -5, 5]) / centred,
    )


def test_p12_reinforce_pp_is_over_the_batch():
    batch = rollouts([0, 1, 10, 11], ["a", "a", "b", "b"])
    close(advantages("reinforce_pp:ddof=0", batch), [-1.0945, -0.8955, 0.8955, 1.0945], 1e-4)
    close(advantages("reinforce_pp_baseline:ddof=0", batch), [-1, 1, -1, 1], 1e-4)
    close(advantages("reinforce_pp", batch), np.array([-5.5, -4.5, 4.5, 5.5]) / statistics.stdev([0, 1, 10, 11]))


def test_p12_masked_positions_are_zero_after_whitening():
    batch = rollouts([1, 0, 5, 8], token_mask=[[1], [1], [0], [1]])
    for scheme in ("reinforce_pp", "reinforce_pp_baseline", "agentrl"):
        credit = advantages(scheme, batch)
        assert credit[2] == 0.0
        assert (credit[[0, 1, 3]] != 0).all()
        assert credit.sum() == pytest.approx(0.0, abs=1e-12)


def test_whitening_counts_rollouts_turns_or_tokens():
    # Rollout 0: one turn of 4 tokens; rollout 1: three turns of 1, 1 and 0 tokens.
    batch = RolloutBatch.from_arrays(
        returns=[1, 0], prompt=[0, 1], turn_rollout=[0, 1, 1, 1],
        token_mask=[[1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
    )  # fmt: skip
    for weight, counts in {"rollout": (1, 1), "turn": (1, 2), "token": (4, 2)}.items():
        rows = [1.0] * counts[0] + [0.0] * counts[1]
        mean, spread = statistics.mean(rows), statistics.stdev(rows)
        credit = advantages(f"reinforce_pp:whitening_weight={weight},eps=0", batch)
        close(credit, [(1 - mean) / spread] + [-mean / spread] * 3)


def test_p13_rloo():
    returns = [1, 1, 1, 0, 0, 0, 0, 0]
    batch = rollouts(returns)
    close(advantages("grpo:eps=0", batch), [1.2076] * 3 + [-0.7246] * 5, 1e-4)
    close(advantages("dr_grpo", batch), [0.625] * 3 + [-0.375] * 5)
    close(advantages("rloo", batch), [0.7142857] * 3 + [-0.4285714] * 5)
    random = np.random.default_rng(0)
    values, ids = random.normal(size=300) * 100, random.integers(0, 60, 300)
    brute = []
    for i, (value, key) in enumerate(zip(values, ids, strict=True)):
        others = [v for j, (v, k) in enumerate(zip(values, ids, strict=True)) if k == key and j != i]
        brute.append(value - math.fsum(others) / len(others) if others else 0.0)
    np.testing.assert_allclose(advantages("rloo", rollouts(values, ids)), brute, rtol=1e-12, atol=1e-12)


def test_p13_a_matrix_of_rewards_is_refused():
    with pytest.raises(ValueError, match=r"returns has shape \(2, 2\)"):
        rollouts([[0, 1], [1, 0]], prompt=[0, 1])


def test_p14_the_group_spans_rollouts_of_a_prompt():
    turns = {"turn_rollout": [0, 0, 0, 1, 1]}
    together = rollouts([1, 0], ["task", "task"], **turns)
    close(advantages("grpo:eps=0", together), [ROOT] * 3 + [-ROOT] * 2)
    apart = rollouts([1, 0], ["first", "second"], **turns)
    assert advantages("grpo", apart).tolist() == [0.0] * 5


def test_p51_statistics_per_task():
    batch = rollouts([0, 1, 100, 300], ["a", "a", "b", "b"], task=[1, 1, 2, 2], environment=[1, 1, 2, 2])
    for scheme in ("reinforce:whitening=task", "reinforce:whitening=environment", "agentrl:eps=0"):
        close(advantages(make_scheme(scheme), batch), [-ROOT, ROOT, -ROOT, ROOT], 1e-5)
    close(advantages("reinforce:whitening=batch,eps=0", batch), [-0.7101, -0.7030, -0.0018, 1.4148], 1e-4)
    assert advantages("agentrl", rollouts([3.0])).tolist() == [0.0]
    alone = rollouts([0, 1, 9], ["a", "a", "b"], environment=[1, 1, 2])
    close(advantages("agentrl:eps=0", alone), [-ROOT, ROOT, 0.0])


def test_tasks_are_read_within_their_environment():
    batch = rollouts([0, 1, 100, 300], ["a", "b", "c", "d"], task=[0, 0, 0, 0], environment=[1, 1, 2, 2])
    close(advantages("reinforce:whitening=task,eps=0", batch), [-ROOT, ROOT, -ROOT, ROOT])


def test_other_levels_of_the_baseline():
    batch = rollouts([0, 1, 100, 300, 5], ["a", "b", "c", "d", "e"], environment=[1, 1, 2, 2, 2], task=[0, 0, 0, 0, 1])
    close(advantages("dr_grpo:baseline=environment", batch), [-0.5, 0.5, -35, 165, -130])
    close(advantages("dr_grpo:baseline=task", batch), [-0.5, 0.5, -100, 100, 0])
    close(advantages("dr_grpo:baseline=batch", batch), np.array([0, 1, 100, 300, 5]) - 81.2)
    close(advantages("rloo:baseline=batch", batch), (np.array([0, 1, 100, 300, 5]) - 81.2) * 5 / 4)


def test_agentrl_whitens_dead_groups_too():
    # Known and documented in the reference: the shift of the whitening reaches groups without signal.
    batch = with_lengths([1, 0, 2, 2], [2, 6, 4, 4], ["a", "a", "b", "b"])
    credit = advantages("agentrl", batch)
    assert credit[2] == credit[3] > 0


# What recipes say of themselves.


REGULAR = ([1.0, 0.0, 0.0, 1.0, 3.0, 2.0, 2.0, 5.0], [0, 0, 0, 0, 1, 1, 1, 1])


@pytest.mark.parametrize(
    ("recipe", "columns", "same_as"),
    [
        ("grpo_population", {}, ("grpo:eps=0", math.sqrt(4 / 3))),
        ("rloo", {}, ("dr_grpo", 4 / 3)),
        ("agentrl:eps=0", {}, ("grpo:eps=0", math.sqrt(15 / 12))),
        ("erpo", {}, ("lite_ppo", 1)),
        ("remax", {"greedy_return": REGULAR[0]}, ("dr_grpo", 0)),
        ("opo", {}, ("dr_grpo", 1)),
        ("gpg:weights=none", {}, ("dr_grpo", 1)),
        ("a2po:beta=1e7", {}, ("dr_grpo", 1)),
        ("dcpo_smooth", {}, ("grpo:eps=0", 1)),
        ("igpo", {}, ("grpo_population", 1)),
        ("a2tgpo", {}, ("grpo_population", 1)),
        ("mica", {}, ("grpo_population", 0.5)),
        ("mt_grpo", {"process_reward": np.ones(8)}, ("grpo:eps=1e-4", 1)),
        ("signal_reshaping", {"process_reward": np.ones(8), "truncated": np.zeros(8, np.bool_)}, ("grpo", 1)),
        ("empg:bonus=0", {"entropy": np.ones((8, 2))}, ("grpo", 1)),
        ("vgpo:anchor=0,gamma=1", {}, ("grpo", 1)),
        ("gigpo", {"state_key": np.arange(8)}, ("dr_grpo", 1)),
        ("hgpo", {"state_key": np.arange(8)}, ("grpo", 0)),
        ("graphgpo", {"success": np.zeros(8, np.bool_)}, ("grpo", 1)),
        ("gdpo", {"components": np.array(REGULAR[0])[:, None]}, ("grpo:whitening=batch", 1)),
        ("weighted_sum", {"components": np.array(REGULAR[0])[:, None]}, ("grpo", 1)),
        ("maestro", {"components": np.array(REGULAR[0])[:, None]}, ("grpo", 1)),
        ("rae", {}, ("reinforce", 1)),
        ("disco:domain=none,difficulty=false", {}, ("dr_grpo", 1)),
    ],
)  # fmt: skip
def test_where_recipes_change_nothing(recipe, columns, same_as):
    batch = with_every_column(*REGULAR, **columns)
    other, factor = same_as
    close(advantages(recipe, batch), factor * advantages(other, batch), 5e-6)


# Recipes of plain levels against loops.


def loop_divisor(scheme, values):
    """The spread with its eps; None where there is no spread."""
    centre = math.fsum(values) / max(len(values), 1)
    freedom = len(values) - scheme.ddof
    variance = math.fsum((v - centre) ** 2 for v in values) / freedom if freedom > 0 else 0.0
    if variance < 1e-24:
        return None
    inside = math.sqrt(variance + scheme.eps)
    return inside if scheme.eps_placement == "inside" else math.sqrt(variance) + scheme.eps


def loop_advantages(scheme: Scheme, batch: RolloutBatch) -> list[float]:
    """What the docstrings say, rollout by rollout."""
    n = len(batch)
    counted = [i for i in range(n) if batch.valid[i] and not math.isnan(batch.returns[i])]
    keys = {
        "prompt": list(zip(batch.environment, batch.prompt, strict=True)),
        "task": list(zip(batch.environment, batch.task, strict=True)),
        "environment": list(batch.environment),
        "batch": [0] * n,
    }

    def members(level, i):
        return [j for j in counted if level != "none" and keys[level][j] == keys[level][i]]

    raw = {i: float(batch.returns[i]) for i in counted}
    centred = {}
    for i in counted:
        others = members(scheme.baseline, i)
        if scheme.baseline_kind == "leave_one_out":
            others = [j for j in others if j != i] or [i]
        centred[i] = raw[i] - math.fsum(raw[j] for j in others) / max(len(others), 1)
    source = raw if scheme.scale_kind == "std" else centred
    scaled = dict(centred)
    for i in counted if scheme.scale != "none" else ():
        by = loop_divisor(scheme, [source[j] for j in members(scheme.scale, i)])
        scaled[i] = 0.0 if by is None else centred[i] / by
    result = dict(scaled)
    tokens = {i: int(batch.tokens_per_rollout[i]) for i in counted}
    times = tokens if scheme.whitening_weight == "token" else {i: int(tokens[i] > 0) for i in counted}
    for i in counted if scheme.whitening != "none" else ():
        values = [scaled[j] for j in members(scheme.whitening, i) for _ in range(times[j])]
        by = loop_divisor(scheme, values)
        centre = math.fsum(values) / max(len(values), 1)
        result[i] = 0.0 if by is None or not times[i] else (scaled[i] - centre) / by
    return [result.get(i, 0.0) for i in range(n)]


@pytest.mark.filterwarnings("ignore:returns. no rollout")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "scheme",
    [
        "reinforce", "grpo", "grpo_population", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "lite_ppo",
        "agentrl", "erpo", "grpo:ddof=0", "erpo:scale=task", "lite_ppo:scale_kind=centred_std,eps=0.1",
        "reinforce_pp_baseline:whitening=task,ddof=0", "rloo:baseline=environment,scale=task",
        "agentrl:whitening_weight=rollout",
    ],
)  # fmt: skip
def test_recipes_of_levels_equal_loops(scheme, seed):
    random = np.random.default_rng(seed)
    n = 40
    returns = random.integers(0, 4, n) * random.choice([1.0, 50.0], n)
    returns[random.random(n) < 0.1] = np.nan
    owner = np.concatenate([np.arange(n), random.integers(0, n, 30)])
    random.shuffle(owner)
    batch = RolloutBatch.from_arrays(
        returns=returns,
        prompt=random.integers(0, 9, n),
        environment=random.choice(["x", "y"], n),
        task=random.integers(0, 3, n),
        valid=random.random(n) < 0.9,
        turn_rollout=owner,
        token_mask=random.random((len(owner), 5)) < 0.4,
    )
    expected = np.array(loop_advantages(make_scheme(scheme), batch))[batch.turn_rollout]
    np.testing.assert_allclose(advantages(scheme, batch), expected, rtol=1e-9, atol=1e-9)


SECONDS = 0.2
"""Loose: a quiet core needs a quarter of it, a shared one twice that."""


@pytest.mark.parametrize("recipe", RECIPES)
def test_large_batches_are_fast(recipe):
    random = np.random.default_rng(0)
    n, m = 4096, 50_000
    owner = np.concatenate([np.arange(n), random.integers(0, n, m - n)])
    random.shuffle(owner)
    best = math.inf
    for _ in range(3):
        batch = with_every_column(  # A new one, because a batch remembers its levels.
            random.normal(size=n), [f"prompt {i // 8}" for i in range(n)], owner, length=4,
            environment=np.arange(n) // 8 % 5, turn_reward=random.random(m), token_mask=random.random((m, 4)) < 0.7,
        )  # fmt: skip
        start = time.process_time()
        advantages(recipe, batch)
        best = min(best, time.process_time() - start)
    assert best < SECONDS


def test_a_level_that_was_not_given_is_warned_of():
    two = {"returns": [100.0, 0.0, 1.0, 0.0], "prompt": [0, 0, 1, 1]}
    with pytest.warns(UserWarning, match=r"environment: not given, .* scale='environment' is that of the batch"):
        advantages("erpo", RolloutBatch.from_arrays(**two))
    with pytest.warns(UserWarning, match=r"task: not given, .* scale='task'"):
        advantages("grpo:scale=task", RolloutBatch.from_arrays(**two, environment=[0, 0, 1, 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        advantages("erpo", RolloutBatch.from_arrays(**two, environment=[0, 0, 1, 1]))
        advantages("lite_ppo", RolloutBatch.from_arrays(**two))


@pytest.mark.parametrize("recipe", ["spo", "spo_pp", "rae", "dcpo_smooth", "maestro"])
def test_schemes_remember_through_the_public_functions(recipe):
    columns = {"context": np.ones((4, 1)), "components": np.eye(4)[:, :2]} if recipe == "maestro" else {}
    ids = {"prompt": [0, 0, 1, 1], "environment": [0, 0, 0, 0], "drift": [np.nan] * 4}
    first, second = (
        RolloutBatch.from_arrays(returns=returns, **ids, **columns)
        for returns in ([1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0])
    )
    with pytest.warns(UserWarning, match=r"memory: .* remembers earlier updates, and starts anew at every call"):
        fresh = advantages(recipe, second)
    memory = Memory()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert advantages(recipe, second, memory).tolist() == fresh.tolist()
        update_memory(recipe, first, memory)
        assert advantages(recipe, second, memory).tolist() != fresh.tolist()


def test_rewards_are_cut_before_or_after_normalising():
    """The two positions of schemes.md, B6.20."""
    batch = RolloutBatch.from_arrays(returns=[-30.0, 0.0, 2.0, 40.0], prompt=[0] * 4, task=[0] * 4, environment=[0] * 4)
    before = advantages("grpo:return_clip=10", batch)
    cut = np.array([-10.0, 0.0, 2.0, 10.0])
    np.testing.assert_allclose(before, (cut - cut.mean()) / (cut.std(ddof=1) + 1e-6))
    after = advantages("grpo:advantage_clip=1", batch)
    np.testing.assert_allclose(after, np.clip(advantages("grpo", batch), -1, 1))
    assert (np.abs(after) == 1).any() and not np.allclose(after, before)
    np.testing.assert_array_equal(
        advantages("grpo:return_clip=100,advantage_clip=100", batch), advantages("grpo", batch)
    )


def test_a_reward_clip_must_be_positive():
    for name in ("return_clip", "advantage_clip"):
        with pytest.raises(ValueError, match=name):
            make_scheme(f"grpo:{name}=0")
