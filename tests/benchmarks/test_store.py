"""Results on disk: atomic, self-healing, gathered without loss; and the aggregation of rows."""

import dataclasses
import json
import math
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks import aggregate, experiments, store
from benchmarks.experiment import BenchmarkError, Budget, Experiment, Regime, run_id

FAKE = Experiment(
    name="fake",
    question="Does it work?",
    claim="It does (nobody, 2026).",
    regimes=(Regime("one", "x", {}, 1.0), Regime("ten", "x", {"scale": 10}, 10.0)),
    schemes=("grpo", "erpo"),
    seeds=(0, 1),
    tuning_seeds=(100, 101),
    learning_rates=(0.001, 0.01),
    budget=Budget(100, 4, 4, 1, 1, 2, 8, 0.0),
    axis="scale",
    metric="mean",
)
RATES = {"grpo": 0.01, "erpo": 0.001}
CONFIG = FAKE.runs("report", RATES)[0]


def points(level: float = 0.0, **extra: Any) -> list[dict[str, Any]]:
    """Three evaluation points of two environments; the mean of `a` after the start is level + 0.3."""
    return [
        {
            "turns": turns,
            "update": update,
            "environment": environment,
            "score": level + step + (0.1 if environment == "b" else 0.0),
            "raw_score": 1.0,
            "success": np.float32(0.5),
            "return_mean": -3.0,
            "wall_s": 0.1,
            **extra,
        }
        for update, (turns, step) in enumerate([(0, 9.0), (50, 0.2), (100, 0.4)])
        for environment in ("a", "b")
    ]


def test_write_then_read(tmp_path: Path) -> None:
    assert not store.finished(CONFIG, tmp_path)
    with pytest.raises(FileNotFoundError, match="is not finished"):
        store.read(CONFIG, tmp_path)
    place = store.write(CONFIG, points(), tmp_path)
    assert place == tmp_path / "runs" / "fake" / run_id(CONFIG)
    assert store.finished(CONFIG, tmp_path)
    assert sorted(path.name for path in place.iterdir()) == ["config.json", "rows.parquet"]
    assert json.loads((place / "config.json").read_text())["budget"]["total_turns"] == 100
    table = store.read(CONFIG, tmp_path)
    assert table.schema.equals(store.SCHEMA)
    first = table.to_pylist()[0]
    assert first["run_id"] == run_id(CONFIG)
    assert (first["seed"], first["learning_rate"], first["phase"]) == (0, 0.01, "report")
    assert first["numpy"] == np.__version__ and first["git_commit"] and "blas" in first["blas"]
    assert not any("host" in name for name in table.column_names)


