"""Repair: find the faults of a program and fix them, where passing tests prove little."""

from __future__ import annotations

import itertools
import math
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
from agentic_gym.knobs import Knobs, check_integer, check_number

SITES = ("loader", "parser", "index", "cache", "router", "writer")
STATEMENTS = (
    "add", "call", "copy", "drop", "sort", "swap", "trim", "wrap", "bind", "cast", "chop", "clip",
    "fold", "hash", "join", "link", "load", "lock", "mask", "move", "pack", "pair", "pop", "push",
    "seek", "send", "skip", "slice", "split", "sum", "tag", "zip",
)  # fmt: skip
KINDS = ("typo", "logic", "interface")
N_SITES = len(SITES)
READ, INSPECT, EDIT, COMPILE, TEST, SUBMIT = range(2, 8)
FIRST_SITE = 8
FIRST_STATEMENT = FIRST_SITE + N_SITES
BROKEN_SHARE = 0.25

# Kinds of fault.
TYPO, LOGIC, INTERFACE = range(3)
# What a statement is worth at its site, from best to worst, and the states of the "outcome": the
# worst statement at submission, or running out of turns.
RIGHT, MISSED, FAILING, BROKEN, NEVER = range(5)
REWARD = np.array([1.0, 0.0, -0.75, -1.0, -1.0])
# Columns of the state "site": the two plausible statements, what stands there, what is known of it.
FIRST, SECOND, STANDING, STATUS = range(4)
EDITED, MEETS, VIOLATES = range(3)
# Columns of the state "report", and the values of its first one: the last compile or test, if the
# program is still the same.
RESULT, NAMED, ALSO_NAMED = range(3)
BUILT, UNBUILT, PASSED, FAILED, DOWN = range(5)


