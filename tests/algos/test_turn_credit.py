"""Turn-level credit: published vectors and cases by hand."""

import math
import statistics

import numpy as np
import pytest

from algos import RolloutBatch, advantages, make_scheme

ROOT = math.sqrt(0.5)
NAN = math.nan


def close(actual, expected, tolerance=2e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def gains(returns, turns, **columns):
    """Rollouts of one prompt, each with the gains of its turns; the last turn is the answer."""
    owner = np.repeat(np.arange(len(turns)), [len(row) + 1 for row in turns])
    gain = [value for row in turns for value in (*row, NAN)]
    return RolloutBatch.from_arrays(
        returns=returns, prompt=[0] * len(returns), turn_rollout=owner, information_gain=gain, **columns
    )


# agentic-credit.md 11 A and B.

ABOVE = ([1, 0, 0], [[0.2, 0.4], [0, 0.1, 0.3], [-0.1]])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            "",
            [3.066232, 2.414214, 1.414214, -1.438760, -1.414214, -0.707107, -0.707107, -1.776152, -0.707107],
        ),
        (
            ",gain_weight=0.3",
            [1.909819, 1.714214, 1.414214, -0.926603, -0.919239, -0.707107, -0.707107, -1.027820, -0.707107],
        ),
    ],
)
def test_vector_a2tgpo(settings, expected):
    close(advantages(f"a2tgpo:eps=0{settings}", gains(*ABOVE)), expected)


def test_vector_a2tgpo_with_a_discount():
    credit = advantages("a2tgpo:eps=0,gamma=0.9", gains(*ABOVE))
    close(credit[[0, 3, 7]], [2.995521, -1.381025, -1.776152])


def test_vector_a2tgpo_single_turns():
    credit = advantages("a2tgpo:eps=0,accumulation=none", gains(*ABOVE))
    outcome = np.repeat([1.414214, -0.707107, -0.707107], [3, 4, 2])
    close(credit - outcome, [1.336306, 1.0, 0, -0.267261, -1.0, 0.0, 0, -1.069045, 0])


def test_vector_igpo():
    joint = [3.041884, 3.076848, 2.482457, -1.398567, -0.734248, -0.384606, -0.664319, -1.643316, -0.664319]
    apart = [3.170834, 2.878064, 1.414214, -0.999877, -0.121567, 0.171203, -0.707107, -2.170957, -0.707107]
    close(advantages("igpo:eps=0", gains(*ABOVE)), joint)
    close(advantages("igpo:eps=0,pool=prompt", gains(*ABOVE)), apart)


def test_p17_normalise_then_discount():
    batch = gains([1, 0], [[0], [1]])
    close(advantages("igpo:eps=0,ddof=1,gamma=0.5", batch), [-0.4330127, 0.8660254, 0.4330127, -0.8660254])


def test_igpo_discount_then_centre():
    # Sums from each turn on: [0.2 + 0.4 + 1, 0.4 + 1, 1], [0 + 0.1 + 0.3, 0.1 + 0.3, 0.3, 0], [-0.1, 0].
    sums = [[1.6, 1.4, 1.0], [0.4, 0.4, 0.3, 0.0], [-0.1, 0.0]]
    means = [statistics.mean(row[k] for row in sums if len(row) > k) for k in range(4)]
    expected = [value - means[k] for row in sums for k, value in enumerate(row)]
    close(advantages("igpo:pool=centre_last", gains(*ABOVE)), expected)
    doubled = [[1.6 + 0.6, 1.4 + 0.4, 1.0], [0.8, 0.8, 0.6, 0.0], [-0.2, 0.0]]
    means = [statistics.mean(row[k] for row in doubled if len(row) > k) for k in range(4)]
    expected = [value - means[k] for row in doubled for k, value in enumerate(row)]
    close(advantages("igpo:pool=centre_last,gain_weight=2", gains(*ABOVE)), expected)


