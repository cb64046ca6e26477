"""The experiments, one module each.

A module ``benchmarks/experiments/<name>.py`` holds ``EXPERIMENT``, whose name is ``<name>``. It may
also hold ``QUICK``, a small version for demos and tests, whose name is ``<name>_quick`` so that its
results never mix with those of the full experiment. Workers import the module before they train, so it
may register parts of its own, or import a module that does.
"""

import importlib
import pkgutil
from types import ModuleType

from benchmarks.experiment import BenchmarkError, Experiment


def names(quick: bool = False) -> tuple[str, ...]:
    """Names of all experiments, sorted.

    Args:
        quick: Whether to leave those out that have no small version.
    """
    found = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return tuple(name for name in found if not quick or hasattr(_module(name), "QUICK"))


def load(name: str, quick: bool = False) -> Experiment:
    """Read an experiment from its module.

    Args:
        name: Name of the module, one of `names`.
        quick: Whether to load the small version.

    Returns:
        The module's ``QUICK`` or ``EXPERIMENT``.

    Raises:
        BenchmarkError: If there is no such experiment or small version, or the module does not define it
            as it should.
    """
    if name not in names():
        raise BenchmarkError(f"'name' must be one of {list(names())}. Got {name!r} instead.")
    module = _module(name)
    if quick and not hasattr(module, "QUICK"):
        raise BenchmarkError(
            f"'quick' is for experiments with a small version, {list(names(quick=True))}. Got {name!r}: "
            f"{module.__name__} has no QUICK."
        )
    constant, expected = ("QUICK", f"{name}_quick") if quick else ("EXPERIMENT", name)
    experiment = getattr(module, constant, None)
    if not isinstance(experiment, Experiment) or experiment.name != expected:
        raise BenchmarkError(
            f"{module.__name__}.{constant} must be an Experiment named {expected!r}. Got "
            f"{f'one named {experiment.name!r}' if isinstance(experiment, Experiment) else repr(experiment)}."
        )
    return experiment


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
