"""Household by hand: what observations say, what messages do, and what is drawn."""

import itertools
from typing import Any

import numpy as np
import pytest

from agentic_gym import AgenticVectorEnv
from agentic_gym.families.household import Household
from agentic_gym.knobs import Knobs
from agentic_gym.streams import mix

NONE = -1
ROOMS = ("kitchen", "hall", "bedroom", "bathroom", "study")
INSIDE = {"kitchen": ("fridge", "cupboard"), "hall": ("chest",), "bedroom": ("wardrobe", "drawer"),
          "bathroom": ("basket",), "study": ("desk",)}  # fmt: skip
CONTAINERS = tuple(name for room in ROOMS for name in INSIDE[room])
OBJECTS = ("apple", "egg", "mug", "pan", "spoon")
ROOM_OF = {name: room for room, names in INSIDE.items() for name in names}


def fields(observation: np.ndarray, *sizes: int) -> list[np.ndarray]:
    edges = np.cumsum([0, *sizes])
    parts = [observation[:, a:b] for a, b in itertools.pairwise(edges)]
    assert all(((part == 0) | (part == 1)).all() and (part.sum(axis=1) <= 1).all() for part in parts)
    return [np.where(part.any(axis=1), part.argmax(axis=1), NONE) for part in parts]


def read(observation: np.ndarray, depth: int) -> list[dict[str, Any]]:
    """Read observations by the documented layout."""
    room, task, container = fields(observation[:, :14], 5, 2, 7)
    visited, opened, here = observation[:, 14:19], observation[:, 19:26], observation[:, 26:31]
    (held,) = fields(observation[:, 31:36], 5)
    goal = fields(observation[:, 36 : 36 + 14 * depth], *[5] * depth, *[7] * depth, *[2] * depth)
    assert observation.shape[1] == 36 + 14 * depth + 3
    return [
        {
            "room": ROOMS[room[i]], "task": task[i], "container": CONTAINERS[container[i]],
            "visited": {ROOMS[j] for j in np.flatnonzero(visited[i])},
            "opened": {CONTAINERS[j] for j in np.flatnonzero(opened[i])},
            "here": {OBJECTS[j] for j in np.flatnonzero(here[i])},
            "held": None if held[i] == NONE else OBJECTS[held[i]],
            "goal": [tuple(int(goal[k * depth + s][i]) for k in range(3)) for s in range(depth)],
        }
        for i in range(len(observation))
    ]  # fmt: skip


def expert(seen: dict[str, Any]) -> tuple[str, str]:
    """Say what the documented strategy writes: treat and deliver, else fetch, else search clockwise."""
    room, opened = seen["room"], seen["opened"]

    def walk(target: str) -> tuple[str, str]:
        steps = (ROOMS.index(target) - ROOMS.index(room)) % 5
        return "go", ROOMS[(ROOMS.index(room) + (1 if steps <= 2 else -1)) % 5]

    carried = [how for _, where, how in seen["goal"] if where == 5]
    if carried:
        if seen["task"] != NONE and carried[0] != seen["task"]:
            target, tool, argument = (("bathroom", "use", "sink"), ("kitchen", "use", "stove"))[seen["task"]]
        else:
            target, argument = ROOM_OF[seen["container"]], seen["container"]
            tool = "put" if argument in opened else "open"
        return (tool, argument) if room == target else walk(target)
    if seen["held"]:
        free = [name for name in INSIDE[room] if name in opened]
        return ("put", free[0]) if free else ("open", INSIDE[room][0])
    for item, where, _ in seen["goal"]:
        if 0 <= where < 5:
            return ("take", OBJECTS[item]) if room == ROOMS[where] else walk(ROOMS[where])
    shut = [name for name in INSIDE[room] if name not in opened]
    return ("open", shut[0]) if shut else ("go", ROOMS[(ROOMS.index(room) + 1) % 5])


