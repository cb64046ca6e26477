"""Command line of the benchmarks: ``python -m benchmarks run NAME``, ``status``, ``table``, ``list``."""

import os

# Workers get this from the runner. With one job the training happens in this process, whose
# BLAS reads it when NumPy is imported, that is on the next lines.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import functools
import json
import math
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.table import Table

from agentic_gym.console import say, show
from benchmarks import aggregate, experiments, runner, store
from benchmarks.experiment import BenchmarkError, Experiment, Phase, Rate, RunConfig, run_id, spell_rate
from benchmarks.statistics import Interval

Name = tyro.conf.Positional[str]
Scores = dict[str, dict[str, Interval]]


def run(
    name: Name,
    quick: bool = False,
    jobs: int = -1,
    shard: str = "1/1",
    backend: Literal["loky", "ray"] = "loky",
    address: str | None = None,
    phase: Literal["all", "tune", "report"] = "all",
    root: Path = store.RESULTS,
) -> int:
    """Train what is missing of an experiment, choose learning rates, gather the results.

    Args:
        name: Name of the experiment, see `list`; `all` runs one after the other.
        quick: Run the small version.
        jobs: Number of processes, -1 for one per core.
        shard: Run part I of N, as I/N; all parts of `tune` must be done before `report`.
        backend: `ray` runs on a Ray cluster and needs the extra `cluster`.
        address: Address of the Ray cluster.
        phase: `tune` chooses the learning rates, `report` is what figures show.
        root: Folder of all results.
    """
    runner.check(jobs, backend, address)
    if name == "all":
        return max(run(one, quick, jobs, shard, backend, address, phase, root) for one in experiments.names(quick))
    experiment = experiments.load(name, quick)
    phases: tuple[Phase, ...] = ("tune", "report") if phase == "all" else (phase,)
    train = functools.partial(_train, name=name, quick=quick)
    failures: list[runner.Failure] = []
    for step in phases:
        rates = _choose_rates(experiment, root) if step == "report" else None
        summary = runner.run(
            experiment, step, train, jobs, root, _parse_shard(shard), backend, address, learning_rates=rates
        )
        say(f"{experiment.name} {step}: {summary.trained} trained, {summary.skipped} already finished")
        failures.extend(summary.failures)
        if failures:
            break  # A failed tuning run leaves a hole in the grid.
    store.gather(experiment, root)
    _report_failures(failures)
    return 1 if failures else 0


def status(name: tyro.conf.Positional[str | None] = None, quick: bool = False, root: Path = store.RESULTS) -> int:
    """Show how many runs are finished: of every experiment and the claims, or of one by scheme and regime.

    Args:
        name: Name of the experiment, see `list`; without one, all are counted.
        quick: Look at the small versions.
        root: Folder of all results.
    """
    if name is None:
        return _status_of_all(quick, root)
    experiment = experiments.load(name, quick)
    rows = store.gather(experiment, root)
    known = set(rows["run_id"].to_pylist())
    configs = experiment.runs("tune")
    try:
        configs += experiment.runs("report", aggregate.choose_learning_rates(experiment, rows))
    except BenchmarkError:
        say("The reported runs are not known yet: they follow from the tuning runs.")
    regimes = [regime.name for regime in experiment.regimes]
    table = Table("phase", "scheme", *regimes, title=f"{experiment.name}: finished runs")
    for phase, scheme in dict.fromkeys((config.phase, config.scheme) for config in configs):
        cells = [
            [run_id(c) in known for c in configs if (c.phase, c.scheme, c.regime.name) == (phase, scheme, regime)]
            for regime in regimes
        ]
        table.add_row(phase, scheme, *[f"{sum(cell)}/{len(cell)}" for cell in cells])
    show(table)
    ids = {run_id(config) for config in configs}
    say(f"{len(ids & known)} done, {len(ids - known)} missing")
    return 0


