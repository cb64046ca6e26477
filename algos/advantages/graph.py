"""State-level signals: turns of one prompt that were written in the same state are compared.

States are equal when their ``state_key`` is, within a prompt. All signals add an episode part (the
rollout's outcome against the prompt's others) and a step part, (M,).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from algos.advantages.outcome import discounted
from algos.advantages.scales import SPREAD, z_score
from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import BoolArray, FloatArray, IntArray, Segments, difference, divide

Norm = Literal["mean_std", "mean"]
USES = ["gamma", "singleton", *SPREAD]
RANGES = {"step_weight": (0.0, np.inf)}


@part(
    "signal", "anchor_return", source="GiGPO, arXiv 2505.10978; SEEN-CODE", uses=USES, needs=["state_key"],
    tags=["per_turn"], ranges=RANGES,
)  # fmt: skip
def anchor_return(
    scheme: Scheme,
    batch: RolloutBatch,
    memory: Memory,
    *,
    norm: Norm = "mean",
    step_weight: float = 1.0,
    across: Literal["turns", "rollouts"] = "turns",
) -> FloatArray:
    """Compare discounted returns to go among turns in the same state.

    * ``norm``: divide what is left of the mean by the spread (``mean_std``), or not.
    * ``across``: whether the episode part's mean and spread count rollouts (the paper) or turns (the
      code: longer rollouts count more).
    """
    step = _compared(scheme, discounted(batch, scheme.gamma), batch.turn_level("state"), _kept(batch), norm)
    return _episode(scheme, batch, norm, across) + step_weight * step


@part(
    "signal", "history_return", source="HGPO, arXiv 2602.22817; SEEN-CODE", uses=USES, needs=["state_key"],
    tags=["per_turn"], ranges={"history": (0, 1000), "sharpness": (0.0, np.inf)},
)  # fmt: skip
def history_return(
    scheme: Scheme,
    batch: RolloutBatch,
    memory: Memory,
    *,
    history: int = 2,
    sharpness: float = 1.0,
    episode_level: bool = False,
) -> FloatArray:
    """Average comparisons among turns whose last k states agree, k = 1 to ``history`` + 1.

    Longer agreement weighs more: (k + 1) ** ``sharpness``. A level where the turn has no other to
    compare with, or no spread, does not count. ``episode_level`` adds the whole rollout as level 0.
    """
    kept, previous = _kept(batch), _previous(batch)
    returns = discounted(batch, scheme.gamma)
    state = batch.turn_level("state")
    total, weight = np.zeros(batch.n_turns), np.zeros(batch.n_turns)
    if episode_level:
        episode = _episode(scheme, batch, "mean_std", "rollouts")
        total, weight = episode.copy(), (episode != 0).astype(float)
    level, member, back = state, kept, np.arange(batch.n_turns)
    for k in range(1, history + 2):
        advantage = _compared(scheme, returns, level, member, "mean_std")
        share = (k + 1.0) ** sharpness * (advantage != 0)
        total, weight = total + share * advantage, weight + share
        back = np.where(back >= 0, previous[back], -1)
        member = member & (back >= 0)
        level = Segments.by(level.ids, state.ids[back])
    return divide(total, np.where(weight > 0, weight + 1e-6, 0.0))


@part(
    "signal", "node_value", source="G2PO, arXiv 2606.22995; SEEN-CODE, without its penalty for invalid actions",
    uses=USES, needs=["state_key", "success"], tags=["per_turn"], ranges=RANGES,
)  # fmt: skip
def node_value(
    scheme: Scheme,
    batch: RolloutBatch,
    memory: Memory,
    *,
    norm: Norm = "mean",
    step_weight: float = 1.0,
    across: Literal["turns", "rollouts"] = "turns",
) -> FloatArray:
    """Merge equal states into nodes with a mean value, and credit each turn with where it led.

    A visit is worth gamma ** (turns left, this one included) times the rollout's outcome; a node the
    mean of its visits. After the last turn comes the outcome itself after a success, else 0. The
    step part adds the next node's value, compared among turns of the same state, and its gain over
    the present node's, compared among all turns of the prompt.
    """
    kept, owner, state = _kept(batch), batch.turn_rollout, batch.turn_level("state")
    left = batch.written_turns[owner] - batch.written_index
    visit = np.where(kept, scheme.gamma**left * batch.outcome[owner], 0.0)
    here = state.mean(visit, kept.astype(float))[state.ids]
    following = batch.next_written
    end = np.where(batch.column("success")[owner], batch.outcome[owner], 0.0)
    there = np.where(following >= 0, here[following], end)
    local = _compared(scheme, there, state, kept, norm)
    gain = _compared(scheme, difference(there, here), batch.turn_level("prompt"), kept, norm)
    return _episode(scheme, batch, norm, across) + step_weight * (local + gain)


@part(
    "signal", "success_distance", source="GraphGPO, arXiv 2605.26684; SEEN-CODE", uses=["singleton", *SPREAD],
    needs=["state_key", "success"], tags=["per_turn"],
    ranges={**RANGES, "success_value": (0.0, np.inf), "distance_discount": (0.0, 1.0)},
)  # fmt: skip
def success_distance(
    scheme: Scheme,
    batch: RolloutBatch,
    memory: Memory,
    *,
    norm: Norm = "mean_std",
    step_weight: float = 1.0,
    across: Literal["turns", "rollouts"] = "turns",
    success_value: float = 10.0,
    distance_discount: float = 0.1,
    relative: bool = False,
) -> FloatArray:
    """Credit each turn with how near to success the state is that it led to, in the prompt's graph.

    The graph has the states that the group visited and an edge for every turn; the distance counts
    edges to a success that was seen. States from which none was reached are one farther than the
    farthest that did. A turn is worth ``success_value * distance_discount ** d`` with d the distance
    after it (``relative``: that less the distance before it, plus 1); then as in GiGPO.
    """
    kept = _kept(batch)
    before, after = _distances(batch, kept)
    exponent = after - before + 1.0 if relative else after
    step = success_value * distance_discount**exponent
    step = _compared(scheme, step, batch.turn_level("state"), kept, norm)
    return _episode(scheme, batch, norm, across) + step_weight * step


def _distances(batch: RolloutBatch, kept: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return (M,) the distances to success before and after each turn."""
    state, prompt = batch.turn_level("state"), batch.turn_level("prompt")
    following, success = batch.next_written, batch.column("success")[batch.turn_rollout]
    distance = np.full(state.size, np.inf)
    edges = kept & (following >= 0)
    arrive = kept & (following < 0) & success
    distance[state.ids[arrive]] = 1.0
    source, target = state.ids[edges], state.ids[following[edges]]
    while True:
        shorter = distance.copy()
        np.minimum.at(shorter, source, distance[target] + 1.0)
        if np.array_equal(shorter, distance):
            break
        distance = shorter
    known = np.where(np.isfinite(distance), distance, 0.0)[state.ids]
    farthest = np.zeros(prompt.size)
    np.maximum.at(farthest, prompt.ids[kept], known[kept])
    unreachable = farthest[prompt.ids] + 1.0
    here = np.where(np.isfinite(distance[state.ids]), distance[state.ids], unreachable)
    return here, np.where(following >= 0, here[following], np.where(success, 0.0, unreachable))