@pytest.mark.parametrize("recipe", ["igpo", "a2tgpo"])
def test_a_gain_of_exactly_zero_is_a_gain(recipe):
    # The papers' code finds turns by nonzero gains, which would drop the first turn of the second rollout.
    zero = advantages(f"{recipe}:eps=0", gains(*ABOVE))
    close(zero, advantages(f"{recipe}:eps=0", gains(ABOVE[0], [[0.2, 0.4], [1e-12, 0.1, 0.3], [-0.1]])))


@pytest.mark.parametrize("recipe", ["igpo", "igpo:pool=prompt", "igpo:pool=centre_last", "a2tgpo", "mica"])
def test_equal_outcomes_still_train_and_the_answer_turn_has_no_gain(recipe):
    batch = gains([1, 1], [[0.1], [0.5]])
    credit = advantages(recipe, batch)
    assert credit[0] < 0 < credit[2]
    if recipe not in ("igpo:pool=centre_last", "igpo"):
        assert credit[[1, 3]].tolist() == [0.0, 0.0]
    shouted = RolloutBatch.from_arrays(
        returns=[1, 1], prompt=[0, 0], turn_rollout=[0, 0, 1, 1], information_gain=[0.1, 99.0, 0.5, -99.0]
    )
    assert advantages(recipe, shouted).tolist() == credit.tolist()


def test_turns_without_tokens_are_nobodys():
    mask = [[1], [0], [1], [1], [1], [0]]
    batch = RolloutBatch.from_arrays(
        returns=[1, 0], prompt=[0, 0], turn_rollout=[0, 0, 0, 1, 1, 1], token_mask=mask,
        information_gain=[0.1, NAN, NAN, 0.5, NAN, NAN], process_reward=[1, NAN, 0, 0, 2, NAN], truncated=[0, 0],
    )  # fmt: skip
    compact = RolloutBatch.from_arrays(
        returns=[1, 0], prompt=[0, 0], turn_rollout=[0, 0, 1, 1], information_gain=[0.1, NAN, 0.5, NAN],
        process_reward=[1, 0, 0, 2], truncated=[0, 0],
    )  # fmt: skip
    for recipe in ("igpo", "a2tgpo", "mica", "mt_grpo", "signal_reshaping"):
        credit = advantages(recipe, batch)
        assert credit[[0, 2, 3, 4]].tolist() == advantages(recipe, compact).tolist()


def test_missing_gains_raise():
    with pytest.raises(ValueError, match="information_gain must be finite at every turn but a rollout's last"):
        advantages("igpo", RolloutBatch.from_arrays([1, 0], [0, 0], turn_rollout=[0, 0, 1], information_gain=[NAN] * 3))
    with pytest.raises(ValueError, match="information_gain=None is not allowed with this scheme"):
        advantages("a2tgpo", RolloutBatch.from_arrays([1, 0], [0, 0]))


# Returns to go.


def test_p15_rewards_of_the_environments_turns_go_to_the_turn_before():
    batch = RolloutBatch.from_arrays(
        [1.0], prompt=[0], turn_rollout=[0] * 4, turn_reward=[0, 0, 0, 1], token_mask=[[1], [0], [1], [0]]
    )
    to_go = "grpo:signal=return_to_go,baseline=none,scale=none,gamma=0.5"
    assert advantages(to_go, batch).tolist() == [0.5, 0.0, 1.0, 0.0]
    dense = RolloutBatch.from_arrays([0.5], prompt=[0], turn_rollout=[0] * 3, turn_reward=[0.2, 0, 0.3])
    close(advantages(f"{to_go[:-3]}1", dense), [0.5, 0.3, 0.3], 1e-12)


