"""Kinds of baselines, scales and weights: published vectors, edge cases and loops."""

import math
import statistics

import numpy as np
import pytest

from algos import RolloutBatch, advantages, make_scheme

# Most tests give a scheme only what they are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(environment|task). not given, so all rollouts:UserWarning"),
    pytest.mark.filterwarnings("ignore:memory. .* remembers earlier updates:UserWarning"),
]

ROOT = math.sqrt(0.5)
ONE_OF_FOUR = [1, 0, 0, 0]


def close(actual, expected, tolerance=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def rollouts(returns, prompt=None, **columns):
    """One-turn rollouts, by default of one prompt."""
    prompt = [0] * len(returns) if prompt is None else prompt
    return RolloutBatch.from_arrays(returns=returns, prompt=prompt, **columns)


def with_lengths(returns, lengths, prompt=None):
    """One-turn rollouts with so many tokens each."""
    return rollouts(returns, prompt, token_mask=np.arange(max(lengths)) < np.array(lengths)[:, None])


# schemes.md B7.


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("grpo_population:eps=0", [1.7321, -0.5774]),
        ("opo", [0.9, -0.1]),
        ("grpo_loo", [1.0, -0.5773]),
        ("maxrl:eps=0", [3, -1]),
        ("disco:domain=none,offset=1e-12", [3, -1]),
        ("mapo:eps=0", [1.875, -0.625]),
        ("ngrpo", [1.0954, -0.7303]),
        ("passk", [2.0, 0]),
    ],
)
def test_vectors_of_one_group(scheme, expected):
    batch = with_lengths(ONE_OF_FOUR, [10, 20, 30, 40])
    close(advantages(scheme, batch), [expected[0]] + [expected[1]] * 3, 5e-5)


def test_vector_krpo():
    close(advantages("krpo", rollouts(ONE_OF_FOUR)), [0.0995, -7.048, -5.751, -4.973], 5e-4)


def test_vector_ngrpo_all_wrong():
    close(advantages("ngrpo", rollouts([0, 0, 0, 0])), [-0.4472] * 4, 5e-5)


# Leave-one-out spread.