def test_further_columns_are_kept(tmp_path: Path) -> None:
    rows = points(entropy=1, note="fine")
    del rows[0]["entropy"]
    store.write(CONFIG, rows, tmp_path)
    other = FAKE.runs("report", RATES)[1]
    store.write(other, points(), tmp_path)
    table = store.gather(FAKE, tmp_path)
    by_run = table.filter(pc.field("run_id") == run_id(CONFIG))
    assert by_run["entropy"].to_pylist() == [None, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert table["note"].null_count == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": float("nan")}, "'score' must be finite. Got nan"),
        ({"score": None}, "must all have 'score'. Row 0 has not"),
        ({"turns": 1.5}, "must have int64 in 'turns'"),
        ({"environment": 3}, "must have string in 'environment'"),
        ({"success": "often"}, "must have double in 'success'"),
        ({"turns": 50}, "one row for each environment and number of turns"),
        ({"seed": 3}, r"must not have the columns \['seed'\]"),
    ],
)
def test_write_refuses_bad_rows(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        store.write(CONFIG, [points()[0] | change, *points()[1:]], tmp_path)
    with pytest.raises(ValueError, match=r"turns > 0 for each environment"):
        store.write(CONFIG, points()[:2], tmp_path)
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_finished_run_is_not_overwritten(tmp_path: Path) -> None:
    store.write(CONFIG, points(0.1), tmp_path)
    store.write(CONFIG, points(0.7), tmp_path)
    assert store.read(CONFIG, tmp_path)["score"][2].as_py() == pytest.approx(0.3)
    assert len(list((tmp_path / "runs").rglob("rows.parquet"))) == 1


def test_an_interrupted_write_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        store.write(CONFIG, points(), tmp_path)
    monkeypatch.undo()
    assert not store.finished(CONFIG, tmp_path)
    assert not list(tmp_path.rglob("rows.parquet"))
    store.write(CONFIG, points(), tmp_path)
    assert store.finished(CONFIG, tmp_path)


def truncate(place: Path) -> None:
    data = (place / "rows.parquet").read_bytes()
    (place / "rows.parquet").write_bytes(data[: len(data) // 2])


def empty(place: Path) -> None:
    (place / "rows.parquet").write_bytes(b"")


def lose_rows(place: Path) -> None:
    (place / "rows.parquet").unlink()


def lose_config(place: Path) -> None:
    (place / "config.json").unlink()


def cut_config(place: Path) -> None:
    (place / "config.json").write_text('{"budget":')


def swap_config(place: Path) -> None:
    document = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(document | {"seed": 77}))


@pytest.mark.parametrize("damage", [truncate, empty, lose_rows, lose_config, cut_config, swap_config])
def test_a_damaged_run_is_missing_and_moved_aside(tmp_path: Path, damage: Any) -> None:
    place = store.write(CONFIG, points(), tmp_path)
    damage(place)
    left = sorted(path.name for path in place.iterdir())
    with pytest.warns(store.DamagedRunWarning, match=str(place)):
        assert not store.finished(CONFIG, tmp_path)
    assert not place.exists()
    (aside,) = place.parent.glob(f"{place.name}.damaged-*")
    assert sorted(path.name for path in aside.iterdir()) == left
    store.write(CONFIG, points(), tmp_path)
    assert store.finished(CONFIG, tmp_path)
    assert store.gather(FAKE, tmp_path).num_rows == 6


def test_a_flipped_byte_is_found_when_gathering(tmp_path: Path) -> None:
    place = store.write(CONFIG, points(), tmp_path)
    data = bytearray((place / "rows.parquet").read_bytes())
    data[200] ^= 0xFF
    (place / "rows.parquet").write_bytes(data)
    with pytest.warns(store.DamagedRunWarning):
        assert store.gather(FAKE, tmp_path).num_rows == 0


def test_gather_unions_what_machines_have(tmp_path: Path) -> None:
    """Two machines run one half each; the gathered file travels, the folders do not."""
    runs = FAKE.runs("report", RATES)
    here, there = tmp_path / "here", tmp_path / "there"
    for config in runs[:4]:
        store.write(config, points(), here)
    store.gather(FAKE, here)
    there.mkdir()
    shutil.copy(store.gathered_file("fake", here), there)
    assert [store.finished(config, there) for config in runs] == [True] * 4 + [False] * 4
    assert store.read(runs[0], there).num_rows == 6
    for config in runs[3:]:
        store.write(config, points(0.5), there)
    table = store.gather(FAKE, there)
    assert table.num_rows == 8 * 6
    assert set(table["run_id"].to_pylist()) == {run_id(config) for config in runs}
    # The run that both have: the folder wins, and is there once.
    both = table.filter(pc.field("run_id") == run_id(runs[3]))
    assert both["score"].to_pylist()[2] == pytest.approx(0.7) and both.num_rows == 6
    shutil.rmtree(there / "runs")
    assert store.gather(FAKE, there).equals(table)
    assert all(store.finished(config, there) for config in runs)


def test_gather_again_leaves_the_file_alone(tmp_path: Path) -> None:
    store.write(CONFIG, points(), tmp_path)
    first = store.gather(FAKE, tmp_path)
    before = store.gathered_file("fake", tmp_path).stat()
    assert store.gather(FAKE, tmp_path).equals(first)
    assert store.gathered_file("fake", tmp_path).stat().st_ino == before.st_ino
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fake.parquet", "runs"]


def test_runs_of_a_phase_are_taken_over_and_own_ones_stay(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    tuning = FAKE.runs("tune")
    for config in (*tuning, CONFIG):
        store.write(config, points(), theirs)
    with pytest.raises(store.NoResultsError, match=r"no gathered runs of the phase 'tune' of 'fake'"):
        store.take_over("fake", "tune", theirs, ours)
    store.gather(FAKE, theirs)
    store.write(tuning[0], points(5.0), ours)
    store.gather(FAKE, ours)
    assert store.take_over("fake", "tune", theirs, ours) == len(tuning) - 1
    assert store.take_over("fake", "tune", theirs, ours) == 0
    table = store.gather(FAKE, ours)
    assert set(table["phase"].to_pylist()) == {"tune"}
    assert len(pc.unique(table["run_id"])) == len(tuning)
    assert all(store.finished(config, ours) for config in tuning) and not store.finished(CONFIG, ours)
    assert store.read(tuning[0], ours).to_pylist()[0]["score"] == pytest.approx(14.0)
    assert store.read(tuning[1], ours).equals(store.read(tuning[1], theirs))
    assert store.take_over("fake", "tune", ours, ours) == 0


def test_gather_nothing(tmp_path: Path) -> None:
    assert store.gather(FAKE, tmp_path).num_rows == 0
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_gathered_file_is_an_error_and_kept(tmp_path: Path) -> None:
    store.write(CONFIG, points(), tmp_path)
    path = store.gathered_file("fake", tmp_path)
    path.write_bytes(b"version https://git-lfs")
    with pytest.raises(ValueError, match=r"cannot read .*fake.parquet"):
        store.gather(FAKE, tmp_path)
    assert path.read_bytes() == b"version https://git-lfs"


def write_all(root: Path, levels: dict[tuple[str, float], float]) -> None:
    """Tuning runs whose mean score is 0.35 + level of their scheme and rate."""
    for config in FAKE.runs("tune"):
        store.write(config, points(levels[config.scheme, config.learning_rate]), root)


def test_the_best_learning_rate_of_each_scheme_wins(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="16 of 16 tuning runs are missing"):
        aggregate.choose_learning_rates(FAKE, store.gather(FAKE, tmp_path))
    # A tie goes to the smaller rate, also when rounding makes 0.3 of it.
    write_all(tmp_path, {("grpo", 0.001): 0.0, ("grpo", 0.01): 0.2, ("erpo", 0.001): 0.3, ("erpo", 0.01): 0.1 + 0.2})
    assert aggregate.choose_learning_rates(FAKE, store.gather(FAKE, tmp_path)) == RATES


def test_each_regime_may_have_a_rate_of_its_own(tmp_path: Path) -> None:
    each = dataclasses.replace(FAKE, rate_per_regime=True)
    for config in each.runs("tune"):
        best = 0.01 if config.regime.name == "ten" and config.scheme == "grpo" else 0.001
        store.write(config, points(float(config.learning_rate == best)), tmp_path)
    rates = aggregate.choose_learning_rates(each, store.gather(each, tmp_path))
    assert rates == {"grpo": {"one": 0.001, "ten": 0.01}, "erpo": {"one": 0.001, "ten": 0.001}}
    for config in each.runs("report", rates):
        store.write(config, points(), tmp_path)
    scores = aggregate.run_scores(aggregate.current(each, store.gather(each, tmp_path))).to_pylist()
    assert len(scores) == 8
    assert all(run["learning_rate"] == rates[run["scheme"]][run["regime"]] for run in scores)


def test_runs_of_one_seed_from_unlike_base_policies_are_found(tmp_path: Path) -> None:
    configs = FAKE.runs("report", RATES)
    for config in configs:
        store.write(config, points(), tmp_path)
    assert aggregate.unpaired(store.gather(FAKE, tmp_path)) == []
    other = [config for config in configs if (config.scheme, config.regime.name, config.seed) == ("erpo", "ten", 1)]
    shutil.rmtree(store.folder(other[0], tmp_path))
    store.write(other[0], points(0.1), tmp_path)
    assert aggregate.unpaired(store.gather(FAKE, tmp_path)) == [("ten", 1)]


@pytest.mark.parametrize("name", experiments.names())
def test_stored_runs_of_one_seed_start_from_one_base_policy(name: str) -> None:
    experiment = experiments.load(name)
    rows = aggregate.current(experiment, store.gather(experiment))
    assert len(rows) and aggregate.unpaired(rows) == []


def test_scores_of_runs(tmp_path: Path) -> None:
    for level, config in enumerate(FAKE.runs("report", RATES)):
        store.write(config, points(float(level)), tmp_path)
    scores = aggregate.run_scores(store.gather(FAKE, tmp_path))
    assert scores.num_rows == 8
    assert scores.column_names[6:] == [
        *"ab",
        "mean",
        "worst",
        "final_a",
        "final_b",
        "final_mean",
        "final_worst",
    ]
    first = scores.to_pylist()[0]
    assert (first["regime"], first["scheme"], first["seed"]) == ("one", "erpo", 0)
    # Level 1; the point before training (9.0) does not count.
    assert [first[name] for name in ("a", "b", "mean", "worst")] == pytest.approx([1.3, 1.4, 1.35, 1.3])
    assert [first[f"final_{name}"] for name in ("a", "b", "mean", "worst")] == pytest.approx([1.4, 1.5, 1.45, 1.4])
    assert aggregate.run_scores(store.gather(FAKE, tmp_path), "tune").num_rows == 0
    success = aggregate.run_scores(store.gather(FAKE, tmp_path), column="success")
    assert set(success["mean"].to_pylist()) == {0.5}


def test_runs_out_of_date_are_kept_but_not_averaged(tmp_path: Path) -> None:
    write_all(tmp_path, dict.fromkeys([(s, r) for s in FAKE.schemes for r in FAKE.learning_rates], 0.0))
    for rate in FAKE.learning_rates:
        for config in FAKE.runs("report", dict.fromkeys(FAKE.schemes, rate)):
            store.write(config, points(rate), tmp_path)
    table = store.gather(FAKE, tmp_path)
    with pytest.raises(ValueError, match="must have one run for each row"):
        aggregate.run_scores(table)
    scores = aggregate.run_scores(aggregate.current(FAKE, table))
    assert scores.num_rows == 8 and set(scores["learning_rate"].to_pylist()) == {0.001}


def test_environments_may_differ_between_regimes(tmp_path: Path) -> None:
    one, ten = FAKE.runs("report", RATES)[0], FAKE.runs("report", RATES)[2]
    assert (one.regime.name, ten.regime.name) == ("one", "ten")
    store.write(one, points(), tmp_path)
    store.write(ten, [row for row in points() if row["environment"] == "b"], tmp_path)
    scores = aggregate.run_scores(store.gather(FAKE, tmp_path)).to_pylist()
    assert [run["a"] for run in scores] == [pytest.approx(0.3), None]
    assert scores[1]["mean"] == scores[1]["worst"] == scores[1]["b"]
    assert list(aggregate.summarise(aggregate.run_scores(store.gather(FAKE, tmp_path)), "ten")["grpo"]) == [
        "b",
        "mean",
        "worst",
    ]


def test_summary_has_intervals_over_seeds(tmp_path: Path) -> None:
    for config in FAKE.runs("report", RATES):
        store.write(config, points(float(config.seed)), tmp_path)
    scores = aggregate.run_scores(store.gather(FAKE, tmp_path))
    worst = aggregate.summarise(scores, "ten")["grpo"]["worst"]
    assert worst.estimate == pytest.approx(0.8)
    assert worst.low == pytest.approx(0.3) and worst.high == pytest.approx(1.3)
    assert aggregate.summarise(scores, "ten", final=True)["grpo"]["worst"].estimate == pytest.approx(0.9)
    single = aggregate.summarise(scores.slice(0, 1), "one")["erpo"]["mean"]
    assert single.estimate == pytest.approx(0.35) and math.isnan(single.low)


def test_store_is_silent(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.write(CONFIG, points(), tmp_path)
        with pq.ParquetFile(store.folder(CONFIG, tmp_path) / "rows.parquet") as file:
            assert file.metadata.num_rows == 6
