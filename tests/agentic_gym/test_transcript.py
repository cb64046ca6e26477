"""Transcripts and their pictures."""

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest

from agentic_gym import AgenticVectorEnv
from agentic_gym.card import FOOTER, HEADER, HEIGHT, INNER, MARGIN, WIDTH, fit, load_font, shorten, wrap
from agentic_gym.families import FAMILIES
from agentic_gym.transcript import Ending, Transcript, Turn

LONG = ("x" * 300 + " ") + "word " * 300 + "\n" + "W" * 700


def example(**changes: Any) -> Transcript:
    return Transcript("Search", "2-hop", "test prompt 3", 8, "hello", **changes)


def test_text() -> None:
    transcript = example()
    assert transcript.text() == "Search, task 2-hop, test prompt 3, at most 8 turns\nworld: hello\n"
    transcript.turns.append(Turn("look()", "nothing\nat all", failed=True))
    components = (("answer", 2.0), ("illegal", -0.05))
    transcript.turns.append(Turn("answer(x)", "done", components=components, reward=2.5))
    transcript.ending = Ending(0.25, False, "out of turns")
    assert transcript.text().splitlines()[1:] == [
        "world: hello",
        "turn 1 of 8",
        "agent: look()   (tool failed)",
        "world: nothing",
        "       at all",
        "turn 2 of 8",
        "agent: answer(x)",
        "       answer +2, illegal -0.05",
        "world: done",
        "       reward 2.5",
        "end:   score 0.25, failure, out of turns",
    ]
    assert transcript.earned() == {"answer": 2.0, "illegal": -0.05}


@pytest.mark.parametrize("family", [*FAMILIES, "Mixture"])
def test_transcripts_tell_the_rollout(family: str) -> None:
    """Each row has its own; an episode starts a new one; expert, illegal and failed messages read well."""
    engine = AgenticVectorEnv(4, family=family, render_mode="ansi", slip=0.3, autoreset_mode="NextStep")
    engine.reset(seed=0, options={"prompt": np.arange(4), "split": "test"})
    random, texts = np.random.default_rng(0), []
    for _ in range(80):
        message = engine.expert_message()
        if random.random() < 0.2:
            message = random.integers(engine.grammar.n_tokens, size=message.shape)
        _, _, terminated, truncated, info = engine.step(message)
        over = terminated | truncated
        for row, text in enumerate(engine.render()):
            assert text.count("\nagent: ") == info["turn"][row] == text.count("\nworld: ") - 1
            assert f"test prompt {info['prompt'][row]}," in text
            assert ("\nend:   score" in text) == over[row]
            if over[row]:
                verdict = "success" if info["is_success"][row] else "failure"
                assert f"end:   score {info['score'][row]:.3g}, {verdict}" in text.splitlines()[-1]
            texts.append(text)
    everything = "\n".join(texts)
    assert "(tool failed)" in everything and "illegal message: " in everything and "end:   score" in everything
    assert "-1 pending" not in everything and "None" not in everything


def test_values_of_the_transcript_are_those_of_the_info() -> None:
    engine = AgenticVectorEnv(1, family="Database", render_mode="ansi", autoreset_mode="Disabled", slip=0.2)
    engine.reset(seed=1)
    value = np.zeros(3)
    over = False
    while not over:
        *_, terminated, truncated, info = engine.step(engine.expert_message())
        value += info["reward_components"][0]
        over = bool(terminated[0] | truncated[0])
    earned = engine._transcripts[0].earned()
    assert [earned.get(name, 0.0) for name in ("cost", "outcome", "illegal")] == pytest.approx(value.tolist())


def test_turns_that_run_out_are_named() -> None:
    env = gymnasium.make("agentic_gym/Search-v0", render_mode="ansi", max_turns=2).unwrapped
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros(3, dtype=np.int64))
    assert env.render().splitlines()[-1] == "end:   score 0, failure, out of turns"
    assert "       answer -1, illegal -0.05" in env.render()


