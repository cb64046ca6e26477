"""Chain: a sequence of cues, each to be answered with the right tool and option."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentic_gym import streams
from agentic_gym.family import (
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
from agentic_gym.knobs import Knobs, check_bool, check_integer

TOOLS = ("press", "turn")
DEVICES = ("button", "dial")
FIRST_TOOL = 2
FIRST_OPTION = FIRST_TOOL + len(TOOLS)


class Chain(Family):
    """A chain of cues: answer every cue with the right tool and the right option.

    ## Description
    The diagnostic environment: every knob acts on its own, and it is small enough for exact
    gradients. A prompt is a sequence of ``depth`` cues. A cue shows a device (button or dial), a
    symbol and a shift. The right message uses the device's tool (``press`` for a button, ``turn``
    for a dial) with the option ``symbol + shift`` modulo ``options``. The next cue is shown only
    after a message, right or wrong; whether it was right is not shown.

    ## Action Space
    ``press(option)`` or ``turn(option)``: 2 token slots, plus filler.

    ## Observation Space
    One-hot device (2), symbol and shift (``options`` each), position in the chain (1), then the
    engine's three features (share of turns used, tool failure, illegal message). After the last
    cue the observation keeps showing it.

    ## Starting State
    The first cue.

    ## Rewards
    Component ``correct``: with ``graded=False`` (default) 1 on the last turn if all messages were
    right, else 0; with ``graded=True`` ``1 / depth`` for each right message. ``illegal``: -0.05
    for each illegal message. The score is the sum of ``correct``.

    ## Episode End
    Termination after the last cue, or when the turns are used up. A tool failure or an illegal
    message uses a turn up but not the cue; ``max_turns`` (default ``depth``) leaves no turn for that.

    ## Arguments
    Common knobs, and:

    * ``options`` (default 20): number of options, 2 to 32.
    * ``graded`` (default False): partial credit.

    ``depth`` (default 4, 1 to 64): cues. ``difficulty`` (default 0.5): mean share of cues with a
    shift other than 0; each prompt has its own share. Tasks: ``copy`` (no shift in the whole
    prompt) and ``shift``.

    ## Known truth
    With the default ``max_turns``: best ``(1 - slip) ** depth``, worst 0, uniformly random legal
    messages ``((1 - slip) / (2 * options)) ** depth``. Graded: the same without the power.

    ## Version History
    * v0: initial version.
    """

    name = "Chain"
    components = ("correct",)
    limit_ends_task = True
    default_depth = 4
    depth_range = (1, 64)
    tasks = ("copy", "shift")
    value_range = (0.0, 1.0)
    illegal_penalty = -0.05

    def __init__(self, knobs: Knobs, options: int = 20, graded: bool = False) -> None:
        """See the class docstring."""
        self.options = check_integer("options", options, 2, 32)
        self.graded = check_bool("graded", graded)
        super().__init__(knobs)
        check_integer("max_turns", self.turn_limit, self.depth, 10_000)
        self._one_hot = OneHot(len(TOOLS), self.options, self.options)
        self.n_features = self._one_hot.width + 1

    def chance(self) -> float:
        """Devices and options are uniform and independent, whatever the message."""
        return float((0.5 / self.options) ** (1 if self.graded else self.depth))

    def closed_forms(self) -> dict[str, float]:
        """With one turn per cue, every message must be right and effective."""
        if self.turn_limit > self.depth:
            return {}
        effective, power = 1.0 - self.knobs.slip, 1 if self.graded else self.depth
        best, random = effective**power, (effective * 0.5 / self.options) ** power
        return {"best_score": best, "best_value": best, "random_score": random, "random_value": random}

    def default_max_turns(self) -> int:
        """One turn per cue."""
        return self.depth

    def tools(self) -> Sequence[Tool]:
        """Both tools take an option; their order fixes the token ids above."""
        options = tuple(f"option-{index}" for index in range(self.options))
        return [Tool(name, (options,)) for name in TOOLS]

    def start(self, key: streams.Keys) -> State:
        """Draw the cues."""
        draw = streams.uniform(key[:, None], np.arange(self.depth + 1))
        share = spread_difficulty(self.difficulty, draw[:, :1])
        (tool, symbol, shift), rest = streams.digits(draw[:, 1:], len(TOOLS), self.options, self.options - 1)
        shift = np.where(rest < share, shift + 1, 0)
        cue = np.empty((*shift.shape, 3), dtype=np.int8)
        cue[:, :, 0], cue[:, :, 1], cue[:, :, 2] = tool, symbol, shift
        answer = np.empty((*shift.shape, 2), dtype=np.int8)
        answer[:, :, 0] = FIRST_TOOL + tool
        answer[:, :, 1] = FIRST_OPTION + (symbol + shift) % self.options
        return {
            "cue": cue,
            "answer": answer,
            "position": np.zeros(len(key), dtype=np.int64),
            "right": np.zeros(len(key), dtype=np.int64),
        }

    def _at(self, state: State, rows: IntArray) -> IntArray:
        return np.minimum(state["position"][rows], self.depth - 1)

    def observe(self, state: State, rows: IntArray) -> Features:
        """Show the current cue and the position."""
        features = self._one_hot(state["cue"][rows, self._at(state, rows)], spare=1)
        features[:, -1] = state["position"][rows] / self.depth
        return features

    def _message(self, answer: IntArray) -> IntArray:
        message = np.zeros((len(answer), self.grammar.n_slots), dtype=np.int64)
        message[:, :2] = answer
        return message

    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Answer the current cue."""
        return self._message(state["answer"][rows, self._at(state, rows)])

    def ground_truth(self, state: State, rows: IntArray) -> IntArray:
        """The answer to the last cue."""
        return self._message(state["answer"][rows, -1])

    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Note whether the message was right and move to the next cue."""
        position = state["position"][rows]
        correct = (message[:, :2] == state["answer"][rows, position]).all(axis=1)
        right = state["right"][rows] + correct
        state["right"][rows] = right
        state["position"][rows] = position + 1
        value = correct / self.depth if self.graded else (right == self.depth).astype(np.float64)
        return Outcome(value[:, None], position + 1 == self.depth)

    def score(self, state: State, rows: IntArray) -> FloatArray:
        """Share of right messages if graded, else whether all were right."""
        right = state["right"][rows]
        return right / self.depth if self.graded else (right == self.depth).astype(np.float64)

    def success(self, state: State, rows: IntArray) -> BoolArray:
        """All messages were right."""
        return np.asarray(state["right"][rows] == self.depth)

    def task(self, state: State, rows: IntArray) -> IntArray:
        """0 if no cue of the prompt is shifted."""
        return state["cue"][rows, :, 2].any(axis=1).astype(np.int64)

    def state_key(self, state: State, rows: IntArray) -> IntArray:
        """The position: what the agent sees does not depend on its messages."""
        return np.asarray(state["position"][rows])

    def describe(self, state: State, row: int) -> str:
        """Read the cue aloud."""
        position = int(state["position"][row])
        if position == self.depth:
            return "The chain is complete."
        tool, symbol, shift = state["cue"][row, position].tolist()
        return f"Cue {position + 1} of {self.depth}: a {DEVICES[tool]}, symbol {symbol}, shift {shift}."
