"""Search: follow a chain of facts through a small knowledge base, then answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.family import (
    NOTHING,
    BoolArray,
    Draws,
    Family,
    Features,
    FloatArray,
    IntArray,
    OneHot,
    Outcome,
    State,
    indices,
    spread_difficulty,
)
from agentic_gym.grammar import Tool
from agentic_gym.knobs import Knobs, check_integer

ENTITIES = (
    "Ada", "Bly", "Cai", "Dee", "Eli", "Fay", "Gus", "Hal", "Ivo", "Jan", "Kit", "Liv",
    "Max", "Noa", "Oda", "Pia", "Quy", "Ras", "Sue", "Tom", "Uma", "Vic", "Wim", "Zoe",
)  # fmt: skip
RELATIONS = ("teacher", "rival", "neighbour", "patron", "cousin", "tenant", "partner", "pupil")
LOOKUP, CHECK, ANSWER = 2, 3, 4
FIRST_ENTITY = 5
FACTS = 1000
"""Where a prompt's draws for its facts begin; the question's draws come before."""
NO_ANSWER = -1.0

# Columns of the state "evidence".
REACHED, ESTABLISHED, CANDIDATE_1, CANDIDATE_2, ASIDE = range(5)
# Values of the state "answered".
OPEN, RIGHT, WRONG = range(3)


class Search(Family):
    """Multi-hop retrieval: look facts up, check doubtful evidence, and answer.

    ## Description
    Mirrors search agents on multi-hop questions. Each prompt has its own knowledge base: every
    pair of one of 24 entities and one of 8 relations leads to another entity. The question names a
    start and a path of relations ("who is the patron of the rival of Ada?"). ``lookup(entity,
    relation)`` finds the fact. Some facts are doubtful: where such a fact is the next hop, the
    look-up returns two candidates, and ``check(entity)`` with either of them says which one is
    right. Look-ups off the path return true facts that do not help. ``answer(entity)`` ends the
    rollout.

    ## Action Space
    ``lookup(entity, relation)``, ``check(entity)``, ``answer(entity)``: 3 token slots, plus filler.

    ## Observation Space
    One-hot: the path (``depth`` times ``relations``, empty where it is shorter), hops established so far
    (``depth + 1``), the entity established last, two open candidates, and the entity that the last
    look-up returned if it was off the path (``entities`` each); then the engine's three features
    (share of turns used, tool failure, illegal message).

    ## Starting State
    The question; the start is the established entity and no hop is established.

    ## Rewards
    Component ``answer``: 1 for a right answer, 0 for a wrong one, -1 if the turns run out without
    an answer. ``illegal``: -0.05 for each illegal message. The score is 1 for a right answer, else 0.

    ## Episode End
    Termination by ``answer``; truncation after ``max_turns`` (default ``2 * depth + 2``).

    ## Arguments
    Common knobs, and:

    * ``entities`` (default 24, 4 to 24): how many there are.
    * ``relations`` (default 8, 2 to 8): how many there are.

    ``depth`` (default 3, 2 to 6) is the longest path; tasks are ``(depth-1)``-hop and
    ``depth``-hop questions. ``difficulty`` (default 0.3) is the mean probability that a fact is
    doubtful; each prompt has its own.

    ## Known truth
    Best 1, worst -1 (never answering). Without looking anything up, an answer to a question of up to
    three hops is right with probability ``1 / (entities - 1)`` at most (another entity than the start
    after one hop, the start after two).

    ## Version History
    * v0: initial version.
    """

    name = "Search"
    components = ("answer",)
    default_depth = 3
    depth_range = (2, 6)
    default_difficulty = 0.3
    value_range = (-1.0, 1.0)
    illegal_penalty = -0.05

    def __init__(self, knobs: Knobs, entities: int = 24, relations: int = 8) -> None:
        """See the class docstring."""
        self.entities = check_integer("entities", entities, 4, len(ENTITIES))
        self.relations = check_integer("relations", relations, 2, len(RELATIONS))
        self._first_relation = FIRST_ENTITY + self.entities
        super().__init__(knobs)
        self.tasks = (f"{self.depth - 1}-hop", f"{self.depth}-hop")
        self._one_hot = OneHot(*[self.relations] * self.depth, self.depth + 1, *[self.entities] * 4)
        self.n_features = self._one_hot.width
        # Every field of the evidence can be empty.
        sizes = [self.depth + 2, *[self.entities + 1] * 4]
        self._place_values = np.cumprod([1, *sizes])

    def chance(self) -> float:
        """Start and facts are uniform; a fact never leads to its own subject."""
        return 1.0 / (self.entities - 1)

    def closed_forms(self) -> dict[str, float]:
        """Without tool failures the expert finds every answer in time."""
        return {} if self.knobs.slip or self.turn_limit <= 2 * self.depth else {"best_score": 1.0, "best_value": 1.0}

    def default_max_turns(self) -> int:
        """Room for a check after every look-up, an answer, and one mistake."""
        return 2 * self.depth + 2

    def tools(self) -> Sequence[Tool]:
        """The three tools; their order and slots fix the token ids above."""
        entities, relations = ENTITIES[: self.entities], RELATIONS[: self.relations]
        return [Tool("lookup", (entities, relations)), Tool("check", (entities,)), Tool("answer", (entities,))]

    def start(self, key: streams.Keys) -> State:
        """Draw the question; the knowledge base is a function of the key and is not stored."""
        draw = streams.uniform(key[:, None], np.arange(self.depth + 1))
        (shorter, start), rest = streams.digits(draw[:, 0], 2, self.entities)
        # One column more than hops: a path always ends with NOTHING.
        path = np.full((len(key), self.depth + 1), NOTHING, dtype=np.int8)
        path[:, :-1] = draw[:, 1:] * self.relations
        path[shorter == 1, -2] = NOTHING
        evidence = np.full((len(key), 5), NOTHING, dtype=np.int8)
        evidence[:, REACHED] = 0
        evidence[:, ESTABLISHED] = start
        return {
            "key": key,
            "share": spread_difficulty(self.difficulty, rest),
            "path": path,
            "evidence": evidence,
            "solution": self._follow(key, path, start),
            "answered": np.full(len(key), OPEN, dtype=np.int8),
        }

    def _follow(self, key: streams.Keys, path: npt.NDArray[np.int8], entity: IntArray) -> IntArray:
        for relation in path[:, :-1].T:
            target, _ = self._fact(key, entity, relation)
            entity = np.where(relation == NOTHING, entity, target)
        return entity

    def _fact(
        self, key: streams.Keys, entity: npt.NDArray[np.integer], relation: npt.NDArray[np.integer]
    ) -> tuple[IntArray, FloatArray]:
        """Return the entities that facts lead to, and a uniform number each for their further properties."""
        draw = streams.uniform(key, FACTS + entity * np.int64(self.relations) + relation)
        (step,), rest = streams.digits(draw, self.entities - 1)
        return (entity + 1 + step) % self.entities, rest

    def observe(self, state: State, rows: IntArray) -> Features:
        """Show the question and the evidence so far."""
        return self._one_hot(state["path"][rows, :-1], state["evidence"][rows])

    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Check open candidates, else look up the next hop, else answer."""
        evidence = state["evidence"][rows]
        relation = state["path"][rows, evidence[:, REACHED]]
        candidate = evidence[:, CANDIDATE_1]
        undecided, finished = candidate != NOTHING, relation == NOTHING
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = np.where(undecided, CHECK, np.where(finished, ANSWER, LOOKUP))
        message[:, 1] = FIRST_ENTITY + np.where(undecided, candidate, evidence[:, ESTABLISHED])
        message[:, 2] = np.where(undecided | finished, 0, self._first_relation + relation)
        return message

    def ground_truth(self, state: State, rows: IntArray) -> IntArray:
        """The right answer."""
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = ANSWER
        message[:, 1] = FIRST_ENTITY + state["solution"][rows]
        return message

    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Carry out one tool call."""
        tool, entity = message[:, 0], message[:, 1] - FIRST_ENTITY
        lookups, checks = indices(tool == LOOKUP), indices(tool == CHECK)
        if len(lookups):
            relation = message[lookups, 2] - self._first_relation
            self._lookup(state, rows[lookups], entity[lookups], relation)
        if len(checks):
            self._check(state, rows[checks], entity[checks])
        ended = tool == ANSWER
        right = ended & (entity == state["solution"][rows])
        state["answered"][rows] = np.where(ended, np.where(right, RIGHT, WRONG), OPEN)
        return Outcome(right.astype(np.float64)[:, None], ended)

    def timeout(self, state: State, rows: IntArray) -> FloatArray:
        """No answer is worse than a wrong one."""
        return np.full((len(rows), 1), NO_ANSWER)

    def _lookup(self, state: State, rows: IntArray, entity: IntArray, relation: IntArray) -> None:
        evidence = state["evidence"][rows]
        target, rest = self._fact(state["key"][rows], entity, relation)
        (step, swapped), rest = streams.digits(rest, self.entities - 2, 2)
        # Another entity than the subject, as every target is, and than the target.
        distance = (target - entity) % self.entities
        decoy = (entity + 1 + (distance + step) % (self.entities - 1)) % self.entities
        next_relation = state["path"][rows, evidence[:, REACHED]]
        useful = (entity == evidence[:, ESTABLISHED]) & (relation == next_relation)
        doubtful = useful & (rest < state["share"][rows])
        settled = useful & ~doubtful
        evidence[:, CANDIDATE_1] = np.where(doubtful, np.where(swapped, decoy, target), NOTHING)
        evidence[:, CANDIDATE_2] = np.where(doubtful, np.where(swapped, target, decoy), NOTHING)
        evidence[:, ASIDE] = np.where(useful, NOTHING, target)
        evidence[:, ESTABLISHED] = np.where(settled, target, evidence[:, ESTABLISHED])
        evidence[:, REACHED] += settled
        state["evidence"][rows] = evidence

    def _check(self, state: State, rows: IntArray, entity: IntArray) -> None:
        # Checking either candidate settles which of the two is right.
        evidence = state["evidence"][rows]
        meant = (entity == evidence[:, CANDIDATE_1]) | (entity == evidence[:, CANDIDATE_2])
        rows, evidence = rows[meant], evidence[meant]
        relation = state["path"][rows, evidence[:, REACHED]]
        evidence[:, ESTABLISHED], _ = self._fact(state["key"][rows], evidence[:, ESTABLISHED], relation)
        evidence[:, REACHED] += 1
        evidence[:, [CANDIDATE_1, CANDIDATE_2]] = NOTHING
        state["evidence"][rows] = evidence

    def score(self, state: State, rows: IntArray) -> FloatArray:
        """1 for a right answer."""
        return self.success(state, rows).astype(np.float64)

    def success(self, state: State, rows: IntArray) -> BoolArray:
        """The answer was right."""
        return np.asarray(state["answered"][rows] == RIGHT)

    def task(self, state: State, rows: IntArray) -> IntArray:
        """0 for the shorter questions, 1 for the longer."""
        return (state["path"][rows, -2] != NOTHING).astype(np.int64)

    def state_key(self, state: State, rows: IntArray) -> IntArray:
        """The evidence so far and the state of the answer, as one number."""
        evidence, answered = state["evidence"][rows] - NOTHING, state["answered"][rows]
        return evidence @ self._place_values[:-1] + answered * self._place_values[-1]

    def describe(self, state: State, row: int) -> str:
        """State the question and the evidence."""
        reached, established, first, second, aside = state["evidence"][row].tolist()
        wanted = [RELATIONS[index] for index in state["path"][row, reached:] if index != NOTHING]
        entity = ENTITIES[established]
        left = " of the ".join(reversed(wanted))
        text = f"Wanted: the {left} of {entity}." if left else f"The trail ends at {entity}."
        if first != NOTHING:
            text += f" The next hop is {ENTITIES[first]} or {ENTITIES[second]}: sources disagree."
        if aside != NOTHING:
            text += f" The last look-up found {ENTITIES[aside]}, off the trail."
        return text
