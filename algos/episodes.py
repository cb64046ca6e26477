"""What SB3's callbacks look for in ``locals`` after a tick."""

from __future__ import annotations

from typing import Any

import numpy as np

from algos.rows import IntArray, Tick


class Episodes:
    """Adds up the rollouts that run, row by row.

    Args:
        n_rows: rows of the training environment.
    """

    def __init__(self, n_rows: int) -> None:
        """See the class docstring."""
        self._return = np.zeros(n_rows)
        self._length = np.zeros(n_rows, dtype=np.int64)

    def after(self, rows: IntArray, tick: Tick) -> dict[str, Any]:
        """Count one tick.

        Args:
            rows: (k,) the rows that were stepped.
            tick: what came of it.

        Returns:
            ``rewards`` (n,), 0 where a row stood still; ``dones`` (n,), True where a rollout ended in this
            tick; ``infos``, one dict per row, which has ``episode`` (return ``r`` and length ``l``) there.
        """
        n = len(self._return)
        rewards, dones = np.zeros(n), np.zeros(n, dtype=np.bool_)
        rewards[rows], dones[rows] = tick.reward, tick.terminated | tick.truncated
        self._return += rewards
        self._length[rows] += 1
        infos: list[dict[str, Any]] = [{} for _ in range(n)]
        for row in np.flatnonzero(dones):
            infos[row]["episode"] = {"r": float(self._return[row]), "l": int(self._length[row])}
        self._return[dones], self._length[dones] = 0.0, 0
        return {"rewards": rewards, "dones": dones, "infos": infos}
