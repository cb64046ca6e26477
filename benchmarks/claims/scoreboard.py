"""The scoreboard: every claim's effect, verdict, and whether the verdict is sensitive."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.claims.claim import Arm, Claim, Verdict, effect, metric_of, verdict
from benchmarks.claims.suite import SEEDS, SENSITIVITY_SEEDS, VARIANTS, Choice, ClaimRuns
from benchmarks.experiment import RunConfig, run_id
from benchmarks.statistics import Interval

FEWEST_SEEDS = 5
"""Of a variant; with fewer, next to everything would be inconclusive."""


@dataclass(frozen=True)
class Entry:
    """One line of the scoreboard.

    Attributes:
        claim: What was tested.
        effect: Mean paired difference with its 95 % interval.
        control_mean: Mean metric of the control arm, to judge the effect's size.
        seeds: Paired seeds behind it.
        verdict: By the claim's rule.
        choices: The chosen clip widths and learning rate of each arm.
        sensitivity: Verdict under each variant, for those of which enough runs are there.
    """

    claim: Claim
    effect: Interval
    control_mean: float
    seeds: int
    verdict: Verdict
    choices: tuple[Choice, ...]
    sensitivity: Mapping[str, Verdict]

    @property
    def robust(self) -> str:
        """``yes`` if no variant has the opposite verdict and most have the same; else ``no``; ``-`` unknown."""
        if len(self.sensitivity) < len(VARIANTS):
            return "-"
        same = sum(found == self.verdict for found in self.sensitivity.values())
        opposite = {"replicates": "contradicted", "contradicted": "replicates"}.get(self.verdict)
        return "yes" if same * 2 > len(VARIANTS) and opposite not in self.sensitivity.values() else "no"


def scoreboard(runs: ClaimRuns, rows: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Judge the claims whose reported runs are there.

    Args:
        runs: The claims.
        rows: Evaluation points of the store.

    Raises:
        BenchmarkError: If tuning is incomplete.
    """
    by_run: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_run[row["run_id"]].append(row)
    chosen = runs.choose_rates(row for points in by_run.values() for row in points)
    entries = []
    for claim in runs.claims:
        values = [_by_seed(runs, by_run, arm, claim.metric, chosen[arm], None) for arm in claim.arms]
        seeds = set.intersection(*(set(arm) for arm in values))
        if len(seeds) < 2:
            continue
        found = effect(claim, values)
        entries.append(
            Entry(
                claim, found, sum(values[1][seed] for seed in seeds) / len(seeds), len(seeds), verdict(claim, found),
                tuple(chosen[arm] for arm in claim.arms), _sensitivity(runs, by_run, claim, chosen),
            )
        )  # fmt: skip
    return entries


def _by_seed(
    runs: ClaimRuns, by_run: Mapping[str, list[Mapping[str, Any]]], arm: Arm, metric: str, choice: Choice,
    variant: str | None,
) -> dict[int, float]:  # fmt: skip
    """Return an arm's metric by seed, of the seeds that are finished."""

    def config(seed: int) -> RunConfig:
        return runs.variant(arm, variant, seed, choice) if variant else runs.report(arm, seed, choice)

    identities = {seed: run_id(config(seed)) for seed in (SENSITIVITY_SEEDS if variant else SEEDS)}
    values = {seed: metric_of(by_run[name], metric) for seed, name in identities.items() if name in by_run}
    return {seed: value for seed, value in values.items() if math.isfinite(value)}


def _sensitivity(
    runs: ClaimRuns, by_run: Mapping[str, list[Mapping[str, Any]]], claim: Claim, chosen: Mapping[Arm, Choice]
) -> dict[str, Verdict]:
    result: dict[str, Verdict] = {}
    for variant in VARIANTS:
        values = [_by_seed(runs, by_run, arm, claim.metric, chosen[arm], variant) for arm in claim.arms]
        if len(set.intersection(*(set(arm) for arm in values))) >= FEWEST_SEEDS:
            result[variant] = verdict(claim, effect(claim, values))
    return result


def document(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the scoreboard as plain data."""
    return [
        {
            "key": entry.claim.key, "source": entry.claim.source, "statement": entry.claim.statement,
            "treatment": entry.choices[0].scheme, "control": entry.choices[1].scheme,
            "regime": entry.claim.treatment.regime.name, "metric": entry.claim.metric,
            "predicted": entry.claim.direction, "effect": entry.effect.estimate, "low": entry.effect.low,
            "high": entry.effect.high, "control_mean": entry.control_mean, "seeds": entry.seeds,
            "verdict": entry.verdict, "robust": entry.robust, "sensitivity": dict(entry.sensitivity),
            "learning_rates": [choice.rate for choice in entry.choices], "note": entry.claim.note,
            "treatment_budget": asdict(entry.claim.treatment.budget),
            "control_budget": asdict(entry.claim.control.budget),
        }
        for entry in entries
    ]  # fmt: skip
