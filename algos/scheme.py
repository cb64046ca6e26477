"""Scheme: one choice per axis of credit and loss, validated as a whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from algos.batch import LEVELS

CHOICES: dict[str, tuple[str, ...]] = {
    "signal": ("outcome", "gae"),
    "baseline": ("none", *LEVELS),
    "baseline_kind": ("mean", "leave_one_out"),
    "scale": ("none", *LEVELS),
    "scale_kind": ("std", "centred_std"),
    "whitening": ("none", "task", "environment", "batch"),
    "whitening_weight": ("rollout", "turn", "token"),
    "eps_placement": ("outside", "inside"),
    "singleton": ("zero", "raw"),
    "surrogate": ("ppo_clip", "reinforce"),
    "aggregation": ("token_mean", "rollout_mean", "constant"),
    "kl": ("none", "k1", "k2", "k3"),
    "dead_groups": ("counted", "excluded"),
}

NUMBERS: dict[str, tuple[float, float, bool]] = {
    "eps": (0.0, math.inf, False),
    "gamma": (0.0, 1.0, False),
    "gae_lambda": (0.0, 1.0, False),
    "clip_low": (0.0, 1.0, False),
    "clip_high": (0.0, math.inf, False),
    "dual_clip": (1.0, math.inf, True),
    "aggregation_constant": (0.0, math.inf, True),
    "kl_coef": (0.0, math.inf, True),
}
"""Field -> lowest and highest value, and whether the lowest itself is excluded."""

OPTIONAL = ("dual_clip", "aggregation_constant")
"""Numbers that may be None."""

SCALE_ALIASES = {"True": "prompt", "False": "none", "group": "prompt"}
"""Spellings of other trainers (TRL's ``scale_rewards``)."""


@dataclass(frozen=True)
class Scheme:
    """How rollouts become a gradient. Every field has a default; the default scheme is GRPO's.

    Attributes:
        signal: what is credited: the rollout's ``outcome``, or ``gae`` with a critic.
        baseline: level whose mean is subtracted, or ``none``.
        baseline_kind: ``mean``, or ``leave_one_out`` (mean of the others).
        scale: level whose spread divides, or ``none``.
        scale_kind: spread of the raw signal (``std``), or of the signal after the baseline
            (``centred_std``).
        whitening: level over which the result is shifted to mean 0 and scaled to spread 1, or
            ``none``.
        whitening_weight: what counts once in the whitening's mean and spread: each ``rollout``,
            each ``turn`` or each ``token`` (of those that have tokens in the mask).
        ddof: 1 (sample) or 0 (population) in every spread.
        eps: added to every spread, >= 0.
        eps_placement: ``outside``: std + eps; ``inside``: sqrt(variance + eps).
        singleton: advantage of a group of one where there is a prompt baseline: ``zero``, or ``raw``
            (its return, neither centred nor divided by a prompt scale).
        gamma, gae_lambda: discount and trace of ``gae``, in [0, 1].
        surrogate: ``ppo_clip``, or ``reinforce`` (no ratio, no clip).
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        dual_clip: bound of Dual-clip PPO for negative advantages, > 1, or None.
        aggregation: ``token_mean``; ``rollout_mean`` of token means; ``constant`` (token sum over
            ``aggregation_constant``, then mean over rollouts).
        aggregation_constant: None takes the batch's ``max_tokens``.
        kl: estimator of a KL penalty in the loss, see ``surrogates.kl``, or ``none``.
        kl_coef: weight of the penalty, > 0.
        dead_groups: ``counted``, or ``excluded`` from the loss and its denominator: groups whose
            returns are all equal.

    Raises:
        ValueError: if a value, or a combination of values, is not allowed; says why.
    """

    signal: str = "outcome"
    baseline: str = "prompt"
    baseline_kind: str = "mean"
    scale: str = "prompt"
    scale_kind: str = "std"
    whitening: str = "none"
    whitening_weight: str = "rollout"
    ddof: int = 1
    eps: float = 1e-6
    eps_placement: str = "outside"
    singleton: str = "zero"
    gamma: float = 0.99
    gae_lambda: float = 0.95
    surrogate: str = "ppo_clip"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    aggregation: str = "rollout_mean"
    aggregation_constant: float | None = None
    kl: str = "none"
    kl_coef: float = 0.001
    dead_groups: str = "counted"

    def __post_init__(self) -> None:
        """Validate fields, then combinations."""
        for name in FIELDS:
            object.__setattr__(self, name, _validated(name, getattr(self, name)))
        if self.signal == "gae" and (self.baseline != "none" or self.scale != "none"):
            raise ValueError("signal='gae' has the critic as its baseline: baseline and scale must be 'none'.")
        if self.dead_groups == "excluded" and (self.baseline != "prompt" or self.singleton == "raw"):
            raise ValueError(
                "dead_groups='excluded' needs baseline='prompt' and singleton='zero': otherwise groups "
                "whose returns are all equal have a signal."
            )
        for name, reason in _unused(dataclasses.asdict(self)).items():
            if getattr(self, name) != FIELDS[name].default:
                raise ValueError(f"{name}={getattr(self, name)!r} has no effect here: {reason}.")

    @property
    def needs_critic(self) -> bool:
        """Whether the scheme needs a value function."""
        return self.signal == "gae"

    def ignored(self) -> tuple[str, ...]:
        """Names of fields that have no effect in this combination."""
        return tuple(_unused(dataclasses.asdict(self)))


FIELDS = {field.name: field for field in fields(Scheme)}

SchemeLike = str | Scheme | Mapping[str, Any] | tuple[str, Mapping[str, Any]]


def make_scheme(scheme: SchemeLike, **overrides: Any) -> Scheme:
    """Return a scheme from a recipe name, a scheme, or either with overrides.

    Args:
        scheme: a recipe name (``"grpo"``), a recipe with overrides in one string
            (``"grpo:scale=none,eps=1e-4"``), a pair ``("grpo", {"scale": "none"})``, a mapping of
            fields with an optional ``"recipe"``, or a ``Scheme``.
        **overrides: fields to change.

    Fields of the recipe that the overrides make meaningless go back to their defaults, so that
    equal schemes compare equal.

    Raises:
        ValueError: if the recipe is unknown, a value is not allowed, or an override would have no
            effect.
        TypeError: if a field is unknown.
    """
    base, changes = _base(scheme)
    changes = {**changes, **overrides}
    unknown = sorted(set(changes) - set(FIELDS))
    if unknown:
        raise TypeError(f"{unknown} are not fields of a scheme; the fields are {sorted(FIELDS)}.")
    values = {**dataclasses.asdict(base), **{name: _validated(name, v) for name, v in changes.items()}}
    for name, reason in _unused(values).items():
        if name in changes:
            raise ValueError(f"{name}={changes[name]!r} has no effect here: {reason}.")
        values[name] = FIELDS[name].default
    return Scheme(**values)


def _base(scheme: SchemeLike) -> tuple[Scheme, dict[str, Any]]:
    from algos.recipes import recipe

    if isinstance(scheme, Scheme):
        return scheme, {}
    if isinstance(scheme, str):
        name, _, settings = scheme.partition(":")
        return recipe(name).scheme, _parse(settings)
    if isinstance(scheme, Mapping):
        settings_map = dict(scheme)
        name = settings_map.pop("recipe", None)
        return (Scheme() if name is None else recipe(name).scheme), settings_map
    if isinstance(scheme, tuple) and len(scheme) == 2:
        return recipe(scheme[0]).scheme, dict(scheme[1])
    raise TypeError(f"scheme={scheme!r} is not allowed: give a recipe name, a Scheme, or a name with overrides.")


def _parse(settings: str) -> dict[str, Any]:
    """Read ``"a=1,b=none"``: numbers where the text is one, None for optional numbers, else text."""
    result: dict[str, Any] = {}
    for part in filter(None, settings.split(",")):
        name, equals, text = (piece.strip() for piece in part.partition("="))
        if not equals or name in result:
            raise ValueError(f"scheme override {part!r} is not allowed: write field=value, each field once.")
        number = _number(text)
        result[name] = text if number is None else number
        if name in OPTIONAL and text in ("none", "None"):
            result[name] = None
    return result


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _validated(name: str, value: Any) -> Any:
    """Return a field's value in its one spelling."""
    if name in CHOICES:
        if name == "scale" and isinstance(value, bool | str):
            value = SCALE_ALIASES.get(str(value), value)
        if not isinstance(value, str) or value not in CHOICES[name]:
            raise ValueError(f"{name}={value!r} is not allowed: it must be one of {list(CHOICES[name])}.")
        return str(value)
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if name == "ddof":
        if not number or value not in (0, 1):
            raise ValueError(f"ddof={value!r} is not allowed: it must be 0 or 1.")
        return int(value)
    if value is None and name in OPTIONAL:
        return None
    low, high, open_low = NUMBERS[name]
    if not number or not low <= value <= high or (open_low and value == low):
        bracket = "(" if open_low else "["
        raise ValueError(f"{name}={value!r} is not allowed: it must be a finite number in {bracket}{low}, {high}].")
    return float(value)


def _unused(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that have no effect in a combination of values, with the reason."""
    because = {name: f"{name} is {value!r}" for name, value in values.items()}
    spread = f"{because['scale']} and {because['whitening']}"
    no_spread = values["scale"] == values["whitening"] == "none"
    no_clip, no_gae = values["surrogate"] != "ppo_clip", values["signal"] != "gae"
    rules = {
        "baseline_kind": (values["baseline"] == "none", because["baseline"]),
        "singleton": (values["baseline"] != "prompt", because["baseline"]),
        "scale_kind": (
            "none" in (values["scale"], values["baseline"]),
            f"{because['scale']} and {because['baseline']}",
        ),
        "whitening_weight": (values["whitening"] == "none", because["whitening"]),
        "ddof": (no_spread, spread),
        "eps": (no_spread, spread),
        "eps_placement": (no_spread, spread),
        "gamma": (no_gae, because["signal"]),
        "gae_lambda": (no_gae, because["signal"]),
        "clip_low": (no_clip, because["surrogate"]),
        "clip_high": (no_clip, because["surrogate"]),
        "dual_clip": (no_clip, because["surrogate"]),
        "aggregation_constant": (values["aggregation"] != "constant", because["aggregation"]),
        "kl_coef": (values["kl"] == "none", because["kl"]),
    }
    return {name: reason for name, (unused, reason) in rules.items() if unused}
