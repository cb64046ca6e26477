"""Sampling: which prompts, how many rollouts, from which policy."""

from algos.sampling.uniform import UniformPrompts

__all__ = ["UniformPrompts"]
