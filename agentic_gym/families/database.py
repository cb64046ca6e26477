"""Database: work through repair tickets on a small table where every query costs."""

from __future__ import annotations

import itertools
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
    pick,
    spread_difficulty,
)
from agentic_gym.grammar import Tool
from agentic_gym.knobs import Knobs

NAMES = ("alder", "birch", "cedar", "elm", "fir", "oak")
STATUS = ("new", "open", "held", "closed")
N_ROWS, N_STATUS = len(NAMES), len(STATUS)
SELECT, UPDATE, ROLLBACK, COMMIT = 2, 3, 4, 5
FIRST_NAME = 6
FIRST_ROW = FIRST_NAME + N_ROWS
FIRST_STATUS = FIRST_ROW + N_ROWS

COST = np.zeros(FIRST_STATUS + N_STATUS)
COST[SELECT], COST[UPDATE] = -1.0, -0.5
FAILURE = -40.0
SCORE_UNIT = 50.0

ORDERS = np.array(list(itertools.permutations(range(N_ROWS))), dtype=np.int8)
TABLES = np.array(list(itertools.product(range(N_STATUS), repeat=N_ROWS)), dtype=np.int8)

# Columns of the state "ticket": what is shown of a ticket.
NAME, CONDITIONAL, CONDITION, FIRST, SECOND = range(5)
# Columns of the state "gold": what is hidden of it.
ROW, WANTED = range(2)
# Columns of the state "evidence".
FOUND, FOUND_STATUS, SEEN_ASIDE, WRITTEN, WRITTEN_STATUS = range(5)


