"""Shop by hand: what the observation says, what every message does, what is drawn and what it is worth."""

import itertools
from typing import Any

import numpy as np
import pytest

from agentic_gym import AgenticVectorEnv
from agentic_gym.families.shop import CATEGORIES, OPTIONS, SLOTS, Shop
from agentic_gym.knobs import Knobs
from agentic_gym.streams import mix

NONE = -1
VARIANTS: list[dict[str, Any]] = [{}, {"depth": 1, "pages": 1}, {"depth": 4, "pages": 4, "difficulty": 0.9}]


def shop(n: int = 1, **knobs: Any) -> AgenticVectorEnv:
    return AgenticVectorEnv(n, family="Shop", autoreset_mode="Disabled", **knobs)


def legal(engine: AgenticVectorEnv, random: np.random.Generator) -> np.ndarray:
    n = engine.num_envs
    return engine.grammar.sample(random.random((n, engine.grammar.n_slots)), np.zeros(n, dtype=int))


def say(engine: AgenticVectorEnv, *words: str) -> tuple[Any, ...]:
    """Write one message into all rows."""
    return engine.step(np.tile(engine.grammar.encode(*words), (engine.num_envs, 1)))


def read(engine: AgenticVectorEnv, observation: np.ndarray) -> dict[str, np.ndarray]:
    """Read the observation as documented; one-hot fields become indices, -1 where they are empty."""
    depth, pages = engine.family.depth, engine.family.pages
    sizes = [6, *[4] * 2 * depth, 6, pages, 4, pages, *[4] * 3 * depth, *[2] * 4]
    edges = np.cumsum([0, *sizes])
    parts = [observation[:, a:b] for a, b in itertools.pairwise(edges)]
    assert all(((part == 0) | (part == 1)).all() and (part.sum(axis=1) <= 1).all() for part in parts)
    values = np.stack([np.where(part.any(axis=1), part.argmax(axis=1), NONE) for part in parts], axis=1)
    numbers = observation[:, edges[-1] : -3] * 10
    assert numbers.shape[1] == 6 and np.allclose(numbers, numbers.round(), atol=1e-5)
    numbers = numbers.round().astype(int)
    names = ("category", "attributes", "options", "shown", "page", "open", "found", "has", "gone", "choice", "notes")
    widths = (1, depth, depth, 1, 1, 1, 1, depth, depth, depth, 4)
    fields = dict(zip(names, np.split(values, np.cumsum(widths)[:-1], axis=1), strict=True))
    fields = {name: part[:, 0] if width == 1 and name in ("category", "shown", "page", "open", "found") else part
              for (name, part), width in zip(fields.items(), widths, strict=True)}  # fmt: skip
    return fields | {"ceiling": numbers[:, 0], "prices": numbers[:, 1:5], "total": numbers[:, 5]}


def second_expert(engine: AgenticVectorEnv, observation: np.ndarray) -> list[tuple[str, ...]]:
    seen, messages = read(engine, observation), []
    for row in range(len(observation)):
        at = {name: column[row] for name, column in seen.items()}
        there = at["shown"] == at["category"]
        is_right = there and at["open"] != NONE and at["total"] <= at["ceiling"]
        is_right = is_right and (at["has"] == at["attributes"]).all() and (at["gone"] != at["options"]).all()
        open_choices = np.flatnonzero(at["choice"] != at["options"])
        contenders = [
            slot for slot in range(4)
            if at["prices"][slot] <= at["ceiling"] and at["notes"][slot] == NONE and slot != at["open"]
        ]  # fmt: skip
        if is_right and len(open_choices):
            messages.append(("choose", OPTIONS[open_choices[0]][at["options"][open_choices[0]]]))
        elif is_right:
            messages.append(("buy",))
        elif not there or (at["found"] == 0 and at["page"] > 0):
            messages.append(("search", CATEGORIES[at["category"]]))
        elif at["found"] == at["page"]:
            messages.append(("open", SLOTS[list(at["notes"]).index(1)]))
        elif at["found"] == NONE and contenders:
            messages.append(("open", SLOTS[contenders[0]]))
        else:
            messages.append(("next",))
    return messages


