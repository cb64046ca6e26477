"""Search: follow a chain of facts through a small knowledge base, then answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.family import Draws, Family, FloatArray, IntArray, Outcome, State, encode
from agentic_gym.grammar import Tool
from agentic_gym.knobs import Knobs

ENTITIES = ("Ada", "Bly", "Cai", "Dee", "Eli", "Fay", "Gus", "Hal")
RELATIONS = ("teacher", "rival", "neighbour", "patron")
N_ENTITIES, N_RELATIONS = len(ENTITIES), len(RELATIONS)
LOOKUP, CHECK, ANSWER = 2, 3, 4
FIRST_ENTITY = 5
FIRST_RELATION = FIRST_ENTITY + N_ENTITIES
NOTHING = -1
NO_ANSWER = -1.0


class Search(Family):
    """Multi-hop retrieval: look facts up, check doubtful evidence, and answer.

    ## Description
    Mirrors search agents on multi-hop questions. Each prompt has its own knowledge base: every
    pair of one of 8 entities and one of 4 relations leads to another entity. The question names a
    start and a path of relations ("who is the patron of the rival of Ada?"). ``lookup(entity,
    relation)`` finds the fact. Some facts are doubtful: the look-up then returns two candidates,
    and ``check(entity)`` says which one is right. Look-ups off the path return true facts that do
    not help. ``answer(entity)`` ends the rollout.

    ## Action Space
    ``lookup(entity, relation)``, ``check(entity)``, ``answer(entity)``: 3 token slots, plus filler.

    ## Observation Space
    The path (``depth`` x 4 one-hot, zeros where it is shorter), hops established so far
    (``depth + 1``), the entity established last (8), two open candidates (8 each), the entity that
    the last look-up off the path returned (8), then the engine's three features.

    ## Starting State
    The question; the start is the established entity and no hop is established.

    ## Rewards
    Component ``answer``: 1 for a right answer, 0 for a wrong one, -1 if the turns run out without
    an answer. ``illegal``: -0.05 for each illegal message. The score is 1 for a right answer, else 0.

    ## Episode End
    Termination by ``answer``; truncation after ``max_turns`` (default ``2 * depth + 2``).

    ## Arguments
    Common knobs. ``depth`` (default 3, 2 to 6) is the longest path; tasks are ``(depth-1)``-hop
    and ``depth``-hop questions. ``difficulty`` (default 0.3) is the mean probability that a fact
    is doubtful; each prompt has its own.

    ## Known truth
    Best 1, worst -1 (never answering); without looking anything up an answer is right with probability 1/8 at most
    on average.

    ## Version History
    * v0: initial version.
    """

    name = "Search"
    components = ("answer",)
    default_depth = 3
    depth_range = (2, 6)
    default_difficulty = 0.3
    constants = ("target", "decoy", "doubtful", "decoy_first", "path", "hops", "solution")
    value_range = (-1.0, 1.0)
    illegal_penalty = -0.05

    def __init__(self, knobs: Knobs) -> None:
        """See the class docstring."""
        super().__init__(knobs)
        self.tasks = (f"{self.depth - 1}-hop", f"{self.depth}-hop")
        self.n_features = self.depth * N_RELATIONS + self.depth + 1 + 4 * N_ENTITIES

    def default_max_turns(self) -> int:
        """Room for a check after every look-up, an answer, and one mistake."""
        return 2 * self.depth + 2

    def tools(self) -> Sequence[Tool]:
        """The three tools; their order and slots fix the token ids above."""
        return [
            Tool("lookup", (ENTITIES, RELATIONS)),
            Tool("check", (ENTITIES,)),
            Tool("answer", (ENTITIES,)),
        ]

    def start(self, key: streams.Keys) -> State:
        """Draw the knowledge base and the question."""
        n = len(key)
        columns = key[:, None]
        fact = np.arange(N_ENTITIES * N_RELATIONS)
        subject = fact // N_RELATIONS
        target = (subject + 1 + streams.integers(N_ENTITIES - 1, columns, 0, fact)) % N_ENTITIES
        decoy = (target + 1 + streams.integers(N_ENTITIES - 1, columns, 1, fact)) % N_ENTITIES
        share = np.clip(self.difficulty * (0.5 + streams.uniform(key, 2)), 0.0, 1.0)
        path = streams.integers(N_RELATIONS, columns, 3, np.arange(self.depth))
        hops = self.depth - 1 + streams.integers(2, key, 4)
        start = streams.integers(N_ENTITIES, key, 5)
        state = {
            "target": target.astype(np.int8),
            "decoy": decoy.astype(np.int8),
            "doubtful": streams.uniform(columns, 6, fact) < share[:, None],
            "decoy_first": streams.uniform(columns, 7, fact) < 0.5,
            "path": path,
            "hops": hops,
            "established": start,
            "reached": np.zeros(n, dtype=np.int64),
            "candidates": np.full((n, 2), NOTHING),
            "aside": np.full(n, NOTHING),
            "answered": np.zeros(n, dtype=np.int64),
        }
        state["solution"] = self._follow(state, start)
        return state

    def _follow(self, state: State, entity: IntArray) -> IntArray:
        rows = np.arange(len(entity))
        for hop in range(self.depth):
            following = state["target"][rows, entity * N_RELATIONS + state["path"][:, hop]]
            entity = np.where(hop < state["hops"], following, entity)
        return entity.astype(np.int64)

    def observe(self, state: State) -> npt.NDArray[np.float32]:
        """Show the question and the evidence so far."""
        shown = np.where(np.arange(self.depth) < state["hops"][:, None], state["path"], NOTHING)
        entities = [
            state["established"],
            state["candidates"][:, 0],
            state["candidates"][:, 1],
            state["aside"],
        ]
        return encode(
            *((shown[:, hop], N_RELATIONS) for hop in range(self.depth)),
            (state["reached"], self.depth + 1),
            *((entity, N_ENTITIES) for entity in entities),
        )

    def _next_relation(self, state: State) -> IntArray:
        at = np.minimum(state["reached"], self.depth - 1)
        return np.asarray(state["path"][np.arange(len(at)), at])

    def expert(self, state: State) -> IntArray:
        """Check open candidates, else look up the next hop, else answer."""
        message = np.zeros((len(state["hops"]), self.grammar.n_slots), dtype=np.int64)
        open_candidates = state["candidates"][:, 0] != NOTHING
        finished = state["reached"] == state["hops"]
        message[:, 0] = np.where(open_candidates, CHECK, np.where(finished, ANSWER, LOOKUP))
        entity = np.where(open_candidates, state["candidates"][:, 0], state["established"])
        message[:, 1] = FIRST_ENTITY + entity
        message[:, 2] = np.where(message[:, 0] == LOOKUP, FIRST_RELATION + self._next_relation(state), 0)
        return message

    def ground_truth(self, state: State) -> IntArray:
        """The right answer."""
        message = np.zeros((len(state["hops"]), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = ANSWER
        message[:, 1] = FIRST_ENTITY + state["solution"]
        return message

    def apply(self, state: State, message: IntArray, draws: Draws) -> Outcome:
        """Carry out one tool call."""
        tool, entity = message[:, 0], message[:, 1] - FIRST_ENTITY
        self._lookup(state, np.flatnonzero(tool == LOOKUP), entity, message[:, 2] - FIRST_RELATION)
        self._check(state, tool == CHECK, entity)
        ended = tool == ANSWER
        right = ended & (entity == state["solution"])
        state["answered"] = np.where(ended, np.where(right, 1, -1), state["answered"])
        return Outcome(
            right.astype(np.float64)[:, None], ended, right.astype(np.float64), right, np.ones_like(ended)
        )

    def timeout(self, state: State) -> Outcome:
        """No answer is worse than a wrong one."""
        n = len(state["hops"])
        true, false = np.ones(n, np.bool_), np.zeros(n, np.bool_)
        return Outcome(np.full((n, 1), NO_ANSWER), true, self.score(state), false, true)

    def _lookup(self, state: State, rows: IntArray, entity: IntArray, relation: IntArray) -> None:
        entity, relation = entity[rows], relation[rows]
        fact = entity * N_RELATIONS + relation
        found, decoy = state["target"][rows, fact], state["decoy"][rows, fact]
        useful = (
            (entity == state["established"][rows])
            & (state["reached"][rows] < state["hops"][rows])
            & (relation == self._next_relation(state)[rows])
        )
        doubtful = state["doubtful"][rows, fact]
        first = np.where(state["decoy_first"][rows, fact], decoy, found)
        second = np.where(state["decoy_first"][rows, fact], found, decoy)
        pair = np.stack([first, second], axis=1)
        state["candidates"][rows] = np.where((useful & doubtful)[:, None], pair, NOTHING)
        settled = useful & ~doubtful
        state["established"][rows] = np.where(settled, found, state["established"][rows])
        state["reached"][rows] += settled
        state["aside"][rows] = np.where(useful, NOTHING, found)

    def _check(self, state: State, checks: npt.NDArray[np.bool_], entity: IntArray) -> None:
        # Checking either candidate settles which of the two is right.
        rows = np.flatnonzero(checks & np.any(state["candidates"] == entity[:, None], axis=1))
        fact = state["established"][rows] * N_RELATIONS + self._next_relation(state)[rows]
        state["established"][rows] = state["target"][rows, fact]
        state["reached"][rows] += 1
        state["candidates"][rows] = NOTHING

    def score(self, state: State) -> FloatArray:
        """1 for a right answer."""
        return (state["answered"] == 1).astype(np.float64)

    def task(self, state: State) -> IntArray:
        """0 for the shorter questions, 1 for the longer."""
        return np.asarray(state["hops"] - (self.depth - 1), dtype=np.int64)

    def state_columns(self, state: State) -> Sequence[npt.NDArray[np.integer]]:
        """The evidence so far."""
        return [
            state["established"], state["reached"], state["candidates"][:, 0], state["candidates"][:, 1],
            state["aside"], state["answered"],
        ]  # fmt: skip

    def describe(self, state: State, row: int) -> str:
        """State the question and the evidence."""
        relations = [RELATIONS[index] for index in state["path"][row, : state["hops"][row]]]
        reached = int(state["reached"][row])
        left = " of the ".join(reversed(relations[reached:]))
        entity = ENTITIES[state["established"][row]]
        text = f"Wanted: the {left} of {entity}." if left else f"The trail ends at {entity}."
        first, second = state["candidates"][row]
        if first != NOTHING:
            text += f" The next hop is {ENTITIES[first]} or {ENTITIES[second]}: sources disagree."
        if state["aside"][row] != NOTHING:
            text += f" The last look-up found {ENTITIES[state['aside'][row]]}, off the trail."
        return text
