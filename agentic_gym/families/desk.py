"""Desk: decide on quotes after paying for evidence, with heavy-tailed profits."""

from __future__ import annotations

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
    pick,
    spread_difficulty,
)
from agentic_gym.grammar import Tool
from agentic_gym.knobs import Knobs, check_integer, check_number

SECTORS = ("banks", "energy", "retail", "steel", "ships", "tech")
SOURCES = ("filings", "broker", "wire", "audit")
LOTS = ("one-lot", "two-lots", "three-lots")
SPECIALIST = np.array([0, 1, 2, 1, 2, 0])
"""The index of the source that can be trusted in each sector."""
N_REPORTERS, AUDIT = len(SOURCES) - 1, len(SOURCES) - 1
MOST = len(LOTS)
LOWEST_PRICE, MOST_PRICES = MOST, 60
N_GAPS = 2 * MOST + 1
RESEARCH, BUY, SELL, PASS = 2, 3, 4, 5
FIRST_SOURCE = 6
FIRST_LOT = FIRST_SOURCE + len(SOURCES)

FEE = np.array([1, 1, 1, 2])
FEE_UNIT = 0.1
SMALLEST_SIZE = 5.0
"""A wrong decision loses at least half of it: as much as all reports on five quotes cost."""
LIMIT = 1000.0
BEST_MULTIPLE = MOST**2 / 2
"""Profit of the right deal at the largest gap, in units of its size."""

# Columns of the state "quote"; every reporter has two, of which one is empty.
SECTOR, PRICE, WORTH, SIDE = range(4)
SIZE = WORTH + 2 * N_REPORTERS
# VISIBLE[asked] says which columns from WORTH on the agent has seen; asked has one bit per source.
_SOURCE_OF_COLUMN = np.array([*np.repeat(np.arange(N_REPORTERS), 2), AUDIT])
VISIBLE = (np.arange(2 ** len(SOURCES))[:, None] >> _SOURCE_OF_COLUMN) % 2 == 1


