"""What a second process gains: one sweep with one process and with two, side by side.

    python -m benchmarks.sweep --json results/sweep.json      # about six minutes

The same runs of the runner, into folders that are thrown away. The number with two processes
includes starting the workers.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks import runner
from benchmarks.claims.regimes import LONG
from benchmarks.experiment import Experiment, Regime, RunConfig
from benchmarks.store import Row, write_text

SWEEP = Experiment(
    name="sweep",
    question="How much faster do two processes sweep?",
    claim="None.",
    axis="none",
    metric="mean",
    regimes=(Regime("matched", "agentic_gym/Mixture-v0", {"preset": "matched"}, 0.0),),
    schemes=("grpo",),
    seeds=tuple(range(48)),
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
    if options.json is not None:
        document = {
            "command": f"python -m benchmarks.sweep --repetitions {options.repetitions}",
            "cores": os.cpu_count(),
            "runs": len(SWEEP.seeds),
            "seconds": {str(count): best[count] for count in counts},
            "ratio": ratio,
        }
        write_text(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