def test_returns_to_go_are_compared_at_the_level_that_is_asked_for():
    batch = RolloutBatch.from_arrays(
        [3, 1], prompt=[0, 0], turn_rollout=[0, 0, 1, 1], turn_reward=[1, 2, 0, 1], state_key=[7, 8, 7, 7]
    )
    to_go = "dr_grpo:signal=return_to_go,gamma=1"
    close(advantages(f"{to_go},baseline=turn", batch), [1, 0.5, -1, -0.5], 1e-12)
    close(advantages(f"{to_go},baseline=state", batch), [3 - 5 / 3, 0, 1 - 5 / 3, 1 - 5 / 3], 1e-12)
    close(advantages(f"{to_go},baseline=prompt", batch), np.array([3, 2, 1, 1]) - 1.75, 1e-12)


# MT-GRPO.


def test_mt_grpo():
    # Rollouts of 2, 3, 1 and 2 turns; turn rewards (sums) 1, 0, 1, 0.
    batch = RolloutBatch.from_arrays(
        returns=[1, 1, 0, 0], prompt=[0] * 4, turn_rollout=[0, 0, 1, 1, 1, 2, 3, 3],
        process_reward=[0.5, 0.5, 0, 0, 0, 1, 0, 0],
    )  # fmt: skip
    half = statistics.stdev([1, 1, 0, 0]) + 1e-4
    both = statistics.stdev([2, 1, 1, 0]) + 1e-4
    outcome, turn, alone = [0.5 / half, 0.5 / half, 0, -0.5 / half], [0.5 / half, -0.5 / half], 0.0 / both
    expected = [
        outcome[0] + turn[0], outcome[0], outcome[1] + turn[1], outcome[1], outcome[1], alone,
        outcome[3] + turn[1], outcome[3],
    ]  # fmt: skip
    close(advantages("mt_grpo", batch), expected, 1e-12)
    weighted = advantages("mt_grpo:turn_weight=0.5", batch)
    close(weighted[[0, 2, 6]], [outcome[0] + turn[0] / 2, outcome[1] + turn[1] / 2, outcome[3] + turn[1] / 2], 1e-12)
    close(weighted[[1, 3, 4, 5, 7]], [expected[i] for i in (1, 3, 4, 5, 7)], 1e-12)


# MICA.


def test_mica():
    # Gains 0.2, 0.4 | 0.0; returns 1 | 0. Sums: 1.6, 1.4, 1 | 0, 0. The third turn has nobody to compare with.
    batch = gains([1, 0], [[0.2, 0.4], [0.0]])
    # First turns: gains +-1, sums +-1. Second: the gain is alone (outcome +1), an answer has none; sums 1.4 and 0.
    # Third: alone, the outcome stands in for the sum.
    expected = [0.5 + 0.5, 0.5 + 0.5, 0.5, -0.5 - 0.5, -0.5]
    close(advantages("mica:eps=0", batch), expected, 1e-12)
    close(advantages("mica:eps=0,gain_share=0", batch), [1, 1, 1, -1, -1], 1e-12)
    close(advantages("mica:eps=0,gain_share=1", batch), [1, 1, 0, -1, 0], 1e-12)


def test_mica_discounts_raw_gains_before_it_compares_them():
    batch = gains([1, 0, 0], [[0.2], [0.6], [0.4]])
    returns = [0.2 + 0.5, 0.6, 0.4]
    spread, centre = statistics.pstdev(returns), statistics.mean(returns)
    credit = advantages("mica:eps=0,gamma=0.5,gain_share=0", batch)
    close(credit[[0, 2, 4]], [(value - centre) / spread for value in returns], 1e-12)


# EMPG.


