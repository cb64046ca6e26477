"""Database: work through repair tickets on a small table where every query costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.family import Draws, Family, FloatArray, IntArray, Outcome, State, encode
from agentic_gym.grammar import Tool
from agentic_gym.knobs import Knobs

NAMES = ("alder", "birch", "cedar", "elm", "fir", "oak")
STATUS = ("new", "open", "held", "closed")
N_ROWS, N_STATUS = len(NAMES), len(STATUS)
SELECT, UPDATE, ROLLBACK, COMMIT = 2, 3, 4, 5
FIRST_NAME = 6
FIRST_ROW = FIRST_NAME + N_ROWS
FIRST_STATUS = FIRST_ROW + N_ROWS
NOTHING = -1

SELECT_COST = -1.0
UPDATE_COST = -0.5
FAILURE = -40.0
SCORE_UNIT = 50.0


class Database(Family):
    """Query and repair a table: every query costs, a wrong commit is final.

    ## Description
    Mirrors database agents. The table has 6 rows, each with a name and a status; which name is in
    which row is hidden. A prompt is a queue of ``depth`` tickets, shown one at a time: "set the
    status of <name> to <status>", or, conditionally, "to <a> if it is <s>, else to <b>".
    ``select(name)`` shows the name's row and its status at the last commit, ``update(row, status)`` writes,
    ``rollback()`` undoes all updates since the last commit, ``commit()`` closes the ticket: if the
    table is then exactly as it should be, the next ticket follows; if not, the rollout has failed.

    ## Action Space
    ``select(name)``, ``update(row, status)``, ``rollback()``, ``commit()``: 3 token slots, plus filler.

    ## Observation Space
    The ticket: name (6), conditional (1), condition (4), first (4) and second (4) status; the row
    (6) and status (4) of the ticket's name, once selected; the row of another name, if that was
    selected last (6); the row (6) and the status (4) written last since the
    last commit; whether more than one update is pending (1); tickets closed (``depth + 1``); then
    the engine's three features.

    ## Starting State
    The first ticket, nothing selected.

    ## Rewards
    Component ``cost``: -1 for each select, -0.5 for each update. ``outcome``: -40 times the share of
    open tickets when the rollout fails (wrong commit, or turns used up). ``illegal``: -1 for each
    illegal message. The score is ``1 + (cost + outcome) / 50``, clipped to [0, 1]; success is an
    empty queue.

    ## Episode End
    Termination when the queue is empty or by a wrong commit; truncation after ``max_turns``
    (default ``3 * depth + 4``).

    ## Arguments
    Common knobs. ``depth`` (default 2, 1 to 4): tickets. ``difficulty`` (default 0.5): mean
    probability that a ticket is conditional; each prompt has its own. Tasks: ``plain`` (no
    conditional ticket) and ``conditional``.

    ## Known truth
    Best ``-1.5 * depth``; a policy that commits at once gets -40.

    ## Version History
    * v0: initial version.
    """

    name = "Database"
    components = ("cost", "outcome")
    default_depth = 2
    depth_range = (1, 4)
    tasks = ("plain", "conditional")
    constants = ("row_of_name", "name", "row", "conditional", "condition", "first", "second", "wanted")
    illegal_penalty = -1.0

    def __init__(self, knobs: Knobs) -> None:
        """See the class docstring."""
        super().__init__(knobs)
        self.value_range = (FAILURE + SELECT_COST * self.turn_limit, 0.0)
        self.n_features = 4 * N_ROWS + 5 * N_STATUS + 2 + self.depth + 1

    def default_max_turns(self) -> int:
        """Three turns a ticket, and four for mistakes."""
        return 3 * self.depth + 4

    def tools(self) -> Sequence[Tool]:
        """The four tools; their order and slots fix the token ids above."""
        rows = tuple(f"row-{index}" for index in range(N_ROWS))
        return [Tool("select", (NAMES,)), Tool("update", (rows, STATUS)), Tool("rollback"), Tool("commit")]

    def start(self, key: streams.Keys) -> State:
        """Draw the table and the tickets."""
        n = len(key)
        columns, ticket = key[:, None], np.arange(self.depth)
        share = np.clip(self.difficulty + 0.5 * (streams.uniform(key, 0) - 0.5), 0.0, 1.0)
        share = np.where(self.difficulty in (0.0, 1.0), self.difficulty, share)
        # Each ticket has a row of its own, so that the status it meets is the initial one.
        name = streams.permutation(N_ROWS, key, 1)[:, : self.depth]
        row_of_name = streams.permutation(N_ROWS, key, 2)
        table = streams.integers(N_STATUS, columns, 3, np.arange(N_ROWS))
        row = np.take_along_axis(row_of_name, name, axis=1)
        status = np.take_along_axis(table, row, axis=1)
        conditional = streams.uniform(columns, 4, ticket) < share[:, None]
        # A new status differs from the present one, so that doing nothing is never right.
        first = (status + 1 + streams.integers(N_STATUS - 1, columns, 5, ticket)) % N_STATUS
        second = (status + 1 + streams.integers(N_STATUS - 1, columns, 6, ticket)) % N_STATUS
        holds = streams.uniform(columns, 7, ticket) < 0.5
        other = (status + 1 + streams.integers(N_STATUS - 1, columns, 8, ticket)) % N_STATUS
        return {
            "row_of_name": row_of_name.astype(np.int8),
            "saved": table.astype(np.int8),
            "table": table.astype(np.int8),
            "name": name.astype(np.int8),
            "row": row.astype(np.int8),
            "conditional": conditional,
            "condition": np.where(holds, status, other).astype(np.int8),
            "first": first.astype(np.int8),
            "second": second.astype(np.int8),
            "wanted": np.where(conditional & ~holds, second, first).astype(np.int8),
            "closed": np.zeros(n, dtype=np.int64),
            "found": np.full(n, NOTHING),
            "found_status": np.full(n, NOTHING),
            "aside": np.full(n, NOTHING),
            "written": np.full(n, NOTHING),
            "written_status": np.full(n, NOTHING),
            "pending": np.zeros(n, dtype=np.int64),
            "spent": np.zeros(n),
            "failed": np.zeros(n, dtype=np.bool_),
        }

    def _ticket(self, state: State, column: str) -> npt.NDArray[np.int64]:
        at = np.minimum(state["closed"], self.depth - 1)
        return state[column][np.arange(len(at)), at].astype(np.int64)

    def observe(self, state: State) -> npt.NDArray[np.float32]:
        """Show the ticket and what was selected and written since the last commit."""
        conditional = self._ticket(state, "conditional") == 1
        return encode(
            (self._ticket(state, "name"), N_ROWS),
            (np.where(conditional, 0, NOTHING), 1),
            (np.where(conditional, self._ticket(state, "condition"), NOTHING), N_STATUS),
            (self._ticket(state, "first"), N_STATUS),
            (np.where(conditional, self._ticket(state, "second"), NOTHING), N_STATUS),
            (state["found"], N_ROWS),
            (state["found_status"], N_STATUS),
            (state["aside"], N_ROWS),
            (state["written"], N_ROWS),
            (state["written_status"], N_STATUS),
            (np.where(state["pending"] > 1, 0, NOTHING), 1),
            (state["closed"], self.depth + 1),
        )

    def expert(self, state: State) -> IntArray:
        """Select, update, commit; undo what is wrong first."""
        row, wanted = self._ticket(state, "row"), self._ticket(state, "wanted")
        done = (state["pending"] == 1) & (state["written"] == row) & (state["written_status"] == wanted)
        unknown = state["found"] == NOTHING
        # Without the row an update cannot have been meant: the expert knows no more than the agent.
        done &= ~unknown
        wrong = (state["pending"] > 0) & ~done
        message = np.zeros((len(row), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = np.select([wrong, done, unknown], [ROLLBACK, COMMIT, SELECT], UPDATE)
        select, update = message[:, 0] == SELECT, message[:, 0] == UPDATE
        message[:, 1] = np.select(
            [select, update], [FIRST_NAME + self._ticket(state, "name"), FIRST_ROW + row], 0
        )
        message[:, 2] = np.where(update, FIRST_STATUS + wanted, 0)
        return message

    def ground_truth(self, state: State) -> IntArray:
        """The update that the current ticket asks for."""
        message = np.zeros((len(state["closed"]), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = UPDATE
        message[:, 1] = FIRST_ROW + self._ticket(state, "row")
        message[:, 2] = FIRST_STATUS + self._ticket(state, "wanted")
        return message

    def apply(self, state: State, message: IntArray, draws: Draws) -> Outcome:
        """Carry out one statement."""
        tool = message[:, 0]
        self._select(state, np.flatnonzero(tool == SELECT), message[:, 1] - FIRST_NAME)
        self._update(
            state, np.flatnonzero(tool == UPDATE), message[:, 1] - FIRST_ROW, message[:, 2] - FIRST_STATUS
        )
        self._rollback(state, np.flatnonzero(tool == ROLLBACK))
        self._commit(state, np.flatnonzero(tool == COMMIT))
        cost = np.where(tool == SELECT, SELECT_COST, np.where(tool == UPDATE, UPDATE_COST, 0.0))
        state["spent"] += cost
        success = state["closed"] == self.depth
        ended = success | state["failed"]
        outcome = np.where(state["failed"], self._outcome(state), 0.0)
        components = np.stack([cost, outcome], axis=1)
        return Outcome(components, ended, self.score(state), success, np.ones_like(ended))

    def _select(self, state: State, rows: IntArray, name: IntArray) -> None:
        found = state["row_of_name"][rows, name[rows]]
        asked = name[rows] == self._ticket(state, "name")[rows]
        state["found"][rows] = np.where(asked, found, state["found"][rows])
        status = state["saved"][rows, found]
        state["found_status"][rows] = np.where(asked, status, state["found_status"][rows])
        state["aside"][rows] = np.where(asked, NOTHING, found)

    def _update(self, state: State, rows: IntArray, row: IntArray, status: IntArray) -> None:
        state["table"][rows, row[rows]] = status[rows]
        state["written"][rows] = row[rows]
        state["written_status"][rows] = status[rows]
        state["pending"][rows] += 1

    def _rollback(self, state: State, rows: IntArray) -> None:
        state["table"][rows] = state["saved"][rows]
        for column in ("written", "written_status"):
            state[column][rows] = NOTHING
        state["pending"][rows] = 0

    def _commit(self, state: State, rows: IntArray) -> None:
        gold = state["saved"][rows]
        gold[np.arange(len(rows)), self._ticket(state, "row")[rows]] = self._ticket(state, "wanted")[rows]
        right = np.all(gold == state["table"][rows], axis=1)
        state["failed"][rows] = ~right
        state["closed"][rows] += right
        state["saved"][rows] = np.where(right[:, None], gold, state["saved"][rows])
        for column in ("found", "found_status", "aside", "written", "written_status"):
            state[column][rows] = np.where(right, NOTHING, state[column][rows])
        state["pending"][rows] = np.where(right, 0, state["pending"][rows])

    def _outcome(self, state: State) -> FloatArray:
        return np.asarray(FAILURE * (self.depth - state["closed"]) / self.depth, dtype=np.float64)

    def timeout(self, state: State) -> Outcome:
        """Running out of turns fails the open tickets."""
        state["failed"][:] = True
        n = len(state["failed"])
        components = np.stack([np.zeros(n), self._outcome(state)], axis=1)
        true, false = np.ones(n, np.bool_), np.zeros(n, np.bool_)
        return Outcome(components, true, self.score(state), false, true)

    def score(self, state: State) -> FloatArray:
        """1 + value / 50; a rollout that ended here without an empty queue has failed."""
        value = state["spent"] + self._outcome(state)
        return np.clip(1.0 + value / SCORE_UNIT, 0.0, 1.0)

    def task(self, state: State) -> IntArray:
        """1 if a ticket is conditional."""
        return np.any(state["conditional"], axis=1).astype(np.int64)

    def state_columns(self, state: State) -> Sequence[npt.NDArray[np.integer]]:
        """Everything the agent has seen or changed."""
        table = state["table"] @ (N_STATUS ** np.arange(N_ROWS))
        return [
            state["closed"], state["found"], state["aside"], state["written"],
            state["written_status"], state["pending"], table,
        ]  # fmt: skip

    def describe(self, state: State, row: int) -> str:
        """Read the ticket and the last results."""
        if state["closed"][row] == self.depth:
            return "All tickets are closed."
        if state["failed"][row]:
            return "A ticket was left wrong."
        ticket = {
            column: int(self._ticket(state, column)[row])
            for column in ("name", "conditional", "condition", "first", "second")
        }
        text = f"Ticket {state['closed'][row] + 1} of {self.depth}: set {NAMES[ticket['name']]} to "
        text += STATUS[ticket["first"]]
        if ticket["conditional"]:
            text += f" if it is {STATUS[ticket['condition']]}, else to {STATUS[ticket['second']]}"
        text += "."
        if state["found"][row] != NOTHING:
            text += f" Selected: row-{state['found'][row]}, {STATUS[state['found_status'][row]]}."
        if state["aside"][row] != NOTHING:
            text += f" Also seen: another name, in row-{state['aside'][row]}."
        if state["written"][row] != NOTHING:
            text += f" Written: row-{state['written'][row]} is {STATUS[state['written_status'][row]]}"
            text += f" ({state['pending'][row]} pending)."
        return text
