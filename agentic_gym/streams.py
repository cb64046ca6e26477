"""Counter-based random streams: a draw is a hash of (key, turn, draw index).

Every row of an environment owns a 64-bit key. A random number is a function of that key and of
where it is used, so a rollout does not depend on what else is in the batch, on the order of calls,
or on any generator's state. The hash is SplitMix64's output function (Steele, Lea and Flood 2014),
folded over the parts of the key.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]
Part = int | npt.NDArray[np.integer]

_MODULUS = 2**64


def _constant(value: int) -> Keys:
    # An array, because NumPy would convert a scalar anew at every use.
    return np.array([value % _MODULUS], dtype=np.uint64)


_ORIGIN = _constant(0x9E3779B97F4A7C15)
_MULTIPLY_1 = _constant(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = _constant(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = _constant(30), _constant(27), _constant(31)
_UNUSED_BITS, _SIGN_BIT = _constant(11), _constant(1)
_DOUBLE_UNIT = np.array([2.0**-53])
# Odd constants with well-spread bits: the fractions of sqrt(2), sqrt(3), sqrt(5), ...
_ODD_INTEGERS = tuple(math.isqrt(prime << 128) % _MODULUS | 1 for prime in (2, 3, 5, 7, 11, 13, 17, 19))
_ODD = tuple(_constant(odd) for odd in _ODD_INTEGERS)

# Streams: the first part of every key, so that prompts, dynamics noise and reward noise stay
# independent even where all other parts agree.
PROMPT = 1
DYNAMICS = 2
REWARD = 3
SCHEDULE = 4


def _finalise(x: Keys) -> Keys:
    """Scramble ``x`` in place."""
    x ^= x >> _SHIFT_1
    x *= _MULTIPLY_1
    x ^= x >> _SHIFT_2
    x *= _MULTIPLY_2
    x ^= x >> _SHIFT_3
    return x


def _combine(start: Keys, parts: tuple[Part, ...]) -> Keys:
    """Add each part times an odd constant of its own, modulo 2**64; the result is a new array."""
    constant = sum(p * odd for p, odd in zip(parts, _ODD_INTEGERS, strict=False) if isinstance(p, int))
    total = start + _constant(constant)
    for part, odd in zip(parts, _ODD, strict=False):
        if not isinstance(part, int):
            total = total + part.astype(np.uint64) * odd
    return total


def mix(*parts: Part) -> Keys:
    """Fold up to eight integers or integer arrays into one 64-bit key per row.

    Returns:
        uint64 array, of the parts' broadcast shape and at least one dimension.
    """
    return _finalise(_combine(_ORIGIN, parts))


def hash_name(name: str) -> int:
    """Return a 63-bit integer for a string, the same in every process (FNV-1a, then mixed)."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) % _MODULUS
    return int(to_int63(mix(value))[0])


def to_int63(key: Keys) -> npt.NDArray[np.int64]:
    """Drop one bit so that keys fit signed integers (info fields, JSON)."""
    return (key >> _SIGN_BIT).astype(np.int64)


def uniform(key: Keys, *where: Part) -> FloatArray:
    """Draw from [0, 1) per row; ``where`` names the draw (turn, index, ...).

    Trailing zeros of ``where`` do not count: (2,) and (2, 0) name the same draw.
    """
    bits = _finalise(_combine(key, where))
    bits >>= _UNUSED_BITS
    return bits * _DOUBLE_UNIT


def integers(high: int | npt.NDArray[np.int64], key: Keys, *where: Part) -> npt.NDArray[np.int64]:
    """Draw integers from 0 to ``high - 1`` per row (``high`` well below 2**53)."""
    return (uniform(key, *where) * high).astype(np.int64)


def digits(number: FloatArray, *sizes: int) -> tuple[list[npt.NDArray[np.int64]], FloatArray]:
    """Take uniform numbers apart into independent smaller ones, as the digits of a fraction.

    Args:
        number: uniform numbers in [0, 1), of any shape.
        *sizes: how many values each digit has (their product well below 2**53).

    Returns:
        One integer array per size, from 0 to ``size - 1``, and what is left: again uniform in [0, 1).
    """
    parts = []
    for size in sizes:
        scaled = number * size
        part = scaled.astype(np.int64)
        number = scaled - part
        parts.append(part)
    return parts, number


def normal(key: Keys, *where: Part) -> FloatArray:
    """Draw from the standard normal distribution per row (Box-Muller)."""
    radius = np.sqrt(-2.0 * np.log1p(-uniform(key, *where, 0)))
    return radius * np.cos(2.0 * np.pi * uniform(key, *where, 1))


def student_t(key: Keys, *where: Part) -> FloatArray:
    """Draw from Student's t with 3 degrees of freedom, divided by sqrt(3): unit variance, heavy tails."""
    numerator = normal(key, *where, 0)
    # A chi-square with 3 degrees of freedom is one with 1 (a squared normal) plus one with 2.
    chi_square = normal(key, *where, 1) ** 2 - 2.0 * np.log1p(-uniform(key, *where, 2))
    return numerator / np.sqrt(chi_square)
