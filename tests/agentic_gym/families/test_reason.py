"""Reason: a second solver, rules by hand, what is drawn, and what blind policies get."""

from typing import Any

import numpy as np
import pytest

from agentic_gym import AgenticVectorEnv
from agentic_gym.families.reason import Reason
from agentic_gym.knobs import Knobs
from agentic_gym.streams import mix

NONE = -1
COPY, ADD, COMPARE, BRANCH = range(4)


def make(n: int = 1, **knobs: Any) -> AgenticVectorEnv:
    return AgenticVectorEnv(n, family="Reason", autoreset_mode="Disabled", **knobs)


def read(observation: np.ndarray, depth: int, reach: int) -> np.ndarray:
    """Decode the documented layout: start, kind, then a and b of each step; -1 where a field is empty."""
    sizes = (10, 3, *[reach + 1] * (2 * depth))
    parts = np.split(observation[:, :-3], np.cumsum(sizes)[:-1], axis=1)
    assert [part.shape[1] for part in parts] == list(sizes)
    assert all(((part == 0) | (part == 1)).all() and (part.sum(axis=1) <= 1).all() for part in parts)
    return np.stack([np.where(part.any(axis=1), part.argmax(axis=1), NONE) for part in parts], axis=1)


def solve(question: list[int]) -> int:
    """Follow the steps one at a time, as a person would."""
    number, kind, *shown = question
    for a, b in zip(shown[::2], shown[1::2], strict=True):
        if a == NONE:
            break
        number += [a, max(a, b), b if number % 2 else a][kind]
        number %= 10
    return number


def second_expert(engine: AgenticVectorEnv, observation: np.ndarray) -> np.ndarray:
    questions = read(observation, engine.family.depth, engine.family.reach)
    return np.array([[2, 4 + solve(question)] for question in questions.tolist()])


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"depth": 8, "difficulty": 0.8, "reach": 9, "max_turns": 4},
        {"depth": 1, "difficulty": 1.0, "reach": 1, "max_turns": 3},
        {"depth": 5, "difficulty": 0.6, "reach": 2},
    ],
)
def test_the_expert_is_a_function_of_the_observation(knobs: dict[str, Any]) -> None:
    """A solver written from the documented layout agrees in every state that errors lead to, ended ones too."""
    n, random = 500, np.random.default_rng(0)
    engine = make(n, slip=0.3, **knobs)
    observation, info = engine.reset(seed=0)
    over, score = np.zeros(n, dtype=bool), np.zeros(n)
    while not over.all():
        expert = engine.expert_message()
        np.testing.assert_array_equal(second_expert(engine, observation), expert)
        np.testing.assert_array_equal(info["ground_truth"], expert)
        legal = engine.grammar.sample(random.random((n, 2)), np.zeros(n, dtype=int))
        tokens = random.integers(engine.grammar.n_tokens, size=(n, 2))
        choice = random.choice(3, size=(n, 1), p=[0.4, 0.3, 0.3])
        observation, _, terminated, truncated, info = engine.step(np.choose(choice, [expert, legal, tokens]))
        over = terminated | truncated
        score += info["reward_components"][:, 0]
        assert not info["is_success"][~over].any()
    # The turn limit is the task's end, and the score is the sum of the component.
    assert terminated.all() and not truncated.any()
    np.testing.assert_array_equal(info["score"], score)
    np.testing.assert_array_equal(info["is_success"], score == 1)
    assert set(score) == {0.0, 1.0} == set(engine.family.value_range)
    np.testing.assert_array_equal(second_expert(engine, observation), engine.expert_message())


def test_steps_by_hand() -> None:
    """One question of each kind, written into the state as the docstring reads."""
    engine = make(4, depth=2, reach=9, render_mode="ansi")
    engine.reset(seed=0)
    questions = [[7, NONE, NONE, NONE, NONE, NONE], [7, 0, 5, NONE, NONE, NONE], [7, 1, 2, 6, 9, 4], [7, 2, 1, 4, 3, 8]]
    assert [solve(question) for question in questions] == [7, 2, 2, 9]
    engine._state["question"][:] = questions
    texts = [engine.family.describe(engine._state, row) for row in range(4)]
    assert texts == [
        "Start with 7. What is it now, modulo 10?",
        "Start with 7. Add 5. What is it now, modulo 10?",
        "Start with 7. Add the larger of 2 and 6. Add the larger of 9 and 4. What is it now, modulo 10?",
        "Start with 7. If it is even add 1, else 4. If it is even add 3, else 8. What is it now, modulo 10?",
    ]
    assert engine.family.task(engine._state, np.arange(4)).tolist() == [COPY, ADD, COMPARE, BRANCH]
    features = engine.family.observe(engine._state, np.arange(4))
    np.testing.assert_array_equal(read(np.pad(features, ((0, 0), (0, 3))), 2, 9), questions)


def play(engine: AgenticVectorEnv, *words: str) -> tuple[float, bool, float, bool, int]:
    """Write one message; return reward, the end, score, success and state key."""
    _, reward, terminated, truncated, info = engine.step(engine.grammar.encode(*words)[None])
    assert not truncated[0]
    return reward[0], terminated[0], info["score"][0], info["is_success"][0], info["state_key"][0]


