"""The message grammar: which tokens may follow which, as a small finite automaton.

A message is one tool token, that tool's argument tokens, up to K filler tokens (no effect on the
world) and, where filler is possible, an end token. The automaton is a set of tables, so parsing,
masking and sampling a batch of messages are a few array look-ups per slot.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

END = 0
FILLER = 1
DONE = 0
"""The automaton's final state: the message is over, later slots do not count."""


@dataclass(frozen=True)
class Tool:
    """A tool and the tokens that each of its argument slots accepts.

    Attributes:
        name: the tool's token.
        slots: for every argument, the names of its legal tokens.
    """

    name: str
    slots: tuple[tuple[str, ...], ...] = ()


class Parse(NamedTuple):
    """What the grammar says of a batch of messages, all of shape (n, L) but ``legal``, (n,).

    Attributes:
        state: automaton state before each slot.
        position: index of the slot's token among the legal ones, -1 where it is illegal.
        counted: whether the slot belongs to the message.
        legal: whether the whole message is legal.
    """

    state: IntArray
    position: IntArray
    counted: BoolArray
    legal: BoolArray


@dataclass(frozen=True, eq=False)
class Grammar:
    """Tables of the message automaton with S states, V tokens, L slots, at most W choices per slot.

    Attributes:
        vocabulary: token names, V of them.
        words: per dialect, what the tokens mean there.
        n_slots: L, the length of the longest message.
        start: (D,) first state of each dialect (one dialect per environment of a mixture).
        tokens: (S, W) legal tokens of a state, padded with the end token.
        width: (S,) how many of them are real.
        position: (S, V) index of a token among the state's legal ones, -1 if illegal; 0 for every
            token after the end.
        next_state: (S, W) state after choosing the w-th legal token.
        following: (S, V) state after a token; the final state after an illegal one.
        column: (S, W) index of the policy output that scores this choice. Equal tokens in equal
            roles (same tool, same slot) share a column, also across environments, as the words
            of a language model do.
        dialect_features: how many leading observation features are the one-hot environment; 0 for
            a single environment.
    """

    vocabulary: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    n_slots: int
    start: IntArray
    tokens: IntArray
    width: IntArray
    position: IntArray
    next_state: IntArray
    following: IntArray
    column: IntArray
    dialect_features: int = 0

    @property
    def n_tokens(self) -> int:
        """V, the size of the vocabulary."""
        return len(self.vocabulary)

    @property
    def n_columns(self) -> int:
        """How many policy outputs the grammar needs."""
        return int(self.column.max()) + 1

    @property
    def legal(self) -> BoolArray:
        """(S, W) whether the w-th choice of a state exists."""
        return np.arange(self.tokens.shape[1])[None, :] < self.width[:, None]

    def dialect(self, observation: npt.NDArray[np.floating]) -> IntArray:
        """Read each row's environment from its observation (n, F)."""
        if self.dialect_features == 0:
            return np.zeros(len(observation), dtype=np.int64)
        return np.argmax(observation[:, : self.dialect_features], axis=1)

    def parse(self, message: npt.NDArray[np.integer], dialect: IntArray) -> Parse:
        """Walk the automaton over messages of shape (n, L); tokens after the end are ignored."""
        # Slots come first while working: NumPy is fast along the last axis, and there are many rows.
        tokens = np.ascontiguousarray(message.T)
        states = np.empty(tokens.shape, dtype=np.int64)
        state = self.start[dialect]
        for slot, token in enumerate(tokens):
            states[slot] = state
            state = self.following[state, token]
        position = self.position[states, tokens]
        legal = np.logical_and.reduce(position >= 0, axis=0)
        return Parse(states.T, position.T, (states != DONE).T, legal)

    def sample(self, uniform: npt.NDArray[np.float64], dialect: IntArray) -> IntArray:
        """Turn uniform numbers (n, L) into legal messages, every choice equally likely."""
        message = np.full((len(uniform), self.n_slots), END, dtype=np.int64)
        state = self.start[dialect]
        for slot in range(self.n_slots):
            choice = (uniform[:, slot] * self.width[state]).astype(np.int64)
            message[:, slot] = self.tokens[state, choice]
            state = self.next_state[state, choice]
        return message

    def slot_mask(self) -> BoolArray:
        """(D, L, V) tokens legal in a slot for at least one prefix; uncounted slots allow the end token."""
        mask = np.zeros((len(self.start), self.n_slots, self.n_tokens), dtype=np.bool_)
        for dialect, first in enumerate(self.start):
            reached = {int(first)}
            for slot in range(self.n_slots):
                for state in reached:
                    mask[dialect, slot, self.tokens[state, : self.width[state]]] = True
                reached = {int(s) for state in reached for s in self.next_state[state, : self.width[state]]}
        return mask

    def text(self, message: npt.ArrayLike, dialect: int = 0) -> str:
        """Write one message (L,) as a person would read it, for example ``lookup(Ada, rival)``.

        Raises:
            ValueError: if the message is not L tokens of the vocabulary.
        """
        tokens = np.asarray(message)
        if tokens.shape != (self.n_slots,) or tokens.dtype.kind not in "iu" or not self._known(tokens):
            raise ValueError(
                f"message={message!r} is not allowed: it must be {self.n_slots} integers in [0, {self.n_tokens - 1}]."
            )
        parse = self.parse(tokens[None, :], np.array([dialect]))
        names = self.words[dialect]
        # A token that means nothing in this dialect is written as its number.
        words = [names[t] if t < len(names) else f"<{t}>" for t in tokens[parse.counted[0]]]
        if not parse.legal[0]:
            return "illegal message: " + " ".join(words)
        filler = words.count(names[FILLER])
        tool, *arguments = (word for word in words if word not in (names[END], names[FILLER]))
        return f"{tool}({', '.join(arguments)})" + " ..." * filler

    def _known(self, tokens: npt.NDArray[np.integer]) -> bool:
        return bool(tokens.min() >= 0 and tokens.max() < self.n_tokens)

    def encode(self, *words: str) -> IntArray:
        """Write a message (L,) from its words, padded with end tokens.

        Raises:
            ValueError: if a word is not in the vocabulary or there are more words than slots.
        """
        unknown = [word for word in words if word not in self.vocabulary]
        if unknown or len(words) > self.n_slots:
            raise ValueError(
                f"words={words!r} is not a message: at most {self.n_slots} of {self.vocabulary} are allowed."
            )
        message = np.full(self.n_slots, END, dtype=np.int64)
        message[: len(words)] = [self.vocabulary.index(word) for word in words]
        return message


