"""Sweeps: resumable after any kind of stop, sharded, parallel; and the command line on top."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joblib.parallel import BACKENDS, ThreadingBackend

from benchmarks import __main__ as command_line
from benchmarks import experiments, runner, store
from benchmarks.claims import ClaimRuns
from benchmarks.experiment import BenchmarkError, Budget, Experiment, Regime, RunConfig, run_id

REPOSITORY = Path(__file__).parents[2]

# However pytest has imported this module, the workers need not import it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def make(schemes: tuple[str, ...], log: Path, seeds: int = 2, name: str = "fake") -> Experiment:
    """An experiment whose training runs write their identity to a log."""
    return Experiment(
        name=name,
        question="Does it work?",
        claim="It does (nobody, 2026).",
        regimes=tuple(Regime(f"axis-{value}", "x", {"log": str(log)}, value) for value in (1, 10)),
        schemes=schemes,
        seeds=tuple(range(seeds)),
        tuning_seeds=(100,),
        learning_rates=(0.001, 0.01),
        budget=Budget(100, 4, 4, 1, 1, 2, 8, 0.0),
        axis="scale",
        metric="mean",
    )


def train(config: RunConfig) -> list[dict[str, Any]]:
    """Pretend to train; the name of the scheme says how it goes."""
    import torch

    with open(config.regime.env_kwargs["log"], "a") as log:
        log.write(f"{run_id(config)}\n")
    time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
    if config.scheme == "fails" and config.seed == 100 and config.regime.axis_value == 1:
        raise RuntimeError("boom [not markup]")
    if config.scheme == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    score = {"good": 0.5, "fails": 0.1}.get(config.scheme, 0.2) + 0.01 * config.seed - config.learning_rate
    point = {
        "raw_score": 1.0,
        "success": 0.5,
        "return_mean": 0.0,
        "wall_s": 0.1,
        "threads": torch.get_num_threads(),
    }
    return [
        {"turns": turns, "update": turns, "environment": environment, "score": score + offset, **point}
        for turns in (0, 10, 20)
        for environment, offset in (("a", 0.0), ("b", 0.1))
    ]


def trained(log: Path) -> Counter[str]:
    return Counter(log.read_text().split()) if log.exists() else Counter()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.txt"


def test_tune_then_report_then_nothing(tmp_path: Path, log: Path) -> None:
    fake = make(("good", "other"), log)
    with pytest.raises(BenchmarkError, match="8 of 8 tuning runs are missing"):
        runner.run(fake, "report", train, 1, tmp_path, progress=False)
    assert runner.run(fake, "tune", train, 1, tmp_path, progress=False) == runner.Summary(8, 0, ())
    rates = runner.choose_learning_rates(fake, store.gather(fake, tmp_path))
    assert rates == {"good": 0.001, "other": 0.001}
    assert runner.run(fake, "report", train, 1, tmp_path, progress=False) == runner.Summary(8, 0, ())
    expected = {run_id(config) for config in fake.runs("tune") + fake.runs("report", rates)}
    assert trained(log) == dict.fromkeys(expected, 1)
    for phase in ("tune", "report"):
        assert runner.run(fake, phase, train, 1, tmp_path, progress=False) == runner.Summary(0, 8, ())
    assert sum(trained(log).values()) == 16


def test_a_fresh_clone_trains_nothing(tmp_path: Path, log: Path) -> None:
    fake = make(("good",), log)
    runner.run(fake, "tune", train, 1, tmp_path, progress=False)
    store.gather(fake, tmp_path)
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    assert runner.run(fake, "tune", train, 1, tmp_path, progress=False) == runner.Summary(0, 4, ())


def test_processes_report_failures_and_finish_the_others(tmp_path: Path, log: Path) -> None:
    before = dict(os.environ)
    fake = make(("good", "fails"), log)
    summary = runner.run(fake, "tune", train, 2, tmp_path, progress=False)
    assert (summary.trained, summary.skipped) == (6, 0)
    failed = [c for c in fake.runs("tune") if c.scheme == "fails" and c.regime.axis_value == 1]
    assert {failure.run_id for failure in summary.failures} == {run_id(config) for config in failed}
    assert all("RuntimeError: boom" in failure.error for failure in summary.failures)
    table = store.gather(fake, tmp_path)
    assert table.num_rows == 6 * 6
    assert set(table["threads"].to_pylist()) == {1.0}
    assert dict(os.environ) == before
    again = runner.run(fake, "tune", train, 2, tmp_path, progress=False)
    assert (again.trained, again.skipped, len(again.failures)) == (0, 6, 2)


def test_a_dead_worker_loses_only_the_runs_in_flight(tmp_path: Path, log: Path) -> None:
    fake = make(("good", "dies"), log)
    with pytest.raises(BenchmarkError, match="a worker process died"):
        runner.run(fake, "tune", train, 2, tmp_path, progress=False)
    finished = [config for config in fake.runs("tune") if store.finished(config, tmp_path)]
    healthy = make(("good",), log)
    summary = runner.run(healthy, "tune", train, 1, tmp_path, progress=False)
    assert (summary.trained, summary.skipped) == (4 - len(finished), len(finished))


def test_kill_everything_and_resume(tmp_path: Path, log: Path) -> None:
    fake = make(("good", "other"), log)
    runs, root = fake.runs("tune"), tmp_path / "results"
    script = tmp_path / "sweep.py"
    # The sweep reads its experiment from a pickle, so that both processes have the same.
    (tmp_path / "sweep.pickle").write_bytes(cloudpickle.dumps((fake, train)))
    script.write_text(
        "import pathlib, pickle, sys\n"
        "from benchmarks import runner\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "experiment, train = pickle.loads((here / 'sweep.pickle').read_bytes())\n"
        "runner.run(experiment, 'tune', train, 2, here / 'results')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "FAKE_SECONDS": "0.5"}
    sweep = subprocess.Popen(
        [sys.executable, "-W", "error", str(script), str(tmp_path)], env=environment, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 60
        while sum(store.finished(config, root) for config in runs) < 2 and time.monotonic() < deadline:
            assert sweep.poll() is None, "the sweep ended before it could be killed"
            time.sleep(0.01)
    finally:
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
    kept = [run_id(config) for config in runs if store.finished(config, root)]
    assert 2 <= len(kept) < 8
    summary = runner.run(fake, "tune", train, 1, root, progress=False)
    assert (summary.trained, summary.skipped) == (8 - len(kept), len(kept))
    counts = trained(log)
    assert all(counts[identity] == 1 for identity in kept)
    assert set(counts) == {run_id(config) for config in runs}
    table = store.gather(fake, root)
    assert table.num_rows == 8 * 6 and len(set(table["run_id"].to_pylist())) == 8


def test_interrupt_says_how_to_resume(tmp_path: Path, log: Path) -> None:
    fake = make(("good",), log)
    calls = iter(range(10))

    def interrupted(config: RunConfig) -> list[dict[str, Any]]:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return train(config)

    with pytest.raises(KeyboardInterrupt, match="2 of 4 runs are finished and kept; the same call again resumes"):
        runner.run(fake, "tune", interrupted, 1, tmp_path, progress=False)
    assert runner.run(fake, "tune", train, 1, tmp_path, progress=False) == runner.Summary(2, 2, ())
    assert set(trained(log).values()) == {1}


@given(count=st.integers(1, 9), seeds=st.integers(1, 3))
def test_shards_cover_everything_once(count: int, seeds: int) -> None:
    configs = make(("a", "b", "c"), Path("x"), seeds).runs("report", dict.fromkeys("abc", 0.01))
    parts = [runner.shard_of(configs, (index, count)) for index in range(1, count + 1)]
    ids = [run_id(config) for part in parts for config in part]
    assert sorted(ids) == sorted(run_id(config) for config in configs)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (1, 0), (-1, -1)])
def test_shard_refuses(shard: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="'shard' must be"):
        runner.shard_of([], shard)


def test_shards_run_their_parts(tmp_path: Path, log: Path) -> None:
    fake = make(("good", "other"), log)
    for index in (1, 2, 3):
        runner.run(fake, "tune", train, 1, tmp_path, shard=(index, 3), progress=False)
    assert trained(log) == {run_id(config): 1 for config in fake.runs("tune")}


def test_progress_is_a_line_for_every_tenth(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = make(("good", "x", "y", "z", "u", "v"), log)
    runner.run(fake, "tune", train, 1, tmp_path)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 10
    assert lines[-1].startswith("fake tune: 24 of 24 runs, 0 failed, about 0 s left")
    runner.run(fake, "tune", train, 1, tmp_path)
    assert capsys.readouterr() == ("", "")


def test_unknown_backend_and_unused_address(tmp_path: Path, log: Path) -> None:
    fake = make(("good",), log)
    with pytest.raises(ValueError, match="'backend' must be 'loky' or 'ray'"):
        runner.run(fake, "tune", train, 1, tmp_path, backend="dask")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'address' is for the backend 'ray' only"):
        runner.run(fake, "tune", train, 1, tmp_path, address="auto")


def test_ray_is_optional(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BenchmarkError, match=r"needs Ray: pip install 'agentic-gym\[cluster\]'"):
        runner.run(make(("good",), log), "tune", train, 1, tmp_path, backend="ray", progress=False)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A stand-in for Ray that runs in threads and remembers how it was started."""
    started: dict[str, Any] = {}
    fake = types.ModuleType("ray")
    vars(fake).update(is_initialized=lambda: bool(started), init=lambda **options: started.update(options))
    fake_joblib = types.ModuleType("ray.util.joblib")
    vars(fake_joblib).update(register_ray=lambda: joblib.register_parallel_backend("ray", ThreadingBackend))
    modules = {"ray": fake, "ray.util": types.ModuleType("ray.util"), "ray.util.joblib": fake_joblib}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield started
    BACKENDS.pop("ray", None)


