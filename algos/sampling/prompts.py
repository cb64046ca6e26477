"""Uniform prompt sampling: every prompt once per epoch, in random order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LARGEST_EPOCH = 2**20


class UniformPrompts:
    """Draws prompts without replacement, epoch after epoch.

    Prompts of a mixture are dealt to environments in cycles; whole cycles are drawn, so that every
    update has the environments in their proportions (up to a remainder). Where there are too many
    prompts to remember, cycles are drawn with replacement.

    Args:
        num_prompts: number of prompts.
        cycle: prompts per cycle, 1 where there is no mixture.
        random: generator for the order.
    """

    def __init__(self, num_prompts: int, cycle: int, random: np.random.Generator) -> None:
        """See the class docstring."""
        self.num_prompts, self.cycle, self.random = num_prompts, cycle, random
        self._queue = np.zeros(0, dtype=np.int64)

    def draw(self, n: int) -> npt.NDArray[np.int64]:
        """Return the next n prompts."""
        while len(self._queue) < n:
            self._queue = np.concatenate([self._queue, self._epoch()])
        drawn, self._queue = self._queue[:n], self._queue[n:]
        return drawn

    def _epoch(self) -> npt.NDArray[np.int64]:
        cycles = -(-self.num_prompts // self.cycle)
        if cycles > LARGEST_EPOCH:
            order = self.random.integers(cycles, size=1024)
        else:
            order = self.random.permutation(cycles)
        prompts = (order[:, None] * self.cycle + np.arange(self.cycle)).reshape(-1)
        return prompts[prompts < self.num_prompts]
