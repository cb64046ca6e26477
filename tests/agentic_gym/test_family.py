"""The helpers that families share."""

import numpy as np
import pytest

from agentic_gym import streams
from agentic_gym.family import Draws, OneHot, indices, pick, spread_difficulty


def test_one_hot() -> None:
    encode = OneHot(2, 3, 1)
    features = encode(np.array([[1, 0], [-1, 2], [0, -1]], dtype=np.int8), np.array([[0], [-1], [0]]), spare=2)
    assert features.dtype == np.float32 and encode.width == 6
    assert features.tolist() == [[0, 1, 1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 1, 0, 0]]
    assert encode(np.zeros((0, 3), dtype=np.int8)).shape == (0, 6)
    features[...] = 7
    assert encode(np.array([[0, 0, 0]])).sum() == 3


def test_pick_is_indexing() -> None:
    table = np.random.default_rng(0).integers(100, size=(5, 4, 3)).astype(np.int8)
    rows, at = np.array([4, 0, 2, 2]), np.array([3, 0, 1, 2])
    np.testing.assert_array_equal(pick(table, rows, at), table[rows, at])
    np.testing.assert_array_equal(pick(table, rows, 2), table[rows, 2])


def test_indices() -> None:
    assert indices(np.array([False, True, True])).tolist() == [1, 2]


@pytest.mark.parametrize("difficulty", [0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_prompts_vary_around_the_difficulty(difficulty: float) -> None:
    """The mean is the difficulty itself, also near the ends, where no probability leaves [0, 1]."""
    share = spread_difficulty(difficulty, (np.arange(1000) + 0.5) / 1000)
    assert share.mean() == pytest.approx(difficulty) and share.min() >= 0 and share.max() <= 1
    assert (np.ptp(share) > 0.15) == (0 < difficulty < 1)


def test_draws_depend_on_row_turn_and_index_only() -> None:
    keys, turn = streams.mix(np.arange(10)), np.arange(10)
    draws = Draws(keys, turn, np.array([7, 2, 5]))
    expected = streams.uniform(keys, streams.DYNAMICS, turn, 3)
    np.testing.assert_array_equal(draws.uniform(3), expected[[7, 2, 5]])
    np.testing.assert_array_equal(draws.at(np.array([2, 0])).uniform(3), expected[[5, 7]])
    assert (draws.uniform(3) != draws.uniform(4)).all()