def test_ray_joins_the_cluster(tmp_path: Path, log: Path, ray: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fake = make(("good",), log)
    assert runner.run(fake, "tune", train, 2, tmp_path, backend="ray", address="auto", progress=False).trained == 4
    assert ray["address"] == "auto" and ray["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "1"
    # A machine that writes to a disk of its own is noticed.
    monkeypatch.setattr(store, "write", lambda *_: None)
    summary = runner.run(fake, "tune", train, 2, tmp_path / "b", backend="ray", progress=False)
    assert summary.trained == 0
    assert all("must be a folder that all machines share" in failure.error for failure in summary.failures)


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    """Two experiments as if they were shipped, and a training function."""
    known = {"fine": make(("good", "other"), log, name="fine"), "bad": make(("fails",), log, name="bad")}
    known["fine_quick"] = make(("good",), log, seeds=1, name="fine_quick")
    monkeypatch.setattr(experiments, "names", lambda quick=False: ("fine",) if quick else ("bad", "fine"))

    def load(name: str, quick: bool = False) -> Experiment:
        if name not in known:
            raise BenchmarkError(f"'name' must be one of {list(known)}. Got {name!r} instead.")
        return known[f"{name}_quick" if quick else name]

    monkeypatch.setattr(experiments, "load", load)
    training = types.ModuleType("benchmarks.training")
    vars(training)["train"] = train
    monkeypatch.setitem(sys.modules, "benchmarks.training", training)


@pytest.mark.usefixtures("shipped")
def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*arguments: str) -> tuple[int, str]:
        code = command_line.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    root = ("--root", str(tmp_path))
    code, text = call("status", *root)
    assert code == 0 and "0/8" in text and "after the tuning" in text
    tuning = len({run_id(config) for config in ClaimRuns().runs("tune")})
    of_claims = text.split("claims")[1]
    assert f"0/{tuning}" in of_claims and of_claims.count("after the tuning") == 2
    code, text = call("status", "fine", *root)
    assert code == 0 and "0 done, 8 missing" in text
    code, text = call("table", "fine", *root)
    made = f"python -m benchmarks run fine --root {tmp_path}"
    assert code == 2 and text == f"error: There are no results of 'fine' in {tmp_path}; make them with: {made}\n"
    code, text = call("run", "fine", "--jobs", "1", *root)
    assert code == 0 and "0.001" in text and "fine report: 8 trained, 0 already finished" in text
    code, text = call("run", "fine", "--jobs", "1", *root)
    assert code == 0 and "fine tune: 0 trained, 8 already finished" in text
    code, text = call("status", "fine", *root)
    assert code == 0 and "16 done, 0 missing" in text and "2/2" in text
    code, text = call("status", *root)
    assert code == 0 and text.count("8/8") == 2
    code, text = call("table", "fine", *root)
    assert code == 0 and "axis-10" in text and text.index("good") < text.index("other")
    code, text = call("table", "fine", "--json", "--final", "--regime", "axis-1", *root)
    document = json.loads(text)
    assert code == 0 and document["regime"] == "axis-1" and document["schemes"]["good"]["runs"] == 2
    assert document["schemes"]["good"]["scores"]["worst"]["estimate"] == pytest.approx(0.504)
    code, text = call("list")
    assert code == 0 and "fine" in text and "Does it work?" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fine.parquet", "log.txt", "runs"]


OWN_PARTS = """
from algos.parts import part


@part("weights", "length_damp", source="a test")
def length_damp(scheme, advantage, table):
    return 0.5 * advantage
"""
OWN = """
import own_parts

from benchmarks.experiment import Budget, Experiment, Regime

EXPERIMENT = Experiment(
    "own", "Does it?", "It does.", (Regime("r", "agentic_gym/Chain-v0", {"options": 2, "depth": 1}, 1.0),),
    ("grpo:weights=length_damp",), (0, 1, 2, 3), (), (1e-3,), Budget(64, 4, 4, 1, 1, 1, 4, 0.0), "none", "mean",
)
"""


def test_workers_know_the_parts_that_the_module_of_an_experiment_registers(tmp_path: Path) -> None:
    # Workers read the package anew, so the module lies in a copy of it.
    shutil.copytree(REPOSITORY / "benchmarks", tmp_path / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "benchmarks" / "experiments" / "own.py").write_text(OWN)
    (tmp_path / "own_parts.py").write_text(OWN_PARTS)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "run", "own", "--jobs", "2", "--root", str(tmp_path / "results")],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "own report: 4 trained, 0 already finished" in done.stderr


