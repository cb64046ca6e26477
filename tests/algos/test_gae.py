"""Generalised advantage estimation over turns, by hand."""

import numpy as np
import pytest

from algos import RolloutBatch, advantages
from algos.advantages.gae import generalised_advantage
from algos.scheme import make_scheme


def gae(gamma, lam, **columns):
    batch = RolloutBatch.from_arrays(
        returns=np.zeros(max(columns["turn_rollout"]) + 1),
        prompt=np.zeros(max(columns["turn_rollout"]) + 1, int),
        **columns,
    )
    return generalised_advantage(make_scheme("ppo", gamma=gamma, gae_lambda=lam), batch)


@pytest.mark.parametrize(
    ("final", "expected"),
    [
        pytest.param([10.0], [4.0, 6.0], id="truncated"),
        pytest.param([0.0], [1.5, 1.0], id="terminated, or both"),
        pytest.param(None, [1.5, 1.0], id="no final values"),
    ],
)
def test_p30_truncation_bootstraps_and_termination_does_not(final, expected):
    credit = gae(0.5, 1.0, turn_rollout=[0, 0], turn_reward=[1, 1], value=[0, 0], final_value=final)
    assert credit.tolist() == expected  # V is 0, so the advantages are the returns.


def test_p30_the_next_rollout_never_appears():
    alone = gae(0.9, 0.7, turn_rollout=[0, 0], turn_reward=[1, 2], value=[3, 4], final_value=[5])
    both = gae(
        0.9, 0.7, turn_rollout=[0, 0, 1, 1], turn_reward=[1, 2, 50, 60], value=[3, 4, 500, 600],
        final_value=[5, 700],
    )  # fmt: skip
    assert both[:2].tolist() == alone.tolist()


def test_by_hand():
    # gamma 0.5, lambda 0.5: deltas 1 + 2 - 2 = 1, 0 + 3 - 4 = -1, 2 + 4 - 6 = 0.
    credit = gae(
        0.5, 0.5, turn_rollout=[0, 0, 0], turn_reward=[1, 0, 2], value=[2, 4, 6], final_value=[8]
    )  # fmt: skip
    assert credit.tolist() == [1 - 0.25, -1.0, 0.0]


def test_lambda_0_is_the_temporal_difference_and_lambda_1_the_return():
    columns = {"turn_rollout": [0, 0], "turn_reward": [1.0, 3.0], "value": [2.0, 5.0], "final_value": [7.0]}
    assert gae(0.5, 0.0, **columns).tolist() == [1 + 2.5 - 2, 3 + 3.5 - 5]
    assert gae(0.5, 1.0, **columns).tolist() == [1 + 1.5 + 1.75 - 2, 3 + 3.5 - 5]


def loop(gamma, lam, owner, reward, value, final, written):
    """Turn by turn, from the back."""
    result = np.zeros(len(owner))
    for rollout in range(max(owner) + 1):
        following, trace, passed = final[rollout], 0.0, 0.0
        for turn in reversed([t for t, o in enumerate(owner) if o == rollout]):
            passed += reward[turn]
            if written[turn]:
                trace = passed + gamma * following - value[turn] + gamma * lam * trace
                result[turn], following, passed = trace, value[turn], 0.0
    return result


@pytest.mark.parametrize("seed", range(3))
def test_ragged_rollouts_in_any_order_equal_a_loop(seed):
    random = np.random.default_rng(seed)
    m, n = 60, 12
    owner = np.concatenate([np.arange(n), random.integers(0, n, m - n)])
    random.shuffle(owner)
    reward, value, final = random.normal(size=m), random.normal(size=m), random.normal(size=n)
    written = random.random(m) < 0.7
    credit = gae(
        0.9, 0.8, turn_rollout=owner, turn_reward=reward, value=value, final_value=final,
        token_mask=written[:, None],
    )  # fmt: skip
    expected = loop(0.9, 0.8, owner.tolist(), reward, value, final, written)
    np.testing.assert_allclose(credit, expected, rtol=1e-12, atol=1e-12)


