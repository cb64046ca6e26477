"""Losses: ratio, bounds, surrogate form and aggregation, in torch."""

from algos.surrogates.loss import policy_loss

__all__ = ["policy_loss"]
