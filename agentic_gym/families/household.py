"""Household: find things in a house, treat them where asked, and bring them to a container."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.family import (
    NOTHING,
    BoolArray,
    Draws,
    Family,
    Features,
    FloatArray,
    IntArray,
    OneHot,
    Outcome,
    State,
    indices,
    spread_difficulty,
)
from agentic_gym.grammar import Tool
from agentic_gym.knobs import Knobs

ROOMS = ("kitchen", "hall", "bedroom", "bathroom", "study")
CONTAINERS = ("fridge", "cupboard", "chest", "wardrobe", "drawer", "basket", "desk")
OBJECTS = ("apple", "egg", "mug", "pan", "spoon")
APPLIANCES = ("sink", "stove")
TREATED = ("clean", "hot")
N_ROOMS, N_CONTAINERS, N_OBJECTS = len(ROOMS), len(CONTAINERS), len(OBJECTS)
GO, OPEN, TAKE, PUT, USE = 2, 3, 4, 5, 6
FIRST_ROOM = 7
FIRST_CONTAINER = FIRST_ROOM + N_ROOMS
FIRST_OBJECT = FIRST_CONTAINER + N_CONTAINERS
FIRST_APPLIANCE = FIRST_OBJECT + N_OBJECTS

# Places of an object: in plain sight in a room, in a container, in the agent's hand.
HAND = N_ROOMS + N_CONTAINERS
PLACES = HAND + 1
CONTAINER_ROOM = np.array([0, 0, 1, 2, 2, 3, 4], dtype=np.int8)
PLACE_ROOM = np.concatenate([np.arange(N_ROOMS), CONTAINER_ROOM, [NOTHING]]).astype(np.int8)
APPLIANCE_ROOM = np.array([3, 0], dtype=np.int8)
IN_ROOM = np.bincount(CONTAINER_ROOM)
FIRST_IN_ROOM = np.cumsum(IN_ROOM) - IN_ROOM
LAST_IN_ROOM = FIRST_IN_ROOM + IN_ROOM - 1
# Whereabouts of a goal object beyond the rooms.
IN_HAND, DELIVERED = N_ROOMS, N_ROOMS + 1

ORDERS = np.array(list(itertools.permutations(range(N_OBJECTS))), dtype=np.int8)
GOAL = 10.0


class Household(Family):
    """Search a house for things, wash or heat them if asked, and bring them to a container.

    ## Description
    Mirrors household agents. The house is a ring of 5 rooms: kitchen (fridge, cupboard, stove), hall
    (chest), bedroom (wardrobe, drawer), bathroom (basket, sink), study (desk), and back to the
    kitchen. Five objects lie in the rooms or in the containers, which are closed at first; where
    they are is hidden until the agent is in the room and, if need be, has opened the container. The
    goal names ``depth`` objects and a container into which all of them must be put, either as they
    are (``fetch``), washed (``clean``) or heated (``heat``).

    ``go(room)`` leads to one of the two neighbouring rooms; ``open(container)`` opens one in the
    same room for good; ``take(object)`` takes one that is in sight in the same room, if the hand is
    empty; ``put(container)`` puts what is in the hand into an open container in the same room;
    ``use(appliance)`` makes what is in the hand clean at the sink, or hot on the stove, instead of
    what it was. Any other message changes nothing.

    ## Action Space
    ``go(room)``, ``open(container)``, ``take(object)``, ``put(container)``, ``use(appliance)``:
    2 token slots, plus filler.

    ## Observation Space
    One-hot: own room (5), treatment asked for (2: clean, hot; empty if none), the goal's container
    (7). Flags: rooms visited (5), containers opened (7), objects in sight in the own room (5).
    One-hot: object in the hand (5). Then for each of the ``depth`` goal objects: which it is (5),
    its whereabouts if seen (7: the 5 rooms, hand, delivered as asked), its treatment if seen (2:
    clean, hot). Then the engine's three features (share of turns used, tool failure, illegal
    message).

    ## Starting State
    A room, the goal's container, the task and the goal's objects, each uniform. Every object is in
    one of the 4 rooms without the goal's container, all equally likely; it is in one of the room's
    containers, all equally likely, with a probability of the prompt's own, else in plain sight.

    ## Rewards
    Component ``goal``: 10 when all the goal's objects are in its container as asked, else 0.
    ``illegal``: -0.1 for each illegal message. The score is 1 if the goal was reached, else 0.

    ## Episode End
    Termination when the goal is reached; truncation after ``max_turns`` (default
    ``14 + 9 * depth``).

    ## Arguments
    Common knobs. ``depth`` (default 3, 1 to 4): objects of the goal. ``difficulty`` (default 0.5):
    mean probability that an object is in a closed container; each prompt has its own. Tasks:
    ``fetch``, ``clean``, ``heat``, equally likely.

    ## Known truth
    Best 10: a search round the house in a fixed order ends in time whatever the prompt (at most 18,
    29, 40 and 49 turns for 1 to 4 objects). Worst 0. A policy that ignores the observation sends a
    fixed sequence of messages. For each object that is to arrive in a container, two of them serve no
    other pair of object and container: the ``put``, and before it the ``go`` into that room or another
    ``take`` there; each container must be opened besides. One such delivery suits at most 2 of the 3
    tasks. By default 19 of them, into 3 containers, fit into the 41 turns: all objects into each of
    these, treated alike, and 4 objects once more for the third task. They serve ``2 * 3 * 10 + 4`` of
    the ``3 * 7 * 10`` equally likely goals: 0.31 at most.

    ## References
    ALFWorld (Shridhar et al. 2021), as in GiGPO (Feng et al. 2025).

    ## Version History
    * v0: initial version.
    """

    name = "Household"
    components = ("goal",)
    default_depth = 3
    depth_range = (1, 4)
    tasks = ("fetch", "clean", "heat")
    value_range = (0.0, GOAL)
    illegal_penalty = -0.1

    def __init__(self, knobs: Knobs) -> None:
        """See the class docstring."""
        super().__init__(knobs)
        seen = [1] * (N_ROOMS + N_CONTAINERS + N_OBJECTS)
        slots = [N_OBJECTS] * self.depth + [N_ROOMS + 2] * self.depth + [len(TREATED)] * self.depth
        self._one_hot = OneHot(N_ROOMS, len(TREATED), N_CONTAINERS, *seen, N_OBJECTS, *slots)
        self.n_features = self._one_hot.width
        sizes = [PLACES] * N_OBJECTS + [len(TREATED) + 1] * N_OBJECTS + [2] * HAND
        self._place_values = np.cumprod([1, *sizes])

    def chance(self) -> float:
        """Count the goals for which a fixed sequence of messages has the turns, see "Known truth"."""
        best = 0
        for used in range(1, N_CONTAINERS + 1):
            deliveries = max(0, self.turn_limit - used) // 2
            first = min(deliveries, used * N_OBJECTS)
            # The same pair can be delivered again with another treatment, for the third task.
            again = min(deliveries - first, first)
            best = max(best, 2 * self._object_sets(first) + self._object_sets(again))
        return best / (len(self.tasks) * self._object_sets(N_CONTAINERS * N_OBJECTS))

    def _object_sets(self, deliveries: int) -> int:
        """How many sets of ``depth`` objects share a container, at most; to fill one after the other is best."""
        filled, rest = divmod(deliveries, N_OBJECTS)
        return filled * math.comb(N_OBJECTS, self.depth) + math.comb(rest, self.depth)

    def closed_forms(self) -> dict[str, float]:
        """Without tool failures the expert reaches every goal in time."""
        if self.knobs.slip or self.turn_limit < self.default_max_turns():
            return {}
        return {"best_score": 1.0, "best_value": GOAL}

    def default_max_turns(self) -> int:
        """Room for the longest search, for each object's way, and for a few mistakes."""
        return 14 + 9 * self.depth

    def tools(self) -> Sequence[Tool]:
        """The five tools; their order and slots fix the token ids above."""
        return [
            Tool("go", (ROOMS,)),
            Tool("open", (CONTAINERS,)),
            Tool("take", (OBJECTS,)),
            Tool("put", (CONTAINERS,)),
            Tool("use", (APPLIANCES,)),
        ]

    def start(self, key: streams.Keys) -> State:
        """Draw the goal, the agent's room, and where everything is."""
        n = len(key)
        draw = streams.uniform(key[:, None], np.arange(N_OBJECTS + 2))
        share = spread_difficulty(self.difficulty, draw[:, :1])
        (room, container, task, order), _ = streams.digits(
            draw[:, 1], N_ROOMS, N_CONTAINERS, len(self.tasks), len(ORDERS)
        )
        (step, both), rest = streams.digits(draw[:, 2:], N_ROOMS - 1, 2)
        # Never in the room of the goal's container, so that every goal object must be carried.
        place_room = (CONTAINER_ROOM[container][:, None] + 1 + step) % N_ROOMS
        # A room has one container or two, so that one binary digit chooses evenly.
        inside = N_ROOMS + np.where(both == 1, LAST_IN_ROOM[place_room], FIRST_IN_ROOM[place_room])
        known = np.zeros((n, PLACES), dtype=np.int8)
        known[np.arange(n), room] = 1
        known[:, HAND] = 1
        return {
            "room": room.astype(np.int8),
            "container": container.astype(np.int8),
            "task": task.astype(np.int8),
            "goal": ORDERS[order, : self.depth],
            "place": np.where(rest < share, inside, place_room).astype(np.int8),
            "treatment": np.zeros((n, N_OBJECTS), dtype=np.int8),
            "known": known,
            "held": np.full(n, NOTHING, dtype=np.int8),
            "reached": np.zeros(n, dtype=np.bool_),
        }

    def _goal(self, state: State, rows: IntArray) -> tuple[npt.NDArray[np.int8], ...]:
        """Return objects, whereabouts if seen, and treatment if seen of the goal's slots, each (n, depth)."""
        goal = state["goal"].take(rows, axis=0)
        at = rows[:, None] * N_OBJECTS + goal
        place, treatment = state["place"].reshape(-1).take(at), state["treatment"].reshape(-1).take(at)
        seen = state["known"].reshape(-1).take(rows[:, None] * PLACES + place) == 1
        task, container = state["task"][rows, None], state["container"][rows, None]
        delivered = (place == N_ROOMS + container) & ((task == 0) | (treatment == task))
        where = np.where(place == HAND, np.int8(IN_HAND), PLACE_ROOM[place])
        where = np.where(delivered, np.int8(DELIVERED), where)
        return goal, np.where(seen, where, np.int8(NOTHING)), np.where(seen, treatment, np.int8(0))

    def observe(self, state: State, rows: IntArray) -> Features:
        """Show the goal, what has been seen of its objects, and what is here."""
        room, known = state["room"][rows, None], state["known"].take(rows, axis=0)
        place = state["place"].take(rows, axis=0)
        seen = state["known"].reshape(-1).take(rows[:, None] * PLACES + place)
        here = seen * (PLACE_ROOM[place] == room)
        goal, where, treatment = self._goal(state, rows)
        return self._one_hot(
            room, state["task"][rows, None] - 1, state["container"][rows, None],
            known[:, :HAND] - 1, here - 1, state["held"][rows, None], goal, where, treatment - 1,
        )  # fmt: skip

    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Treat and deliver what is in the hand, else fetch what was seen, else search clockwise."""
        n, every = len(rows), np.arange(len(rows))
        room, held, task = (state[name][rows].astype(np.int64) for name in ("room", "held", "task"))
        container, known = state["container"][rows].astype(np.int64), state["known"].take(rows, axis=0)
        goal, where, treatment = self._goal(state, rows)
        # The slot in hand, else the first one seen and not delivered.
        urgency = np.where(where == IN_HAND, 2, (where != NOTHING) & (where != DELIVERED))
        slot = urgency.argmax(axis=1)
        urgency, where, treatment, wanted = (array[every, slot] for array in (urgency, where, treatment, goal))
        carrying, fetching, burdened = urgency == 2, urgency == 1, (urgency < 2) & (held != NOTHING)
        treating = carrying & (task > 0) & (treatment != task)
        goal_room = np.where(treating, APPLIANCE_ROOM[task - 1], CONTAINER_ROOM[container])
        target = np.where(carrying, goal_room, np.where(fetching, where, NOTHING))
        first, last = FIRST_IN_ROOM[room], LAST_IN_ROOM[room]
        first_open, last_open = known[every, N_ROOMS + first] == 1, known[every, N_ROOMS + last] == 1
        container_open = known[every, N_ROOMS + container] == 1
        clockwise = (target == NOTHING) | ((target - room) % N_ROOMS <= N_ROOMS // 2)
        onwards = (room + np.where(clockwise, 1, -1)) % N_ROOMS
        # What to do, in order of precedence, with the tool and its argument.
        choices = (
            (burdened & first_open, PUT, FIRST_CONTAINER + first),
            (burdened & last_open, PUT, FIRST_CONTAINER + last),
            (burdened, OPEN, FIRST_CONTAINER + first),
            ((carrying | fetching) & (room != target), GO, FIRST_ROOM + onwards),
            (treating, USE, FIRST_APPLIANCE + task - 1),
            (carrying & container_open, PUT, FIRST_CONTAINER + container),
            (carrying, OPEN, FIRST_CONTAINER + container),
            (fetching, TAKE, FIRST_OBJECT + wanted),
            (~first_open, OPEN, FIRST_CONTAINER + first),
            (~last_open, OPEN, FIRST_CONTAINER + last),
        )
        message = np.zeros((n, self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = np.select([c[0] for c in choices], [c[1] for c in choices], GO)
        message[:, 1] = np.select([c[0] for c in choices], [c[2] for c in choices], FIRST_ROOM + onwards)
        return message

    def ground_truth(self, state: State, rows: IntArray) -> IntArray:
        """To put the last object into the goal's container."""
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = PUT
        message[:, 1] = FIRST_CONTAINER + state["container"][rows]
        return message

    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Carry out one tool call."""
        tool = message[:, 0]
        calls = {GO: self._go, OPEN: self._open, TAKE: self._take, PUT: self._put, USE: self._use}
        for token, carry_out in calls.items():
            chosen = indices(tool == token)
            if len(chosen):
                carry_out(state, rows[chosen], message[chosen, 1])
        reached = state["reached"][rows]
        return Outcome((GOAL * reached)[:, None], reached)

    def _go(self, state: State, rows: IntArray, argument: IntArray) -> None:
        room = argument - FIRST_ROOM
        distance = (room - state["room"][rows]) % N_ROOMS
        near = (distance == 1) | (distance == N_ROOMS - 1)
        rows, room = rows[near], room[near]
        state["room"][rows] = room
        state["known"][rows, room] = 1

    def _open(self, state: State, rows: IntArray, argument: IntArray) -> None:
        place = N_ROOMS + argument - FIRST_CONTAINER
        here = PLACE_ROOM[place] == state["room"][rows]
        state["known"][rows[here], place[here]] = 1

    def _take(self, state: State, rows: IntArray, argument: IntArray) -> None:
        item = argument - FIRST_OBJECT
        place = state["place"][rows, item]
        able = (state["held"][rows] == NOTHING) & (PLACE_ROOM[place] == state["room"][rows])
        able &= state["known"][rows, place] == 1
        rows, item = rows[able], item[able]
        state["place"][rows, item] = HAND
        state["held"][rows] = item

    def _put(self, state: State, rows: IntArray, argument: IntArray) -> None:
        place = N_ROOMS + argument - FIRST_CONTAINER
        able = (state["held"][rows] != NOTHING) & (PLACE_ROOM[place] == state["room"][rows])
        able &= state["known"][rows, place] == 1
        rows = rows[able]
        state["place"][rows, state["held"][rows]] = place[able]
        state["held"][rows] = NOTHING
        _, where, _ = self._goal(state, rows)
        state["reached"][rows] = (where == DELIVERED).all(axis=1)

    def _use(self, state: State, rows: IntArray, argument: IntArray) -> None:
        appliance = argument - FIRST_APPLIANCE
        able = (state["held"][rows] != NOTHING) & (APPLIANCE_ROOM[appliance] == state["room"][rows])
        rows = rows[able]
        state["treatment"][rows, state["held"][rows]] = appliance[able] + 1

    def score(self, state: State, rows: IntArray) -> FloatArray:
        """1 if the goal was reached."""
        return state["reached"][rows].astype(np.float64)

    def success(self, state: State, rows: IntArray) -> BoolArray:
        """The goal was reached."""
        return np.asarray(state["reached"][rows])

    def task(self, state: State, rows: IntArray) -> IntArray:
        """What is to be done with the objects on their way."""
        return state["task"][rows].astype(np.int64)

    def state_key(self, state: State, rows: IntArray) -> IntArray:
        """Where everything and the agent is, and what has been seen, as one number."""
        arrays = (state["place"], state["treatment"], state["known"][:, :HAND])
        key = state["room"][rows] * self._place_values[-1]
        for array, values in zip(arrays, np.split(self._place_values[:-1], [N_OBJECTS, 2 * N_OBJECTS]), strict=True):
            key += array.take(rows, axis=0) @ values
        return key

    def describe(self, state: State, row: int) -> str:
        """State the goal, the room, what is here, and what is known of the goal's objects."""
        goal, where, treatment = (array[0].tolist() for array in self._goal(state, np.array([row])))
        container, task, room = (int(state[name][row]) for name in ("container", "task", "room"))
        things = " and ".join(OBJECTS[item] for item in goal)
        text = f"Goal: {things}{', ' + TREATED[task - 1] + ',' if task else ''} into the {CONTAINERS[container]}"
        known = state["known"][row]
        places = state["place"][row]
        here = [OBJECTS[item] for item in np.flatnonzero((known[places] == 1) & (PLACE_ROOM[places] == room))]
        doors = [
            f"{CONTAINERS[index]} ({'open' if known[N_ROOMS + index] else 'closed'})"
            for index in range(FIRST_IN_ROOM[room], LAST_IN_ROOM[room] + 1)
        ]
        text += f" in the {ROOMS[CONTAINER_ROOM[container]]}. You are in the {ROOMS[room]}: "
        text += f"{', '.join([*doors, *here])}."
        held, names = int(state["held"][row]), (*(f"in the {name}" for name in ROOMS), "in your hand", "delivered")
        facts = [f"{OBJECTS[held]} in your hand"] if held != NOTHING and held not in goal else []
        facts += [
            f"{TREATED[how - 1] + ' ' if how else ''}{OBJECTS[item]} {names[at]}"
            for item, at, how in zip(goal, where, treatment, strict=True)
            if at != NOTHING
        ]
        return text + (f" Known: {', '.join(facts)}." if facts else "")
