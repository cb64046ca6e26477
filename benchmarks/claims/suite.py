"""The runs of all claims: tuning, reported runs, and the sensitivity of the verdicts.

Claims share arms, and arms share environments, so that the runs of one claim serve others. For
every arm the learning rate is chosen on the same grid with tuning seeds of their own, by the mean
score (not by the claim's metric). Methods whose clip width is part of the method choose it, too:
published widths are for ratios over long messages. Sensitivity repeats the reported runs, with
fewer seeds, at the neighbouring learning rates and with a smaller network.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from algos import make_scheme
from benchmarks.claims.catalogue import CLAIMS
from benchmarks.claims.claim import Arm, Claim
from benchmarks.experiment import BenchmarkError, Phase, RunConfig, run_id

NAME = "claims"
SEEDS = tuple(range(20))
SENSITIVITY_SEEDS = tuple(range(10))
TUNING_SEEDS = (100, 101)
MORE_TUNING_SEEDS = tuple(range(100, 108))
"""Where the width is tuned with the rate: two seeds are too few to choose among nine candidates."""
LEARNING_RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
SMALL_NETWORK = 32
VARIANTS = ("lower learning rate", "higher learning rate", "smaller network")

WIDTH_FACTORS = (1.0, 10.0, 100.0)
"""Of a method's own clip widths; where a hundred times would be more than everything, of a hundredth of them."""


class Choice(NamedTuple):
    """What tuning chose for an arm: the scheme with its clip widths, and the learning rate."""

    scheme: str
    rate: float


Choices = Mapping[Arm, Choice]


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

    def runs(self, phase: Phase, learning_rates: Choices | None = None) -> list[RunConfig]:
        """Configurations of one phase, seeds outermost; all but tuning need what was chosen."""
        if phase == "tune":
            runs = [config for arm in self.arms for config in ClaimRuns.of_arm(arm)]
            return sorted(runs, key=lambda config: config.seed)
        chosen = learning_rates
        if chosen is None:
            raise ValueError(f"learning_rates=None is not allowed for the phase {phase!r}: tune first.")
        if phase == "report":
            return [self.report(arm, seed, chosen[arm]) for seed in SEEDS for arm in self.arms]
        return [
            self.variant(arm, variant, seed, chosen[arm])
            for seed in SENSITIVITY_SEEDS for arm in self.arms for variant in VARIANTS
        ]  # fmt: skip

    def every_run(self) -> list[RunConfig]:
        """All configurations that can belong to the claims, whatever is chosen."""
        configs = self.runs("tune")
        for arm in self.arms:
            for choice in candidates(arm):
                configs += [self.report(arm, seed, choice) for seed in SEEDS]
                configs += [self.variant(arm, name, seed, choice) for name in VARIANTS for seed in SENSITIVITY_SEEDS]
        return list({run_id(config): config for config in configs}.values())

    def report(self, arm: Arm, seed: int, choice: Choice) -> RunConfig:
        """Return the reported run of an arm."""
        return _config(arm, seed, choice, "report")

    def variant(self, arm: Arm, variant: str, seed: int, choice: Choice) -> RunConfig:
        """Return the run of an arm under one of ``VARIANTS``."""
        if variant == "smaller network":
            small = dataclasses.replace(arm, budget=dataclasses.replace(arm.budget, net_width=SMALL_NETWORK))
            return _config(small, seed, choice, "sensitivity")
        factor = 3.0 if variant == "higher learning rate" else 1.0 / 3.0
        return _config(arm, seed, Choice(choice.scheme, float(f"{choice.rate * factor:.3g}")), "sensitivity")

    def tuned(self, rows: Iterable[Mapping[str, Any]]) -> ClaimRuns:
        """Return those of the claims whose tuning runs are all there."""
        finished = {row["run_id"] for row in rows if row["phase"] == "tune"}
        unfinished = {
            arm for arm in self.arms if not all(run_id(config) in finished for config in ClaimRuns.of_arm(arm))
        }
        return ClaimRuns(claim for claim in self.claims if not unfinished.intersection(claim.arms))

    @staticmethod
    def of_arm(arm: Arm) -> list[RunConfig]:
        """Return an arm's tuning runs."""
        return [_config(arm, seed, choice, "tune") for choice in candidates(arm) for seed in tuning_seeds(arm)]

    def choose_rates(self, rows: Iterable[Mapping[str, Any]]) -> dict[Arm, Choice]:
        """Return each arm's choice: the best mean score over the tuning seeds; of equals the smaller.

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

        def mean(arm: Arm, choice: Choice) -> float:
            runs = [scores[run_id(_config(arm, seed, choice, "tune"))] for seed in tuning_seeds(arm)]
            # Rounded, lest the order of a sum decide a tie.
            return round(float(np.mean([np.mean(points) for points in runs])), 12)

        # Of equals max takes the first, and candidates come in rising order.
        return {arm: max(candidates(arm), key=lambda choice: mean(arm, choice)) for arm in self.arms}


def tuning_seeds(arm: Arm) -> tuple[int, ...]:
    """Return the seeds of an arm's tuning runs."""
    return MORE_TUNING_SEEDS if arm.tune_width else TUNING_SEEDS


def candidates(arm: Arm) -> list[Choice]:
    """Return what tuning chooses from, smaller widths and rates first."""
    schemes = [arm.scheme]
    if arm.tune_width:
        own = make_scheme(arm.scheme)
        mark = "," if ":" in arm.scheme else ":"
        widest = 1.0 if own.clip_high * WIDTH_FACTORS[-1] <= 1.0 else WIDTH_FACTORS[-1]
        schemes = [
            arm.scheme
            if factor == widest
            else f"{arm.scheme}{mark}clip_low={own.clip_low * factor / widest:.3g}"
            f",clip_high={own.clip_high * factor / widest:.3g}"
            for factor in WIDTH_FACTORS
        ]
    return [Choice(scheme, rate) for scheme in schemes for rate in LEARNING_RATES]


def _config(arm: Arm, seed: int, choice: Choice, phase: Phase) -> RunConfig:
    return RunConfig(NAME, arm.regime, choice.scheme, seed, choice.rate, phase, arm.budget)
