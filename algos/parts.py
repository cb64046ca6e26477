"""Parts: the functions that schemes are made of, found by axis and name.

A part is one idea: a plain function whose keyword-only arguments, with their defaults, are the
scheme's options for it. ``@part("baseline_kind", "median", source=...)`` makes it a choice of the
axis ``baseline_kind``; nothing else has to be changed.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, TypeVar

from agentic_gym.knobs import did_you_mean, in_range
from algos.batch import RolloutBatch

AXES = (
    "signal", "baseline_kind", "scale_kind", "weights", "ratio", "bounds", "surrogate", "token_filter",
    "correction", "aggregation", "kl", "sampling",
)  # fmt: skip
"""Axes whose choices are parts; the others are levels or plain settings."""

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "signal": ("scheme", "batch", "memory"),
    "baseline_kind": ("scheme", "values", "groups", "table"),
    "scale_kind": ("scheme", "advantage", "signal", "groups", "table"),
    "weights": ("scheme", "advantage", "table"),
    "ratio": ("scheme", "tokens"),
    "bounds": ("scheme", "tokens", "ratio"),
    "surrogate": ("scheme", "tokens", "log_ratio"),
    "token_filter": ("scheme", "tokens", "log_ratio"),
    "correction": ("scheme", "tokens"),
    "aggregation": ("scheme", "mask", "batch"),
    "kl": ("scheme", "tokens"),
    "sampling": ("scheme", "trainer"),
}
"""Axis -> what its functions are called with, in this order, besides their options."""

OF_LOSS = ("ratio", "bounds", "surrogate", "token_filter", "correction", "aggregation", "kl")

TAGS: dict[str, tuple[str, ...]] = {
    "per_turn": ("signal", "weights"),
    "alone": ("signal",),
    "own_range": ("baseline_kind",),
    "outside": ("baseline_kind",),
    "whole_groups": OF_LOSS,
    "of_minibatch": OF_LOSS,
    "pulls_back": ("surrogate",),
    "in_reward": ("kl",),
    "of_rollouts": ("bounds",),
    "without_returns": ("signal",),
    "compares": ("sampling",),
}
"""Tag -> the axes that ask about it."""

LOSS_COLUMNS = ("reference_log_prob",)
"""What a part may need that is no column of ``RolloutBatch``."""

YOUR_OWN = " A part of your own must be registered first: import its module."

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """One keyword-only argument of a part.

    Attributes:
        name: its name, the same in every part that has it.
        default: its default.
        kind: ``float``, ``int``, ``bool``, ``choice`` or ``floats`` (a tuple of them).
        optional: whether None is allowed.
        low, high: range of a number, both included.
        choices: what a ``choice`` may be.
    """

    name: str
    default: Any
    kind: str
    optional: bool
    low: float
    high: float
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> Any:
        """Return the value in its one spelling.

        Raises:
            ValueError: if it is not allowed; names the option and what is.
        """
        if self.optional and (value is None or value == "none"):
            return None
        if self.kind == "choice":
            if value in self.choices:
                return value
            raise ValueError(f"{self.name}={value!r} is not allowed: it must be one of {list(self.choices)}.")
        if self.kind == "bool":
            spelled = {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value
            if isinstance(spelled, bool):
                return spelled
            raise ValueError(f"{self.name}={value!r} is not allowed: it must be True or False.")
        if self.kind == "floats":
            entries = [value] if isinstance(value, Real) else value
            if isinstance(entries, str):
                entries = [_read(entry) for entry in entries.split(";")]
            if not isinstance(entries, Sequence) or not entries:
                raise ValueError(f"{self.name}={value!r} is not allowed: it must be numbers, written 1;2;3.")
            return tuple(self._number(entry) for entry in entries)
        return self._number(value)

    def _number(self, value: Any) -> float | int:
        whole = self.kind == "int"
        number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not self.low <= value <= self.high:
            wanted = in_range("an integer" if whole else "a finite number", self.low, self.high)
            raise ValueError(f"{self.name}={value!r} is not allowed: it must be {wanted}.")
        return int(value) if whole else float(value)


@dataclass(frozen=True)
class Part:
    """One choice of an axis.

    Attributes:
        axis, name: where it is found.
        function: what it does; its signature is that of its axis, see the module of the axis.
        source: paper or code, with certainty.
        uses: fields of the scheme that it reads.
        needs: columns of the batch that it reads besides the basic ones.
        tags: properties that the axis' module asks about.
        options: its own settings.
        prepare: called once per update with (scheme, batch, advantages); returns columns for the
            loss, name -> (M,) or (M, L), or None.
        after_update: called after the optimiser's steps with (scheme, batch, memory), for parts that
            keep a memory, or None.
        capped: of a surrogate that limits weights without stopping their gradient: called with (scheme,
            tokens, ratio), says which tokens' weights are limited, (m, L) bool; or None.
    """

    axis: str
    name: str
    function: Callable[..., Any]
    source: str
    uses: frozenset[str]
    needs: frozenset[str]
    tags: frozenset[str]
    options: Mapping[str, Option]
    prepare: Callable[..., Mapping[str, Any]] | None = None
    after_update: Callable[..., None] | None = None
    capped: Callable[..., Any] | None = None


_PARTS: dict[str, dict[str, Part]] = {axis: {} for axis in AXES}


def part(
    axis: str,
    name: str,
    *,
    source: str,
    uses: Sequence[str] = (),
    needs: Sequence[str] = (),
    tags: Sequence[str] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
    prepare: Callable[..., Mapping[str, Any]] | None = None,
    after_update: Callable[..., None] | None = None,
    capped: Callable[..., Any] | None = None,
) -> Callable[[Function], Function]:
    """Make a function a choice of an axis.

    Args:
        axis: one of ``AXES``; it decides the arguments of the function, see ``ARGUMENTS``.
        name: how schemes call it, an identifier.
        source: paper (with arXiv number) or code, and how certain the formula is.
        uses: fields of the scheme that it reads; without being used a field may not be set.
        needs: columns of the batch that it reads besides the basic ones.
        tags: properties that the axis' module asks about, see ``TAGS``.
        ranges: lowest and highest value of its numeric options.
        prepare: see ``Part``; it gets the part's options as keywords too.
        after_update: likewise.
        capped: likewise.

    Raises:
        ValueError: if the axis, a used field, a needed column or a tag is unknown, the name is no identifier
            or is taken, or an option has no usable type.
        TypeError: if the function cannot be called as its axis calls it.
    """
    if axis not in _PARTS:
        raise ValueError(f"axis={axis!r} is not allowed: it must be one of {list(AXES)}.")
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"name={name!r} is not allowed: it must be an identifier, for example 'trimmed_mean'.")
    if name in _PARTS[axis]:
        raise ValueError(
            f"name={name!r} is taken: {axis} has a part of that name; unregister({axis!r}, {name!r}) frees it."
        )

    _check_names("uses", uses, _fields())
    _check_names("needs", needs, _columns())
    _check_names(f"tags of {axis}", tags, tuple(tag for tag, axes in TAGS.items() if axis in axes))

    def register(function: Function) -> Function:
        options = _options(function, ranges or {})
        taken = sorted(set(options) & {*_fields(), "recipe", "options"})
        if taken:
            raise ValueError(f"options {taken} of {function.__name__} are not allowed: schemes have fields so called.")
        _check_signature("function", function, ARGUMENTS[axis], options)
        if prepare is not None:
            _check_signature("prepare", prepare, ("scheme", "batch", "advantages"), options)
        if after_update is not None:
            _check_signature("after_update", after_update, ("scheme", "batch", "memory"), options)
        if capped is not None:
            _check_signature("capped", capped, ("scheme", "tokens", "ratio"), options)
        _PARTS[axis][name] = Part(
            axis, name, function, source, frozenset(uses), frozenset(needs), frozenset(tags), options,
            prepare, after_update, capped,
        )  # fmt: skip
        return function

    return register


def unregister(axis: str, name: str) -> None:
    """Take a part out again, so that another can have its name; for notebook cells that are run twice.

    Raises:
        ValueError: if there is none of that name.
    """
    if axis not in _PARTS:
        raise ValueError(f"axis={axis!r} is not allowed: it must be one of {list(AXES)}.")
    find(axis, name)
    del _PARTS[axis][name]


def _fields() -> tuple[str, ...]:
    """Return what ``uses`` may name."""
    from algos.scheme import FIELDS  # A scheme is made of parts; only their registration looks back.

    return tuple(name for name in FIELDS if name != "options")


def _columns() -> tuple[str, ...]:
    """Return what ``needs`` may name."""
    return (*(field.name for field in fields(RolloutBatch) if field.default is None), *LOSS_COLUMNS)


def _check_names(argument: str, names: Sequence[str], allowed: tuple[str, ...]) -> None:
    if isinstance(names, str):
        raise TypeError(f"{argument}={names!r} is not allowed: it must be a list of names.")
    for name in names:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise ValueError(f"{argument}: {name!r} is not allowed: it must be one of {list(allowed)}.{hint}")


def _check_signature(
    role: str, function: Callable[..., Any], arguments: tuple[str, ...], options: Mapping[str, Option]
) -> None:
    """Raise if a function cannot be called with positional arguments and the part's options as keywords."""
    signature = inspect.signature(function)
    written = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    try:
        signature.bind(*arguments, **dict.fromkeys(options))
        # A positional argument with a default would look like an option, and be none.
        fits = len(written) <= len(arguments)
    except TypeError:
        fits = False
    if not fits:
        wanted = ", ".join([*arguments, *(["*", *options] if options else [])])
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"{role}={name}{signature} is not allowed: it must take ({wanted}); options are keyword-only.")


