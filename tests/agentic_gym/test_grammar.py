"""The message automaton."""

import itertools

import numpy as np
import pytest

from agentic_gym.grammar import DONE, END, FILLER, Tool, build_grammar, grammar_of_sizes, join_grammars

TOOLS = [Tool("find", (("Ada", "Bob"), ("wrote", "met"))), Tool("say", (("Ada", "Bob", "Eve"),)), Tool("stop")]
FIND, SAY, STOP, ADA, BOB, WROTE, MET, EVE = range(2, 10)
ZERO = np.zeros(1, dtype=int)


def legal_by_hand(message: tuple[int, ...], filler: int) -> int | None:
    """Length of a legal message, None if illegal; written from the description, not from the tables."""
    slots = {FIND: [(ADA, BOB), (WROTE, MET)], SAY: [(ADA, BOB, EVE)], STOP: []}.get(message[0])
    if slots is None:
        return None
    at = 1
    for allowed in slots:
        if message[at] not in allowed:
            return None
        at += 1
    for _ in range(filler):
        if message[at] == END:
            return at + 1
        if message[at] != FILLER:
            return None
        at += 1
    return at


@pytest.mark.parametrize("filler", [0, 1, 2])
def test_parse_accepts_exactly_the_legal_messages(filler: int) -> None:
    """Every message over the vocabulary, for up to one filler slot; a sample beyond."""
    grammar = build_grammar(TOOLS, filler)
    assert grammar.n_slots == 3 + filler and grammar.n_tokens == 10
    if filler < 2:
        messages = np.array(list(itertools.product(range(10), repeat=grammar.n_slots)))
    else:
        messages = np.random.default_rng(0).integers(10, size=(20_000, grammar.n_slots))
    parse = grammar.parse(messages, np.zeros(len(messages), dtype=int))
    for index, message in enumerate(messages.tolist()):
        length = legal_by_hand(tuple(message), filler)
        assert parse.legal[index] == (length is not None)
        if length is not None:
            assert parse.counted[index].tolist() == [slot < length for slot in range(grammar.n_slots)]
    assert 0 < parse.legal.sum() < len(messages)


def test_parse_names_states_and_positions() -> None:
    """Positions rebuild the message from the tables; after an error nothing counts."""
    grammar = build_grammar(TOOLS, 1)
    message = np.array([[FIND, BOB, MET, FILLER], [SAY, EVE, END, 7], [SAY, FIND, ADA, ADA], [END, SAY, ADA, END]])
    parse = grammar.parse(message, np.zeros(4, dtype=int))
    assert parse.legal.tolist() == [True, True, False, False]
    assert parse.counted.tolist() == [
        [True] * 4,
        [True] * 3 + [False],
        [True, True, False, False],
        [True] + 3 * [False],
    ]
    assert parse.position[2].tolist() == [1, -1, 0, 0] and (parse.state[2, 2:] == DONE).all()
    for row in (0, 1):
        rebuilt = grammar.tokens[parse.state[row], parse.position[row]]
        assert (rebuilt == message[row])[parse.counted[row]].all()
        state = grammar.next_state[parse.state[row, :-1], parse.position[row, :-1]]
        np.testing.assert_array_equal(state, parse.state[row, 1:])


def test_tables_agree_with_each_other() -> None:
    """``following`` and ``position`` by token are ``next_state`` and ``tokens`` by choice."""
    grammar = join_grammars([(TOOLS, 2), ([Tool("go", (("n", "s", "e", "w"),))], 0)])
    for state in range(1, len(grammar.tokens)):
        width = grammar.width[state]
        assert grammar.legal[state].tolist() == [w < width for w in range(grammar.tokens.shape[1])]
        tokens = grammar.tokens[state, :width]
        np.testing.assert_array_equal(grammar.position[state, tokens], np.arange(width))
        np.testing.assert_array_equal(grammar.following[state, tokens], grammar.next_state[state, :width])
        others = np.setdiff1d(np.arange(grammar.n_tokens), tokens)
        assert (grammar.position[state, others] == -1).all() and (grammar.following[state, others] == DONE).all()


@pytest.mark.parametrize("filler", [0, 3])
def test_sample_is_uniform_over_choices(filler: int) -> None:
    grammar, n = build_grammar(TOOLS, filler), 30_000
    message = grammar.sample(np.random.default_rng(0).random((n, grammar.n_slots)), np.zeros(n, dtype=int))
    assert grammar.parse(message, np.zeros(n, dtype=int)).legal.all()
    for tool in (FIND, SAY, STOP):
        assert np.mean(message[:, 0] == tool) == pytest.approx(1 / 3, abs=0.012)
    said = message[message[:, 0] == SAY, 1]
    assert np.bincount(said)[[ADA, BOB, EVE]] / len(said) == pytest.approx(1 / 3, abs=0.02)
    if filler:
        stopped = message[message[:, 0] == STOP, 1:]
        assert np.mean(stopped[:, 0] == FILLER) == pytest.approx(0.5, abs=0.02)
        assert np.mean((stopped[:, :3] == FILLER).all(axis=1)) == pytest.approx(1 / 8, abs=0.015)
    extreme = grammar.sample(np.full((1, grammar.n_slots), np.nextafter(1, 0)), ZERO)
    assert grammar.parse(extreme, ZERO).legal.all()


