"""State-level credit: published vectors and cases by hand."""

import math
import statistics
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import agentic_gym  # noqa: F401  it registers its environments
from algos import RolloutBatch, advantages

ROOT = math.sqrt(0.5)


def close(actual, expected, tolerance=2e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def walks(returns, paths, success=None, **columns):
    """Rollouts of one prompt, one letter of their path per turn."""
    owner = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
    keys = [letter for path in paths for letter in path]
    columns = {"prompt": [0] * len(paths), "turn_rollout": owner, "state_key": keys, **columns}
    return RolloutBatch.from_arrays(returns, success=success, **columns)


# agentic-credit.md 11 F and G: a success over a, b, c and a failure over a, b, a, d.

ABOVE = ([10, 0], ["abc", "abad"], [True, False])
STEP = [6.016667, 4.75, 0, -3.008333, -4.75, -3.008333, 0]
STEP_STD = [1.154700, 0.707107, 0, -0.577350, -0.707107, -0.577350, 0]


@pytest.mark.parametrize(
    ("settings", "episode", "step"),
    [
        ("", [5.714286, -4.285714], STEP),
        (",across=rollouts", [5, -5], STEP),
        (",norm=mean_std,eps=0", [1.069045, -0.801784], STEP_STD),
        (",norm=mean_std,eps=0,across=rollouts", [ROOT, -ROOT], STEP_STD),
    ],
)
def test_vector_gigpo(settings, episode, step):
    whole = np.repeat(episode, [3, 4])
    batch = walks(*ABOVE)
    close(advantages(f"gigpo:step_weight=1{settings}", batch), whole + step)
    close(advantages(f"gigpo:step_weight=0{settings}", batch), whole)
    close(advantages(f"gigpo:step_weight=2{settings}", batch), whole + 2 * np.array(step))


def test_gigpo_returns_to_go_count_each_reward_once():
    # Steps 0, 0, 1 with gamma 1: reward to go 1, 1, 1, never 3, 2, 1.
    batch = RolloutBatch.from_arrays(
        [1, 0], prompt=[0, 0], turn_rollout=[0, 0, 0, 1, 1, 1], turn_reward=[0, 0, 1, 0, 0, 0], state_key=list("abcabc")
    )
    close(advantages("gigpo:gamma=1,across=rollouts", batch), [1, 1, 1, -1, -1, -1], 1e-12)


def test_vector_g2po():
    expected = [8.261012, 13.410804, 5.602262, -1.738988, -9.873363, -10.763988, -4.897738]
    close(advantages("g2po", walks(*ABOVE)), expected)
    expected = [2.055931, 3.494917, 1.025040, 0.185103, -2.399254, -3.319538, -1.042197]
    close(advantages("g2po:norm=mean_std,eps=0", walks(*ABOVE)), expected)
    paths = advantages("g2po:across=rollouts", walks(*ABOVE)) - advantages("g2po", walks(*ABOVE))
    close(paths, np.repeat([5 - 5.714286, -5 + 4.285714], [3, 4]))


def test_g2po_of_failures_and_of_a_single_step():
    assert advantages("g2po", walks([0, 0], ["ab", "ac"], [False, False])).tolist() == [0.0] * 4
    for norm in ("mean", "mean_std"):
        assert advantages(f"g2po:norm={norm}", walks([1], ["a"], [True])).tolist() == [0.0]


def test_the_success_column_is_needed():
    for recipe in ("g2po", "graphgpo"):
        with pytest.raises(ValueError, match="success=None is not allowed with this scheme"):
            advantages(recipe, walks([1, 0], ["a", "a"]))
    with pytest.raises(ValueError, match="state_key=None is not allowed with this scheme"):
        advantages("gigpo", RolloutBatch.from_arrays([1, 0], [0, 0]))


# Anchors.


def test_p18_states_are_compared_within_a_prompt():
    batch = walks([0, 1, 10, 20], ["s", "s", "s", "s"], prompt=["A", "A", "B", "B"])
    close(advantages("gigpo:norm=mean_std,eps=0,step_weight=0", batch), [-ROOT, ROOT, -ROOT, ROOT])
    close(advantages("gigpo:norm=mean_std,eps=0", batch), 2 * np.array([-ROOT, ROOT, -ROOT, ROOT]))


def test_p18_an_anchor_of_one_has_no_step_credit():
    batch = walks([1, 0], ["ab", "ac"])
    credit = advantages("gigpo", batch) - advantages("gigpo:step_weight=0", batch)
    close(credit, [0.475, 0, -0.475, 0], 1e-12)


def test_p18_keys_of_two_processes_are_equal():
    code = (
        "import gymnasium, agentic_gym\n"
        "environment = gymnasium.make_vec('agentic_gym/Chain-v0', 4)\n"
        "print(environment.reset(seed=3)[1]['state_key'].tolist())"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    environment = gymnasium.make_vec("agentic_gym/Chain-v0", 4)
    assert there.strip() == str(environment.reset(seed=3)[1]["state_key"].tolist())


def test_a_revisited_state_has_several_entries():
    # One rollout alone: the two visits of a are compared, its last turn is not.
    close(advantages("gigpo:gamma=0.5", walks([4], ["aba"])), [1 - 2.5, 0, 4 - 2.5], 1e-12)


def test_a_group_of_one_can_keep_its_return():
    batch = walks([4, 1, 3], ["ab", "c", "d"], prompt=[0, 1, 1])
    close(advantages("gigpo:singleton=raw,norm=mean_std,eps=0", batch), [4, 4, -ROOT, ROOT], 1e-12)
    close(advantages("gigpo:singleton=raw,across=rollouts", batch), [4, 4, -1, 1], 1e-12)
    close(advantages("gigpo", batch), [0, 0, -1, 1], 1e-12)


def test_turns_without_tokens_are_no_visits():
    batch = RolloutBatch.from_arrays(
        [10, 0], prompt=[0, 0], success=[True, False], turn_rollout=[0, 0, 0, 1, 0, 1, 1, 1, 1, 1],
        state_key=["a", "z", "b", "a", "c", "b", "a", "c", "d", "a"],
        token_mask=[[1], [0], [1], [1], [1], [1], [1], [0], [1], [0]],
    )  # fmt: skip
    order = [0, 2, 4, 3, 5, 6, 8]
    for recipe in ("gigpo", "g2po", "graphgpo", "hgpo"):
        close(advantages(recipe, batch)[order], advantages(recipe, walks(*ABOVE)), 1e-12)
        assert (np.delete(advantages(recipe, batch), order) == 0).all()


# HGPO.


def test_hgpo():
    # Three rollouts over x, a | y, a | x, a; gamma 0.5; returns to go 0.5, 1 | 1.5, 3 | 2.5, 5.
    batch = walks([1, 3, 5], ["xa", "ya", "xa"])

    def scores(values):
        return [(value - statistics.mean(values)) / statistics.pstdev(values) for value in values]

    (ones, twos), three = scores([1, 5]), scores([1, 3, 5])
    # First turns: x is shared by two, y by nobody; there is no longer history.
    # Second turns: a is shared by all (weight 2), x then a by two (weight 3).
    total = 5 + 1e-6
    expected = [
        2 * ones / (2 + 1e-6), (2 * three[0] + 3 * ones) / total,
        0.0, 0.0,
        2 * twos / (2 + 1e-6), (2 * three[2] + 3 * twos) / total,
    ]  # fmt: skip
    close(advantages("hgpo:gamma=0.5,eps=0", batch), expected, 1e-9)
    none = advantages("hgpo:gamma=0.5,eps=0,history=0", batch)
    close(none[[1, 3, 5]], [2 * score / (2 + 1e-6) for score in three], 1e-9)
    sharp = advantages("hgpo:gamma=0.5,eps=0,sharpness=2", batch)
    close(sharp[[1, 5]], [(4 * three[i] + 9 * score) / (13 + 1e-6) for i, score in ((0, ones), (2, twos))], 1e-9)
    # Level 0, of weight 1, is the whole rollout; the middle one has no advantage there.
    level = advantages("hgpo:gamma=0.5,eps=0,episode_level=true", batch)
    close(level[[0, 1]], [(three[0] + 2 * ones) / (3 + 1e-6), (3 * three[0] + 3 * ones) / (6 + 1e-6)], 1e-9)
    assert level[2] == 0.0


def test_hgpo_history_reaches_back_through_equal_states_only():
    # The last two states agree, the one before does not.
    batch = walks([0, 2], ["xab", "yab"])
    close(advantages("hgpo:gamma=1,eps=0", batch), [0, -1, -1, 0, 1, 1], 1e-6)
    third = walks([0, 2, 4], ["xab", "yab", "xab"])
    # At b: all three over b and over a, b; two over x, a, b.
    score = 2 / statistics.pstdev([0, 2, 4])
    expected = (2 + 3) * score + 4 * 1
    close(advantages("hgpo:gamma=1,eps=0", third)[[2, 8]], [-expected / 9, expected / 9], 1e-6)


def test_hgpo_does_not_take_rounding_for_a_comparison():
    # The middle rollout is at the mean; with an offset its deviation would be rounding.
    for offset in (0.0, 0.1, 1e6 + 0.1):
        batch = walks(np.array([0.1, 0.2, 0.3]) + offset, ["xa", "xa", "ya"])
        credit = advantages("hgpo:gamma=1,eps=0,history=1", batch)
        # a: at the mean, no advantage; x, a: one of two.
        close(credit[[2, 3]], [1, 1], 1e-3)


def test_hgpo_without_shared_states_has_no_signal():
    assert advantages("hgpo", walks([1, 0], ["ab", "cd"])).tolist() == [0.0] * 4


@pytest.mark.parametrize("scheme", ["gigpo:norm=mean_std,gamma=1,eps=0", "hgpo:gamma=1,eps=0"])
def test_p04_rewards_that_cancel_leave_no_rounding(scheme):
    rewards = [0.1, 0.2, -0.3, 0.0, 0.0, 0.0, 0.3, -0.2, -0.1]
    credit = advantages(scheme, walks([0, 0, 0], ["abc"] * 3, turn_reward=rewards))
    assert credit[[0, 3, 6]].tolist() == [0.0] * 3
    assert (credit[[2, 5, 8]] != 0).all()


def test_p04_means_of_equal_values_leave_no_rounding():
    # (0.1 + 0.1 + 0.1) / 3 is not 0.1 in floating point.
    batch = walks([0.1] * 3, ["aaa", "aa", "a"], [True] * 3)
    assert advantages("g2po:norm=mean_std,gamma=1,eps=0", batch).tolist() == [0.0] * 6


# GraphGPO.


def graph_step(values, states):
    """Compare values among equal states, with the sample spread."""
    result = []
    for value, state in zip(values, states, strict=True):
        peers = [v for v, s in zip(values, states, strict=True) if s == state]
        spread = statistics.stdev(peers) if len(peers) > 1 else 0.0
        result.append((value - statistics.mean(peers)) / spread if spread else 0.0)
    return np.array(result)


def test_graphgpo():
    # Distances to success: c 1, b 2, a 3; d has no way and is one farther than the farthest: 4.
    batch = walks(*ABOVE)
    after = [2, 1, 0, 2, 3, 4, 4]
    step = graph_step([10 * 0.1**d for d in after], "abcabad")
    episode = np.repeat([1.069045, -0.801784], [3, 4])
    close(advantages("graphgpo:eps=0", batch), episode + step)
    close(advantages("graphgpo:eps=0,step_weight=0.5", batch), episode + 0.5 * step)
    plain = [5 * 0.5**d for d in after]
    means = {s: statistics.mean(v for v, k in zip(plain, "abcabad", strict=True) if k == s) for s in "abcd"}
    centred = [v - means[s] for v, s in zip(plain, "abcabad", strict=True)]
    other = advantages("graphgpo:norm=mean,success_value=5,distance_discount=0.5", batch)
    close(other, np.repeat([5.714286, -4.285714], [3, 4]) + centred)


def test_graphgpo_relative_distances():
    before, after = np.array([3, 2, 1, 3, 2, 3, 4]), np.array([2, 1, 0, 2, 3, 4, 4])
    step = graph_step((10 * 0.1 ** (after - before + 1.0)).tolist(), "abcabad")
    credit = advantages("graphgpo:eps=0,relative=true", walks(*ABOVE))
    close(credit, np.repeat([1.069045, -0.801784], [3, 4]) + step)


def test_graphgpo_takes_the_shortest_way_that_anybody_went():
    # The success wanders a, b, a, c; a failure shows that c follows a at once.
    batch = walks([1, 0], ["abac", "acd"], [True, False])
    # c 1, a 2, b 3; d cannot: 4. After the turns: b 3, a 2, c 1, success 0 | c 1, d 4, none 4.
    step = graph_step([10 * 0.1**d for d in (3, 2, 1, 0, 1, 4, 4)], "abacacd")
    assert step[0] < step[2] == step[4]
    episode = graph_step([1, 1, 1, 1, 0, 0, 0], "sssssss")
    close(advantages("graphgpo:eps=0", batch), episode + step)


def test_graphgpo_without_success_is_the_group_part_alone():
    batch = walks([0.2, 0], ["abac", "acd"], [False, False])
    close(advantages("graphgpo:eps=0", batch), graph_step([0.2] * 4 + [0] * 3, "sssssss"))
    assert advantages("graphgpo", walks([0, 0], ["ab", "ac"], [False, False])).tolist() == [0.0] * 4


def test_graphgpo_graphs_are_of_one_prompt():
    # In the other prompt the same state leads to success at once.
    columns = {"prompt": [0, 0, 1], "success": [True, False, True]}
    batch = walks([1, 0, 1], ["abc", "ad", "a"], **columns)
    alone = walks([1, 0], ["abc", "ad"], [True, False])
    assert advantages("graphgpo", batch)[:5].tolist() == advantages("graphgpo", alone).tolist()


def test_graphgpo_says_what_it_ignores():
    with pytest.raises(ValueError, match=r"gamma=0\.5 has no effect here"):
        advantages("graphgpo:gamma=0.5", walks(*ABOVE))
