"""RolloutBatch: columns, ids, and what is refused."""

import numpy as np
import pytest
import torch

from algos import RolloutBatch, advantages


def test_defaults():
    batch = RolloutBatch.from_arrays(returns=[1, 0, 3], prompt=["a", "a", "b"])
    assert (len(batch), batch.n_turns) == (3, 3)
    assert batch.turn_rollout.tolist() == [0, 1, 2]
    assert batch.turn_reward.tolist() == [1.0, 0.0, 3.0]
    assert batch.token_mask.tolist() == [[True]] * 3
    assert batch.valid.all()
    assert batch.returns.dtype == np.float64
    assert batch.level("environment").size == batch.level("task").size == batch.level("batch").size == 1
    assert batch.level("prompt").size == 2


@pytest.mark.parametrize(
    "ids",
    [
        [7, 7, 9, 9],
        [-7, -7, 0, 0],
        ["x", "x", "y", "y"],
        np.array(["x", "x", "y", "y"]),
        np.array(["x", "x", "y", "y"], dtype=object),
        np.array(["x", "x", "y", "y"], dtype=np.dtypes.StringDType()),
        [np.str_("x"), "x", np.str_("y"), "y"],
        [b"x", b"x", b"y", b"y"],
        np.array([1, 1, 2**63 - 1, 2**63 - 1], dtype=np.uint64),
        np.array([1, 1, 2, 2], dtype=object),
        [2**63, 2**63, 1, 1],
        [-(2**70), -(2**70), 2**70, 2**70],
        (1, 1, 2, 2),
        torch.tensor([1, 1, 2, 2]),
        [True, True, False, False],
        ["a" * 300 + "x", "a" * 300 + "x", "a" * 300 + "y", "a" * 300 + "y"],
    ],
    ids=str,
)
def test_ids_are_any_integers_or_strings(ids):
    batch = RolloutBatch.from_arrays(returns=[1, 0, 5, 9], prompt=ids, environment=ids, task=ids)
    np.testing.assert_allclose(advantages("grpo:eps=0", batch), np.array([1, -1, -1, 1]) * 0.5**0.5, rtol=1e-12)
    for level in ("prompt", "task", "environment"):
        assert batch.level(level).size == 2


@pytest.mark.parametrize(
    "ids",
    [
        [1.0, 1.0, 2.0, 2.0], [None, 1, 2, 2], ["a", None, "b", "b"], [1, "1", 2, "2"], [1, 2, 3],
        [[1, 1, 2, 2]], 5, ["a", 1.0, "b", "b"], [2**70, 1.0, 2, 2],
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", ["prompt", "environment", "task"])
def test_other_ids_are_refused(name, ids):
    columns = {"prompt": [1, 1, 2, 2], name: ids}
    with pytest.raises(ValueError, match=f"{name} has shape .* it must be 4 integers or strings"):
        RolloutBatch.from_arrays(returns=[1, 0, 5, 9], **columns)


def test_prompt_ids_are_read_within_their_environment():
    batch = RolloutBatch.from_arrays(returns=[0, 100, 1, 101], prompt=[0, 0, 0, 0], environment=[0, 1, 0, 1])
    np.testing.assert_allclose(advantages("grpo:eps=0", batch), np.array([-1, -1, 1, 1]) * 0.5**0.5, rtol=1e-12)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"returns": [[1.0, 0.0]]}, r"returns has shape \(1, 2\)"),
        ({"returns": []}, r"returns has shape \(0,\)"),
        ({"returns": 3.0}, r"returns has shape \(\)"),
        ({"returns": ["a", "b"]}, "returns must be numbers, None or NaN"),
        ({"returns": [[1], [1, 2]]}, "returns must be numbers, None or NaN"),
        ({"valid": [True]}, r"valid has shape \(1,\)"),
        ({"valid": [2, 0]}, "valid has shape .* True or False"),
        ({"valid": [np.nan, 0]}, "valid has shape .* True or False"),
        ({"turn_rollout": [0, 2]}, r"turn_rollout must be integers of shape \(M,\) in \[0, 1\]"),
        ({"turn_rollout": [-1, 0]}, "turn_rollout must be integers"),
        ({"turn_rollout": [0.0, 1.0]}, "turn_rollout must be integers"),
        ({"turn_rollout": [[0], [1]]}, "turn_rollout must be integers"),
        ({"turn_reward": [1.0]}, r"turn_reward has shape \(1,\); it must have 2 rows"),
        ({"components": [1.0, 2.0]}, "components has shape .* 2 rows and 2 dimension"),
        ({"information_gain": [1.0]}, "information_gain has shape"),
        ({"state_key": [1.5, 2.5]}, "state_key has shape .* 2 integers or strings"),
        ({"token_mask": [True, True]}, "token_mask has shape .* in 2 dimension"),
        ({"token_mask": [[True]]}, "token_mask has shape"),
        ({"token_mask": [[0.5], [1.0]]}, "token_mask has shape"),
        ({"process_reward": [[1.0], [2.0]]}, "process_reward has shape .* 1 dimension"),
        ({"success": [0.5, 1.0]}, "success has shape .* True or False"),
        ({"truncated": [True]}, "truncated has shape"),
        ({"greedy_return": [1.0]}, "greedy_return has shape"),
        ({"drift": ["a", "b"]}, "drift must be numbers"),
        ({"entropy": [1.0, 2.0]}, "entropy has shape .* 2 dimension"),
        ({"entropy": [[1.0, 2.0], [1.0, 2.0]]}, r"entropy has shape \(2, 2\); it must have the token mask's, \(2, 1\)"),
        ({"log_prob": [[1.0]]}, "log_prob has shape"),
        ({"probability_square": [[1.0, 2.0]] * 2}, "probability_square has shape .* the token mask's"),
        ({"token_value": [[1.0, 2.0]] * 2}, "token_value has shape .* the token mask's"),
        ({"context": [1.0, 2.0]}, "context has shape .* 2 rows and 2 dimension"),
        ({"value": [1.0]}, "value has shape"),
        ({"final_value": [1.0]}, "final_value has shape"),
        ({"max_tokens": 0}, "max_tokens=0 is not allowed"),
        ({"max_tokens": 2.5}, "max_tokens=2.5 is not allowed"),
    ],
)
def test_columns_of_the_wrong_shape_or_type_are_named(columns, message):
    with pytest.raises(ValueError, match=message):
        RolloutBatch.from_arrays(**{"returns": [1.0, 0.0], "prompt": [1, 1], **columns})


