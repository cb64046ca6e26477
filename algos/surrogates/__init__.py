"""Losses: ratio, bounds, surrogate form and aggregation, in torch."""

from algos.surrogates import (  # noqa: F401  they register their parts
    aggregation,
    bounds,
    corrections,
    filters,
    forms,
    kl,
    ratios,
)
from algos.surrogates.loss import policy_loss

__all__ = ["policy_loss"]
