"""The tokens of one minibatch, as losses see them: turns as rows, whole rollouts."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Tokens:
    """Log-probabilities, credit and ids of m turns with L slots.

    Attributes:
        log_prob: (m, L) current log-probabilities, with gradient; 0 where the mask is False.
        old_log_prob: (m, L) those of the policy that the ratio is taken to; 0 where masked.
        advantage: (m, 1) or (m, L).
        mask: (m, L) bool, the tokens in the loss.
        rollout: (m,) int64 row of each turn's rollout, in [0, n_rollouts); None where no part asks.
        n_rollouts: number of rollouts.
        behaviour_log_prob: (m, L) those of the policy that wrote the tokens, where that is another.
        reference_log_prob: (m, L) those of the reference policy, for a KL penalty.
        columns: what parts prepared for the whole update, name -> (m, 1) or (m, L).
    """

    log_prob: torch.Tensor
    old_log_prob: torch.Tensor
    advantage: torch.Tensor
    mask: torch.Tensor
    rollout: torch.Tensor | None = None
    n_rollouts: int = 0
    behaviour_log_prob: torch.Tensor | None = None
    reference_log_prob: torch.Tensor | None = None
    columns: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @functools.cached_property
    def log_ratio(self) -> torch.Tensor:
        """(m, L) log p - log p_old with gradient, not cut, 0 where masked: what sums over rollouts need."""
        difference = self.log_prob - self.old_log_prob
        return torch.where(self.mask, difference, 0.0)

    @functools.cached_property
    def credit(self) -> torch.Tensor:
        """(m, L) the advantage of every token, 0 where masked."""
        advantage = self.advantage.expand_as(self.mask)
        return torch.where(self.mask, advantage, 0.0)

    def turn_mean(self, values: torch.Tensor) -> torch.Tensor:
        """Return (m, 1) the mean over each turn's tokens of values (m, L) that are 0 where masked."""
        count = self.mask.sum(dim=1, keepdim=True).clamp(min=1)
        return values.sum(dim=1, keepdim=True) / count

    def rollout_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return (m, 1) the sum over each turn's rollout of values (m, L) that are 0 where masked."""
        return self.rollout_totals(values)[self.owner].unsqueeze(1)

    def rollout_totals(self, values: torch.Tensor) -> torch.Tensor:
        """Return (n_rollouts,) sums of values (m, L) that are 0 where masked."""
        per_turn = values.sum(dim=1)
        return per_turn.new_zeros(self.n_rollouts).index_add(0, self.owner, per_turn)

    @functools.cached_property
    def rollout_counts(self) -> torch.Tensor:
        """(n_rollouts,) float, the tokens of each rollout in the loss."""
        return self.rollout_totals(self.mask.to(self.log_prob.dtype))

    def rollout_mean(self, values: torch.Tensor) -> torch.Tensor:
        """Return (m, 1) the mean over the tokens of each turn's rollout."""
        means = self.rollout_totals(values) / self.rollout_counts.clamp(min=1)
        return means[self.owner].unsqueeze(1)

    @functools.cached_property
    def rollout_credit(self) -> torch.Tensor:
        """(n_rollouts,) the mean advantage of each rollout's tokens."""
        return self.rollout_totals(self.credit) / self.rollout_counts.clamp(min=1)

    @property
    def owner(self) -> torch.Tensor:
        """(m,) row of each turn's rollout.

        Raises:
            ValueError: if it was not given.
        """
        if self.rollout is None:
            raise ValueError("rollout=None is not allowed here: this loss needs to know which turns belong together.")
        return self.rollout