class Database(Family):
    """Query and repair a table: every query costs, a wrong commit is final.

    ## Description
    Mirrors database agents. The table has 6 rows, each with a name and a status; which name is in
    which row is hidden. A prompt is a queue of ``depth`` tickets, shown one at a time: "set the
    status of <name> to <status>", or, conditionally, "to <a> if it is <s>, else to <b>".
    ``select(name)`` shows the name's row and, for the ticket's name, its status at the last commit,
    ``update(row, status)`` writes, ``rollback()`` undoes all updates since the last commit,
    ``commit()`` closes the ticket: if the table is then exactly as it should be, the next ticket
    follows; if not, the rollout has failed.

    ## Action Space
    ``select(name)``, ``update(row, status)``, ``rollback()``, ``commit()``: 3 token slots, plus filler.

    ## Observation Space
    The ticket: name (6), conditional (1), condition (4), first (4) and second (4) status. Then the
    row (6) and status (4) of the ticket's name, once selected; the row of another name, if that was
    selected last (6); the row (6) and the status (4) written last since the last commit; whether
    more than one update is pending (1); tickets closed (``depth + 1``); the engine's three features
    (share of turns used, tool failure, illegal message).

    ## Starting State
    The first ticket, nothing selected.

    ## Rewards
    Component ``cost``: -1 for each select, -0.5 for each update. ``outcome``: -40 times the share of
    open tickets when the rollout fails (wrong commit, or turns used up). ``illegal``: -1 for each
    illegal message. The score is ``1 + (cost + outcome) / 50``, clipped to [0, 1], where tickets
    that are open count as failed; success is an empty queue.

    ## Episode End
    Termination when the queue is empty or by a wrong commit; truncation after ``max_turns``
    (default ``3 * depth + 4``).

    ## Arguments
    Common knobs. ``depth`` (default 2, 1 to 4): tickets. ``difficulty`` (default 0.6): mean
    probability that a ticket is conditional; each prompt has its own. Tasks: ``plain`` (no
    conditional ticket) and ``conditional``.

    ## Known truth
    Best ``-1.5 * depth``, worst ``-40 - max_turns``; a policy that commits at once gets -40.

    ## Version History
    * v0: initial version.
    """

    name = "Database"
    components = ("cost", "outcome")
    default_depth = 2
    depth_range = (1, 4)
    default_difficulty = 0.6
    tasks = ("plain", "conditional")
    illegal_penalty = -1.0

    def __init__(self, knobs: Knobs) -> None:
        """See the class docstring."""
        super().__init__(knobs)
        # Lucky guesses need no select, but every ticket needs an update.
        self.value_range = (FAILURE + COST.min() * self.turn_limit, COST[UPDATE] * self.depth)
        ticket = (N_ROWS, 1, N_STATUS, N_STATUS, N_STATUS)
        evidence = (N_ROWS, N_STATUS, N_ROWS, N_ROWS, N_STATUS)
        self._one_hot = OneHot(*ticket, *evidence, 1, self.depth + 1)
        self.n_features = self._one_hot.width
        table = N_STATUS ** np.arange(N_ROWS)
        self._table_places = table
        self._evidence_places = N_STATUS**N_ROWS * np.cumprod([1, *(size + 1 for size in evidence)])

    def chance(self) -> float:
        """To commit at once, and thereby to fail every ticket, is the best of the blind policies."""
        return 1.0 + FAILURE / SCORE_UNIT

    def closed_forms(self) -> dict[str, float]:
        """Without tool failures the expert spends one select and one update on each ticket."""
        if self.knobs.slip or self.turn_limit < 3 * self.depth:
            return {}
        best = float(COST[SELECT] + COST[UPDATE]) * self.depth
        return {"best_score": 1.0 + best / SCORE_UNIT, "best_value": best}

    def default_max_turns(self) -> int:
        """Three turns a ticket, and four for mistakes."""
        return 3 * self.depth + 4

    def tools(self) -> Sequence[Tool]:
        """The four tools; their order and slots fix the token ids above."""
        rows = tuple(f"row-{index}" for index in range(N_ROWS))
        return [Tool("select", (NAMES,)), Tool("update", (rows, STATUS)), Tool("rollback"), Tool("commit")]

    def start(self, key: streams.Keys) -> State:
        """Draw the table and the tickets."""
        n, depth = len(key), self.depth
        draw = streams.uniform(key[:, None], np.arange(depth + 3))
        share = spread_difficulty(self.difficulty, draw[:, :1])
        row_of_name = ORDERS[(draw[:, 1] * len(ORDERS)).astype(np.int64)]
        (order, table), _ = streams.digits(draw[:, 2], len(ORDERS), len(TABLES))
        saved = TABLES[table]
        # Each ticket has a name of its own, so that the status it meets is the initial one.
        name = ORDERS[order, :depth]
        row = np.take_along_axis(row_of_name, name, axis=1)
        status = np.take_along_axis(saved, row, axis=1)
        steps, rest = streams.digits(draw[:, 3:], N_STATUS - 1, N_STATUS - 1, N_STATUS - 1, 2)
        # A new status differs from the present one, so that doing nothing is never right.
        first, second, other = ((status + 1 + step) % N_STATUS for step in steps[:3])
        holds, conditional = steps[3] == 1, rest < share
        ticket = np.full((n, depth, 5), NOTHING, dtype=np.int8)
        ticket[:, :, NAME] = name
        ticket[:, :, CONDITIONAL] = np.where(conditional, 0, NOTHING)
        ticket[:, :, CONDITION] = np.where(conditional, np.where(holds, status, other), NOTHING)
        ticket[:, :, FIRST] = first
        ticket[:, :, SECOND] = np.where(conditional, second, NOTHING)
        gold = np.empty((n, depth, 2), dtype=np.int8)
        gold[:, :, ROW] = row
        gold[:, :, WANTED] = np.where(conditional & ~holds, second, first)
        return {
            "row_of_name": row_of_name,
            "saved": saved,
            "table": saved,
            "ticket": ticket,
            "gold": gold,
            "closed": np.zeros(n, dtype=np.int64),
            "evidence": np.full((n, 5), NOTHING, dtype=np.int8),
            "pending": np.zeros(n, dtype=np.int64),
            "spent": np.zeros(n),
            "failed": np.zeros(n, dtype=np.bool_),
        }

    def _current(self, state: State, rows: IntArray, column: str) -> npt.NDArray[np.int8]:
        """Return the fields (n, k) of the ticket in hand; after the last ticket, of that one."""
        return pick(state[column], rows, np.minimum(state["closed"][rows], self.depth - 1))

    def observe(self, state: State, rows: IntArray) -> Features:
        """Show the ticket and what was selected and written since the last commit."""
        several = np.where(state["pending"][rows] > 1, 0, NOTHING)
        progress = np.array([several, state["closed"][rows]]).T
        return self._one_hot(self._current(state, rows, "ticket"), state["evidence"].take(rows, axis=0), progress)

    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Undo what is wrong, else commit what is done, else select, else update."""
        gold, evidence = self._current(state, rows, "gold"), state["evidence"].take(rows, axis=0)
        pending = state["pending"][rows]
        # Without the row an update cannot have been meant: the expert knows no more than the agent.
        known = evidence[:, FOUND] != NOTHING
        done = known & (pending == 1) & (evidence[:, [WRITTEN, WRITTEN_STATUS]] == gold).all(axis=1)
        wrong = (pending > 0) & ~done
        tool = np.select([wrong, done, known], [ROLLBACK, COMMIT, UPDATE], SELECT)
        name = self._current(state, rows, "ticket")[:, NAME]
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = tool
        message[:, 1] = np.select([tool == SELECT, tool == UPDATE], [FIRST_NAME + name, FIRST_ROW + gold[:, ROW]])
        message[:, 2] = np.where(tool == UPDATE, FIRST_STATUS + gold[:, WANTED], 0)
        return message

    def ground_truth(self, state: State, rows: IntArray) -> IntArray:
        """The update that the ticket in hand asks for."""
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = UPDATE
        message[:, 1:3] = self._current(state, rows, "gold") + np.array([FIRST_ROW, FIRST_STATUS])
        return message

    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Carry out one statement."""
        tool, cost = message[:, 0], COST[message[:, 0]]
        state["spent"][rows] += cost
        statements = {
            SELECT: self._select, UPDATE: self._update, ROLLBACK: self._rollback, COMMIT: self._commit,
        }  # fmt: skip
        for token, carry_out in statements.items():
            chosen = indices(tool == token)
            if len(chosen):
                carry_out(state, rows[chosen], message[chosen])
        failed = state["failed"][rows]
        outcome = np.where(failed, self._outcome(state, rows), 0.0)
        return Outcome(np.column_stack([cost, outcome]), failed | self.success(state, rows))

    def _select(self, state: State, rows: IntArray, message: IntArray) -> None:
        name = message[:, 1] - FIRST_NAME
        row = state["row_of_name"][rows, name]
        asked = name == self._current(state, rows, "ticket")[:, NAME]
        evidence = state["evidence"].take(rows, axis=0)
        evidence[:, FOUND] = np.where(asked, row, evidence[:, FOUND])
        evidence[:, FOUND_STATUS] = np.where(asked, state["saved"][rows, row], evidence[:, FOUND_STATUS])
        evidence[:, SEEN_ASIDE] = np.where(asked, NOTHING, row)
        state["evidence"][rows] = evidence

    def _update(self, state: State, rows: IntArray, message: IntArray) -> None:
        row, status = message[:, 1] - FIRST_ROW, message[:, 2] - FIRST_STATUS
        state["table"][rows, row] = status
        state["evidence"][rows, WRITTEN] = row
        state["evidence"][rows, WRITTEN_STATUS] = status
        state["pending"][rows] += 1

    def _rollback(self, state: State, rows: IntArray, message: IntArray) -> None:
        state["table"][rows] = state["saved"].take(rows, axis=0)
        state["evidence"][rows, WRITTEN:] = NOTHING
        state["pending"][rows] = 0

    def _commit(self, state: State, rows: IntArray, message: IntArray) -> None:
        saved, table = state["saved"].take(rows, axis=0), state["table"].take(rows, axis=0)
        gold = self._current(state, rows, "gold")
        saved[np.arange(len(rows)), gold[:, ROW]] = gold[:, WANTED]
        right = (saved == table).all(axis=1)
        state["failed"][rows] = ~right
        rows = rows[right]
        state["closed"][rows] += 1
        state["saved"][rows] = table[right]
        state["evidence"][rows] = NOTHING
        state["pending"][rows] = 0

    def _outcome(self, state: State, rows: IntArray) -> FloatArray:
        return np.asarray(FAILURE * (self.depth - state["closed"][rows]) / self.depth, dtype=np.float64)

    def timeout(self, state: State, rows: IntArray) -> FloatArray:
        """Running out of turns fails the open tickets."""
        state["failed"][rows] = True
        return np.column_stack([np.zeros(len(rows)), self._outcome(state, rows)])

    def score(self, state: State, rows: IntArray) -> FloatArray:
        """1 + value / 50, where open tickets count as failed."""
        value = state["spent"][rows] + self._outcome(state, rows)
        return np.clip(1.0 + value / SCORE_UNIT, 0.0, 1.0)

    def success(self, state: State, rows: IntArray) -> BoolArray:
        """The queue is empty."""
        return np.asarray(state["closed"][rows] == self.depth)

    def task(self, state: State, rows: IntArray) -> IntArray:
        """1 if a ticket is conditional."""
        return (state["ticket"][rows, :, CONDITIONAL] == 0).any(axis=1).astype(np.int64)

    def state_key(self, state: State, rows: IntArray) -> IntArray:
        """Everything the agent has seen or changed, as one number."""
        table = state["table"].take(rows, axis=0) @ self._table_places
        evidence = (state["evidence"].take(rows, axis=0) - NOTHING) @ self._evidence_places[:-1]
        stage = (state["pending"][rows] * (self.depth + 1) + state["closed"][rows]) * 2 + state["failed"][rows]
        return table + evidence + stage * self._evidence_places[-1]

    def describe(self, state: State, row: int) -> str:
        """Read the ticket and the last results."""
        closed = int(state["closed"][row])
        if closed == self.depth:
            return "All tickets are closed."
        if state["failed"][row]:
            return "A ticket was left wrong."
        name, conditional, condition, first, second = state["ticket"][row, closed].tolist()
        text = f"Ticket {closed + 1} of {self.depth}: set {NAMES[name]} to {STATUS[first]}"
        if conditional != NOTHING:
            text += f" if it is {STATUS[condition]}, else to {STATUS[second]}"
        text += "."
        found, found_status, aside, written, written_status = state["evidence"][row].tolist()
        if found != NOTHING:
            text += f" Selected: row-{found}, {STATUS[found_status]}."
        if aside != NOTHING:
            text += f" Also seen: another name, in row-{aside}."
        if written != NOTHING:
            text += f" Written: row-{written} is {STATUS[written_status]} ({state['pending'][row]} pending)."
        return text
