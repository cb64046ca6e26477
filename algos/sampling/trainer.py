"""What a sampler can ask of the trainer."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np

from algos.collector import OnTick, Trajectories, Writer, collect
from algos.memory import Memory
from algos.policies import MessagePolicy
from algos.rows import Rows
from algos.sampling.prompts import UniformPrompts
from algos.sampling.select import join
from algos.scheme import Scheme
from algos.segments import IntArray

GROUND_TRUTH = frozenset({"information_gain", "process_reward"})
"""Columns that are measured with the right answers."""


@dataclass
class Trainer:
    """One update's collection, as samplers and measures see it.

    Attributes:
        scheme, rows, policy: what is trained where; the policy has the parameters that write.
        random: where prompts, rollout keys and samples come from.
        memory: what is kept from update to update, and saved.
        prompts: gives the next prompts in uniform order.
        n_prompts, group_size: groups per update and rollouts per group that the user asked for.
        n_updates: updates so far.
        on_tick: called after each tick, see ``collector.OnTick``; False stops.
        rollouts: what ``run`` has collected, greedy rollouts apart.
        logged: name -> value, for the logger.
    """

    scheme: Scheme
    rows: Rows
    policy: MessagePolicy
    random: np.random.Generator
    memory: Memory
    prompts: UniformPrompts
    n_prompts: int
    group_size: int
    n_updates: int
    on_tick: OnTick
    rollouts: list[Trajectories] = field(default_factory=list)
    logged: dict[str, float] = field(default_factory=dict)

    def groups(self, n: int) -> IntArray:
        """Return the next n prompts in uniform order, each ``group_size`` times."""
        return np.repeat(self.prompts.draw(n), self.group_size)

    def run(
        self, prompt: IntArray, writer: Writer | None = None, rollout: IntArray | None = None, greedy: bool = False
    ) -> Trajectories | None:
        """Collect one rollout per entry of ``prompt``; every turn is counted.

        Args:
            prompt: (N,) prompt of each rollout.
            writer: writes the messages instead of the policy.
            rollout: (N,) rollout keys; None draws new ones.
            greedy: take the likeliest tokens.

        Returns:
            The rollouts, in that order; None if a callback stops the training.
        """
        keys = self.random.integers(2**63 - 1, size=len(prompt)) if rollout is None else rollout
        data = collect(
            self.rows, self.policy, prompt, keys, self.random, deterministic=greedy, on_tick=self.on_tick,
            writer=writer, with_truth=bool(GROUND_TRUTH & self.scheme.needs),
        )  # fmt: skip
        if data is not None and not greedy:
            self.rollouts.append(data)
        return data

    def seen(self) -> Trajectories:
        """Return everything that was collected, whatever the sampler keeps of it."""
        return join(self.rollouts)

    def warn_once(self, message: str) -> None:
        """Warn, once per model."""
        said = self.memory.get("warnings", set)
        if message not in said:
            said.add(message)
            warnings.warn(message, stacklevel=2)
