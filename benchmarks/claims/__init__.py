"""Published claims as data: source, regime, treatment, control, metric, rule; runs and verdicts."""

from benchmarks.claims.catalogue import CLAIMS
from benchmarks.claims.claim import Arm, Claim, Verdict
from benchmarks.claims.suite import ClaimRuns

__all__ = ["CLAIMS", "Arm", "Claim", "ClaimRuns", "Verdict"]
