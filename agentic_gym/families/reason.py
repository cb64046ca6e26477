"""Reason: one question, one answer, which is right or wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
    spread_difficulty,
)
from agentic_gym.grammar import Tool
from agentic_gym.knobs import Knobs, check_integer

KINDS = ("add", "compare", "branch")
ADD, COMPARE, BRANCH = range(len(KINDS))
ANSWER, DECLINE = 2, 3
FIRST_NUMBER = 4
N_NUMBERS = 10

# Columns of the state "question"; two for each step follow.
START, KIND, STEPS = range(3)


class Reason(Family):
    """A verifiable question: follow a short list of steps in the head and answer, in one turn.

    ## Description
    Mirrors reinforcement learning on questions with a checkable answer (mathematics, logic, the
    output of a program). A question shows a start, one of 10 numbers, and a list of 0 to ``depth``
    steps; each changes the number, always modulo 10. All steps of a question are of one kind:

    * ``add``: add ``a``.
    * ``compare``: add the larger of ``a`` and ``b``.
    * ``branch``: add ``a`` if the number is even, else ``b``.

    ``answer(number)`` gives the number after the last step, ``decline()`` gives up; both end the
    rollout. Nothing is looked up and nothing happens in between: all that a prompt's rollouts show
    is how often one message is right. A question without steps is trivial, one step must be learned
    like a table, and many are practically hopeless for a small network.

    ## Action Space
    ``answer(number)``, ``decline()``: 2 token slots, plus filler.

    ## Observation Space
    One-hot: the start (10), the kind (3, empty without steps), then for each of ``depth`` steps
    ``a`` and ``b`` (``reach + 1`` each, from 0; both empty after the last step, ``b`` empty for
    ``add``); then the engine's three features (share of turns used, tool failure, illegal message).

    ## Starting State
    The question. Start and kind are uniform. What a step adds is uniform over 1 to ``reach``; the
    number shown beside it is uniform over the smaller ones (from 0, in either order) for
    ``compare``, and over the others from 1 for ``branch`` (with ``reach=1`` again 1).

    ## Rewards
    Component ``answer``: 1 for a right answer, 0 for a wrong one, for declining and for turns that
    are used up. ``illegal``: -0.05 for each illegal message (with at most 20 turns no failed rollout
    earns as much as a right one). The score is the component.

    ## Episode End
    Termination by ``answer`` or ``decline``, or when the turns are used up. ``max_turns`` (default
    1) is the task's own limit: a tool failure or an illegal message uses a turn up, so that more
    turns are further attempts after those only.

    ## Arguments
    Common knobs, and:

    * ``reach`` (default 2): the largest number that a step adds, 1 to 9. A small reach leaves fewer
      cases to learn, and an end that is easier to guess from the start.

    ``depth`` (default 3, 1 to 8): longest list. ``difficulty`` (default 0.25): mean share of these
    steps that a question has; each prompt has its own share, and its number of steps is binomial.
    At 0 every question is trivial, at 1 all have ``depth`` steps. Tasks: ``copy`` (no steps),
    ``add``, ``compare`` and ``branch``. With few prompts (``num_prompts``) the answers of the train
    split can be learned by heart, which does not help on the test split.

    ## Known truth
    Best ``1 - slip ** max_turns``, uniformly random legal messages 1/20 of that, worst 0. Answers
    are uniform, also given the kind and what is added, because the start is: every constant answer
    is right with probability 1/10. To answer with the start is right where the steps add up to a
    multiple of 10: as long as ``depth * reach < 10`` only without steps, at the default in 0.469 of
    the questions.

    ## References
    Rewards by a checked answer: DeepSeekMath (2402.03300); prompts that are always or never solved:
    DAPO (2503.14476).

    ## Version History
    * v0: initial version.
    """

    name = "Reason"
    components = ("answer",)
    limit_ends_task = True
    default_depth = 3
    depth_range = (1, 8)
    default_difficulty = 0.25
    tasks = ("copy", *KINDS)
    value_range = (0.0, 1.0)
    illegal_penalty = -0.05

    def __init__(self, knobs: Knobs, reach: int = 2) -> None:
        """See the class docstring."""
        self.reach = check_integer("reach", reach, 1, N_NUMBERS - 1)
        super().__init__(knobs)
        self._one_hot = OneHot(N_NUMBERS, len(KINDS), *[self.reach + 1] * (2 * self.depth))
        self.n_features = self._one_hot.width

    def chance(self) -> float:
        """Answers are uniform."""
        return 1.0 / N_NUMBERS

    def closed_forms(self) -> dict[str, float]:
        """The first message that takes effect decides; half of the random ones answer."""
        best = 1.0 - self.knobs.slip**self.turn_limit
        random = best * 0.5 / N_NUMBERS
        return {"best_score": best, "best_value": best, "random_score": random, "random_value": random}

    def default_max_turns(self) -> int:
        """One answer."""
        return 1

    def tools(self) -> Sequence[Tool]:
        """The two tools; their order and slots fix the token ids above."""
        return [Tool("answer", (tuple(f"number-{number}" for number in range(N_NUMBERS)),)), Tool("decline")]

    def start(self, key: streams.Keys) -> State:
        """Draw the question."""
        # Steps come first while working: NumPy is fast along the last axis, and there are many rows.
        depth, reach = self.depth, self.reach
        draw = streams.uniform(key, np.arange(depth + 1)[:, None])
        (start, kind), rest = streams.digits(draw[0], N_NUMBERS, len(KINDS))
        share = spread_difficulty(self.difficulty, rest)
        # What is added is drawn first and the rest of the step around it, so that it is uniform in every kind.
        (less, distance, swapped), rest = streams.digits(draw[1:], reach, max(reach - 1, 1), 2)
        scaled = rest * (less + 1)
        smaller = scaled.astype(np.int8)
        length = (scaled - smaller < share).sum(axis=0)
        used = np.arange(depth)[:, None] < length
        added = (less + 1).astype(np.int8)
        after = (start + (added * used).cumsum(axis=0)) % N_NUMBERS
        odd = (after - added) & 1
        adds, branches = kind == ADD, kind == BRANCH
        other = np.where(branches, (added + distance) % reach + 1, smaller)
        second = np.where(branches, odd, swapped & ~adds) == 1
        question = np.full((STEPS + 2 * depth, len(key)), NOTHING, dtype=np.int8)
        question[START] = start
        question[KIND] = np.where(length > 0, kind, NOTHING)
        question[STEPS::2] = np.where(used, np.where(second, other, added), NOTHING)
        question[STEPS + 1 :: 2] = np.where(used & ~adds, np.where(second, added, other), NOTHING)
        return {
            "question": np.ascontiguousarray(question.T),
            "solution": after[-1].astype(np.int8),
            "given": np.full(len(key), NOTHING, dtype=np.int8),
        }

    def observe(self, state: State, rows: IntArray) -> Features:
        """Show the question."""
        return self._one_hot(state["question"].take(rows, axis=0))

    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Answer: the question shows all that the answer depends on."""
        return self.ground_truth(state, rows)

    def ground_truth(self, state: State, rows: IntArray) -> IntArray:
        """The right answer."""
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = ANSWER
        message[:, 1] = FIRST_NUMBER + state["solution"][rows]
        return message

    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Note what was answered; whatever it is, it is final."""
        # Declining is kept as one number more than there are.
        given = np.where(message[:, 0] == ANSWER, message[:, 1] - FIRST_NUMBER, N_NUMBERS)
        state["given"][rows] = given
        right = given == state["solution"][rows]
        return Outcome(right.astype(np.float64)[:, None], np.ones(len(rows), dtype=np.bool_))

    def score(self, state: State, rows: IntArray) -> FloatArray:
        """1 for a right answer."""
        return self.success(state, rows).astype(np.float64)

    def success(self, state: State, rows: IntArray) -> BoolArray:
        """The answer was right."""
        return np.asarray(state["given"][rows] == state["solution"][rows])

    def task(self, state: State, rows: IntArray) -> IntArray:
        """0 for a question without steps, else the kind."""
        return state["question"][rows, KIND].astype(np.int64) - NOTHING

    def state_key(self, state: State, rows: IntArray) -> IntArray:
        """What was answered."""
        return state["given"][rows].astype(np.int64) - NOTHING

    def describe(self, state: State, row: int) -> str:
        """Ask the question, or say what became of it."""
        given = int(state["given"][row])
        if given == N_NUMBERS:
            return "The question was declined."
        if given != NOTHING:
            return f"The answer {given} was {'right' if given == state['solution'][row] else 'wrong'}."
        start, kind, *numbers = state["question"][row].tolist()
        steps = [step for step in zip(numbers[::2], numbers[1::2], strict=True) if step[0] != NOTHING]
        wording = ("Add {}.", "Add the larger of {} and {}.", "If it is even add {}, else {}.")
        text = " ".join([f"Start with {start}.", *(wording[kind].format(*step) for step in steps)])
        return f"{text} What is it now, modulo {N_NUMBERS}?"
