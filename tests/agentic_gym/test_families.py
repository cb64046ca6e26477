"""The three families by hand: what observations say, what messages do, and what is drawn."""

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest

from agentic_gym import AgenticVectorEnv
from agentic_gym.families import search
from agentic_gym.families.database import FIRST_NAME, FIRST_ROW, FIRST_STATUS

NONE = -1
ENTITIES, RELATIONS = 24, 8
"""Search's default sizes."""


def fields(observation: np.ndarray, *sizes: int) -> list[np.ndarray]:
    """Read one-hot fields; -1 where a field is empty."""
    edges = np.cumsum([0, *sizes])
    parts = [observation[:, a:b] for a, b in itertools.pairwise(edges)]
    assert all(((part == 0) | (part == 1)).all() and (part.sum(axis=1) <= 1).all() for part in parts)
    return [np.where(part.any(axis=1), part.argmax(axis=1), NONE) for part in parts]


def chain_expert(engine: AgenticVectorEnv, observation: np.ndarray) -> np.ndarray:
    options = engine.family.options
    device, symbol, shift = fields(observation[:, : 2 + 2 * options], 2, options, options)
    return np.stack([2 + device, 4 + (symbol + shift) % options], axis=1)


def search_fields(
    observation: np.ndarray, entities: int = ENTITIES, relations: int = RELATIONS, depth: int = 3
) -> list[np.ndarray]:
    """The path, hops established, the entity established, two candidates, and the one off the path."""
    sizes = (*[relations] * depth, depth + 1, *[entities] * 4)
    assert observation.shape[1] == sum(sizes) + 3
    return fields(observation[:, :-3], *sizes)


def search_expert(
    engine: AgenticVectorEnv, observation: np.ndarray, entities: int = ENTITIES, relations: int = RELATIONS
) -> np.ndarray:
    words = ("lookup", "check", "answer", *search.ENTITIES[:entities], *search.RELATIONS[:relations])
    assert tuple(engine.grammar.vocabulary[2:]) == words
    *path, reached, established, first, _, _ = search_fields(observation, entities, relations, engine.family.depth)
    hop = np.stack([*path, np.full(len(reached), NONE)], axis=1)[np.arange(len(reached)), reached]
    check, answer = first != NONE, hop == NONE
    tool = np.where(check, 3, np.where(answer, 4, 2))
    relation = np.where(tool == 2, 5 + entities + hop, 0)
    return np.stack([tool, 5 + np.where(check, first, established), relation], axis=1)


def database_expert(engine: AgenticVectorEnv, observation: np.ndarray) -> np.ndarray:
    sizes = (6, 1, 4, 4, 4, 6, 4, 6, 6, 4, 1, engine.family.depth + 1)
    name, conditional, condition, first, second, row, status, _, written, written_status, several, _ = fields(
        observation[:, :-3], *sizes
    )
    wanted = np.where((conditional == NONE) | (status == condition), first, second)
    pending = written != NONE
    done = (row != NONE) & (written == row) & (written_status == wanted) & (several == NONE)
    message = np.zeros((len(name), 3), dtype=int)
    for index in range(len(name)):
        if pending[index]:
            message[index, 0] = 5 if done[index] else 4
        elif row[index] == NONE:
            message[index, :2] = 2, FIRST_NAME + name[index]
        else:
            message[index] = 3, FIRST_ROW + row[index], FIRST_STATUS + wanted[index]
    return message


@pytest.mark.parametrize(
    ("read", "knobs"),
    [
        (chain_expert, {"family": "Chain", "depth": 6, "options": 5, "max_turns": 9}),
        (search_expert, {"family": "Search", "difficulty": 0.6}),
        (search_expert, {"family": "Search", "depth": 5}),
        (partial(search_expert, entities=8, relations=4), {"family": "Search", "entities": 8, "relations": 4}),
        (partial(search_expert, entities=4, relations=2), {"family": "Search", "entities": 4, "relations": 2}),
        (database_expert, {"family": "Database", "depth": 3, "max_turns": 25}),
    ],
    ids=lambda value: value["family"] if isinstance(value, dict) else "",
)
def test_the_expert_is_a_function_of_the_observation(read: Any, knobs: dict[str, Any]) -> None:
    """A second expert, written from the documented layout, agrees in every state that errors lead to."""
    n = 400
    engine = AgenticVectorEnv(n, autoreset_mode="Disabled", slip=0.2, **knobs)
    observation, _ = engine.reset(seed=0)
    random, over, turns = np.random.default_rng(0), np.zeros(n, dtype=bool), 0
    while not over.all():
        expert = engine.expert_message()
        running = np.flatnonzero(~over)
        np.testing.assert_array_equal(read(engine, observation[running]), expert[running])
        legal = engine.grammar.sample(random.random((n, engine.grammar.n_slots)), np.zeros(n, dtype=int))
        message = np.where(random.random((n, 1)) < 0.75, expert, legal)
        observation, _, terminated, truncated, _ = engine.step(message)
        over = terminated | truncated
        turns += len(running)
    assert turns > 3 * n