def mixed_rollouts(n: int, share: Any = 0.75, prompt: Any = None, **knobs: Any) -> Any:
    """Yield the engine, observation, info and who still runs, before each turn and after the last."""
    engine = AgenticVectorEnv(n, family="Household", autoreset_mode="Disabled", **knobs)
    options = {} if prompt is None else {"prompt": prompt}
    observation, info = engine.reset(seed=0, options=options)
    random, over = np.random.default_rng(0), np.zeros(n, dtype=bool)
    value = np.zeros((n, 2))
    while True:
        yield engine, observation, info, ~over, value
        if over.all():
            return
        legal = engine.grammar.sample(random.random((n, 2)), np.zeros(n, dtype=int))
        message = np.where(random.random((n, 1)) < share, engine.expert_message(), legal)
        observation, _, terminated, truncated, info = engine.step(message)
        over = terminated | truncated
        value += info["reward_components"]


@pytest.mark.parametrize(("depth", "share"), [(1, 0.6), (2, 0.3), (4, 0.8)])
def test_the_expert_is_a_function_of_the_observation(depth: int, share: float) -> None:
    turns, tools = 0, set()
    for engine, observation, _, running, _ in mixed_rollouts(40, share, depth=depth, slip=0.1):
        message = engine.expert_message()
        for row, seen in zip(np.flatnonzero(running), read(observation[running], depth), strict=True):
            np.testing.assert_array_equal(engine.grammar.encode(*expert(seen)), message[row])
            tools.add(message[row, 0])
            turns += 1
    assert turns > 500 and len(tools) == 5


def one(**state: Any) -> AgenticVectorEnv:
    """Make one row, to fetch the mug (in the wardrobe) for the desk; pan in the hall, the rest in the study."""
    engine = AgenticVectorEnv(1, family="Household", autoreset_mode="Disabled", render_mode="ansi", dense=True, depth=1)
    engine.reset(options={"prompt": 0, "rollout": 0})
    place = {"apple": 4, "egg": 4, "mug": 5 + CONTAINERS.index("wardrobe"), "pan": 1, "spoon": 4}
    known = np.zeros(13)
    known[[0, 12]] = 1
    state = {
        "room": 0, "container": CONTAINERS.index("desk"), "task": 0, "goal": [2], "known": known,
        "place": list(place.values()), **state,
    }  # fmt: skip
    for name, value in state.items():
        engine._state[name][0] = value
    return engine


