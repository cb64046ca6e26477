"""From reward components to the delivered reward.

``value`` is the sum of a turn's components in the family's own units. The delivered reward is
``scale * (value + noise) + offset``: at the end of the rollout for the whole rollout's value
(default), or densely, turn by turn, with the offset on the last turn. Noise is measured in units
of value, so that a change of ``reward_scale`` and ``reward_offset`` is an affine map of every
return, noisy or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentic_gym import streams
from agentic_gym.knobs import Knobs

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class RewardTransform:
    """Delivers rewards for rows that belong to one of E environments with their own knobs.

    Args:
        knobs: the knobs of each environment, E of them.
    """

    def __init__(self, knobs: Sequence[Knobs]) -> None:
        """See the class docstring."""
        self.scale = np.array([k.reward_scale for k in knobs])
        self.offset = np.array([k.reward_offset for k in knobs])
        self.noise = np.array([k.reward_noise for k in knobs])
        self.heavy_tails = np.array([k.reward_noise_dist == "student_t" for k in knobs])
        self.dense = np.array([k.dense for k in knobs])
        self._noisy = bool(self.noise.any())

    def deliver(
        self,
        environment: npt.NDArray[np.int64],
        value: FloatArray,
        earned: FloatArray,
        ended: BoolArray,
        key: streams.Keys,
        turn: npt.NDArray[np.int64],
    ) -> FloatArray:
        """Return the reward of each row's turn.

        Args:
            environment: (n,) index of the row's environment.
            value: (n,) value of this turn.
            earned: (n,) value of the rollout so far, this turn included.
            ended: (n,) whether the rollout ends with this turn.
            key: (n,) keys of the rollouts' noise.
            turn: (n,) index of the turn, from 1.

        Returns:
            float64 array (n,).
        """
        dense = self.dense[environment]
        amount = np.where(dense, value, earned * ended)
        if self._noisy:
            noisy = (dense | ended).nonzero()[0]
            amount[noisy] += self._noise(environment[noisy], key[noisy], turn[noisy])
        return self.scale[environment] * amount + self.offset[environment] * ended

    def _noise(self, environment: npt.NDArray[np.int64], key: streams.Keys, turn: npt.NDArray[np.int64]) -> FloatArray:
        normal = streams.normal(key, streams.REWARD, turn)
        heavy = self.heavy_tails[environment]
        if heavy.any():
            normal = np.where(heavy, streams.student_t(key, streams.REWARD, turn), normal)
        return self.noise[environment] * normal