class Repair(Family):
    """Repair a program with compiler, tests and specification; the tests may miss a wrong fix.

    ## Description
    Mirrors code-repair agents. A program has 6 sites, each holding one of 32 statements, of which
    one is right. ``depth`` sites hold a wrong one, all faults of the same kind. ``read(site)``
    opens a site: it shows the statement that stands there and two plausible ones, of which one is
    the right one; a statement that is neither is suspicious, as all faults are at first.
    ``inspect(site)`` compares with the specification: the site meets or violates it.
    ``edit(site, statement)`` writes. ``compile()`` says whether the program builds, and if not,
    names the first site that does not. ``test()`` needs a program that builds; it passes, or fails
    and names the first failing site. A wrong statement, if written, does not build with
    probability 0.25; else the tests miss it with a probability of the prompt's own: a pass is then
    false. They never miss a fault that has stood there from the start. ``submit()`` ends the rollout.

    Faults of kind ``typo`` do not build. Those of kind ``logic`` build and fail the tests; those
    of kind ``interface`` too, but there the tests name two neighbours (the failing site and the
    next one, the last one's being the first), in an order fixed by the prompt.

    ## Action Space
    ``read(site)``, ``inspect(site)``, ``edit(site, statement)``, ``compile()``, ``test()``,
    ``submit()``: 3 token slots, plus filler. Editing a site to what stands there does nothing.

    ## Observation Space
    One-hot. The issue: kind (3) and the half of the program with the first fault (2). The site read
    last (6), its two plausible statements and the one that stands there (``statements`` each). The
    report on the program as it is: built, not built, passed, failed, infrastructure down (5); the site
    named (6) and the other one (6). The status of each site (6 times 3: edited since the last
    inspection, meets, violates; empty if neither edited nor inspected). Then the engine's three
    features (share of turns used, tool failure, illegal message).

    ## Starting State
    The issue only.

    ## Rewards
    Component ``submit``: 1 if all statements are right when submitted; else 0 if the program builds
    and passes the tests, -0.75 if it builds and fails, -1 if it does not build. -1 if the turns run
    out. ``illegal``: -0.02 for each illegal message. The score is ``submit``, at least 0.

    ## Episode End
    Termination by ``submit``; truncation after ``max_turns`` (default ``7 * depth + 4``), or when
    the infrastructure fails: each ``compile`` and ``test`` has this fate with probability
    ``failure``. Such a rollout earns nothing for the task and has ``info["reward_valid"]`` False.

    ## Arguments
    Common knobs, and:

    * ``failure`` (default 0.02): probability of an infrastructure failure, 0 to 0.5.
    * ``statements`` (default 32, 4 to 32): how many there are.

    ``depth`` (default 2, 1 to 3): faults. ``difficulty`` (default 0.5): mean probability that the
    tests miss a wrong statement that builds; each prompt has its own. Tasks: the kind of the faults
    (``typo``, ``logic``, ``interface``), equally frequent.

    ## Known truth
    Of valid rollouts: best 1 (every fault takes 7 turns at most: locate, read two sites, two edits
    with an inspection each), worst -1. Submitting at once earns -1 for a typo, else -0.75. A policy
    that ignores the observation writes the same whatever the faults are: it is right with
    probability ``1 / (C(6, depth) * statements ** depth)`` at most, as fault sites and right statements are
    uniform and further edits would have to hit the right statement as well. A policy that reads and
    edits, but trusts a pass instead of inspecting, has success ``1 - 0.375 * difficulty`` at depth 1.

    ## References
    SWE-bench and its verified and test-augmented successors: issue, edits, incomplete tests.

    ## Version History
    * v0: initial version.
    """

    name = "Repair"
    components = ("submit",)
    default_depth = 2
    depth_range = (1, 3)
    tasks = KINDS
    value_range = (-1.0, 1.0)
    illegal_penalty = -0.02

    def __init__(self, knobs: Knobs, failure: float = 0.02, statements: int = 32) -> None:
        """See the class docstring."""
        self.failure = check_number("failure", failure, 0.0, 0.5)
        self.statements = check_integer("statements", statements, 4, len(STATEMENTS))
        super().__init__(knobs)
        hand = (N_SITES, *[self.statements] * 3)
        report = (5, N_SITES, N_SITES)
        self._one_hot = OneHot(len(KINDS), 2, *hand, *report, *[3] * N_SITES)
        self.n_features = self._one_hot.width
        self._fault_sets = np.array(list(itertools.combinations(range(N_SITES), self.depth)), dtype=np.int8)
        # Every field but the standing statement can be empty.
        sizes = [*[self.statements] * N_SITES, *[4] * N_SITES, N_SITES + 1, *(size + 1 for size in report)]
        self._place_values = np.cumprod([1, *sizes])

    def chance(self) -> float:
        """Fault sites and right statements are uniform; to edit more sites than faults only adds conditions."""
        return 1.0 / (math.comb(N_SITES, self.depth) * self.statements**self.depth)

    def closed_forms(self) -> dict[str, float]:
        """Without tool failures the expert fixes every fault in time, unless the infrastructure fails."""
        if self.knobs.slip or self.turn_limit < 7 * self.depth + 2:
            return {}
        return {"best_score": 1.0, "best_value": 1.0}

    def default_max_turns(self) -> int:
        """Seven turns a fault, a last check, a submission, and two for mistakes."""
        return 7 * self.depth + 4

    def tools(self) -> Sequence[Tool]:
        """The six tools; their order and slots fix the token ids above."""
        statements = STATEMENTS[: self.statements]
        about = [Tool("read", (SITES,)), Tool("inspect", (SITES,)), Tool("edit", (SITES, statements))]
        return [*about, *(Tool(name) for name in ("compile", "test", "submit"))]

    def start(self, key: streams.Keys) -> State:
        """Draw the faults, the plausible statements and what every statement would be worth."""
        n, statements = len(key), self.statements
        draw = streams.uniform(key[:, None], np.arange(2 + N_SITES * (1 + statements)))
        (kind,), rest = streams.digits(draw[:, 0], len(KINDS))
        share = spread_difficulty(self.difficulty, rest)[:, None, None]
        faults = self._fault_sets[(draw[:, 1] * len(self._fault_sets)).astype(np.int64)]
        faulty = (faults[:, :, None] == np.arange(N_SITES)).any(axis=1)
        sizes = (statements, statements - 1, statements - 2, 2, 2)
        (gold, step, further, swapped, turned), _ = streams.digits(draw[:, 2 : 2 + N_SITES], *sizes)
        decoy = (gold + 1 + step) % statements
        # A fault is neither of the plausible statements.
        fault = (gold + 1 + (step + 1 + further) % (statements - 1)) % statements
        site = np.full((n, N_SITES, 4), NOTHING, dtype=np.int8)
        site[:, :, FIRST] = np.where(swapped == 1, decoy, gold)
        site[:, :, SECOND] = np.where(swapped == 1, gold, decoy)
        site[:, :, STANDING] = np.where(faulty, fault, gold)
        chance = draw[:, 2 + N_SITES :].reshape(n, N_SITES, statements)
        builds = np.where(chance < BROKEN_SHARE + (1.0 - BROKEN_SHARE) * share, MISSED, FAILING)
        quality = np.where(chance < BROKEN_SHARE, BROKEN, builds).astype(np.int8)
        initial = np.where(kind == TYPO, BROKEN, FAILING).astype(np.int8)[:, None, None]
        # Where there is no fault, the right statement stands, which is written last.
        np.put_along_axis(quality, site[:, :, STANDING, None].astype(np.int64), initial, axis=2)
        np.put_along_axis(quality, gold[:, :, None], np.int8(RIGHT), axis=2)
        here = np.broadcast_to(np.arange(N_SITES), (n, N_SITES))
        beside = (here + 1) % N_SITES
        two, turned = (kind == INTERFACE)[:, None], turned == 1
        blamed = np.empty((n, N_SITES, 2), dtype=np.int8)
        blamed[:, :, 0] = np.where(two & turned, beside, here)
        blamed[:, :, 1] = np.where(two, np.where(turned, here, beside), NOTHING)
        at = faults[:, 0].astype(np.int64)
        return {
            "issue": np.array([kind, at >= N_SITES // 2], dtype=np.int8).T.copy(),
            "quality": quality,
            "blamed": blamed,
            "solution": np.array([at, gold[np.arange(n), at]]).T.copy(),
            "site": site,
            "hand": np.full(n, NOTHING, dtype=np.int8),
            "report": np.full((n, 3), NOTHING, dtype=np.int8),
            "outcome": np.full(n, NOTHING, dtype=np.int8),
        }

    def _in_hand(self, state: State, rows: IntArray) -> npt.NDArray[np.int8]:
        """Return (n, 5): the site read last and its columns of "site"."""
        hand = state["hand"][rows]
        columns = pick(state["site"], rows, np.maximum(hand, 0))
        columns[hand == NOTHING] = NOTHING
        return np.column_stack([hand, columns])

    def observe(self, state: State, rows: IntArray) -> Features:
        """Show the issue, the site in hand, the last report and what is known of each site."""
        status = state["site"].take(rows, axis=0)[:, :, STATUS]
        report = state["report"].take(rows, axis=0)
        return self._one_hot(state["issue"].take(rows, axis=0), self._in_hand(state, rows)[:, :-1], report, status)

    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Settle by inspection whatever was edited; then fix what a check names; then submit."""
        hand, first, second, standing, known = self._in_hand(state, rows).T.astype(np.int64)
        status = state["site"].take(rows, axis=0)[:, :, STATUS]
        open_sites = (status == EDITED) | (status == VIOLATES)
        in_hand = (known == EDITED) | (known == VIOLATES)
        unsettled = np.where(in_hand, hand, open_sites.argmax(axis=1))
        result, named, also = state["report"].take(rows, axis=0).T.astype(np.int64)
        typo = state["issue"][rows, 0] == TYPO
        suspicious = (standing != first) & (standing != second)
        write = suspicious | (known == VIOLATES)
        waiting = open_sites.any(axis=1)
        doubtful = status[np.arange(len(rows)), unsettled] == EDITED
        clean = (result == PASSED) | typo & (result == BUILT)
        cases = [write, waiting & doubtful, waiting | (named != NOTHING), clean, typo]
        tool = np.select(cases, [EDIT, INSPECT, READ, SUBMIT, COMPILE], TEST)
        # Of two named sites the second is read once the first turns out to be sound.
        fresh = np.where((hand == named) & (also != NOTHING), also, named)
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = tool
        about = np.where(write, hand, np.where(waiting, unsettled, fresh))
        message[:, 1] = np.where(tool < COMPILE, FIRST_SITE + about, 0)
        message[:, 2] = np.where(write, FIRST_STATEMENT + np.where(standing == first, second, first), 0)
        return message

    def ground_truth(self, state: State, rows: IntArray) -> IntArray:
        """The edit that fixes the first fault."""
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = EDIT
        message[:, 1:3] = state["solution"].take(rows, axis=0) + np.array([FIRST_SITE, FIRST_STATEMENT])
        return message

    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Carry out one tool call."""
        tool = message[:, 0]
        calls = {READ: self._read, INSPECT: self._inspect, EDIT: self._edit}
        for token, carry_out in calls.items():
            chosen = indices(tool == token)
            if len(chosen):
                carry_out(state, rows[chosen], message[chosen])
        aborted, submitted = np.zeros(len(rows), dtype=np.bool_), tool == SUBMIT
        checks, submissions = indices((tool == COMPILE) | (tool == TEST)), indices(submitted)
        if len(checks):
            aborted[checks] = down = draws.at(checks).uniform(0) < self.failure
            self._check(state, rows[checks], tool[checks] == TEST, down)
        reward = np.zeros((len(rows), 1))
        if len(submissions):
            outcome = self._quality(state, rows[submissions]).max(axis=1)
            state["outcome"][rows[submissions]] = outcome
            reward[submissions, 0] = REWARD[outcome]
        return Outcome(reward, submitted, aborted)

    def _quality(self, state: State, rows: IntArray) -> npt.NDArray[np.int8]:
        """Return what the standing statement of each site is worth."""
        standing = state["site"].take(rows, axis=0)[:, :, STANDING]
        places = (rows[:, None] * N_SITES + np.arange(N_SITES)) * self.statements + standing
        return state["quality"].reshape(-1).take(places)

    def _read(self, state: State, rows: IntArray, message: IntArray) -> None:
        state["hand"][rows] = message[:, 1] - FIRST_SITE

    def _inspect(self, state: State, rows: IntArray, message: IntArray) -> None:
        at = message[:, 1] - FIRST_SITE
        right = state["quality"][rows, at, state["site"][rows, at, STANDING]] == RIGHT
        state["site"][rows, at, STATUS] = np.where(right, MEETS, VIOLATES)

    def _edit(self, state: State, rows: IntArray, message: IntArray) -> None:
        at, statement = message[:, 1] - FIRST_SITE, message[:, 2] - FIRST_STATEMENT
        changed = indices(state["site"][rows, at, STANDING] != statement)
        rows, at = rows[changed], at[changed]
        state["site"][rows, at, STANDING] = statement[changed]
        state["site"][rows, at, STATUS] = EDITED
        state["report"][rows] = NOTHING

    def _check(self, state: State, rows: IntArray, tested: BoolArray, down: BoolArray) -> None:
        quality = self._quality(state, rows)
        worst = quality.max(axis=1)
        result = np.where(tested, np.where(worst == FAILING, FAILED, PASSED), BUILT)
        result = np.where(down, DOWN, np.where(worst == BROKEN, UNBUILT, result))
        # Only the compiler says where a program does not build.
        named = (result == FAILED) | (result == UNBUILT) & ~tested
        culprit = (quality == worst[:, None]).argmax(axis=1)
        blamed = pick(state["blamed"], rows, culprit)
        report = np.full((len(rows), 3), NOTHING, dtype=np.int8)
        report[:, RESULT] = result
        report[:, NAMED] = np.where(named, np.where(result == FAILED, blamed[:, 0], culprit), NOTHING)
        report[:, ALSO_NAMED] = np.where(result == FAILED, blamed[:, 1], NOTHING)
        state["report"][rows] = report

    def timeout(self, state: State, rows: IntArray) -> FloatArray:
        """Never submitting is as bad as submitting what does not build."""
        state["outcome"][rows] = NEVER
        return np.full((len(rows), 1), REWARD[NEVER])

    def score(self, state: State, rows: IntArray) -> FloatArray:
        """1 for a right program."""
        return self.success(state, rows).astype(np.float64)

    def success(self, state: State, rows: IntArray) -> BoolArray:
        """A program without a fault was submitted."""
        return np.asarray(state["outcome"][rows] == RIGHT)

    def valid(self, state: State, rows: IntArray) -> BoolArray:
        """False once the infrastructure has failed."""
        return np.asarray(state["report"][rows, RESULT] != DOWN)

    def task(self, state: State, rows: IntArray) -> IntArray:
        """The kind of the faults."""
        return state["issue"][rows, 0].astype(np.int64)

    def state_key(self, state: State, rows: IntArray) -> IntArray:
        """The program, what is known of it, and the outcome, as one number."""
        site = state["site"].take(rows, axis=0)
        known = np.column_stack([site[:, :, STATUS], state["hand"][rows], state["report"].take(rows, axis=0)])
        places = self._place_values
        key = site[:, :, STANDING] @ places[:N_SITES] + (known - NOTHING) @ places[N_SITES:-1]
        return key + (state["outcome"][rows] - np.int64(NOTHING)) * places[-1]

    def describe(self, state: State, row: int) -> str:
        """Read the issue, the site in hand, what is known of the sites, and the last report."""
        result, named, also = state["report"][row].tolist()
        if result == DOWN:
            return "The infrastructure is down."
        outcome = int(state["outcome"][row])
        if outcome != NOTHING:
            verdict = ("is right", "passes the tests but is wrong", "fails the tests", "does not build")
            return "Nothing was submitted." if outcome == NEVER else f"The submitted program {verdict[outcome]}."
        kind, half = state["issue"][row].tolist()
        text = f"Issue: {KINDS[kind]}, first fault in the {('first', 'second')[half]} half of the program."
        hand = int(state["hand"][row])
        if hand != NOTHING:
            first, second, standing = (STATEMENTS[index] for index in state["site"][row, hand, :STATUS])
            text += f" At {SITES[hand]} stands {standing}, plausible are {first} and {second}."
        status = state["site"][row, :, STATUS].tolist()
        words = ("edited", "meets", "violates")
        notes = [f"{name} {words[s]}" for name, s in zip(SITES, status, strict=True) if s != NOTHING]
        text += f" Sites: {', '.join(notes)}." if notes else ""
        if result != NOTHING:
            text += f" Last check: {('built', 'not built', 'passed', 'failed')[result]}"
            text += "".join(f", {SITES[index]}" for index in (named, also) if index != NOTHING) + "."
        return text
