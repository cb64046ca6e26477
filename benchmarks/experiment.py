"""Experiments as data: what is run, which question it answers, what identifies a run.

An `Experiment` is regimes x schemes x seeds with a budget. It expands into `RunConfig`
objects, and a run is a function of its `RunConfig` alone: equal configurations have equal
identities, so a finished run is never trained twice, and a changed knob never reuses a result.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Literal, Protocol, get_args

# Raise it when a change of the code makes stored results incomparable with new ones.
RESULTS_VERSION = 1

Phase = Literal["tune", "report", "sensitivity"]
Metric = Literal["mean", "worst", "final_mean", "final_worst"]
Split = Literal["train", "test"]

PHASES: tuple[Phase, ...] = get_args(Phase)
METRICS: tuple[Metric, ...] = get_args(Metric)
SPLITS: tuple[Split, ...] = get_args(Split)

_DIGEST_LENGTH = 12

Rate = float | Mapping[str, float]
"""A learning rate for all regimes, or one for each, by the regime's name."""


def rate_in(rate: Rate, regime: str) -> float:
    """Return the learning rate of a regime."""
    return rate[regime] if isinstance(rate, Mapping) else rate


def rates_in(rate: Rate) -> tuple[float, ...]:
    """Return the learning rates of all regimes, in their order, or the one that serves all."""
    return tuple(rate.values()) if isinstance(rate, Mapping) else (rate,)


def spell_rate(rate: Rate) -> str:
    """Write a learning rate, or those of the regimes in their order, as ``0.01/0.003``; once if all are equal."""
    rates = rates_in(rate)
    return "/".join(f"{one:g}" for one in (rates if len(set(rates)) > 1 else rates[:1]))


class BenchmarkError(ValueError):
    """An error whose message tells the user all there is to know; shown without a traceback."""


@dataclass(frozen=True)
class Regime:
    """One setting of the mismatch axes.

    Attributes:
        name: Unique within the experiment.
        env_id: Gymnasium id of the environment or mixture.
        env_kwargs: Knobs of the environment, JSON values only. Copied, so that a later change
            of the caller's object cannot change the experiment; tuples become lists.
        axis_value: Position of the regime on the experiment's axis.
        budget: Fields of the experiment's budget that the regime changes, where the axis is one of them.
    """

    name: str
    env_id: str
    env_kwargs: Mapping[str, Any] = field(hash=False)
    axis_value: float
    budget: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        """Check the fields and copy the knobs."""
        _check_text("name", self.name)
        _check_text("env_id", self.env_id)
        object.__setattr__(self, "env_kwargs", _json_copy("env_kwargs", self.env_kwargs))
        object.__setattr__(self, "axis_value", _finite("axis_value", self.axis_value))
        if self.budget is not None:
            object.__setattr__(self, "budget", _json_copy("budget", self.budget))

    def apply(self, budget: "Budget") -> "Budget":
        """Return the budget with this regime's changes."""
        return replace(budget, **(self.budget or {}))