def play(engine: AgenticVectorEnv, *messages: tuple[str, ...]) -> list[Any]:
    """Write messages into the one row of an engine; return the last step's results."""
    for words in messages:
        results = engine.step(engine.grammar.encode(*words)[None])
    return list(results)


def test_chain_by_hand() -> None:
    engine = AgenticVectorEnv(1, family="Chain", depth=2, autoreset_mode="Disabled", render_mode="ansi", graded=True)
    engine.reset(options={"prompt": 0, "rollout": 0})
    tool, option = engine.grammar.vocabulary[engine.expert_message()[0, 0]], engine.expert_message()[0, 1] - 4
    wrong_tool = {"press": "turn", "turn": "press"}[tool]
    _, reward, terminated, _, info = play(engine, (wrong_tool, f"option-{option}"))
    assert (reward[0], terminated[0], info["score"][0], info["state_key"][0]) == (0.0, False, 0.0, 1)
    _, reward, terminated, truncated, info = engine.step(engine.expert_message())
    assert (reward[0], terminated[0], truncated[0], info["score"][0]) == (0.5, True, False, 0.5)
    assert not info["is_success"][0] and "The chain is complete." in engine.render()[0]


def test_chain_draws_what_it_documents() -> None:
    """Devices, symbols and shifts are uniform; the share of shifted cues is the difficulty."""
    from agentic_gym.families.chain import Chain
    from agentic_gym.knobs import Knobs
    from agentic_gym.streams import mix

    cue = Chain(Knobs(difficulty=0.3), options=5).start(mix(np.arange(20_000)))["cue"]
    np.testing.assert_allclose(np.bincount(cue[:, :, 0].ravel()) / 80_000, 1 / 2, atol=0.01)
    np.testing.assert_allclose(np.bincount(cue[:, :, 1].ravel()) / 80_000, 1 / 5, atol=0.01)
    shifts = np.bincount(cue[:, :, 2].ravel()) / 80_000
    np.testing.assert_allclose(shifts, [0.7, *[0.075] * 4], atol=0.01)
    per_prompt = (cue[:, :, 2] > 0).mean(axis=1)
    assert per_prompt.var() > 0.3 * 0.7 / 4 + 0.01  # prompts differ by more than chance
    assert np.abs(np.corrcoef(cue.reshape(20_000, -1).T) - np.eye(12))[:, ::3].max() < 0.05  # devices tell nothing
    for difficulty, task in ((0.0, 0), (1.0, 1)):
        engine = AgenticVectorEnv(50, family="Chain", difficulty=difficulty)
        assert (engine.reset(seed=0)[1]["task"] == task).all()


SEARCH_SIZES = pytest.mark.parametrize(("entities", "relations", "knobs"), [
    (ENTITIES, RELATIONS, {}),
    (8, 4, {"entities": 8, "relations": 4}),
    (4, 2, {"entities": 4, "relations": 2}),
])  # fmt: skip


@SEARCH_SIZES
def test_search_knowledge_is_consistent(entities: int, relations: int, knobs: dict[str, int]) -> None:
    """A fact is the same whenever it is asked; it never leads to its subject; all targets are equally likely."""
    n, counts = 16_000, np.zeros((entities, entities))
    engine = AgenticVectorEnv(
        n, family="Search", difficulty=0.0, max_turns=50, num_prompts=n, autoreset_mode="Disabled", **knobs
    )
    observation, _ = engine.reset(options={"prompt": np.arange(n)})
    answers: dict[tuple[int, int], np.ndarray] = {}
    established = search_fields(observation, entities, relations)[4]
    last = entities - 1
    for entity, relation in [(0, 0), (2, relations - 1), (last, 1), (0, 0), (2, relations - 1)]:
        message = np.tile([2, 5 + entity, 5 + entities + relation], (n, 1))
        observation, *_ = engine.step(message)
        *_, now, _, _, aside = search_fields(observation, entities, relations)
        found = np.where(aside == NONE, now, aside)
        counts[entity] += np.bincount(found, minlength=entities)
        assert (found != entity).all()
        if (entity, relation) in answers:
            same = (aside != NONE) | (established != entity)
            np.testing.assert_array_equal(found[same], answers[entity, relation][same])
        answers[entity, relation] = found
    asked = [0, 2, last]
    share = counts[asked] / counts[asked].sum(axis=1, keepdims=True)
    expected = np.full((3, entities), 1 / last)
    expected[[0, 1, 2], asked] = 0
    assert (share[expected == 0] == 0).all() and np.abs(share - expected).max() < 0.21 / last


