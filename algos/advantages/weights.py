"""Weights: factors on advantages, after baseline and scale.

Every function takes (scheme, advantage, table) and returns the weighted advantage: one row per
rollout (N,), or per turn, (M,) or (M, L), as the table has. A part with the tag ``per_turn`` always
gets turns.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from algos.advantages.table import Table, finite
from algos.batch import RolloutBatch
from algos.parts import part
from algos.scheme import Scheme
from algos.segments import FloatArray, Segments, divide, totals

NO_SIGNAL = 1e-6
"""Advantages up to this size count as zero (MC-GRPO's code)."""


@part("weights", "none", source="-")
def none(scheme: Scheme, advantage: FloatArray, table: Table) -> FloatArray:
    """Leave the advantage as it is."""
    return advantage


@part("weights", "active_share", source="GPG, arXiv 2504.02546; SEEN-CODE (verl)")
def active_share(
    scheme: Scheme,
    advantage: FloatArray,
    table: Table,
    *,
    active: Literal["return", "group"] = "return",
) -> FloatArray:
    """Make up for rollouts without a gradient: multiply by all rollouts over the active ones.

    Active are rollouts whose return is not 0 (``return``, verl's code), or those of groups with
    spread (``group``, the paper's intent).
    """
    batch = table.batch
    live = (batch.outcome != 0) if active == "return" else ~batch.dead
    n = float(np.count_nonzero(batch.counted))
    return advantage * (n / max(float(np.count_nonzero(live & batch.counted)), 1.0))


@part("weights", "group_share", source="MC-GRPO, arXiv 2601.22582; SEEN-CODE")
def group_share(scheme: Scheme, advantage: FloatArray, table: Table) -> FloatArray:
    """Multiply by the rows of the group over those of them that have an advantage.

    The rollout at the median has none; here it stays in the loss's denominator, which the paper's
    code drops it from: a common factor G / (G + 1).
    """
    groups, counted = table.level("prompt"), table.counted.astype(float)
    size = groups.sum(counted)
    active = groups.sum(counted * (np.abs(advantage) > NO_SIGNAL))
    return advantage * divide(size, active)[groups.ids]


@part("weights", "disco", source="DISCO, arXiv 2505.15074; SEEN-CODE", ranges={"offset": (1e-12, np.inf)})
def disco(
    scheme: Scheme,
    advantage: FloatArray,
    table: Table,
    *,
    domain: Literal["none", "log", "log_square", "inverse"] = "log",
    difficulty: bool = True,
    offset: float = 1e-5,
) -> FloatArray:
    """Multiply by a weight of the environment's frequency and of the prompt's difficulty.

    The source multiplies rewards before the group mean is subtracted, which is the same. With the
    environment's share p of the batch's prompts that count (the source: of the training set), the weight is
    ln(1 + 1 / p), its square, or 1 / p; with the group's mean return s it is 1 / (s + offset).
    Without spread the advantage is 0 and stays so, and it is 0 where s + offset is not positive.
    """
    batch = table.batch
    weight = np.ones(len(batch))
    if domain != "none":
        inverse = divide(np.ones(len(batch)), environment_share(batch))
        weight = {"log": np.log1p(inverse), "log_square": np.log1p(inverse) ** 2, "inverse": inverse}[domain]
    if difficulty:
        groups, counted = batch.level("prompt"), batch.counted.astype(float)
        consistency = groups.mean(batch.outcome, counted)[groups.ids] + offset
        weight = weight * divide(np.ones(len(batch)), np.maximum(consistency, 0.0))
    return advantage * (weight[batch.turn_rollout] if table.per_turn else weight)


def environment_share(batch: RolloutBatch) -> FloatArray:
    """Return (N,) the share of the batch's prompts that belong to the rollout's environment."""
    prompts, environments = batch.level("prompt"), batch.level("environment")
    first = np.full(prompts.size, -1)
    first[prompts.ids[batch.counted]] = environments.ids[batch.counted]
    count = np.bincount(first[first >= 0], minlength=environments.size)
    return np.asarray((count / max(count.sum(), 1))[environments.ids], dtype=np.float64)


@part(
    "weights", "process",
    source="Signal Reshaping, arXiv 2605.07276; PARTIAL; keeping the mass is INFERRED",
    needs=["process_reward", "truncated"], tags=["per_turn"],
)  # fmt: skip
def process(
    scheme: Scheme,
    advantage: FloatArray,
    table: Table,
    *,
    of_truncated: Literal["all", "last", "none"] = "last",
) -> FloatArray:
    """Multiply each turn by its process score, scaled to mean 1 over the rollout's tokens.

    The comparison within the group stays as it is: the scores move credit between the turns of one
    rollout. Where all scores of a rollout are 0 its turns count alike, else turns with score 0 are
    not trained: with gains of the answer's probability as scores (as GroupPPO fills them in) that is
    every answer, and Search is not learned. Of rollouts that were cut
    (loops, turn limits) all turns are credited, only the last, or none; rollouts whose reward is
    not valid are left out of everything by the batch.
    """
    batch = table.batch
    score = np.where(table.counted, batch.column("process_reward"), 0.0)
    if not (score >= 0).all():
        wrong = score[~(score >= 0)].tolist()[0]
        raise ValueError(f"process_reward={wrong!r} is not allowed: scores of turns must be numbers >= 0.")
    weighted = advantage * _normalised(score, batch)
    if of_truncated == "all":
        return weighted
    cut = batch.column("truncated")[batch.turn_rollout]
    return np.where(cut & (~batch.last_written if of_truncated == "last" else True), 0.0, weighted)


@part(
    "weights", "temporal", source="VGPO, arXiv 2512.12387; SEEN-NOTE; transfer to turns is INFERRED",
    uses=["gamma"], tags=["per_turn"],
)  # fmt: skip
def temporal(scheme: Scheme, advantage: FloatArray, table: Table) -> FloatArray:
    """Multiply each turn by its discounted reward to go over the rollout's mean of that (eqs 9 to 11).

    Rewards must not be negative; a rollout without any gets weights 1. An offset that makes them so is
    discounted, too, so that with gamma < 1 it pays for ending early. In ``Search`` with an offset of 1
    some runs with the recipe's gamma stay near chance; with gamma=1 they learn
    (``tests/trainer/test_every_recipe_learns.py``).
    """
    from algos.advantages.outcome import discounted

    batch = table.batch
    value = discounted(batch, scheme.gamma)
    if (value < 0).any():
        raise ValueError("turn_reward: weights='temporal' needs rewards >= 0; shift them with reward_offset.")
    total = Segments(batch.turn_rollout, len(batch)).sum(value * batch.written)
    average = divide(total, batch.written_turns)[batch.turn_rollout]
    return advantage * np.where(average > 0, divide(value, average), 1.0)


@part(
    "weights", "entropy", source="EMPG, arXiv 2509.09265; SEEN (ARLArena's code)", needs=["entropy"],
    tags=["per_turn"], ranges={"sharpness": (0.0, np.inf), "clarity": (0.0, np.inf), "bonus": (0.0, np.inf)},
)  # fmt: skip
def entropy(
    scheme: Scheme,
    advantage: FloatArray,
    table: Table,
    *,
    sharpness: float = 1.0,
    clarity: float = 1.0,
    bonus: float = 0.05,
) -> FloatArray:
    """Weight turns by how sure the policy was, add a bonus for sure next turns, and centre.

    With H the turn's mean token entropy, scaled to [0, 1] over the batch: the factor is
    exp(-sharpness H) over its mean, the bonus exp(-clarity H of the next turn), none at the last.
    """
    batch, kept = table.batch, table.counted
    if not kept.any():
        return advantage
    tokens = np.where(kept, batch.tokens_per_turn, 0)
    values = finite("entropy", batch.column("entropy")[batch.token_mask & kept[:, None]])
    total = totals(np.repeat(np.arange(len(kept)), tokens), values, len(kept))
    mean_entropy = divide(total, tokens.astype(float))
    low, high = mean_entropy[kept].min(), mean_entropy[kept].max()
    scaled = np.where(kept, (mean_entropy - low) / (high - low + 1e-8), 0.0)
    factor = np.exp(-sharpness * scaled)
    weighted = advantage * factor / (factor[kept].mean() + 1e-8)
    following = batch.next_written
    weighted = weighted + np.where(following >= 0, bonus * np.exp(-clarity * scaled[following]), 0.0)
    return np.where(kept, weighted - weighted[kept].mean(), 0.0)


def _normalised(score: FloatArray, batch: RolloutBatch) -> FloatArray:
    owner, tokens = batch.turn_rollout, batch.tokens_per_turn
    mass = Segments(owner, len(batch)).sum(score * tokens)[owner]
    return np.where(mass > 0, divide(score * batch.tokens_per_rollout[owner], mass), 1.0)
