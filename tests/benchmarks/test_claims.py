"""Claims: the catalogue is well formed, the rule decides as written, runs are shared and tuned apart."""

import dataclasses
import json

import numpy as np
import pytest

from algos import make_scheme
from benchmarks.__main__ import main
from benchmarks.claims import CLAIMS, Arm, Claim, ClaimRuns, untrained
from benchmarks.claims.claim import effect, metric_of, verdict
from benchmarks.claims.regimes import CHAIN, CHAIN_OFFSET, SHORT, short
from benchmarks.claims.scoreboard import document, scoreboard
from benchmarks.claims.suite import (
    LEARNING_RATES,
    SEEDS,
    SENSITIVITY_SEEDS,
    TUNING_SEEDS,
    VARIANTS,
    Choice,
    candidates,
)
from benchmarks.experiment import BenchmarkError, run_id
from benchmarks.statistics import Interval


def claim(direction="greater", **changes):
    arms = {"treatment": Arm("grpo", CHAIN, SHORT), "control": Arm("reinforce", CHAIN, SHORT)}
    return Claim("key", "somewhere", "x beats y", metric="score", direction=direction, **{**arms, **changes})


def test_the_catalogue_is_well_formed():
    assert len(CLAIMS) >= 30
    assert len({entry.key for entry in CLAIMS}) == len(CLAIMS)
    for entry in CLAIMS:
        assert "arXiv" in entry.source and entry.statement.endswith(".")
        for arm in entry.arms:
            make_scheme(arm.scheme)
        one, two = entry.treatment, entry.control
        assert one != two, entry.key
        # One cause at a time: the regime is common, and the schemes or the budgets differ.
        assert one.regime == two.regime and (one.scheme != two.scheme or one.budget != two.budget)


@pytest.mark.parametrize(
    ("direction", "low", "high", "expected"),
    [
        ("greater", 0.01, 0.2, "replicates"), ("greater", -0.1, 0.2, "inconclusive"),
        ("greater", -0.3, -0.1, "contradicted"), ("greater", 0.0, 0.2, "inconclusive"),
        ("less", -0.3, -0.1, "replicates"), ("less", 0.01, 0.2, "contradicted"), ("less", -0.1, 0.1, "inconclusive"),
        ("equal", -0.02, 0.02, "replicates"), ("equal", -0.02, 0.05, "inconclusive"),
        ("equal", 0.04, 0.09, "contradicted"), ("equal", -0.09, -0.04, "contradicted"),
        ("equal", -0.03, 0.03, "replicates"),
    ],
)  # fmt: skip
def test_the_rule(direction, low, high, expected):
    assert verdict(claim(direction), Interval((low + high) / 2, low, high)) == expected


def test_effects_are_paired_and_differences_of_differences():
    random = np.random.default_rng(0)
    base = {seed: float(random.normal()) for seed in range(20)}
    better = {seed: value + 0.1 + 0.01 * random.normal() for seed, value in base.items()}
    found = effect(claim(), [better, base])
    assert 0.09 < found.low < found.estimate < found.high < 0.11
    against = (Arm("grpo", CHAIN_OFFSET, SHORT), Arm("reinforce", CHAIN_OFFSET, SHORT))
    twice = effect(claim(against=against), [better, base, better, base])
    assert twice.estimate == pytest.approx(0.0, abs=1e-12)
    del better[3]
    assert effect(claim(), [better, base]).estimate == pytest.approx(0.1, abs=0.02)
    with pytest.raises(ValueError, match="claim 'key' has 1 seeds common to all arms; it needs at least 2"):
        effect(claim(), [{0: 1.0}, base])


ROWS = [
    {"turns": turns, "environment": name, "score": score, "tokens": 2 * score}
    for turns, name, score in [(0, "a", 9.0), (0, "b", 9.0), (5, "a", 1.0), (5, "b", 3.0), (9, "a", 2.0), (9, "b", 6.0)]
]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("score", 3.0), ("score@end", 4.0), ("score.worst", 1.5), ("score.worst@end", 2.0), ("score.b", 4.5),
        ("score.b@end", 6.0), ("tokens", 6.0),
    ],
)  # fmt: skip
def test_metrics_leave_the_base_policy_out(metric, expected):
    assert metric_of(ROWS, metric) == expected


