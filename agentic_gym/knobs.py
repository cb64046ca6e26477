"""The knobs that every environment has, with their validation."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Literal


def did_you_mean(name: object, allowed: Iterable[str], in_full: Mapping[str, str] | None = None) -> str:
    """Return a sentence that suggests the allowed names nearest to ``name``; empty if none is near.

    It begins with a space, to be put behind an error message. Names that ``in_full`` has are compared
    as they are, but suggested in full.
    """
    by_lower = {other.lower(): (in_full or {}).get(other, other) for other in allowed}
    near = difflib.get_close_matches(str(name).lower(), by_lower, n=3)
    return f" Did you mean {' or '.join(repr(by_lower[found]) for found in near)}?" if near else ""


def in_range(what: str, low: float, high: float, *, open_low: bool = False) -> str:
    """Say which numbers are allowed, for example ``a finite number >= 0``; ``what`` is their kind."""
    if math.isfinite(high):
        return f"{what} in {'(' if open_low else '['}{low}, {high}]"
    return f"{what} {'>' if open_low else '>='} {low:g}" if math.isfinite(low) else what


def check_number(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> float:
    """Return ``value`` as a float, or raise.

    Raises:
        ValueError: if ``value`` is not a finite number in the range; names the argument.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value > high or value < low or (open_low and value == low):  # type: ignore[arg-type, operator]
        allowed = in_range("a finite number", low, high, open_low=open_low)
        raise ValueError(f"{name}={value!r} is not allowed: it must be {allowed}.")
    return float(value)  # type: ignore[arg-type]


def check_integer(name: str, value: object, low: int, high: int) -> int:
    """Return ``value`` as an int, or raise.

    Raises:
        ValueError: if ``value`` is not an integer in the range; names the argument.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not low <= int(value) <= high:
        raise ValueError(f"{name}={value!r} is not allowed: it must be an integer in [{low}, {high}].")
    return int(value)


def check_bool(name: str, value: object) -> bool:
    """Return ``value`` if it is a bool, or raise ValueError naming the argument."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r} is not allowed: it must be True or False.")
    return value


@dataclass(frozen=True)
class Knobs:
    """Settings common to all environments; every one is JSON-serialisable.

    Attributes:
        reward_scale: factor on the reward, > 0.
        reward_offset: added to every rollout's return, once, on its last turn.
        reward_noise: standard deviation of noise on each delivered reward, in units of value
            (that is, before ``reward_scale``), >= 0.
        reward_noise_dist: "normal", or "student_t" (3 degrees of freedom, unit variance).
        dense: deliver each turn's reward at that turn instead of all at the end.
        depth: how many steps the task itself has; ``None`` takes the family's default.
        max_turns: turn limit; ``None`` takes the family's default for its depth.
        difficulty: in [0, 1]; ``None`` takes the family's default. What it changes is documented
            by each family; prompts of one split differ around it.
        filler: how many filler tokens a message may carry after its arguments.
        slip: probability that a legal message has no effect (the tool fails).
        num_prompts: prompts per split.
        common_random_numbers: give all rollouts of a prompt the same noise.
    """

    reward_scale: float = 1.0
    reward_offset: float = 0.0
    reward_noise: float = 0.0
    reward_noise_dist: Literal["normal", "student_t"] = "normal"
    dense: bool = False
    depth: int | None = None
    max_turns: int | None = None
    difficulty: float | None = None
    filler: int = 0
    slip: float = 0.0
    num_prompts: int = 4096
    common_random_numbers: bool = False

    def __post_init__(self) -> None:
        """Validate every field that does not depend on the family."""
        check_number("reward_scale", self.reward_scale, 0.0, 1e12, open_low=True)
        check_number("reward_offset", self.reward_offset, -1e12, 1e12)
        check_number("reward_noise", self.reward_noise, 0.0, 1e12)
        if self.reward_noise_dist not in ("normal", "student_t"):
            raise ValueError(
                f"reward_noise_dist={self.reward_noise_dist!r} is not allowed: it must be 'normal' or 'student_t'."
            )
        check_bool("dense", self.dense)
        check_bool("common_random_numbers", self.common_random_numbers)
        if self.difficulty is not None:
            check_number("difficulty", self.difficulty, 0.0, 1.0)
        check_integer("filler", self.filler, 0, 64)
        check_number("slip", self.slip, 0.0, 1.0)
        check_integer("num_prompts", self.num_prompts, 1, 2**40)


KNOB_NAMES = tuple(field.name for field in fields(Knobs))
