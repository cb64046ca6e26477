"""Credit by turn: the parts are what they are called, and the curves are means over batches."""

import numpy as np
import pytest

from algos.advantages import advantages
from algos.threads import limit_threads
from benchmarks import credit


@pytest.fixture(scope="module")
def batches():
    with limit_threads(1):
        return credit.collect_batches(2, environment="agentic_gym/Search-v0", n_prompts=8, rollouts=256)


def test_a2tgpo_is_the_plain_sum_over_the_root_of_the_number_of_gains(batches):
    for data in batches:
        batch, ahead = data.batch, credit.gains_ahead(data.batch)
        root = credit.gain_part("a2tgpo", batch)
        np.testing.assert_allclose(
            root[ahead > 0] * np.sqrt(ahead[ahead > 0]), credit.gain_part(credit.BY_TURN, batch)[ahead > 0], atol=1e-9
        )
        np.testing.assert_allclose(root[ahead == 0], 0.0, atol=1e-12)
        np.testing.assert_allclose(advantages("a2tgpo", batch), advantages(credit.ACCUMULATIONS["root"], batch))


def test_gains_ahead_count_down_to_the_answer(batches):
    batch = batches[0].batch
    ahead = credit.gains_ahead(batch)
    assert (ahead[batch.last_written] == 0).all()
    np.testing.assert_array_equal(ahead + batch.turn_index + 1, batch.turns_per_rollout[batch.turn_rollout])


def test_nothing_is_trained_and_seeds_decide(batches):
    with limit_threads(1):
        again = credit.collect_batches(2, environment="agentic_gym/Search-v0", n_prompts=8, rollouts=256)
    for one, other in zip(batches, again, strict=True):
        np.testing.assert_array_equal(one.batch.returns, other.batch.returns)
        np.testing.assert_array_equal(one.batch.information_gain, other.batch.information_gain)


def test_curves_are_means_of_batch_means():
    x = [np.repeat([1, 2, 3], [8, 8, 2]), np.repeat([1, 2], [16, 8])]
    values = [np.repeat([1.0, -2.0, 9.0], [8, 8, 2]), np.repeat([-3.0, 4.0], [16, 8])]
    found = credit.curve("name", values, x)
    assert found.x == (1, 2) and found.mean == (2.0, 3.0)
    assert found.low == (1.0, 2.0) and found.high == (3.0, 4.0)


def test_the_measurement_has_every_curve(batches):
    seen = credit.measure(batches)
    assert [entry["name"] for entry in seen["by_turn"]] == list(credit.SCHEMES)
    assert [entry["name"] for entry in seen["by_gains"]] == list(credit.ACCUMULATIONS)
    assert 0 < seen["success"] < 1
    for entry in (*seen["by_turn"], *seen["by_gains"]):
        assert len(entry["x"]) == len(entry["mean"]) > 1
        assert all(a <= b <= c for a, b, c in zip(entry["low"], entry["mean"], entry["high"], strict=True))
