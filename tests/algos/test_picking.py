"""Sampling by inversion: the right frequencies, and never a choice without probability."""

import numpy as np
import pytest

from algos.policies import _pick


@pytest.mark.parametrize("draw", [0.0, 2.0**-24, 0.5, 1.0 - 2.0**-24])
def test_choices_without_probability_are_never_picked(draw):
    random = np.random.default_rng(0)
    weights = random.random((12, 4_000)) ** 8 * (random.random((12, 4_000)) < 0.4)
    weights[:, weights.sum(axis=0) == 0] = 1.0
    probability = (weights / weights.sum(axis=0)).astype(np.float32)
    position = _pick(probability, probability, np.full((4_000, 1), draw, dtype=np.float32), 0)
    assert (probability[position, np.arange(4_000)] > 0).all()


def test_choices_are_as_frequent_as_probable():
    wanted = np.array([0.0, 0.5, 0.0, 0.3, 0.2, 0.0], dtype=np.float32)
    n = 40_000
    uniform = np.random.default_rng(0).random((n, 1), dtype=np.float32)
    position = _pick(np.repeat(wanted[:, None], n, axis=1), wanted, uniform, 0)
    np.testing.assert_allclose(np.bincount(position, minlength=6) / n, wanted, atol=0.01)