@pytest.mark.parametrize("knobs", VARIANTS)
def test_the_expert_is_a_function_of_the_observation(knobs: dict[str, Any]) -> None:
    n = 120
    engine = shop(n, slip=0.1, max_turns=20, **knobs)
    observation, _ = engine.reset(seed=0)
    random, over, told = np.random.default_rng(0), np.zeros(n, dtype=bool), set()
    skill = np.linspace(0.2, 1.0, n)[:, None]
    while not over.all():
        expert, running = engine.expert_message(), np.flatnonzero(~over)
        again = [engine.grammar.encode(*words) for words in second_expert(engine, observation[running])]
        np.testing.assert_array_equal(again, expert[running])
        told |= set(expert[running, 0].tolist())
        message = np.where(random.random((n, 1)) < skill, expert, legal(engine, random))
        observation, _, terminated, truncated, _ = engine.step(message)
        over = terminated | truncated
    assert told == set(range(2, 7)) - ({3} if engine.family.pages == 1 else set())


@pytest.mark.parametrize("knobs", VARIANTS)
def test_the_expert_finds_every_item_in_time(knobs: dict[str, Any]) -> None:
    engine = shop(500, **knobs)
    assert engine.family.closed_forms() == {"best_score": 1.0, "best_value": 100.0}
    for split in ("train", "test"):
        engine.reset(options={"prompt": np.arange(500), "split": split})
        value, over = np.zeros(500), np.zeros(500, dtype=bool)
        while not over.all():
            _, reward, terminated, truncated, info = engine.step(engine.expert_message())
            value += reward
            over = terminated | truncated
        assert info["is_success"].all() and (info["score"] == 1).all() and (value == 100).all() and terminated.all()
        assert info["turn"].min() == 3 + engine.family.depth


def find(engine: AgenticVectorEnv) -> dict[str, np.ndarray]:
    """Play the expert up to the opening of the fitting item of one row; return what is seen then."""
    while engine.grammar.vocabulary[engine.expert_message()[0, 0]] not in ("choose", "buy"):
        observation, *_ = engine.step(engine.expert_message())
    return {name: column[0] for name, column in read(engine, observation).items()}


def test_pages_and_notes_by_hand() -> None:
    engine = shop(max_turns=40, difficulty=1.0)
    observation, info = engine.reset(options={"prompt": 0, "rollout": 0})
    start, blank = read(engine, observation), info["state_key"][0]
    assert start["shown"] == start["page"] == start["open"] == start["found"] == NONE and (start["prices"] == 0).all()
    for words in (("next",), ("open", "slot-1"), ("choose", "red"), ("buy",)):
        after, reward, terminated, _, info = say(engine, *words)
        assert info["state_key"][0] == blank and reward[0] == 0 and not terminated[0]
        np.testing.assert_array_equal(after[:, :-3], observation[:, :-3])
    category = start["category"][0]
    seen = read(engine, say(engine, "search", CATEGORIES[category])[0])
    assert (seen["shown"][0], seen["page"][0], seen["open"][0]) == (category, 0, NONE) and (seen["prices"] > 0).all()
    first = seen["prices"]
    seen = read(engine, say(engine, "open", "slot-2")[0])
    assert seen["open"][0] == 2 and (seen["has"] != NONE).all() and (seen["gone"] != NONE).all()
    assert seen["total"][0] >= seen["prices"][0, 2] and (seen["notes"] == NONE).all()
    gone = seen["gone"][0, 0]
    for value in (gone, (gone + 1) % 4, (gone + 2) % 4, gone):
        seen = read(engine, say(engine, "choose", OPTIONS[0][value])[0])
    assert seen["choice"][0].tolist() == [(gone + 2) % 4, NONE]  # the sold-out value changes nothing
    seen = read(engine, say(engine, "open", "slot-2")[0])
    assert (seen["choice"] == NONE).all() and seen["open"][0] == 2 and seen["notes"][0, 2] != NONE
    pages = [first]
    for page in (1, 2, 0):
        seen = read(engine, say(engine, "next")[0])
        assert seen["page"][0] == page and seen["open"][0] == NONE and seen["total"][0] == 0
        pages.append(seen["prices"])
    np.testing.assert_array_equal(pages[0], pages[3])
    assert not (pages[0] == pages[1]).all() and seen["notes"][0, 2] != NONE
    # Items of another category leave no note.
    other = CATEGORIES[(category + 1) % 6]
    assert (read(engine, say(engine, "search", other)[0])["notes"] == NONE).all()
    for words in (("search", other), ("open", "slot-0"), ("open", "slot-1"), ("search", CATEGORIES[category])):
        seen = read(engine, say(engine, *words)[0])
    assert (seen["notes"][0] != NONE).tolist() == [False, False, True, False]


