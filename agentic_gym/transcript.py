"""Transcripts of rollouts: chat-style text, and a card with the same text as a picture."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT = 640, 400
LINE_HEIGHT = 20
CHARACTERS = 68


@dataclass
class Transcript:
    """The lines of one rollout so far."""

    lines: list[str] = field(default_factory=list)

    def begin(self, observation: str) -> None:
        """Start over with the first observation."""
        self.lines = [f"world: {observation}"]

    def turn(self, message: str, failed: bool, answer: str, reward: float, score: float | None) -> None:
        """Add the agent's message and the world's answer; a score closes the rollout."""
        self.lines.append(f"agent: {message}" + ("   (tool failed)" if failed else ""))
        self.lines.append(f"world: {answer}")
        if reward:
            self.lines.append(f"       reward {reward:g}")
        if score is not None:
            self.lines.append(f"end:   score {score:.3g}")

    def text(self) -> str:
        """Return all lines."""
        return "\n".join(self.lines) + "\n"

    def picture(self) -> npt.NDArray[np.uint8]:
        """Draw the last lines on a card of 400 x 640 pixels, RGB."""
        from PIL import Image, ImageDraw, ImageFont

        font = ImageFont.load_default(15)
        image = Image.new("RGB", (WIDTH, HEIGHT), "white")
        draw = ImageDraw.Draw(image)
        wrapped = [
            (line.startswith("agent:"), part)
            for line in self.lines
            for part in textwrap.wrap(line, CHARACTERS, subsequent_indent="       ", drop_whitespace=False)
        ]
        visible = wrapped[-(HEIGHT // LINE_HEIGHT - 1) :]
        for index, (agent, part) in enumerate(visible):
            draw.text((16, 10 + LINE_HEIGHT * index), part, fill="#0b5394" if agent else "#222222", font=font)
        return np.asarray(image, dtype=np.uint8).copy()