def _kept(batch: RolloutBatch) -> BoolArray:
    return np.asarray(batch.counted[batch.turn_rollout] & batch.written)


def _episode(scheme: Scheme, batch: RolloutBatch, norm: Norm, across: Literal["turns", "rollouts"]) -> FloatArray:
    """Return (M,) the rollout's outcome compared within its prompt."""
    owner, groups = batch.turn_rollout, batch.level("prompt")
    size = groups.sum(batch.counted.astype(float))[groups.ids]
    if across == "rollouts":
        values = _compared(scheme, batch.outcome, groups, batch.counted, norm)[owner]
    else:
        values = _compared(scheme, batch.outcome[owner], batch.turn_level("prompt"), _kept(batch), norm)
    if scheme.singleton == "raw":
        values = np.where(size[owner] == 1, batch.outcome[owner], values)
    return np.where(_kept(batch), values, 0.0)


def _compared(scheme: Scheme, values: FloatArray, groups: Segments, counted: BoolArray, norm: Norm) -> FloatArray:
    """Return (n,) values less their group's mean, over its spread for ``mean_std``."""
    weights = counted.astype(float)
    return z_score(scheme, values, groups, weights) if norm == "mean_std" else groups.deviations(values, weights)


def _previous(batch: RolloutBatch) -> IntArray:
    """Return (M,) the row of the rollout's previous written turn; -1 before the first."""
    following, previous = batch.next_written, np.full(batch.n_turns, -1)
    has = np.flatnonzero(following >= 0)
    previous[following[has]] = has
    return previous