def test_leaving_the_fitting_item_leaves_a_note() -> None:
    engine = shop(max_turns=40)
    for prompt in range(6):
        engine.reset(options={"prompt": prompt})
        seen = find(engine)
        opened, page = int(seen["open"]), int(seen["page"])
        assert engine._book["ground_truth"][0].tolist() == engine.grammar.encode("open", SLOTS[opened]).tolist()
        after = read(engine, say(engine, "next")[0])
        assert after["found"][0] == page and after["open"][0] == NONE
        turns = 0
        while after["open"][0] != opened or after["page"][0] != page:
            after = read(engine, engine.step(engine.expert_message())[0])
            turns += 1
        assert turns == (2 if page == 0 else 3) and after["notes"][0, opened] == 1


@pytest.mark.parametrize("dense", [False, True])
def test_purchases_by_hand(dense: bool) -> None:
    """Every component, for the fitting item with none, one, both options, and in another category."""
    for choices, match, perfect in ((0, 20, 0), (1, 30, 0), (2, 40, 50)):
        engine = shop(dense=dense)
        engine.reset(options={"prompt": 1})
        seen = find(engine)
        for kind in range(choices):
            assert say(engine, "choose", OPTIONS[kind][seen["options"][kind]])[1][0] == 0
        _, reward, terminated, truncated, info = say(engine, "buy")
        assert info["reward_components"][0].tolist() == [match, 10, perfect, 0]
        assert (reward[0], terminated[0], truncated[0]) == (match + 10 + perfect, True, False)
        assert info["score"][0] == reward[0] / 100 and info["is_success"][0] == (perfect > 0)
    engine = shop(dense=dense)
    observation, _ = engine.reset(options={"prompt": 1})
    say(engine, "search", CATEGORIES[(read(engine, observation)["category"][0] + 1) % 6])
    say(engine, "open", "slot-0")
    _, reward, terminated, _, info = say(engine, "buy")
    assert reward[0] == 0 and terminated[0] and info["score"][0] == 0 and not info["is_success"][0]


def test_other_ends() -> None:
    """Out of turns is worth nothing, even with the right item open; an illegal message costs 1."""
    engine = shop(max_turns=13, render_mode="ansi")
    engine.reset(options={"prompt": 1})
    seen, total = find(engine), 0.0
    while True:
        _, reward, terminated, truncated, info = say(engine, "choose", OPTIONS[0][seen["options"][0]])
        total += reward[0]
        if truncated[0]:
            break
    assert total == 0 and not terminated[0] and info["score"][0] == 0 and not info["is_success"][0]
    assert info["turn"][0] == 13 and "chosen: " in engine.render()[0]
    engine = shop(dense=True)
    engine.reset(seed=0)
    assert engine.step(np.zeros((1, 2), dtype=int))[1][0] == -1.0


def catalogue(family: Shop, n: int, category: int = 0) -> dict[str, np.ndarray]:
    """Prompts and their items of the wanted category (plus an offset): (n, pages * 4, ...)."""
    state, rows = family.start(mix(np.arange(n))), np.arange(n)
    shelves = []
    for page in range(family.pages):
        state["view"][:, 0] = (state["request"][:, 0] + category) % 6
        state["view"][:, 1] = page
        shelves.append(family._items(state, rows).astype(int))
    items, request = np.concatenate(shelves, axis=1), state["request"].astype(int)
    depth, ceiling = family.depth, request[:, 1, None]
    return {
        "request": request, "task": state["task"], "role": state["role"].reshape(n, -1), "items": items,
        "looks right": items[:, :, 0] <= ceiling, "affordable": items[:, :, 1] <= ceiling,
        "has": items[:, :, 2 : 2 + depth] == request[:, None, 2 : 2 + depth],
        "offers": items[:, :, 2 + depth :] != request[:, None, 2 + depth :],
    }  # fmt: skip


