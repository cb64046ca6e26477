"""Shop: search a catalogue for the one item that fits a request, choose its options and buy it."""

from __future__ import annotations

import itertools
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
    pick,
    spread_difficulty,
)
from agentic_gym.grammar import Tool
from agentic_gym.knobs import Knobs, check_integer

CATEGORIES = ("boots", "coat", "gloves", "hat", "scarf", "shirt")
ATTRIBUTES = (
    ("cotton", "leather", "linen", "wool"),
    ("plain", "striped", "dotted", "checked"),
    ("slim", "regular", "loose", "tailored"),
    ("handmade", "recycled", "organic", "vintage"),
)
OPTIONS = (
    ("black", "blue", "green", "red"),
    ("small", "medium", "large", "huge"),
    ("short", "midi", "long", "extra-long"),
    ("unlined", "fleece", "padded", "quilted"),
)
N_CATEGORIES, N_VALUES, N_SLOTS = len(CATEGORIES), 4, 4
SLOTS = tuple(f"slot-{index}" for index in range(N_SLOTS))
SEARCH, NEXT, OPEN, CHOOSE, BUY = range(2, 7)
FIRST_CATEGORY = 7
FIRST_SLOT = FIRST_CATEGORY + N_CATEGORIES
FIRST_OPTION = FIRST_SLOT + N_SLOTS

MATCH, PRICE, PERFECT = 40.0, 10.0, 50.0
BEST = MATCH + PRICE + PERFECT
LOWEST_CEILING, N_CEILINGS, HIGHEST_PRICE = 4, 4, 10

CONTENDERS = np.array(list(itertools.combinations(range(N_SLOTS), 2)))
"""The pairs of a page's slots that can look right in the list."""
ITEMS = 1000
"""Where a prompt's draws for its items begin; the request's draws come before."""

# Columns of the state "request", and of an item in the state "shelf"; then come the attributes, then
# the options (in the request the wanted values, in an item the values that are sold out).
CATEGORY, CEILING = range(2)
LIST_PRICE, TOTAL = range(2)
WANTS = 2
# Columns of the state "view".
SHOWN, PAGE, OPENED, FOUND = range(4)
# Values of the state "role".
PLAIN, NEAR_MISS, RIGHT = range(3)
# Values of the state "notes".
REJECTED, FITS = range(2)
# Values of the state "task": what is wrong with a near miss.
WRONG_ATTRIBUTE, SOLD_OUT, TOO_DEAR = range(3)


