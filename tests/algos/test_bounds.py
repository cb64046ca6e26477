"""Bounds of the ratio: published vectors and edge cases."""

import math

import numpy as np
import pytest
import torch

from algos import RolloutBatch, make_scheme
from algos.surrogates.bounds import LARGEST_WIDTH, second_moment_width
from algos.surrogates.loss import prepared_columns
from algos.surrogates.tokens import Tokens


def bounds(scheme, batch=None, ratio=(), advantage=None, old=None, n=1):
    """Return (low, high) as arrays for tokens in one column."""
    chosen = make_scheme(scheme)
    ratio = torch.tensor(np.reshape(ratio if len(ratio) else [1.0] * n, (-1, 1)), dtype=torch.float64)
    advantage = torch.zeros_like(ratio) if advantage is None else torch.tensor(advantage, dtype=torch.float64)[:, None]
    old = torch.zeros_like(ratio) if old is None else torch.tensor(old, dtype=torch.float64)[:, None]
    columns = {} if batch is None else {k: v.double() for k, v in prepared_columns(chosen, batch, np.zeros(n)).items()}
    tokens = Tokens(old, old, advantage, torch.ones(ratio.shape, dtype=torch.bool), columns=columns)
    return [np.asarray(bound).squeeze() for bound in chosen.run("bounds", tokens, ratio)]


def successes(c, k=8):
    return RolloutBatch.from_arrays(returns=[1.0] * c + [0.0] * (k - c) + [1, 0], prompt=[0] * k + [1, 1])


def test_fixed_and_absolute():
    low, high = bounds("grpo:clip_low=0.2,clip_high=0.28")
    assert (low, high) == (0.8, 1.28)
    low, high = bounds("cispo:bounds=absolute")
    assert (low, high) == (0.0, 5.0)
    with pytest.raises(ValueError, match=r"clip_high=0\.28 has no effect here"):
        make_scheme("cispo:bounds=absolute,clip_high=0.28")


GAPO_TOKEN = [0.28, 0.2686, 0.2571, 0.2457, 0.2343, 0.2229, 0.2114, 0.2]
GAPO_ROLLOUT = [0.005, 0.0047143, 0.0044286, 0.0041429, 0.0038571, 0.0035714, 0.0032857, 0.003]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [("gapo:ratio=token,clip_low=0.2,clip_high=0.28", GAPO_TOKEN), ("gapo", GAPO_ROLLOUT)],
)
def test_gapo_vectors(settings, expected):
    scheme = make_scheme(settings)
    for c, width in enumerate(expected, start=1):
        low, high = bounds(scheme, successes(c), n=10)
        np.testing.assert_allclose(high[:c] - 1.0, width, atol=5e-5 if "token" in settings else 5e-8)
        np.testing.assert_allclose(high[c:8] - 1.0, scheme.clip_low, atol=1e-12)
        assert low == 1.0 - scheme.clip_low


def test_gapo_edges():
    wide = "gapo:ratio=token,clip_low=0.2,clip_high=0.28"
    # No success, and a group of one: the narrow bound.
    np.testing.assert_allclose(bounds(wide, successes(0), n=10)[1][:8], 1.2)
    alone = RolloutBatch.from_arrays(returns=[1.0, 1.0, 0.0], prompt=[0, 1, 1])
    np.testing.assert_allclose(bounds(wide, alone, n=3)[1], [1.2, 1.28, 1.2], rtol=1e-6)
    # All rewards of the environment equal.
    equal = RolloutBatch.from_arrays(returns=[3.0] * 4, prompt=[0, 0, 1, 1])
    np.testing.assert_allclose(bounds(wide, equal, n=4)[1], 1.2)
    # Graded rewards: of a range of 10, at most half with two members.
    graded = RolloutBatch.from_arrays(returns=[0, 10, 4, 6], prompt=[0, 0, 1, 1])
    np.testing.assert_allclose(bounds(wide, graded, n=4)[1], [1.2, 1.28, 1.2, 1.2 + 0.08 * 0.2], rtol=1e-6)
    # Invalid rollouts neither get room nor widen the range.
    broken = RolloutBatch.from_arrays(returns=[0, 1, 900, None], prompt=[0] * 4, valid=[1, 1, 0, 1])
    np.testing.assert_allclose(bounds(wide, broken, n=4)[1], [1.2, 1.28, 1.2, 1.2], rtol=1e-6)


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 0.0), (100.0, -50.0), (1e-3, 7.0)])
def test_gapo_does_not_depend_on_the_rewards_scale(factor, offset):
    rewards = np.array([1.0, 0.0, 0.25, 0.5, 1.0, 0.0])
    batches = [
        RolloutBatch.from_arrays(returns=r, prompt=[0, 0, 0, 1, 1, 1]) for r in (rewards, factor * rewards + offset)
    ]
    one, other = (bounds("gapo", batch, n=6)[1] for batch in batches)
    np.testing.assert_allclose(one, other, rtol=1e-9)


def a2tgpo_batch():
    """The reference's case: three rollouts of one prompt; the last turn is the answer."""
    return RolloutBatch.from_arrays(
        returns=[1, 0, 0], prompt=[0, 0, 0], turn_rollout=[0, 0, 0, 1, 1, 1, 1, 2, 2],
        information_gain=[0.2, 0.4, np.nan, 0, 0.1, 0.3, np.nan, -0.1, np.nan],
    )  # fmt: skip