@dataclass(frozen=True)
class Budget:
    """How much one run may use; the same for every scheme of an experiment.

    Attributes:
        total_turns: Environment turns of training.
        n_prompts: Prompts per update.
        group_size: Rollouts per prompt; for schemes that compare within groups at least 2.
        n_epochs: Passes over the rollouts of one update.
        n_minibatches: Minibatches per pass.
        n_evaluations: Evaluation points during training, besides the one before it.
        eval_rollouts: Rollouts per environment and evaluation point.
        warmstart_success: Success rate of the base policy, in [0, 1]; 0 is no warm start.
        staleness: Rollouts are written by the policy of this many updates ago.
        net_width: Width of the two hidden layers.
        eval_group: Evaluation rollouts per prompt; of more than one, at least one success counts
            for ``pass_at_k``.
        eval_split: Prompts of the evaluation, ``"test"``, or ``"train"`` where there are too few
            training prompts to say anything about others.
    """

    total_turns: int
    n_prompts: int
    group_size: int
    n_epochs: int
    n_minibatches: int
    n_evaluations: int
    eval_rollouts: int
    warmstart_success: float
    staleness: int = 0
    net_width: int = 64
    eval_group: int = 1
    eval_split: Split = "test"

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_choice("eval_split", self.eval_split, SPLITS)
        for entry in fields(self):
            if entry.name not in ("warmstart_success", "eval_split"):
                _check_integer(entry.name, getattr(self, entry.name), minimum=0 if entry.name == "staleness" else 1)
        success = _finite("warmstart_success", self.warmstart_success)
        if not 0 <= success <= 1:
            raise ValueError(f"'warmstart_success' must be in the range [0, 1]. Got {success!r} instead.")
        object.__setattr__(self, "warmstart_success", success)


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run.

    Attributes:
        experiment: Name of the experiment.
        regime: The environment and its knobs.
        scheme: Name of the credit scheme.
        seed: Seed of the run; runs of different schemes with one seed are pairs.
        learning_rate: Step size of the optimiser.
        phase: ``"tune"`` chooses the learning rate, ``"report"`` is what figures show.
        budget: How much the run may use.
    """

    experiment: str
    regime: Regime
    scheme: str
    seed: int
    learning_rate: float
    phase: Phase
    budget: Budget

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_name("experiment", self.experiment)
        _check_text("scheme", self.scheme)
        _check_integer("seed", self.seed, minimum=0)
        object.__setattr__(self, "learning_rate", _positive("learning_rate", self.learning_rate))
        _check_choice("phase", self.phase, PHASES)


@dataclass(frozen=True)
class Experiment:
    """A question, the claim it tests, and the runs that answer it.

    Attributes:
        name: File name of the results, an identifier.
        question: What the experiment asks.
        claim: The published claim under test, with its source and its prediction.
        regimes: Settings along the axis, names unique.
        schemes: Credit schemes to compare, unique.
        seeds: Seeds of the reported runs, unique.
        tuning_seeds: Seeds of the runs that choose the learning rate, none of them reported.
            May be empty if there is one learning rate only.
        learning_rates: The grid, the same for every scheme, unique.
        budget: How much each run may use.
        axis: What the regimes' ``axis_value`` measures.
        metric: The per-run score that decides, a column of `benchmarks.aggregate.run_scores`.
        rate_per_regime: Whether each regime has a learning rate of its own, where the axis itself
            changes how large or how many the steps are; else one rate has to serve all regimes.
    """

    name: str
    question: str
    claim: str
    regimes: tuple[Regime, ...]
    schemes: tuple[str, ...]
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    learning_rates: tuple[float, ...]
    budget: Budget
    axis: str
    metric: Metric
    rate_per_regime: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_name("name", self.name)
        for name in ("question", "claim", "axis"):
            _check_text(name, getattr(self, name))
        rates = tuple(_positive("learning_rates", rate) for rate in _as_tuple("learning_rates", self.learning_rates))
        object.__setattr__(self, "learning_rates", rates)
        for name in ("regimes", "schemes", "seeds", "tuning_seeds", "learning_rates"):
            values = _as_tuple(name, getattr(self, name))
            object.__setattr__(self, name, values)
            # With one learning rate there is nothing to tune.
            _check_unique(name, values, may_be_empty=name == "tuning_seeds" and len(rates) == 1)
        _check_unique("regimes", [regime.name for regime in self.regimes])
        for scheme in self.schemes:
            _check_text("schemes", scheme)
        for seed in self.seeds + self.tuning_seeds:
            _check_integer("seeds", seed, minimum=0)
        shared = sorted(set(self.seeds) & set(self.tuning_seeds))
        if shared:
            raise ValueError(f"'tuning_seeds' must not contain reported seeds. Got {shared} in both.")
        _check_choice("metric", self.metric, METRICS)

    def runs(self, phase: Phase, learning_rates: Mapping[str, Rate] | None = None) -> list[RunConfig]:
        """Configurations of one phase, seeds outermost: a sweep cut short still compares all schemes.

        Args:
            phase: ``"tune"`` or ``"report"`` (``"sensitivity"`` is for claims). An experiment with
                one learning rate has no tuning runs.
            learning_rates: The chosen rate of each scheme, from the grid, or its rates by regime; required
                for ``"report"``, not allowed for ``"tune"``, which runs the whole grid.

        Returns:
            The configurations, in a fixed order.
        """
        _check_choice("phase", phase, PHASES)
        if phase == "tune":
            if learning_rates is not None:
                raise ValueError("'learning_rates' must be None for the phase 'tune', which runs the whole grid.")
            grid = self.learning_rates if len(self.learning_rates) > 1 else ()
            return self._product("tune", self.tuning_seeds, lambda scheme, regime: grid)
        rates = dict(learning_rates or {})
        known = {rate for chosen in rates.values() for rate in rates_in(chosen)} <= set(self.learning_rates)
        names = {regime.name for regime in self.regimes}
        complete = all(not isinstance(chosen, Mapping) or set(chosen) == names for chosen in rates.values())
        if set(rates) != set(self.schemes) or not known or not complete:
            raise ValueError(
                f"'learning_rates' must map each of {list(self.schemes)} to one of "
                f"{list(self.learning_rates)} in the phase 'report'. Got {learning_rates!r} instead."
            )
        return self._product("report", self.seeds, lambda scheme, regime: (rate_in(rates[scheme], regime),))

    def every_run(self) -> list[RunConfig]:
        """All configurations that can belong to this experiment, whichever rates are chosen."""
        return self.runs("tune") + self._product("report", self.seeds, lambda scheme, regime: self.learning_rates)

    def _product(
        self, phase: Phase, seeds: Iterable[int], rates: Callable[[str, str], tuple[float, ...]]
    ) -> list[RunConfig]:
        return [
            RunConfig(self.name, regime, scheme, seed, rate, phase, regime.apply(self.budget))
            for seed in seeds
            for regime in self.regimes
            for scheme in self.schemes
            for rate in rates(scheme, regime.name)
        ]


class Runs(Protocol):
    """Anything that expands into runs: an `Experiment`, or the claims."""

    @property
    def name(self) -> str:
        """File name of the results."""

    def runs(self, phase: Phase, learning_rates: Any = None) -> list[RunConfig]:
        """Configurations of one phase."""

    def every_run(self) -> list[RunConfig]:
        """All configurations that can belong to it."""


def canonical(config: RunConfig) -> str:
    """The complete configuration as JSON, the same text for equal configurations."""
    document = {"results_version": RESULTS_VERSION, **asdict(config)}
    # Settings that came later stay out at their defaults, so that older results keep their identity.
    for entry in fields(Budget):
        if entry.default is not MISSING and document["budget"][entry.name] == entry.default:
            del document["budget"][entry.name]
    if config.regime.budget is None:
        del document["regime"]["budget"]
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_id(config: RunConfig) -> str:
    """Readable and unique name of a run, a relative path ``phase/regime/scheme/rate/seed-digest``."""
    digest = hashlib.sha256(canonical(config).encode()).hexdigest()[:_DIGEST_LENGTH]
    parts = (config.phase, config.regime.name, config.scheme, f"lr{config.learning_rate:g}")
    return "/".join([*map(_path_safe, parts), f"{config.seed}-{digest}"])


def _path_safe(text: str) -> str:
    """Replace what some file system refuses; the digest keeps the names apart."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", text)[:60].lstrip(".") or "_"


