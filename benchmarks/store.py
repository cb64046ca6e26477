"""Results on disk: one folder per run, gathered into one Parquet file per experiment.

A run's folder ``<root>/runs/<experiment>/<run id>/`` holds ``config.json`` and
``rows.parquet``, one row per evaluation point and environment. It appears by one rename,
so it is complete or absent; one that was damaged later is moved aside and counts as absent.
`gather` merges the folders into ``<root>/<experiment>.parquet``, which can be committed: runs
found in it count as finished, so a fresh clone trains nothing again.
"""

import json
import operator
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from threadpoolctl import threadpool_info

from benchmarks.experiment import BenchmarkError, Phase, RunConfig, Runs, canonical, run_id

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "results"

Row = Mapping[str, Any]

_IDENTITY = {
    "experiment": pa.string(),
    "regime": pa.string(),
    "axis_value": pa.float64(),
    "scheme": pa.string(),
    "seed": pa.int64(),
    "learning_rate": pa.float64(),
    "phase": pa.string(),
    "run_id": pa.string(),
}
_POINT = {
    "turns": pa.int64(),
    "update": pa.int64(),
    "environment": pa.string(),
    "score": pa.float64(),
    "raw_score": pa.float64(),
    "success": pa.float64(),
    "return_mean": pa.float64(),
    "wall_s": pa.float64(),
}
# index() refuses half a turn, float() takes any kind of number; text must be text already.
_CONVERT: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.int64(): operator.index,
    pa.float64(): float,
    pa.string(): lambda text: text,
}
_VERSIONS = dict.fromkeys(("package_version", "git_commit", "python", "numpy", "torch", "blas"), pa.string())
SCHEMA = pa.schema({**_IDENTITY, **_POINT, **_VERSIONS})


class DamagedRunWarning(UserWarning):
    """A run's folder was unreadable and has been moved aside."""


def folder(config: RunConfig, root: Path = RESULTS) -> Path:
    """Folder of a run."""
    return root / "runs" / config.experiment / run_id(config)


def gathered_file(name: str, root: Path = RESULTS) -> Path:
    """File that holds all gathered rows of the experiment called ``name``."""
    return root / f"{name}.parquet"


def check_writable(name: str, root: Path = RESULTS) -> None:
    """Make the folders that runs of the experiment called ``name`` are stored in, and write a file into them.

    Raises:
        BenchmarkError: If that cannot be done.
    """
    runs = root / "runs" / name
    try:
        runs.mkdir(parents=True, exist_ok=True)
        for place in (root, runs):
            with tempfile.TemporaryFile(dir=place):
                pass
    except OSError as error:
        raise BenchmarkError(f"'root' must be a folder that can be written to. Got {root} instead: {error}") from error


class NoResultsError(BenchmarkError):
    """What was asked for has not been run."""


def no_results(what: str, command: str, root: Path = RESULTS) -> NoResultsError:
    """Return the error that there are no results of something.

    Args:
        what: Of what.
        command: The subcommand of ``python -m benchmarks`` that makes them, with its arguments.
        root: Folder of all results.
    """
    place = "" if root.resolve() == RESULTS.resolve() else f" --root {shlex.quote(str(root))}"
    command = f"python -m benchmarks {command}{place}"
    return NoResultsError(f"There are no results of {what!r} in {root}; make them with: {command}")


def write(config: RunConfig, rows: Sequence[Row], root: Path = RESULTS) -> Path:
    """Store a run, completely or not at all.

    Args:
        config: The configuration that was trained.
        rows: Evaluation points: the columns ``turns, update, environment, score, raw_score,
            success, return_mean, wall_s`` and any further ones (numbers or text).
        root: Folder of all results.

    Returns:
        The run's folder. A finished run is left as it is: it came from the same configuration.

    Raises:
        ValueError: If the rows are not as described, a score is not finite, an evaluation
            point is repeated, or an environment has none after training began.
    """
    table = _to_table(config, rows)
    target = folder(config, root)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A neighbour of the target, for a rename cannot cross file systems.
    temporary = target.with_name(f".writing-{uuid.uuid4().hex}")
    temporary.mkdir()
    try:
        document = json.dumps(json.loads(canonical(config)), indent=2, sort_keys=True)
        (temporary / "config.json").write_text(document + "\n", encoding="utf-8")
        _write_parquet(table, temporary / "rows.parquet")
        for path in (*temporary.iterdir(), temporary):
            _sync(path)
        if _load(config, root) is None:
            _rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def finished(config: RunConfig, root: Path = RESULTS) -> bool:
    """Whether a run has a readable folder or is in the gathered file."""
    if _load(config, root, footer_only=True) is not None:
        return True
    return run_id(config) in _gathered_ids(config.experiment, root)


