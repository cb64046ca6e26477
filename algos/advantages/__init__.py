"""Credit: from rewards to one advantage per turn, in NumPy float64."""

from algos.advantages import (  # noqa: F401  they register their parts
    baselines,
    conductor,
    gae,
    graph,
    outcome,
    scales,
    several_rewards,
    trackers,
    turns,
    weights,
)
from algos.advantages.pipeline import advantages, update_memory

__all__ = ["advantages", "update_memory"]
