"""Turn-level signals: information gain, turn rewards, and tokens of one time step.

All return one advantage per turn, (M,), or per token, (M, L), and do their own normalisation. The
last turn that the policy wrote of a rollout is its answer: it has no information gain.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from algos.advantages.gae import generalised_advantage
from algos.advantages.outcome import discounted, suffix_sum
from algos.advantages.scales import SPREAD, z_score
from algos.advantages.table import finite
from algos.batch import RolloutBatch
from algos.memory import Memory
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import BoolArray, FloatArray, IntArray, Segments, row_sums


@part(
    "signal", "information_gain",
    source="IGPO, arXiv 2510.14967; SEEN-CODE. A2TGPO, arXiv 2605.06200; SEEN-PAPER + SEEN-CODE",
    uses=["gamma", "accumulation", *SPREAD], needs=["information_gain"], tags=["per_turn"],
    ranges={"gain_weight": (0.0, np.inf)},
)  # fmt: skip
def information_gain(
    scheme: Scheme,
    batch: RolloutBatch,
    memory: Memory,
    *,
    pool: Literal["joint", "prompt", "turn", "centre_last"] = "joint",
    gain_weight: float = 1.0,
    outcome_in_sum: bool = True,
    # Read by the trainer, which measures the gains; gains that a batch already has are taken as they are.
    gain: Literal["probability", "log_probability"] = "probability",
) -> FloatArray:
    """Add up the normalised gains of this and later turns and the normalised outcome.

    * ``pool``: over what a gain is z-scored. ``joint``: with the outcomes of the prompt, all in one
      pool (IGPO's paper); ``prompt``: the gains of the prompt, apart from the outcomes (IGPO's
      training script); ``turn``: the gains of the prompt's turns with the same index (A2TGPO);
      ``centre_last``: gains and outcome are first summed, then the mean over the turns of the same
      index is subtracted (IGPO's first code).
    * ``accumulation``: discounted ``sum``, or its terms' sum over the ``root`` of their number
      (A2TGPO); ``none`` takes the turn's own gain.
    * ``gain_weight``: factor of the gain part (A2TGPO's alpha: 1 in the paper, 0.3 in its script).
    * ``outcome_in_sum``: whether the outcome is the last term of the sum, discounted (IGPO), or is
      added to every turn as it is (A2TGPO).
    * ``gain``: what of the answer the trainer takes the difference of, before and after the turn.

    A pool of one gives 0.
    """
    owner, answers = batch.turn_rollout, batch.last_written
    kept = batch.counted[owner]
    if pool == "centre_last":
        raw = np.where(answers, batch.outcome[owner], gain_weight * _gains(batch))
        total = suffix_sum(batch, np.where(kept & batch.written, raw, 0.0), scheme.gamma)
        counted = (kept & batch.written).astype(float)
        return batch.turn_level("turn").deviations(total, counted)
    gains, outcome = normalised_gains(scheme, batch, pool=pool)
    summed = _accumulate(scheme, batch, gain_weight * gains)
    if outcome_in_sum:
        result = summed + suffix_sum(batch, np.where(answers, outcome[owner], 0.0), scheme.gamma)
    else:
        result = summed + outcome[owner]
    return np.where(kept & batch.written, result, 0.0)


def normalised_gains(
    scheme: Scheme, batch: RolloutBatch, pool: Literal["joint", "prompt", "turn"]
) -> tuple[FloatArray, FloatArray]:
    """Return the z-scored gains (M,), 0 at answers, and the z-scored outcomes (N,)."""
    owner = batch.turn_rollout
    has_gain = batch.counted[owner] & batch.written & ~batch.last_written
    gain, rollouts = _gains(batch), batch.level("prompt")
    if pool == "joint":
        ids = np.append(rollouts.ids[owner], rollouts.ids)
        values, counted = np.append(gain, batch.outcome), np.append(has_gain, batch.counted)
        scored = z_score(scheme, values, Segments(ids, rollouts.size), counted.astype(float))
        return scored[: len(owner)], scored[len(owner) :]
    level = batch.turn_level("turn" if pool == "turn" else "prompt")
    return z_score(scheme, gain, level, has_gain.astype(float)), _outcome_score(scheme, batch)


def _outcome_score(scheme: Scheme, batch: RolloutBatch) -> FloatArray:
    """Return the z-scored outcomes (N,)."""
    return z_score(scheme, batch.outcome, batch.level("prompt"), batch.counted.astype(float))


def _gains(batch: RolloutBatch) -> FloatArray:
    """Return the raw gains (M,), 0 where a turn has none."""
    has_gain = batch.counted[batch.turn_rollout] & batch.written & ~batch.last_written
    gain = np.where(has_gain, batch.column("information_gain"), 0.0)
    if not np.isfinite(gain).all():
        raise ValueError("information_gain must be finite at every turn but a rollout's last.")
    return gain


def _accumulate(scheme: Scheme, batch: RolloutBatch, gain: FloatArray) -> FloatArray:
    if scheme.accumulation == "none":
        return gain
    total = suffix_sum(batch, gain, scheme.gamma)
    if scheme.accumulation == "sum":
        return total
    terms = batch.written_turns[batch.turn_rollout] - 1 - batch.written_index
    return np.where(terms > 0, total / np.sqrt(np.maximum(terms, 1)), 0.0)


@part(
    "signal", "turn_and_outcome", source="MT-GRPO, arXiv 2505.11821; SEEN-CODE",
    uses=SPREAD, needs=["process_reward"], tags=["per_turn"], ranges={"turn_weight": (0.0, np.inf)},
)  # fmt: skip
def turn_and_outcome(scheme: Scheme, batch: RolloutBatch, memory: Memory, *, turn_weight: float = 1.0) -> FloatArray:
    """Credit the first turn with the outcome and the turn reward, the later ones with the outcome.

    The turn reward is the sum of the rollout's process rewards. Rollouts of one turn (no tool
    result) get the z-score of both together.
    """
    owner, groups = batch.turn_rollout, batch.level("prompt")
    kept = batch.counted[owner] & batch.written
    process = finite("process_reward", np.where(kept, batch.column("process_reward"), 0.0))
    turn = Segments(owner, len(batch)).sum(process)
    counted = batch.counted.astype(float)
    streams = [turn, batch.outcome, row_sums(np.column_stack([turn, batch.outcome]))]
    by_turn, by_outcome, by_both = (z_score(scheme, stream, groups, counted) for stream in streams)
    first = by_outcome[owner] + turn_weight * by_turn[owner]
    several = np.where(batch.written_index == 0, first, by_outcome[owner])
    alone = (batch.written_turns == 1)[owner]
    return np.where(kept, np.where(alone, by_both[owner], several), 0.0)


@part(
    "signal", "gain_and_return", source="MICA, arXiv 2603.06194; SEEN-3P (code)",
    uses=["gamma", *SPREAD], needs=["information_gain"], tags=["per_turn"], ranges={"gain_share": (0.0, 1.0)},
)  # fmt: skip
def gain_and_return(scheme: Scheme, batch: RolloutBatch, memory: Memory, *, gain_share: float = 0.5) -> FloatArray:
    """Mix the z-scores of the gain and of the return to go, both over turns of the same index.

    Where such a group has one member, the z-score of the outcome over the prompt stands in.
    """
    owner, level = batch.turn_rollout, batch.turn_level("turn")
    kept = batch.counted[owner] & batch.written
    has_gain = kept & ~batch.last_written
    outcome = _outcome_score(scheme, batch)[owner]

    def scored(values: FloatArray, counted: BoolArray) -> FloatArray:
        weights = counted.astype(float)
        alone = level.sum(weights)[level.ids] <= 1
        return np.where(alone, outcome, z_score(scheme, values, level, weights))

    gain = np.where(has_gain, scored(_gains(batch), has_gain), 0.0)
    total = np.where(has_gain, _gains(batch), 0.0)
    total = np.where(batch.last_written, batch.outcome[owner], total)
    returns = scored(suffix_sum(batch, np.where(kept, total, 0.0), scheme.gamma), kept)
    return np.where(kept, gain_share * gain + (1.0 - gain_share) * returns, 0.0)


@part(
    "signal", "token_baseline", source="OTB as in verl's optimal_token_baseline; SEEN-CODE",
    needs=["log_prob", "probability_square"], tags=["per_turn"],
)  # fmt: skip
def token_baseline(scheme: Scheme, batch: RolloutBatch, memory: Memory, *, zero_tail: bool = True) -> FloatArray:
    """Subtract, token by token, the baseline of least variance over the prompt, (M, L).

    A token's weight is the squared norm of its log-probability's gradient to the scores,
    1 - 2 p + sum p^2, summed over the rollout's tokens up to it; the baseline of the k-th tokens is
    the weighted mean of the rewards to go. A rollout without others that wrote anything has the
    baseline 0. Beyond the second longest rollout there is nothing to compare with: the baseline is
    0 there (``zero_tail``), or the reward itself.
    """
    places, first, count = _tokens_in_order(batch)
    p = np.exp(finite("log_prob", batch.column("log_prob").ravel()[places]))
    square = finite("probability_square", batch.column("probability_square").ravel()[places])
    norm = np.maximum(1.0 - 2.0 * p + square, 0.0)
    reward = discounted(batch, 1.0)[places // batch.token_mask.shape[1]]
    prompt = batch.level("prompt")
    alone = prompt.sum((count > 0).astype(float))[prompt.ids] == 1
    longest = np.argsort(-count, kind="stable")
    ids, start, alone = prompt.ids[longest], first[longest], alone[longest]
    energy, credit = np.zeros(len(batch)), np.zeros(batch.token_mask.size)
    # All rollouts step forwards together, as long as they last: one pass per token index, none per row.
    for k in range(count.max()):
        n = np.count_nonzero(count > k)
        tokens, peers = start[:n] + k, Segments(ids[:n], prompt.size)
        energy[:n] += norm[tokens]
        baseline = peers.mean(reward[tokens], energy[:n])[peers.ids]
        last = peers.sum(np.ones(n))[peers.ids] == 1
        baseline[last & (zero_tail | alone[:n])] = 0.0
        credit[places[tokens]] = reward[tokens] - baseline
    return credit.reshape(batch.token_mask.shape)


def _tokens_in_order(batch: RolloutBatch) -> tuple[IntArray, IntArray, IntArray]:
    """Return the counted tokens, rollout by rollout.

    Returns:
        Their places in the flat (M, L), the number of tokens of earlier rollouts (N,), and each
        rollout's own number (N,).
    """
    mask = batch.token_mask & batch.counted[batch.turn_rollout][:, None]
    every = np.arange(mask.size).reshape(mask.shape)
    count = np.where(batch.counted, batch.tokens_per_rollout, 0.0).astype(np.int64)
    return every[batch.in_order][mask[batch.in_order]], np.cumsum(count) - count, count


@part(
    "signal", "bilevel_gae", source="RAGEN, arXiv 2504.20073; SEEN-CODE; one value per turn is INFERRED",
    uses=["gamma", "gae_lambda"], needs=["value"], tags=["per_turn"],
    ranges={"token_gamma": (0.0, 1.0), "token_lambda": (0.0, 1.0)},
)  # fmt: skip
def bilevel_gae(
    scheme: Scheme, batch: RolloutBatch, memory: Memory, *, token_gamma: float = 1.0, token_lambda: float = 1.0
) -> FloatArray:
    """Credit turns with a critic, then tokens within each turn, (M, L).

    The turn's estimate (advantage plus value, with ``gamma`` and ``gae_lambda``) is the reward of its
    last token. Tokens have ``token_value`` (M, L) as their values where the batch has it, else that
    of their turn.
    """
    value = np.where(batch.counted[batch.turn_rollout], batch.column("value"), 0.0)
    target = generalised_advantage(scheme, batch) + value
    mask = batch.token_mask & batch.counted[batch.turn_rollout][:, None]
    values = value[:, None] if batch.token_value is None else batch.token_value
    values = finite("token_value", np.where(mask, values, 0.0))
    result, following, trace = np.zeros(mask.shape), target.copy(), np.zeros(len(target))
    last = np.ones(len(target), dtype=np.bool_)
    for slot in reversed(range(mask.shape[1])):
        here = mask[:, slot]
        # The last token is followed by the turn's estimate itself, undiscounted.
        gamma = np.where(last, 1.0, token_gamma)
        delta = gamma * following - values[:, slot]
        trace = np.where(here, delta + np.where(last, 0.0, token_gamma * token_lambda) * trace, trace)
        following = np.where(here, values[:, slot], following)
        result[:, slot] = np.where(here, trace, 0.0)
        last &= ~here
    return result