def read(config: RunConfig, root: Path = RESULTS) -> pa.Table:
    """Rows of a finished run, from its folder or else from the gathered file.

    Raises:
        FileNotFoundError: If the run is not finished.
    """
    table = _load(config, root)
    if table is not None:
        return table
    gathered = _read_gathered(gathered_file(config.experiment, root))
    table = gathered.filter(pc.field("run_id") == run_id(config))
    if table.num_rows == 0:
        raise FileNotFoundError(f"run {run_id(config)} of {config.experiment} is not finished under {root}")
    return table


def gather(experiment: Runs, root: Path = RESULTS) -> pa.Table:
    """Merge the experiment's run folders into its gathered file.

    Rows of the file whose run has no folder here are kept, even those of configurations that
    the experiment no longer has; where there is a folder, the folder wins. Folders that
    belong to no current configuration stay out.

    Args:
        experiment: The experiment.
        root: Folder of all results.

    Returns:
        All rows of the file, sorted by run, turns and environment.
        `benchmarks.aggregate.current` picks those of the current configurations.
    """
    path = gathered_file(experiment.name, root)
    old = _read_gathered(path)
    new = [table for config in experiment.every_run() if (table := _load(config, root)) is not None]
    if not new:
        return old
    replaced = pa.array([table["run_id"][0].as_py() for table in new])
    kept = old.filter(pc.invert(pc.is_in(old["run_id"], value_set=replaced)))
    merged = pa.concat_tables([kept, *new], promote_options="permissive")
    merged = merged.sort_by([(name, "ascending") for name in ("run_id", "turns", "environment")])
    if not merged.equals(old):
        _replace(path, merged)
    return merged


def take_over(name: str, phase: Phase, source: Path, root: Path) -> int:
    """Copy the gathered runs of one phase from another folder of results; runs that are here already stay.

    Args:
        name: Name of the experiment.
        phase: Which runs.
        source: The folder of results that has them.
        root: The folder of results that gets them.

    Returns:
        How many runs were copied.

    Raises:
        NoResultsError: If there are none in the source.
    """
    theirs = _read_gathered(gathered_file(name, source))
    theirs = theirs.filter(pc.field("phase") == phase)
    if theirs.num_rows == 0:
        raise NoResultsError(f"There are no gathered runs of the phase {phase!r} of {name!r} in {source}.")
    path = gathered_file(name, root)
    ours = _read_gathered(path)
    new = theirs.filter(pc.invert(pc.is_in(theirs["run_id"], value_set=ours["run_id"])))
    if new.num_rows:
        check_writable(name, root)
        _replace(path, pa.concat_tables([ours, new], promote_options="permissive"))
    return len(pc.unique(new["run_id"]))


def _replace(path: Path, rows: pa.Table) -> None:
    """Write a gathered file anew, whole or not at all."""
    temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}.tmp")
    _write_parquet(rows, temporary)
    _sync(temporary)
    _rename(temporary, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}.tmp")
    temporary.write_text(text, encoding="utf-8")
    _sync(temporary)
    _rename(temporary, path)


def _load(config: RunConfig, root: Path, footer_only: bool = False) -> pa.Table | pq.FileMetaData | None:
    """Rows (or the footer) of a run's folder; None if absent, or if damaged and so moved aside."""
    path = folder(config, root)
    if not path.is_dir():
        return None
    try:
        if json.loads((path / "config.json").read_text(encoding="utf-8")) != json.loads(canonical(config)):
            raise ValueError("config.json describes another run")
        with pq.ParquetFile(path / "rows.parquet", page_checksum_verification=True) as file:
            return file.metadata if footer_only else file.read()
    except PermissionError:
        # The run may be sound; only this user cannot read it.
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        _set_aside(path, error)
        return None


def _set_aside(path: Path, reason: Exception) -> None:
    """Move a damaged folder to a free name beside it and warn."""
    aside = path.with_name(f"{path.name}.damaged-{uuid.uuid4().hex[:8]}")
    try:
        os.replace(path, aside)
    except FileNotFoundError:
        return  # Another process was faster.
    warnings.warn(
        f"damaged run {path} counts as missing, moved to {aside.name}: {reason}",
        DamagedRunWarning,
        stacklevel=3,
    )


def _read_gathered(path: Path) -> pa.Table:
    """The gathered file, or an empty table; a damaged one is an error, for it may be the only copy."""
    if not path.exists():
        return SCHEMA.empty_table()
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read()
    except (OSError, pa.ArrowException) as error:
        # Some messages of Arrow end with an empty line.
        raise BenchmarkError(f"cannot read {path}, restore it or move it away: {str(error).strip()}") from error


