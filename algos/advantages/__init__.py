"""Credit: from rewards to one advantage per turn, in NumPy float64."""

from algos.advantages.pipeline import advantages

__all__ = ["advantages"]