def _status_of_all(quick: bool, root: Path) -> int:
    """Count finished and missing runs of every experiment; reported runs follow from finished tuning."""
    rows = Table("experiment", "tuning runs", "reported runs", title="finished runs")
    for name in experiments.names(quick):
        experiment = experiments.load(name, quick)
        table = store.gather(experiment, root)
        known = set(table["run_id"].to_pylist())
        tuning = [run_id(config) in known for config in experiment.runs("tune")]
        try:
            reported = experiment.runs("report", aggregate.choose_learning_rates(experiment, table))
            done = f"{sum(run_id(config) in known for config in reported)}/{len(reported)}"
        except BenchmarkError:
            done = "after the tuning"
        rows.add_row(experiment.name, f"{sum(tuning)}/{len(tuning)}" if tuning else "-", done)
    show(rows)
    if not quick:
        show(_status_of_claims(root))
    return 0


def _status_of_claims(root: Path) -> Table:
    """Count the runs of the claims' scoreboard by phase; all but the tuning follow from finished tuning."""
    runs = _claim_runs(())
    stored = store.gather(runs, root)
    known = set(stored["run_id"].to_pylist())
    table = Table("claims", "finished runs")
    phases: tuple[Phase, ...] = ("tune", "report", "sensitivity")
    for phase in phases:
        try:
            rates = None if phase == "tune" else runs.choose_rates(stored.to_pylist())
        except BenchmarkError:
            table.add_row(phase, "after the tuning")
            continue
        ids = {run_id(config) for config in runs.runs(phase, rates)}
        table.add_row(phase, f"{len(ids & known)}/{len(ids)}")
    return table


def table(
    name: Name,
    quick: bool = False,
    regime: str | None = None,
    against: str | None = None,
    final: bool = False,
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
    root: Path = store.RESULTS,
) -> int:
    """Show the scores of schemes by environment: mean over seeds with 95 % bootstrap intervals.

    Scores are 0 for a random policy and 1 for the expert, and a mean over the evaluation
    points after the start of training (the area under the learning curve).

    Args:
        name: Name of the experiment, see `list`.
        quick: Look at the small version.
        regime: Name of the regime; by default the one with the largest axis value.
        against: Show the change from this regime to the other, paired by seed, instead.
        final: Take the last evaluation point only.
        as_json: Print JSON.
        root: Folder of all results.
    """
    experiment = experiments.load(name, quick)
    regimes = {entry.name: entry for entry in experiment.regimes}
    chosen = regime or max(experiment.regimes, key=lambda entry: entry.axis_value).name
    for option, value in (("regime", chosen), ("against", against)):
        if value is not None and value not in regimes:
            raise BenchmarkError(f"'{option}' must be one of {list(regimes)}. Got {value!r} instead.")
    rows = store.gather(experiment, root)
    missing = store.no_results(experiment.name, f"run {name}" + (" --quick" if quick else ""), root)
    if rows.num_rows == 0:
        raise missing
    scores = aggregate.run_scores(aggregate.current(experiment, rows))
    if against is None:
        summary, title = aggregate.summarise(scores, chosen, final), chosen
    else:
        summary, title = aggregate.change(scores, chosen, against, final), f"{chosen} minus {against}"
    if not summary:  # Tuning runs only, or none in these regimes.
        raise missing
    runs = Counter(run["scheme"] for run in scores.to_pylist() if run["regime"] == chosen)
    if as_json:
        print(json.dumps(_document(experiment, title, final, summary, runs), indent=2, allow_nan=False))
    else:
        show(_scheme_table(experiment, title, final, summary, runs))
    return 0