def test_empg():
    # Two rollouts of two turns; mean entropies 0, 1 | 0.5, 0, the masked slot does not count.
    batch = RolloutBatch.from_arrays(
        returns=[1, 0], prompt=[0, 0], turn_rollout=[0, 0, 1, 1], token_mask=[[1, 0], [1, 1], [1, 1], [1, 0]],
        entropy=[[0.0, 7.0], [0.5, 1.5], [0.25, 0.75], [0.0, NAN]],
    )  # fmt: skip
    factor = np.exp(-np.array([0, 1, 0.5, 0]))
    raw = np.array([ROOT, ROOT, -ROOT, -ROOT]) * factor / factor.mean()
    raw += 0.05 * np.array([math.exp(-1), 0, 1, 0])
    close(advantages("empg:eps=0", batch), raw - raw.mean(), 1e-7)
    factor = np.exp(-2 * np.array([0, 1, 0.5, 0]))
    raw = np.array([ROOT, ROOT, -ROOT, -ROOT]) * factor / factor.mean()
    raw += 0.3 * np.array([math.exp(-3), 0, 1, 0])
    close(advantages("empg:eps=0,sharpness=2,clarity=3,bonus=0.3", batch), raw - raw.mean(), 1e-7)


def test_empg_with_equal_entropies_and_no_bonus_is_grpo_less_its_mean():
    batch = RolloutBatch.from_arrays(
        returns=[1, 0, 0], prompt=[0, 0, 0], turn_rollout=[0, 0, 1, 2], entropy=np.full((4, 1), 0.3)
    )
    grpo = advantages("grpo", batch)
    close(advantages("empg:bonus=0", batch), grpo - grpo.mean(), 1e-7)


# Bi-level GAE.


def test_bilevel_gae_by_hand():
    # One rollout, two turns of two tokens; turn level: gamma 0.5, lambda 1.
    batch = RolloutBatch.from_arrays(
        returns=[3.0], prompt=[0], turn_rollout=[0, 0], turn_reward=[1.0, 2.0], token_mask=[[1, 1, 0], [1, 0, 1]],
        value=[0.5, 1.0], token_value=[[0.2, 0.4, 99.0], [0.6, 99.0, 0.8]],
    )  # fmt: skip
    # Turn estimates: 2 for the last, 1 + 0.5 * 2 = 2 for the first. They are the reward of the last token.
    settings = "gae_turn:whitening=none,gamma=0.5"
    close(advantages(settings, batch), [[2 - 0.2, 2 - 0.4, 0], [2 - 0.6, 0, 2 - 0.8]], 1e-12)
    # Tokens: delta of the first 0.9 * 0.4 - 0.2 and 0.9 * 0.8 - 0.6, trace 0.9 * 0.5.
    credit = advantages(f"{settings},token_gamma=0.9,token_lambda=0.5", batch)
    close(credit, [[0.16 + 0.45 * 1.6, 1.6, 0], [0.12 + 0.45 * 1.2, 0, 1.2]], 1e-12)
    flat = RolloutBatch.from_arrays(
        returns=[3.0], prompt=[0], turn_rollout=[0, 0], turn_reward=[1.0, 2.0], token_mask=[[1, 1, 0], [1, 0, 1]],
        value=[0.5, 1.0],
    )  # fmt: skip
    close(advantages(settings, flat), [[1.5, 1.5, 0], [1.0, 0, 1.0]], 1e-12)


def test_bilevel_gae_of_single_tokens_is_ppo():
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(5), [1, 2, 3, 1, 4])
    batch = RolloutBatch.from_arrays(
        returns=np.zeros(5), prompt=np.arange(5), turn_rollout=owner, turn_reward=random.normal(size=11),
        value=random.normal(size=11), final_value=random.normal(size=5),
    )  # fmt: skip
    ppo = advantages("ppo:gamma=0.95,gae_lambda=1,whitening_weight=token", batch)
    close(advantages("gae_turn", batch)[:, 0], ppo, 1e-12)
    assert make_scheme("gae_turn").needs_critic


def test_bilevel_gae_is_whitened_over_tokens():
    random = np.random.default_rng(0)
    mask = random.random((7, 3)) < 0.7
    batch = RolloutBatch.from_arrays(
        returns=np.zeros(3), prompt=np.arange(3), turn_rollout=[0, 0, 1, 1, 1, 2, 2], value=random.normal(size=7),
        turn_reward=random.normal(size=7), token_mask=mask, token_value=random.normal(size=(7, 3)),
    )  # fmt: skip
    credit = advantages("gae_turn:eps=0", batch)
    assert credit[mask].mean() == pytest.approx(0.0, abs=1e-12)
    assert credit[mask].std(ddof=1) == pytest.approx(1.0)
    assert (credit[~mask] == 0).all()