def _json_copy(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON makes of the mapping: a run is given exactly what its config.json says."""
    try:
        copy = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"'{name}' must be a mapping of JSON values. Got {value!r} instead: {error}") from error
    # JSON turns other keys into text without a word.
    if set(copy) != set(value):
        raise ValueError(f"'{name}' must have str keys. Got {list(value)!r} instead.")
    return dict(copy)


def _as_tuple(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"'{name}' must be a tuple. Got {values!r} instead.")
    return tuple(values)


def _finite(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"'{name}' must be a finite number. Got {value!r} instead.")
    return float(value)


def _positive(name: str, value: Any) -> float:
    number = _finite(name, value)
    if number <= 0:
        raise ValueError(f"'{name}' must be positive. Got {value!r} instead.")
    return number


def _check_integer(name: str, value: Any, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"'{name}' must be an int of at least {minimum}. Got {value!r} instead.")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"'{name}' must be a non-empty str. Got {value!r} instead.")


def _check_name(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.isidentifier():
        raise ValueError(f"'{name}' must be an identifier: it names files. Got {value!r} instead.")


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"'{name}' must be one of {list(allowed)}. Got {value!r} instead.")


def _check_unique(name: str, values: Iterable[Any], may_be_empty: bool = False) -> None:
    seen = list(values)
    if not seen and not may_be_empty:
        raise ValueError(f"'{name}' must not be empty. Got {seen!r} instead.")
    repeated = [value for index, value in enumerate(seen) if value in seen[:index]]
    if repeated:
        raise ValueError(f"'{name}' must not repeat a value. Got {repeated[0]!r} twice.")
