"""Draws a rollout's current state as a card (needs Pillow)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from agentic_gym.transcript import Transcript, Turn, counted, written

WIDTH, HEIGHT, MARGIN = 640, 400, 16
INNER = WIDTH - 2 * MARGIN
HEADER, BAR, FOOTER = 48, 4, 62
WORLD_TOP, WORLD_HEIGHT = HEADER + BAR + 10, 118
MESSAGES_TOP = WORLD_TOP + WORLD_HEIGHT + 10

# After Okabe and Ito, darker where text needs it: they can be told apart with any colour vision, and words
# say the same as they do.
BLUE, ORANGE, GREEN, SKY = "#0072b2", "#b84d00", "#007a5a", "#56b4e9"
PAPER, WHITE, INK, GREY, LINE, NIGHT = "#f5f6f8", "#ffffff", "#1c2330", "#667085", "#cfd4dc", "#1f2a3d"

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


class Block(NamedTuple):
    """Wrapped lines in a font.

    Attributes:
        lines: the lines.
        font: their font.
        step: pixels from one line to the next.
    """

    lines: list[str]
    font: Font
    step: int


@functools.cache
def load_font(size: int) -> Font:
    """Return Pillow's own font, which is there on every machine."""
    return ImageFont.load_default(size)


def draw_card(transcript: Transcript) -> npt.NDArray[np.uint8]:
    """Draw a transcript's environment, world, last messages, and value or ending.

    Args:
        transcript: a rollout that has begun.

    Returns:
        RGB array (400, 640, 3), not shared with anything.
    """
    image = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    draw = ImageDraw.Draw(image)
    _draw_header(draw, transcript)
    _draw_world(draw, transcript.turns[-1].answer if transcript.turns else transcript.opening)
    _draw_messages(draw, transcript.turns)
    _draw_footer(draw, transcript)
    return np.array(image, dtype=np.uint8)


def wrap(text: str, font: Font, width: float) -> list[str]:
    """Break a text into lines that are at most ``width`` pixels wide; long words are cut."""
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}" if line else word
            if font.getlength(longer) <= width:
                line = longer
                continue
            if line:
                lines.append(line)
            while font.getlength(word) > width:
                fitting = _count_fitting(word, font, width)
                lines.append(word[:fitting])
                word = word[fitting:]
            line = word
        lines.append(line)
    return lines


def shorten(text: str, font: Font, width: float) -> str:
    """Cut a text to one line of at most ``width`` pixels, with dots where something is missing."""
    text = " ".join(text.split())
    if font.getlength(text) <= width:
        return text
    return text[: _count_fitting(text, font, width - font.getlength("..."))].rstrip() + "..."