def test_a_metric_that_is_not_there():
    with pytest.raises(ValueError, match=r"metric='score\.c' is not in the rows: no environment 'c'"):
        metric_of(ROWS, "score.c")


def small_runs():
    arm = Arm("grpo", CHAIN, SHORT)
    first = claim(treatment=arm)
    second = dataclasses.replace(first, key="other", control=Arm("rloo", CHAIN, SHORT))
    return ClaimRuns([first, second])


def test_runs_are_shared_and_tuned_on_other_seeds():
    runs = small_runs()
    assert len(runs.arms) == 3
    tune = runs.runs("tune")
    assert len(tune) == 3 * len(TUNING_SEEDS) * len(LEARNING_RATES)
    assert not {config.seed for config in tune} & set(SEEDS)
    rates = {arm: Choice(arm.scheme, 3e-3) for arm in runs.arms}
    report, other = runs.runs("report", rates), runs.runs("sensitivity", rates)
    assert len(report) == 3 * len(SEEDS) and len(other) == 3 * len(SENSITIVITY_SEEDS) * len(VARIANTS)
    identities = [run_id(config) for config in (*tune, *report, *other)]
    assert len(set(identities)) == len(identities)
    assert set(identities) <= {run_id(config) for config in runs.every_run()}
    with pytest.raises(ValueError, match="learning_rates=None is not allowed for the phase 'report'"):
        runs.runs("report")


def made_up(runs, phase, rates, gain):
    """Rows in which grpo gains, and the middle learning rate is best."""
    rows = []
    for config in runs.runs(phase, rates):
        noise = np.random.default_rng([config.seed, len(config.scheme)]).normal()
        score = 0.5 + gain * (config.scheme == "grpo") - 0.1 * (config.learning_rate != 3e-3) + 0.01 * noise
        for turns in (0, 10):
            rows.append(
                {
                    "run_id": run_id(config), "phase": phase, "turns": turns, "environment": "Chain", "score": score,
                    "seed": config.seed,
                }
            )  # fmt: skip
    return rows


def test_the_scoreboard_from_rows():
    runs = small_runs()
    rows = made_up(runs, "tune", None, 0.1)
    with pytest.raises(BenchmarkError, match="1 tuning runs are missing"):
        runs.choose_rates(row for row in rows if row["run_id"] != rows[0]["run_id"])
    assert runs.tuned(rows).claims == runs.claims
    assert runs.tuned(row for row in rows if row["run_id"] != rows[0]["run_id"]).claims != runs.claims
    assert runs.tuned([]).claims == ()
    rates = runs.choose_rates(rows)
    assert rates == {arm: Choice(arm.scheme, 3e-3) for arm in runs.arms}
    assert scoreboard(runs, rows) == []
    rows += made_up(runs, "report", rates, 0.1)
    entries = scoreboard(runs, rows)
    assert [entry.verdict for entry in entries] == ["replicates"] * 2
    assert entries[0].effect.estimate == pytest.approx(0.1, abs=0.02) and entries[0].seeds == len(SEEDS)
    assert [entry.robust for entry in entries] == ["-", "-"]
    same = scoreboard(runs, rows + made_up(runs, "sensitivity", rates, 0.1))
    assert [entry.robust for entry in same] == ["yes", "yes"]
    opposite = scoreboard(runs, rows + made_up(runs, "sensitivity", rates, -0.1))
    assert [entry.robust for entry in opposite] == ["no", "no"]
    data = document(same)
    assert data[0]["verdict"] == "replicates" and data[0]["sensitivity"] == dict.fromkeys(VARIANTS, "replicates")


def test_both_arms_of_a_claim_choose_from_as_much():
    for one in CLAIMS:
        treatment, control = one.arms[:2]
        assert treatment.tune_width == control.tune_width
        assert len(candidates(treatment)) == len(candidates(control))


