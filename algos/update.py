"""The tensors of one update, made once and cut into minibatches of whole rollouts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from algos.advantages.gae import generalised_advantage
from algos.batch import RolloutBatch
from algos.collector import Trajectories
from algos.policies import MessagePolicy, Slots
from algos.scheme import Scheme
from algos.segments import FloatArray, stable_order
from algos.surrogates.aggregation import counts_minibatches
from algos.surrogates.loss import as_float32, prepared_columns
from algos.surrogates.tokens import Tokens


@dataclass(frozen=True)
class UpdateTensors:
    """Turns as rows.

    Attributes:
        slots: what the policy needs to score the tokens.
        old_log_prob: (m, L) log-probabilities of the policy that the ratio is taken to.
        mask: (m, L) bool, the tokens in the loss.
        advantage: (m, 1) or (m, L).
        weights: (m, L) weight of each token in the loss of the whole update, or of its minibatch where that
            is a mean of its own.
        value_target: (m,) for the critic, or None.
        value_weights: (m,) weight of each turn in the critic's loss of the whole update, or None.
        rollout: (m,) owner of each turn, ascending after ``shuffled``.
        n_rollouts: number of rollouts in the whole update.
        columns: what losses ask for besides: (m, 1) or (m, L) each.
        prompt: (n_rollouts,) group of each rollout where minibatches must not cut groups, or None.
        own_means: whether the weights of each minibatch sum to 1.
    """

    slots: Slots
    old_log_prob: torch.Tensor
    mask: torch.Tensor
    advantage: torch.Tensor
    weights: torch.Tensor
    value_target: torch.Tensor | None
    value_weights: torch.Tensor | None
    rollout: torch.Tensor
    n_rollouts: int
    columns: dict[str, torch.Tensor]
    prompt: torch.Tensor | None = None
    own_means: bool = False

    @classmethod
    def build(
        cls,
        policy: MessagePolicy,
        scheme: Scheme,
        data: Trajectories,
        credit: FloatArray,
        weights: FloatArray,
        loss_batch: RolloutBatch | None = None,
        **columns: torch.Tensor,
    ) -> UpdateTensors:
        """Make the tensors of an update.

        Args:
            policy: knows the grammar's tables.
            scheme: decides whether there is a value target.
            data: the rollouts.
            credit: (M,) advantages, or (M, L).
            weights: (M, L) from ``token_weights``.
            loss_batch: the batch whose tokens are in the loss, where that is not the rollouts' own.
            **columns: (M, L) ``old_log_prob`` if it is not that of the policy that wrote the tokens,
                ``reference_log_prob``.
        """
        target = value_weights = None
        if scheme.needs_critic:
            assert data.batch.value is not None
            target = as_float32(generalised_advantage(scheme, data.batch) + data.batch.value)
            counted = data.batch.counted[data.batch.turn_rollout]
            value_weights = as_float32(counted / max(counted.sum(), 1))
        behaviour = torch.from_numpy(data.log_prob)
        if "old_log_prob" in columns:
            columns["behaviour_log_prob"] = behaviour
        return cls(
            slots=policy.slots(data.features, data.state, data.previous, data.position),
            old_log_prob=columns.pop("old_log_prob", behaviour),
            mask=torch.from_numpy(weights > 0),
            advantage=as_float32(credit.reshape(len(credit), -1)),
            weights=as_float32(weights),
            value_target=target,
            value_weights=value_weights,
            rollout=torch.from_numpy(data.batch.turn_rollout),
            n_rollouts=len(data.batch),
            columns={**columns, **prepared_columns(scheme, loss_batch or data.batch, credit, data.batch)},
            prompt=torch.from_numpy(data.batch.level("prompt").ids) if keeps_groups(scheme) else None,
            own_means=counts_minibatches(scheme),
        )

    def tokens(self, log_prob: torch.Tensor) -> Tokens:
        """Return what losses see, for current log-probabilities (m, L)."""
        columns = dict(self.columns)
        return Tokens(
            log_prob, self.old_log_prob, self.advantage, self.mask, self.rollout, self.n_rollouts,
            columns.pop("behaviour_log_prob", None), columns.pop("reference_log_prob", None), columns,
        )  # fmt: skip

    def take(self, turns: torch.Tensor) -> UpdateTensors:
        """Keep the given turns, in that order."""
        return self._map(lambda tensor: tensor.index_select(0, turns))

    def _map(self, choose: Callable[[torch.Tensor], torch.Tensor]) -> UpdateTensors:
        target, value_weights = self.value_target, self.value_weights
        return UpdateTensors(
            slots=Slots(*(choose(tensor) for tensor in self.slots)),
            old_log_prob=choose(self.old_log_prob),
            mask=choose(self.mask),
            advantage=choose(self.advantage),
            weights=choose(self.weights),
            value_target=None if target is None else choose(target),
            value_weights=None if value_weights is None else choose(value_weights),
            rollout=choose(self.rollout),
            n_rollouts=self.n_rollouts,
            columns={name: choose(column) for name, column in self.columns.items()},
            prompt=self.prompt,
            own_means=self.own_means,
        )

    def shuffled(self, random: np.random.Generator) -> UpdateTensors:
        """Bring the rollouts into a random order, each one's turns together, and groups if they must be."""
        rank = torch.from_numpy(random.permutation(self.n_rollouts))
        prompt = self.prompt
        if prompt is not None:
            rank, prompt = _grouped(rank, prompt)
        place = rank[self.rollout]
        order = torch.from_numpy(stable_order(place.numpy(), self.n_rollouts))
        return dataclasses.replace(self.take(order), rollout=place[order], prompt=prompt)

    def minibatches(self, n: int) -> Iterator[UpdateTensors]:
        """Cut into n parts of (almost) equally many rollouts; call on a shuffled instance.

        Weights are n times as large, so that the parts' losses are on average that of the whole, or those
        of a mean of its own. Where groups must stay whole, cuts move to the next border between groups.
        """
        bounds = torch.linspace(0, self.n_rollouts, n + 1, dtype=torch.float64).round().to(torch.int64)
        if self.prompt is not None:
            inner = torch.nonzero(self.prompt.diff())[:, 0] + 1
            borders = torch.cat([bounds[:1], inner, bounds[-1:]])
            bounds = borders[torch.searchsorted(borders, bounds)]
        edges = torch.searchsorted(self.rollout, bounds).tolist()
        value_weights = None if self.value_weights is None else self.value_weights * n
        whole = dataclasses.replace(self, weights=self.weights * n, value_weights=value_weights)
        for start, stop in itertools.pairwise(edges):
            if stop > start:
                cut = whole._map(lambda tensor, rows=slice(start, stop): tensor[rows])  # type: ignore[misc]
                yield cut._as_mean() if self.own_means else cut

    def _as_mean(self) -> UpdateTensors:
        total = self.weights.sum()
        return dataclasses.replace(self, weights=self.weights / total) if total > 0 else self

    def without_critic(self) -> UpdateTensors:
        """Leave the critic's target out."""
        return dataclasses.replace(self, value_target=None, value_weights=None)


def keeps_groups(scheme: Scheme) -> bool:
    """Whether a part of the scheme needs all rollouts of a group in the same minibatch."""
    return any("whole_groups" in chosen.tags for chosen in scheme.parts)


def pulls_back(scheme: Scheme) -> bool:
    """Whether the surrogate draws ratios towards 1 where there is no credit too."""
    return any("pulls_back" in chosen.tags for chosen in scheme.parts)


def _grouped(rank: torch.Tensor, prompt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Move rollouts of one group together, groups in the order of their first rollouts.

    Args:
        rank: (N,) place of each rollout.
        prompt: (N,) its group, dense ids.

    Returns:
        The new places (N,), and the groups in that order (N,).
    """
    first = torch.full((int(prompt.max()) + 1,), len(rank)).scatter_reduce(0, prompt, rank, "amin")
    order = torch.argsort(first[prompt] * len(rank) + rank)
    return torch.argsort(order), prompt[order]
