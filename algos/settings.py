"""Checks of GroupPPO's settings: single values, and what a scheme asks of groups and registered parts."""

from __future__ import annotations

import math
import numbers

from algos import parts
from algos.scheme import PART_FIELDS, Scheme


def check_registered(scheme: Scheme) -> None:
    """Say what is to be done where a saved scheme has parts that this process does not know."""
    for axis in PART_FIELDS:
        name = getattr(scheme, axis)
        if name not in parts.choices(axis):
            raise ValueError(
                f"scheme: {axis}={name!r} is not registered. If it is a part of your own, import the module that "
                f"registers it (with @part) before the model is loaded; registered are {list(parts.choices(axis))}."
            )


def compares_within_groups(scheme: Scheme) -> str:
    """Say what of a scheme makes groups of one senseless; nothing if they make sense."""
    used = {part.axis: part for part in scheme.parts}
    if scheme.singleton == "zero":
        kind = used.get("baseline_kind")
        if scheme.baseline == "prompt" and kind is not None and "own_range" in kind.tags:
            return f"baseline_kind={kind.name!r}"
        if scheme.scale == "prompt":
            return "scale='prompt'"
    signal, sampling = used["signal"], used["sampling"]
    # Signals with neither a baseline nor a critic are normalised in a way of their own.
    if "baseline" not in signal.uses and "value" not in signal.needs and "alone" not in signal.tags:
        return f"signal={signal.name!r}"
    return f"sampling={sampling.name!r}" if "compares" in sampling.tags else ""


def check_seed(seed: object) -> None:
    """Raise ValueError unless it is None or an integer >= 0."""
    if seed is not None and (not isinstance(seed, numbers.Integral) or isinstance(seed, bool) or seed < 0):
        raise ValueError(f"seed={seed!r} is not allowed: it must be an integer >= 0, or None.")


def check_rate(rate: object) -> None:
    """Raise ValueError unless it is a schedule or a finite number >= 0."""
    number = isinstance(rate, numbers.Real) and not isinstance(rate, bool)
    if not callable(rate) and not (number and 0 <= float(rate) < math.inf):  # type: ignore[arg-type]
        raise ValueError(f"learning_rate={rate!r} is not allowed: it must be a finite number >= 0, or a schedule.")


def positive_or_none(name: str, value: object) -> float | None:
    """Return the value; raise ValueError unless it is None or a number > 0."""
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not value > 0:  # type: ignore[operator]
        raise ValueError(f"{name}={value!r} is not allowed: it must be a number > 0, or None.")
    return float(value)  # type: ignore[arg-type]


def non_negative(name: str, value: object) -> float:
    """Return the value; raise ValueError unless it is a finite number >= 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:  # type: ignore[operator]
        raise ValueError(f"{name}={value!r} is not allowed: it must be a finite number >= 0.")
    return float(value)  # type: ignore[arg-type]