def claims(
    only: tuple[str, ...] = (),
    phase: Literal["all", "tune", "report", "sensitivity"] = "all",
    jobs: int = -1,
    shard: str = "1/1",
    backend: Literal["loky", "ray"] = "loky",
    address: str | None = None,
    tuned_in: Path | None = None,
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
    root: Path = store.RESULTS,
) -> int:
    """Train what is missing for the claims' scoreboard: tuning, reported runs, then sensitivity.

    Args:
        only: Keys of claims; all by default.
        phase: `all` runs the three in turn.
        jobs: Number of processes, -1 for one per core.
        shard: Run part I of N, as I/N.
        backend: `ray` runs on a Ray cluster and needs the extra `cluster`.
        address: Address of the Ray cluster.
        tuned_in: Folder of results whose tuning runs are taken over; without one they are made where missing.
        as_json: Train nothing, and print what `scoreboard --json` prints.
        root: Folder of all results.
    """
    if as_json:
        return scoreboard(only, as_json=True, root=root)
    runner.check(jobs, backend, address)
    runs = _claim_runs(only)
    if tuned_in is not None:
        copied = store.take_over(runs.name, "tune", tuned_in, root)
        say(f"claims tune: {copied} taken over from {tuned_in}")
    phases: tuple[Phase, ...] = ("tune", "report", "sensitivity") if phase == "all" else (phase,)
    for step in phases:
        rates = None
        if step != "tune":
            rates = runs.choose_rates(store.gather(runs, root).to_pylist())
        summary = runner.run(
            runs, step, _train, jobs, root, _parse_shard(shard), backend, address, learning_rates=rates
        )
        say(f"claims {step}: {summary.trained} trained, {summary.skipped} already finished")
        if summary.failures:
            store.gather(runs, root)
            _report_failures(summary.failures)
            return 1
    store.gather(runs, root)
    return 0


def scoreboard(
    only: tuple[str, ...] = (),
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
    write: bool = False,
    root: Path = store.RESULTS,
) -> int:
    """Judge the claims whose runs are there; in JSON the others have the verdict `not run`.

    Args:
        only: Keys of claims; all by default.
        as_json: Print JSON.
        write: Write `claims.json` into the folder of results.
        root: Folder of all results.
    """
    from benchmarks.claims import untrained
    from benchmarks.claims.scoreboard import document
    from benchmarks.claims.scoreboard import scoreboard as judge

    runs = _claim_runs(only)
    rows = store.gather(runs, root).to_pylist()
    entries = judge(runs.tuned(rows), rows)
    if not only:
        entries += untrained.stored(root)
    judged = document(entries)
    if not entries and (write or not as_json):
        command = "claims" + (f" --only {' '.join(only)}" if only else "")
        raise store.no_results("claims", command, root)
    if write:
        store.write_text(root / "claims.json", json.dumps(judged, indent=1, allow_nan=False) + "\n")
    if as_json:
        names = {entry["key"] for entry in judged}
        missing = [
            {"key": c.key, "source": c.source, "statement": c.statement, "verdict": "not run"}
            for c in (*runs.claims, *(() if only else [measured.claim for measured in untrained.CLAIMS]))
            if c.key not in names
        ]
        print(json.dumps(judged + missing, indent=1, allow_nan=False))
        return 0
    table = Table("claim", "effect [95 %]", "seeds", "verdict", "robust", title="claims")
    table.columns[0].no_wrap = True
    for entry in entries:
        table.add_row(entry.claim.key, _cell(entry.effect), str(entry.seeds), entry.verdict, entry.robust)
    show(table)
    return 0


def report(root: Path = store.RESULTS) -> int:
    """Write RESULTS.md and its twin in the documentation from what is stored.

    Args:
        root: Folder of all results.
    """
    from benchmarks.report import write

    for path in write(root):
        print(path)
    return 0


def _claim_runs(only: tuple[str, ...]) -> Any:
    from benchmarks.claims import CLAIMS, ClaimRuns

    unknown = sorted(set(only) - {claim.key for claim in CLAIMS})
    if unknown:
        raise BenchmarkError(f"'only' must be among {[claim.key for claim in CLAIMS]}. Got {unknown} instead.")
    return ClaimRuns([claim for claim in CLAIMS if not only or claim.key in only])


