"""The page of results: what it states follows from the rows, and from nothing else."""

import dataclasses

import numpy as np
import pytest

from benchmarks import experiments, report, store
from benchmarks.aggregate import choose_learning_rates
from benchmarks.experiment import BenchmarkError, run_id

GAINS = {"grpo": 0.0, "rloo": 0.2, "mc_grpo": -0.2, "lite_ppo": 0.0}


@pytest.fixture
def found():
    """An experiment with made-up scores: rloo gains, mc_grpo loses, lite_ppo is noise; 1e-2 is the best rate."""
    experiment = dataclasses.replace(experiments.load("small_groups"), schemes=tuple(GAINS))
    rows = []
    configs = experiment.runs("tune") + experiment.runs("report", dict.fromkeys(GAINS, 1e-2))
    for config in configs:
        random = np.random.default_rng([config.seed, list(GAINS).index(config.scheme), int(config.regime.axis_value)])
        score = 0.5 + GAINS[config.scheme] - 0.1 * (config.learning_rate != 1e-2) + 0.02 * random.normal()
        rows += [
            {
                "run_id": run_id(config), "phase": config.phase, "regime": config.regime.name,
                "axis_value": config.regime.axis_value, "scheme": config.scheme, "seed": config.seed,
                "learning_rate": config.learning_rate, "turns": turns, "environment": "Chain", "score": score,
            }
            for turns in (0, 100)
        ]  # fmt: skip
    import pyarrow as pa

    table = pa.Table.from_pylist(rows)
    assert set(choose_learning_rates(experiment, table).values()) == {1e-2}
    return [(experiment, table)]


def entry(key, verdict, **changes):
    return {
        "key": key, "source": "Somebody, arXiv 1234.5678", "statement": f"The claim {key}.", "treatment": "grpo",
        "control": "rloo", "regime": "chain", "metric": "score", "predicted": "greater", "effect": 0.1, "low": 0.05,
        "high": 0.15, "control_mean": 0.5, "seeds": 20, "verdict": verdict, "robust": "yes", "note": "",
        "learning_rates": [0.003, 0.01], "treatment_budget": {"a": 1}, "control_budget": {"a": 1}, **changes,
    }  # fmt: skip


def test_the_decision_table_lists_what_differs(found):
    lines = report.decision_table(found)
    rows = [line for line in lines if "| small_groups, group-" in line]
    assert len(rows) == 5
    for row in rows:
        _, _, _, better, worse, reference, _ = (cell.strip() for cell in row.split("|"))
        assert better.startswith("`rloo` +0.") and "," not in better
        assert worse.startswith("`mc_grpo` -0.") and "," not in worse
        assert float(reference) == pytest.approx(0.5, abs=0.02)


def test_the_evidence_marks_and_sorts(found):
    text = "\n".join(report.evidence(*found[0]))
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows[0].startswith("| `rloo` | 0.01 |") and rows[0].count("▲") == 5
    assert rows[-1].startswith("| `mc_grpo` | 0.01 |") and rows[-1].count("▼") == 5
    assert "▲" not in rows[1] + rows[2] and "▼" not in rows[1] + rows[2]
    assert "10 paired seeds" in text and "`python -m benchmarks run small_groups`" in text


def test_large_experiments_show_what_differs(found, monkeypatch):
    monkeypatch.setattr(report, "LARGE", ("small_groups",))
    text = "\n".join(report.evidence(*found[0]))
    assert "`lite_ppo`" not in text and "`grpo`" in text and "1 schemes that are not distinguishable from it" in text


def test_the_claims_are_counted_and_sorted_by_verdict():
    entries = [
        entry("one", "replicates"), entry("two", "contradicted", note="in a special case"),
        entry("three", "replicates", control_budget={"a": 2}),
    ]  # fmt: skip
    text = "\n".join(report.claims_section(entries))
    assert "3 claims: 2 replicate, 1 are contradicted, 0 are inconclusive" in text
    assert text.index("The claim one.") < text.index("The claim three.") < text.index("The claim two.")
    assert "*(in a special case)*" in text and "`rloo` (other budget)" in text and "+0.100 [+0.050, +0.150]" in text


def test_the_page_says_which_verdicts_changed_when_the_runs_were_made_again():
    entries = [entry("one", "replicates"), entry("two", "contradicted"), entry("three", "replicates")]
    again = [entry("one", "inconclusive"), entry("two", "contradicted")]
    text = "\n".join(report.claims_section(entries, again))
    assert "1 of 2 claims have the same verdict; not: `one` (inconclusive)" in text
    assert "Made again" not in "\n".join(report.claims_section(entries))


def test_the_page_is_written_twice(found, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "stored_experiments", lambda root: found)
    (tmp_path / "results").mkdir()
    store.write_text(tmp_path / "results" / "claims.json", "[]")
    (tmp_path / "docs").mkdir()
    paths = report.write(tmp_path / "results")
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == ["RESULTS.md", "docs/results.md"]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    assert "](plots/figures/small_groups.png)" in texts[0] and "](../plots/figures/small_groups.png)" in texts[1]
    assert "nan" not in texts[0] and "What this cannot say" in texts[0]


def test_nothing_stored_is_an_error(tmp_path):
    with pytest.raises(BenchmarkError, match="There are no finished experiments"):
        report.write(tmp_path)


def test_lengths_of_wrong_answers_leave_out_runs_without_any(found):
    import pyarrow as pa

    experiment, table = found[0]
    regimes = [regime.name for regime in experiment.regimes]
    assert report.wrong_answers(table, ["grpo"], regimes) == []
    rows = table.to_pylist()
    for row in rows:
        row["tokens_wrong"] = np.nan if row["seed"] == experiment.seeds[0] else 7.0 + 3.0 * (row["scheme"] == "rloo")
    text = "\n".join(report.wrong_answers(pa.Table.from_pylist(rows), ["grpo", "rloo"], regimes))
    assert "| `grpo` | 7.000 [7.000, 7.000] |" in text and "| `rloo` | 10.000 [10.000, 10.000]" in text
    assert "nan" not in text
