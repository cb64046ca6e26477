"""What a second process gains: one sweep with one process and with two, side by side.

    python -m benchmarks.sweep --json results/sweep.json      # about eight minutes with one repetition

The same runs of the runner, into folders that are thrown away. The number with two processes
includes starting the workers. What the machine itself allows is measured beside it, in one process and
in two that share nothing, from a common start: the same runs without runner and store, and the same
matrix products.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks import runner
from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime, RunConfig
from benchmarks.store import Row, write_text

CEILING_SECONDS = 5.0
BARE_RUNS = 24
SWEEP = Experiment(
    name="sweep",
    question="How much faster do two processes sweep?",
    claim="None.",
    axis="none",
    metric="mean",
    regimes=(Regime("matched", "agentic_gym/Mixture-v0", {"preset": "matched"}, 0.0),),
    schemes=("grpo",),
    seeds=tuple(range(144)),
    tuning_seeds=(),
    learning_rates=(1e-3,),
    # From scratch: base policies would be made by whoever comes first, and found by the others.
    budget=dataclasses.replace(LONG, warmstart_success=0.0),
)


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        json: where to write the numbers; None writes nothing.
        repetitions: how often each number of processes is timed, in turn; the fastest counts.
        processes: the larger number of processes.
    """

    json: Path | None = None
    repetitions: int = 2
    processes: int = 2


def train(config: RunConfig) -> Sequence[Row]:
    """Train one run; imported by the workers."""
    from benchmarks.training import train

    return train(config)


def seconds(processes: int) -> float:
    """Wall time of the sweep."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        summary = runner.run(SWEEP, "report", train, processes, Path(folder), progress=False)
        elapsed = time.perf_counter() - start
    assert summary.trained == len(SWEEP.seeds) and not summary.failures
    return elapsed


def multiply(barrier: threading.Barrier, done: Any) -> None:
    """Multiply matrices of a training's size for a while, from a common start; report products per second."""
    random = np.random.default_rng(0)
    left, right = (random.standard_normal(shape).astype(np.float32) for shape in ((640, 64), (64, 64)))
    barrier.wait()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < CEILING_SECONDS:
        np.maximum(left @ right, 0.0)
        count += 1
    done.put(count / CEILING_SECONDS)


def train_alone(barrier: threading.Barrier, done: Any) -> None:
    """Train without runner and store, from a common start; report runs per second."""
    first, *others = SWEEP.runs("report", {"grpo": SWEEP.learning_rates[0]})[: 1 + BARE_RUNS]
    train(first)
    barrier.wait()
    start = time.perf_counter()
    for config in others:
        train(config)
    done.put(len(others) / (time.perf_counter() - start))


def ceiling(work: Callable[[threading.Barrier, Any], None], processes: int) -> float:
    """How much more several processes do than one, on an otherwise idle machine."""
    context = multiprocessing.get_context("spawn")
    rates = []
    for n in (1, processes):
        barrier, done = context.Barrier(n), context.Queue()
        workers = [context.Process(target=work, args=(barrier, done)) for _ in range(n)]
        for worker in workers:
            worker.start()
        rates.append(sum(done.get() for _ in workers))
        for worker in workers:
            worker.join()
    return float(rates[1] / rates[0])


def main(options: Options) -> None:
    """Measure, print, and write."""
    counts = (1, options.processes)
    best = dict.fromkeys(counts, float("inf"))
    for _ in range(options.repetitions):
        for count in counts:
            best[count] = min(best[count], seconds(count))
    ratio = best[1] / best[options.processes]
    print(f"{len(SWEEP.seeds)} runs of {SWEEP.budget.total_turns} turns: {best[1]:.1f} s with one process, "
          f"{best[options.processes]:.1f} s with {options.processes}: {ratio:.2f} times as fast")  # fmt: skip
    kinds = {"ceiling": multiply, "bare": train_alone}
    most = {
        name: max(ceiling(work, options.processes) for _ in range(options.repetitions)) for name, work in kinds.items()
    }
    print(f"without a runner {options.processes} processes train {most['bare']:.2f} times as many runs as one, "
          f"and do {most['ceiling']:.2f} times as many matrix products")  # fmt: skip
    if options.json is not None:
        document = {
            "command": f"python -m benchmarks.sweep --repetitions {options.repetitions}",
            "cores": os.cpu_count(),
            "runs": len(SWEEP.seeds),
            "seconds": {str(count): best[count] for count in counts},
            "ratio": ratio,
            **most,
        }
        write_text(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
