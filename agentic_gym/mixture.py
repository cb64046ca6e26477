"""Mixtures: several environments behind one vector environment, with padded spaces.

A mixture is itself a family: prompt ids are dealt to the environments in a fixed cycle, so that an
id says which environment it belongs to, and each row's functions are those of its environment.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agentic_gym import streams
from agentic_gym.families import FAMILIES
from agentic_gym.family import Draws, Family, FloatArray, IntArray, Outcome, State, View, World, indices
from agentic_gym.grammar import join_grammars
from agentic_gym.knobs import KNOB_NAMES, Knobs, check_integer, check_number, did_you_mean
from agentic_gym.registration import KNOBS_BY_ID, NAMESPACE

DEFAULT_FAMILY = "Chain"
EXAMPLE_ID = f"{NAMESPACE}/SearchHard-v0"

MATCHED: tuple[dict[str, Any], ...] = (
    {"name": "ChainShort", "family": "Chain", "options": 4, "depth": 2, "reward_scale": 1.0},
    {"name": "Database", "family": "Database", "depth": 1, "difficulty": 0.5, "reward_scale": 1 / 40},
    {"name": "Search", "family": "Search", "entities": 8, "relations": 4, "depth": 2, "reward_scale": 1 / 2},
    {"name": "ChainLong", "family": "Chain", "options": 4, "depth": 5, "reward_scale": 1.0},
)
"""Four environments whose values, times these scales, span about one unit each."""


def _matched(spread: float) -> list[dict[str, Any]]:
    return [dict(member) for member in MATCHED]


def _scale(spread: float) -> list[dict[str, Any]]:
    members = _matched(spread)
    # Geometric, with mean log 0, so that the spread does not move the average scale.
    factors = spread ** np.linspace(0.5, -0.5, len(members))
    return [{**m, "reward_scale": m["reward_scale"] * float(f)} for m, f in zip(members, factors, strict=True)]


def _depth(spread: float) -> list[dict[str, Any]]:
    depths = {"ChainShort": 1, "Database": 1, "Search": 2, "ChainLong": round(spread)}
    return [{**member, "depth": depths[member["name"]]} for member in _matched(spread)]


def _difficulty(spread: float) -> list[dict[str, Any]]:
    levels = np.linspace(0.5 - spread / 2, 0.5 + spread / 2, len(MATCHED))
    return [{**m, "difficulty": float(level)} for m, level in zip(_matched(spread), levels, strict=True)]


def _noise(spread: float) -> list[dict[str, Any]]:
    members = _matched(spread)
    for index, member in enumerate(members):
        # Noise is in units of value; dividing by the scale makes it comparable across environments.
        member["reward_noise"] = spread * index / (len(members) - 1) / member["reward_scale"]
    return members


def _length(spread: float) -> list[dict[str, Any]]:
    fillers = np.linspace(0, spread, len(MATCHED)).round().astype(int)
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


def _natural(spread: float) -> list[dict[str, Any]]:
    return [{"name": name, "family": name} for name in FAMILIES]


PRESETS: dict[str, tuple[Callable[[float], list[dict[str, Any]]], float, tuple[float, float]]] = {
    "matched": (_matched, 1.0, (1.0, 1.0)),
    "scale": (_scale, 100.0, (1e-6, 1e6)),
    "depth": (_depth, 8.0, (1.0, 64.0)),
    "difficulty": (_difficulty, 0.8, (0.0, 1.0)),
    "noise": (_noise, 0.3, (0.0, 1e6)),
    "length": (_length, 4.0, (0.0, 64.0)),
    "frequency": (_frequency, 4.0, (1.0, 1000.0)),
    "all": (_all, 100.0, (1e-6, 1e6)),
    "natural": (_natural, 1.0, (1.0, 1.0)),
}
"""Name -> (members for a spread, default spread, smallest and largest spread)."""


def preset(name: str, spread: float | None = None) -> list[dict[str, Any]]:
    """Return the members of a named mixture.

    Args:
        name: one of ``matched, scale, depth, difficulty, noise, length, frequency, all`` (four
            environments whose rewards span about one unit each, with what the name says mismatched),
            or ``natural`` (all nine families at their defaults, with their raw rewards).
        spread: how far the named quantity is spread over the environments: largest over smallest
            scale (``scale``, ``all``) or frequency; longest chain (``depth``); distance between
            the easiest and hardest difficulty, in [0, 1]; largest noise in units of the matched
            reward; largest number of filler tokens. ``None`` takes the preset's default.

    Raises:
        ValueError: if the name is unknown, or ``spread`` is out of the preset's range.
    """
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS)
        raise ValueError(f"preset={name!r} is not allowed: it must be one of {list(PRESETS)}.{hint}")
    members, default, (low, high) = PRESETS[name]
    if low == high and spread not in (None, default):
        others = [other for other, (_, _, (lowest, highest)) in PRESETS.items() if lowest < highest]
        raise ValueError(
            f"spread={spread!r} is not allowed: preset={name!r} has no spread; those that have are {others}."
        )
    return members(default if spread is None else check_number("spread", spread, low, high))


def make_world(family: str | None = None, **arguments: Any) -> World:
    """Make a family or a mixture of families from its name (``"Mixture"``) and knobs.

    Args:
        family: a family's name, ``"Mixture"``, or an id of this package, which stands for its family
            and its knobs; ``None`` takes ``"Chain"``.
        **arguments: knobs; they win over those of an id.

    Raises:
        ValueError: if the family is unknown or a knob has a value that is not allowed.
        TypeError: if an argument is unknown.
    """
    if family is None:
        try:
            return make_family(DEFAULT_FAMILY, **arguments)
        except TypeError as error:  # Who named the family by another argument has not asked for this one.
            raise TypeError(
                f"{error} No family is given, so {DEFAULT_FAMILY} is made: family= takes the name of a family, "
                f"or an id such as {EXAMPLE_ID!r}."
            ) from error
    name, found = _look_up(family, arguments, [*FAMILIES, "Mixture"])
    return Mixture(**found) if name == "Mixture" else make_family(name, **found)


def _look_up(family: str, knobs: Mapping[str, Any], allowed: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return family and knobs; an id stands for its own, and the knobs given win over these.

    Raises:
        ValueError: if the family is not among those allowed.
    """
    own = dict(KNOBS_BY_ID.get(str(family), {"family": family}))
    name = own.pop("family")
    if name not in allowed:
        # Ids are compared without namespace and version, or else "SearchHard" would be nearest to "Search".
        ids = {_stem(env_id): env_id for env_id, meant in KNOBS_BY_ID.items() if meant["family"] in allowed}
        further = {stem: env_id for stem, env_id in ids.items() if stem not in allowed}
        hint = did_you_mean(_stem(family), [*allowed, *further], further)
        raise ValueError(
            f"family={family!r} is not allowed: it must be one of {list(allowed)}, "
            f"or one of agentic_gym.IDS, such as {EXAMPLE_ID!r}.{hint}"
        )
    return name, {**own, **knobs}