def test_illegal_tokens_of_other_environments_are_not_read_as_legal() -> None:
    """In a mixture, a token that an environment lacks is written as a number, not as its last word."""
    env = gymnasium.make("agentic_gym/Mixture-v0", render_mode="ansi").unwrapped
    env.reset(options={"prompt": 0})
    assert env.environment_names[0] == "ChainShort"
    env.step(np.array([2, 20, *[0] * (env.action_space.shape[0] - 2)]))
    assert "illegal message: press <20>" in env.render()


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_have_transcripts_of_their_own(copier: Any) -> None:
    engine = AgenticVectorEnv(2, family="Search", render_mode="ansi")
    engine.reset(seed=0)
    engine.step(engine.expert_message())
    twin, snapshot, text = copier(engine), engine.snapshot(), engine.render()
    engine.fork([0], [1])
    assert engine.render()[1] == engine.render()[0] == text[0]
    engine.step(engine.expert_message())
    assert engine.render() != text and twin.render() == text
    engine.restore(snapshot)
    assert engine.render() == text


def test_no_transcripts_without_a_render_mode() -> None:
    engine = AgenticVectorEnv(2, family="Search")
    engine.reset(seed=0)
    engine.step(engine.expert_message())
    assert engine._transcripts == [] and engine.render() is None


def test_the_picture_follows_the_rollout() -> None:
    transcript = example()
    pictures = [transcript.picture()]
    assert pictures[0].shape == (HEIGHT, WIDTH, 3) == (400, 640, 3)
    assert pictures[0].dtype == np.uint8 and pictures[0].flags.writeable
    for turn in (Turn("one", "two"), Turn("one", "two", failed=True), Turn("one", "two", components=(("cost", -1.0),))):
        transcript.turns.append(turn)
        pictures.append(transcript.picture())
    for success in (True, False):
        transcript.ending = Ending(0.5, success)
        pictures.append(transcript.picture())
    assert len({picture.tobytes() for picture in pictures}) == len(pictures)
    np.testing.assert_array_equal(transcript.picture(), pictures[-1])


@pytest.mark.parametrize("ending", [None, Ending(0.123, True, LONG)])
def test_no_text_leaves_the_card(ending: Ending | None) -> None:
    """However long the texts are, margins and the gaps between the parts stay empty."""
    components = ((LONG, 1e9), ("illegal", -1 / 3))
    turn = Turn(LONG, LONG, legal=False, components=components, reward=1e300)
    card = Transcript(LONG, LONG, LONG, 10**9, LONG, [turn] * 50, ending).picture()
    bare = Transcript("", "", "", 10**9, "", [Turn("", "")] * 50, ending and Ending(0.0, True)).picture()
    for edge in (slice(0, MARGIN - 2), slice(WIDTH - MARGIN + 2, WIDTH)):
        np.testing.assert_array_equal(card[:, edge], bare[:, edge])
    for rows in (slice(0, 8), slice(HEADER - 8, HEADER + 10), slice(HEIGHT - FOOTER - 2, HEIGHT - FOOTER + 6)):
        np.testing.assert_array_equal(card[rows], bare[rows])
    np.testing.assert_array_equal(card[-6:], bare[-6:])


@pytest.mark.parametrize("text", ["", "one", LONG, "a b  c\n\nd"])
def test_wrapping_keeps_the_text_and_the_width(text: str) -> None:
    font = load_font(15)
    lines = wrap(text, font, 200)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(font.getlength(line) <= 200 for line in [*lines, shorten(text, font, 200)])


def test_fitting_takes_the_largest_font_and_cuts_in_the_smallest() -> None:
    assert fit("short", INNER, 80, (17, 11)).font is load_font(17)
    block = fit(LONG, INNER, 80, (17, 11))
    assert block.font is load_font(11) and len(block.lines) * block.step <= 80
    assert block.lines[-1].endswith("...") and block.font.getlength(block.lines[-1]) <= INNER