def test_encode_and_text() -> None:
    grammar = build_grammar(TOOLS, 2)
    message = grammar.encode("find", "Ada", "wrote")
    assert message.tolist() == [FIND, ADA, WROTE, END, END]
    assert grammar.text(message) == "find(Ada, wrote)"
    assert grammar.text(grammar.encode("stop", "<filler>", "<filler>")) == "stop() ... ..."
    assert grammar.text(grammar.encode("say", "met")) == "illegal message: say met"
    for words in (("find", "Zoe"), ("find",) * 6):
        with pytest.raises(ValueError, match="is not a message"):
            grammar.encode(*words)


def test_slot_mask_is_the_union_over_prefixes() -> None:
    grammar = build_grammar(TOOLS)
    mask = grammar.slot_mask()
    assert mask.shape == (1, 3, 10)
    allowed = [np.flatnonzero(row).tolist() for row in mask[0]]
    # A message that is over goes on with end tokens.
    assert allowed == [[FIND, SAY, STOP], [END, ADA, BOB, EVE], [END, WROTE, MET]]


def test_joined_grammars_keep_their_languages() -> None:
    """Each dialect accepts what it accepts alone; equal tokens in equal roles share a policy output."""
    other = [Tool("go", (("n", "s"),)), Tool("wait")]
    joint = join_grammars([(TOOLS, 0), (other, 1)])
    alone = [build_grammar(TOOLS, 0), build_grammar(other, 1)]
    assert joint.n_slots == 3 and joint.n_tokens == 10 and joint.dialect_features == 2
    assert joint.vocabulary[:4] == ("<end>", "<filler>", "find|go", "say|wait")
    messages = np.array(list(itertools.product(range(10), repeat=3)))
    for dialect, grammar in enumerate(alone):
        expected = np.zeros(len(messages), dtype=bool)
        inside = (messages[:, : grammar.n_slots] < grammar.n_tokens).all(axis=1)
        own = messages[inside][:, : grammar.n_slots]
        expected[inside] = grammar.parse(own, np.zeros(len(own), dtype=int)).legal
        # A token from outside a dialect's vocabulary after its message's end does not count.
        outside = grammar.parse(np.minimum(messages[:, : grammar.n_slots], grammar.n_tokens - 1), np.zeros(1000, int))
        late = outside.legal & (((messages[:, : grammar.n_slots] < grammar.n_tokens) | ~outside.counted).all(axis=1))
        found = joint.parse(messages, np.full(1000, dialect)).legal
        np.testing.assert_array_equal(found, expected | late)
        assert joint.text(own[grammar.parse(own, np.zeros(len(own), int)).legal][0], dialect)[:2] in ("fi", "go")
    assert joint.text(np.array([2, 9, 0]), 1) == "illegal message: go <9>"
    observation = np.zeros((3, 5))
    observation[[0, 1, 2], [1, 0, 1]] = 1
    assert joint.dialect(observation).tolist() == [1, 0, 1] and alone[0].dialect(observation).tolist() == [0, 0, 0]
    first = joint.start
    assert joint.column[first[0], 0] == joint.column[first[1], 0]  # token 2 opens a message in both
    assert joint.n_columns == joint.column.max() + 1


def test_grammar_of_sizes() -> None:
    grammar = grammar_of_sizes([3, 2])
    messages = np.array(list(itertools.product(range(3), repeat=2)))
    parse = grammar.parse(messages, np.zeros(9, dtype=int))
    np.testing.assert_array_equal(parse.legal, messages[:, 1] < 2)
    assert parse.counted.all() and len(np.unique(grammar.column[1:][grammar.legal[1:]])) == 5


@pytest.mark.parametrize(
    ("tools", "filler", "message"),
    [([], 0, "at least one tool"), (TOOLS, -1, "filler=-1"), ([Tool("a", (("a",),))], 0, r"\['a'\]")],
)
def test_wrong_grammars(tools: list[Tool], filler: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_grammar(tools, filler)


def test_text_takes_lists_and_says_what_a_message_is() -> None:
    grammar = build_grammar(TOOLS)
    assert grammar.text([FIND, ADA, WROTE]) == grammar.text(np.array([FIND, ADA, WROTE])) == "find(Ada, wrote)"
    for wrong in ([FIND, ADA], [FIND, ADA, 10], [FIND, ADA, -1], [FIND, ADA, 1.0], [[FIND, ADA, WROTE]], "find"):
        with pytest.raises(ValueError, match=r"message=.* is not allowed: it must be 3 integers in \[0, 9\]"):
            grammar.text(wrong)
