"""One benchmark run, and the experiments that ship."""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import aggregate, experiments, training
from benchmarks.experiment import Budget, Regime, RunConfig

BUDGET = Budget(
    total_turns=600, n_prompts=4, group_size=4, n_epochs=1, n_minibatches=1, n_evaluations=3, eval_rollouts=8,
    warmstart_success=0.0,
)  # fmt: skip
REGIME = Regime("spread-100", "agentic_gym/Mixture-v0", {"preset": "scale", "spread": 100.0}, 100.0)
CONFIG = RunConfig("test", REGIME, "erpo", 3, 1e-3, "report", BUDGET)


def without_time(rows):
    return [{name: value for name, value in row.items() if name != "wall_s"} for row in rows]


def test_a_run_is_a_function_of_its_configuration():
    first, second = training.train(CONFIG), training.train(CONFIG)
    for row, again in zip(without_time(first), without_time(second), strict=True):
        for name, value in row.items():
            assert value == again[name] or (math.isnan(value) and math.isnan(again[name])), name
    other = training.train(dataclasses.replace(CONFIG, seed=4))
    assert without_time(first) != without_time(other)


def test_rows_have_equal_spacing_and_finite_scores():
    rows = training.train(CONFIG)
    assert len(rows) == 4 * 4
    turns = sorted({row["turns"] for row in rows})
    assert turns[0] == 0
    for point, reached in enumerate(turns[1:], start=1):
        assert 200 * point <= reached < 200 * point + 16 * 10
    assert all(np.isfinite(row["score"]) for row in rows)
    assert {row["environment"] for row in rows} == {"ChainShort", "Database", "Search", "ChainLong"}


def test_an_update_that_passes_several_points_is_evaluated_once():
    # 16 rollouts of 4 turns: an update takes 64, and a point is due every 30.
    budget = dataclasses.replace(BUDGET, total_turns=300, n_evaluations=10)
    chain = Regime("chain", "agentic_gym/Chain-v0", {"options": 4, "depth": 4}, 0.0)
    turns = [row["turns"] for row in training.train(dataclasses.replace(CONFIG, regime=chain, budget=budget))]
    assert turns == [0, 64, 128, 192, 256, 320]


def test_schemes_of_one_seed_are_paired():
    """The same base policy and evaluation before training, whatever the scheme or the spread."""
    start = [row["score"] for row in training.train(CONFIG) if row["turns"] == 0]
    for changes in ({"scheme": "ppo"}, {"regime": dataclasses.replace(REGIME, env_kwargs={"preset": "matched"})}):
        other = [row["score"] for row in training.train(dataclasses.replace(CONFIG, **changes)) if row["turns"] == 0]
        assert other == start


def test_base_policy_is_made_once_and_shared(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CACHE", tmp_path)
    made = []
    monkeypatch.setattr(training, "warmstart", lambda model, rate, seed: made.append(rate))
    config = dataclasses.replace(CONFIG, budget=dataclasses.replace(BUDGET, warmstart_success=0.2, total_turns=3))
    training.train(config)
    training.train(dataclasses.replace(config, scheme="grpo"))
    assert made == [0.2]
    assert len(list(tmp_path.iterdir())) == 1


def test_change_between_regimes_is_paired_by_seed():
    def run(regime, seed, score):
        return {
            "regime": regime, "axis_value": 1.0, "scheme": "grpo", "seed": seed, "learning_rate": 1e-3,
            "run_id": f"{regime}{seed}", "A": score, "mean": score, "worst": score,
            "final_A": 0.0, "final_mean": 0.0, "final_worst": 0.0,
        }  # fmt: skip

    runs = [run("low", seed, 0.1 * seed) for seed in range(4)] + [
        run("high", seed, 0.1 * seed - 0.2) for seed in (3, 1, 2)
    ]
    interval = aggregate.change(pa.Table.from_pylist(runs), "high", "low")["grpo"]["A"]
    # Paired: the seeds differ a lot, the differences not at all.
    assert interval.estimate == pytest.approx(-0.2)
    assert interval.high - interval.low == pytest.approx(0.0, abs=1e-12)


def test_dynamics_ignore_rewards_only():
    plain = training.dynamics({"preset": "scale", "spread": 10.0})
    assert plain == training.dynamics({"preset": "scale", "spread": 1000.0}) == training.dynamics({"preset": "matched"})
    assert plain != training.dynamics({"preset": "depth"})
    assert training.dynamics({"depth": 3, "reward_scale": 2.0, "dense": True}) == {"depth": 3}


@pytest.mark.parametrize("name", experiments.names())
@pytest.mark.parametrize("quick", [False, True])
def test_shipped_experiments_are_runnable(name, quick):
    experiment = experiments.load(name, quick)
    for regime in experiment.regimes:
        assert training.reference_scores(regime.env_id, regime.env_kwargs)
    if not quick:
        assert len(experiment.seeds) >= (20 if name == "scale_mismatch" else 10)