def _gathered_ids(name: str, root: Path) -> frozenset[str]:
    """Identities in the gathered file."""
    path = gathered_file(name, root)
    if not path.exists():
        return frozenset()
    state = path.stat()
    return _ids_in(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=16)
def _ids_in(path: Path, mtime_ns: int, size: int) -> frozenset[str]:
    """Identities in a file; the other arguments make a changed file a new entry of the cache."""
    return frozenset(pc.unique(_read_gathered(path)["run_id"]).to_pylist())


def _to_table(config: RunConfig, rows: Sequence[Row]) -> pa.Table:
    """Evaluation points with the columns that say where they come from."""
    extra = sorted({name for row in rows for name in row} - set(_POINT))
    reserved = [name for name in extra if name in SCHEMA.names]
    if reserved:
        raise ValueError(f"'rows' must not have the columns {reserved}: the store fills them.")
    kinds = _POINT | {name: _kind(rows, name) for name in extra}
    points = {name: _column(rows, name, kind) for name, kind in kinds.items()}
    _check_points(points)
    constants = {
        "experiment": config.experiment,
        "regime": config.regime.name,
        "axis_value": config.regime.axis_value,
        "scheme": config.scheme,
        "seed": config.seed,
        "learning_rate": config.learning_rate,
        "phase": config.phase,
        "run_id": run_id(config),
        **_versions(),
    }
    columns = points | {name: pa.repeat(value, len(rows)) for name, value in constants.items()}
    return pa.table({name: columns[name] for name in (*_IDENTITY, *kinds, *_VERSIONS)})


def _kind(rows: Sequence[Row], name: str) -> pa.DataType:
    """Text or number; all numbers are float64, so that runs agree on the type."""
    return pa.string() if any(isinstance(row.get(name), str) for row in rows) else pa.float64()


def _column(rows: Sequence[Row], name: str, kind: pa.DataType) -> pa.Array:
    """One column of the evaluation points; only columns beyond the required ones may have gaps."""
    values = [row.get(name) for row in rows]
    if name in _POINT and None in values:
        raise ValueError(f"'rows' must all have {name!r}. Row {values.index(None)} has not.")
    try:
        return pa.array([None if value is None else _CONVERT[kind](value) for value in values], kind)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise ValueError(f"'rows' must have {kind} in {name!r}: {error}") from error


def _check_points(points: Mapping[str, pa.Array]) -> None:
    """Refuse points that would distort a mean over them."""
    scores = points["score"].to_numpy()
    if not np.isfinite(scores).all():
        raise ValueError(f"'score' must be finite. Got {scores[~np.isfinite(scores)][0]} instead.")
    environments, turns = points["environment"].to_pylist(), points["turns"].to_pylist()
    keys = list(zip(environments, turns, strict=True))
    if len(set(keys)) < len(keys):
        raise ValueError("'rows' must have one row for each environment and number of turns. Got a repeated one.")
    untrained = set(environments) - {name for name, turn in keys if turn > 0}
    if untrained or not keys:
        raise ValueError(f"'rows' must have a row with turns > 0 for each environment. None for {sorted(untrained)}.")


@lru_cache
def _versions() -> dict[str, str]:
    """Versions of what computed a run. The host's name is nobody's business."""
    return {
        "package_version": _version("agentic-gym"),
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": _version("torch"),
        "blas": _blas(),
    }


@lru_cache(maxsize=1)
def _blas() -> str:
    """The library of matrix products, with the processors that it is written for: by these runs may round otherwise."""
    found = [entry for entry in threadpool_info() if entry["user_api"] == "blas"]
    return (
        "; ".join(
            " ".join(str(entry.get(key)) for key in ("internal_api", "version", "architecture")) for entry in found
        )
        or "unknown"
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _git_commit() -> str:
    """Commit of the working tree, with ``+`` if Python files differ from it."""
    # Installed elsewhere, git would find whichever repository surrounds the environment.
    if not (REPOSITORY / ".git").exists():
        return "unknown"
    git = ["git", "--no-optional-locks", "-C", str(REPOSITORY)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "*.py"], capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("+" if changed.returncode else "")


def _write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def _sync(path: Path) -> None:
    """Force a file or folder to the disk, so that a power cut cannot leave an empty one behind a rename."""
    if os.name != "posix" and path.is_dir():
        return  # Windows cannot open a folder.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename(temporary: Path, target: Path) -> None:
    """Publish a file or folder under its final name."""
    try:
        os.replace(temporary, target)
    except OSError:
        # A folder cannot replace a folder: another process has just finished the same run.
        if not target.is_dir():
            raise
    _sync(target.parent)