def test_p15_credit_crosses_masked_turns_without_decay():
    credit = gae(
        0.5, 1.0, turn_rollout=[0] * 4, turn_reward=[0, 0, 0, 1], value=[0, 99, 0, 99],
        token_mask=[[1], [0], [1], [0]],
    )  # fmt: skip
    assert credit.tolist() == [0.5, 0.0, 1.0, 0.0]


def test_p15_the_return_is_the_sum_of_all_turn_rewards():
    credit = gae(1.0, 1.0, turn_rollout=[0] * 3, turn_reward=[0.2, 0, 0.3], value=[0, 0, 0])
    assert credit.tolist() == [0.5, 0.3, 0.3]


def test_rollouts_that_do_not_count_leave_no_trace():
    columns = {
        "returns": [1.0, 2.0], "prompt": [0, 0], "turn_rollout": [0, 0, 1],
        "turn_reward": [1.0, 2.0, 3.0], "value": [1.0, 5.0, 2.0], "final_value": [0.0, 1.0],
    }  # fmt: skip
    expected = advantages("ppo", RolloutBatch.from_arrays(**columns))
    garbage = {
        "returns": [1.0, 2.0, np.nan, 4.0], "prompt": [0, 0, 0, 0], "turn_rollout": [2, 0, 0, 3, 1, 2],
        "turn_reward": [np.nan, 1.0, 2.0, np.inf, 3.0, 1.0],
        "value": [np.nan, 1.0, 5.0, np.inf, 2.0, -np.inf], "final_value": [0.0, 1.0, np.nan, np.inf],
        "valid": [1, 1, 1, 0],
    }  # fmt: skip
    credit = advantages("ppo", RolloutBatch.from_arrays(**garbage))
    assert credit[[1, 2, 4]].tolist() == expected.tolist()
    assert credit[[0, 3, 5]].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("weight", "counts"), [("turn", [1, 1, 1]), ("rollout", [0.5, 0.5, 1]), ("token", [1, 3, 2])])
def test_whitening_counts_what_it_says(weight, counts):
    columns = {
        "returns": [0.0, 0.0], "prompt": [0, 0], "turn_rollout": [0, 0, 1], "turn_reward": [1.0, 2.0, 7.0],
        "value": [0.0] * 3, "token_mask": [[1, 0, 0], [1, 1, 1], [1, 1, 0]],
    }  # fmt: skip
    batch = RolloutBatch.from_arrays(**columns)
    raw = advantages("ppo:whitening=none", batch)
    total = sum(counts)
    mean = sum(c * a for c, a in zip(counts, raw, strict=True)) / total
    variance = sum(c * (a - mean) ** 2 for c, a in zip(counts, raw, strict=True)) / (total - 1)
    np.testing.assert_allclose(
        advantages(f"ppo:whitening_weight={weight},eps=0", batch), (raw - mean) / variance**0.5, rtol=1e-12
    )


def test_the_recipe_whitens_over_turns():
    batch = RolloutBatch.from_arrays(
        returns=[0.0, 0.0],
        prompt=[0, 0],
        turn_rollout=[0, 0, 1],
        turn_reward=[1.0, 2.0, 7.0],
        value=[0.0] * 3,
    )
    credit = advantages("ppo", batch)
    assert credit.mean() == pytest.approx(0.0, abs=1e-12)
    assert credit.std(ddof=1) == pytest.approx(1.0, abs=1e-5)


def test_missing_and_broken_values_raise():
    with pytest.raises(ValueError, match="value=None is not allowed with this scheme"):
        advantages("ppo", RolloutBatch.from_arrays(returns=[1.0], prompt=[0]))
    for broken in ({"value": [np.nan]}, {"value": [0.0], "final_value": [np.inf]}):
        with pytest.raises(ValueError, match="value and final_value must be finite"):
            advantages("ppo", RolloutBatch.from_arrays(returns=[1.0], prompt=[0], **broken))
