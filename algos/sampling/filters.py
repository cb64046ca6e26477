"""Samplers that roll out more groups than they keep."""

from __future__ import annotations

from typing import Literal

import numpy as np

from algos.collector import Trajectories
from algos.parts import part
from algos.sampling.select import choose, join
from algos.sampling.trainer import Trainer
from algos.scheme import Scheme
from algos.segments import BoolArray, FloatArray

SMALLEST_STD = 1e-6


@part(
    "sampling", "dynamic",
    source="DAPO, arXiv 2503.14476; SEEN-CODE (verl, NeMo-RL); drawing only what is missing: INFERRED",
    tags=["compares"], ranges={"spread_component": (0, 1000), "max_attempts": (1, 10_000)},
)  # fmt: skip
def dynamic(
    scheme: Scheme,
    trainer: Trainer,
    *,
    spread_of: Literal["return", "score", "success", "component", "any_component"] = "return",
    spread_component: int = 0,
    criterion: Literal["differ", "std", "mean"] = "differ",
    max_attempts: int = 10,
    fallback: Literal["train", "skip"] = "train",
) -> Trajectories | None:
    """Keep groups whose rollouts differ, and draw again for the others.

    * ``spread_of``: what must differ: the return (before overlong shaping), the environment's scale-free
      score, the task's verdict, the reward component ``spread_component``, or any component (for schemes
      that compare them one by one, as gdpo does). Returns that are shaped or noisy differ almost always.
    * ``criterion``: ``differ``: not all values are equal; ``std``: their sample standard deviation is
      above 1e-6; ``mean``: their mean is strictly between 0 and 1, which is for values of 0 and 1
      (three frameworks' rules; they agree on such values).
    * ``max_attempts``: times that prompts are drawn for one update (NeMo-RL's 10; verl's default has
      no limit).
    * ``fallback``: what to do where groups are still missing then, with one warning: ``train`` on
      those that were kept (if there are none, on the last ones drawn), or ``skip`` the update.

    Each attempt draws as many groups as are missing; verl draws a whole batch and drops the surplus.
    """
    wanted = trainer.n_prompts * trainer.group_size
    kept: list[Trajectories] = []
    for _ in range(max_attempts):
        missing = (wanted - sum(len(data.batch) for data in kept)) // trainer.group_size
        drawn = trainer.run(trainer.groups(missing))
        if drawn is None:
            return None
        live = _differs(drawn, spread_of, spread_component, criterion)
        kept.append(choose(drawn, live))
        if live.all():
            break
    trainer.logged["sampling/attempts"] = float(len(kept))
    data = join(kept)
    if len(data.batch) == wanted:
        return data
    trainer.warn_once(
        f"sampling='dynamic': after max_attempts={max_attempts} only {len(data.batch) // trainer.group_size} of "
        f"{trainer.n_prompts} groups differ in spread_of={spread_of!r}; fallback={fallback!r} applies, here and later."
    )
    if fallback == "skip":
        return choose(data, [])
    return data if len(data.batch) else drawn


def _differs(data: Trajectories, spread_of: str, component: int, criterion: str) -> BoolArray:
    """Return (N,) whether the values of the rollout's group differ, by one of the rules."""
    if spread_of == "any_component":
        # Of none at all the first is asked for, and missing.
        every = range(max(_n_components(data), 1))
        return np.any([_differs(data, "component", each, criterion) for each in every], axis=0)
    batch, values = data.batch, _values(data, spread_of, component)
    groups, counted = batch.level("prompt"), batch.counted & ~np.isnan(values)
    known, weight = np.where(counted, values, 0.0), counted.astype(np.float64)
    if criterion == "std":
        return (groups.spread(known, weight, ddof=1) > SMALLEST_STD)[groups.ids]
    if criterion == "mean":
        means = groups.mean(known, weight)
        return ((means > 0.0) & (means < 1.0))[groups.ids]
    return ~groups.constant(known, counted)[groups.ids]


def _values(data: Trajectories, spread_of: str, component: int) -> FloatArray:
    batch = data.batch
    if spread_of == "return":
        return batch.outcome
    if spread_of == "success":
        return data.success.astype(np.float64)
    if spread_of == "score":
        if np.isnan(data.score).all():
            raise ValueError("spread_of='score' is not allowed here: the environment reports no score.")
        return data.score
    if component >= _n_components(data):
        raise ValueError(f"spread_component={component} is not allowed: there are {_n_components(data)} components.")
    return batch.column("components")[:, component]


def _n_components(data: Trajectories) -> int:
    return 0 if data.batch.components is None else data.batch.components.shape[1]


@part(
    "sampling", "top_variance",
    source="RAGEN, arXiv 2504.20073; SEEN-CODE. RAGEN-2, arXiv 2604.06268; SEEN-3P",
    tags=["compares"],
    ranges={"oversample": (1.0, 1000.0), "keep_share": (0.0, 1.0), "variance_share": (0.0, 1.0)},
)  # fmt: skip
def top_variance(
    scheme: Scheme,
    trainer: Trainer,
    *,
    oversample: float = 4.0,
    keep: Literal["share", "variance"] = "share",
    keep_share: float = 0.25,
    variance_share: float = 0.9,
) -> Trajectories | None:
    """Roll out more prompts and keep those whose returns spread most.

    * ``oversample``: how many times ``n_prompts`` are rolled out.
    * ``keep``: the ``share`` of groups with the largest standard deviation (RAGEN, ``keep_share``), or
      the fewest groups whose variances make up ``variance_share`` of their sum (RAGEN-2).

    At least one group is kept. Spreads are compared in the rewards' units: in a mixture, environments
    with large rewards are preferred.
    """
    data = trainer.run(trainer.groups(max(round(oversample * trainer.n_prompts), 1)))
    if data is None:
        return None
    groups = data.batch.level("prompt")
    spread = groups.spread(data.batch.outcome, data.batch.counted.astype(float), 1)
    ranked = np.argsort(-spread, kind="stable")
    size = round(keep_share * groups.size) if keep == "share" else smallest_set(spread[ranked] ** 2, variance_share)
    kept = np.isin(groups.ids, ranked[: max(size, 1)])
    trainer.logged["sampling/kept_groups"] = float(max(size, 1))
    return choose(data, kept)


def smallest_set(variance: FloatArray, share: float) -> int:
    """Return how many of the leading variances, in descending order, make up a share of their sum."""
    total = variance.cumsum()
    # Up to rounding, so that equal variances count as the share that they are.
    return int(np.searchsorted(total, share * total[-1] * (1 - 1e-12))) + 1