class Shop(Family):
    """Find the one right item among near misses, choose its options, and buy it.

    ## Description
    Mirrors web shops. The catalogue has 6 categories; each lists its items on ``pages`` pages of 4
    slots. The request names a category, ``depth`` attributes, ``depth`` options (4 values each) and
    a price ceiling. ``search(category)`` shows the first page of a category, ``next()`` the next one
    (after the last page, the first). A page shows each item's list price; ``open(slot)`` opens an
    item of the page, also directly from another item, and shows its attributes, for each option the
    value that is sold out, and its total price. ``choose(option)`` chooses an option of the open
    item unless it is sold out, ``buy()`` buys the item as chosen. Just one item of the category
    fits: the right attributes, no wanted option sold out, a total price within the ceiling. Leaving
    an item (search, next, open) clears the choice; if it is of the wanted category, a note remains
    whether it fits. A message that makes no sense (for example ``buy()`` without an open item) does
    nothing.

    ## Action Space
    ``search(category)``, ``next()``, ``open(slot)``, ``choose(option)``, ``buy()``: 2 token slots,
    plus filler.

    ## Observation Space
    One-hot: the wanted category (6), attributes and options (4 each); the category shown (6), its
    page (``pages``), the open slot (4), the page of the fitting item if noted (``pages``); of the
    open item each attribute (4), the sold-out value of each option (4), the choice of each option
    (4); for each slot of the page the note: rejected, fits (2; empty if there is none). Then the
    price ceiling, the list prices of the 4 slots and the open item's total price, all divided by 10,
    0 where there is none; then the engine's three features (share of turns used, tool failure,
    illegal message).

    ## Starting State
    The request; no category is shown. Category, attributes, options and the ceiling (4 to 7) are
    uniform. On every page two slots, drawn uniformly, are for contenders; the fitting item is one
    of all contenders, each with the same probability. A contender's list price is 0 to 2 below the
    ceiling, any other item's is 1 to 3 above it. Items of the other categories look like those of
    the wanted one.

    ## Rewards
    All components come with ``buy``; in another category than the wanted one they are 0. ``match``:
    40 times the share of the wanted attributes and options that the bought item has. ``price``: 10
    for a total within the ceiling. ``perfect``: 50 if all of this is right. ``illegal``: -1 for each
    illegal message. The score is ``(match + price + perfect) / 100``; success is a perfect purchase.

    ## Episode End
    Termination by ``buy`` of an open item; truncation, worth 0, after ``max_turns`` (default
    ``3 * pages + depth + 2``).

    ## Arguments
    Common knobs, and:

    * ``pages`` (default 3, 1 to 4): pages of a category.

    ``depth`` (default 2, 1 to 4): attributes wanted, and options wanted. ``difficulty`` (default 0.7):
    mean probability that a contender, other than the fitting item, is a near miss, which shows only
    when it is opened; if not, it is as dear as the rest. Each prompt has its own probability. Tasks
    say what is wrong with the prompt's near misses, and are equally likely: ``attribute`` (one
    attribute), ``option`` (one wanted option is sold out), ``budget`` (the total is above the
    ceiling).

    ## Known truth
    Best 100, worst 0; a failed rollout gets less than 50. A policy that ignores the observation buys
    from the wanted category with probability 1/6, and any position there holds the fitting item with
    probability ``1 / (4 * pages)``; a wanted option of it is chosen blindly with probability 1/3 at
    most (1/4, and 1/12 that the last choice is sold out and leaves the right one before it). With the
    default knobs such a policy has an expected score of 0.031 at most.

    ## References
    Mirrors WebShop (Yao et al. 2022): graded match of attributes, options and price, one purchase.

    ## Version History
    * v0: initial version.
    """

    name = "Shop"
    components = ("match", "price", "perfect")
    default_depth = 2
    depth_range = (1, 4)
    default_difficulty = 0.7
    tasks = ("attribute", "option", "budget")
    value_range = (0.0, BEST)
    illegal_penalty = -1.0

    def __init__(self, knobs: Knobs, pages: int = 3) -> None:
        """See the class docstring."""
        self.pages = check_integer("pages", pages, 1, 4)
        super().__init__(knobs)
        self._attributes = slice(WANTS, WANTS + self.depth)
        self._options = slice(WANTS + self.depth, WANTS + 2 * self.depth)
        wants, view = [N_VALUES] * 2 * self.depth, [N_CATEGORIES, self.pages, N_SLOTS, self.pages]
        choice, notes = [N_VALUES] * self.depth, [2] * N_SLOTS
        self._one_hot = OneHot(N_CATEGORIES, *wants, *view, *wants, *choice, *notes)
        self._numbers = 2 + N_SLOTS
        self.n_features = self._one_hot.width + self._numbers
        # Every field can be empty.
        sizes = [*view, *choice, *[2] * N_SLOTS * self.pages]
        self._place_values = np.cumprod([1, *(size + 1 for size in sizes)])

    def chance(self) -> float:
        """The expected score of buying at any fixed position with the best blind choice of options."""
        depth, unsold = self.depth, 1.0 / 3.0
        right = MATCH * (0.5 + 0.5 * unsold) + PRICE + PERFECT * unsold**depth
        near = [
            MATCH * (depth - 1 + depth * unsold) / (2 * depth) + PRICE,
            MATCH * (depth + (depth - 1) * unsold) / (2 * depth) + PRICE,
            MATCH * (0.5 + 0.5 * unsold),
        ]
        plain = MATCH / N_VALUES
        positions = N_SLOTS * self.pages
        misses = self.difficulty * (2 * self.pages - 1)
        total = right + misses * sum(near) / len(near) + (positions - 1 - misses) * plain
        return total / positions / N_CATEGORIES / BEST

    def _longest(self) -> int:
        """A search, all pages, all contenders, the choices, and the purchase."""
        return 1 + (self.pages - 1) + 2 * self.pages + self.depth + 1

    def closed_forms(self) -> dict[str, float]:
        """Without tool failures the expert finds every item in time."""
        return {} if self.knobs.slip or self.turn_limit < self._longest() else {"best_score": 1.0, "best_value": BEST}

    def default_max_turns(self) -> int:
        """The longest search, and one mistake."""
        return self._longest() + 1

    def tools(self) -> Sequence[Tool]:
        """The five tools; their order and slots fix the token ids above."""
        options = tuple(value for values in OPTIONS[: self.depth] for value in values)
        choose = Tool("choose", (options,))
        return [Tool("search", (CATEGORIES,)), Tool("next"), Tool("open", (SLOTS,)), choose, Tool("buy")]

    def start(self, key: streams.Keys) -> State:
        """Draw the request and every position's role; items are functions of the key."""
        n, depth, pages = len(key), self.depth, self.pages
        draw = streams.uniform(key[:, None], np.arange(2 + 2 * pages))
        (category, ceiling, task), rest = streams.digits(draw[:, 0], N_CATEGORIES, N_CEILINGS, len(self.tasks))
        share = spread_difficulty(self.difficulty, rest)
        wanted, rest = streams.digits(draw[:, 1], *[N_VALUES] * 2 * depth)
        request = np.stack([category, LOWEST_CEILING + ceiling, *wanted], axis=1).astype(np.int8)
        # Contenders are numbered page by page, two each; the first draw of a page also places them.
        (chosen,), chance = streams.digits(draw[:, 2:], len(CONTENDERS))
        (right,), _ = streams.digits(rest, 2 * pages)
        kind = np.where(chance < share[:, None], NEAR_MISS, PLAIN)
        kind[np.arange(n), right] = RIGHT
        slot = CONTENDERS[chosen[:, ::2]].reshape(n, 2 * pages)
        role = np.full((n, pages, N_SLOTS), PLAIN, dtype=np.int8)
        role[np.arange(n)[:, None], np.arange(2 * pages) // 2, slot] = kind
        return {
            "key": key,
            "request": request,
            "task": task.astype(np.int8),
            "role": role,
            "answer": slot[np.arange(n), right].astype(np.int8),
            "shelf": np.zeros((n, N_SLOTS, WANTS + 2 * depth), dtype=np.int8),
            "view": np.full((n, 4), NOTHING, dtype=np.int8),
            "choice": np.full((n, depth), NOTHING, dtype=np.int8),
            "notes": np.full((n, pages, N_SLOTS), NOTHING, dtype=np.int8),
            "bought": np.zeros(n, dtype=np.bool_),
            "points": np.zeros(n),
        }

    def _items(self, state: State, rows: IntArray) -> npt.NDArray[np.int8]:
        """Return the items (n, 4, 2 + 2 * depth) of the page that is shown."""
        depth, view, request = self.depth, state["view"].take(rows, axis=0), state["request"].take(rows, axis=0)
        first = (view[:, SHOWN].astype(np.int64) * self.pages + view[:, PAGE]) * N_SLOTS
        draw = streams.uniform(state["key"][rows, None], ITEMS + first[:, None] + np.arange(N_SLOTS))
        # Twelve values serve as four or as three, whichever an item's role asks for.
        digits, _ = streams.digits(draw, 3, 6, depth, *[12] * 2 * depth)
        step, fee, fault = (digit.astype(np.int8) for digit in digits[:3])
        random = np.stack(digits[3:], axis=2).astype(np.int8)
        role = pick(state["role"], rows, view[:, PAGE])
        task = np.where(role == NEAR_MISS, state["task"][rows, None], NOTHING)
        ceiling, wanted = request[:, CEILING, None], request[:, None, WANTS:]
        plain, other = role == PLAIN, (wanted + 1 + random % 3) % N_VALUES
        items = np.empty((len(rows), N_SLOTS, WANTS + 2 * depth), dtype=np.int8)
        items[:, :, LIST_PRICE] = np.where(plain, ceiling + 1 + step, ceiling - step)
        total = np.where(plain, items[:, :, LIST_PRICE] + fee % 3, ceiling - step + fee % (step + 1))
        items[:, :, TOTAL] = np.minimum(np.where(task == TOO_DEAR, ceiling + 1 + fee % 3, total), HIGHEST_PRICE)
        at_fault = fault[:, :, None] == np.arange(depth)
        wrong = at_fault & (task == WRONG_ATTRIBUTE)[:, :, None]
        gone = at_fault & (task == SOLD_OUT)[:, :, None]
        values = np.where(plain[:, :, None], random % N_VALUES, other)
        keep = ~plain[:, :, None] & ~wrong
        items[:, :, self._attributes] = np.where(keep, wanted[:, :, :depth], values[:, :, :depth])
        items[:, :, self._options] = np.where(gone, wanted[:, :, depth:], values[:, :, depth:])
        return items

    def _open_item(self, state: State, rows: IntArray) -> npt.NDArray[np.int8]:
        """Return the open item (n, 2 + 2 * depth); any item where none is open."""
        return pick(state["shelf"], rows, np.maximum(state["view"][rows, OPENED], 0))

    def _fits(self, request: npt.NDArray[np.int8], item: npt.NDArray[np.int8]) -> BoolArray:
        same = item == request
        same[:, self._options] ^= True
        return np.asarray(same[:, WANTS:].all(axis=1) & (item[:, TOTAL] <= request[:, CEILING]))

    def _page_notes(self, state: State, rows: IntArray) -> npt.NDArray[np.int8]:
        """Return the notes (n, 4) on the items that are listed; they are all of the wanted category."""
        view = state["view"].take(rows, axis=0)
        notes = pick(state["notes"], rows, np.maximum(view[:, PAGE], 0))
        notes[view[:, SHOWN] != state["request"][rows, CATEGORY]] = NOTHING
        return notes

    def observe(self, state: State, rows: IntArray) -> Features:
        """Show the request, the page, the open item, the choice and the notes."""
        request, view = state["request"].take(rows, axis=0), state["view"].take(rows, axis=0)
        item = self._open_item(state, rows)
        closed = view[:, OPENED] == NOTHING
        item[closed] = NOTHING
        notes = self._page_notes(state, rows)
        features = self._one_hot(
            request[:, :1], request[:, WANTS:], view, item[:, WANTS:], state["choice"].take(rows, axis=0), notes,
            spare=self._numbers,
        )  # fmt: skip
        features[:, -self._numbers] = request[:, CEILING]
        features[:, -self._numbers + 1 : -1] = state["shelf"].take(rows, axis=0)[:, :, LIST_PRICE]
        features[:, -1] = np.maximum(item[:, TOTAL], 0)
        features[:, -self._numbers :] /= HIGHEST_PRICE
        return features

    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Buy an open item that fits, else go back to a noted one, else open the next contender."""
        request, view = state["request"].take(rows, axis=0), state["view"].take(rows, axis=0)
        there = view[:, SHOWN] == request[:, CATEGORY]
        fits = there & (view[:, OPENED] != NOTHING) & self._fits(request, self._open_item(state, rows))
        missing = state["choice"].take(rows, axis=0) != request[:, self._options]
        kind = missing.argmax(axis=1)
        option = kind * N_VALUES + request[np.arange(len(rows)), WANTS + self.depth + kind]
        notes = self._page_notes(state, rows)
        noted = view[:, FOUND] != NOTHING
        prices = state["shelf"].take(rows, axis=0)[:, :, LIST_PRICE]
        untried = (prices <= request[:, CEILING, None]) & (notes == NOTHING)
        untried &= view[:, OPENED, None] != np.arange(N_SLOTS)
        target = np.where(noted[:, None], notes == FITS, untried)
        # A search leads to the first page from anywhere.
        lost = ~there | (noted & (view[:, FOUND] == 0) & (view[:, PAGE] != 0))
        tool = np.select(
            [fits & missing.any(axis=1), fits, lost, target.any(axis=1)], [CHOOSE, BUY, SEARCH, OPEN], NEXT
        )
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = tool
        arguments = [FIRST_OPTION + option, FIRST_CATEGORY + request[:, CATEGORY], FIRST_SLOT + target.argmax(axis=1)]
        message[:, 1] = np.select([tool == CHOOSE, tool == SEARCH, tool == OPEN], arguments)
        return message

    def ground_truth(self, state: State, rows: IntArray) -> IntArray:
        """The opening of the fitting item (on its page)."""
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = OPEN
        message[:, 1] = FIRST_SLOT + state["answer"][rows]
        return message

    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Carry out one click."""
        tool, view = message[:, 0], state["view"].take(rows, axis=0)
        shown, opened = view[:, SHOWN] != NOTHING, view[:, OPENED] != NOTHING
        turned = indices((tool == SEARCH) | ((tool == NEXT) & shown))
        looked = indices((tool == OPEN) & shown)
        chosen = indices((tool == CHOOSE) & opened)
        bought = indices((tool == BUY) & opened)
        if len(turned):
            self._turn(state, rows[turned], message[turned])
        if len(looked):
            self._leave(state, rows[looked])
            state["view"][rows[looked], OPENED] = message[looked, 1] - FIRST_SLOT
        if len(chosen):
            self._choose(state, rows[chosen], message[chosen, 1] - FIRST_OPTION)
        components = np.zeros((len(rows), len(self.components)))
        if len(bought):
            components[bought] = self._buy(state, rows[bought])
        return Outcome(components, state["bought"][rows])

    def _leave(self, state: State, rows: IntArray) -> None:
        """Note whether the open item fits, and close it."""
        view, request = state["view"].take(rows, axis=0), state["request"].take(rows, axis=0)
        meant = indices((view[:, OPENED] != NOTHING) & (view[:, SHOWN] == request[:, CATEGORY]))
        if len(meant):
            left, page = rows[meant], view[meant, PAGE]
            fits = self._fits(request[meant], self._open_item(state, left))
            state["notes"][left, page, view[meant, OPENED]] = np.where(fits, FITS, REJECTED)
            state["view"][left[fits], FOUND] = page[fits]
        state["view"][rows, OPENED] = NOTHING
        state["choice"][rows] = NOTHING

    def _turn(self, state: State, rows: IntArray, message: IntArray) -> None:
        self._leave(state, rows)
        search = message[:, 0] == SEARCH
        shown, page = state["view"][rows, SHOWN], state["view"][rows, PAGE]
        state["view"][rows, SHOWN] = np.where(search, message[:, 1] - FIRST_CATEGORY, shown)
        state["view"][rows, PAGE] = np.where(search, 0, (page + 1) % self.pages)
        state["shelf"][rows] = self._items(state, rows)

    def _choose(self, state: State, rows: IntArray, option: IntArray) -> None:
        kind, value = option // N_VALUES, option % N_VALUES
        sold_out = self._open_item(state, rows)[np.arange(len(rows)), WANTS + self.depth + kind]
        state["choice"][rows, kind] = np.where(sold_out == value, state["choice"][rows, kind], value)

    def _buy(self, state: State, rows: IntArray) -> FloatArray:
        request, item = state["request"].take(rows, axis=0), self._open_item(state, rows)
        meant = state["view"][rows, SHOWN] == request[:, CATEGORY]
        right = item == request
        right[:, self._options] = state["choice"].take(rows, axis=0) == request[:, self._options]
        share = right[:, WANTS:].mean(axis=1)
        affordable = item[:, TOTAL] <= request[:, CEILING]
        components = np.stack([MATCH * share, PRICE * affordable, PERFECT * (affordable & (share == 1.0))], axis=1)
        components *= meant[:, None]
        state["bought"][rows] = True
        state["points"][rows] = components.sum(axis=1)
        return np.asarray(components, dtype=np.float64)

    def score(self, state: State, rows: IntArray) -> FloatArray:
        """Points of 100."""
        return np.asarray(state["points"][rows] / BEST, dtype=np.float64)

    def success(self, state: State, rows: IntArray) -> BoolArray:
        """The purchase is perfect."""
        return np.asarray(state["points"][rows] == BEST)

    def task(self, state: State, rows: IntArray) -> IntArray:
        """What is wrong with the near misses."""
        return np.asarray(state["task"][rows], dtype=np.int64)

    def state_key(self, state: State, rows: IntArray) -> IntArray:
        """What is shown, chosen, noted and bought, as one number."""
        notes = state["notes"].take(rows, axis=0).reshape(len(rows), -1)
        columns = np.concatenate([state["view"].take(rows, axis=0), state["choice"].take(rows, axis=0), notes], axis=1)
        return (columns - NOTHING) @ self._place_values[:-1] + state["bought"][rows] * self._place_values[-1]

    def describe(self, state: State, row: int) -> str:
        """Read the request, and what the screen shows."""
        if state["bought"][row]:
            return f"Bought; the item earns {state['points'][row]:g} of {BEST:g} points."
        category, ceiling, *wants = state["request"][row].tolist()
        attributes, options = ATTRIBUTES[: self.depth], OPTIONS[: self.depth]
        text = f"Wanted: {CATEGORIES[category]}, {_words((*attributes, *options), wants)}, for at most {ceiling}."
        shown, page, opened, found = state["view"][row].tolist()
        if shown == NOTHING:
            return text
        marks = {NOTHING: "", REJECTED: " (rejected)", FITS: " (fits)"}
        notes = self._page_notes(state, np.array([row]))[0].tolist()
        prices = [f"{price}{marks[n]}" for price, n in zip(state["shelf"][row, :, LIST_PRICE], notes, strict=True)]
        text += f" {CATEGORIES[shown].capitalize()}, page {page + 1} of {self.pages}, from: {', '.join(prices)}."
        if found != NOTHING:
            text += f" An item on page {found + 1} of {CATEGORIES[category]} fits."
        if opened != NOTHING:
            _, total, *values = state["shelf"][row, opened].tolist()
            text += f" Slot-{opened}: {_words(attributes, values)}, {total} in all"
            text += f"; sold out: {_words(options, values[self.depth :])}"
            text += f"; chosen: {_words(options, state['choice'][row].tolist()) or 'nothing'}."
        return text


def _words(names: Sequence[Sequence[str]], values: Sequence[int]) -> str:
    """Name the values, one of each kind; empty ones are left out."""
    return ", ".join(kind[value] for kind, value in zip(names, values, strict=False) if value != NOTHING)
