"""What a claim is, and how runs decide it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.experiment import Budget, Regime
from benchmarks.statistics import Interval, paired_difference

Direction = Literal["greater", "less", "equal"]
Verdict = Literal["replicates", "contradicted", "inconclusive"]
WORST = "worst"


@dataclass(frozen=True)
class Arm:
    """One side of a comparison.

    Attributes:
        scheme: What ``make_scheme`` takes.
        regime: The environment.
        budget: What a run may use.
        tune_width: Whether the clip's width is part of the method, and tuned with the learning rate.
    """

    scheme: str
    regime: Regime
    budget: Budget
    tune_width: bool = False


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and the comparison that decides it; fixed before the runs.

    The effect is the mean over paired seeds of the metric's treatment minus control; with
    ``against`` that less the same difference of another pair (a difference of differences).

    The rule: ``greater`` replicates if the 95 % interval of the effect lies above 0 and is
    contradicted if it lies below; ``less`` the other way round; ``equal`` replicates if the interval
    lies within ``margin`` of 0, and is contradicted if it lies wholly outside. All else is
    inconclusive.

    Attributes:
        key: Short unique name.
        source: Paper with its arXiv number.
        statement: The claim, in our words.
        treatment, control: The arms that are compared, paired by seed.
        metric: ``column`` or ``column.environment`` or ``column.worst``, with the suffix ``@end`` for
            the last evaluation point instead of the mean over all; without a name the mean over
            environments.
        direction: What the claim predicts of the effect.
        against: The pair (treatment, control) whose difference is subtracted, or None.
        margin: What counts as equal.
        note: What of the claim the comparison does not cover, if anything.
    """

    key: str
    source: str
    statement: str
    treatment: Arm
    control: Arm
    metric: str
    direction: Direction
    against: tuple[Arm, Arm] | None = None
    margin: float = 0.03
    note: str = ""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """All arms, treatment first."""
        return (self.treatment, self.control, *(self.against or ()))


def metric_of(rows: Iterable[Mapping[str, Any]], metric: str) -> float:
    """Return a run's metric from its evaluation points.

    Raises:
        ValueError: If no row has it.
    """
    name, _, point = metric.partition("@")
    column, _, which = name.partition(".")
    trained = [row for row in rows if row["turns"] > 0]
    last = max(row["turns"] for row in trained)
    by_environment: dict[str, list[float]] = {}
    for row in trained:
        if (point != "end" or row["turns"] == last) and which in ("", WORST, row["environment"]):
            by_environment.setdefault(row["environment"], []).append(row[column])
    if not by_environment:
        raise ValueError(f"metric={metric!r} is not in the rows: no environment {which!r}.")
    values = [float(np.nanmean(points)) for points in by_environment.values()]
    return min(values) if which == WORST else float(np.mean(values))


def effect(claim: Claim, values: Sequence[Mapping[int, float]]) -> Interval:
    """Return the effect with its 95 % interval.

    Args:
        claim: The claim.
        values: For each of ``claim.arms`` the metric by seed; seeds that some arm lacks are left out.

    Raises:
        ValueError: If fewer than two seeds are common to all arms.
    """
    seeds = sorted(set.intersection(*(set(arm) for arm in values)))
    if len(seeds) < 2:
        raise ValueError(f"claim {claim.key!r} has {len(seeds)} seeds common to all arms; it needs at least 2.")
    arms = [np.array([arm[seed] for seed in seeds]) for arm in values]
    control = arms[1] if claim.against is None else arms[1] + arms[2] - arms[3]
    return paired_difference(arms[0], control)


def verdict(claim: Claim, found: Interval) -> Verdict:
    """Apply the rule."""
    if claim.direction == "equal":
        if -claim.margin <= found.low and found.high <= claim.margin:
            return "replicates"
        return "contradicted" if found.low > claim.margin or found.high < -claim.margin else "inconclusive"
    low, high = (found.low, found.high) if claim.direction == "greater" else (-found.high, -found.low)
    return "replicates" if low > 0 else "contradicted" if high < 0 else "inconclusive"
