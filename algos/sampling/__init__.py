"""Sampling: which prompts, how many rollouts, from which policy.

A sampler is a function of (scheme, trainer) that returns the rollouts of one update; see
``trainer.Trainer`` for what it can ask of the trainer. It returns None if a callback stopped the
training, and no rollouts to skip the update. What it remembers it keeps in ``trainer.memory``, so
that it is saved with the model. The tag ``compares`` says that it needs groups of at least two.
"""

from algos.sampling import filters, prioritised, trace, uniform, writers  # noqa: F401  they register their parts
from algos.sampling.overlong import Overlong
from algos.sampling.prompts import UniformPrompts
from algos.sampling.select import choose, join
from algos.sampling.trainer import Trainer

__all__ = ["Overlong", "Trainer", "UniformPrompts", "choose", "join"]