def play(engine: AgenticVectorEnv, *messages: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
    for words in messages:
        observation, reward, terminated, truncated, info = engine.step(engine.grammar.encode(*words.split())[None])
    return read(observation, 1)[0], reward[0], terminated[0], truncated[0], info


def test_fetch_by_hand() -> None:
    engine = one()
    seen, *_ = play(engine, "go bedroom")  # not a neighbour of the kitchen
    assert seen["room"] == "kitchen" and seen["visited"] == {"kitchen"} and not seen["here"]
    seen, *_ = play(engine, "go hall")
    assert seen["room"] == "hall" and seen["here"] == {"pan"} and seen["goal"] == [(2, NONE, NONE)]
    seen, *_ = play(engine, "go bedroom", "take mug", "open desk")  # neither is in sight
    assert seen["held"] is None and not seen["opened"] and not seen["here"]
    seen, *_ = play(engine, "open wardrobe")
    assert seen["here"] == {"mug"} and seen["goal"] == [(2, 2, NONE)] and seen["opened"] == {"wardrobe"}
    seen, *_ = play(engine, "take mug")
    assert seen["held"] == "mug" and seen["goal"] == [(2, 5, NONE)] and not seen["here"]
    assert "mug in your hand" in engine.render()[0]
    seen, *_ = play(engine, "put drawer", "put desk")  # closed; far away
    assert seen["held"] == "mug"
    seen, *_ = play(engine, "go hall", "take pan")  # the hand is full
    assert seen["held"] == "mug" and seen["here"] == {"pan"}
    seen, *_ = play(engine, "go kitchen", "go study", "put desk")
    assert seen["here"] == {"apple", "egg", "spoon"} and seen["held"] == "mug"
    _, reward, terminated, _, info = play(engine, "open desk")
    assert reward == 0 and not terminated and info["score"][0] == 0
    seen, reward, terminated, truncated, info = play(engine, "put desk")
    assert (reward, terminated, truncated, info["score"][0]) == (10.0, True, False, 1.0) and info["is_success"][0]
    assert seen["goal"] == [(2, 6, NONE)] and info["reward_components"].tolist() == [[10.0, 0.0]]
    assert "mug delivered" in engine.render()[0]


WAYS = {("bedroom", "sink"): ("go bathroom",), ("bedroom", "stove"): ("go hall", "go kitchen"),
        ("sink", "stove"): ("go study", "go kitchen"), ("stove", "sink"): ("go study", "go bathroom"),
        ("sink", "bedroom"): ("go bedroom",), ("stove", "bedroom"): ("go hall", "go bedroom")}  # fmt: skip


@pytest.mark.parametrize(("task", "right", "wrong"), [(1, "sink", "stove"), (2, "stove", "sink")])
def test_treatments_by_hand(task: int, right: str, wrong: str) -> None:
    """The last treatment counts, at the right appliance, in the hand; what was put untreated can be taken back."""
    known = np.isin(np.arange(13), [2, 12])
    engine = one(room=2, place=[4, 4, 2, 4, 4], task=task, container=CONTAINERS.index("drawer"), known=known)
    seen, *_ = play(engine, "open drawer")
    assert seen["task"] == task - 1 and seen["here"] == {"mug"}
    seen, reward, terminated, *_ = play(engine, "take mug", f"use {right}", "put drawer")
    assert reward == 0 and not terminated and seen["goal"] == [(2, 2, NONE)]
    seen, *_ = play(engine, "take mug", *WAYS["bedroom", wrong], f"use {right}", f"use {wrong}")
    assert seen["goal"] == [(2, 5, 2 - task)]
    seen, *_ = play(engine, *WAYS[wrong, right], f"use {wrong}", f"use {right}")
    assert seen["goal"] == [(2, 5, task - 1)]
    _, reward, terminated, _, info = play(engine, *WAYS[right, "bedroom"], "put drawer")
    assert (reward, terminated, info["is_success"][0]) == (10.0, True, True)
    # Nothing in the hand, nothing to treat.
    engine = one(room=ROOMS.index("bathroom"))
    play(engine, "use sink")
    assert not engine._state["treatment"].any()


def test_fetch_takes_things_as_they_are() -> None:
    """A treated object is as good; a wrong object or a wrong container is nothing; then the time is up."""
    engine = one(room=3, place=[3, 4, 3, 4, 4], container=CONTAINERS.index("basket"))
    engine._state["known"][0, 3] = 1
    seen, reward, terminated, *_ = play(engine, "open basket", "take apple", "put basket")
    assert reward == 0 and not terminated and seen["here"] == {"apple", "mug"}
    _, reward, terminated, *_ = play(engine, "take mug", "use sink", "put basket")
    assert reward == 10 and terminated
    engine = one()
    _, reward, terminated, truncated, info = play(engine, *["use stove"] * engine.family.turn_limit)
    assert (reward, terminated, truncated, info["score"][0], info["is_success"][0]) == (0.0, False, True, 0.0, False)
    assert info["turn"][0] == 23
    _, reward, *_ = play(one(), "go mug")
    assert reward == -0.1


def test_a_goal_of_several_objects_needs_all_of_them() -> None:
    engine = AgenticVectorEnv(50, family="Household", depth=3, autoreset_mode="Disabled", dense=True)
    engine.reset(seed=0)
    over, before = np.zeros(50, dtype=bool), np.zeros(50, dtype=int)
    while not over.all():
        running = ~over
        observation, reward, terminated, truncated, _ = engine.step(engine.expert_message())
        delivered = np.array([sum(where == 6 for _, where, _ in seen["goal"]) for seen in read(observation, 3)])
        np.testing.assert_array_equal(reward, 10.0 * (running & (delivered == 3)))
        assert (delivered - before <= 1).all()
        before, over = delivered, terminated | truncated


def test_start_draws_what_it_documents() -> None:
    n = 20_000
    for difficulty, low, high in ((0.4, 0.15, 0.65), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)):
        state = Household(Knobs(depth=2, difficulty=difficulty)).start(mix(np.arange(n)))
        place, container = state["place"], state["container"]
        hidden = place >= 5
        assert hidden.mean() == pytest.approx(difficulty, abs=0.01)
        spread = hidden.mean(axis=1).var() - (share := (low + high) / 2) * (1 - share) / 5
        # Beyond chance, prompts vary as their own probabilities do: (1 - 1/5) of a uniform's variance.
        assert spread == pytest.approx(0.8 * (high - low) ** 2 / 12, abs=0.003)
    state = Household(Knobs(depth=2)).start(mix(np.arange(n)))
    place, container, goal = state["place"], state["container"], state["goal"]
    for name, size in (("room", 5), ("container", 7), ("task", 3)):
        np.testing.assert_allclose(np.bincount(state[name], minlength=size) / n, 1 / size, atol=0.012)
    pairs = np.bincount(goal[:, 0] * 5 + goal[:, 1], minlength=25) / n
    np.testing.assert_allclose(pairs, (1 - np.eye(5).ravel()) / 20, atol=0.008)
    room_of = np.array([*range(5), *(ROOMS.index(ROOM_OF[name]) for name in CONTAINERS)])
    step = (room_of[place] - room_of[5 + container][:, None]) % 5
    for item in range(5):
        np.testing.assert_allclose(np.bincount(step[:, item], minlength=5) / n, [0, *[0.25] * 4], atol=0.015)
        inside = place[place[:, item] >= 5, item]
        for names in INSIDE.values():
            counts = [np.sum(inside == 5 + CONTAINERS.index(name)) for name in names]
            np.testing.assert_allclose(counts, np.mean(counts), rtol=0.08)
    assert np.abs(np.corrcoef(np.column_stack([step, place >= 5]).T)[:5, 5:]).max() < 0.04
    assert np.abs(np.corrcoef(step.T) - np.eye(5)).max() < 0.04