@SEARCH_SIZES
def test_search_facts_are_independent(entities: int, relations: int, knobs: dict[str, int]) -> None:
    """Each pair of an entity and a relation has a fact of its own."""
    n = 1000
    engine = AgenticVectorEnv(
        n, family="Search", difficulty=0.0, max_turns=400, num_prompts=n, autoreset_mode="Disabled", **knobs
    )
    engine.reset(options={"prompt": np.arange(n)})
    steps = []
    for entity, relation in itertools.product(range(entities), range(relations)):
        observation, *_ = engine.step(np.tile([2, 5 + entity, 5 + entities + relation], (n, 1)))
        *_, now, _, _, aside = search_fields(observation, entities, relations)
        steps.append((np.where(aside == NONE, now, aside) - entity) % entities)
    chance = 1 / (entities - 1)
    for index, step in enumerate(steps[:-1]):
        equal = (step == np.array(steps[index + 1 :])).mean(axis=1)
        np.testing.assert_allclose(equal, chance, atol=5.5 * np.sqrt(chance * (1 - chance) / n))


@SEARCH_SIZES
def test_search_doubtful_facts(entities: int, relations: int, knobs: dict[str, int]) -> None:
    """Two candidates, the right one first as often as last; either check settles; the decoy is possible."""
    n = 4000
    for difficulty in (0.0, 0.3, 1.0):
        engine = AgenticVectorEnv(n, family="Search", difficulty=difficulty, autoreset_mode="Disabled", **knobs)
        observation, _ = engine.reset(seed=0)
        subject = search_fields(observation, entities, relations)[4]
        observation, *_ = engine.step(engine.expert_message())
        first, second = search_fields(observation, entities, relations)[5:7]
        doubtful = first != NONE
        assert doubtful.mean() == pytest.approx(difficulty, abs=0.03)
        assert (doubtful == (second != NONE)).all()
        assert ((first != second) & (first != subject) & (second != subject))[doubtful].all()
        twin = engine.clone(n, "Disabled")
        twin.restore(engine.snapshot())
        checks = [np.stack([np.full(n, 3), 5 + np.maximum(c, 0), np.zeros(n, int)], axis=1) for c in (first, second)]
        one, two = (
            search_fields(e.step(m)[0], entities, relations)[4] for e, m in zip((engine, twin), checks, strict=True)
        )
        np.testing.assert_array_equal(one[doubtful], two[doubtful])
        assert ((one == first) | (one == second))[doubtful].all()
        if difficulty == 1.0:
            assert np.mean(one == first) == pytest.approx(0.5, abs=0.04)
            decoy = np.where(one == first, second, first)
            right, wrong = (one - subject) % entities, (decoy - subject) % entities
            for apart, most in ((right, entities - 1), ((wrong - right) % (entities - 1), entities - 2)):
                share, atol = np.bincount(apart, minlength=most + 1) / n, 5.5 * np.sqrt((most - 1) / n) / most
                np.testing.assert_allclose(share, [0, *[1 / most] * most], atol=atol)


def test_search_answers() -> None:
    """Right 1, wrong 0, none -1; a check of nothing in doubt does nothing."""
    engine = AgenticVectorEnv(64, family="Search", autoreset_mode="Disabled")
    _, info = engine.reset(seed=0)
    _, reward, terminated, _, after = engine.step(info["ground_truth"])
    assert (reward == 1).all() and terminated.all() and after["is_success"].all() and (after["score"] == 1).all()
    _, info = engine.reset(seed=0)
    wrong = info["ground_truth"].copy()
    wrong[:, 1] = 5 + (wrong[:, 1] - 4) % ENTITIES
    _, reward, terminated, _, after = engine.step(wrong)
    assert (reward == 0).all() and terminated.all() and not after["is_success"].any() and (after["score"] == 0).all()
    _, info = engine.reset(seed=0)
    over, key = np.zeros(64, dtype=bool), info["state_key"]
    while not over.all():
        _, reward, terminated, truncated, info = engine.step(np.tile([3, 5, 0], (64, 1)))
        np.testing.assert_array_equal(info["state_key"], key)
        over = terminated | truncated
    assert (reward == -1).all() and truncated.all() and (info["turn"] == engine.family.turn_limit).all()


