"""Transcripts of rollouts: what was said, as chat-like text and as a picture."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Turn:
    """One message and what came of it.

    Attributes:
        message: what the agent wrote.
        answer: what the world shows then.
        failed: whether the tool failed.
        legal: whether the message was legal.
        components: names and amounts of the reward components of this turn that are not 0.
        reward: the reward delivered.
    """

    message: str
    answer: str
    failed: bool = False
    legal: bool = True
    components: tuple[tuple[str, float], ...] = ()
    reward: float = 0.0


@dataclass(frozen=True)
class Ending:
    """How a rollout ended.

    Attributes:
        score: its score.
        success: the task's verdict.
        note: what else there is to say, for example "out of turns".
    """

    score: float
    success: bool
    note: str = ""

    def verdict(self) -> str:
        """Return success or failure, with the note."""
        return ("success" if self.success else "failure") + (f", {self.note}" if self.note else "")


@dataclass
class Transcript:
    """One rollout so far.

    Attributes:
        environment: name of the environment.
        task: name of the task.
        prompt: what prompt it is, for example "train prompt 3".
        limit: the turn limit.
        opening: what the world showed first.
        turns: the turns so far.
        ending: how the rollout ended, or None.
    """

    environment: str = ""
    task: str = ""
    prompt: str = ""
    limit: int = 0
    opening: str = ""
    turns: list[Turn] = field(default_factory=list)
    ending: Ending | None = None

    def text(self) -> str:
        """Return the rollout as lines of a chat."""
        lines = [f"{self.environment}, task {self.task}, {self.prompt}, at most {counted(self.limit, 'turn')}"]
        lines += _said("world", self.opening)
        for number, turn in enumerate(self.turns, start=1):
            lines.append(f"turn {number} of {self.limit}")
            lines += _said("agent", turn.message + ("   (tool failed)" if turn.failed else ""))
            if turn.components:
                lines.append(f"       {written(turn.components)}")
            lines += _said("world", turn.answer)
            if turn.reward:
                lines.append(f"       reward {turn.reward:g}")
        if self.ending is not None:
            lines.append(f"end:   score {self.ending.score:.3g}, {self.ending.verdict()}")
        return "\n".join(lines) + "\n"

    def picture(self) -> npt.NDArray[np.uint8]:
        """Draw the current state as a card, RGB, (400, 640, 3)."""
        from agentic_gym.card import draw_card  # Needs Pillow, which only pictures need.

        return draw_card(self)

    def earned(self) -> dict[str, float]:
        """Return the reward components so far that are not 0."""
        total: dict[str, float] = {}
        for turn in self.turns:
            for name, amount in turn.components:
                total[name] = total.get(name, 0.0) + amount
        return total


def written(components: tuple[tuple[str, float], ...], digits: int = 6) -> str:
    """Write reward components with so many digits, for example ``cost -1, answer +1``."""
    return ", ".join(f"{name} {amount:+.{digits}g}" for name, amount in components)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, for example ``1 turn``, ``2 turns``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _said(speaker: str, text: str) -> list[str]:
    """Return one line, or more where the text has several, under the speaker's name."""
    first, *others = text.split("\n")
    return [f"{speaker}: {first}", *(f"       {line}" for line in others)]