def _stem(env_id: object) -> str:
    """Return an id without its namespace and version."""
    return str(env_id).removeprefix(f"{NAMESPACE}/").partition("-v")[0]


def make_family(family: str, **arguments: Any) -> Family:
    """Make a family from its name and knobs.

    Args:
        family: a family's name, or an id of this package other than a mixture's.
        **arguments: knobs; they win over those of an id.

    Raises:
        ValueError: if the family is unknown or a knob has a value that is not allowed.
        TypeError: if an argument is unknown.
    """
    family, arguments = _look_up(family, arguments, list(FAMILIES))
    make = FAMILIES[family]
    own_names = [name for name in inspect.signature(make).parameters if name != "knobs"]
    unknown = sorted(set(arguments) - {*own_names, *KNOB_NAMES})
    if unknown:
        allowed = [*own_names, *KNOB_NAMES]
        hint = did_you_mean(unknown[0], allowed)
        raise TypeError(f"{family} has no argument {unknown}: allowed are {allowed}.{hint}")
    common = {name: value for name, value in arguments.items() if name in KNOB_NAMES}
    own = {name: value for name, value in arguments.items() if name in own_names}
    return make(Knobs(**common), **own)


class Mixture(World):
    """Several environments, one policy.

    ## Description
    Rows belong to different environments. Prompt ids are dealt in a fixed cycle by weight: with
    equal weights prompt ``p`` belongs to environment ``p % E``. Two environments of one family and
    depth have the same prompts, but noise of their own.

    ## Action Space
    The shared token range of all environments; each environment has its own grammar. A token id
    means different words in different environments.

    ## Observation Space
    One-hot environment (E), then that environment's features padded with zeros, then the engine's
    three features (share of turns used, tool failure, illegal message).

    ## Starting State
    Each environment's own.

    ## Rewards
    Each environment's own, with its own scale, offset, noise and density. Components are padded;
    the last one is ``illegal``.

    ## Episode End
    Each environment's own.

    ## Arguments
    * ``preset`` (default ``matched``) and ``spread``: a named mixture, see
      ``agentic_gym.mixture.preset``; or
    * ``environments``: a list of dictionaries, each with ``family`` (a name or an id), optionally
      ``name`` (unique) and ``weight`` (a positive integer), and that family's knobs.
    * Any knob given here overrides that knob of every environment.

    ## Version History
    * v0: initial version.
    """

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
        names = [str(member.pop("name")) for member in members]
        if len(set(names)) < len(names):
            raise ValueError(f"environments: the names {names} must be unique; give each a 'name'.")
        self._members = tuple(make_family(**{**member, **shared}) for member in members)
        self._names = tuple(names)
        self._weights = np.array(weights)
        self._cycle, self._earlier = _deal(weights)
        for member, weight, name in zip(self._members, weights, names, strict=True):
            check_integer(f"num_prompts of {name}", member.knobs.num_prompts, weight, 2**40)
        self.components = _join([member.components for member in self._members])
        self.tasks = _join([member.tasks for member in self._members])
        self.n_features = len(names) + max(member.n_features for member in self._members)
        self.grammar = join_grammars([(member.tools(), member.knobs.filler) for member in self._members])

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
        return cycles * len(self._cycle)

    @property
    def prompt_cycle(self) -> int:
        """Length of the cycle in which prompts are dealt."""
        return len(self._cycle)

    def locate(self, prompt: IntArray) -> tuple[IntArray, IntArray]:
        """Return each prompt's environment and its prompt id inside that environment."""
        cycle, slot = np.divmod(prompt, len(self._cycle))
        environment = self._cycle[slot]
        return environment, cycle * self._weights[environment] + self._earlier[slot]

    def new_state(self, n: int) -> State:
        """Return n rows for every environment, of which each row uses one."""
        states = {str(index): member.new_state(n) for index, member in enumerate(self._members)}
        return {"environment": np.zeros(n, dtype=np.int64), **states}

    def begin(self, state: State, rows: IntArray, prompt: IntArray, split: IntArray) -> streams.Keys:
        """Start each row in its environment."""
        state["environment"][rows], local = self.locate(prompt)
        key = np.empty(len(rows), dtype=np.uint64)
        for index, member, part, at in self._parts(state, rows):
            # The index keeps the noise of two environments of one family apart.
            key[at] = streams.mix(member.begin(part, rows[at], local[at], split[at]), index)
        return key

    def _parts(self, state: State, rows: IntArray) -> Iterator[tuple[int, Family, State, IntArray]]:
        """Yield index, family, state and the positions in ``rows`` of each environment that has any."""
        environment = state["environment"][rows]
        for index, member in enumerate(self._members):
            at = indices(environment == index)
            if len(at):
                yield index, member, state[str(index)], at

    def environment(self, state: State, rows: IntArray) -> IntArray:
        """Return each row's environment."""
        return np.asarray(state["environment"][rows])

    def task(self, state: State, rows: IntArray) -> IntArray:
        """Ask each environment."""
        task = np.zeros(len(rows), dtype=np.int64)
        for _, member, part, at in self._parts(state, rows):
            task[at] = member.task(part, rows[at])
        return task

    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Ask each environment's expert."""
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        for _, member, part, at in self._parts(state, rows):
            message[at, : member.grammar.n_slots] = member.expert(part, rows[at])
        return message

    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Let each environment carry out its rows' messages."""
        components = np.zeros((len(rows), len(self.components)))
        terminated, aborted = np.zeros((2, len(rows)), dtype=np.bool_)
        for _, member, part, at in self._parts(state, rows):
            outcome = member.apply(part, rows[at], message[at], draws.at(at))
            components[at, : len(member.components)] = outcome.components
            terminated[at] = outcome.terminated
            if outcome.aborted is not None:
                aborted[at] = outcome.aborted
        return Outcome(components, terminated, aborted)

    def timeout(self, state: State, rows: IntArray) -> FloatArray:
        """Let each environment close its rows."""
        components = np.zeros((len(rows), len(self.components)))
        for _, member, part, at in self._parts(state, rows):
            components[at, : len(member.components)] = member.timeout(part, rows[at])
        return components

    def look(self, state: State, rows: IntArray) -> View:
        """Put the environment's one-hot before its padded features."""
        n, n_environments = len(rows), len(self._members)
        whole = View(
            features=np.zeros((n, self.n_features), dtype=np.float32),
            ground_truth=np.zeros((n, self.grammar.n_slots), dtype=np.int64),
            state_key=np.zeros(n, dtype=np.int64),
            score=np.zeros(n),
            success=np.zeros(n, dtype=np.bool_),
            valid=np.zeros(n, dtype=np.bool_),
        )
        for index, member, part, at in self._parts(state, rows):
            view = member.look(part, rows[at])
            whole.features[at, index] = 1.0
            whole.features[at, n_environments : n_environments + member.n_features] = view.features
            whole.ground_truth[at, : member.grammar.n_slots] = view.ground_truth
            for target, values in zip(whole[2:], view[2:], strict=True):
                target[at] = values
        return whole

    def describe(self, state: State, row: int) -> str:
        """Name the environment and let it speak."""
        index = int(state["environment"][row])
        return f"[{self._names[index]}] {self._members[index].describe(state[str(index)], row)}"


