"""What a tracked baseline knows before training: SPO's estimate from rollouts of the base policy."""

from __future__ import annotations

import math

import numpy as np

from agentic_gym.knobs import check_integer, check_number
from algos.advantages.trackers import set_beta
from algos.collector import collect
from algos.group_ppo import GroupPPO
from algos.sampling.prioritised import UNSEEN
from algos.segments import FloatArray, IntArray
from algos.threads import limit_threads

MOST_ROLLOUTS = 2**22
CHUNK = 2**14
"""Rollouts whose tables are in memory at once."""


def estimate_first_values(
    model: GroupPPO, rollouts: int = 8, smoothing: float = 0.5, evidence: float = 8.0, seed: int = 0
) -> FloatArray:
    """Roll every prompt out with the present policy and start its tracker there.

    Source: SPO, arXiv 2509.13232. A prompt starts at (s + smoothing) / (n + 2 smoothing), s the sum of
    its n rewards. SEEN-CODE: smoothing 1/2, 8 rollouts, evidence 8 (the code counts rewards above 0 as
    1). SEEN-NOTE (paper): the plain mean, which is ``smoothing=0``, and evidence 1 / (1 - rho_low).
    Without this call prompts start at 1/2 with the scheme's ``start`` (code: ``offline_N=0``).

    Args:
        model: whose scheme has the baseline kind ``beta_tracker`` or the sampling ``prioritised``.
        rollouts: per prompt, in [1, 4194304 / number of prompts]; they are not counted in
            ``model.num_timesteps``.
        smoothing: pseudo-successes and pseudo-failures, >= 0; above 0 for rewards in [0, 1] only.
        evidence: sum of the Beta distribution's parameters, > 0.
        seed: of the rollouts, >= 0.

    Returns:
        (num_prompts,) the first values; 1/2 for prompts of which no rollout could be scored.

    Raises:
        ValueError: if the scheme has no such tracker, there are too many prompts, rewards are smoothed
            that are not in [0, 1], or a value is not allowed.
    """
    check_integer("rollouts", rollouts, 1, MOST_ROLLOUTS)
    check_integer("seed", seed, 0, 2**63 - 1)
    check_number("smoothing", smoothing, 0.0, math.inf)
    check_number("evidence", evidence, 0.0, math.inf, open_low=True)
    tracked = {("baseline_kind", "beta_tracker"), ("sampling", "prioritised")}
    if not tracked & {(part.axis, part.name) for part in model.scheme.parts}:
        raise ValueError(
            "model.scheme keeps no tracker: estimate_first_values needs baseline_kind='beta_tracker' or "
            "sampling='prioritised', as in the recipe 'spo'."
        )
    n_prompts = model.rows.num_prompts
    if n_prompts * rollouts > MOST_ROLLOUTS:
        raise ValueError(
            f"rollouts={rollouts} is not allowed with {n_prompts} prompts: at most {MOST_ROLLOUTS} rollouts in all, "
            "so that environments without prompts of their own, where every seed is one, cannot be estimated."
        )
    random = np.random.default_rng(seed)
    each = max(CHUNK // rollouts, 1)
    with limit_threads(model.n_threads):
        chunks = [
            _of_prompts(model, np.arange(start, min(start + each, n_prompts)), rollouts, smoothing, evidence, random)
            for start in range(0, n_prompts, each)
        ]
    return np.concatenate(chunks)


def _of_prompts(
    model: GroupPPO, prompts: IntArray, rollouts: int, smoothing: float, evidence: float, random: np.random.Generator
) -> FloatArray:
    prompt = np.repeat(prompts, rollouts)
    data = collect(model.rows, model.policy, prompt, random.integers(2**63 - 1, size=len(prompt)), random)
    assert data is not None  # None is for callbacks that stop
    batch = model._shaped(data).batch
    reward = batch.outcome
    if smoothing > 0 and (reward.min() < 0 or reward.max() > 1):
        raise ValueError(
            f"smoothing={smoothing:g} is not allowed here: it is for rewards in [0, 1], and these are in "
            f"[{reward.min():g}, {reward.max():g}]. Take smoothing=0."
        )
    groups = batch.level("prompt")
    n = groups.sum(batch.counted.astype(np.float64))
    total = groups.sum(reward) + smoothing
    first = np.where(n > 0, total / np.maximum(n + 2 * smoothing, 1.0), UNSEEN)
    set_beta(batch, model._memory, first, evidence)
    values = np.full(len(prompts), UNSEEN)
    values[batch.prompt - prompts[0]] = first[groups.ids]
    return values
