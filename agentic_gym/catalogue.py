"""The catalogue: what there is to know about each id, as plain data."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium

from agentic_gym.engine import AgenticVectorEnv
from agentic_gym.family import Family
from agentic_gym.knobs import KNOB_NAMES, Knobs
from agentic_gym.registration import IDS, find_spec
from agentic_gym.truth import Truth, truth

OWN_DEFAULT = "the family's"
"""Stands for a default that each family of a mixture has of its own."""


@dataclass(frozen=True)
class Argument:
    """A knob that an id accepts.

    Attributes:
        name: its name.
        default: what it is where nothing else is said; ``None`` where it follows from other knobs.
        low: smallest value, where that is known.
        high: largest value, where that is known.
        meaning: what it does; of a family's own arguments the documentation tells under "Arguments".
    """

    name: str
    default: Any
    low: float | None
    high: float | None
    meaning: str


@dataclass(frozen=True)
class Environment:
    """One environment of an id: the only one, or a member of a mixture.

    Attributes:
        name: its name, as in ``Truth.environment``.
        family: the family's name.
        summary: first line of the family's documentation.
        knobs: values of the common knobs, with the family's defaults filled in.
        tasks: names of the tasks.
        components: names of the reward components, ``illegal`` included.
        value_range: lowest and highest value of a rollout without illegal messages.
        illegal_penalty: value that an illegal message adds.
        turn_limit: most turns of a rollout.
        limit_ends_task: whether the turn limit is the task's natural end (termination, not truncation).
        n_slots: tokens of the longest message.
        truth: scores and values of the reference policies.
    """

    name: str
    family: str
    summary: str
    knobs: dict[str, Any]
    tasks: tuple[str, ...]
    components: tuple[str, ...]
    value_range: tuple[float, float]
    illegal_penalty: float
    turn_limit: int
    limit_ends_task: bool
    n_slots: int
    truth: Truth


@dataclass(frozen=True)
class Entry:
    """A registered id.

    Attributes:
        id: the id.
        family: name of the family, or ``Mixture``.
        summary: first line of its documentation.
        documentation: heading -> text of the other sections of its documentation.
        knobs: what the id sets, the family excepted.
        arguments: all knobs that it accepts.
        environments: its environments.
        observation_size: length of an observation.
        n_tokens: size of the vocabulary.
        n_slots: tokens of the longest message: the action space is ``MultiDiscrete([n_tokens] * n_slots)``.
        num_prompts: prompts per split.
        prompt_cycle: how many consecutive prompts hold every environment in its proportion.
        max_tokens: most tokens that a rollout can have.
    """

    id: str
    family: str
    summary: str
    documentation: dict[str, str]
    knobs: dict[str, Any]
    arguments: tuple[Argument, ...]
    environments: tuple[Environment, ...]
    observation_size: int
    n_tokens: int
    n_slots: int
    num_prompts: int
    prompt_cycle: int
    max_tokens: int


def catalogue(env_ids: Iterable[str] = IDS) -> list[dict[str, Any]]:
    """Return one JSON-serialisable dictionary per id, with the fields of ``Entry``.

    Args:
        env_ids: which ids.
    """
    return [dataclasses.asdict(describe(env_id)) for env_id in env_ids]


def describe(env_id: str) -> Entry:
    """Look an id up.

    Args:
        env_id: a registered id, for example ``"agentic_gym/Search-v0"``.
    """
    knobs = dict(find_spec(env_id).kwargs)
    engine = AgenticVectorEnv(1, **knobs)
    world = type(engine.family)
    summary, documentation = read_documentation(world)
    facts = zip(engine.environment_names, engine.family.members, engine.turn_limits, truth(env_id), strict=True)
    return Entry(
        id=env_id,
        family=knobs.pop("family"),
        summary=summary,
        documentation=documentation,
        knobs=knobs,
        arguments=list_arguments(world),
        environments=tuple(_environment(*fact) for fact in facts),
        observation_size=gymnasium.spaces.flatdim(engine.single_observation_space),
        n_tokens=engine.grammar.n_tokens,
        n_slots=engine.grammar.n_slots,
        num_prompts=engine.num_prompts,
        prompt_cycle=engine.prompt_cycle,
        max_tokens=engine.max_tokens,
    )


def read_documentation(documented: object) -> tuple[str, dict[str, str]]:
    """Split a docstring into its first line and its sections.

    Args:
        documented: a class with sections under ``## Heading`` lines.

    Returns:
        The first line, and heading -> text.
    """
    head, *sections = re.split(r"^## +", inspect.getdoc(documented) or "", flags=re.MULTILINE)
    parts = (section.partition("\n") for section in sections)
    return head.partition("\n")[0].strip(), {heading.strip(): text.strip() for heading, _, text in parts}


def list_arguments(world: Callable[..., Any]) -> tuple[Argument, ...]:
    """Return what a family or mixture accepts: its own arguments first, then the common knobs.

    Args:
        world: the class.
    """
    own = [
        Argument(parameter.name, parameter.default, None, None, 'see "Arguments" in the documentation')
        for parameter in inspect.signature(world).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD and parameter.name != "knobs"
    ]
    defaults: dict[str, Any] = {"depth": OWN_DEFAULT, "difficulty": OWN_DEFAULT}
    ranges: dict[str, tuple[float, float]] = {"difficulty": (0.0, 1.0), "slip": (0.0, 1.0)}
    if isinstance(world, type) and issubclass(world, Family):
        defaults = {"depth": world.default_depth, "difficulty": world.default_difficulty}
        ranges["depth"] = world.depth_range
    meanings, common = _knob_meanings(), []
    for field in dataclasses.fields(Knobs):
        low, high = ranges.get(field.name, (None, None))
        default = defaults.get(field.name, field.default)
        common.append(Argument(field.name, default, low, high, meanings.get(field.name, "")))
    return (*own, *common)


def _knob_meanings() -> dict[str, str]:
    """Read what the common knobs mean from their documentation."""
    lines = (inspect.getdoc(Knobs) or "").partition("Attributes:")[2].splitlines()
    meanings: dict[str, str] = {}
    name = ""
    for line in lines:
        start = re.match(r"    (\w+): (.*)", line)
        if start and start[1] in KNOB_NAMES:
            name, meanings[start[1]] = start[1], start[2]
        elif name and line.strip():
            meanings[name] += " " + line.strip()
    return meanings


def _environment(name: str, member: Family, turn_limit: int, known: Truth) -> Environment:
    low, high = member.value_range
    filled = {"depth": member.depth, "difficulty": member.difficulty, "max_turns": member.turn_limit}
    return Environment(
        name=name,
        family=member.name,
        summary=read_documentation(type(member))[0],
        knobs={**dataclasses.asdict(member.knobs), **filled},
        tasks=tuple(member.tasks),
        components=(*member.components, "illegal"),
        value_range=(float(low), float(high)),
        illegal_penalty=float(member.illegal_penalty),
        turn_limit=turn_limit,
        limit_ends_task=member.limit_ends_task,
        n_slots=member.grammar.n_slots,
        truth=known,
    )