# VGPO.


def test_vgpo():
    # Dense rewards 1, 1 | 0, 2; gamma 0.5: returns to go 1.5, 1 | 1, 2.
    batch = RolloutBatch.from_arrays(
        returns=[2, 2], prompt=[0, 0], turn_rollout=[0, 0, 1, 1], turn_reward=[1.0, 1.0, 0.0, 2.0]
    )
    value, weight = np.array([1.5, 1, 1, 2]), np.array([1.5 / 1.25, 1 / 1.25, 1 / 1.5, 2 / 1.5])
    compared = np.array([ROOT, -ROOT, -ROOT, ROOT])
    close(advantages("vgpo:eps=0,gamma=0.5", batch), weight * (compared + 0.1 * value), 1e-12)
    close(advantages("vgpo:eps=0,gamma=0.5,anchor=0", batch), weight * compared, 1e-12)
    close(advantages("vgpo:eps=0,gamma=0.5,weights=none,anchor=2", batch), compared + 2 * value, 1e-12)


def test_vgpo_keeps_a_signal_where_all_rewards_are_equal():
    batch = RolloutBatch.from_arrays(returns=[1, 1], prompt=[0, 0])
    close(advantages("vgpo", batch), [0.1, 0.1], 1e-12)
    assert advantages("vgpo", RolloutBatch.from_arrays(returns=[0, 0], prompt=[0, 0])).tolist() == [0.0, 0.0]


def test_vgpo_refuses_negative_rewards():
    with pytest.raises(ValueError, match="weights='temporal' needs rewards >= 0"):
        advantages("vgpo", RolloutBatch.from_arrays(returns=[1, -1], prompt=[0, 0]))


def test_vgpo_without_anchor_and_discount_is_grpo():
    batch = RolloutBatch.from_arrays(returns=[1, 0, 0, 1], prompt=[0, 0, 0, 0], turn_rollout=[0, 0, 1, 1, 2, 2, 3, 3])
    close(advantages("vgpo:anchor=0,gamma=1", batch), advantages("grpo", batch), 1e-12)


# Optimal token baseline.


def test_otb_by_hand():
    # Two rollouts of 2 and 3 tokens, over two turns; p = 0.5 and sum of squares 0.5 give a norm of 0.5 each.
    log_prob = np.log([[0.5, 0.5], [0.2, 0.9], [0.5, 0.5]])
    squares = np.array([[0.5, 0.5], [0.6, 0.1], [0.5, 0.5]])
    batch = RolloutBatch.from_arrays(
        returns=[1.0, 3.0], prompt=[0, 0], turn_rollout=[0, 1, 1], turn_reward=[1.0, 2.0, 1.0],
        token_mask=[[1, 1], [1, 0], [1, 1]], log_prob=log_prob, probability_square=squares,
    )  # fmt: skip
    # Sums of the norms: 0.5, 1 | 1.2, 1.7, 2.2. Rewards to go: 1, 1 | 3, 1, 1.
    first = (0.5 * 1 + 1.2 * 3) / 1.7
    second = (1.0 * 1 + 1.7 * 1) / 2.7
    expected = [[1 - first, 1 - second], [3 - first, 0], [1 - second, 1.0]]
    close(advantages("otb", batch), expected, 1e-12)
    expected[2][1] = 0.0
    close(advantages("otb:zero_tail=false", batch), expected, 1e-12)


