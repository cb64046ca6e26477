"""The times of the README's commands."""

import json
import sys

import pytest

from benchmarks import durations
from benchmarks.experiment import BenchmarkError


@pytest.fixture
def commands(monkeypatch):
    wait = (sys.executable, "-c", "import time, pathlib; assert pathlib.Path('Makefile').exists(); time.sleep(0.2)")
    monkeypatch.setattr(durations, "INSTALL", ("install", (sys.executable, "-c", "")))
    monkeypatch.setattr(durations, "COMMANDS", {"demo": wait, "test": (sys.executable, "-c", "raise SystemExit('no')")})


def test_commands_are_timed_in_a_clone(commands, tmp_path, capsys):
    path = tmp_path / "durations.json"
    path.write_text(json.dumps({"reproduce": {"seconds": 1.0}}))
    durations.main(durations.Options(("demo",), path))
    stored = json.loads(path.read_text())
    assert set(stored) == {"reproduce", "install", "demo"} and stored["reproduce"] == {"seconds": 1.0}
    assert 0.2 <= stored["demo"]["seconds"] < 30 and len(stored["demo"]["commit"]) == 40
    assert "time.sleep" in capsys.readouterr().out


def test_a_command_that_fails_is_an_error_after_which_the_others_are_stored(commands, tmp_path):
    path = tmp_path / "durations.json"
    with pytest.raises(BenchmarkError, match="failed with status 1: no"):
        durations.main(durations.Options(("demo", "test"), path))
    assert set(json.loads(path.read_text())) == {"install", "demo"}


def test_the_clone_can_be_kept_but_must_be_new(commands, tmp_path):
    folder = tmp_path / "kept"
    assert [name for name, _ in durations.measure(("demo",), folder)] == ["install", "demo"]
    assert (folder / "Makefile").exists()
    with pytest.raises(BenchmarkError, match="'clone' must be a new folder"):
        list(durations.measure(("demo",), folder))


def test_unknown_targets():
    with pytest.raises(BenchmarkError, match="'targets' must be of"):
        list(durations.measure(("nothing",)))