def choices(axis: str) -> tuple[str, ...]:
    """Return the names of an axis' parts, in the order of their making."""
    return tuple(_PARTS[axis])


def find(axis: str, name: str) -> Part:
    """Return a part.

    Raises:
        ValueError: if there is none of that name; lists them.
    """
    if not isinstance(name, str) or name not in _PARTS[axis]:
        hint = did_you_mean(name, _PARTS[axis]) or YOUR_OWN
        raise ValueError(f"{axis}={name!r} is not allowed: it must be one of {list(_PARTS[axis])}.{hint}")
    return _PARTS[axis][name]


def owners(option: str) -> list[str]:
    """Return which parts, as ``axis=name``, have an option."""
    return [f"{axis}={name}" for axis, named in _PARTS.items() for name, p in named.items() if option in p.options]


def _options(function: Callable[..., Any], ranges: Mapping[str, tuple[float, float]]) -> dict[str, Option]:
    options = {}
    signature = inspect.signature(function, eval_str=True)
    for name, argument in signature.parameters.items():
        if argument.kind is not argument.KEYWORD_ONLY:
            continue
        if argument.default is argument.empty:
            raise ValueError(f"option {name!r} of {function.__name__} needs a default.")
        kind, optional, allowed = _kind(name, argument.annotation)
        low, high = ranges.get(name, (-math.inf, math.inf))
        options[name] = Option(name, argument.default, kind, optional, low, high, allowed)
    unknown = sorted(set(ranges) - set(options))
    if unknown:
        raise ValueError(f"ranges: {function.__name__} has no options {unknown}.")
    return options


def _kind(name: str, annotation: Any) -> tuple[str, bool, tuple[str, ...]]:
    """Read an annotation: kind, whether None is allowed, and the choices."""
    optional = False
    if isinstance(annotation, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        optional, annotation = len(members) < len(typing.get_args(annotation)), members[0]
    if typing.get_origin(annotation) is Literal:
        return "choice", optional, typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple:
        return "floats", optional, ()
    kinds = {float: "float", int: "int", bool: "bool"}
    if annotation not in kinds:
        raise ValueError(f"option {name!r} has the type {annotation}; it must be float, int, bool, Literal or tuple.")
    return kinds[annotation], optional, ()


def _read(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
