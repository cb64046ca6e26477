"""Mixtures: several environments behind one vector environment, with padded spaces.

A mixture is itself a family: prompt ids are dealt to the environments in a fixed cycle, so that an
id says which environment it belongs to, and each row's functions are those of its environment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.families import FAMILIES
from agentic_gym.family import (
    Draws,
    Family,
    FloatArray,
    IntArray,
    Outcome,
    RowsView,
    State,
    View,
    one_hot,
)
from agentic_gym.grammar import join_grammars
from agentic_gym.knobs import Knobs, check_integer, check_number, split_knobs

MATCHED: tuple[dict[str, Any], ...] = (
    {"name": "ChainShort", "family": "Chain", "depth": 2, "reward_scale": 1.0},
    {"name": "Database", "family": "Database", "depth": 1, "reward_scale": 1 / 40},
    {"name": "Search", "family": "Search", "depth": 2, "reward_scale": 1 / 2},
    {"name": "ChainLong", "family": "Chain", "depth": 5, "reward_scale": 1.0},
)
"""Four environments whose values, times these scales, span about one unit each."""


def _matched(spread: float) -> list[dict[str, Any]]:
    return [dict(member) for member in MATCHED]


def _scale(spread: float) -> list[dict[str, Any]]:
    members = _matched(spread)
    # Geometric, with mean log 0, so that the spread does not move the average scale.
    factors = spread ** np.linspace(0.5, -0.5, len(members))
    return [
        {**m, "reward_scale": m["reward_scale"] * float(f)} for m, f in zip(members, factors, strict=True)
    ]


def _depth(spread: float) -> list[dict[str, Any]]:
    deepest = {"ChainShort": 1, "Database": 1, "Search": 2, "ChainLong": int(min(64, max(2, round(spread))))}
    return [{**member, "depth": deepest[member["name"]]} for member in _matched(spread)]


def _difficulty(spread: float) -> list[dict[str, Any]]:
    levels = np.linspace(0.5 - min(spread, 1.0) / 2, 0.5 + min(spread, 1.0) / 2, len(MATCHED))
    return [{**m, "difficulty": float(level)} for m, level in zip(_matched(spread), levels, strict=True)]


def _noise(spread: float) -> list[dict[str, Any]]:
    members = _matched(spread)
    for index, member in enumerate(members):
        # Noise is in units of value; dividing by the scale makes it comparable across environments.
        member["reward_noise"] = spread * index / (len(members) - 1) / member["reward_scale"]
    return members


def _length(spread: float) -> list[dict[str, Any]]:
    fillers = np.linspace(0, min(spread, 64), len(MATCHED)).round().astype(int)
    return [{**m, "filler": int(filler)} for m, filler in zip(_matched(spread), fillers, strict=True)]


def _frequency(spread: float) -> list[dict[str, Any]]:
    weights = (spread ** np.linspace(1, 0, len(MATCHED))).round().astype(int)
    return [{**m, "weight": int(weight)} for m, weight in zip(_matched(spread), weights, strict=True)]


def _all(spread: float) -> list[dict[str, Any]]:
    parts = [_scale(spread), _depth(8), _difficulty(0.8), _noise(0.3), _length(4), _frequency(4)]
    changed = ("reward_scale", "depth", "difficulty", "reward_noise", "filler", "weight")
    return [
        {**matched, **{key: part[index][key] for key, part in zip(changed, parts, strict=True)}}
        for index, matched in enumerate(_matched(spread))
    ]


PRESETS: dict[str, tuple[Callable[[float], list[dict[str, Any]]], float]] = {
    "matched": (_matched, 1.0),
    "scale": (_scale, 100.0),
    "depth": (_depth, 8.0),
    "difficulty": (_difficulty, 0.8),
    "noise": (_noise, 0.3),
    "length": (_length, 4.0),
    "frequency": (_frequency, 4.0),
    "all": (_all, 100.0),
}
"""Name -> (members for a spread, default spread)."""


def preset(name: str, spread: float | None = None) -> list[dict[str, Any]]:
    """Return the members of a named mixture.

    Args:
        name: one of ``matched, scale, depth, difficulty, noise, length, frequency, all``.
        spread: how far the named quantity is spread over the environments: largest over smallest
            scale (``scale``, ``all``) or frequency; longest chain (``depth``); distance between
            the easiest and hardest difficulty, in [0, 1]; largest noise in units of the matched
            reward; largest number of filler tokens. ``None`` takes the preset's default.

    Raises:
        ValueError: if the name is unknown, or ``spread`` is not a positive number.
    """
    if name not in PRESETS:
        raise ValueError(f"preset={name!r} is not allowed: it must be one of {list(PRESETS)}.")
    members, default = PRESETS[name]
    return members(default if spread is None else check_number("spread", spread, 0.0, 1e12, open_low=True))


def make_family(family: str, **arguments: Any) -> Family:
    """Make a family (or ``"Mixture"``) from its name and knobs.

    Raises:
        ValueError: if the family is unknown or a knob has a value that is not allowed.
        TypeError: if an argument is unknown.
    """
    if family == "Mixture":
        return Mixture(**arguments)
    if family not in FAMILIES:
        raise ValueError(f"family={family!r} is not allowed: it must be one of {[*FAMILIES, 'Mixture']}.")
    knobs, own = split_knobs(arguments)
    try:
        return FAMILIES[family](knobs, **own)
    except TypeError as error:
        raise TypeError(
            f"{family}: {error}. Common knobs: {[f.name for f in dataclasses.fields(Knobs)]}."
        ) from None


class Mixture(Family):
    """Several environments, one policy.

    ## Description
    Rows belong to different environments. Prompt ids are dealt in a fixed cycle by weight: with
    equal weights prompt ``p`` belongs to environment ``p % E``.

    ## Action Space
    The shared token range of all environments; each environment has its own grammar. A token id
    means different words in different environments.

    ## Observation Space
    One-hot environment (E), then that environment's features padded with zeros, then the engine's
    three features.

    ## Rewards
    Each environment's own, with its own scale, offset, noise and density. Components are padded.

    ## Arguments
    * ``preset`` and ``spread``: a named mixture, see ``agentic_gym.mixture.preset``; or
    * ``environments``: a list of dictionaries, each with ``family``, optionally ``name`` (unique)
      and ``weight`` (a positive integer), and that family's knobs.
    * Any common knob given here overrides that knob of every environment.

    ## Version History
    * v0: initial version.
    """

    name = "Mixture"

    def __init__(
        self,
        preset: str | None = None,
        spread: float | None = None,
        environments: Sequence[Mapping[str, Any]] | None = None,
        **shared: Any,
    ) -> None:
        """See the class docstring."""
        members = _resolve(preset, spread, environments)
        weights = [check_integer("weight", member.pop("weight", 1), 1, 10_000) for member in members]
        names = [str(member.pop("name", member["family"])) for member in members]
        if len(set(names)) < len(names):
            raise ValueError(f"environments: the names {names} must be unique; give each a 'name'.")
        self._members = tuple(make_family(**{**member, **shared}) for member in members)
        self._names = tuple(names)
        self._cycle = _deal(weights)
        self._weights = np.array(weights)
        self.components = max((member.components for member in self._members), key=len)
        self.tasks = max((member.tasks for member in self._members), key=len)
        self.n_features = len(names) + max(member.n_features for member in self._members)
        self.grammar = join_grammars([(member.tools(), member.knobs.filler) for member in self._members])
        if any(member.name == "Mixture" for member in self._members):
            raise ValueError("environments: a Mixture may not contain a Mixture.")

    def default_max_turns(self) -> int:
        """Each environment has its own limit."""
        return max(member.turn_limit for member in self._members)

    def tools(self) -> Sequence[Any]:
        """Each environment has its own tools."""
        return ()

    @property
    def members(self) -> tuple[Family, ...]:
        """The families of the environments."""
        return self._members

    @property
    def environment_names(self) -> tuple[str, ...]:
        """The names of the environments."""
        return self._names

    @property
    def num_prompts(self) -> int:
        """Whole cycles only, so that every environment has its share."""
        cycles = min(m.num_prompts // int(w) for m, w in zip(self._members, self._weights, strict=True))
        return max(cycles, 1) * len(self._cycle)

    @property
    def prompt_cycle(self) -> int:
        """Length of the cycle in which prompts are dealt."""
        return len(self._cycle)

    def locate(self, prompt: IntArray) -> tuple[IntArray, IntArray]:
        """Return each prompt's environment and its prompt id inside that environment."""
        slot = prompt % len(self._cycle)
        environment = self._cycle[slot]
        earlier = np.array([np.sum(self._cycle[:s] == e) for s, e in enumerate(self._cycle)])
        return environment, (prompt // len(self._cycle)) * self._weights[environment] + earlier[slot]

    def begin(self, prompt: IntArray, split: IntArray) -> tuple[State, streams.Keys]:
        """Start each row in its environment."""
        environment, local = self.locate(prompt)
        state: State = {"environment": environment}
        key = np.empty(len(prompt), dtype=np.uint64)
        for index, member in enumerate(self._members):
            rows = np.flatnonzero(environment == index)
            # Rows of other environments get a valid dummy state, so that all columns have n rows.
            part, _ = member.begin(np.where(environment == index, local, 0), split)
            state.update({f"{index}/{name}": values for name, values in part.items()})
            # The index keeps two environments of one family apart.
            key[rows] = streams.mix(member.prompt_key(local[rows], split[rows]), index)
        return state, key

    def start(self, key: streams.Keys) -> State:
        """Not used: prompts are started by ``begin``."""
        raise NotImplementedError

    def _parts(self, state: State) -> list[tuple[int, Family, IntArray, RowsView]]:
        parts = []
        for index, member in enumerate(self._members):
            rows = np.flatnonzero(state["environment"] == index)
            if len(rows):
                parts.append((index, member, rows, RowsView(state, rows, f"{index}/")))
        return parts

    def _gather(self, state: State, width: int, dtype: type, function: str) -> npt.NDArray[Any]:
        result = np.zeros((len(state["environment"]), width), dtype=dtype)
        for _, member, rows, part in self._parts(state):
            values = getattr(member, function)(part)
            values = values[:, None] if values.ndim == 1 else values
            result[rows, : values.shape[1]] = values
        return result

    def observe(self, state: State) -> npt.NDArray[np.float32]:
        """Put the environment's one-hot before its padded features."""
        return self.look(state).features

    def expert(self, state: State) -> IntArray:
        """Ask each environment's expert."""
        return self._gather(state, self.grammar.n_slots, np.int64, "expert")

    def ground_truth(self, state: State) -> IntArray:
        """Ask each environment."""
        return self.look(state).ground_truth

    def task(self, state: State) -> IntArray:
        """Ask each environment."""
        return np.asarray(self._gather(state, 1, np.int64, "task")[:, 0])

    def score(self, state: State) -> FloatArray:
        """Ask each environment."""
        return np.asarray(self._gather(state, 1, np.float64, "score")[:, 0])

    def environment(self, state: State) -> IntArray:
        """Return each row's environment."""
        return np.asarray(state["environment"], dtype=np.int64)

    def state_columns(self, state: State) -> Sequence[npt.NDArray[np.integer]]:
        """Return one column: the environments' own keys, kept apart by the environment."""
        return [state["environment"], self.look(state).state_key]

    def look(self, state: State) -> View:
        """Ask each environment once."""
        n, n_environments = len(state["environment"]), len(self._members)
        features = np.zeros((n, self.n_features), dtype=np.float32)
        features[:, :n_environments] = one_hot(state["environment"], n_environments)
        ground_truth = np.zeros((n, self.grammar.n_slots), dtype=np.int64)
        key = np.zeros(n, dtype=np.int64)
        for _, member, rows, part in self._parts(state):
            view = member.look(part)
            features[rows, n_environments : n_environments + view.features.shape[1]] = view.features
            ground_truth[rows, : view.ground_truth.shape[1]] = view.ground_truth
            key[rows] = view.state_key
        return View(features, ground_truth, key)

    def apply(self, state: State, message: IntArray, draws: Draws) -> Outcome:
        """Let each environment carry out its rows' messages."""
        return self._outcome(
            state, lambda member, part, rows: member.apply(part, message[rows], draws.rows(rows))
        )

    def timeout(self, state: State) -> Outcome:
        """Let each environment close its rows."""
        return self._outcome(state, lambda member, part, rows: member.timeout(part))

    def _outcome(self, state: State, act: Callable[[Family, State, IntArray], Outcome]) -> Outcome:
        n = len(state["environment"])
        outcome = Outcome(
            np.zeros((n, len(self.components))), np.zeros(n, np.bool_), np.zeros(n),
            np.zeros(n, np.bool_), np.ones(n, np.bool_),
        )  # fmt: skip
        for _, member, rows, part in self._parts(state):
            result = act(member, part, rows)
            outcome.components[rows, : result.components.shape[1]] = result.components
            for whole, values in zip(outcome[1:], result[1:], strict=True):
                whole[rows] = values
            part.write_back(member.constants)
        return outcome

    def describe(self, state: State, row: int) -> str:
        """Name the environment and let it speak."""
        index = int(state["environment"][row])
        part = RowsView(state, np.array([row]), f"{index}/")
        return f"[{self._names[index]}] {self._members[index].describe(part, 0)}"


def _resolve(
    name: str | None, spread: float | None, environments: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    if environments is not None:
        if name is not None or spread is not None:
            raise ValueError("environments: give either a list of environments or a preset, not both.")
        members = [dict(member) for member in environments]
        if not members or any("family" not in member for member in members):
            raise ValueError(f"environments={environments!r} is not allowed: each needs a 'family'.")
        return members
    return preset("matched" if name is None else name, spread)


def _deal(weights: Sequence[int]) -> IntArray:
    """Spread environments evenly over one cycle of prompts (largest lag first)."""
    total = sum(weights)
    dealt = np.zeros(len(weights))
    cycle = []
    for position in range(1, total + 1):
        lag = np.array(weights) * position / total - dealt
        cycle.append(int(np.argmax(lag)))
        dealt[cycle[-1]] += 1
    return np.array(cycle)