def test_otb_of_a_rollout_without_company_has_no_baseline():
    columns = {"turn_reward": [1.0, 2.0], "log_prob": [[-1.0]] * 2, "probability_square": [[0.5]] * 2}
    batch = RolloutBatch.from_arrays(returns=[3.0], prompt=[0], turn_rollout=[0, 0], **columns)
    for settings in ("", ":zero_tail=false"):
        assert advantages(f"otb{settings}", batch).tolist() == [[3.0], [2.0]]
    # A member that wrote nothing is no company.
    silent = RolloutBatch.from_arrays(
        returns=[3.0, 5.0], prompt=[0, 0], turn_rollout=[0, 0, 1], turn_reward=[1.0, 2.0, 5.0],
        token_mask=[[1], [1], [0]], log_prob=[[-1.0]] * 3, probability_square=[[0.5]] * 3,
    )  # fmt: skip
    for settings in ("", ":zero_tail=false"):
        assert advantages(f"otb{settings}", silent).tolist() == [[3.0], [2.0], [0.0]]


def test_otb_with_equal_weights_subtracts_the_mean():
    batch = RolloutBatch.from_arrays(
        returns=[1.0, 3.0, 8.0], prompt=[0, 0, 0], log_prob=[[-1.0]] * 3, probability_square=[[0.5]] * 3
    )
    close(advantages("otb", batch), [[-3.0], [-1.0], [4.0]], 1e-12)


def test_otb_of_sure_tokens_is_finite():
    batch = RolloutBatch.from_arrays(
        returns=[1.0, 3.0], prompt=[0, 0], log_prob=[[0.0]] * 2, probability_square=[[1.0]] * 2
    )
    assert advantages("otb", batch).tolist() == [[1.0], [3.0]]


# Signal reshaping.


def reshaped(process, **columns):
    """Two rollouts of one prompt: two turns of 1 and 3 tokens, and one turn."""
    columns = {"truncated": [False, False], **columns}
    return RolloutBatch.from_arrays(
        returns=[1, 0], prompt=[0, 0], turn_rollout=[0, 0, 1], token_mask=[[1, 0, 0], [1, 1, 1], [1, 1, 0]],
        process_reward=process, **columns,
    )  # fmt: skip


def test_signal_reshaping_moves_credit_and_keeps_the_mass():
    # Scores 2 and 1 over 1 and 3 tokens: 4 / 5 times each.
    credit = advantages("signal_reshaping:eps=0", reshaped([2.0, 1.0, 0.3]))
    close(credit, [ROOT * 1.6, ROOT * 0.8, -ROOT], 1e-12)
    assert credit[0] + 3 * credit[1] == pytest.approx(4 * ROOT)
    for alike in ([5.0, 5.0, 0.1], [0.0, 0.0, 0.0]):
        close(advantages("signal_reshaping:eps=0", reshaped(alike)), [ROOT, ROOT, -ROOT], 1e-12)


def test_signal_reshaping_of_rollouts_that_were_cut():
    batch = reshaped([2.0, 1.0, 1.0], truncated=[True, False])
    close(advantages("signal_reshaping:eps=0", batch), [0, ROOT * 0.8, -ROOT], 1e-12)
    close(advantages("signal_reshaping:eps=0,of_truncated=none", batch), [0, 0, -ROOT], 1e-12)
    everything = [ROOT * 1.6, ROOT * 0.8, -ROOT]
    close(advantages("signal_reshaping:eps=0,of_truncated=all", batch), everything, 1e-12)
    unknown = reshaped([2.0, 1.0, 1.0], truncated=None)
    close(advantages("signal_reshaping:eps=0,of_truncated=all", unknown), everything, 1e-12)
    with pytest.raises(ValueError, match="truncated=None is not allowed with this scheme"):
        advantages("signal_reshaping", unknown)


def test_scores_of_turns_are_numbers_that_are_not_negative():
    for wrong in (-1.0, NAN):
        with pytest.raises(ValueError, match=f"process_reward={wrong} is not allowed: scores of turns must be numbers"):
            advantages("signal_reshaping", reshaped([2.0, wrong, 1.0]))
    with pytest.raises(ValueError, match="process_reward must be finite where rollouts count; it holds nan"):
        advantages("mt_grpo", reshaped([2.0, NAN, 1.0]))
