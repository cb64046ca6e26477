"""The runs of all claims: tuning, reported runs, and the sensitivity of the verdicts.

Claims share arms, and arms share environments, so that the runs of one claim serve others. For
every arm the learning rate is chosen on the same grid with tuning seeds of their own, by the mean
score (not by the claim's metric). Sensitivity repeats the reported runs, with fewer seeds, at the
neighbouring learning rates and with a smaller network.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks.claims.catalogue import CLAIMS
from benchmarks.claims.claim import Arm, Claim
from benchmarks.experiment import BenchmarkError, Phase, RunConfig, run_id

NAME = "claims"
SEEDS = tuple(range(20))
SENSITIVITY_SEEDS = tuple(range(10))
TUNING_SEEDS = (100, 101)
LEARNING_RATES = (1e-3, 3e-3, 1e-2)
SMALL_NETWORK = 32
VARIANTS = ("lower learning rate", "higher learning rate", "smaller network")

Rates = Mapping[Arm, float]


class ClaimRuns:
    """The runs that some claims need, in the form that the runner and the store know.

    Args:
        claims: Which claims; all by default.
    """

    name = NAME

    def __init__(self, claims: Iterable[Claim] = CLAIMS) -> None:
        """See the class docstring."""
        self.claims = tuple(claims)
        self.arms: tuple[Arm, ...] = tuple(dict.fromkeys(arm for claim in self.claims for arm in claim.arms))

    def runs(self, phase: Phase, learning_rates: Rates | None = None) -> list[RunConfig]:
        """Configurations of one phase, seeds outermost; all but tuning need the chosen rates."""
        if phase == "tune":
            return [
                self._config(arm, seed, rate, "tune")
                for seed in TUNING_SEEDS for arm in self.arms for rate in LEARNING_RATES
            ]  # fmt: skip
        rates = learning_rates
        if rates is None:
            raise ValueError(f"learning_rates=None is not allowed for the phase {phase!r}: tune first.")
        if phase == "report":
            return [self.report(arm, seed, rates[arm]) for seed in SEEDS for arm in self.arms]
        return [
            self.variant(arm, variant, seed, rates[arm])
            for seed in SENSITIVITY_SEEDS for arm in self.arms for variant in VARIANTS
        ]  # fmt: skip

    def every_run(self) -> list[RunConfig]:
        """All configurations that can belong to the claims, whichever rates are chosen."""
        runs = {run_id(config): config for config in self.runs("tune")}
        for rate in LEARNING_RATES:
            for phase in ("report", "sensitivity"):
                for config in self.runs(phase, dict.fromkeys(self.arms, rate)):
                    runs[run_id(config)] = config
        return list(runs.values())

    def report(self, arm: Arm, seed: int, rate: float) -> RunConfig:
        """Return the reported run of an arm."""
        return self._config(arm, seed, rate, "report")

    def variant(self, arm: Arm, variant: str, seed: int, rate: float) -> RunConfig:
        """Return the run of an arm under one of ``VARIANTS``."""
        if variant == "smaller network":
            small = dataclasses.replace(arm, budget=dataclasses.replace(arm.budget, net_width=SMALL_NETWORK))
            return self._config(small, seed, rate, "sensitivity")
        factor = 3.0 if variant == "higher learning rate" else 1.0 / 3.0
        return self._config(arm, seed, float(f"{rate * factor:.3g}"), "sensitivity")

    def _config(self, arm: Arm, seed: int, rate: float, phase: Phase) -> RunConfig:
        return RunConfig(NAME, arm.regime, arm.scheme, seed, rate, phase, arm.budget)

    def tuned(self, rows: Iterable[Mapping[str, Any]]) -> ClaimRuns:
        """Return those of the claims whose tuning runs are all there."""
        finished = {row["run_id"] for row in rows if row["phase"] == "tune"}
        unfinished = {
            Arm(config.scheme, config.regime, config.budget)
            for config in self.runs("tune")
            if run_id(config) not in finished
        }
        return ClaimRuns(claim for claim in self.claims if not unfinished.intersection(claim.arms))

    def choose_rates(self, rows: Iterable[Mapping[str, Any]]) -> dict[Arm, float]:
        """Return each arm's rate: the best mean score over the tuning seeds; of equals the smaller.

        Raises:
            BenchmarkError: If tuning runs are missing.
        """
        scores: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            if row["phase"] == "tune" and row["turns"] > 0:
                scores[row["run_id"]].append(row["score"])
        missing = sum(run_id(config) not in scores for config in self.runs("tune"))
        if missing:
            raise BenchmarkError(f"claims: {missing} tuning runs are missing; finish the phase 'tune' first.")
        rates = {}
        for arm in self.arms:
            means = {
                rate: round(
                    float(np.mean([
                        np.mean(scores[run_id(self._config(arm, seed, rate, "tune"))]) for seed in TUNING_SEEDS
                    ])), 12,
                )
                for rate in LEARNING_RATES
            }  # fmt: skip
            rates[arm] = max(LEARNING_RATES, key=lambda rate: (means[rate], -rate))
        return rates