def fit(text: str, width: float, height: float, sizes: Sequence[int]) -> Block:
    """Wrap a text in the largest font in which it fits a box; in the smallest it is cut.

    Args:
        text: the text.
        width: the box's width in pixels.
        height: its height.
        sizes: font sizes, the largest first.
    """
    for size in sizes:
        block = Block(wrap(text, load_font(size), width), load_font(size), round(1.35 * size))
        if len(block.lines) * block.step <= height:
            return block
    shown = int(height // block.step)
    last = shorten(" ".join(block.lines[shown - 1 :]), block.font, width)
    return block._replace(lines=[*block.lines[: shown - 1], last])


def _count_fitting(text: str, font: Font, width: float) -> int:
    """Return how many characters fit, at least 1, by bisection."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if font.getlength(text[:middle]) <= width else (low, middle - 1)
    return low


def _draw_header(draw: ImageDraw.ImageDraw, transcript: Transcript) -> None:
    """Write name, task and prompt on the left and the turn on the right, over a bar of the turns used."""
    limit, turns = transcript.limit, len(transcript.turns)
    draw.rectangle((0, 0, WIDTH, HEADER - 1), fill=NIGHT)
    small, middle = load_font(14), HEADER // 2
    count = f"turn {turns} of {limit}" if turns else f"at most {counted(limit, 'turn')}"
    draw.text((WIDTH - MARGIN, middle), count, fill=WHITE, font=small, anchor="rm")
    room = INNER - small.getlength(count) - 16
    name = shorten(transcript.environment, load_font(21), room * 0.6)
    draw.text((MARGIN, middle), name, fill=WHITE, font=load_font(21), anchor="lm")
    used = load_font(21).getlength(name) + 14
    detail = shorten(f"{transcript.task}  |  {transcript.prompt}", small, room - used)
    draw.text((MARGIN + used, middle + 1), detail, fill=LINE, font=small, anchor="lm")
    share = min(1.0, turns / limit) if limit else 0.0
    draw.rectangle((0, HEADER, WIDTH, HEADER + BAR - 1), fill=LINE)
    if share:
        draw.rectangle((0, HEADER, round(share * WIDTH), HEADER + BAR - 1), fill=SKY)


def _draw_world(draw: ImageDraw.ImageDraw, text: str) -> None:
    """Write what the world shows now in a box."""
    box = (MARGIN, WORLD_TOP, WIDTH - MARGIN, WORLD_TOP + WORLD_HEIGHT)
    draw.rounded_rectangle(box, radius=8, fill=WHITE, outline=LINE)
    draw.text((MARGIN + 14, WORLD_TOP + 9), "WORLD", fill=GREEN, font=load_font(11))
    block = fit(text, INNER - 28, WORLD_HEIGHT - 34, sizes=(17, 15, 13, 11))
    for index, line in enumerate(block.lines):
        position = (MARGIN + 14, WORLD_TOP + 27 + index * block.step)
        draw.text(position, line, fill=INK, font=block.font)


def _draw_messages(draw: ImageDraw.ImageDraw, turns: Sequence[Turn]) -> None:
    """Write the agent's last messages, the latest at the bottom and darkest."""
    draw.text((MARGIN, MESSAGES_TOP), "AGENT", fill=BLUE, font=load_font(11))
    font, small, step = load_font(15), load_font(13), 23
    top = MESSAGES_TOP + 18
    visible = list(enumerate(turns, start=1))[-((HEIGHT - FOOTER - 4 - top) // step) :]
    if not visible:
        draw.text((MARGIN, top), "nothing written yet", fill=GREY, font=font)
    for place, (number, turn) in enumerate(visible):
        y = top + place * step + step // 2
        latest = number == len(turns)
        draw.text((MARGIN + 24, y), str(number), fill=GREY, font=small, anchor="rm")
        note = "tool failed" if turn.failed else written(turn.components, digits=3)
        # The note may have what the message leaves, and a third at least.
        room = INNER - 36 - 16
        note = shorten(note, small, max(room - font.getlength(turn.message), room / 3))
        amount = sum(value for _, value in turn.components)
        colour = ORANGE if turn.failed or not turn.legal or amount < 0 else BLUE
        draw.text((WIDTH - MARGIN, y), note, fill=colour, font=small, anchor="rm")
        message = shorten(turn.message, font, room - small.getlength(note))
        colour = ORANGE if not turn.legal else BLUE if latest else INK
        draw.text((MARGIN + 36, y), message, fill=colour, font=font, anchor="lm")


def _draw_footer(draw: ImageDraw.ImageDraw, transcript: Transcript) -> None:
    """Write the value so far and, at the end, the verdict and the score."""
    top, ending, earned = HEIGHT - FOOTER, transcript.ending, transcript.earned()
    value = f"{sum(earned.values()) + 0.0:g}"
    parts = written(tuple(earned.items()))
    if ending is None:
        fill, ink = WHITE, INK
        texts = (f"Value so far: {value}", parts or "nothing earned or lost yet")
    else:
        fill, ink = BLUE if ending.success else ORANGE, WHITE
        verdict = ending.verdict()
        reward = f"{sum(turn.reward for turn in transcript.turns) + 0.0:g}"
        texts = (
            f"Score {ending.score:.3g}: {verdict}",
            f"value {value}, reward {reward}" + (f"   ({parts})" if parts else ""),
        )
    draw.rectangle((0, top, WIDTH, HEIGHT), fill=fill)
    draw.line((0, top, WIDTH, top), fill=LINE)
    for text, size, y in zip(texts, (18, 14), (20, 44), strict=True):
        font = load_font(size)
        draw.text((MARGIN, top + y), shorten(text, font, INNER), fill=ink, font=font, anchor="lm")
