"""What a family of environments must provide.

A family is a set of array functions over a state: a dictionary of arrays with one row per rollout.
Everything that families share (turn limits, seeding, groups, reward delivery, autoreset, info,
rendering) is in the engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.grammar import Grammar, Tool, build_grammar
from agentic_gym.knobs import Knobs, check_integer, check_number

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
State = dict[str, npt.NDArray[Any]]

SPLITS = ("train", "test")


class Outcome(NamedTuple):
    """What a message did, one row per rollout.

    Attributes:
        components: (n, K) float64 reward components of this turn, in the family's units.
        terminated: (n,) whether the task has ended.
        score: (n,) float64 in [0, 1], the scale-free score if the rollout ended here.
        success: (n,) the task's own verdict, False before the end.
        valid: (n,) whether the reward can be trusted (False after an infrastructure failure).
    """

    components: FloatArray
    terminated: BoolArray
    score: FloatArray
    success: BoolArray
    valid: BoolArray


class View(NamedTuple):
    """What can be reported of a state: features (n, F), ground truth (n, L), state key (n,)."""

    features: npt.NDArray[np.float32]
    ground_truth: IntArray
    state_key: IntArray


class Draws:
    """Random numbers for one turn of n rows: a function of row key, turn and draw index."""

    def __init__(self, key: streams.Keys, turn: IntArray) -> None:
        """Bind the keys (n,) and the turn indices (n,)."""
        self._key = key
        self._turn = turn

    def rows(self, rows: IntArray) -> Draws:
        """Keep only some rows."""
        return Draws(self._key[rows], self._turn[rows])

    def uniform(self, index: int) -> FloatArray:
        """Draw from [0, 1), shape (n,)."""
        return streams.uniform(self._key, self._turn, index)

    def integers(self, index: int, high: npt.ArrayLike) -> IntArray:
        """Draw integers below ``high``, shape (n,)."""
        return streams.integers(high, self._key, self._turn, index)


class Family(ABC):
    """Base class: constants of the family, and its pure array functions.

    Attributes:
        name: the family's name, as in the environment id.
        components: names of the K reward components (the engine adds ``illegal``).
        tasks: names of the variants, indexed by ``info["task"]``.
        constants: state columns that messages never change.
        value_range: (worst, best) value that a rollout without illegal messages can have.
        illegal_penalty: value added by each illegal message, in the family's units.
        limit_ends_task: True where the turn limit is the task's natural end (the rollout then
            terminates); False where it is a budget (the rollout is truncated).
        default_depth, depth_range, default_difficulty: values for the knobs.
    """

    name: ClassVar[str]
    components: tuple[str, ...]
    limit_ends_task: ClassVar[bool] = False
    default_depth: ClassVar[int]
    depth_range: ClassVar[tuple[int, int]]
    default_difficulty: ClassVar[float] = 0.5
    constants: ClassVar[tuple[str, ...]] = ()
    tasks: tuple[str, ...]
    value_range: tuple[float, float]
    illegal_penalty: float
    n_features: int

    def __init__(self, knobs: Knobs) -> None:
        """Resolve the knobs whose default depends on the family."""
        self.knobs = knobs
        low, high = self.depth_range
        depth = self.default_depth if knobs.depth is None else knobs.depth
        self.depth = check_integer("depth", depth, low, high)
        difficulty = self.default_difficulty if knobs.difficulty is None else knobs.difficulty
        self.difficulty = check_number("difficulty", difficulty, 0.0, 1.0)
        limit = self.default_max_turns() if knobs.max_turns is None else knobs.max_turns
        # A truncation on the first turn would break Gymnasium's determinism check.
        self.turn_limit = check_integer("max_turns", limit, 1 if self.limit_ends_task else 2, 10_000)
        self.grammar: Grammar = build_grammar(self.tools(), knobs.filler)

    @abstractmethod
    def default_max_turns(self) -> int:
        """Return the turn limit for ``self.depth``."""

    @abstractmethod
    def tools(self) -> Sequence[Tool]:
        """Return the tools an agent may call."""

    @abstractmethod
    def start(self, key: streams.Keys) -> State:
        """Make the prompts and their initial states from prompt keys (n,)."""

    @abstractmethod
    def observe(self, state: State) -> npt.NDArray[np.float32]:
        """Return features in [0, 1], shape (n, n_features), of what the agent has seen."""

    @abstractmethod
    def apply(self, state: State, message: IntArray, draws: Draws) -> Outcome:
        """Carry out legal messages (n, L), changing ``state`` in place."""

    def timeout(self, state: State) -> Outcome:
        """Close rollouts whose turns are used up, changing ``state`` in place; by default worth nothing."""
        score = self.score(state)
        n = len(score)
        return Outcome(
            np.zeros((n, len(self.components))), np.ones(n, np.bool_), score,
            np.zeros(n, np.bool_), np.ones(n, np.bool_),
        )  # fmt: skip

    @abstractmethod
    def score(self, state: State) -> FloatArray:
        """Return the scale-free score in [0, 1] of rollouts that ended in this state, shape (n,)."""

    @abstractmethod
    def expert(self, state: State) -> IntArray:
        """Return messages (n, L) of a policy that reaches the best expected return."""

    @abstractmethod
    def ground_truth(self, state: State) -> IntArray:
        """Return the message (n, L) that a rollout must give as its answer in the end."""

    @abstractmethod
    def task(self, state: State) -> IntArray:
        """Return the index (n,) into ``tasks``."""

    @abstractmethod
    def state_columns(self, state: State) -> Sequence[npt.NDArray[np.integer]]:
        """Return integer columns (n,) that together identify the state within its prompt."""

    @abstractmethod
    def describe(self, state: State, row: int) -> str:
        """Say in a sentence or two what the agent sees now (for transcripts)."""

    def look(self, state: State) -> View:
        """Return everything that the engine reports of a state."""
        return View(self.observe(state), self.ground_truth(state), state_key(self.state_columns(state)))

    # What a mixture answers per row; a single family has one environment.
    def environment(self, state: State) -> IntArray:
        """Return the index (n,) of each row's environment."""
        return np.zeros_like(self.task(state))

    @property
    def members(self) -> tuple[Family, ...]:
        """The families behind the environments, in order."""
        return (self,)

    @property
    def environment_names(self) -> tuple[str, ...]:
        """Names indexed by ``info["environment"]``."""
        return (self.name,)

    @property
    def num_prompts(self) -> int:
        """Prompts per split."""
        return self.knobs.num_prompts

    @property
    def prompt_cycle(self) -> int:
        """How many consecutive prompts hold every environment in its proportion."""
        return 1

    def prompt_key(self, prompt: IntArray, split: IntArray) -> streams.Keys:
        """Return the key (n,) from which everything about a prompt is drawn."""
        return streams.mix(streams.PROMPT, streams.hash_name(self.name), split, prompt)

    def begin(self, prompt: IntArray, split: IntArray) -> tuple[State, streams.Keys]:
        """Return the initial states of prompts (n,) and their keys (n,)."""
        key = self.prompt_key(prompt, split)
        return self.start(key), key


