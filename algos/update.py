"""The tensors of one update, made once and cut into minibatches of whole rollouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from algos.advantages.gae import generalised_advantage
from algos.collector import Trajectories
from algos.policies import MessagePolicy
from algos.scheme import Scheme
from algos.segments import FloatArray
from algos.surrogates.loss import as_float32


@dataclass(frozen=True)
class UpdateTensors:
    """Turns as rows; see ``MessagePolicy.log_probs`` for the meaning of the columns.

    Attributes:
        rollout: (m,) owner of each turn, ascending after ``shuffled``.
        n_rollouts: number of rollouts in the whole update.
    """

    features: torch.Tensor
    columns: torch.Tensor
    blocked: torch.Tensor
    previous: torch.Tensor
    position: torch.Tensor
    old_log_prob: torch.Tensor
    advantage: torch.Tensor
    weights: torch.Tensor
    value_target: torch.Tensor | None
    rollout: torch.Tensor
    n_rollouts: int

    @classmethod
    def build(
        cls,
        policy: MessagePolicy,
        scheme: Scheme,
        data: Trajectories,
        credit: FloatArray,
        weights: FloatArray,
    ) -> UpdateTensors:
        """Make the tensors of an update.

        Args:
            policy: knows the grammar's tables.
            scheme: decides whether there is a value target.
            data: the rollouts.
            credit: (M,) advantages, or (M, L).
            weights: (M, L) from ``token_weights``.
        """
        columns, blocked = policy.slot_tables(data.state)
        target = None
        if scheme.needs_critic:
            assert data.batch.value is not None
            target = as_float32(generalised_advantage(scheme, data.batch) + data.batch.value)
        return cls(
            features=torch.from_numpy(data.features),
            columns=torch.from_numpy(columns),
            blocked=torch.from_numpy(blocked),
            previous=torch.from_numpy(data.previous),
            position=torch.from_numpy(data.position),
            old_log_prob=torch.from_numpy(data.log_prob),
            advantage=as_float32(credit.reshape(len(credit), -1)),
            weights=as_float32(weights),
            value_target=target,
            rollout=torch.from_numpy(data.batch.turn_rollout),
            n_rollouts=len(data.batch),
        )

    def take(self, turns: torch.Tensor) -> UpdateTensors:
        """Keep the given turns, in that order."""
        changed = {
            field.name: value.index_select(0, turns)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), torch.Tensor)
        }
        return dataclasses.replace(self, **changed)

    def shuffled(self, random: np.random.Generator) -> UpdateTensors:
        """Bring the rollouts into a random order, each one's turns together."""
        rank = torch.from_numpy(random.permutation(self.n_rollouts))
        place = rank[self.rollout]
        result = self.take(torch.argsort(place, stable=True))
        return dataclasses.replace(result, rollout=torch.sort(place, stable=True).values)

    def minibatches(self, n: int) -> Iterator[UpdateTensors]:
        """Cut into n parts of (almost) equally many rollouts; call on a shuffled instance."""
        bounds = torch.linspace(0, self.n_rollouts, n + 1, dtype=torch.float64).round().to(torch.int64)
        edges = torch.searchsorted(self.rollout, bounds).tolist()
        for start, stop in zip(edges[:-1], edges[1:], strict=True):
            if stop > start:
                changed = {
                    field.name: value[start:stop]
                    for field in dataclasses.fields(self)
                    if isinstance(value := getattr(self, field.name), torch.Tensor)
                }
                yield dataclasses.replace(self, **changed)

    def without_critic(self) -> UpdateTensors:
        """Leave the critic's target out."""
        return dataclasses.replace(self, value_target=None)