@pytest.mark.usefixtures("shipped")
def test_command_line_runs_all_experiments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that fails does not keep the others from running."""
    assert command_line.main(("run", "all", "--jobs", "1", "--root", str(tmp_path))) == 1
    assert "fine report: 8 trained, 0 already finished" in capsys.readouterr().err


@pytest.mark.usefixtures("shipped")
def test_all_small_versions_are_those_that_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(("run", "all", "--quick", "--jobs", "1", "--root", str(tmp_path))) == 0
    assert "fine_quick report: 2 trained, 0 already finished" in capsys.readouterr().err


@pytest.mark.usefixtures("shipped")
def test_command_line_quick_has_results_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ("--root", str(tmp_path))
    assert command_line.main(("run", "fine", "--quick", "--jobs", "1", *root)) == 0
    assert (tmp_path / "fine_quick.parquet").exists() and not (tmp_path / "fine.parquet").exists()
    capsys.readouterr()
    assert command_line.main(("table", "fine", "--quick", "--json", *root)) == 0
    assert json.loads(capsys.readouterr().out)["schemes"]["good"]["scores"]["mean"]["low"] is None


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run", "bad", "--jobs", "1"), 1, "RuntimeError: boom [not markup]"),
        (("run", "nonsense"), 2, "must be one of ['fine', 'bad', 'fine_quick']. Got 'nonsense'"),
        (("run", "fine", "--shard", "half"), 2, "'shard' must be I/N, for example 1/4. Got 'half'"),
        (("run", "fine", "--shard", "3/2"), 2, "'shard' must be (i, n)"),
        (("run", "fine", "--phase", "report"), 2, "8 of 8 tuning runs are missing"),
        (("run", "fine", "--jobs", "1", "--shard", "1/2"), 2, "4 of 8 tuning runs are missing"),
        (("run", "fine", "--jobs", "0"), 2, "'jobs' must be a number of processes (1 or more), or -1"),
        (("run", "fine", "--jobs", "-5"), 2, "Got -5 instead"),
        (("run", "fine", "--jobs", "-5", "--phase", "report"), 2, "Got -5 instead"),
        (("claims", "--jobs", "-2"), 2, "Got -2 instead"),
        (("table", "fine", "--json"), 2, "make them with: python -m benchmarks run fine --root "),
        (("table", "fine", "--quick"), 2, "make them with: python -m benchmarks run fine --quick --root "),
        (("scoreboard",), 2, "make them with: python -m benchmarks claims --root "),
        (("scoreboard", "--write", "--json"), 2, "There are no results of 'claims'"),
        (("table", "fine", "--regime", "x"), 2, "'regime' must be one of ['axis-1', 'axis-10']. Got 'x'"),
    ],
)
def test_command_line_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert command_line.main((*arguments, "--root", str(tmp_path))) == code
    err = capsys.readouterr().err
    assert message in err
    # The same error in two runs is shown once.
    assert err.count("Traceback") == (code == 1)
    assert code == 1 or err.splitlines()[-1].startswith("error: ")


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("command", [("run", "fine"), ("claims",)])
def test_a_root_that_cannot_be_written_to_is_noticed_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(runner, "_outcomes", lambda *settings: pytest.fail("it trains"))
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "results"):
        assert command_line.main((*command, "--jobs", "1", "--root", str(root))) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: 'root' must be a folder that can be written to.") and err.count("\n") == 1
        assert str(root) in err


def test_writing_is_tried_in_every_folder_of_runs(tmp_path: Path) -> None:
    store.check_writable("fake", tmp_path / "new")
    assert list((tmp_path / "new").rglob("*")) == [tmp_path / "new" / "runs", tmp_path / "new" / "runs" / "fake"]
    (tmp_path / "runs").touch()
    with pytest.raises(BenchmarkError, match="'root' must be a folder"):
        store.check_writable("fake", tmp_path)


@pytest.mark.usefixtures("shipped")
def test_what_is_finished_needs_no_folder_that_can_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("run", "fine", "--jobs", "1", "--root", str(tmp_path))
    assert command_line.main(arguments) == 0
    monkeypatch.setattr(store, "check_writable", lambda *settings: pytest.fail("it writes"))
    assert command_line.main(arguments) == 0


@pytest.mark.usefixtures("shipped")
def test_damaged_results_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fine.parquet").write_text("damaged")
    for command in ("table", "status", "run"):
        assert command_line.main((command, "fine", "--root", str(tmp_path))) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: cannot read ") and err.count("\n") == 1


def test_without_arguments_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command_line.main([])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "python -m benchmarks" in out and "scoreboard" in out