def test_a2tgpo_vectors():
    scheme = make_scheme("a2tgpo", eps=0.0)
    columns = prepared_columns(scheme, a2tgpo_batch(), np.zeros(9))
    expected = [1.175129, 1.138635, 1, 0.960148, 0.861365, 1, 1, 0.853351, 1]
    np.testing.assert_allclose(columns["clip_factor"][:, 0], expected, atol=1e-6)
    low, high = bounds(scheme, a2tgpo_batch(), n=9)
    assert (low[0], high[0]) == (pytest.approx(0.996474613, abs=1e-9), pytest.approx(1.004700516, abs=1e-9))
    low, high = bounds(make_scheme(scheme, gain_room=0.0), a2tgpo_batch(), n=9)
    np.testing.assert_allclose(low, 0.997)
    np.testing.assert_allclose(high, 1.004)


@pytest.mark.parametrize(
    ("q", "low", "high"),
    [(0.05, 0.5, 2.562), (0.1, 0.5, 2.0), (0.3, 0.5, 1.457), (0.5, 0.5, 1.306), (0.9, 0.769, 1.187)],
)
def test_dcpo_vectors(q, low, high):
    ours = bounds("dcpo", old=[math.log(q)])
    assert ours == [pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4)]


def test_dcpo_is_capped_and_finite():
    for old in (-20.0, -200.0, -2000.0):
        assert bounds("dcpo", old=[old]) == [0.5, 10.0]
    assert bounds("dcpo:clip_low=0,prior_cap=3", old=[-2000.0]) == [1.0, 3.0]


def test_bapo_raises_the_lower_bound_first():
    # Contributions: positive min(ratio, high); negative max(ratio, low).
    assert bounds("bapo", ratio=[1.0, 1.0], advantage=[1.0, -1.0]) == [0.6, 1.2]
    assert bounds("bapo", ratio=[1.0], advantage=[1.0]) == [0.6, 1.2]
    assert bounds("bapo", ratio=[1.0], advantage=[0.0]) == [0.6, 1.2]
    # The upper bound helps: 1.2, 1.25, ... until half of 3, after the lower bound has gone to its end.
    low, high = bounds("bapo", ratio=[2.0, 3.0], advantage=[1.0, -1.0])
    assert (low, high) == (pytest.approx(0.9), pytest.approx(1.5))
    # Nothing helps: both end at their limits.
    assert bounds("bapo", ratio=[1.0, 9.0], advantage=[1.0, -1.0]) == [pytest.approx(0.9), pytest.approx(3.0)]
    low, high = bounds("bapo:balance=2,low_end=0.7,high_end=1.3", ratio=[9.0, 1.0], advantage=[1.0, -1.0])
    assert (low, high) == (pytest.approx(0.7), pytest.approx(1.3))


def test_m2po_widths():
    assert second_moment_width(torch.tensor([]), 0.04) == LARGEST_WIDTH
    assert second_moment_width(torch.tensor([0.1, -0.2]), 0.04) == LARGEST_WIDTH
    # Cut at 0.1: mean 0.01; cut at 0.2: (0.01 + 0.04 + 0.04) / 3 = 0.03; not cut: 0.35.
    assert second_moment_width(torch.tensor([0.1, 1.0, -0.2]), 0.04) == pytest.approx(0.2)
    assert second_moment_width(torch.tensor([0.5, 1.0]), 0.04) == 0.0


def test_m2po_looks_at_harmful_tokens_only_and_is_never_narrow():
    big = math.e
    # Moved against its advantage, or without one: harmless, not clipped.
    low, high = bounds("m2po", ratio=[big, 1 / big, big], advantage=[-1.0, 1.0, 0.0])
    assert low < 1e-30 and high > 1e30
    assert bounds("m2po", ratio=[big, 1 / big], advantage=[1.0, -1.0]) == [0.7, 1.5]
    ratio = np.exp([0.05, 0.05, 0.6, 2.0])
    low, high = bounds("m2po:moment_max=0.2", ratio=ratio, advantage=[1.0] * 4)
    assert (low, high) == (pytest.approx(math.exp(-0.6)), pytest.approx(math.exp(0.6)))


def test_aspo_tokens_of_high_entropy_have_wider_bounds():
    entropy = np.array([[0.1, 0.2, 0.3, 0.4, 9.0], [5.0, 0.0, 0.0, 0.0, 7.0]])
    mask = np.array([[1, 1, 1, 1, 1], [1, 0, 0, 0, 0]], bool)
    batch = RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0], token_mask=mask, entropy=entropy)
    columns = prepared_columns(make_scheme("aspo"), batch, np.zeros(2))
    # The 0.8 quantile lies between 0.4 and 9; a rollout's only token is not above its own quantile.
    assert columns["low_entropy"].tolist() == [[1, 1, 1, 1, 0], [1, 0, 0, 0, 0]]
    batch = RolloutBatch.from_arrays(
        returns=[1], prompt=[0], turn_rollout=[0, 0], token_mask=np.ones((2, 1)), entropy=[[0.1], [0.9]]
    )
    low, high = bounds("aspo:clip_high=0.3", batch, n=2)
    np.testing.assert_allclose((low, high), [(0.8, 0.6), (1.3, 1.4)])