@SEARCH_SIZES
def test_search_questions(entities: int, relations: int, knobs: dict[str, int]) -> None:
    """Both lengths are equally frequent, and relations and starts uniform."""
    n = 20_000
    engine = AgenticVectorEnv(n, family="Search", depth=4, num_prompts=n, **knobs)
    observation, info = engine.reset(options={"prompt": np.arange(n)})
    assert info["task"].mean() == pytest.approx(0.5, abs=0.015)
    *path, reached, established, first, second, aside = search_fields(observation, entities, relations, depth=4)
    assert ((path[3] == NONE) == (info["task"] == 0)).all() and all((p != NONE).all() for p in path[:3])
    for drawn, size in ((path[0], relations), (path[1], relations), (path[2], relations), (established, entities)):
        atol = 4.8 * np.sqrt((size - 1) / n) / size  # standard errors
        np.testing.assert_allclose(np.bincount(drawn, minlength=size) / n, 1 / size, atol=atol)
    assert (reached == 0).all() and all((entity == NONE).all() for entity in (first, second, aside))


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        *(("entities", value, r"\[4, 24\]") for value in (3, 25, 8.0, True, "8", None)),
        *(("relations", value, r"\[2, 8\]") for value in (1, 9, 4.0, True, "4", None)),
    ],
)
def test_search_sizes_are_validated(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}={value!r} is not allowed: it must be an integer in {allowed}"):
        AgenticVectorEnv(1, family="Search", **{name: value})


def test_search_sizes_may_be_of_any_integer_type() -> None:
    engine = AgenticVectorEnv(2, family="Search", entities=np.int8(24), relations=np.int8(8))
    np.testing.assert_array_equal(engine.reset(seed=0)[0], AgenticVectorEnv(2, family="Search").reset(seed=0)[0])


def database(**knobs: Any) -> AgenticVectorEnv:
    engine = AgenticVectorEnv(1, family="Database", autoreset_mode="Disabled", dense=True, **knobs)
    engine.reset(options={"prompt": 11, "rollout": 0})
    return engine


def test_database_by_hand() -> None:
    """Costs, commit, queue and score of one rollout with a detour."""
    engine = database(depth=2)
    select, start = engine.expert_message(), engine._book["state_key"][0]
    assert engine.step(select)[1][0] == -1.0
    update = engine.expert_message()
    np.testing.assert_array_equal(update, engine._book["ground_truth"])
    wrong = update.copy()
    wrong[0, 2] = FIRST_STATUS + (wrong[0, 2] - FIRST_STATUS + 1) % 4
    assert engine.step(wrong)[1][0] == -0.5
    assert engine.expert_message()[0, 0] == 4  # rollback
    assert engine.step(engine.expert_message())[1][0] == 0.0
    engine.step(update)
    _, reward, terminated, _, info = engine.step(engine.grammar.encode("commit")[None])
    assert reward[0] == 0.0 and not terminated[0] and info["state_key"][0] != start
    assert info["score"][0] == pytest.approx(1 + (-1 - 0.5 - 0.5 - 20) / 50)
    for _ in range(3):
        _, reward, terminated, _, info = engine.step(engine.expert_message())
    assert terminated[0] and info["is_success"][0] and info["score"][0] == pytest.approx(1 - 3.5 / 50)
    assert info["turn"][0] == 8


def test_database_wrong_commits_are_final() -> None:
    """Doing nothing is wrong; so is a right update with another one beside it, even if not for this ticket."""
    _, reward, terminated, _, info = play(database(depth=2), ("commit",))
    assert (reward[0], terminated[0], info["is_success"][0]) == (-40.0, True, False)
    assert info["score"][0] == pytest.approx(0.2)
    engine = database(depth=1)
    update = engine._book["ground_truth"].copy()
    other = update.copy()
    other[0, 1] = FIRST_ROW + (other[0, 1] - FIRST_ROW + 1) % 6
    spoiled = False
    for status in range(4):
        engine = database(depth=1)
        other[0, 2] = FIRST_STATUS + status
        engine.step(other)
        engine.step(update)
        _, reward, terminated, _, info = engine.step(engine.grammar.encode("commit")[None])
        assert terminated[0] and info["is_success"][0] == (reward[0] == 0.0)
        spoiled |= reward[0] == -40.0
        assert info["is_success"][0] or reward[0] == -40.0
    assert spoiled
    # Writing the status that was there already is no error: the table is as it should be.
    engine = database(depth=1)
    engine.step(update)
    assert engine.step(engine.grammar.encode("commit")[None])[4]["is_success"][0]


