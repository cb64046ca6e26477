"""The suite's measurements, on next to no budget, and what becomes of them."""

import io
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from agentic_gym import truth
from benchmarks import suite, suite_results
from benchmarks.experiment import BenchmarkError
from benchmarks.rollouts import at_random, expert, make_engine, play

MEASURED = ("agentic_gym/Search-v0", "agentic_gym/Mixture-v0")
TINY = suite.Budget((1, 4), 0.001, 1, 16, 8, 32, 1, 16, 2, 0.01, 0.02, 0.03, 0.0)


@pytest.fixture(scope="module")
def entries():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = {env_id: suite.measure_id(env_id, TINY, seed=0) for env_id in MEASURED}
    return {
        env_id: {"settings": suite.make_settings(env_id, 0, TINY), **suite.origin(1.0), **entry}
        for env_id, entry in found.items()
    }


def test_play_follows_rollouts_to_their_ends():
    engine = make_engine("agentic_gym/Search-v0", 64)
    played = play(engine, expert(engine), group_size=8)
    assert played.prompt.tolist() == np.repeat(np.arange(8), 8).tolist()
    assert played.success.all() and (played.score == 1).all() and (played.value == 1).all()
    assert played.course.shape == (played.turns.max() + 1, 64)
    # Search pays at the end only.
    paid = np.arange(len(played.course))[:, None] >= played.turns
    np.testing.assert_array_equal(played.course, paid.astype(float))
    assert ((played.tokens >= 2 * played.turns) & (played.tokens <= 3 * played.turns)).all()


def test_random_rollouts_have_the_known_mean():
    engine = make_engine("agentic_gym/Search-v0", 4096)
    played = play(engine, at_random(engine, seed=5))
    (known,) = truth("agentic_gym/Search-v0")
    assert played.score.mean() == pytest.approx(known.random_score, abs=5 * known.random_score_se)
    np.testing.assert_array_equal(played.value, played.reward)


def test_statistics_of_groups():
    engine = make_engine("agentic_gym/Chain-v0", 6)
    played = play(engine, expert(engine), group_size=3)
    reward = np.array([1.0, 1.0, 1.0, 0.0, 2.0, 9.0])
    found = suite.rollout_statistics(
        played._replace(reward=reward, valid=np.array([True, True, True, True, True, False])), environment=0
    )
    assert found["groups_without_signal"] == 0.5
    assert found["std_within_groups"] == pytest.approx(np.sqrt(2) / 2)
    assert (found["reward_lowest"], found["reward_highest"], found["reward_mean"]) == (0.0, 2.0, 1.0)
    assert (found["turns_mean"], found["turns_max"], found["tokens_mean"]) == (4.0, 4, 8.0)


def test_an_id_is_measured_in_full(entries):
    for env_id, entry in entries.items():
        assert all(rate > 0 for rate in entry["turns_per_second"].values()) and entry["bytes_per_row"]["kept"] > 100
        assert list(entry["rollouts"]) == [known.environment for known in truth(env_id)]
        assert all(set(found) == {"expert", "random", "base"} for found in entry["rollouts"].values())
        others = {"GroupPPO, seed 1", "GroupPPO, seed 2"} if "Search" in env_id else set()
        assert set(entry["learning"]) == {"GroupPPO", *others}
        for learned in entry["learning"].values():
            times = [point["cpu_s"] for point in learned["curve"]]
            assert times[0] == 0 and times == sorted(times) and learned["turns_end"] > 0
            assert learned["score_start"] == learned["curve"][0]["score"]
        # Every seed has a base policy and rollouts of its own.
        assert len({learned["turns_end"] for learned in entry["learning"].values()}) == 1 + len(others)


def test_curve_ends_when_it_is_solved():
    class Learner:
        turns = 0

        def learn(self):
            self.turns += 1

    class Examiner:
        def examine(self, learner):
            return {"score": 0.4 * learner.turns, "success": 0.0, "length": 1.0, "scores": {}}

    # CPU seconds below any real ones: every update is examined.
    curve = suite.learning_curve(Learner(), Examiner(), np.linspace(-10, -1, 10), stop_at=0.95)
    assert [point["turns"] for point in curve] == [0, 1]
    later = [{**point, "cpu_s": seconds} for seconds, point in zip((0.0, 2.0), curve, strict=True)]
    summary = suite.summarise([*later, {**later[-1], "cpu_s": 6.0, "score": 0.96, "turns": 3}], early=5.0)
    assert summary["seconds_to_learn"] == 6.0 and summary["score_early"] == 0.96 and summary["turns_end"] == 3
    assert suite.summarise(later, early=5.0)["seconds_to_learn"] is None


