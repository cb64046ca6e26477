"""Run what is missing of an experiment, in parallel; kill it anywhere and run it again.

Every worker trains one run at a time on one thread and stores it as soon as it is done, so
whatever ends a sweep costs at most the runs in flight.
"""

import os
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from joblib import Parallel, delayed, effective_n_jobs
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from benchmarks import store
from benchmarks.aggregate import choose_learning_rates
from benchmarks.experiment import BenchmarkError, Experiment, Phase, RunConfig, Runs, run_id

__all__ = ["Failure", "Summary", "check", "choose_learning_rates", "one_thread_each", "run", "shard_of"]

Train = Callable[[RunConfig], Sequence[store.Row]]
Backend = Literal["loky", "ray"]

# Networks this small lose time on every further thread, and the processes fill the cores.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Failure:
    """A run that raised: its identity and the traceback."""

    run_id: str
    error: str


@dataclass(frozen=True)
class Summary:
    """What a sweep did: runs trained, runs found finished, and runs that raised."""

    trained: int
    skipped: int
    failures: tuple[Failure, ...]


def run(
    experiment: Runs,
    phase: Phase,
    train: Train,
    n_jobs: int = -1,
    root: Path = store.RESULTS,
    shard: tuple[int, int] = (1, 1),
    backend: Backend = "loky",
    address: str | None = None,
    progress: bool = True,
    learning_rates: Any = None,
) -> Summary:
    """Train and store the runs of one phase that are not finished yet.

    Args:
        experiment: What to run.
        phase: ``"tune"`` or ``"report"``; the latter needs all tuning runs.
        train: Maps a configuration to its evaluation points, the rows of `store.write`. It
            has to be importable by the workers.
        n_jobs: Number of processes, -1 for one per core; 1 trains in this process.
        root: Folder of all results. With Ray every machine must see it under this path, and
            have the package installed.
        shard: ``(i, n)`` runs the i-th of n disjoint parts, 1 <= i <= n.
        backend: ``"loky"`` for processes of this machine, ``"ray"`` for a Ray cluster.
        address: Address of the Ray cluster; None is Ray's own choice.
        progress: Whether to show progress on the standard error stream.
        learning_rates: Rate of each scheme for ``"report"``; None chooses by the tuning runs.

    Returns:
        The counts, and the runs that raised; their errors do not stop the others.

    Raises:
        BenchmarkError: If a setting is not allowed, tuning is incomplete, ``root`` cannot be
            written to, Ray is missing, or a worker process died.
        KeyboardInterrupt: With a message that says how much is finished and how to resume.
    """
    check(n_jobs, backend, address)
    root = root.resolve()  # Workers may have another working folder.
    if phase == "report" and learning_rates is None and isinstance(experiment, Experiment):
        learning_rates = choose_learning_rates(experiment, store.gather(experiment, root))
    configs = shard_of(experiment.runs(phase, learning_rates), shard)
    todo = [config for config in configs if not store.finished(config, root)]
    skipped = len(configs) - len(todo)
    if todo:  # Where all is finished, a folder that can only be read will do.
        store.check_writable(experiment.name, root)
    outcomes = _outcomes(todo, train, root, n_jobs, backend, address)
    trained, failures = 0, []
    try:
        # closing() stops the workers before an exception goes on to the caller.
        with _progress(f"{experiment.name} {phase}", len(todo), progress) as advance, closing(outcomes):
            for identity, error in outcomes:
                if error is None:
                    trained += 1
                else:
                    failures.append(Failure(identity, error))
                advance(len(failures))
    except KeyboardInterrupt:
        message = f"{skipped + trained} of {len(configs)} runs are finished and kept; the same call again resumes."
        raise KeyboardInterrupt(message) from None
    except BrokenProcessPool as error:
        raise BenchmarkError(
            "a worker process died, killed or out of memory. Finished runs are kept; the same call again "
            "resumes, fewer jobs need less memory."
        ) from error
    return Summary(trained, skipped, tuple(failures))