def test_database_rollback_keeps_closed_tickets() -> None:
    engine = database(depth=2)
    for _ in range(3):
        engine.step(engine.expert_message())
    saved = engine._state["saved"].copy()
    _, _, _, _, info = play(engine, ("update", "row-0", "new"), ("update", "row-1", "held"), ("rollback",))
    np.testing.assert_array_equal(engine._state["table"], saved)
    assert info["turn"][0] == 6 and engine._state["closed"][0] == 1
    for _ in range(3):
        _, _, terminated, _, info = engine.step(engine.expert_message())
    assert terminated[0] and info["is_success"][0]


def test_database_draws_what_it_documents() -> None:
    """A ticket always changes something; conditions hold half of the time; names are all different."""
    from agentic_gym.families.database import Database
    from agentic_gym.knobs import Knobs
    from agentic_gym.streams import mix

    n = 10_000
    state = Database(Knobs(depth=4, difficulty=0.4)).start(mix(np.arange(n)))
    ticket, gold, table = state["ticket"], state["gold"], state["saved"]
    assert all(len(set(names)) == 4 for names in ticket[:100, :, 0].tolist())
    np.testing.assert_array_equal(np.sort(state["row_of_name"], axis=1), np.tile(np.arange(6), (n, 1)))
    np.testing.assert_array_equal(gold[:, :, 0], np.take_along_axis(state["row_of_name"], ticket[:, :, 0], axis=1))
    present = np.take_along_axis(table, gold[:, :, 0], axis=1)
    assert (gold[:, :, 1] != present).all()
    conditional = ticket[:, :, 1] == 0
    assert conditional.mean() == pytest.approx(0.4, abs=0.02)
    holds = ticket[:, :, 2] == present
    assert holds[conditional].mean() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(gold[:, :, 1], np.where(conditional & ~holds, ticket[:, :, 4], ticket[:, :, 3]))
    assert ((ticket[:, :, 2] == NONE) == ~conditional).all() and ((ticket[:, :, 4] == NONE) == ~conditional).all()
    for column in (table, state["row_of_name"], ticket[:, :, 0], gold[:, :, 1]):
        counts = np.array([np.bincount(c, minlength=column.max() + 1) for c in column.T]) / n
        np.testing.assert_allclose(counts, 1 / (column.max() + 1), atol=0.025)


@pytest.mark.parametrize("family", ["Chain", "Search", "Database"])
def test_state_keys_identify_what_the_agent_sees(family: str) -> None:
    """Within a prompt, different features (turn and failures apart) have different keys."""
    n = 3000
    engine = AgenticVectorEnv(n, family=family, autoreset_mode="Disabled", max_turns=12)
    observation, info = engine.reset(seed=0, options={"prompt": 3})
    random, seen = np.random.default_rng(0), {}
    over = np.zeros(n, dtype=bool)
    while not over.all():
        for row, key in enumerate(info["state_key"].tolist()):
            features = observation[row, :-3].tobytes()
            assert seen.setdefault(key, features) == features
        legal = engine.grammar.sample(random.random((n, engine.grammar.n_slots)), np.zeros(n, dtype=int))
        message = np.where(random.random((n, 1)) < 0.5, engine.expert_message(), legal)
        observation, _, terminated, truncated, info = engine.step(message)
        over = terminated | truncated
    assert len(seen) > 3 and min(seen) >= 0


def test_database_out_of_turns() -> None:
    """The open tickets fail as by a wrong commit, and the transcript says so; the rollout is truncated."""
    engine = AgenticVectorEnv(1, family="Database", depth=2, autoreset_mode="Disabled", render_mode="ansi")
    engine.reset(seed=0)
    for _ in range(engine.family.turn_limit):
        _, reward, terminated, truncated, info = play(engine, ("select", "elm"))
    assert truncated[0] and not terminated[0] and reward[0] == -40.0 - engine.family.turn_limit
    assert info["score"][0] == pytest.approx(1 + reward[0] / 50)
    assert engine.render()[0].splitlines()[-3] == "world: A ticket was left wrong."