@pytest.mark.parametrize("depth", [1, 3])
def test_scores_are_the_share_of_the_goal(depth: int) -> None:
    """Score and success from the component sums, over rollouts of mixed quality; failures earn less."""
    n, limit = 600, Household(Knobs(depth=depth)).default_max_turns()
    share = np.linspace(0, 1, n)[:, None]
    for engine, _, info, running, value in mixed_rollouts(n, share, depth=depth, slip=0.05):
        np.testing.assert_array_equal(info["score"], value[:, 0] / 10)
        np.testing.assert_array_equal(info["is_success"], value[:, 0] == 10)
        low, high = engine.family.value_range
        assert ((low <= value[:, 0]) & (value[:, 0] <= high)).all() and (value[:, 1] == 0).all()
        assert not (info["is_success"] & running).any()
    success = info["is_success"]
    assert info["score"][~success].max() < info["score"][success].min() and 0.1 < success.mean() < 0.9
    assert (info["turn"][~success] == limit).all()
    # Even a success with nothing but illegal messages beside it is worth more than any failure.
    assert 10 - 0.1 * 50 > 0


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_expert_always_succeeds(depth: int) -> None:
    for split in ("train", "test"):
        engine = AgenticVectorEnv(500, family="Household", depth=depth, autoreset_mode="Disabled")
        engine.reset(options={"prompt": np.arange(500), "split": split})
        value, over = np.zeros(500), np.zeros(500, dtype=bool)
        while not over.all():
            _, _, terminated, truncated, info = engine.step(engine.expert_message())
            value += info["reward_components"].sum(axis=1)
            over = terminated | truncated
        assert engine.family.closed_forms() == {"best_score": info["score"].mean(), "best_value": value.mean()}
    assert not Household(Knobs(depth=depth, slip=0.1)).closed_forms()
    assert not Household(Knobs(depth=depth, max_turns=10)).closed_forms()


def test_the_expert_succeeds_from_every_start() -> None:
    """All rooms, containers, tasks and places of the one goal object: at most 18 turns."""
    container_room = np.array([ROOMS.index(ROOM_OF[name]) for name in CONTAINERS])
    room_of = np.concatenate([np.arange(5), container_room])
    cases = [
        c for c in itertools.product(range(5), range(7), range(3), range(12)) if room_of[c[3]] != room_of[5 + c[1]]
    ]
    n, family = len(cases), Household(Knobs(depth=1))
    room, container, task, place = np.array(cases).T
    state = family.start(mix(np.arange(n)))
    state["room"][:], state["container"][:], state["task"][:], state["goal"][:, 0] = room, container, task, 0
    state["place"][:, 0], state["known"][:, :5] = place, np.arange(5) == room[:, None]
    rows, turns = np.arange(n), 0
    while not state["reached"].all():
        running = rows[~state["reached"]]
        family.apply(state, running, family.expert(state, running), None)
        turns += 1
    assert turns == 18