def test_p11_unknown_columns_raise_type_error():
    with pytest.raises(TypeError, match="rewards"):
        RolloutBatch.from_arrays(rewards=[1.0], prompt=[1])


def test_turns_in_any_order():
    batch = RolloutBatch.from_arrays(
        returns=[1, 2, 3, 4], prompt=[0, 0, 0, 0], turn_rollout=[2, 0, 2, 1, 0, 2],
        token_mask=[[1, 1], [1, 0], [0, 0], [1, 1], [1, 1], [0, 1]],
    )  # fmt: skip
    assert batch.turn_index.tolist() == [0, 0, 1, 0, 1, 2]
    assert batch.turns_per_rollout.tolist() == [2, 1, 3, 0]
    assert batch.turn_reward.tolist() == [0.0, 0.0, 0.0, 2.0, 1.0, 3.0]
    assert batch.tokens_per_turn.tolist() == [2, 1, 0, 2, 2, 1]
    assert batch.tokens_per_rollout.tolist() == [3.0, 2.0, 3.0, 0.0]
    assert batch.written_turns.tolist() == [2.0, 1.0, 2.0, 0.0]
    assert advantages("dr_grpo", batch).tolist() == [0.5, -1.5, 0.5, -0.5, -1.5, 0.5]


def test_turns_of_a_rollout_one_after_the_other():
    batch = RolloutBatch.from_arrays(
        returns=[1, 2, 3, 4], prompt=[0, 0, 0, 0], turn_rollout=[2, 0, 2, 1, 0, 2, 2],
        token_mask=[[1], [1], [0], [1], [1], [1], [0]],
    )  # fmt: skip
    assert batch.in_order.tolist() == [1, 4, 3, 0, 2, 5, 6]
    assert batch.first_place.tolist() == [0, 2, 3, 7]
    assert batch.next_written.tolist() == [5, 4, -1, -1, -1, -1, -1]
    assert batch.written_index.tolist() == [0, 0, 1, 0, 1, 1, 2]
    assert batch.last_written.tolist() == [False, False, False, True, True, True, False]


def test_levels_of_turns():
    batch = RolloutBatch.from_arrays(
        returns=[1, 2, 3], prompt=[0, 0, 1], turn_rollout=[0, 0, 1, 2, 2], token_mask=[[1], [0], [1], [1], [1]],
        state_key=[5, 6, 5, 5, 5],
    )  # fmt: skip
    prompt, turn, state = (batch.turn_level(name).ids.tolist() for name in ("prompt", "turn", "state"))
    assert prompt == [0, 0, 0, 1, 1]
    assert state == [0, 1, 0, 2, 2]
    assert turn[0] == turn[2] != turn[3] != turn[4]
    assert batch.turn_level("state") is batch.turn_level("state")
    with pytest.raises(ValueError, match="state_key=None is not allowed with this scheme"):
        RolloutBatch.from_arrays(returns=[1], prompt=[0]).turn_level("state")


def test_batches_without_any_turn():
    batch = RolloutBatch.from_arrays(returns=[1, 2], prompt=[0, 0], turn_rollout=np.zeros(0, np.int64))
    assert batch.n_turns == 0
    assert batch.turn_index.tolist() == []
    assert advantages("grpo", batch).shape == (0,)


def test_p05_infinite_rewards_raise_and_name_the_group():
    for infinite in (np.inf, -np.inf):
        with pytest.raises(ValueError, match="group prompt='bad' has an infinite return"):
            RolloutBatch.from_arrays(returns=[1.0, infinite], prompt=["good", "bad"])
        with pytest.raises(ValueError, match="group prompt=-3 has an infinite return"):
            RolloutBatch.from_arrays(
                returns=[1.0, 0.0], prompt=[4, -3], turn_rollout=[0, 1, 1], turn_reward=[1.0, infinite, 0.0]
            )
    RolloutBatch.from_arrays(returns=[1.0, np.inf], prompt=[0, 0], valid=[True, False])