@pytest.mark.parametrize("difficulty", [0.0, 0.5, 1.0])
def test_draws_what_it_documents(difficulty: float) -> None:
    n = 8000
    drawn = catalogue(Shop(Knobs(difficulty=difficulty)), n)
    request, items, looks = drawn["request"], drawn["items"], drawn["looks right"]
    for column, low, count in ((0, 0, 6), (1, 4, 4), (2, 0, 4), (3, 0, 4), (4, 0, 4), (5, 0, 4)):
        np.testing.assert_allclose(np.bincount(request[:, column] - low) / n, np.full(count, 1 / count), atol=0.02)
    np.testing.assert_allclose(np.bincount(drawn["task"]) / n, 1 / 3, atol=0.02)
    faults = (~drawn["has"]).sum(axis=2) + (~drawn["offers"]).sum(axis=2) + ~drawn["affordable"]
    right = faults == 0
    assert (right.sum(axis=1) == 1).all()
    np.testing.assert_allclose(right.mean(axis=0), 1 / 12, atol=0.015)
    near = looks & ~right
    assert near.sum() == pytest.approx(5 * difficulty * n, rel=0.03) and (faults[near] == 1).all()
    assert looks.reshape(n, 3, 4).sum(axis=2).max() <= 2 and (looks | ~right).all()
    if difficulty == 0.5:
        assert near.sum(axis=1).var() > 5 / 4 + 0.2  # prompts differ by more than chance
        np.testing.assert_allclose(near.mean(axis=0), 5 / 24, atol=0.015)
    wrong = [(~drawn["has"]).any(axis=2), (~drawn["offers"]).any(axis=2), ~drawn["affordable"]]
    for task, flags in enumerate(wrong):
        assert flags[near & (drawn["task"] == task)[:, None]].all()
    # The list price of the fitting item looks like any contender's; others show that they are dear.
    below = request[:, 1, None] - items[:, :, 0]
    for flags, values in ((right, (0, 1, 2)), (near, (0, 1, 2)), (~looks, (-3, -2, -1))):
        if flags.any():
            found, counts = np.unique(below[flags], return_counts=True)
            assert found.tolist() == list(values)
            np.testing.assert_allclose(counts / counts.sum(), 1 / 3, atol=0.02)
    assert drawn["has"][~looks].mean() == pytest.approx(0.25, abs=0.01)
    assert drawn["offers"][~looks].mean() == pytest.approx(0.75, abs=0.01)
    assert (items[:, :, 0] <= items[:, :, 1]).all() and 1 <= items[:, :, 0].min() and items[:, :, 1].max() <= 10
    for kind in (4, 5):  # the value that is sold out says nothing of which of the others is wanted
        step = (items[:, :, kind] - request[:, None, kind])[right] % 4
        np.testing.assert_allclose(np.bincount(step, minlength=4) / n, [0, *[1 / 3] * 3], atol=0.02)


def test_other_categories_look_alike() -> None:
    """They have other items, drawn like those of the wanted one."""
    family = Shop(Knobs())
    wanted, other = catalogue(family, 4000), catalogue(family, 4000, 1)
    assert (wanted["items"] != other["items"]).any(axis=(1, 2)).all()
    for name in ("looks right", "affordable", "has", "offers"):
        np.testing.assert_allclose(wanted[name].mean(), other[name].mean(), atol=0.015)


@pytest.mark.parametrize("knobs", VARIANTS)
def test_scores_of_mixed_rollouts(knobs: dict[str, Any]) -> None:
    """The score is the sum of the components over 100; a failed rollout stays below a successful one."""
    n = 2000
    engine = shop(n, **knobs)
    engine.reset(seed=3)
    random, over = np.random.default_rng(1), np.zeros(n, dtype=bool)
    total = np.zeros((n, 4))
    skill = np.linspace(0.3, 1.0, n)[:, None]
    while not over.all():
        # Cheap guesses end some rollouts early.
        guess = np.where(random.random((n, 1)) < 0.2, engine.grammar.encode("buy"), legal(engine, random))
        message = np.where(random.random((n, 1)) < skill, engine.expert_message(), guess)
        _, _, terminated, truncated, info = engine.step(message)
        total += info["reward_components"]
        over = terminated | truncated
    value = total.sum(axis=1)
    np.testing.assert_allclose(info["score"], value / 100)
    success = info["is_success"]
    assert truncated.any() and (success & terminated).any() and (~success & terminated).any()
    assert (value[success] == 100).all() and value[~success].max() < 50 and value.min() == 0
    assert (value[truncated] == 0).all() and not success[truncated].any()
    assert (info["score"][~success] > 0).any() and (total[:, 3] == 0).all()