def state_key(columns: Sequence[npt.NDArray[np.integer]]) -> IntArray:
    """Hash integer columns (n,) into one non-negative key (n,), the same in every process."""
    return streams.to_int63(streams.mix(*columns))


def encode(*fields: tuple[npt.NDArray[np.integer], int]) -> npt.NDArray[np.float32]:
    """Write several one-hot fields side by side.

    Args:
        *fields: pairs of indices (n,) and the size of the field; a negative index leaves the field
            empty.

    Returns:
        float32 array (n, sum of the sizes).
    """
    n, width = len(fields[0][0]), sum(size for _, size in fields)
    features = np.zeros((n, width), dtype=np.float32)
    flat, first = features.reshape(-1), np.arange(n) * width
    offset = 0
    for index, size in fields:
        if size and len(index):
            present = np.asarray(index) >= 0
            if present.all():
                flat[first + offset + index] = 1.0
            else:
                flat[(first + offset + index)[present]] = 1.0
        offset += size
    return features


def one_hot(index: npt.NDArray[np.integer], size: int) -> npt.NDArray[np.float32]:
    """Encode indices (n,) as (n, size); a negative index gives a row of zeros."""
    return (np.asarray(index)[:, None] == np.arange(size)).astype(np.float32)


class RowsView(dict[str, npt.NDArray[Any]]):
    """Some rows of a state; a column is copied when it is first asked for.

    Most functions need few columns, and copying them all would cost more than the functions.

    Args:
        state: the whole state, or a view of it.
        rows: indices of the rows.
        prefix: what the columns' names begin with in ``state``.
    """

    def __init__(self, state: State, rows: IntArray, prefix: str = "") -> None:
        """See the class docstring."""
        super().__init__()
        self._state, self._rows, self._prefix = state, rows, prefix

    def __missing__(self, name: str) -> npt.NDArray[Any]:
        """Copy a column."""
        values = self._state[self._prefix + name][self._rows]
        self[name] = values
        return values

    def write_back(self, constants: Collection[str]) -> None:
        """Write the columns that were used, except ``constants``, into the whole state."""
        for name, values in self.items():
            if name not in constants:
                self._state[self._prefix + name][self._rows] = values


def write_rows(state: State, rows: IntArray, part: State) -> None:
    """Write ``part`` into the given rows of a state."""
    for name, values in part.items():
        state[name][rows] = values
