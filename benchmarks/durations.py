"""How long the commands of the README take, in a fresh clone of what is committed.

    python -m benchmarks.durations --json results/durations.json      # about an hour
    python -m benchmarks.durations --targets demo test                # only these

Times are of a clock on the wall, of an otherwise idle machine; ``install`` makes the virtual
environment that the others use.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.experiment import BenchmarkError
from benchmarks.store import write_text

REPOSITORY = Path(__file__).resolve().parents[1]
INSTALL = ("install", ("make", ".venv/installed"))
COMMANDS: dict[str, tuple[str, ...]] = {
    "demo": ("make", "demo"),
    "test": ("make", "test"),
    "reproduce-quick": ("make", "reproduce-quick", "ROOT=quick/results"),
    "reproduce": ("make", "reproduce", "ROOT=fresh/results"),
}


@dataclass(frozen=True)
class Options:
    """What to time.

    Attributes:
        targets: names of make's targets.
        json: where to write the times, beside those of other targets that are there; None writes nothing.
        clone: a new folder for the clone, which stays; by default it is temporary.
    """

    targets: tuple[str, ...] = tuple(COMMANDS)
    json: Path | None = None
    clone: Path | None = None


def seconds(command: tuple[str, ...], folder: Path) -> float:
    """Run a command and return how long it took.

    Raises:
        BenchmarkError: If it fails; with the end of what it wrote.
    """
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{' '.join(command)} failed with status {done.returncode}: {done.stdout[-2000:]}")
    return time.perf_counter() - start


def measure(targets: tuple[str, ...], clone: Path | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Time the installation and the targets, in that order, in one clone.

    Args:
        targets: Of ``COMMANDS``.
        clone: A new folder, which stays; a temporary one by default.

    Yields:
        Name of the target, and command, seconds, commit, date and machine.

    Raises:
        BenchmarkError: If a target is unknown or fails, or the folder is there already.
    """
    unknown = [name for name in targets if name not in COMMANDS]
    if unknown:
        raise BenchmarkError(f"'targets' must be of {list(COMMANDS)}. Got {unknown}.")
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, text=True).strip()
    if clone is not None and clone.exists():
        raise BenchmarkError(f"'clone' must be a new folder. {clone} exists.")
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone" if clone is None else clone.absolute()
        seconds(("git", "clone", "--quiet", str(REPOSITORY), str(clone)), REPOSITORY)
        for name, command in (INSTALL, *((name, COMMANDS[name]) for name in targets)):
            elapsed = round(seconds(command, clone), 1)
            yield (
                name,
                {
                    "command": " ".join(command),
                    "seconds": elapsed,
                    "commit": commit,
                    "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
                    "machine": {"cores": os.cpu_count(), "processor": platform.machine()},
                },
            )


def main(options: Options) -> None:
    """Measure, print, and write each time as soon as it is there."""
    for name, found in measure(options.targets, options.clone):
        print(f"{found['command']}: {found['seconds']:.1f} s", flush=True)
        if options.json is not None:
            stored = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
            write_text(options.json, json.dumps({**stored, name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