def test_rules_by_hand() -> None:
    """Every reward and every way to end."""
    engine = make(max_turns=3, render_mode="ansi")
    reset = {"options": {"prompt": 1, "rollout": 0}}
    right = second_expert(engine, engine.reset(**reset)[0])[0, 1] - 4
    number, other = f"number-{right}", f"number-{(right + 1) % 10}"
    assert play(engine, "answer", number) == (1.0, True, 1.0, True, 1 + right)
    assert f"world: The answer {right} was right." in engine.render()[0]
    engine.reset(**reset)
    assert play(engine, "answer", other) == (0.0, True, 0.0, False, 1 + (right + 1) % 10)
    assert "was wrong." in engine.render()[0]
    engine.reset(**reset)
    assert play(engine, "decline") == (0.0, True, 0.0, False, 11)
    assert "world: The question was declined." in engine.render()[0]
    # An illegal message costs a turn, not the question; after the last turn it is over.
    engine.reset(**reset)
    assert play(engine, "decline", number) == (0.0, True, 0.0, False, 11)  # what follows the end does not count
    engine.reset(**reset)
    assert play(engine, "answer", "decline") == (0.0, False, 0.0, False, 0)
    assert play(engine, "answer", number)[:4] == (1.0 - 0.05, True, 1.0, True)
    engine.reset(**reset)
    for turn in range(3):
        reward, terminated, score, success, key = play(engine, "answer")
        assert (terminated, score, success, key) == (turn == 2, 0.0, False, 0)
    assert reward == pytest.approx(-0.15)
    assert engine.render()[0].splitlines()[-3].startswith("world: Start with")


def test_one_turn_is_all_there_is() -> None:
    """By default a failed tool or an illegal message is the end; with more turns there are more attempts."""
    for turns, slip in ((1, 0.5), (3, 0.5), (1, 1.0)):
        engine = make(4000, slip=slip, max_turns=turns)
        engine.reset(seed=0)
        for _ in range(turns):
            _, _, terminated, _, info = engine.step(engine.expert_message())
        assert terminated.all()
        best = engine.family.closed_forms()["best_score"]
        assert best == 1 - slip**turns
        assert info["score"].mean() == pytest.approx(best, abs=4 * 0.5 / 4000**0.5)
    engine = make()
    assert engine.family.turn_limit == 1
    engine.reset(seed=0)
    assert play(engine, "answer")[:4] == (-0.05, True, 0.0, False)


@pytest.mark.parametrize("reach", [1, 3, 9])
@pytest.mark.parametrize("depth", [1, 3, 8])
def test_draws_what_it_documents(depth: int, reach: int) -> None:
    """Start, kind, answers and what is added are uniform; lengths follow each prompt's own share."""
    n = 12_000
    family = Reason(Knobs(depth=depth, difficulty=0.4), reach=reach)
    state = family.start(mix(np.arange(n)))
    question, solution = state["question"].astype(int), state["solution"]
    start, kind, a, b = question[:, 0], question[:, 1], question[:, 2::2], question[:, 3::2]
    assert [solve(q) for q in question[:500].tolist()] == solution[:500].tolist()
    used = a != NONE
    length = used.sum(axis=1)
    assert (used == (np.arange(depth) < length[:, None])).all() and ((kind == NONE) == (length == 0)).all()
    assert length.mean() == pytest.approx(0.4 * depth, abs=0.05)
    if depth > 1:  # more spread than a binomial: prompts have shares of their own
        assert length.var() == pytest.approx(depth * 0.4 * 0.6 + depth * (depth - 1) * 0.25 / 12, rel=0.1)
    np.testing.assert_array_equal(family.task(state, np.arange(n)), kind + 1)
    bands = [(start, 10), (solution, 10), (kind[length > 0], 3), *((solution[kind == k], 10) for k in range(3))]
    bands += [(solution[length == k], 10) for k in range(depth + 1) if (length == k).sum() > 1000]
    for values, size in bands:
        share = np.bincount(values, minlength=size) / len(values)
        assert np.abs(share - 1 / size).max() < 5 * (1 / size / len(values)) ** 0.5
    assert ((b == NONE) == (~used | (kind == 0)[:, None])).all()
    compare = used & (kind == COMPARE - 1)[:, None]
    branch = used & (kind == BRANCH - 1)[:, None]
    assert (a != b)[compare].all() and np.mean((a > b)[compare]) == pytest.approx(0.5, abs=0.05)
    assert (a != b)[branch].all() or reach == 1
    assert min(a[branch].min(), b[branch].min()) >= 1 and max(a.max(), b.max()) == reach
    number = start.copy()
    added = []
    for step in range(depth):
        first, second = a[:, step], b[:, step]
        branched = np.where(number % 2 == 0, first, second)
        plus = np.select([kind == 0, kind == 1], [first, np.maximum(first, second)], branched)
        added.append(np.where(used[:, step], plus, 0))
        number = (number + added[-1]) % 10
    np.testing.assert_array_equal(number, solution)
    for k in range(3):
        amounts = np.array(added).T[used & (kind == k)[:, None]]
        share = np.bincount(amounts, minlength=reach + 1) / len(amounts)
        assert share[0] == 0 and np.abs(share[1:] - 1 / reach).max() < 5 * (1 / reach / len(amounts)) ** 0.5