@pytest.mark.parametrize("name", ["PPO", "MaskablePPO"])
def test_sb3_learns_from_scratch(name):
    learner = suite.Sb3Learner(name, "agentic_gym/Chain-v0", seed=0)
    examiner = suite.Examiner("agentic_gym/Chain-v0", TINY)
    (first, last) = suite.learning_curve(learner, examiner, [-1.0])
    assert first["turns"] == 0 and last["turns"] == suite.SB3_ROWS * suite.SB3_PPO["n_steps"]


def test_points_in_time_have_the_reported_one():
    points = suite.points_in_time(suite.Budget(), 180.0)
    assert points == sorted(points) and 5.0 in points and points[-1] == 180.0


def test_results_are_kept_and_go_on(tmp_path, monkeypatch, entries):
    env_id, entry = next(iter(entries.items()))
    path, calls = tmp_path / "suite.json", []
    monkeypatch.setattr(suite, "measure_id", lambda *arguments: calls.append(arguments) or dict(entry))
    options = suite.Options(ids=(env_id.removeprefix("agentic_gym/"),))
    console = Console(file=io.StringIO())
    for _ in range(2):
        assert suite.measure_all(options, TINY, path, console) == []
    assert len(calls) == 1 and list(suite_results.load(path)["ids"]) == [env_id]
    suite.measure_all(replace(options, again=True), TINY, path, console)
    suite.measure_all(options, replace(TINY, groups=9), path, console)
    assert len(calls) == 3
    assert [file.name for file in tmp_path.iterdir()] == ["suite.json"]


def test_a_failure_costs_one_id_only(tmp_path, monkeypatch, entries):
    good, bad = list(entries)[:2]

    def measure(env_id, *arguments):
        if env_id == bad:
            raise RuntimeError("broken")
        return entries[env_id]

    monkeypatch.setattr(suite, "measure_id", measure)
    output = io.StringIO()
    path = tmp_path / "suite.json"
    assert suite.measure_all(suite.Options(ids=(bad, good)), TINY, path, Console(file=output)) == [bad]
    assert list(json.loads(path.read_text())["ids"]) == [good] and "broken" in output.getvalue()


def test_wrong_requests_are_one_line(tmp_path):
    with pytest.raises(BenchmarkError, match="'ids' must be among"):
        suite.chosen_ids(["Nothing-v0"])
    (tmp_path / "suite.json").write_text("{")
    with pytest.raises(BenchmarkError, match="cannot read"):
        suite_results.load(tmp_path / "suite.json")


def test_tables_and_page(tmp_path, entries):
    output = io.StringIO()
    suite_results.show({"ids": entries}, Console(file=output, width=200))
    suite_results.save({"ids": entries}, tmp_path / "suite.json")
    suite_results.write_page(tmp_path / "suite.json", tmp_path / "measured.md")
    text = (tmp_path / "measured.md").read_text()
    for title in ("Speed and memory", "Depth and reward", "Signal", "Learning from a base policy"):
        assert title in output.getvalue() and f"## {title}" in text
    widths = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert min(widths) > 5 and "nan" not in text
    assert "make suite" in suite_results.page({"ids": {}})


def test_a_part_alone_is_measured_again(tmp_path):
    path = tmp_path / "suite.json"
    before = {"settings": {}, "turns_per_second": {"1": 1.0}, "bytes_per_row": {}, "learning": {"PPO": "kept"}}
    suite_results.save({"ids": {"agentic_gym/Chain-v0": before}}, path)
    console = Console(file=io.StringIO())
    suite.measure_part(suite.Options(only="learning"), TINY, path, console)
    entry = suite_results.load(path)["ids"]["agentic_gym/Chain-v0"]
    assert set(entry["learning"]) == {"PPO", "GroupPPO", "GroupPPO, seed 1", "GroupPPO, seed 2"}
    assert entry["turns_per_second"] == {"1": 1.0}
    assert entry["settings"] == suite.make_settings("agentic_gym/Chain-v0", 0, TINY)
    suite.measure_part(suite.Options(only="engine"), TINY, path, console)
    after = suite_results.load(path)["ids"]
    assert list(after) == ["agentic_gym/Chain-v0"]
    assert after["agentic_gym/Chain-v0"]["learning"] == entry["learning"]
    entry = after["agentic_gym/Chain-v0"]
    assert entry["turns_per_second"]["1"] > 100 and entry["bytes_per_row"]["kept"] > 0
    assert set(entry["engine_measured"]) >= {"date", "command", "versions", "machine"}


def test_the_stored_command_names_no_files(monkeypatch):
    monkeypatch.setattr(
        suite.sys, "argv", ["suite", "--only", "engine", "--json", "/somewhere/s.json", "--ids", "Chain-v0"]
    )
    assert suite.origin(1.0)["command"] == "python -m benchmarks.suite --only engine --ids Chain-v0"