class Desk(Family):
    """Research quotes for a fee and trade them: outcomes are heavy-tailed, decisions are right or wrong.

    ## Description
    Mirrors trading agents. A prompt is a sequence of ``depth`` quotes, shown one at a time: a sector
    and an asked price from 3 to 38. The quote's worth differs from its price by a hidden gap of -3 to 3.
    ``research(source)`` asks for a report on the quote. In each sector one of the reporters
    ``filings``, ``broker`` and ``wire`` knows the worth: ``filings`` for banks and tech, ``broker``
    for energy and steel, ``wire`` for retail and ships, in all prompts. The others' reports look the
    same and mean nothing. A report says what the quote is worth or, where opinions conflict, only
    whether that is more or less than the price; then the dearer ``audit``, which always tells the
    gap's size but not its side, must be asked too. ``buy(lots)``, ``sell(lots)`` or ``pass()`` closes
    the quote. The decision is right if it is the gap: buy as many lots as the gap if that is positive,
    sell as many if it is negative, pass at 0. What a deal earned and whether it was right is not shown.

    ## Action Space
    ``research(source)``, ``buy(lots)``, ``sell(lots)``, ``pass()``: 2 token slots, plus filler.

    ## Observation Space
    One-hot: sector (6), price (``prices``); of filings, broker and wire each the reported worth
    (``prices + 6``: from 0) and side (2: less, more); the size that the audit found (4: 0 to 3); quotes
    closed (``depth + 1``); then the engine's three features (share of turns used, tool failure, illegal
    message). A source that has not been asked about this quote shows nothing. After the last quote the
    observation keeps showing it, without reports.

    ## Starting State
    The first quote, no reports. Sectors, prices and gaps are uniform and independent.

    ## Rewards
    Component ``profit``: a deal of ``q`` lots (negative if sold) at gap ``g`` earns ``size * q * (g -
    q / 2)``, but loses no more than ``1000 / depth``; ``q / 2`` is how far the deal itself moves the
    price, so that the right decision earns most whatever the size is: 0, 0.5, 2 or 4.5 times the size.
    The size is ``5 * a * b``, but at most ``1000 / (4.5 * depth)``. Both factors are Pareto distributed
    from 1 up with index ``tail``: ``a`` belongs to the quote, ``b`` is drawn when the deal is made and
    differs between the rollouts of a prompt. Neither is shown. ``fees``: -0.2 for the audit, -0.1 for
    another report; a report that is there already costs nothing. ``illegal``: -1 for each illegal message.

    The score is ``(right + fees / depth) / depth``, at least 0, where ``right`` counts right decisions
    and ``fees`` is the sum of that component. It does not depend on profits, and profits do not tell
    ``right``. Success is ``right = depth``. It outscores every failure, and its expected value (over
    ``b``, given the prompt) is higher too: a wrong decision loses at least 2.5 against the right one,
    all reports on all quotes cost ``0.5 * depth``. Values that were drawn need not be in that order.

    ## Episode End
    Termination when the last quote is closed; truncation after ``max_turns`` (default
    ``3 * depth + 3``), when quotes that are still open earn nothing and count as not right.

    ## Arguments
    Common knobs, and:

    * ``tail`` (default 2.0, 1.1 to 10): the tail index of ``a`` and ``b``; smaller is heavier.
    * ``prices`` (default 36, 1 to 60): how many prices there are, from 3 up.

    ``depth`` (default 3, 1 to 5): quotes. ``difficulty`` (default 0.5): mean probability that opinions
    on a quote with a gap conflict; each prompt has its own. Tasks: ``calm`` (they do not conflict in
    the whole prompt) and ``stressed``.

    ## Known truth
    The best policy asks the sector's reporter, then the audit if need be; its mean fees per quote are
    ``f = 0.1 + 0.2 * 6 / 7 * difficulty``, its score is ``1 - f / depth``; its value is ``(2 * s - f) *
    depth``, where ``s`` is the mean size and has a closed form, too. Gaps are uniform and unrelated to
    sector and price, so a policy that does not look is right with probability 1/7 per quote, and so is
    one that looks but does not ask. To pass always scores 1/7 and is worth 0. Worst ``-1000`` less the
    fees of the turns that are left for reports (1.2 by default).

    ## References
    Trading agents such as FinMem (Yu et al. 2023) and TradingAgents (Xiao et al. 2024).

    ## Version History
    * v0: initial version.
    """

    name = "Desk"
    components = ("profit", "fees")
    default_depth = 3
    depth_range = (1, 5)
    tasks = ("calm", "stressed")
    illegal_penalty = -1.0

    def __init__(self, knobs: Knobs, tail: float = 2.0, prices: int = 36) -> None:
        """See the class docstring."""
        self.tail = check_number("tail", tail, 1.1, 10.0)
        self.prices = check_integer("prices", prices, 1, MOST_PRICES)
        super().__init__(knobs)
        self._worst = -LIMIT / self.depth
        self._largest_size = LIMIT / self.depth / BEST_MULTIPLE
        reported = min(max(self.turn_limit - self.depth, 0), len(SOURCES) * self.depth)
        fees = FEE_UNIT * (reported + (FEE[AUDIT] - 1) * min(reported, self.depth))
        self.value_range = (-LIMIT - float(fees), LIMIT)
        reports = (self.prices + 2 * MOST, 2) * N_REPORTERS
        self._one_hot = OneHot(len(SECTORS), self.prices, *reports, MOST + 1, self.depth + 1)
        self.n_features = self._one_hot.width

    def chance(self) -> float:
        """Every decision is right for one gap of seven, whatever was decided before; fees only lower the score."""
        return 1.0 / N_GAPS

    def closed_forms(self) -> dict[str, float]:
        """Without tool failures the expert decides every quote rightly, with one or two reports."""
        if self.knobs.slip or self.turn_limit < 3 * self.depth:
            return {}
        fees = FEE_UNIT * float(FEE[0] + FEE[AUDIT] * self.difficulty * (N_GAPS - 1) / N_GAPS)
        multiple = sum(gap * gap / 2 for gap in range(-MOST, MOST + 1)) / N_GAPS
        return {
            "best_score": 1.0 - fees / self.depth,
            "best_value": self.depth * (multiple * self._mean_size() - fees),
        }

    def _mean_size(self) -> float:
        """Return the mean of the size below and at its bound: log(a * b) is Gamma(2, tail)."""
        excess, bound = self.tail - 1.0, math.log(self._largest_size / SMALLEST_SIZE)
        below = (self.tail / excess) ** 2 * (1.0 - math.exp(-excess * bound) * (1.0 + excess * bound))
        at_bound = math.exp(-self.tail * bound) * (1.0 + self.tail * bound)
        return SMALLEST_SIZE * below + self._largest_size * at_bound

    def default_max_turns(self) -> int:
        """Two reports and a decision a quote, and three turns for mistakes."""
        return 3 * self.depth + 3

    def tools(self) -> Sequence[Tool]:
        """The four tools; their order and slots fix the token ids above."""
        return [Tool("research", (SOURCES,)), Tool("buy", (LOTS,)), Tool("sell", (LOTS,)), Tool("pass")]

    def start(self, key: streams.Keys) -> State:
        """Draw the quotes, what every source would report on them, and their heavy-tailed factors."""
        n, depth = len(key), self.depth
        draw = streams.uniform(key[:, None], np.arange(1 + depth * (2 + N_REPORTERS)))
        share = spread_difficulty(self.difficulty, draw[:, :1, None])
        per_quote = draw[:, 1:].reshape(n, depth, 2 + N_REPORTERS)
        (sector, price), _ = streams.digits(per_quote[:, :, 0], len(SECTORS), self.prices)
        (claim,), rest = streams.digits(per_quote[:, :, 2:], N_GAPS)
        claim -= MOST
        conflict = (rest < share) & (claim != 0)
        # All reporters draw alike; what the specialist draws is true.
        specialist = SPECIALIST[sector][:, :, None]
        gap = np.take_along_axis(claim, specialist, axis=2)[:, :, 0]
        quote = np.empty((n, depth, SIZE + 1), dtype=np.int8)
        quote[:, :, SECTOR], quote[:, :, PRICE] = sector, price
        quote[:, :, WORTH:SIZE:2] = np.where(conflict, NOTHING, price[:, :, None] + LOWEST_PRICE + claim)
        quote[:, :, SIDE:SIZE:2] = np.where(conflict, claim > 0, NOTHING)
        quote[:, :, SIZE] = np.abs(gap)
        return {
            "quote": quote,
            "gap": gap.astype(np.int8),
            "factor": self._pareto(per_quote[:, :, 1]),
            "stressed": np.take_along_axis(conflict, specialist, axis=2).any(axis=(1, 2)),
            "closed": np.zeros(n, dtype=np.int64),
            "asked": np.zeros(n, dtype=np.int64),
            "right": np.zeros(n, dtype=np.int64),
            "spent": np.zeros(n, dtype=np.int64),
        }

    def _pareto(self, uniform: FloatArray) -> FloatArray:
        return np.asarray((1.0 - uniform) ** (-1.0 / self.tail), dtype=np.float64)

    def _at(self, state: State, rows: IntArray) -> IntArray:
        """Return which quote is in hand; after the last quote, that one."""
        return np.asarray(np.minimum(state["closed"][rows], self.depth - 1))

    def _seen(self, state: State, rows: IntArray) -> npt.NDArray[np.int8]:
        """Return the columns of the quote in hand, empty where the agent has not asked."""
        quote = pick(state["quote"], rows, self._at(state, rows))
        visible = VISIBLE.take(state["asked"][rows], axis=0)
        quote[:, WORTH:][~visible] = NOTHING
        return quote

    def observe(self, state: State, rows: IntArray) -> Features:
        """Show the quote, the reports on it and the number of closed quotes."""
        return self._one_hot(self._seen(state, rows), state["closed"][rows, None])

    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Ask the sector's reporter, then the audit if there is only a side, then deal."""
        seen, each = self._seen(state, rows), np.arange(len(rows))
        specialist = SPECIALIST[seen[:, SECTOR]]
        worth, side = seen[each, WORTH + 2 * specialist], seen[each, SIDE + 2 * specialist]
        size = seen[:, SIZE]
        told, sided = worth != NOTHING, side != NOTHING
        deal = np.where(told, worth - seen[:, PRICE] - LOWEST_PRICE, np.where(side == 1, size, -size))
        known = told | (sided & (size != NOTHING)) | (size == 0)
        message = self._deal(deal)
        message[~known, 0] = RESEARCH
        message[~known, 1] = FIRST_SOURCE + np.where(sided, AUDIT, specialist)[~known]
        return message

    def _deal(self, lots: npt.NDArray[np.integer]) -> IntArray:
        """Write the messages that close quotes with signed numbers of lots (n,)."""
        message = np.zeros((len(lots), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = np.array([PASS, BUY, SELL])[np.sign(lots)]
        message[:, 1] = np.where(lots == 0, 0, FIRST_LOT - 1 + np.abs(lots))
        return message

    def ground_truth(self, state: State, rows: IntArray) -> IntArray:
        """The decision that is right for the quote in hand."""
        return self._deal(state["gap"][rows, self._at(state, rows)])

    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Report on the quote in hand or close it."""
        tool = message[:, 0]
        components = np.zeros((len(rows), 2), order="F")
        reports, deals = indices(tool == RESEARCH), indices(tool != RESEARCH)
        if len(reports):
            asking, source = rows[reports], message[reports, 1] - FIRST_SOURCE
            asked = state["asked"][asking]
            fee = FEE[source] * (asked >> source & 1 == 0)
            state["asked"][asking] = asked | 1 << source
            state["spent"][asking] += fee
            components[reports, 1] = -FEE_UNIT * fee
        if len(deals):
            lots = (message[deals, 1] - (FIRST_LOT - 1)) * np.array([0, 0, 0, 1, -1, 0])[tool[deals]]
            components[deals, 0] = self._close(state, rows[deals], lots, draws.at(deals))
        return Outcome(components, state["closed"][rows] == self.depth)

    def _close(self, state: State, rows: IntArray, lots: IntArray, draws: Draws) -> FloatArray:
        """Close the quotes in hand with signed numbers of lots and return the profits."""
        at = state["closed"][rows]
        gap = state["gap"][rows, at]
        state["right"][rows] += lots == gap
        state["closed"][rows] = at + 1
        state["asked"][rows] = 0
        factor = state["factor"][rows, at] * self._pareto(draws.uniform(0))
        size = np.minimum(SMALLEST_SIZE * factor, self._largest_size)
        return np.asarray(np.maximum(size * lots * (gap - lots / 2.0), self._worst), dtype=np.float64)

    def score(self, state: State, rows: IntArray) -> FloatArray:
        """Share of right decisions, less a little for the mean fees of a quote."""
        fees = FEE_UNIT * state["spent"][rows] / self.depth
        return np.asarray(np.maximum(state["right"][rows] - fees, 0.0) / self.depth)

    def success(self, state: State, rows: IntArray) -> BoolArray:
        """All decisions were right."""
        return np.asarray(state["right"][rows] == self.depth)

    def task(self, state: State, rows: IntArray) -> IntArray:
        """1 if the opinions on a quote conflict."""
        return np.asarray(state["stressed"][rows], dtype=np.int64)

    def state_key(self, state: State, rows: IntArray) -> IntArray:
        """Reports seen, quotes closed, right decisions and fees, as one number."""
        key = state["spent"][rows]
        for name in ("right", "closed"):
            key = key * (self.depth + 1) + state[name][rows]
        return np.asarray(key * len(VISIBLE) + state["asked"][rows])

    def describe(self, state: State, row: int) -> str:
        """Read the quote and the reports."""
        closed = int(state["closed"][row])
        if closed == self.depth:
            return "All quotes are closed."
        sector, price, *reports, size = self._seen(state, np.array([row]))[0].tolist()
        text = f"Quote {closed + 1} of {self.depth}: {SECTORS[sector]}, price {price + LOWEST_PRICE}."
        for source, worth, side in zip(SOURCES, reports[::2], reports[1::2], strict=False):
            if worth != NOTHING:
                text += f" By the {source} it is worth {worth}."
            elif side != NOTHING:
                text += f" By the {source} it is worth {('less', 'more')[side]}, opinions conflict."
        return text + (f" The audit finds a gap of {size}." if size != NOTHING else "")