class _Table:
    """Collects automaton states; row 0 is the final state."""

    def __init__(self) -> None:
        self.tokens: list[list[int]] = [[END]]
        self.next_state: list[list[int]] = [[DONE]]
        self.role: list[tuple[int, int]] = [(-1, -1)]

    def add(self, tokens: Sequence[int], next_state: Sequence[int], role: tuple[int, int]) -> int:
        """Add a state; ``role`` is (tool token, slot), which decides what shares a policy output."""
        self.tokens.append(list(tokens))
        self.next_state.append(list(next_state))
        self.role.append(role)
        return len(self.tokens) - 1

    def compile(self, words: Sequence[tuple[str, ...]], n_slots: int, start: Sequence[int]) -> Grammar:
        """Pad the lists into arrays and number the policy outputs.

        Args:
            words: what the tokens mean in each dialect.
            n_slots: length of the longest message.
            start: first state of each dialect.
        """
        vocabulary = tuple(
            "|".join(dict.fromkeys(name for name in names if name is not None))
            for names in itertools.zip_longest(*words)
        )
        n_states, width = len(self.tokens), max(map(len, self.tokens))
        tokens = np.full((n_states, width), END, dtype=np.int64)
        next_state = np.full((n_states, width), DONE, dtype=np.int64)
        position = np.full((n_states, len(vocabulary)), -1, dtype=np.int64)
        following = np.full((n_states, len(vocabulary)), DONE, dtype=np.int64)
        column = np.zeros((n_states, width), dtype=np.int64)
        columns: dict[tuple[int, int, int], int] = {}
        for state, (row, after, role) in enumerate(zip(self.tokens, self.next_state, self.role, strict=True)):
            tokens[state, : len(row)] = row
            next_state[state, : len(row)] = after
            position[state, row] = np.arange(len(row))
            following[state, row] = after
            column[state, : len(row)] = [columns.setdefault((*role, token), len(columns)) for token in row]
        position[DONE] = 0
        return Grammar(
            vocabulary, tuple(words), n_slots, np.array(start), tokens, np.array([len(row) for row in self.tokens]),
            position, next_state, following, column, len(words) if len(words) > 1 else 0,
        )  # fmt: skip


