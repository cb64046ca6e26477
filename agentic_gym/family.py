"""What the engine asks of an environment, and what a family of environments must provide.

A family is a set of array functions over a state: a dictionary of arrays with one row per rollout.
Every function gets the state and the indices of the rows that it is about, and returns arrays with
one entry per such row. Everything that families share (turn limits, seeding, groups, reward
delivery, autoreset, info, rendering) is in the engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.grammar import Grammar, Tool, build_grammar
from agentic_gym.knobs import Knobs, check_integer, check_number

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Features = npt.NDArray[np.float32]
State = dict[str, Any]
"""Name -> array with one row per rollout, or another State (a mixture keeps one per environment)."""

SPLITS = ("train", "test")
NOTHING = -1
"""The value of a state field that is empty."""


class Outcome(NamedTuple):
    """What messages did.

    Attributes:
        components: (n, K) float64 reward components of this turn, in the family's units.
        terminated: (n,) whether the task has ended.
        aborted: (n,) whether the rollout has ended for a reason outside the task (it is then truncated
            and ``timeout`` is not called); ``None`` where that cannot happen.
    """

    components: FloatArray
    terminated: BoolArray
    aborted: BoolArray | None = None


class View(NamedTuple):
    """What is reported of a state.

    Attributes:
        features: (n, F) float32, what the agent has seen.
        ground_truth: (n, L) the message that a rollout must give as its answer in the end.
        state_key: (n,) a number that identifies the state within its prompt.
        score: (n,) float64 in [0, 1], the scale-free score of a rollout that ends in this state.
        success: (n,) the task's own verdict, False before the end.
        valid: (n,) whether the reward can be trusted (False after an infrastructure failure).
    """

    features: Features
    ground_truth: IntArray
    state_key: IntArray
    score: FloatArray
    success: BoolArray
    valid: BoolArray


class Draws:
    """Random numbers for one turn of some rows: a function of row key, turn and draw index."""

    def __init__(self, key: streams.Keys, turn: IntArray, rows: IntArray) -> None:
        """Bind all rows' keys and turn indices, and the rows that draw."""
        self._key, self._turn, self._rows = key, turn, rows

    def at(self, positions: IntArray) -> Draws:
        """Keep only some of the rows, by their positions in ``rows``."""
        return Draws(self._key, self._turn, self._rows[positions])

    def uniform(self, index: int) -> FloatArray:
        """Draw from [0, 1), shape (n,)."""
        return streams.uniform(self._key[self._rows], streams.DYNAMICS, self._turn[self._rows], index)


class World(ABC):
    """What the engine asks of a family or of a mixture of families.

    Attributes:
        grammar: the messages' grammar.
        components: names of the K reward components (the engine adds ``illegal``).
        tasks: names of the variants, indexed by ``info["task"]``.
        n_features: F, the width of ``View.features``.
    """

    grammar: Grammar
    components: tuple[str, ...]
    tasks: tuple[str, ...]
    n_features: int

    @property
    @abstractmethod
    def members(self) -> tuple[Family, ...]:
        """The families behind the environments, in order."""

    @property
    @abstractmethod
    def environment_names(self) -> tuple[str, ...]:
        """Names indexed by ``info["environment"]``."""

    @property
    @abstractmethod
    def num_prompts(self) -> int:
        """Prompts per split."""

    @property
    @abstractmethod
    def prompt_cycle(self) -> int:
        """How many consecutive prompts hold every environment in its proportion."""

    @abstractmethod
    def new_state(self, n: int) -> State:
        """Return a state of n rows, none of them begun."""

    @abstractmethod
    def begin(self, state: State, rows: IntArray, prompt: IntArray, split: IntArray) -> streams.Keys:
        """Put rows into the initial states of prompts (n,) and return the prompts' keys (n,)."""

    @abstractmethod
    def environment(self, state: State, rows: IntArray) -> IntArray:
        """Return the index (n,) of each row's environment."""

    @abstractmethod
    def task(self, state: State, rows: IntArray) -> IntArray:
        """Return the index (n,) into ``tasks``."""

    @abstractmethod
    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Carry out legal messages (n, L), changing ``state`` in place."""

    @abstractmethod
    def timeout(self, state: State, rows: IntArray) -> FloatArray:
        """Close rows whose turns are used up; return the reward components (n, K) of doing so."""

    @abstractmethod
    def look(self, state: State, rows: IntArray) -> View:
        """Return everything that the engine reports of a state."""

    @abstractmethod
    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Return messages (n, L) of a policy that reaches the best expected return.

        The expert knows no more than the agent: its message is a function of the observation.
        """

    @abstractmethod
    def describe(self, state: State, row: int) -> str:
        """Say in a sentence or two what the agent sees now (for transcripts)."""