def check(n_jobs: int, backend: str = "loky", address: str | None = None) -> None:
    """Refuse settings of `run` that cannot be met or would be ignored.

    Raises:
        BenchmarkError: If there is one.
    """
    if n_jobs != -1 and n_jobs < 1:
        raise BenchmarkError(
            f"'jobs' must be a number of processes (1 or more), or -1 for one per core. Got {n_jobs} instead."
        )
    if backend not in ("loky", "ray"):
        raise BenchmarkError(f"'backend' must be 'loky' or 'ray'. Got {backend!r} instead.")
    if address is not None and backend != "ray":
        raise BenchmarkError(f"'address' is for the backend 'ray' only. Got {address!r} with {backend!r}.")


def shard_of(configs: list[RunConfig], shard: tuple[int, int]) -> list[RunConfig]:
    """The i-th of n disjoint parts of equal size, 1 <= i <= n, in the given order."""
    index, count = shard
    if not 1 <= index <= count:
        raise BenchmarkError(f"'shard' must be (i, n) with 1 <= i <= n. Got {shard!r} instead.")
    # By digest: a stride through the list itself could give one shard all the slow schemes.
    ids = sorted((run_id(config) for config in configs), key=lambda identity: identity[-12:])
    mine = set(ids[index - 1 :: count])
    return [config for config in configs if run_id(config) in mine]


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Give processes started inside one thread each, also to BLAS, which reads this when it is loaded."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(train: Train, config: RunConfig, root: Path) -> tuple[str, str | None]:
    """Train and store one run in a worker; an error is returned as text, for it may not pickle."""
    import torch  # Not needed by the parent.

    torch.set_num_threads(1)
    try:
        store.write(config, train(config), root)
    except Exception:
        return run_id(config), traceback.format_exc()
    return run_id(config), None


def _outcomes(
    todo: list[RunConfig], train: Train, root: Path, n_jobs: int, backend: Backend, address: str | None
) -> Generator[tuple[str, str | None]]:
    """Train the runs, yield the identity and the error (or None) of each as it ends."""
    if not todo:
        return
    with one_thread_each():
        if backend == "ray":
            _connect_to_ray(address)
            jobs = n_jobs
        else:
            jobs = min(effective_n_jobs(n_jobs), len(todo))
        by_id = {run_id(config): config for config in todo}
        results = _parallel(jobs, backend)(delayed(_work)(train, config, root) for config in todo)
        try:
            for identity, error in results:
                if error is None and backend == "ray" and not store.finished(by_id[identity], root):
                    error = f"stored on another machine: {root} must be a folder that all machines share"
                yield identity, error
        finally:
            if isinstance(results, Generator):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # joblib warns that tasks are left; they are on purpose.
                    results.close()


def _parallel(jobs: int, backend: Backend) -> Parallel:
    """A pool that hands out one run at a time and, if the backend can, results as they come."""
    try:
        return Parallel(jobs, backend=backend, batch_size=1, return_as="generator_unordered")
    except ValueError:  # Releases of Ray differ in this.
        return Parallel(jobs, backend=backend, batch_size=1)


def _connect_to_ray(address: str | None) -> None:
    """Join the cluster and make it a backend of joblib."""
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise BenchmarkError("the backend 'ray' needs Ray: pip install 'agentic-gym[cluster]'") from error
    if not ray.is_initialized():
        ray.init(address=address, runtime_env={"env_vars": _ONE_THREAD})
    register_ray()


@contextmanager
def _progress(label: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to call after each run with the number of failures so far.

    A terminal gets a bar with the time left, anything else a line for every tenth.
    """
    console = Console(stderr=True)
    if not show or total == 0:
        yield lambda failed: None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task(label, total=total)

            def advance(failed: int) -> None:
                bar.update(task, advance=1, description=f"{label}, {failed} failed" if failed else label)

            yield advance
    else:
        yield _lines(label, total, console)


def _lines(label: str, total: int, console: Console) -> Callable[[int], None]:
    """A function that counts its calls and prints a line for every tenth of them."""
    start, done = time.monotonic(), 0

    def advance(failed: int) -> None:
        nonlocal done
        done += 1
        if done * 10 // total > (done - 1) * 10 // total:
            left = (time.monotonic() - start) / done * (total - done)
            console.print(f"{label}: {done} of {total} runs, {failed} failed, about {left:.0f} s left", highlight=False)

    return advance