def run_script(engine: AgenticVectorEnv, script: list[np.ndarray]) -> np.ndarray:
    """Write the same messages, turn by turn, whatever is seen (random legal ones if there are none)."""
    n, random = engine.num_envs, np.random.default_rng(0)
    engine.reset(options={"prompt": np.arange(n)})
    over, turn = np.zeros(n, dtype=bool), 0
    while not over.all():
        message = np.tile(script[turn % len(script)], (n, 1)) if script else legal(engine, random)
        _, _, terminated, truncated, info = engine.step(message)
        over, turn = terminated | truncated, turn + 1
    return info["score"]


@pytest.mark.parametrize("knobs", [{}, {"depth": 1, "pages": 1, "difficulty": 1.0}])
def test_blind_policies_stay_below_chance(knobs: dict[str, Any]) -> None:
    """A repeated message earns exactly nothing; the best blind plan earns the chance level, random messages less."""
    few, many = shop(200, **knobs), shop(6000, num_prompts=6000, **knobs)
    encode, chance = few.grammar.encode, few.family.chance()
    for words in (("search", "hat"), ("next",), ("open", "slot-0"), ("choose", "red"), ("buy",)):
        assert (run_script(few, [encode(*words)]) == 0).all()
    score = run_script(many, [])
    assert score.mean() < chance
    # An option that bounces off leaves the choice before it.
    twice = [encode("choose", values[index]) for values in OPTIONS[: few.family.depth] for index in (0, 1)]
    score = run_script(many, [encode("search", "hat"), encode("open", "slot-3"), *twice, encode("buy")])
    assert score.mean() == pytest.approx(chance, abs=4 * score.std() / np.sqrt(6000)) and chance < 0.07


@pytest.mark.parametrize("knobs", VARIANTS)
def test_state_keys(knobs: dict[str, Any]) -> None:
    """Within a prompt, keys are equal just where the state and what is shown of it are equal."""
    n = 400
    engine = shop(n, max_turns=25, **knobs)
    observation, info = engine.reset(seed=0, options={"prompt": 5})
    random, over = np.random.default_rng(2), np.zeros(n, dtype=bool)
    by_key: dict[int, bytes] = {}
    skill = np.linspace(0.1, 1.0, n)[:, None]
    while True:
        names = [name for name in engine._state if name != "key"]
        parts = [np.ascontiguousarray(engine._state[name]).reshape(n, -1).view(np.uint8) for name in names]
        parts.append(np.ascontiguousarray(observation[:, :-3]).view(np.uint8))
        whole = np.concatenate(parts, axis=1)
        for row, key in enumerate(info["state_key"].tolist()):
            assert by_key.setdefault(key, whole[row].tobytes()) == whole[row].tobytes()
        if over.all():
            break
        message = np.where(random.random((n, 1)) < skill, engine.expert_message(), legal(engine, random))
        observation, _, terminated, truncated, info = engine.step(message)
        over = terminated | truncated
    assert len(set(by_key.values())) == len(by_key) > 100
    assert min(by_key) >= 0 and engine.family._place_values[-1] * 2 < 2**62


def test_knobs() -> None:
    for pages in (0, 5, 2.5, True):
        with pytest.raises(ValueError, match=r"pages=.* is not allowed: it must be an integer in \[1, 4\]"):
            shop(pages=pages)
    assert shop(pages=2, depth=3).family.turn_limit == 11
    assert shop(max_turns=11).family.closed_forms() == {} == shop(slip=0.1).family.closed_forms()
    assert Shop(Knobs()).start(np.zeros(0, dtype=np.uint64))["shelf"].shape == (0, 4, 6)
