"""What a tracked baseline knows before training: SPO's estimate from rollouts of the base policy."""

from __future__ import annotations

import numpy as np

from agentic_gym.knobs import check_integer, check_number
from algos.advantages.trackers import set_beta
from algos.collector import collect
from algos.group_ppo import GroupPPO
from algos.segments import FloatArray
from algos.threads import limit_threads

MOST_ROLLOUTS = 2**22


def estimate_first_values(
    model: GroupPPO, rollouts: int = 8, smoothing: float = 0.5, evidence: float = 8.0, seed: int = 0
) -> FloatArray:
    """Roll every prompt out with the present policy and start its tracker there.

    Source: SPO, arXiv 2509.13232. A rollout succeeds if its reward is above 0, and a prompt with s
    successes starts at (s + smoothing) / (rollouts + 2 smoothing). SEEN-CODE: smoothing 1/2, 8 rollouts,
    evidence 8. SEEN-NOTE (paper): the plain mean, which is ``smoothing=0``, and evidence
    1 / (1 - rho_low). Without this call prompts start at 1/2 with the scheme's ``start`` (code:
    ``offline_N=0``).

    Args:
        model: whose scheme has the baseline kind ``beta_tracker`` or the sampling ``prioritised``.
        rollouts: per prompt, >= 1; they are not counted in ``model.num_timesteps``.
        smoothing: pseudo-successes and pseudo-failures, >= 0.
        evidence: sum of the Beta distribution's parameters, > 0.
        seed: of the rollouts.

    Returns:
        (num_prompts,) the first values.

    Raises:
        ValueError: if the scheme has no such tracker, there are too many prompts, or a value is not allowed.
    """
    check_integer("rollouts", rollouts, 1, 2**20)
    check_number("smoothing", smoothing, 0.0, float("inf"))
    check_number("evidence", evidence, 0.0, float("inf"), open_low=True)
    tracked = {("baseline_kind", "beta_tracker"), ("sampling", "prioritised")}
    if not tracked & {(part.axis, part.name) for part in model.scheme.parts}:
        raise ValueError(
            "model.scheme keeps no tracker: estimate_first_values needs baseline_kind='beta_tracker' or "
            "sampling='prioritised', as in the recipe 'spo'."
        )
    random = np.random.default_rng(seed)
    n_prompts = model.rows.num_prompts
    if n_prompts * rollouts > MOST_ROLLOUTS:
        raise ValueError(
            f"rollouts={rollouts} is not allowed with {n_prompts} prompts: at most {MOST_ROLLOUTS} in all. Give the "
            "environment a smaller num_prompts."
        )
    prompt = np.repeat(np.arange(n_prompts), rollouts)
    with limit_threads(model.n_threads):
        data = collect(model.rows, model.policy, prompt, random.integers(2**63 - 1, size=len(prompt)), random)
    assert data is not None  # None is for callbacks that stop
    batch = data.batch
    groups = batch.level("prompt")
    counted = batch.counted.astype(float)
    successes, n = groups.sum((batch.outcome > 0) * counted), groups.sum(counted)
    # A prompt of which no rollout could be scored is as unknown as without this call.
    first = np.where(n > 0, (successes + smoothing) / np.maximum(n + 2 * smoothing, 1e-300), 0.5)
    set_beta(batch, model._memory, first, evidence)
    values = np.empty(n_prompts)
    values[batch.prompt] = first[groups.ids]
    return values