def test_grpo_loo_leaves_the_only_success_undivided():
    close(advantages("grpo_loo", rollouts([1, 0])), [1, -1])
    close(advantages("grpo_loo:eps=0,ddof=0", rollouts([3, 0, 1])), [2.5 / 0.5, -2.0, -0.5 / 1.5])
    assert advantages("grpo_loo", rollouts([0.1 + 0.2, 0.3])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_grpo_loo_is_exact_beside_outliers_and_offsets(offset):
    # The others are equal, or nearly so, which a difference of sums of squares would not see.
    equal = advantages("grpo_loo:eps=0", rollouts(np.array([0.75, 0.25, 0.25, 0.25]) + offset))
    assert equal[0] == pytest.approx(0.5, rel=1e-9)
    near = np.array([1e5, 0.0, 1.0, 2.0]) + offset
    assert advantages("grpo_loo:eps=0", rollouts(near))[0] == pytest.approx((1e5 - 1) / 1.0, rel=1e-9)


def test_grpo_loo_equals_loops():
    random = np.random.default_rng(0)
    values, ids = random.normal(size=200), random.integers(0, 40, 200)
    expected = []
    for i, (value, key) in enumerate(zip(values, ids, strict=True)):
        others = [v for j, (v, k) in enumerate(zip(values, ids, strict=True)) if k == key and j != i]
        spread = statistics.stdev(others) if len(others) > 1 else 0.0
        lead = value - statistics.mean(others) if others else 0.0
        expected.append(lead / (spread + 1e-6) if spread else lead)
    close(advantages("grpo_loo", rollouts(values, ids)), expected, 1e-9)


# Medians.


def test_mc_grpo():
    # Median 1, deviations 1, 0, 2, 4, 0: their median 1. Three of five have an advantage.
    credit = advantages("mc_grpo", rollouts([0, 1, 3, 5, 1]))
    close(credit, np.array([-1, 0, 2, 4, 0]) / 1.001 * 5 / 3, 1e-12)
    # An even number: the lower middle, as torch; or the average.
    close(advantages("mc_grpo:weights=none,eps=0", rollouts([0, 1, 3, 9])), [-1, 0, 2, 8])
    average = advantages("mc_grpo:weights=none,eps=0,middle=average", rollouts([0, 1, 3, 9]))
    close(average, np.array([-2, -1, 1, 7]) / 1.5)


def test_mc_grpo_where_most_rewards_are_equal_divides_by_eps():
    # Known and kept: the only success counts a thousandfold, times 4 / 1.
    close(advantages("mc_grpo", rollouts(ONE_OF_FOUR)), [4000, 0, 0, 0])
    assert advantages("mc_grpo:eps=0", rollouts(ONE_OF_FOUR)).tolist() == [0.0] * 4
    assert advantages("mc_grpo", rollouts([0.5] * 4)).tolist() == [0.0] * 4


def test_p04_mc_grpo_takes_rounding_for_equal():
    # Without care the deviations of 0.1 + 0.2 from 0.3 would be the spread.
    credit = advantages("mc_grpo:eps=0", rollouts([0.3, 0.3, 0.1 + 0.2, 0.1 + 0.2, 5.0]))
    assert credit.tolist() == [0.0] * 5


def test_mc_grpo_counts_per_group_and_without_those_left_out():
    batch = rollouts([0, 1, 3, 7, 7, 0, np.nan], [0, 0, 0, 1, 1, 0, 0], valid=[1, 1, 1, 1, 1, 0, 1])
    close(advantages("mc_grpo", batch), [-1.5 / 1.001, 0, 3 / 1.001, 0, 0, 0, 0], 1e-12)


# The densest window.


def test_gapo_robust():
    # Windows of ceil(5 / 2) = 3: 0.0 0.1 0.3 is as narrow as any; its median 0.1.
    values = [0.9, 0.0, 0.3, 0.1, 0.8]
    centred = np.array(values) - 0.1
    spread = math.sqrt((centred**2).sum() / 4)
    close(advantages("gapo_robust", rollouts(values)), centred / (spread + 1e-6), 1e-9)
    mean = np.array(values) - 0.4 / 3
    close(advantages("gapo_robust:centre=mean", rollouts(values)), mean / (math.sqrt((mean**2).sum() / 4) + 1e-6), 1e-9)
    # Four values, a window of two: their average.
    close(advantages("gapo_robust:scale=none", rollouts([0, 5, 6, 9])), np.array([0, 5, 6, 9]) - 5.5)
    close(advantages("gapo_robust:scale=none,share=1", rollouts([0, 5, 7, 9])), np.array([0, 5, 7, 9]) - 6)


def test_gapo_robust_of_binary_rewards_takes_the_majority():
    close(advantages("gapo_robust:scale=none", rollouts([1, 0, 0, 0, 1])), [1, 0, 0, 0, 1])
    close(advantages("gapo_robust:scale=none", rollouts([1, 1, 1, 0, 1])), [0, 0, 0, -1, 0])
    # A tie: the lower one.
    close(advantages("gapo_robust:scale=none", rollouts([1, 1, 0, 0])), [1, 1, 0, 0])


@pytest.mark.parametrize("offset", [0.0, 0.1, 1e6, -7e5 - 0.3])
def test_gapo_robust_of_equally_narrow_windows_takes_the_first_whatever_the_rounding(offset):
    values = np.array([0.1, 0.2, 0.3, 0.4])
    close(advantages("gapo_robust:scale=none", rollouts(values + offset)), values - 0.15, 1e-8)


# OPO.


def test_opo_weighs_by_tokens():
    batch = with_lengths([1, 0, 4, 4], [3, 1, 2, 2], [0, 0, 1, 1])
    close(advantages("opo", batch), [0.25, -0.75, 0, 0], 1e-12)
    close(advantages("opo", with_lengths([1, 0, 2], [5, 5, 5])), advantages("dr_grpo", rollouts([1, 0, 2])), 1e-12)
    # A group whose only rollouts have no token in the loss still does not see an offset.
    without = advantages("opo", with_lengths([14, 10], [0, 0]))
    close(without, advantages("opo", with_lengths([1014, 1010], [0, 0])), 1e-9)
    silent = rollouts([1, 0], token_mask=[[0], [0]])
    assert np.isfinite(advantages("opo", silent)).all()


# ReMax.


def test_remax():
    batch = rollouts([1, 0, 3], greedy_return=[0.5, 0.5, np.nan], valid=[True, True, False])
    assert advantages("remax", batch).tolist() == [0.5, -0.5, 0.0]
    assert advantages("remax", rollouts([5], greedy_return=[2.0])).tolist() == [3.0]
    with pytest.raises(ValueError, match="singleton='raw' has no effect here"):
        make_scheme("remax", singleton="raw")
    with pytest.raises(ValueError, match="greedy_return must be finite where rollouts count; it holds nan"):
        advantages("remax", rollouts([1, 0], greedy_return=[0.5, np.nan]))
    with pytest.raises(ValueError, match="greedy_return=None is not allowed with this scheme"):
        advantages("remax", rollouts([1, 0]))


# GPG.


def test_gpg():
    batch = rollouts([1, 0, 0, 0, 2, 2], [0, 0, 0, 0, 1, 1])
    centred = np.array([0.75, -0.25, -0.25, -0.25, 0, 0])
    close(advantages("gpg", batch), centred * 6 / 3, 1e-12)
    close(advantages("gpg:active=group", batch), centred * 6 / 4, 1e-12)
    left_out = rollouts([1, 0, 0, 0, 2, 2, 5], [0, 0, 0, 0, 1, 1, 2], valid=[1] * 6 + [0])
    close(advantages("gpg", left_out)[:6], centred * 6 / 3, 1e-12)
    for active in ("return", "group"):
        assert advantages(f"gpg:active={active}", rollouts([0, 0])).tolist() == [0.0, 0.0]
    # With rewards of +-1 the code's factor is always 1.
    close(advantages("gpg", rollouts([1, -1, -1, -1])), advantages("dr_grpo", rollouts([1, -1, -1, -1])), 1e-12)


# pass@k.


def test_passk():
    # The lead over the second, over the group's spread; the others nothing.
    spread = statistics.stdev([3, 1, 2])
    close(advantages("passk:eps=0", rollouts([3, 1, 2])), [1 / spread, 0, 0])
    assert advantages("passk", rollouts([3, 1, 3])).tolist() == [0.0] * 3
    assert advantages("passk", rollouts([5, 5, 1, 4], [0, 1, 1, 0])).argmax() == 1
    close(advantages("passk:scale=none", rollouts([5, 5, 1, 4, 9], [0, 1, 1, 0, 2])), [1, 4, 0, 0, 0])


# MAPO and MaxRL.


def test_mapo_mixes_by_certainty():
    centred = np.array([0.5, 0.5, -0.5, -0.5])
    close(advantages("mapo", rollouts([1, 1, 0, 0])), advantages("grpo", rollouts([1, 1, 0, 0])), 1e-12)
    # No reward of exactly 1: relative to the mean alone.
    close(advantages("mapo:eps=0", rollouts([0.75, 0.75, 0.25, 0.25])), centred, 1e-12)
    close(advantages("mapo:eps=0", rollouts([1, 1, 1, 0])), np.array([0.25, 0.25, 0.25, -0.75]) * (1.5 + 1 / 3), 1e-9)
    for dead in ([1, 1], [0, 0], [0.3, 0.3]):
        assert advantages("mapo", rollouts(dead)).tolist() == [0.0, 0.0]
    # With negative rewards the mean is no scale: nothing flips its sign or explodes.
    for rewards in ([1, -1, -1, -1], [1, -1, -1, 1.001]):
        credit = advantages("mapo", rollouts(rewards))
        assert np.argmin(credit) == 1 and credit[0] > 0 and np.abs(credit).max() < 2


def test_maxrl():
    close(advantages("maxrl", rollouts([1, 0])), np.array([0.5, -0.5]) / (0.5 + 1e-6), 1e-12)
    for silent in ([0, 0], [-1, 0], [1, -1], [0.1, 0.2, -0.3]):
        for settings in ("", ":eps=0"):
            assert advantages(f"maxrl{settings}", rollouts(silent)).tolist() == [0.0] * len(silent)


# KRPO.


def test_krpo_depends_on_the_order_within_a_group_only():
    estimate, variance, expected = 0.0, 1.0, []
    for reward in (0.5, 2.0, -1.0):
        variance += 1e-5
        gain = variance / (variance + 1e-2)
        estimate += gain * (reward - estimate)
        variance *= 1 - gain
        expected.append((reward - estimate) / (math.sqrt(variance) + 1e-8))
    batch = rollouts([0.5, 7, 2.0, 8, -1.0], [0, 1, 0, 1, 0])
    close(advantages("krpo", batch)[[0, 2, 4]], expected, 1e-9)
    backwards = advantages("krpo", rollouts([-1.0, 2.0, 0.5]))
    assert not np.allclose(backwards[::-1], expected)
    noisy = advantages("krpo:process_noise=0,measurement_noise=1,eps=0", rollouts([2.0, 4.0]))
    # Gains 1/2 and 1/3, variances 1/2 and 1/3.
    close(noisy, [1 / math.sqrt(0.5), 2 / math.sqrt(1 / 3)], 1e-9)


# NGRPO.


def test_ngrpo_other_rewards():
    close(advantages("ngrpo:virtual_reward=3,scale=none", rollouts([1, 2])), [-1, 0], 1e-12)
    spread = statistics.stdev([1, 2, 3])
    close(advantages("ngrpo:virtual_reward=3,eps=0", rollouts([1, 2])), [-1 / spread, 0], 1e-12)
    for settings in ("", ":eps=0"):
        assert advantages(f"ngrpo{settings}", rollouts([1, 1, 1])).tolist() == [0.0] * 3
    assert advantages("ngrpo:virtual_reward=0.3,eps=0", rollouts([0.1 + 0.2] * 3)).tolist() == [0.0] * 3
    # A group of one gets no virtual member.
    assert advantages("ngrpo", rollouts([0.0])).tolist() == [0.0]
    assert advantages("ngrpo:singleton=raw", rollouts([0.25])).tolist() == [0.25]


# A2PO.


def test_a2po():
    values = [1.0, 0.0, 0.5]
    expected = np.array(values) - 0.5 * math.log(statistics.mean(math.exp(v / 0.5) for v in values))
    close(advantages("a2po", rollouts(values)), expected, 1e-12)
    close(advantages("a2po:beta=1e6", rollouts(values)), advantages("dr_grpo", rollouts(values)), 1e-5)
    close(advantages("a2po:beta=1e-6", rollouts(values)), np.array(values) - 1, 1e-5)
    for settings in ("", ":beta=1e-9"):
        credit = advantages(f"a2po{settings}", rollouts([-1e6, -1e6 - 1, 5e5], [0, 0, 1], valid=[1, 1, 0]))
        assert np.isfinite(credit).all()
    assert advantages("a2po", rollouts([0.1 + 0.2, 0.3])).tolist() == [0.0, 0.0]


# DISCO.


@pytest.mark.parametrize("successes", range(1, 8))
def test_disco_of_binary_rewards_is_maxrl(successes):
    batch = rollouts([1] * successes + [0] * (8 - successes))
    close(advantages("disco:domain=none,offset=1e-12", batch), advantages("maxrl:eps=1e-12", batch), 1e-9)


def test_disco_weighs_domains_by_their_share_of_prompts():
    # Three prompts of x, one of y; a fourth of y in which nothing counts.
    returns, prompt = [1, 0] * 5, np.repeat(range(5), 2)
    environment, valid = ["x"] * 6 + ["y"] * 4, [True] * 8 + [False] * 2
    batch = rollouts(returns, prompt, environment=environment, valid=valid)
    weight = {"log": (0.847298, math.log(5)), "log_square": (0.847298**2, math.log(5) ** 2), "inverse": (4 / 3, 4)}
    for domain, (x, y) in weight.items():
        credit = advantages(f"disco:domain={domain},difficulty=false", batch)
        close(credit, [x / 2, -x / 2] * 3 + [y / 2, -y / 2, 0, 0])
    both = advantages("disco", batch)
    close(both[[0, 6]], np.array([0.847298, math.log(5)]) / (0.5 + 1e-5) / 2)
    assert math.log1p(12) == pytest.approx(2.565, abs=1e-3)


def test_disco_of_groups_that_fail_or_succeed_as_a_whole():
    for returns in ([0, 0], [1, 1], [-1, -1]):
        assert advantages("disco", rollouts(returns)).tolist() == [0.0, 0.0]
    assert advantages("disco", rollouts([-1, 0])).tolist() == [0.0, 0.0]


# Groups of one, and the baselines of loss schemes.


@pytest.mark.parametrize("recipe", ["grpo", "grpo_loo", "rloo", "opo", "passk", "mapo", "krpo", "ngrpo", "mc_grpo",
                                    "gapo_robust", "maxrl", "a2po", "erpo:scale=prompt"])  # fmt: skip
def test_a_group_of_one_can_keep_its_return(recipe):
    batch = rollouts([5.0, 1.0, 3.0], ["a", "b", "b"])
    settings = {"weights": "none"} if recipe == "mc_grpo" else {}
    kept, zero = (advantages(make_scheme(recipe, singleton=s, **settings), batch) for s in ("raw", "zero"))
    assert kept[0] == 5.0
    assert zero[0] == 0.0
    assert kept[1:].tolist() == zero[1:].tolist()


@pytest.mark.parametrize("successes", range(1, 9))
def test_vector_gapo_with_adaptive_clipping(successes):
    credit = advantages("dr_grpo", rollouts([1] * successes + [0] * (8 - successes)))
    close(credit, [(8 - successes) / 8] * successes + [-successes / 8] * (8 - successes), 1e-12)


# Kinds at other levels, and of turns.


def test_kinds_work_at_every_level_and_on_turns():
    returns, prompt = [1, 0, 5, 2, 7, 7], [0, 0, 1, 1, 2, 2]
    columns = {"environment": [0, 0, 1, 1, 1, 1], "turn_rollout": [0, 1, 2, 3, 4, 5, 0, 3]}
    for kind in ("mean", "leave_one_out", "median", "length_weighted", "second_best", "dense_window", "virtual_best",
                 "optimal_value", "kalman"):  # fmt: skip
        batch = rollouts(returns, prompt, **columns)
        for level in ("prompt", "task", "environment", "batch"):
            credit = advantages(make_scheme("grpo", baseline=level, baseline_kind=kind), batch)
            assert credit.shape == (8,)
            assert np.isfinite(credit).all()
        per_turn = make_scheme("grpo", signal="return_to_go", gamma=1.0, baseline="turn", baseline_kind=kind)
        assert np.isfinite(advantages(per_turn, batch)).all()


def test_about_baseline_and_centred_spread():
    batch = rollouts([0, 0, 3], [0, 0, 0])
    about = make_scheme("mc_grpo:weights=none,scale_kind=about_baseline,eps=0")
    close(advantages(about, batch), [0, 0, 3 / math.sqrt(9 / 2)])
    centred = make_scheme("mc_grpo:weights=none,scale_kind=centred_std,eps=0")
    close(advantages(centred, batch), [0, 0, 3 / statistics.stdev([0, 0, 3])])