def _add_dialect(table: _Table, tools: Sequence[Tool], filler: int, token_of: dict[str, int]) -> int:
    """Add the states of one environment's grammar and return its first state."""
    tail = DONE
    for index in reversed(range(filler)):
        # After the last filler token the message ends by itself: no end token, no slot.
        tail = table.add([END, FILLER], [DONE, tail], role=(FILLER, index))
    entries = []
    for tool in tools:
        following = tail
        for slot in reversed(range(len(tool.slots))):
            legal = [token_of[name] for name in tool.slots[slot]]
            following = table.add(legal, [following] * len(legal), role=(token_of[tool.name], slot))
        entries.append(following)
    return table.add([token_of[tool.name] for tool in tools], entries, role=(-1, 0))


def _vocabulary(tools: Sequence[Tool]) -> tuple[str, ...]:
    arguments = [name for tool in tools for slot in tool.slots for name in slot]
    return tuple(dict.fromkeys(["<end>", "<filler>", *(tool.name for tool in tools), *arguments]))


def _n_slots(tools: Sequence[Tool], filler: int) -> int:
    return 1 + max(len(tool.slots) for tool in tools) + filler


def build_grammar(tools: Sequence[Tool], filler: int = 0) -> Grammar:
    """Compile one environment's tools into a grammar.

    Args:
        tools: at least one tool; names of tools and arguments may not coincide.
        filler: K, how many filler tokens may follow the arguments.

    Raises:
        ValueError: if ``tools`` is empty, ``filler`` is negative, or a tool bears an argument's name.
    """
    if not tools:
        raise ValueError("tools=() is not allowed: a grammar needs at least one tool.")
    if filler < 0:
        raise ValueError(f"filler={filler!r} is not allowed: it must be an integer >= 0.")
    clash = {tool.name for tool in tools} & {name for tool in tools for slot in tool.slots for name in slot}
    if clash:
        raise ValueError(f"tools: the names {sorted(clash)} are used for a tool and for an argument.")
    vocabulary = _vocabulary(tools)
    table = _Table()
    start = _add_dialect(table, tools, filler, {name: token for token, name in enumerate(vocabulary)})
    return table.compile([vocabulary], _n_slots(tools, filler), [start])


def join_grammars(dialects: Sequence[tuple[Sequence[Tool], int]]) -> Grammar:
    """Compile the grammars of several environments over one shared token range.

    Token ids keep their meaning inside each environment, so one id stands for different words in
    different environments; the names in the joint vocabulary list all of them.

    Args:
        dialects: per environment its tools and its number of filler tokens.
    """
    vocabularies = [_vocabulary(tools) for tools, _ in dialects]
    table = _Table()
    start = [
        _add_dialect(table, tools, filler, {name: token for token, name in enumerate(words)})
        for (tools, filler), words in zip(dialects, vocabularies, strict=True)
    ]
    return table.compile(vocabularies, max(_n_slots(tools, filler) for tools, filler in dialects), start)


def grammar_of_sizes(sizes: Sequence[int]) -> Grammar:
    """Return the grammar of a plain (Multi)Discrete action: every slot counts, every token is legal.

    Args:
        sizes: number of choices of each slot.
    """
    table = _Table()
    following = DONE
    for slot in reversed(range(len(sizes))):
        following = table.add(range(sizes[slot]), [following] * sizes[slot], role=(-1, slot))
    names = tuple(str(token) for token in range(max(sizes)))
    return table.compile([names], len(sizes), [following])
