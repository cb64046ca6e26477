"""The experiments, one module each.

A module ``benchmarks/experiments/<name>.py`` holds two constants: ``EXPERIMENT``, whose name is
``<name>``, and ``QUICK``, a small version for demos and tests, whose name is ``<name>_quick`` so
that its results never mix with those of the full experiment.
"""

import importlib
import pkgutil

from benchmarks.experiment import BenchmarkError, Experiment


def names() -> tuple[str, ...]:
    """Names of all experiments, sorted."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in found if not name.startswith("_")))


def load(name: str, quick: bool = False) -> Experiment:
    """Read an experiment from its module.

    Args:
        name: Name of the module, one of `names`.
        quick: Whether to load the small version.

    Returns:
        The module's ``QUICK`` or ``EXPERIMENT``.

    Raises:
        BenchmarkError: If there is no such experiment (a ``ValueError``).
        TypeError: If the module does not define the constant as it should.
    """
    if name not in names():
        raise BenchmarkError(f"'name' must be one of {list(names())}. Got {name!r} instead.")
    module = importlib.import_module(f"{__name__}.{name}")
    constant, expected = ("QUICK", f"{name}_quick") if quick else ("EXPERIMENT", name)
    experiment = getattr(module, constant, None)
    if not isinstance(experiment, Experiment) or experiment.name != expected:
        raise TypeError(f"{module.__name__}.{constant} must be an Experiment named {expected!r}. Got {experiment!r}.")
    return experiment
