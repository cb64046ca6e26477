"""Scheme: one choice per axis of credit and loss, validated as a whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from algos.batch import LEVELS

CHOICES: dict[str, tuple[str, ...]] = {
    "signal": ("outcome", "gae"),
    "baseline": ("none", *LEVELS),
    "baseline_kind": ("mean", "leave_one_out"),
    "scale": ("none", *LEVELS),
    "scale_kind": ("std", "centred_std"),
    "whitening": ("none", "task", "environment", "batch"),
    "whitening_weight": ("rollout", "token"),
    "eps_placement": ("outside", "inside"),
    "singleton": ("zero", "raw"),
    "surrogate": ("ppo_clip", "reinforce"),
    "aggregation": ("token_mean", "rollout_mean", "constant"),
    "dead_groups": ("counted", "excluded"),
}

ALIASES = {("scale", False): "none", ("scale", True): "prompt", ("scale", "group"): "prompt"}
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
        whitening_weight: each rollout counts once, or once per token.
        ddof: 1 (sample) or 0 (population) in every spread.
        eps: added to every spread, >= 0.
        eps_placement: ``outside``: std + eps; ``inside``: sqrt(variance + eps).
        singleton: advantage of a group of one where there is a prompt baseline: ``zero`` or ``raw``.
        gamma, gae_lambda: discount and trace of ``gae``, in [0, 1].
        surrogate: ``ppo_clip``, or ``reinforce`` (no ratio, no clip).
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        dual_clip: bound of Dual-clip PPO for negative advantages, > 1, or None.
        aggregation: ``token_mean``; ``rollout_mean`` of token means; ``constant`` (token sum over
            ``aggregation_constant``, then mean over rollouts).
        aggregation_constant: None takes the batch's ``max_tokens``.
        dead_groups: whether groups without spread are counted in the loss's denominator.

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
    dead_groups: str = "counted"

    def __post_init__(self) -> None:
        """Validate fields, then combinations."""
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            value = ALIASES.get((name, value), value)
            object.__setattr__(self, name, value)
            if not isinstance(value, str) or value not in allowed:
                raise ValueError(f"{name}={value!r} is not allowed: it must be one of {list(allowed)}.")
        if self.ddof not in (0, 1) or isinstance(self.ddof, bool):
            raise ValueError(f"ddof={self.ddof!r} is not allowed: it must be 0 or 1.")
        _check("eps", self.eps, 0.0, math.inf)
        _check("gamma", self.gamma, 0.0, 1.0)
        _check("gae_lambda", self.gae_lambda, 0.0, 1.0)
        _check("clip_low", self.clip_low, 0.0, 1.0)
        _check("clip_high", self.clip_high, 0.0, math.inf)
        if self.dual_clip is not None:
            _check("dual_clip", self.dual_clip, 1.0, math.inf, open_low=True)
        if self.aggregation_constant is not None:
            _check("aggregation_constant", self.aggregation_constant, 0.0, math.inf, open_low=True)
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.signal == "gae" and (self.baseline != "none" or self.scale != "none"):
            raise ValueError(
                "signal='gae' has the critic as its baseline: baseline and scale must be 'none'."
            )
        if self.baseline_kind == "leave_one_out" and self.baseline == "none":
            raise ValueError("baseline_kind='leave_one_out' needs a baseline level; baseline is 'none'.")
        if self.scale_kind == "centred_std" and "none" in (self.scale, self.baseline):
            raise ValueError("scale_kind='centred_std' needs a scale and a baseline level.")
        if self.dual_clip is not None and self.surrogate != "ppo_clip":
            raise ValueError(f"dual_clip applies to surrogate='ppo_clip' only, not {self.surrogate!r}.")

    @property
    def needs_critic(self) -> bool:
        """Whether the scheme needs a value function."""
        return self.signal == "gae"

    def ignored(self) -> tuple[str, ...]:
        """Names of fields that have no effect in this combination."""
        unused = {
            "baseline_kind": self.baseline == "none",
            "singleton": self.baseline != "prompt",
            "scale_kind": self.scale == "none",
            "whitening_weight": self.whitening == "none",
            "ddof": self.scale == "none" and self.whitening == "none",
            "eps": self.scale == "none" and self.whitening == "none",
            "eps_placement": self.scale == "none" and self.whitening == "none",
            "gamma": self.signal != "gae",
            "gae_lambda": self.signal != "gae",
            "clip_low": self.surrogate != "ppo_clip",
            "clip_high": self.surrogate != "ppo_clip",
            "dual_clip": self.surrogate != "ppo_clip",
            "aggregation_constant": self.aggregation != "constant",
        }
        return tuple(name for name, no_effect in unused.items() if no_effect)


SchemeLike = str | Scheme | Mapping[str, Any] | tuple[str, Mapping[str, Any]]


def make_scheme(scheme: SchemeLike, **overrides: Any) -> Scheme:
    """Return a scheme from a recipe name, a scheme, or either with overrides.

    Args:
        scheme: a recipe name (``"grpo"``), a recipe with overrides in one string
            (``"grpo:scale=none,eps=1e-4"``), a pair ``("grpo", {"scale": "none"})``, a mapping of
            fields with an optional ``"recipe"``, or a ``Scheme``.
        **overrides: fields to change.

    Raises:
        ValueError: if the recipe is unknown, a value is not allowed, or an override would have no
            effect.
        TypeError: if a field is unknown.
    """
    base, changes = _base(scheme)
    changes = {**changes, **overrides}
    names = {field.name for field in fields(Scheme)}
    unknown = sorted(set(changes) - names)
    if unknown:
        raise TypeError(f"{unknown} are not fields of a scheme; the fields are {sorted(names)}.")
    result = dataclasses.replace(base, **changes)
    for name in set(changes) & set(result.ignored()):
        raise ValueError(f"{name}={changes[name]!r} has no effect here: {_reason(name, result)}.")
    return result


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
    raise TypeError(
        f"scheme={scheme!r} is not allowed: give a recipe name, a Scheme, or a name with overrides."
    )


def _parse(settings: str) -> dict[str, Any]:
    """Read ``"a=1,b=none"``; values keep the type of the field's default."""
    result: dict[str, Any] = {}
    for part in filter(None, settings.split(",")):
        name, equals, text = part.partition("=")
        if not equals:
            raise ValueError(f"scheme override {part!r} is not allowed: write field=value.")
        number = _number(text)
        result[name.strip()] = text.strip() if number is None else number
        if text.strip() == "None":
            result[name.strip()] = None
    return result


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _reason(name: str, scheme: Scheme) -> str:
    for axis, names in {
        "baseline": ("baseline_kind", "singleton"),
        "scale": ("scale_kind",),
        "whitening": ("whitening_weight",),
        "signal": ("gamma", "gae_lambda"),
        "surrogate": ("clip_low", "clip_high", "dual_clip"),
        "aggregation": ("aggregation_constant",),
    }.items():
        if name in names:
            return f"{axis} is {getattr(scheme, axis)!r}"
    return f"scale is {scheme.scale!r} and whitening is {scheme.whitening!r}"


def _check(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value < low or value > high or (open_low and value == low):  # type: ignore[operator]
        bracket = "(" if open_low else "["
        raise ValueError(
            f"{name}={value!r} is not allowed: it must be a finite number in {bracket}{low}, {high}]."
        )
