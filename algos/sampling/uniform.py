"""The plain sampler."""

from __future__ import annotations

from algos.collector import Trajectories
from algos.parts import part
from algos.sampling.trainer import Trainer
from algos.scheme import Scheme


@part("sampling", "uniform", source="-")
def uniform(scheme: Scheme, trainer: Trainer) -> Trajectories | None:
    """Roll the next ``n_prompts`` prompts out, ``group_size`` times each."""
    return trainer.run(trainer.groups(trainer.n_prompts))