def _resolve(
    name: str | None, spread: float | None, environments: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    if environments is None:
        return preset("matched" if name is None else name, spread)
    if name is not None or spread is not None:
        raise ValueError("environments: give either a list of environments or a preset, not both.")
    members = list(environments)
    if not members or not all(isinstance(member, Mapping) and "family" in member for member in members):
        raise ValueError(
            f"environments={environments!r} is not allowed: it must be a list of dictionaries with a 'family'."
        )
    if any(KNOBS_BY_ID.get(str(member["family"]), member)["family"] == "Mixture" for member in members):
        raise ValueError("environments: a Mixture may not contain a Mixture.")
    # An id is the environment's name without its namespace.
    return [{"name": str(member["family"]).removeprefix(f"{NAMESPACE}/"), **member} for member in members]


def _join(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Name columns that mean different things in different environments, for example ``cost|answer``."""
    columns = itertools.zip_longest(*names)
    return tuple("|".join(dict.fromkeys(name for name in column if name is not None)) for column in columns)


def _deal(weights: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Spread environments evenly over one cycle of prompts (largest lag first).

    Returns:
        The environment of each slot of the cycle, and how many earlier slots that environment has.
    """
    share = np.array(weights) / sum(weights)
    dealt = np.zeros(len(weights), dtype=np.int64)
    cycle, earlier = [], []
    for position in range(1, sum(weights) + 1):
        environment = int(np.argmax(share * position - dealt))
        cycle.append(environment)
        earlier.append(int(dealt[environment]))
        dealt[environment] += 1
    return np.array(cycle), np.array(earlier)