def test_difficulty() -> None:
    """At 0 every question is trivial, at 1 every question has all steps; between, a split has all lengths."""
    for difficulty, lengths in ((0.0, {0}), (1.0, {3}), (None, {0, 1, 2, 3})):
        engine = make(2000, difficulty=difficulty)
        observation, info = engine.reset(options={"prompt": np.arange(2000)})
        question = read(observation, 3, 2)
        assert set((question[:, 2::2] != NONE).sum(axis=1).tolist()) == lengths
        assert set(info["task"].tolist()) == {0.0: {0}, 1.0: {1, 2, 3}, None: {0, 1, 2, 3}}[difficulty]


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_expert_is_right(split: str) -> None:
    engine = make(500)
    engine.reset(options={"prompt": np.arange(500), "split": split, "rollout": np.arange(500)})
    _, reward, terminated, _, info = engine.step(engine.expert_message())
    assert terminated.all() and info["is_success"].all()
    assert (
        reward.mean() == engine.family.closed_forms()["best_value"] == engine.family.closed_forms()["best_score"] == 1
    )


def test_blind_policies_get_no_more_than_chance() -> None:
    """Every constant message and random ones; several turns change nothing."""
    n = 6000
    engine = make(n, num_prompts=n, max_turns=2)
    error = (0.1 * 0.9 / n) ** 0.5
    words = [("decline",), *(("answer", f"number-{number}") for number in range(10))]
    policies = [np.tile(engine.grammar.encode(*message), (n, 1)) for message in words]
    policies.append(engine.grammar.sample(np.random.default_rng(0).random((n, 2)), np.zeros(n, dtype=int)))
    scores = []
    for message in policies:
        engine.reset(options={"prompt": np.arange(n)})
        _, _, terminated, _, info = engine.step(message)
        assert terminated.all()
        scores.append(info["score"].mean())
    assert engine.family.chance() == 0.1
    assert scores[0] == 0 and np.abs(np.array(scores[1:-1]) - 0.1).max() < 4 * error
    assert scores[-1] == pytest.approx(engine.family.closed_forms()["random_score"], abs=4 * error)


def test_copying_the_start() -> None:
    """Right on questions without steps only, at the default; the share of these has a closed form."""
    n = 6000
    engine = make(n, num_prompts=n)
    observation, info = engine.reset(options={"prompt": np.arange(n)})
    low, high, power = 0.0, 0.5, 3 + 1
    expected = ((1 - low) ** power - (1 - high) ** power) / power / (high - low)
    assert expected == pytest.approx(0.469, abs=5e-4)  # as the docstring says
    message = np.stack([np.full(n, 2), 4 + read(observation, 3, 2)[:, 0]], axis=1)
    trivial = info["task"] == COPY
    _, _, _, _, info = engine.step(message)
    np.testing.assert_array_equal(info["is_success"], trivial)
    assert info["score"].mean() == pytest.approx(expected, abs=4 * (0.25 / n) ** 0.5)


def test_state_keys() -> None:
    """Within a prompt, states have equal keys if and only if they are equal."""
    n, random = 2000, np.random.default_rng(0)
    engine = make(n, max_turns=3, slip=0.2)
    observation, info = engine.reset(options={"prompt": 7, "rollout": np.arange(n)})
    by_key: dict[int, bytes] = {}
    over = np.zeros(n, dtype=bool)
    while True:
        for row, key in enumerate(info["state_key"].tolist()):
            state = engine._state["given"][row].tobytes() + observation[row, :-3].tobytes()
            assert by_key.setdefault(key, state) == state
        if over.all():
            break
        legal = engine.grammar.sample(random.random((n, 2)), np.zeros(n, dtype=int))
        tokens = random.integers(engine.grammar.n_tokens, size=(n, 2))
        choice = random.choice(3, size=(n, 1), p=[0.2, 0.5, 0.3])
        observation, _, terminated, truncated, info = engine.step(
            np.choose(choice, [engine.expert_message(), legal, tokens])
        )
        over = terminated | truncated
    assert len(set(by_key.values())) == len(by_key) == 12 and set(by_key) == set(range(12))


@pytest.mark.parametrize("reach", [0, 10, 2.5, True, "3"])
def test_reach_is_checked(reach: Any) -> None:
    with pytest.raises(ValueError, match=r"reach=.* must be an integer in \[1, 9\]"):
        make(reach=reach)


def test_illegal_messages_do_not_turn_the_order_of_rewards() -> None:
    """With 20 turns the dearest right answer still earns more than the cheapest failure."""
    engine = make(max_turns=20)
    engine.reset(seed=0)
    for _ in range(19):
        assert not play(engine, "answer")[1]
    assert play(engine, "answer", engine.grammar.vocabulary[engine.expert_message()[0, 1]])[0] == pytest.approx(0.05)
    engine.reset(seed=0)
    assert play(engine, "decline")[0] == 0.0
