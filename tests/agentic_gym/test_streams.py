"""The counter-based streams: uniform, independent, and a function of their key alone."""

import itertools

import numpy as np
import pytest
from scipy import stats

from agentic_gym import streams

KEYS = streams.mix(7, np.arange(20_000))


def p_uniform(sample: np.ndarray) -> float:
    return float(stats.kstest(np.ravel(sample), "uniform").pvalue)


@pytest.mark.parametrize(
    "draws",
    [
        streams.uniform(KEYS, 0),
        streams.uniform(KEYS, 3, 1_000_003),
        streams.uniform(KEYS[:1], np.arange(20_000)),
        streams.uniform(KEYS[:1], 1, np.arange(20_000)),
        streams.uniform(streams.mix(1, np.arange(100), np.arange(100)), np.arange(100)[:, None]),
        streams.to_int63(KEYS) / 2**63,
    ],
    ids=["keys", "far index", "turns", "indices", "lattice", "int63"],
)
def test_uniform(draws: np.ndarray) -> None:
    """Over consecutive keys, turns and draw indices alike."""
    assert draws.min() >= 0 and draws.max() < 1
    assert p_uniform(draws) > 1e-3


@pytest.mark.parametrize("axis", ["index", "turn", "key", "stream", "prompt"])
def test_neighbouring_draws_are_independent(axis: str) -> None:
    """No correlation between draws that differ by one step; pairs fill the square evenly."""
    where = {
        "index": (KEYS, 2, 0, KEYS, 2, 1),
        "turn": (KEYS, 2, 0, KEYS, 3, 0),
        "key": (KEYS[:-1], 2, 0, KEYS[1:], 2, 0),
        "stream": (streams.mix(2, KEYS), 2, 0, streams.mix(3, KEYS), 2, 0),
        "prompt": (streams.mix(1, 0, np.arange(20_000)), 0, 0, streams.mix(1, 0, np.arange(1, 20_001)), 0, 0),
    }[axis]
    one, two = streams.uniform(*where[:3]), streams.uniform(*where[3:])
    for transform in (lambda u: u, lambda u: (u - 0.5) ** 2, lambda u: (u * 64) % 1):
        assert abs(np.corrcoef(transform(one), transform(two))[0, 1]) < 4 / np.sqrt(len(one))
    counts = np.histogram2d(one, two, bins=10, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


def test_every_bit_of_a_key_matters() -> None:
    """Avalanche: flipping one input bit flips about half of the output bits."""
    base = KEYS[:200, None]
    flipped = base ^ (np.uint64(1) << np.arange(64, dtype=np.uint64))
    differences = streams.mix(base) ^ streams.mix(flipped)
    bits = (differences[..., None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(axis=(0, 2)) - 0.5).max() < 0.05
    assert abs(bits.mean() - 0.5) < 0.005


def test_draws_are_functions_of_their_place() -> None:
    """Not of the batch, of earlier calls, or of the arrays' types; arguments are not changed."""
    keys, turn = KEYS[:50].copy(), np.arange(50)
    whole = streams.uniform(keys, turn, 3)
    np.testing.assert_array_equal(keys, KEYS[:50])
    np.testing.assert_array_equal(streams.uniform(keys[20:30], turn[20:30].astype(np.int8), 3), whole[20:30])
    np.testing.assert_array_equal(streams.uniform(keys), streams.uniform(keys, 0))
    assert not np.shares_memory(streams.uniform(keys), keys)
    assert len(np.unique(streams.mix(1, np.arange(1000)[:, None], np.arange(1000)))) == 1_000_000


def test_known_values() -> None:
    """A change of these changes every environment, so that it must be a decision."""
    assert streams.mix(1, 2, 3)[0] == 0x8C9E73210116C99F
    assert streams.hash_name("Chain") == 5123380334729132820
    assert streams.uniform(streams.mix(1), 2, 3)[0] == float.fromhex("0x1.d1c1fccce6a99p-1")
    assert streams.mix(1, 2, 3)[0] == streams.mix(1, np.array([2]), np.array([3]))[0]
    assert streams.hash_name("Chain") != streams.hash_name("Search")
    assert 0 <= streams.hash_name("x") < 2**63


@pytest.mark.parametrize("high", [1, 2, 7, 2**40])
def test_integers(high: int) -> None:
    draws = streams.integers(high, KEYS, 4)
    assert draws.dtype == np.int64 and draws.min() >= 0 and draws.max() < high
    if high in (2, 7):
        assert stats.chisquare(np.bincount(draws, minlength=high)).pvalue > 1e-3


def test_digits() -> None:
    """Digits and the rest are uniform and independent of each other."""
    sizes = (7, 7, 2, 720)
    parts, rest = streams.digits(streams.uniform(KEYS, 1), *sizes)
    for part, size in zip(parts, sizes, strict=True):
        assert stats.chisquare(np.bincount(part, minlength=size)).pvalue > 1e-3
    assert p_uniform(rest) > 1e-3
    for one, two in itertools.combinations([*parts, rest], 2):
        assert abs(np.corrcoef(one, two)[0, 1]) < 4 / np.sqrt(len(KEYS))
    joint = parts[0] * 14 + parts[1] * 2 + parts[2]
    assert stats.chisquare(np.bincount(joint, minlength=98)).pvalue > 1e-3


def test_normal() -> None:
    assert stats.kstest(streams.normal(KEYS, 1), "norm").pvalue > 1e-3


def test_student_t_has_unit_variance() -> None:
    """Scaled by sqrt(3); the variance converges slowly, so the distribution is tested as well."""
    keys = streams.mix(np.arange(400_000))
    draws = streams.student_t(keys, 1)
    assert stats.kstest(draws[:20_000] * np.sqrt(3), "t", args=(3,)).pvalue > 1e-3
    assert draws.var() == pytest.approx(1.0, abs=0.1)
    assert stats.kurtosis(draws) > 10
