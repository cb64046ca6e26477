"""Scheme: one choice per axis of credit and loss, validated as a whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from agentic_gym.knobs import did_you_mean, in_range
from algos import parts
from algos.batch import LEVELS, TURN_LEVELS
from algos.parts import Part

LEVEL_CHOICES: dict[str, tuple[str, ...]] = {
    "baseline": ("none", *LEVELS, *TURN_LEVELS),
    "scale": ("none", *LEVELS, *TURN_LEVELS),
    "accumulation": ("none", "sum", "root"),
    "whitening": ("none", "task", "environment", "batch"),
    "whitening_weight": ("rollout", "turn", "token"),
    "eps_placement": ("outside", "inside"),
    "singleton": ("zero", "raw"),
    "dead_groups": ("counted", "excluded"),
}
"""Choices of the fields that are not parts."""

NUMBERS: dict[str, tuple[float, float, bool]] = {
    "eps": (0.0, math.inf, False),
    "gamma": (0.0, 1.0, False),
    "gae_lambda": (0.0, 1.0, False),
    "clip_low": (0.0, 1.0, False),
    "clip_high": (0.0, math.inf, False),
    "dual_clip": (1.0, math.inf, True),
    "aggregation_constant": (0.0, math.inf, True),
    "kl_coef": (0.0, math.inf, True),
    "kl_target": (0.0, math.inf, True),
    "kl_horizon": (1.0, math.inf, False),
}
"""Field -> lowest and highest value, and whether the lowest itself is excluded."""

OPTIONAL = ("dual_clip", "aggregation_constant", "kl_target")
"""Numbers that may be None."""

SCALE_ALIASES = {"True": "prompt", "False": "none", "group": "prompt"}
"""Spellings of other trainers (TRL's ``scale_rewards``)."""

ALWAYS = frozenset(
    {
        "signal", "whitening", "weights", "surrogate", "token_filter", "correction", "aggregation", "kl",
        "dead_groups", "sampling",
    }
)  # fmt: skip
"""Fields that matter in every scheme."""

CONTROLLERS: dict[str, tuple[str, ...]] = {
    "baseline": ("signal",),
    "baseline_kind": ("baseline",),
    "scale": ("signal",),
    "scale_kind": ("scale", "baseline"),
    "accumulation": ("signal",),
    "whitening_weight": ("whitening",),
    "ddof": ("scale", "whitening"),
    "eps": ("scale", "whitening"),
    "eps_placement": ("scale", "whitening"),
    "singleton": ("baseline", "baseline_kind"),
    "gamma": ("signal",),
    "gae_lambda": ("signal",),
    "ratio": ("surrogate",),
    "bounds": ("surrogate",),
    "clip_low": ("surrogate", "bounds"),
    "clip_high": ("surrogate", "bounds"),
    "dual_clip": ("surrogate",),
    "aggregation_constant": ("aggregation",),
    "kl_coef": ("kl",),
    "kl_target": ("kl",),
    "kl_horizon": ("kl", "kl_target"),
}
"""Which fields decide whether a field matters."""

LEVELLED = ("baseline", "scale")
"""Fields that must be ``none`` where they do not matter: their default would look like a choice."""


@dataclass(frozen=True)
class Scheme:
    """How rollouts become a gradient. Every field has a default; the default scheme is GRPO's.

    ``python -m algos schemes --parts`` lists the choices of every axis with their options.

    Attributes:
        signal: what is credited: the rollout's ``outcome``, ``gae`` with a critic, and others.
        baseline: level over which a baseline is computed and subtracted, or ``none``.
        baseline_kind: ``mean``, ``leave_one_out`` (mean of the others), and others.
        scale: level whose spread divides, or ``none``.
        scale_kind: spread of the raw signal (``std``), of the signal after the baseline
            (``centred_std``), and others.
        accumulation: how turns' credits add up to a turn's advantage: ``none``; discounted ``sum``
            over this and later turns; that sum divided by the ``root`` of the number of terms.
        whitening: level over which the result is shifted to mean 0 and scaled to spread 1, or
            ``none``.
        whitening_weight: what counts once in the whitening's mean and spread: each ``rollout``,
            each ``turn`` or each ``token`` (of those that have tokens in the mask).
        weights: factors on the advantages, or ``none``.
        ddof: 1 (sample) or 0 (population) in every spread.
        eps: added to every spread, >= 0.
        eps_placement: ``outside``: std + eps; ``inside``: sqrt(variance + eps).
        singleton: advantage of a group of one where there is a prompt baseline of the group's own
            returns: ``zero``, or ``raw`` (its return, neither centred nor divided by a prompt scale).
        gamma, gae_lambda: discount over turns and trace, in [0, 1].
        surrogate: ``ppo_clip``, ``reinforce`` (no ratio, no clip), and others.
        ratio: over what the importance ratio is taken: ``token``, and others.
        bounds: how the bounds of the ratio are set: ``fixed``, and others.
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        dual_clip: bound of Dual-clip PPO for negative advantages, > 1, or None.
        token_filter: which tokens are left out of the loss besides masked ones, or ``none``.
        correction: weight for tokens that another policy than the one at the start of the update
            wrote, or ``none``.
        aggregation: ``token_mean``; ``rollout_mean`` of token means; ``constant`` (token sum over
            ``aggregation_constant``, then mean over rollouts), and others.
        aggregation_constant: None takes the batch's ``max_tokens``.
        kl: estimator of a KL penalty, in the loss or in the reward, see ``surrogates.kl``, or ``none``.
        kl_coef: weight of the penalty, > 0.
        kl_target: None keeps the weight; a number > 0 (verl: 0.1) lets it follow the KL: after an update
            it is multiplied by 1 + error x rollouts / ``kl_horizon`` (at most 1), with error = KL / target
            - 1 cut to +-0.2 (arXiv 1909.08593); the KL is the penalty's mean, before the update.
        kl_horizon: rollouts in which a weight that is far off changes by a fifth, >= 1.
        dead_groups: ``counted``, or ``excluded`` from the loss and its denominator: groups whose
            returns are all equal.
        sampling: which prompts are rolled out, how often, and by which policy.
        options: settings of the chosen parts that differ from their defaults, name -> value.

    Raises:
        ValueError: if a value, or a combination of values, is not allowed; says why.
    """

    signal: str = "outcome"
    baseline: str = "prompt"
    baseline_kind: str = "mean"
    scale: str = "prompt"
    scale_kind: str = "std"
    accumulation: str = "none"
    whitening: str = "none"
    whitening_weight: str = "rollout"
    weights: str = "none"
    ddof: int = 1
    eps: float = 1e-6
    eps_placement: str = "outside"
    singleton: str = "zero"
    gamma: float = 0.99
    gae_lambda: float = 0.95
    surrogate: str = "ppo_clip"
    ratio: str = "token"
    bounds: str = "fixed"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    token_filter: str = "none"
    correction: str = "none"
    aggregation: str = "rollout_mean"
    aggregation_constant: float | None = None
    kl: str = "none"
    kl_coef: float = 0.001
    kl_target: float | None = None
    kl_horizon: float = 10_000.0
    dead_groups: str = "counted"
    sampling: str = "uniform"
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Validate fields, then combinations."""
        for name in FIELDS:
            if name != "options":
                object.__setattr__(self, name, _validated(name, getattr(self, name)))
        values = {name: getattr(self, name) for name in FIELDS}
        _check_combination(values)
        for name, reason in _unused(values).items():
            if getattr(self, name) != _neutral(name):
                raise ValueError(f"{name}={getattr(self, name)!r} has no effect here: {reason}.")
        object.__setattr__(self, "options", _checked_options(values, _option_values(self.options)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a saved scheme; what were options of a KL penalty once are fields now."""
        options = dict(state["options"])
        moved = {name: options.pop(name) for name in ("kl_target", "kl_horizon") if name in options}
        self.__dict__.update(state | moved | {"options": tuple(sorted(options.items()))})

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that are in use."""
        return _active({name: getattr(self, name) for name in FIELDS})

    @property
    def needs(self) -> frozenset[str]:
        """Columns of the batch that the parts read besides the basic ones."""
        return frozenset().union(*(p.needs for p in self.parts))

    @property
    def needs_critic(self) -> bool:
        """Whether the scheme needs a value function."""
        return "value" in self.needs

    @property
    def clips(self) -> bool:
        """Whether the surrogate has bounds for the ratio."""
        return "bounds" in parts.find("surrogate", self.surrogate).uses

    def run(self, axis: str, *arguments: Any) -> Any:
        """Call the axis' part with the scheme, the arguments and the part's options."""
        chosen = parts.find(axis, getattr(self, axis))
        return chosen.function(self, *arguments, **self.options_of(chosen))

    def options_of(self, chosen: Part) -> dict[str, Any]:
        """Return the options of a part: this scheme's, else the defaults."""
        own = dict(self.options)
        return {name: own.get(name, option.default) for name, option in chosen.options.items()}

    def ignored(self) -> tuple[str, ...]:
        """Names of fields that have no effect in this combination."""
        return tuple(_unused({name: getattr(self, name) for name in FIELDS}))


FIELDS = {field.name: field for field in fields(Scheme)}
PART_FIELDS = tuple(name for name in FIELDS if name in parts.AXES)

SchemeLike = str | Scheme | Mapping[str, Any] | tuple[str, Mapping[str, Any]]


def choices(name: str) -> tuple[str, ...]:
    """Return what a field may be, for fields with a fixed set of values; else nothing."""
    return parts.choices(name) if name in PART_FIELDS else LEVEL_CHOICES.get(name, ())


def make_scheme(scheme: SchemeLike, **overrides: Any) -> Scheme:
    """Return a scheme from a recipe name, a scheme, or either with overrides.

    Args:
        scheme: a recipe name (``"grpo"``), a recipe with overrides in one string
            (``"grpo:scale=none,eps=1e-4"``), a pair ``("grpo", {"scale": "none"})``, a mapping of
            fields with an optional ``"recipe"``, or a ``Scheme``.
        **overrides: fields to change, or options of the chosen parts.

    Fields of the recipe that the overrides make meaningless go back to their defaults, and options
    of parts that are no longer in use are dropped, so that equal schemes compare equal.

    Raises:
        ValueError: if the recipe is unknown, a value is not allowed, or an override would have no
            effect.
        TypeError: if a field or option is unknown.
    """
    base, changes = _base(scheme)
    changes = {**changes, **overrides}
    extra = {name: changes.pop(name) for name in sorted(set(changes) - set(FIELDS))}
    extra = {**_option_values(changes.pop("options", ())), **extra}
    unknown = [name for name in extra if not parts.owners(name)]
    if unknown:
        hint = did_you_mean(unknown[0], _settable())
        raise TypeError(
            f"{unknown} are not fields of a scheme; the fields are {sorted(set(FIELDS) - {'options'})}.{hint}"
        )
    values = {**_values(base), **{name: _validated(name, v) for name, v in changes.items()}}
    for name, reason in _unused(values).items():
        if name in changes and (name not in LEVELLED or values[name] != "none"):
            raise ValueError(f"{name}={changes[name]!r} has no effect here: {reason}.")
        values[name] = _neutral(name)
    possible = {name for p in _active(values) for name in p.options}
    kept = {name: value for name, value in values["options"] if name in possible}
    return Scheme(**{**values, "options": tuple({**kept, **extra}.items())})


def _settable() -> set[str]:
    """Names of everything that a text may set: fields, and options of the parts."""
    options = {
        name for axis in parts.AXES for chosen in parts.choices(axis) for name in parts.find(axis, chosen).options
    }
    return (set(FIELDS) | options) - {"options"}


def _option_values(options: Any) -> dict[str, Any]:
    """Return options, given as pairs or as a mapping, by their names."""
    try:
        result = dict(options)
    except (TypeError, ValueError):
        result = {None: None}
    if not all(isinstance(name, str) for name in result):
        raise TypeError(f"options={options!r} is not allowed: it must be a mapping or pairs of a name and a value.")
    return result


def _neutral(name: str) -> Any:
    """Return the value that a field has where it does not matter."""
    return "none" if name in LEVELLED else FIELDS[name].default


def _values(scheme: Scheme) -> dict[str, Any]:
    return {name: getattr(scheme, name) for name in FIELDS}


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
        if name == "options":
            raise ValueError(f"scheme override {part!r} is not allowed: write the option itself, like a field.")
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
    if name == "options":
        return value
    allowed = choices(name)
    if allowed:
        if name == "scale" and isinstance(value, bool | str):
            value = SCALE_ALIASES.get(str(value), value)
        if not isinstance(value, str) or value not in allowed:
            hint = did_you_mean(value, allowed) or (parts.YOUR_OWN if name in PART_FIELDS else "")
            raise ValueError(f"{name}={value!r} is not allowed: it must be one of {list(allowed)}.{hint}")
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
        wanted = in_range("a finite number", low, high, open_low=open_low)
        raise ValueError(f"{name}={value!r} is not allowed: it must be {wanted}.")
    return float(value)


def _check_combination(values: Mapping[str, Any]) -> None:
    """Raise where two choices contradict each other."""
    used = _used(values)
    for name in LEVELLED:
        if name not in used and values[name] != "none":
            raise ValueError(f"signal={values['signal']!r} has its own {name}: {name} must be 'none'.")
        if values[name] in TURN_LEVELS and not _per_turn(values):
            raise ValueError(
                f"{name}={values[name]!r} is a level of turns, but signal={values['signal']!r} gives one number per "
                "rollout."
            )
    in_returns = _option_values(values["options"]).get("bears", "rollout") == "rollout"
    if reads_no_returns(values["signal"]) and "in_reward" in parts.find("kl", values["kl"]).tags and in_returns:
        raise ValueError(
            f"kl={values['kl']!r} has no effect with signal={values['signal']!r}, which reads the components of the "
            "rewards, not the rewards: take a penalty in the loss, or let tokens bear their own (bears='own')."
        )
    if values["dead_groups"] == "excluded" and not _dead_are_silent(values):
        raise ValueError(
            "dead_groups='excluded' needs signal='outcome', baseline='prompt' of a kind within the range of the "
            "group's returns, and singleton='zero': otherwise groups whose returns are all equal have a signal."
        )


def reads_no_returns(signal: str) -> bool:
    """Whether a signal reads the components of the rewards only, so that a penalty on returns is lost on it."""
    return "without_returns" in parts.find("signal", signal).tags


def _dead_are_silent(values: Mapping[str, Any]) -> bool:
    """Whether groups whose returns are all equal have nothing to tell."""
    own_range = "own_range" in parts.find("baseline_kind", values["baseline_kind"]).tags
    among_group = values["signal"] == "outcome" and values["baseline"] == "prompt"
    return among_group and own_range and values["singleton"] == "zero"


def _from_outside(values: Mapping[str, Any]) -> bool:
    """Whether the baseline does not come from the group's own returns."""
    return "outside" in parts.find("baseline_kind", values["baseline_kind"]).tags


def _per_turn(values: Mapping[str, Any]) -> bool:
    return "per_turn" in parts.find("signal", values["signal"]).tags


def _active(values: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return the parts that a combination of values puts to use."""
    used = _used(values)
    return tuple(parts.find(axis, values[axis]) for axis in PART_FIELDS if axis in used)


def _used(values: Mapping[str, Any]) -> set[str]:
    """Return the fields that have an effect in a combination of values."""
    used: set[str] = set()
    found = set(ALWAYS)
    while found:
        used |= found
        reached: set[str] = set()
        for axis in found & set(PART_FIELDS):
            reached |= parts.find(axis, values[axis]).uses
        if "baseline" in found and values["baseline"] != "none":
            reached |= {"baseline_kind"}
            if values["baseline"] == "prompt" and not _from_outside(values):
                reached |= {"singleton"}
        # Without a baseline all kinds of spread are that of the signal itself.
        if "scale" in found and values["scale"] != "none":
            reached |= {"ddof", "eps", "eps_placement"} if values["baseline"] == "none" else {"scale_kind"}
        if "whitening" in found and values["whitening"] != "none":
            reached |= {"whitening_weight", "ddof", "eps", "eps_placement"}
        if "kl_target" in found and values["kl_target"] is not None:
            reached |= {"kl_horizon"}
        found = reached - used
    return used & set(FIELDS)


def _unused(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that have no effect in a combination of values, with the reason."""
    used = _used(values)
    return {
        name: " and ".join(f"{controller} is {values[controller]!r}" for controller in controllers)
        for name, controllers in CONTROLLERS.items()
        if name not in used
    }


def _checked_options(values: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the options that differ from their defaults, validated, in alphabetical order."""
    result = {}
    active = _active(values)
    for name, value in options.items():
        found = [p.options[name] for p in active if name in p.options]
        if not found:
            where = parts.owners(name)
            if not where:
                hint = did_you_mean(name, _settable())
                raise TypeError(f"{name!r} is not an option of any part of a scheme.{hint}")
            raise ValueError(f"{name}={value!r} has no effect here: it is an option of {', '.join(where)}.")
        checked = [option.check(value) for option in found]
        if any(one != option.default for one, option in zip(checked, found, strict=True)):
            result[name] = checked[0]
    return tuple(sorted(result.items()))