def test_p05_a_group_that_cannot_be_scored_warns_once():
    with pytest.warns(UserWarning, match=r"no rollout of the groups prompt=\['b'\] could be scored") as caught:
        batch = RolloutBatch.from_arrays(returns=[1, 0, None, np.nan], prompt=["a", "a", "b", "b"])
    assert len(caught) == 1
    assert advantages("grpo", batch)[2:].tolist() == [0.0, 0.0]
    with pytest.warns(UserWarning, match=r"prompt=\[0, 1, 2, 3, 4\] and others could"):
        RolloutBatch.from_arrays(returns=[None] * 9, prompt=range(9))


def test_p05_partly_scored_and_invalid_groups_do_not_warn():
    RolloutBatch.from_arrays(returns=[None, 1], prompt=[0, 0])
    RolloutBatch.from_arrays(returns=[None, None], prompt=[0, 0], valid=[False, False])


def test_p05_a_rollout_with_an_unscorable_turn_does_not_count():
    batch = RolloutBatch.from_arrays(
        returns=[9.0, 1.0, 3.0], prompt=[0, 0, 0], turn_rollout=[0, 0, 1, 2],
        turn_reward=[None, 1.0, 1.0, 3.0],
    )  # fmt: skip
    assert batch.counted.tolist() == [False, True, True]
    assert advantages("dr_grpo", batch).tolist() == [0.0, 0.0, -1.0, 1.0]


def test_p48_returns_stay_raw_and_inputs_are_not_edited():
    returns, reward = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    batch = RolloutBatch.from_arrays(returns=returns, prompt=[0, 0], turn_reward=reward)
    credit = advantages("grpo:eps=0", batch)
    np.testing.assert_allclose(credit, [-(0.5**0.5), 0.5**0.5])
    for values in (returns, reward, batch.returns, batch.turn_reward, batch.outcome):
        assert values.tolist() == [0.0, 1.0]
    returns[0] = 7.0
    assert batch.returns.tolist() == [0.0, 1.0]


def test_dead_groups():
    batch = RolloutBatch.from_arrays(
        returns=[0.1 + 0.2, 0.3, 1, 2, 5, 7, 8], prompt=[0, 0, 1, 1, 2, 3, 3], valid=[1, 1, 1, 1, 1, 1, 0]
    )
    assert batch.dead.tolist() == [True, True, False, False, True, True, True]


def test_the_longest_rollout_is_the_default_of_max_tokens():
    columns = {"returns": [1.0, 0.0, None], "prompt": [0, 0, 0], "turn_rollout": [0, 0, 1, 2]}
    mask = [[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]]
    batch = RolloutBatch.from_arrays(**columns, token_mask=mask)
    assert batch.max_tokens == 5 and batch.assumed == ("environment", "task")
    # Rollouts that do not count leave no trace.
    longer = RolloutBatch.from_arrays(
        **{**columns, "turn_rollout": [0, 0, 1] + [2] * 9}, token_mask=mask[:3] + [[1] * 3] * 9
    )
    assert longer.max_tokens == 5
    assert RolloutBatch.from_arrays(**columns, token_mask=mask, max_tokens=9).max_tokens == 9
    with pytest.raises(ValueError, match=r"max_tokens=4 is not allowed: .* at least the 5 tokens"):
        RolloutBatch.from_arrays(**columns, token_mask=mask, max_tokens=4)


def test_a_batch_does_not_follow_later_changes_of_its_columns():
    columns = {
        "returns": np.array([1.0, 0.0, 1.0, 0.5]), "prompt": np.array([0, 0, 1, 1]), "environment": np.zeros(4, int),
        "task": np.zeros(4, int), "state_key": np.arange(4), "turn_rollout": np.arange(4),
        "token_mask": np.ones((4, 2), np.bool_), "valid": np.ones(4, np.bool_), "components": np.ones((4, 2)),
    }  # fmt: skip
    batch = RolloutBatch.from_arrays(**columns)
    kept = {name: getattr(batch, name).copy() for name in columns}
    for values in columns.values():
        values[...] = 0
        values[:2] = 1
    for name, before in kept.items():
        np.testing.assert_array_equal(getattr(batch, name), before, err_msg=name)


def test_returns_whose_squares_would_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"group prompt=1 has a return of size 1e\+160"):
        RolloutBatch.from_arrays(returns=[1, 0, 2, -1e160], prompt=[0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"group prompt=0 has a return of size 1e\+160"):
        RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0], turn_reward=[1e160, 0])
    RolloutBatch.from_arrays(returns=[1, 1e160], prompt=[0, 0], valid=[True, False])


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_bfloat16_has_a_hint():
    with pytest.raises(ValueError, match=r"returns must be numbers.*\.float\(\) first"):
        RolloutBatch.from_arrays(returns=torch.zeros(2, dtype=torch.bfloat16), prompt=[0, 0])