BLIND = ["go hall", "open chest", "take mug", "put chest", "use stove", "random", "illegal"]


@pytest.mark.parametrize("policy", BLIND)
def test_blind_policies_are_not_better_than_chance(policy: str) -> None:
    n = 6000
    engine = AgenticVectorEnv(n, family="Household", autoreset_mode="Disabled", num_prompts=n)
    engine.reset(options={"prompt": np.arange(n)})
    random, over = np.random.default_rng(0), np.zeros(n, dtype=bool)
    while not over.all():
        if policy == "random":
            message = engine.grammar.sample(random.random((n, 2)), np.zeros(n, dtype=int))
        elif policy == "illegal":
            message = np.zeros((n, 2), dtype=int)
        else:
            message = np.tile(engine.grammar.encode(*policy.split()), (n, 1))
        _, _, terminated, truncated, info = engine.step(message)
        over = terminated | truncated
    score, chance = info["score"], engine.family.chance()
    assert score.mean() <= chance + 4 * score.std() / np.sqrt(n)
    assert policy == "random" or score.max() == 0


def test_a_fixed_sequence_is_not_better_than_chance() -> None:
    """A good blind plan, for prompts that begin in the kitchen, stays far below the bound."""
    plan = ["take mug", "open fridge", "take mug", "go hall", "take mug", "open chest", "take mug", "put chest",
            "take mug", "go bedroom", "take mug", "open drawer", "put drawer", "take mug", "open wardrobe",
            "put wardrobe", "take mug", "go bathroom", "open basket", "put basket", "take mug", "go study",
            "take mug"]  # fmt: skip
    n = 6000
    engine = AgenticVectorEnv(n, family="Household", autoreset_mode="Disabled", num_prompts=n, depth=1)
    engine.reset(options={"prompt": np.arange(n)})
    for words in plan:
        *_, info = engine.step(np.tile(engine.grammar.encode(*words.split()), (n, 1)))
    assert 0.001 < info["score"].mean() < engine.family.chance() == pytest.approx(2 / 3 * 10 / 35)
    chances = [Household(Knobs(depth=depth)).chance() for depth in (1, 2, 3, 4)]
    assert chances == sorted(chances) and chances[-1] < 0.5
    assert Household(Knobs()).chance() == pytest.approx((2 * 30 + 4) / (3 * 7 * 10))
    assert Household(Knobs(max_turns=2)).chance() == 0.0 and Household(Knobs(max_turns=10_000)).chance() == 1.0


@pytest.mark.parametrize("depth", [1, 4])
def test_state_keys_identify_states(depth: int) -> None:
    """Within a prompt, keys differ exactly where states do; equal states have equal observations."""
    names = ("room", "place", "treatment", "known", "held", "reached")
    by_key: dict[int, tuple[bytes, bytes]] = {}
    by_state: dict[bytes, int] = {}
    revisited = 0
    share = np.linspace(0.1, 0.9, 300)[:, None]
    for engine, observation, info, running, _ in mixed_rollouts(300, share, prompt=3, depth=depth):
        arrays = [engine._state[name] for name in names]
        for row in np.flatnonzero(running | info["is_success"]):
            state = b"".join(array[row].tobytes() for array in arrays)
            key, features = int(info["state_key"][row]), observation[row, :-3].tobytes()
            revisited += key in by_key
            assert by_key.setdefault(key, (state, features)) == (state, features)
            assert by_state.setdefault(state, key) == key
    assert len(by_key) > 100 and revisited > 100 and min(by_key) >= 0
    assert engine.family._place_values[-1] * 5 < 2**62


def test_ended_rows_can_be_described() -> None:
    """Transcripts name treatments, other things in the hand and closed containers; no error after the end."""
    engine = one(task=2, room=4)
    engine._state["known"][0, 4] = 1
    play(engine, "take egg", "open desk")
    text = engine.render()[0].splitlines()
    assert any("hot, into the desk in the study" in line for line in text)
    assert any("egg in your hand" in line and "desk (open)" in line for line in text)
    while not engine._book["terminated"][0]:
        engine.step(engine.expert_message())
    assert "hot mug delivered" in engine.render()[0]
    np.testing.assert_array_equal(engine._book["ground_truth"][0], engine.grammar.encode("put", "desk"))
