"""Uniform prompt sampling."""

import numpy as np
import pytest

from algos.sampling import UniformPrompts
from algos.sampling.uniform import LARGEST_EPOCH


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