class Family(World):
    """Base class of one environment: constants of the family, and its array functions.

    Attributes:
        name: the family's name, as in the environment id.
        value_range: (lowest, highest) value that a rollout without illegal messages can have.
        illegal_penalty: value added by each illegal message, in the family's units.
        limit_ends_task: True where the turn limit is the task's natural end (the rollout then
            terminates); False where it is a budget (the rollout is truncated).
        default_depth, depth_range, default_difficulty: values for the knobs.
    """

    name: ClassVar[str]
    limit_ends_task: ClassVar[bool] = False
    default_depth: ClassVar[int]
    depth_range: ClassVar[tuple[int, int]]
    default_difficulty: ClassVar[float] = 0.5
    value_range: tuple[float, float]
    illegal_penalty: float

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
        self.grammar = build_grammar(self.tools(), knobs.filler)
        self._name_hash = streams.hash_name(self.name)

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
    def observe(self, state: State, rows: IntArray) -> Features:
        """Return ``View.features``, in [0, 1]."""

    @abstractmethod
    def ground_truth(self, state: State, rows: IntArray) -> IntArray:
        """Return ``View.ground_truth``."""

    @abstractmethod
    def state_key(self, state: State, rows: IntArray) -> IntArray:
        """Return ``View.state_key``."""

    @abstractmethod
    def score(self, state: State, rows: IntArray) -> FloatArray:
        """Return ``View.score``."""

    @abstractmethod
    def success(self, state: State, rows: IntArray) -> BoolArray:
        """Return ``View.success``."""

    @abstractmethod
    def chance(self) -> float:
        """Return the highest expected score that a policy which ignores the observation can have.

        Holds for rollouts without tool failures; the reason stands under "Known truth".
        """

    def closed_forms(self) -> dict[str, float]:
        """Return those fields of ``agentic_gym.truth.Truth`` that have a closed form; by default none.

        Keys are among ``best_score, best_value, random_score, random_value``, for the knobs of this
        family, tool failures included. What has none is measured.
        """
        return {}

    def valid(self, state: State, rows: IntArray) -> BoolArray:
        """Return ``View.valid``; by default nothing can fail."""
        return np.ones(len(rows), dtype=np.bool_)

    def timeout(self, state: State, rows: IntArray) -> FloatArray:
        """Close rows whose turns are used up; by default this is worth nothing."""
        return np.zeros((len(rows), len(self.components)))

    def look(self, state: State, rows: IntArray) -> View:
        """Return everything that the engine reports of a state."""
        return View(
            self.observe(state, rows),
            self.ground_truth(state, rows),
            self.state_key(state, rows),
            self.score(state, rows),
            self.success(state, rows),
            self.valid(state, rows),
        )

    def new_state(self, n: int) -> State:
        """Return a state of n rows, none of them begun."""
        columns = self.start(np.zeros(0, dtype=np.uint64))
        return {name: np.zeros((n, *c.shape[1:]), dtype=c.dtype) for name, c in columns.items()}

    def begin(self, state: State, rows: IntArray, prompt: IntArray, split: IntArray) -> streams.Keys:
        """Put rows into the initial states of prompts (n,) and return the prompts' keys (n,)."""
        key = streams.mix(streams.PROMPT, self._name_hash, split, prompt)
        for name, values in self.start(key).items():
            state[name][rows] = values
        return key

    def environment(self, state: State, rows: IntArray) -> IntArray:
        """There is one environment."""
        return np.zeros(len(rows), dtype=np.int64)

    @property
    def members(self) -> tuple[Family, ...]:
        """The family itself."""
        return (self,)

    @property
    def environment_names(self) -> tuple[str, ...]:
        """The family's name."""
        return (self.name,)

    @property
    def num_prompts(self) -> int:
        """Prompts per split."""
        return self.knobs.num_prompts

    @property
    def prompt_cycle(self) -> int:
        """There is one environment."""
        return 1


def spread_difficulty(difficulty: float, uniform: FloatArray) -> FloatArray:
    """Give each prompt a probability of its own, whose mean is the difficulty.

    The probabilities lie evenly within 0.25 of the difficulty, or less where that would leave [0, 1].
    """
    width = min(0.5, 2.0 * difficulty, 2.0 * (1.0 - difficulty))
    return difficulty + width * (uniform - 0.5)


def indices(flags: BoolArray) -> IntArray:
    """Return where flags (n,) are set; for few rows many times faster than ``np.flatnonzero``."""
    return flags.nonzero()[0]


def pick(table: npt.NDArray[np.int8], rows: IntArray, at: npt.NDArray[np.integer]) -> npt.NDArray[np.int8]:
    """Return ``table[rows, at]``, (n, k), of an array (N, m, k): many times faster than that expression."""
    n, m, k = table.shape
    return table.reshape(n * m, k).take(rows * m + at, axis=0)


class OneHot:
    """Writes several one-hot fields side by side.

    Args:
        *sizes: how many values each field has.
    """

    def __init__(self, *sizes: int) -> None:
        """See the class docstring."""
        self.width = sum(sizes)
        self._first = np.cumsum([0, *sizes[:-1]])[:, None]

    def __call__(self, *columns: npt.NDArray[np.integer], spare: int = 0) -> Features:
        """Encode the fields of n rows.

        Args:
            *columns: arrays (n, k) of values, one column per field in all; ``NOTHING`` leaves a field
                empty.
            spare: how many features of 0 to add at the end.

        Returns:
            float32 array (n, sum of the sizes + spare).
        """
        # Fields come first while working: NumPy is fast along the last axis, and there are many rows.
        fields = np.concatenate([column.T for column in columns])
        n, width = len(columns[0]), self.width + spare
        places = fields + self._first
        places += np.arange(0, n * width, width)
        features = np.zeros(n * width, dtype=np.float32)
        features[places[fields >= 0]] = 1.0
        return features.reshape(n, width)
