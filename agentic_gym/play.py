"""A person plays an environment in the terminal (needs rich)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.text import Text

from agentic_gym.catalogue import read_documentation
from agentic_gym.family import Family
from agentic_gym.grammar import DONE, END, FILLER, Grammar
from agentic_gym.single import AgenticEnv
from agentic_gym.truth import truth

COMMANDS = {
    "help": "what can be written and what it does",
    "hint": "the expert's next message",
    "auto": "the expert plays on to the end",
    "restart": "this prompt from its beginning",
    "quit": "stop",
}
WORD = re.compile(r"\.\.\.|[^\s,()]+")
SEPARATORS = " \t\n,()"
FILLER_WORD = "..."
STYLES = {"world": "cyan", "agent": "bold", "end": "bold magenta", "expert": "yellow"}


class UnclearMessageError(ValueError):
    """What was typed is not a message; the text says what could stand there."""


def read_message(grammar: Grammar, dialect: int, text: str) -> npt.NDArray[np.int64]:
    """Read a message as a person types it: ``lookup Ada rival``, ``lookup(ada, riv)``.

    Words may be shortened as long as they are clear; ``...`` is a filler token.

    Args:
        grammar: the messages' grammar.
        dialect: index of the environment.
        text: what was typed.

    Returns:
        The message (L,).

    Raises:
        UnclearMessageError: if the text is not a whole message.
    """
    tokens, state, choices = _walk(grammar, dialect, WORD.findall(text))
    if state != DONE and END not in choices.values():
        place = f"after {text.strip()!r}" if tokens else "in the beginning"
        raise UnclearMessageError(f"The message goes on. Possible {place}: {_listed(choices)}.")
    message = np.full(grammar.n_slots, END, dtype=np.int64)
    message[: len(tokens)] = tokens
    return message


def complete(grammar: Grammar, dialect: int, text: str) -> list[str]:
    """Return the words that may stand where the last, unfinished word of a text stands.

    Args:
        grammar: the messages' grammar.
        dialect: index of the environment.
        text: what has been typed so far.
    """
    words = WORD.findall(text)
    begun = words.pop() if words and text[-1] not in SEPARATORS else ""
    try:
        _, state, choices = _walk(grammar, dialect, words)
    except UnclearMessageError:
        return []
    possible = [word for word, token in choices.items() if token != END] if state != DONE else []
    possible += [] if words else [command for command in COMMANDS if command not in possible]
    return [word for word in possible if word.lower().startswith(begun.lower())]


def _walk(grammar: Grammar, dialect: int, words: list[str]) -> tuple[list[int], int, dict[str, int]]:
    """Follow words through the automaton: tokens, state, and the words that may follow."""
    tokens: list[int] = []
    state = int(grammar.start[dialect])
    choices = _choices(grammar, dialect, state)
    for word in words:
        if state == DONE:
            raise UnclearMessageError(f"The message is over before {word!r}.")
        token = choices[_find(word, [choice for choice in choices if choices[choice] != END])]
        tokens.append(token)
        state = int(grammar.following[state, token])
        choices = _choices(grammar, dialect, state)
    return tokens, state, choices


def _choices(grammar: Grammar, dialect: int, state: int) -> dict[str, int]:
    """Return the words that are legal in a state, with their tokens."""
    names = {**dict(enumerate(grammar.words[dialect])), FILLER: FILLER_WORD}
    return {names[token]: token for token in grammar.tokens[state, : grammar.width[state]].tolist()}


def _find(word: str, choices: list[str]) -> str:
    """Return the choice that a word, perhaps shortened, means."""
    lower = word.lower()
    same = [choice for choice in choices if choice.lower() == lower]
    found = [word] if word in choices else same or [choice for choice in choices if choice.lower().startswith(lower)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnclearMessageError(f"{word!r} can mean {_listed(found)}.")
    raise UnclearMessageError(f"{word!r} cannot stand there. Possible: {_listed(choices)}.")


def _listed(words: Any) -> str:
    return ", ".join(words)


class Game:
    """One environment, one prompt, and a person at the terminal.

    Args:
        env_id: a registered id.
        knobs: knobs that differ from the id's own.
        prompt: prompt id, or None for one that the seed draws.
        split: "train" or "test".
        seed: seed of the prompt and of the noise.
        show_expert: show the expert's message every turn.
        console: where to print.
        read: how to ask for a line; raises EOFError where there is none.
        echo: whether lines that were read must be printed (because nobody typed them).

    Raises:
        ValueError: if a knob or the prompt has a value that is not allowed.
        TypeError: if a knob is unknown.
    """

    def __init__(
        self,
        env_id: str,
        knobs: dict[str, Any],
        *,
        prompt: int | None = None,
        split: str = "test",
        seed: int = 0,
        show_expert: bool = False,
        console: Console,
        read: Callable[[str], str] = input,
        echo: bool = False,
    ) -> None:
        """See the class docstring."""
        self.env_id, self.knobs = env_id, knobs
        self.env = AgenticEnv(render_mode="ansi", **{**gymnasium.spec(env_id).kwargs, **knobs})
        self.seed, self.options = seed, {"split": split} | ({} if prompt is None else {"prompt": prompt})
        self.show_expert = show_expert
        self.console, self._read, self._echo = console, read, echo
        self.over, self.earned = False, 0.0
        self._shown = ""
        self._info: dict[str, Any] = {}
        self._begin()

    @property
    def environment(self) -> int:
        """Index of the environment."""
        return int(self._info["environment"])

    @property
    def member(self) -> Family:
        """The environment's family."""
        return self.env.engine.family.members[self.environment]

    def run(self) -> None:
        """Play until the person stops."""
        self._say(f"{self.env_id}: {read_documentation(type(self.member))[0]}")
        self._say(f"Write a message, or {_listed(COMMANDS)}. TAB completes words.")
        self._show()
        self._announce()
        while (line := self._ask()) is not None and self._carry_out(line.strip()):
            pass

    def complete(self, text: str) -> list[str]:
        """Return the words that may stand where the last, unfinished word of a text stands."""
        return complete(self.env.grammar, self.environment, text)

    def _begin(self) -> None:
        _, self._info = self.env.reset(seed=self.seed, options=self.options)
        self.over, self.earned, self._shown = False, 0.0, ""

    def _ask(self) -> str | None:
        """Return the next line, or None if there are no more."""
        limit = self.env.engine.turn_limits[self.environment]
        prompt = "restart or quit> " if self.over else f"turn {self._info['turn'] + 1} of {limit}> "
        try:
            line = self._read("" if self._echo else prompt)
        except (EOFError, KeyboardInterrupt):
            self._say("")
            return None
        if self._echo:
            self._say(prompt + line)
        return line

    def _carry_out(self, line: str) -> bool:
        """Obey a line; return whether to go on."""
        command = line.lower().removeprefix("/")
        is_tool = line in self.env.grammar.words[self.environment]
        if command in COMMANDS and not is_tool:
            return self._obey(command)
        if self.over:
            self._say("The rollout is over: write restart or quit.")
        elif not line:
            self._announce()
        else:
            self._write(line)
        return True

    def _obey(self, command: str) -> bool:
        if command == "quit":
            return False
        if command == "help":
            self._help()
        elif command == "restart":
            self._begin()
            self._show()
            self._announce()
        elif self.over:
            self._say("The rollout is over: write restart or quit.")
        elif command == "hint":
            self._hint()
        else:
            while not self.over:
                self._step(self.env.expert_message())
            self._finish()
        return True

    def _write(self, line: str) -> None:
        try:
            message = read_message(self.env.grammar, self.environment, line)
        except UnclearMessageError as problem:
            self._say(str(problem))
            return
        self._step(message)
        if self.over:
            self._finish()
        else:
            self._announce()

    def _step(self, message: npt.NDArray[np.int64]) -> None:
        _, reward, terminated, truncated, self._info = self.env.step(message)
        self.earned += reward
        self.over = terminated or truncated
        self._show()

    def _show(self) -> None:
        """Print what is new in the transcript; the prompt has counted the turns."""
        text = self.env.render()
        for line in text[len(self._shown) :].splitlines():
            if not re.fullmatch(r"turn \d+ of \d+", line):
                self._say(line, STYLES.get(line.partition(":")[0], ""))
        self._shown = text

    def _announce(self) -> None:
        """Say what can be written next."""
        tools = _choices(self.env.grammar, self.environment, int(self.env.grammar.start[self.environment]))
        self._say(f"       (next: {_listed(tools)})", "dim")
        if self.show_expert:
            self._hint()

    def _hint(self) -> None:
        self._say(f"expert: {self.env.grammar.text(self.env.expert_message(), self.environment)}", STYLES["expert"])

    def _help(self) -> None:
        """Print tools, commands, and what the documentation says of task and reward."""
        sections = read_documentation(type(self.member))[1]
        for heading in ("Description", "Rewards"):
            if heading in sections:
                # Paragraphs in one line each, list items in lines of their own.
                text = re.sub(r"\s*\n(?!\s*[*\n])\s*", " ", sections[heading].replace("``", ""))
                self._say(f"{heading}: {text}")
        self._say("Messages:")
        for tool in self.member.tools():
            self._say(" ".join([f"  {tool.name}", *(f"<{' | '.join(slot)}>" for slot in tool.slots)]))
        if self.member.knobs.filler:
            self._say(f"  then up to {self.member.knobs.filler} times {FILLER_WORD}, which does nothing")
        self._say("Commands:")
        for name, meaning in COMMANDS.items():
            self._say(f"  {name}: {meaning}")

    def _finish(self) -> None:
        """Print how it went, beside the reference policies."""
        score, success = self._info["score"], self._info["is_success"]
        self._say(f"{'Success' if success else 'Failure'}: score {score:.3g}, return {self.earned:g}.", "bold")
        try:
            known = truth(self.env_id, **self.knobs)[self.environment]
        except ValueError as problem:  # The environment is too rare in this mixture to be measured.
            self._say(str(problem))
            return
        self._say(
            f"Mean score here: best {known.best_score:.3g}, random {known.random_score:.3g}. "
            f"Mean value: best {known.best_value:.4g}, random {known.random_value:.4g}."
        )

    def _say(self, text: str, style: str = "") -> None:
        """Print literally: what environments say is no markup."""
        self.console.print(Text(text, style=style), highlight=False, soft_wrap=not self.console.is_terminal)


def open_game(env_id: str, knobs: dict[str, Any], **settings: Any) -> Game:
    """Start a game on standard input and output.

    Args:
        env_id: a registered id.
        knobs: knobs that differ from the id's own.
        **settings: see ``Game``.

    Returns:
        The game, ready to run.

    Raises:
        ValueError: if a knob or the prompt has a value that is not allowed.
        TypeError: if a knob is unknown.
    """
    typed = sys.stdin.isatty()
    game = Game(env_id, knobs, console=Console(), echo=not typed, **settings)
    if typed:
        install_completion(game.complete)
    return game


def install_completion(complete_text: Callable[[str], list[str]]) -> None:
    """Let TAB complete words, where Python has readline.

    Args:
        complete_text: gives the words that may end a text.
    """
    try:
        import readline
    except ImportError:  # There is none on Windows.
        return

    def completer(word: str, index: int) -> str | None:
        found = complete_text(readline.get_line_buffer()[: readline.get_endidx()])
        return f"{found[index]} " if index < len(found) else None

    readline.set_completer_delims(SEPARATORS)
    readline.set_completer(completer)
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
