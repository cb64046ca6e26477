"""The sampling axis without the trainer: prompts, tables, allocations, weights, draws, penalties."""

import dataclasses
import itertools

import numpy as np
import pytest

from algos import MessagePolicy, RolloutBatch, make_scheme, parts
from algos.advantages.trackers import Keyed
from algos.collector import Trajectories, collect
from algos.rows import make_rows
from algos.sampling import Overlong, UniformPrompts, choose, join
from algos.sampling.filters import smallest_set
from algos.sampling.overlong import check_mask, make_overlong
from algos.sampling.prioritised import weights
from algos.sampling.prompts import LARGEST_EPOCH
from algos.sampling.select import PER_ROLLOUT, PER_TURN
from algos.sampling.trace import Predictor, allocate_more, allocate_roots, marginal, utility
from algos.sampling.writers import uniform_over_likely
from algos.settings import compares_within_groups


@pytest.mark.parametrize(("prompts", "cycle"), [(12, 1), (12, 3), (12, 12), (1, 1), (10, 3), (3, 5)])
@pytest.mark.parametrize("size", [1, 4, 5, 12, 29])
def test_every_prompt_once_per_epoch(prompts, cycle, size):
    sampler = UniformPrompts(prompts, cycle, np.random.default_rng(0))
    drawn = np.concatenate([sampler.draw(size) for _ in range(-(-6 * prompts // size))])[: 6 * prompts]
    for epoch in drawn.reshape(6, prompts):
        assert sorted(epoch.tolist()) == list(range(prompts))


def test_cycles_stay_together_so_that_environments_have_their_shares():
    sampler = UniformPrompts(40, 4, np.random.default_rng(0))
    for _ in range(10):
        drawn = sampler.draw(8).reshape(2, 4)
        assert (drawn % 4 == np.arange(4)).all()
        assert (drawn // 4 == drawn[:, :1] // 4).all()


def test_a_short_last_cycle_is_drawn_too():
    sampler = UniformPrompts(10, 4, np.random.default_rng(0))
    epoch = sampler.draw(10).tolist()
    assert {8, 9} <= set(epoch)
    assert epoch.index(9) == epoch.index(8) + 1


def test_the_order_is_random_and_follows_the_generator():
    first, again, other = (UniformPrompts(100, 1, np.random.default_rng(s)).draw(100) for s in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist() != sorted(other.tolist())
    two = UniformPrompts(100, 1, np.random.default_rng(1))
    assert two.draw(100).tolist() != two.draw(100).tolist()


def test_more_prompts_than_can_be_remembered():
    sampler = UniformPrompts(2**31 - 1, 1, np.random.default_rng(0))
    drawn = sampler.draw(3000)
    assert len(set(drawn.tolist())) == 3000
    assert 0 <= drawn.min() < drawn.max() < 2**31 - 1
    assert drawn.max() > LARGEST_EPOCH
    cycled = UniformPrompts(2**40 + 1, 4, np.random.default_rng(0)).draw(400).reshape(100, 4)
    assert (cycled % 4 == np.arange(4)).all()


def test_drawing_nothing():
    assert UniformPrompts(5, 1, np.random.default_rng(0)).draw(0).tolist() == []


# Tables of rollouts.


def rollouts(n=12):
    rows = make_rows("agentic_gym/Mixture-v0", n)
    policy = MessagePolicy(rows.observation_space, rows.action_space, lambda _: 1e-3, grammar=rows.grammar)
    prompt = np.arange(n) // 3
    data = collect(rows, policy, prompt, np.arange(n) + 100, np.random.default_rng(0), with_truth=True)
    turns = np.arange(data.batch.n_turns)
    batch = dataclasses.replace(data.batch, drift=np.arange(n) / n, entropy=turns[:, None] * np.ones((1, 2)))
    return dataclasses.replace(data, batch=batch, stale=turns % 2 == 0)


def test_every_column_is_per_rollout_or_per_turn():
    names = {f.name for table in (RolloutBatch, Trajectories) for f in dataclasses.fields(table)}
    assert names - {"batch", "turn_rollout", "max_tokens", "assumed"} == PER_ROLLOUT | PER_TURN
    assert not PER_ROLLOUT & PER_TURN


def assert_equal(one, other):
    for table, again in ((one.batch, other.batch), (one, other)):
        for name in (f.name for f in dataclasses.fields(table)):
            column, copy = getattr(table, name), getattr(again, name)
            assert (column is None) == (copy is None)
            if isinstance(column, np.ndarray):
                np.testing.assert_array_equal(column, copy)
                assert column.dtype == copy.dtype


def test_choosing_all_and_choosing_by_flags():
    data = rollouts()
    order = np.argsort(data.batch.turn_rollout, kind="stable")
    assert_equal(choose(data, np.arange(12)), data)
    some = choose(data, [7, 2])
    assert some.prompt.tolist() == [2, 0]
    assert some.rollout.tolist() == [107, 102]
    for new, old in enumerate((7, 2)):
        np.testing.assert_array_equal(
            some.features[some.batch.turn_rollout == new], data.features[order][data.batch.turn_rollout[order] == old]
        )
    assert_equal(choose(data, data.rollout >= 109), choose(data, [9, 10, 11]))
    assert len(choose(data, []).batch) == choose(data, []).batch.n_turns == 0


def test_joining_puts_rollouts_back_together():
    data = rollouts()
    first, second = choose(data, np.arange(5)), choose(data, np.arange(5, 12))
    both = join([first, second])
    assert_equal(choose(both, np.arange(5)), first)
    assert_equal(choose(both, np.arange(5, 12)), second)
    assert both.batch.returns.tolist() == data.batch.returns.tolist()
    assert join([data]) is data
    assert join([dataclasses.replace(first, ground_truth=None), second]).ground_truth is None
    with pytest.raises(ValueError, match="at least one"):
        join([])


# Groups of one.


@pytest.mark.parametrize(
    ("scheme", "compares"),
    [
        ("grpo", True), ("rloo", True), ("dr_grpo", True), ("erpo", True), ("lite_ppo", True), ("mc_grpo", True),
        ("dcpo_smooth", True), ("igpo", True), ("gigpo", True), ("krpo", True), ("maxrl", True),
        ("reinforce", False), ("reinforce_pp", False), ("spo", False), ("spo_pp", False), ("remax", False),
        ("rae", False), ("ppo", False), ("gae_turn", False), ("grpo:singleton=raw", False),
        ("ngrpo:scale=none", False), ("reinforce:sampling=dynamic", True), ("spo:sampling=prioritised", False),
        ("spo:sampling=cuts", False), ("reinforce:sampling=top_variance", True), ("reinforce:sampling=trace", True),
    ],
)  # fmt: skip
def test_which_schemes_need_groups_of_two(scheme, compares):
    assert bool(compares_within_groups(make_scheme(scheme))) == compares


# TRACE (agentic-credit.md, section 11 H and section 8).


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (0.1, [0, 0.18, 0.27, 0.3438, 0.4095]), (0.9, [0, 0.18, 0.27, 0.3438, 0.4095]),
        (0.3, [0, 0.42, 0.63, 0.7518, 0.8295]), (0.5, [0, 0.5, 0.75, 0.875, 0.9375]),
    ],
)  # fmt: skip
def test_vector_h_utility(p, expected):
    np.testing.assert_allclose(utility(p, np.arange(1, 6)), expected, atol=1e-12)
    assert utility(p, 0) == 0.0
    m = np.arange(1, 9)
    np.testing.assert_allclose(marginal(p, m), utility(p, m + 1) - utility(p, m), atol=1e-12)
    np.testing.assert_allclose(marginal(p, np.array([1, 2])), [2 * p * (1 - p), p * (1 - p)], atol=1e-12)
    assert (np.diff(marginal(p, m)) <= 1e-15).all()


def test_roots_are_allotted_greedily():
    def roots(p, budget, cap=9):
        return allocate_roots(np.array(p), budget, cap).tolist()

    assert roots([0.5, 0.0, 0.3, 1.0], 5) == [3, 0, 2, 0]
    assert roots([0.1, 0.5], 2) == [0, 2]
    assert roots([0.5, 0.5], 2) == [2, 0]
    assert roots([0.1, 0.5], 6) == [2, 4]
    assert roots([0.1, 0.1, 0.5], 6, cap=3) == [3, 0, 3]
    assert roots([0.1, 0.5], 9, cap=3) == [5, 4]
    # A lone last rollout goes to a prompt that has begun, or is left over.
    assert roots([0.5, 0.4], 4) == [4, 0]
    assert roots([0.4, 0.5], 1) == [0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_roots_are_at_most_a_block_from_the_best(seed):
    random = np.random.default_rng(seed)
    p, budget = random.random(4), int(random.integers(2, 9))
    count = allocate_roots(p, budget, budget)
    assert count.sum() <= budget
    assert 1 not in count
    every = [m for m in itertools.product(range(budget + 1), repeat=4) if sum(m) <= budget]
    best = max(utility(p, np.array(m)).sum() for m in every)
    assert utility(p, count).sum() >= best - (2 * p * (1 - p)).max()


@pytest.mark.parametrize("seed", range(20))
def test_continuations_are_the_best(seed):
    random = np.random.default_rng(seed)
    p, begun, budget = random.random(4), random.integers(1, 4, 4), int(random.integers(1, 7))
    count = allocate_more(p, begun, budget, cap=budget)
    assert count.sum() == budget

    def gain(m):
        return (utility(p, begun + m) - utility(p, begun)).sum()

    every = [np.array(m) for m in itertools.product(range(budget + 1), repeat=4) if sum(m) == budget]
    assert gain(count) == pytest.approx(max(map(gain, every)))


def test_continuations_without_evidence_are_spread_and_capped():
    half, one = np.full(6, 0.5), np.ones(6, dtype=int)
    assert allocate_more(half, one, 6, cap=4).tolist() == [1] * 6
    assert allocate_more(half, one, 3, cap=4).tolist() == [1, 1, 1, 0, 0, 0]
    certain = np.array([0.5, 0.0])
    assert allocate_more(certain, one[:2], 6, cap=3).tolist() == [3, 3]
    assert allocate_more(certain, one[:2], 6, cap=4).tolist() == [4, 2]
    assert allocate_more(np.zeros(0), one[:0], 6, cap=4).tolist() == []


def test_the_predictor_learns_a_rule():
    random = np.random.default_rng(0)
    features = random.integers(0, 2, (400, 6)).astype(np.float32)
    predictor = Predictor.blank(6)
    assert (predictor(features) == 0.5).all()
    for part in np.split(features, 20):
        predictor.pending = (part, part[:, 2] > 0)
        predictor.learn(10, 0.3)
        assert predictor.pending is None
    said = predictor(features)
    assert said[features[:, 2] > 0].min() > 0.8 > 0.2 > said[features[:, 2] == 0].max()
    before = predictor.weights.copy()
    predictor.learn(10, 0.3)
    assert (predictor.weights == before).all()


# SPO's prompt weights.


def test_weights_of_prompts():
    tracker = Keyed({"value": np.array([0.9, 0.5, 7.0]), "evidence": np.array([4.0, 9.0, 1.0])})
    tracker.rows = {(0, 11): 0, (0, 12): 1, (1, 13): 2}
    prompts = np.array([12, 11, 13, 99])
    np.testing.assert_allclose(weights(prompts, tracker, 0.0, 0.05), [0.55, 0.35, 0.05, 0.55])
    np.testing.assert_allclose(weights(prompts, tracker, 0.5, 0.05), [0.5 / 3 + 0.05, 0.2, 0.05, 0.55])
    np.testing.assert_allclose(weights(prompts, Keyed({}), 1.0, 0.05, start=2.0), [0.3] * 4)


# RAGEN-2.


def test_smallest_set_of_variances():
    assert smallest_set(np.array([5.0, 3.0, 1.0, 1.0]), 0.9) == 3
    assert smallest_set(np.array([5.0, 3.0, 1.0, 1.0]), 0.5) == 1
    assert smallest_set(np.full(10, 0.1), 0.9) == 9
    assert smallest_set(np.zeros(3), 0.9) == 1
    assert smallest_set(np.array([1.0, 1.0]), 1.0) == 2


# CUTS.


def drawn(probability, top_k=5, least=0.03):
    """Return which positions are drawn, and how often, for one distribution (W,)."""
    numbers = (np.arange(1200) + 0.5) / 1200
    column = np.repeat(np.array(probability)[:, None], len(numbers), axis=1)
    positions, counts = np.unique(uniform_over_likely(column, numbers, top_k, least), return_counts=True)
    return dict(zip(positions.tolist(), (counts / len(numbers)).tolist(), strict=True))


def test_cuts_draws_uniformly_from_the_likely():
    assert drawn([0.9, 0.05, 0.04, 0.01]) == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3})
    assert drawn([0.01, 0.99]) == {1: 1.0}
    assert drawn([0.1, 0.3, 0.2, 0.15, 0.15, 0.1, 0.0]) == pytest.approx({0: 0.2, 1: 0.2, 2: 0.2, 3: 0.2, 4: 0.2})
    assert drawn([0.5, 0.3, 0.2], top_k=2) == pytest.approx({0: 0.5, 1: 0.5})
    # No token is likely enough: the whole top K. Padding has probability 0 and is never drawn.
    assert drawn([0.02] * 50) == pytest.approx({i: 0.2 for i in range(5)})
    assert drawn([0.6, 0.4, 0.0, 0.0], least=0.7) == pytest.approx({0: 0.5, 1: 0.5})
    assert drawn([0.6, 0.4, 0.0, 0.0], least=0.0) == pytest.approx({0: 0.5, 1: 0.5})


# Overlong shaping.


def test_overlong_penalty():
    dapo = Overlong(buffer=4096, limit=20480)
    tokens = np.array([0, 16384, 17408, 18432, 20480, 30000])
    np.testing.assert_allclose(dapo.penalty(tokens, 7), [0, 0, -0.25, -0.5, -1, -1])
    np.testing.assert_allclose(Overlong(4, factor=2.0).penalty(np.array([6, 8, 10]), 10), [0, -1, -2])
    free = Overlong(buffer=10, limit=20, capped=False)
    np.testing.assert_allclose(free.penalty(np.array([5, 10, 15, 20, 30]), 7), [0, 0, -0.5, -1, -2])
    with pytest.raises(ValueError, match="capped=1 is not allowed"):
        Overlong(buffer=10, capped=1)


def test_overlong_goes_to_return_and_last_reward():
    data = rollouts()
    shaped = Overlong(buffer=2, limit=4).shape(data).batch
    penalty = shaped.returns - data.batch.returns
    np.testing.assert_allclose(penalty, Overlong(2, 4).penalty(data.batch.tokens_per_rollout, 1))
    assert penalty.min() < 0
    totals = np.bincount(shaped.turn_rollout, shaped.turn_reward - data.batch.turn_reward, len(penalty))
    np.testing.assert_allclose(totals, penalty)
    changed = shaped.turn_reward != data.batch.turn_reward
    assert (shaped.turn_index[changed] == shaped.turns_per_rollout[shaped.turn_rollout[changed]] - 1).all()


def test_bad_overlong_and_mask():
    assert make_overlong({"buffer": 3}) == Overlong(3)
    assert make_overlong(None) is None
    with pytest.raises(TypeError, match="overlong=3"):
        make_overlong(3)
    for arguments, words in (({"buffer": 0}, "buffer=0"), ({"buffer": 5, "limit": 4}, "limit=4")):
        with pytest.raises(ValueError, match=words):
            Overlong(**arguments)
    with pytest.raises(ValueError, match="factor=-1"):
        Overlong(1, factor=-1)
    assert [check_mask(m) for m in (False, True, "all", "loss")] == ["no", "loss", "all", "loss"]
    with pytest.raises(ValueError, match="mask_truncated='both'"):
        check_mask("both")


def test_samplers_and_their_options():
    names = {"uniform", "dynamic", "prioritised", "top_variance", "trace", "cuts", "cross_policy"}
    assert set(parts.choices("sampling")) == names
    scheme = make_scheme("grpo:sampling=dynamic,max_attempts=3,spread_of=success,fallback=skip")
    assert dict(scheme.options) == {"max_attempts": 3, "spread_of": "success", "fallback": "skip"}
    for text, words in (
        ("grpo:max_attempts=3", "has no effect"), ("grpo:sampling=dynamic,max_attempts=0", "max_attempts=0"),
        ("grpo:sampling=cuts,cuts_share=2", "cuts_share=2"), ("grpo:sampling=dynamic,spread_of=x", "spread_of='x'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            make_scheme(text)
