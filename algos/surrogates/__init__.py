"""Losses: ratio, bounds, surrogate form and aggregation, in torch."""

from algos.surrogates import (  # noqa: F401  they register their parts
    aggregation,
    bounds,
    corrections,
    covariance,
    filters,
    forms,
    future,
    kl,
    off_policy,
    ratios,
)
from algos.surrogates.loss import policy_loss

__all__ = ["policy_loss"]
