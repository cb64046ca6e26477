"""Aggregation: weights of tokens, empty rollouts, prompts."""

import dataclasses

import numpy as np
import pytest

from algos import RolloutBatch, make_scheme
from algos.surrogates.aggregation import token_weights

MASK = np.array([[1, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 0]])


def weights(settings, **columns):
    batch = RolloutBatch.from_arrays(
        returns=[1, 0, 1, 0], prompt=[0, 0, 1, 2], token_mask=MASK, max_tokens=10, **columns
    )
    return token_weights(make_scheme(f"grpo:{settings}"), batch)


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ("aggregation=token_mean", [1 / 6, 1 / 6, 0, 1 / 6]),
        ("aggregation=token_mean,tokens_of=minibatch", [1 / 6, 1 / 6, 0, 1 / 6]),
        ("aggregation=rollout_mean", [1 / 3, 1 / 9, 0, 1 / 6]),
        ("aggregation=rollout_mean,empty=counted", [1 / 4, 1 / 12, 0, 1 / 8]),
        ("aggregation=constant", [1 / 30, 1 / 30, 0, 1 / 30]),
        ("aggregation=constant,empty=counted", [1 / 40, 1 / 40, 0, 1 / 40]),
        ("aggregation=constant,per_rollout=false", [1 / 10, 1 / 10, 0, 1 / 10]),
        ("aggregation=constant,per_rollout=false,empty=counted", [1 / 10, 1 / 10, 0, 1 / 10]),
        ("aggregation=plain_sum", [1, 1, 0, 1]),
        ("aggregation=token_sum", [1 / 3, 1 / 3, 0, 1 / 3]),
        ("aggregation=token_sum,empty=counted", [1 / 4, 1 / 4, 0, 1 / 4]),
        # Prompt 0 has four tokens in two rollouts; prompt 1 has none.
        ("aggregation=prompt_mean", [1 / 8, 1 / 8, 0, 1 / 4]),
    ],
)
def test_weights(settings, rows):
    np.testing.assert_allclose(weights(settings), MASK * np.array(rows)[:, None], rtol=1e-15)


@pytest.mark.parametrize("settings", ["token_mean", "rollout_mean", "prompt_mean"])
def test_means_have_weights_that_add_up_to_one(settings):
    assert weights(f"aggregation={settings}").sum() == pytest.approx(1.0, rel=1e-15)


def test_invalid_rollouts_are_never_counted():
    counted = weights("aggregation=token_sum,empty=counted", valid=[1, 1, 1, 0])
    np.testing.assert_allclose(counted, MASK * np.array([1, 1, 1, 0])[:, None] / 3)


def test_excluded_groups_are_never_counted():
    batch = RolloutBatch.from_arrays(returns=[1, 0, 1, 1], prompt=[0, 0, 1, 1])
    for empty in ("dropped", "counted"):
        scheme = make_scheme("grpo", dead_groups="excluded", empty=empty)
        assert token_weights(scheme, batch)[:, 0].tolist() == [0.5, 0.5, 0, 0]


def test_luspo_is_the_rollout_mean_times_length():
    np.testing.assert_allclose(
        weights("aggregation=token_sum").sum(axis=1),
        weights("aggregation=rollout_mean").sum(axis=1) * MASK.sum(axis=1),
    )


def test_nothing_in_the_loss():
    batch = RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0], token_mask=np.zeros((2, 2)))
    for settings in ("token_mean", "rollout_mean", "constant", "token_sum", "prompt_mean", "plain_sum"):
        assert not token_weights(make_scheme("grpo", aggregation=settings), batch).any()


def test_prompt_ids_are_read_within_their_environment():
    batch = RolloutBatch.from_arrays(returns=[1, 0, 1], prompt=[0, 0, 0], environment=[0, 0, 1])
    assert token_weights(make_scheme("grpo:aggregation=prompt_mean"), batch)[:, 0].tolist() == [0.25, 0.25, 0.5]


def test_a_constant_below_the_tokens_of_a_rollout_is_refused():
    batch = dataclasses.replace(
        RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0], token_mask=[[1, 1], [1, 0]]), max_tokens=1
    )
    with pytest.raises(ValueError, match="max_tokens=1 is not allowed with aggregation='constant': a rollout has 2"):
        token_weights(make_scheme("dr_grpo"), batch)
    np.testing.assert_allclose(token_weights(make_scheme("dr_grpo:aggregation_constant=1"), batch).sum(), 1.5)
