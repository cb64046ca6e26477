"""Chain: a sequence of cues, each to be answered with the right tool and argument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.family import BoolArray, Draws, Family, FloatArray, IntArray, Outcome, State, encode
from agentic_gym.grammar import Tool
from agentic_gym.knobs import Knobs, check_bool, check_integer

TOOLS = ("press", "turn")


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
    engine's three features (turn, tool failure, illegal message).

    ## Starting State
    The first cue.

    ## Rewards
    Component ``correct``: with ``graded=False`` (default) 1 on the last turn if all messages were
    right, else 0; with ``graded=True`` ``1 / depth`` for each right message. ``illegal``: -0.05
    for each illegal message. The score is the sum of ``correct``.

    ## Episode End
    Termination after ``depth`` turns (``max_turns`` is the same number; a tool failure or an
    illegal message uses a turn up, so that the chain cannot be completed).

    ## Arguments
    Common knobs, and:

    * ``options`` (default 4): number of options, 2 to 16.
    * ``graded`` (default False): partial credit.

    ``difficulty`` (default 0.5) is the mean share of cues with a shift other than 0; each prompt
    has its own share. Tasks: ``copy`` (no shift in the whole prompt) and ``shift``.

    ## Known truth
    Best ``(1 - slip) ** depth``, worst 0, uniformly random legal messages
    ``((1 - slip) / (2 * options)) ** depth``; graded: the mean over positions instead of the product.

    ## Version History
    * v0: initial version.
    """

    name = "Chain"
    components = ("correct",)
    limit_ends_task = True
    default_depth = 4
    depth_range = (1, 64)
    tasks = ("copy", "shift")
    constants = ("tool", "symbol", "shift")
    value_range = (0.0, 1.0)
    illegal_penalty = -0.05

    def __init__(self, knobs: Knobs, options: int = 4, graded: bool = False) -> None:
        """See the class docstring."""
        self.options = check_integer("options", options, 2, 16)
        self.graded = check_bool("graded", graded)
        super().__init__(knobs)
        if self.turn_limit < self.depth:
            raise ValueError(
                f"max_turns={self.turn_limit!r} is not allowed: Chain needs at least depth={self.depth} turns."
            )
        self.n_features = 2 + 2 * self.options + 1

    def default_max_turns(self) -> int:
        """One turn per cue."""
        return self.depth

    def tools(self) -> Sequence[Tool]:
        """Both tools take an option."""
        options = tuple(f"option-{index}" for index in range(self.options))
        return [Tool(name, (options,)) for name in TOOLS]

    def start(self, key: streams.Keys) -> State:
        """Draw the cues; a prompt's share of shifted cues lies around the difficulty."""
        n, position = len(key), np.arange(self.depth)
        share = np.clip(self.difficulty + 0.5 * (streams.uniform(key, 0) - 0.5), 0.0, 1.0)
        share = np.where(self.difficulty in (0.0, 1.0), self.difficulty, share)
        columns = key[:, None]
        shifted = streams.uniform(columns, 1, position) < share[:, None]
        shift = 1 + streams.integers(self.options - 1, columns, 2, position)
        return {
            "tool": streams.integers(2, columns, 3, position).astype(np.int8),
            "symbol": streams.integers(self.options, columns, 4, position).astype(np.int8),
            "shift": np.where(shifted, shift, 0).astype(np.int8),
            "position": np.zeros(n, dtype=np.int64),
            "right": np.zeros(n, dtype=np.int64),
        }

    def _cue(self, state: State) -> tuple[IntArray, IntArray, IntArray]:
        rows = np.arange(len(state["position"]))
        # After the last cue the observation keeps showing it.
        at = np.minimum(state["position"], self.depth - 1)
        return state["tool"][rows, at], state["symbol"][rows, at], state["shift"][rows, at]

    def observe(self, state: State) -> npt.NDArray[np.float32]:
        """Show the current cue and the position."""
        tool, symbol, shift = self._cue(state)
        cue = encode((tool, 2), (symbol, self.options), (shift, self.options))
        position = (state["position"] / self.depth).astype(np.float32)
        return np.concatenate([cue, position[:, None]], axis=1)

    def _message(self, tool: IntArray, option: IntArray) -> IntArray:
        message = np.zeros((len(tool), self.grammar.n_slots), dtype=np.int64)
        # Tokens: end, filler, press, turn, then the options.
        message[:, 0] = 2 + tool
        message[:, 1] = 4 + option
        return message

    def expert(self, state: State) -> IntArray:
        """Answer the current cue."""
        tool, symbol, shift = self._cue(state)
        return self._message(tool, (symbol + shift) % self.options)

    def ground_truth(self, state: State) -> IntArray:
        """The answer to the last cue."""
        option = (state["symbol"][:, -1] + state["shift"][:, -1]) % self.options
        return self._message(state["tool"][:, -1], option)

    def apply(self, state: State, message: IntArray, draws: Draws) -> Outcome:
        """Note whether the message was right and move to the next cue."""
        correct: BoolArray = np.all(message[:, :2] == self.expert(state)[:, :2], axis=1)
        state["right"] += correct
        state["position"] += 1
        ended = state["position"] >= self.depth
        success = ended & (state["right"] == self.depth)
        value = correct / self.depth if self.graded else success.astype(np.float64)
        return Outcome(value[:, None], ended, self.score(state), success, np.ones_like(ended))

    def score(self, state: State) -> FloatArray:
        """Share of right messages if graded, else whether all were right."""
        share = state["right"] / self.depth
        return share if self.graded else np.floor(share)

    def task(self, state: State) -> IntArray:
        """0 if no cue of the prompt is shifted."""
        return np.any(state["shift"] != 0, axis=1).astype(np.int64)

    def state_columns(self, state: State) -> Sequence[npt.NDArray[np.integer]]:
        """The position: what the agent sees of the past does not depend on its messages."""
        return [state["position"]]

    def describe(self, state: State, row: int) -> str:
        """Read the cue aloud."""
        if state["position"][row] >= self.depth:
            return "The chain is complete."
        tool, symbol, shift = (int(values[row]) for values in self._cue(state))
        device = ("button", "dial")[tool]
        return (
            f"Cue {state['position'][row] + 1} of {self.depth}: a {device}, symbol {symbol}, shift {shift}."
        )