def test_widths_are_tuned_where_they_belong_to_the_method():
    arm = Arm("gspo", CHAIN, SHORT, tune_width=True)
    schemes = list(dict.fromkeys(choice.scheme for choice in candidates(arm)))
    assert schemes == ["gspo", "gspo:clip_low=0.003,clip_high=0.004", "gspo:clip_low=0.03,clip_high=0.04"]
    assert [choice.rate for choice in candidates(arm)] == [*LEARNING_RATES] * 3
    assert [choice.scheme for choice in candidates(dataclasses.replace(arm, tune_width=False))] == ["gspo"] * len(
        LEARNING_RATES
    )
    longer = Arm("a2tgpo:bounds=fixed", CHAIN, SHORT, tune_width=True)
    each = candidates(longer)[:: len(LEARNING_RATES)]
    assert [make_scheme(choice.scheme).clip_high for choice in each] == [0.004, 0.04, 0.4]
    wide = candidates(Arm("grpo", CHAIN, SHORT, tune_width=True))
    assert [choice.scheme for choice in wide[:: len(LEARNING_RATES)]] == [
        "grpo:clip_low=0.002,clip_high=0.002", "grpo:clip_low=0.02,clip_high=0.02", "grpo",
    ]  # fmt: skip
    runs = ClaimRuns([claim(treatment=arm)])
    rows = [
        {"run_id": run_id(config), "phase": "tune", "turns": turns, "score": 0.1 + 0.5 * ("0.03" in config.scheme)}
        for config in runs.runs("tune") for turns in (0, 10)
    ]  # fmt: skip
    chosen = runs.choose_rates(rows)
    assert chosen[arm] == Choice("gspo:clip_low=0.03,clip_high=0.04", LEARNING_RATES[0])
    assert all(config.scheme == chosen[arm].scheme for config in runs.runs("report", chosen)[::2])


def test_every_claim_is_listed_whether_it_ran_or_not(tmp_path, capsys):
    for command in ("claims", "scoreboard"):
        assert main([command, "--json", "--root", str(tmp_path)]) == 0
        listed = json.loads(capsys.readouterr().out)
        every = [*CLAIMS, *(measured.claim for measured in untrained.CLAIMS)]
        assert [entry["key"] for entry in listed] == [claim.key for claim in every]
        assert len({claim.key for claim in every}) == len(every)
        assert {entry["verdict"] for entry in listed} == {"not run"}


def test_budgets_that_came_later_keep_the_identity_of_older_runs():
    runs = small_runs()
    config = runs.report(runs.arms[0], 0, Choice(runs.arms[0].scheme, 1e-3))
    assert run_id(config) == run_id(dataclasses.replace(config, budget=short(staleness=0, net_width=64, eval_group=1)))
    assert run_id(config) != run_id(dataclasses.replace(config, budget=short(staleness=1)))


# Claims about advantages alone.


@pytest.mark.parametrize("p", [0.1, 0.2, 0.8])
@pytest.mark.parametrize("size", [4, 16])
def test_the_groups_mean_is_biased_as_the_closed_form_says(p, size):
    pairs = [untrained.advantage_of_success(seed, p, size) for seed in range(20)]
    said, true = np.array(pairs).T
    # The mean success rate of groups that have both outcomes.
    mixed = (p - p**size) / (1 - p**size - (1 - p) ** size)
    assert said.mean() == pytest.approx(1 - mixed, abs=4 * said.std(ddof=1) / np.sqrt(20))
    assert (true == 1 - p).all() and (1 - mixed < 1 - p) == (p < 0.5)


def test_the_level_of_credit_changes_less_with_the_root():
    root, plain = untrained.change_of_level(0, group_size=4, depth=4)
    assert 0 < root < plain < 2
    assert untrained.change_of_level(0, group_size=4, depth=4) == (root, plain)


def test_stored_values_are_judged_by_the_rule_of_all_claims(tmp_path):
    assert untrained.stored(tmp_path) == []
    names = ["", *untrained.CLAIMS[0].variants]
    falls = {name: [[0.7 + 0.01 * seed, 0.8 + 0.01 * seed] for seed in range(20)] for name in names}
    (tmp_path / untrained.FILE).write_text(json.dumps({"values": {"advantage-hard": falls}}))
    (entry,) = untrained.stored(tmp_path)
    assert (entry.verdict, entry.robust, entry.seeds) == ("replicates", "yes", 20)
    assert entry.effect.estimate == pytest.approx(-0.1)
    (line,) = document([entry])
    assert json.loads(json.dumps(line)) == line and line["predicted"] == "less"
    falls[names[1]] = [[0.9 + 0.01 * seed, 0.8] for seed in range(20)]
    (tmp_path / untrained.FILE).write_text(json.dumps({"values": {"advantage-hard": falls}}))
    assert untrained.stored(tmp_path)[0].robust == "no"
