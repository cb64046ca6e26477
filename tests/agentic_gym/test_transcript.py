"""Transcripts and their pictures."""

import gymnasium
import numpy as np
import pytest

from agentic_gym import AgenticVectorEnv
from agentic_gym.transcript import Transcript


def test_lines() -> None:
    transcript = Transcript()
    transcript.begin("hello")
    transcript.turn("look()", failed=True, answer="nothing", reward=0.0, score=None)
    transcript.turn("answer(x)", failed=False, answer="done", reward=2.5, score=0.25)
    assert transcript.text().splitlines() == [
        "world: hello",
        "agent: look()   (tool failed)",
        "world: nothing",
        "agent: answer(x)",
        "world: done",
        "       reward 2.5",
        "end:   score 0.25",
    ]
    transcript.begin("again")
    assert transcript.text() == "world: again\n"


def test_picture_shows_the_last_lines() -> None:
    transcript = Transcript()
    transcript.begin("x" * 500)
    first = transcript.picture()
    assert first.shape == (400, 640, 3) and first.dtype == np.uint8 and first.flags.writeable
    for index in range(50):
        transcript.turn(f"message {index}", False, "answer", 0.0, None)
    later = transcript.picture()
    assert (later != first).any()
    transcript.lines = transcript.lines[-40:]
    np.testing.assert_array_equal(transcript.picture(), later)


@pytest.mark.parametrize("family", ["Chain", "Search", "Database", "Mixture"])
def test_transcripts_tell_the_rollout(family: str) -> None:
    """Each row has its own; an episode starts a new one; expert, illegal and failed messages read well."""
    engine = AgenticVectorEnv(4, family=family, render_mode="ansi", slip=0.3, autoreset_mode="NextStep")
    engine.reset(seed=0, options={"prompt": np.arange(4)})
    random, texts = np.random.default_rng(0), []
    for _ in range(40):
        message = engine.expert_message()
        if random.random() < 0.2:
            message = random.integers(engine.grammar.n_tokens, size=message.shape)
        *_, info = engine.step(message)
        for row, text in enumerate(engine.render()):
            assert text.count("agent: ") == info["turn"][row] == text.count("world: ") - 1
            texts.append(text)
    everything = "\n".join(texts)
    assert "(tool failed)" in everything and "illegal message: " in everything and "end:   score" in everything
    assert "-1 pending" not in everything and "None" not in everything


def test_illegal_tokens_of_other_environments_are_not_read_as_legal() -> None:
    """In a mixture, a token that an environment lacks is written as a number, not as its last word."""
    env = gymnasium.make("agentic_gym/Mixture-v0", render_mode="ansi").unwrapped
    env.reset(options={"prompt": 0})
    assert env.environment_names[0] == "ChainShort"
    env.step(np.array([2, 20, 0]))
    assert "illegal message: press <20>" in env.render()