def list_experiments() -> int:
    """List the experiments and the questions they ask."""
    rows = Table("experiment", "question", "axis", "runs")
    rows.columns[0].no_wrap = True
    for name in experiments.names():
        experiment = experiments.load(name)
        runs = len(experiment.runs("tune")) + len(experiment.regimes) * len(experiment.schemes) * len(experiment.seeds)
        rows.add_row(name, experiment.question, experiment.axis, str(runs))
    show(rows)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What follows ``python -m benchmarks``; None reads it from the process.

    Returns:
        Exit status: 0, 1 if runs failed, 2 if the request cannot be met, 130 if interrupted.
    """
    commands: dict[str, Callable[..., int]] = {
        "run": run,
        "status": status,
        "table": table,
        "list": list_experiments,
        "claims": claims,
        "scoreboard": scoreboard,
        "report": report,
    }
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status_code: int = tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="python -m benchmarks",
            description="Train credit schemes, resume, and compare them.",
            args=given or ["--help"],
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except (BenchmarkError, OSError) as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt as stop:
        say(f"interrupted: {stop}")
        return 130
    return status_code


def _train(config: RunConfig, name: str | None = None, quick: bool = False) -> Sequence[store.Row]:
    """Import the trainer where it is used: the parent of the workers does without torch.

    Args:
        config: What to train.
        name: Experiment whose module is imported before, for it may make parts known that its schemes use.
        quick: Whether it is the small version.
    """
    from benchmarks.training import train

    if name is not None:
        experiments.load(name, quick)
    return train(config)


def _report_failures(failures: Sequence[runner.Failure]) -> None:
    """Show every failed run, but an error that many share only once."""
    runs: dict[str, list[str]] = {}
    for failure in failures:
        runs.setdefault(failure.error, []).append(failure.run_id)
    for error, ids in runs.items():
        say("\nfailed: " + "\nfailed: ".join(ids) + f"\n{error}")


def _parse_shard(text: str) -> tuple[int, int]:
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal()):
        raise BenchmarkError(f"'shard' must be I/N, for example 1/4. Got {text!r} instead.")
    return int(index), int(count)


def _choose_rates(experiment: Experiment, root: Path) -> dict[str, Rate]:
    """Choose the learning rates and show them."""
    rates = aggregate.choose_learning_rates(experiment, store.gather(experiment, root))
    grid = ", ".join(f"{rate:g}" for rate in experiment.learning_rates)
    table = Table("scheme", "learning rate", title=f"{experiment.name}: chosen of {grid}")
    for scheme, rate in rates.items():
        table.add_row(scheme, spell_rate(rate))
    show(table)
    return rates


def _scheme_table(experiment: Experiment, regime: str, final: bool, summary: Scores, runs: Counter[str]) -> Table:
    """Schemes in rows, best mean first; environments in columns."""
    names = list(dict.fromkeys(name for row in summary.values() for name in row))
    points = "last evaluation" if final else "mean over evaluations"
    table = Table("scheme", "seeds", *names, title=f"{experiment.name}, {regime}: {points}, 95 % intervals")
    table.columns[0].no_wrap = True
    for scheme in aggregate.best_first(summary):
        cells = [_cell(summary[scheme][name]) if name in summary[scheme] else "" for name in names]
        table.add_row(scheme, f"{runs[scheme]}/{len(experiment.seeds)}", *cells)
    return table


def _document(experiment: Experiment, regime: str, final: bool, summary: Scores, runs: Counter[str]) -> dict[str, Any]:
    """The same for programs; the bounds of a single run are null."""
    return {
        "experiment": experiment.name,
        "regime": regime,
        "final": final,
        "seeds": len(experiment.seeds),
        "schemes": {
            scheme: {
                "runs": runs[scheme],
                "scores": {
                    name: {key: None if math.isnan(value) else value for key, value in asdict(interval).items()}
                    for name, interval in row.items()
                },
            }
            for scheme, row in summary.items()
        },
    }


def _cell(interval: Interval) -> str:
    if math.isnan(interval.low):
        return f"{interval.estimate:.3f}"
    return f"{interval.estimate:.3f} ({interval.low:.3f}, {interval.high:.3f})"


if __name__ == "__main__":
    # Schedulers stop jobs with SIGTERM; like Ctrl-C it shall end the workers, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
