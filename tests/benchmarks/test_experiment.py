"""Experiments as data: validation, expansion into runs, identity, and the registry."""

import dataclasses
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import __main__ as command_line
from benchmarks import experiment as module
from benchmarks import experiments
from benchmarks.experiment import (
    BenchmarkError,
    Budget,
    Experiment,
    Regime,
    RunConfig,
    canonical,
    rates_in,
    run_id,
    spell_rate,
)

BUDGET: dict[str, Any] = {
    "total_turns": 1000,
    "n_prompts": 4,
    "group_size": 8,
    "n_epochs": 2,
    "n_minibatches": 4,
    "n_evaluations": 5,
    "eval_rollouts": 32,
    "warmstart_success": 0.2,
}
REGIME: dict[str, Any] = {
    "name": "scale-10",
    "env_id": "agentic_gym/Mixture-v0",
    "env_kwargs": {"scale": 10.0, "inner": {"a": 1, "b": [1, 2]}},
    "axis_value": 10.0,
}
EXPERIMENT: dict[str, Any] = {
    "name": "fake",
    "question": "Does it work?",
    "claim": "It does (nobody, 2026).",
    "regimes": (Regime(**REGIME), Regime("matched", "agentic_gym/Chain-v0", {}, 1.0)),
    "schemes": ("grpo", "erpo", "rloo"),
    "seeds": (0, 1),
    "tuning_seeds": (100,),
    "learning_rates": (1e-3, 3e-3),
    "budget": Budget(**BUDGET),
    "axis": "reward scale ratio",
    "metric": "mean",
}
CONFIG: dict[str, Any] = {
    "experiment": "fake",
    "regime": Regime(**REGIME),
    "scheme": "grpo",
    "seed": 3,
    "learning_rate": 1e-3,
    "phase": "report",
    "budget": Budget(**BUDGET),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "no spaces"}, "'name' must be an identifier"),
        ({"question": " "}, "'question' must be a non-empty str"),
        ({"regimes": ()}, "'regimes' must not be empty"),
        ({"regimes": (Regime(**REGIME), Regime("scale-10", "x", {}, 2.0))}, "'regimes' must not repeat"),
        ({"schemes": "grpo"}, "'schemes' must be a tuple"),
        ({"schemes": ("grpo", "grpo")}, "'schemes' must not repeat a value. Got 'grpo' twice"),
        ({"seeds": ()}, "'seeds' must not be empty"),
        ({"seeds": (0, 1, 0)}, "'seeds' must not repeat"),
        ({"seeds": (0, -1)}, "'seeds' must be an int of at least 0. Got -1"),
        ({"tuning_seeds": ()}, "'tuning_seeds' must not be empty"),
        ({"tuning_seeds": (1, 2)}, r"'tuning_seeds' must not contain reported seeds. Got \[1\]"),
        ({"learning_rates": (1e-3, 0.0)}, "'learning_rates' must be positive. Got 0.0"),
        ({"learning_rates": (1e-3, 1e-3)}, "'learning_rates' must not repeat"),
        ({"metric": "median"}, r"'metric' must be one of \['mean', 'worst'.*Got 'median'"),
    ],
)
def test_experiment_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Experiment(**{**EXPERIMENT, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_size": 0}, "'group_size' must be an int of at least 1. Got 0"),
        ({"n_prompts": 0}, "'n_prompts' must be an int of at least 1. Got 0"),
        ({"total_turns": 1e6}, "'total_turns' must be an int"),
        ({"n_epochs": True}, "'n_epochs' must be an int"),
        ({"warmstart_success": 1.5}, r"'warmstart_success' must be in the range \[0, 1\]. Got 1.5"),
        ({"warmstart_success": float("nan")}, "'warmstart_success' must be a finite number"),
    ],
)
def test_budget_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Budget(**{**BUDGET, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "'name' must be a non-empty str"),
        ({"axis_value": "10"}, "'axis_value' must be a finite number. Got '10'"),
        ({"env_kwargs": {"x": {1, 2}}}, "'env_kwargs' must be a mapping of JSON values"),
        ({"env_kwargs": {"x": float("inf")}}, "'env_kwargs' must be a mapping of JSON values"),
        ({"env_kwargs": {1: 2}}, r"'env_kwargs' must have str keys. Got \[1\]"),
    ],
)
def test_regime_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Regime(**{**REGIME, **change})


def test_config_refuses() -> None:
    for change, message in (
        ({"phase": "train"}, "'phase' must be one of"),
        ({"seed": "1"}, "'seed' must be"),
    ):
        with pytest.raises(ValueError, match=message):
            RunConfig(**{**CONFIG, **change})


def test_runs_are_the_product_with_seeds_outermost() -> None:
    fake = Experiment(**EXPERIMENT)
    tune = fake.runs("tune")
    assert len(tune) == 1 * 2 * 3 * 2 and {run.seed for run in tune} == {100}
    rates = {"grpo": 1e-3, "erpo": 3e-3, "rloo": 1e-3}
    report = fake.runs("report", rates)
    assert [run.seed for run in report] == [0] * 6 + [1] * 6
    assert all(run.learning_rate == rates[run.scheme] for run in report)
    ids = [run_id(run) for run in fake.every_run()]
    assert len(set(ids)) == len(ids) == 12 + 2 * 2 * 3 * 2
    assert {run_id(run) for run in tune + report} <= set(ids)


def test_runs_refuses_rates_that_would_not_be_gathered() -> None:
    fake = Experiment(**EXPERIMENT)
    for rates in (None, {"grpo": 1e-3}, dict.fromkeys(fake.schemes, 0.5)):
        with pytest.raises(ValueError, match="'learning_rates' must map each of"):
            fake.runs("report", rates)
    for regimes in (
        {},
        {"elsewhere": 1e-3},
        {**dict.fromkeys([r.name for r in fake.regimes], 1e-3), "elsewhere": 1e-3},
    ):
        with pytest.raises(ValueError, match="'learning_rates' must map each of"):
            fake.runs("report", dict.fromkeys(fake.schemes, regimes))
    with pytest.raises(ValueError, match="must be None for the phase 'tune'"):
        fake.runs("tune", dict.fromkeys(fake.schemes, 1e-3))


def test_rates_of_regimes_are_spelt_in_their_order() -> None:
    assert spell_rate(0.001) == "0.001" and rates_in(0.001) == (0.001,)
    assert spell_rate({"b": 0.01, "a": 0.003}) == "0.01/0.003" and spell_rate({"b": 0.01, "a": 0.01}) == "0.01"


def test_one_learning_rate_needs_no_tuning() -> None:
    fake = Experiment(**{**EXPERIMENT, "learning_rates": (1e-3,), "tuning_seeds": ()})
    assert fake.runs("tune") == []


def test_identity_is_readable_and_safe_in_a_path() -> None:
    identity = run_id(RunConfig(**{**CONFIG, "scheme": "../grpo(scale=none) é"}))
    phase, regime, scheme, rate, last = identity.split("/")
    assert (phase, regime, scheme, rate) == ("report", "scale-10", "_grpo_scale_none___", "lr0.001")
    assert last.startswith("3-") and len(last) == 2 + 12


KNOBS: list[tuple[str, Any]] = [
    ("experiment", "other"),
    ("scheme", "erpo"),
    ("seed", 4),
    ("learning_rate", 1.0000001e-3),
    ("phase", "tune"),
    *[("budget", Budget(**{**BUDGET, name: BUDGET[name] * 2})) for name in BUDGET],
    ("regime", Regime(**{**REGIME, "name": "other"})),
    ("regime", Regime(**{**REGIME, "env_id": "other"})),
    ("regime", Regime(**{**REGIME, "axis_value": 11.0})),
    ("regime", Regime(**{**REGIME, "env_kwargs": {"scale": 10.0, "inner": {"a": 1, "b": [2, 1]}}})),
    ("regime", Regime(**{**REGIME, "env_kwargs": {}})),
]


def test_identity_changes_with_every_knob(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [run_id(RunConfig(**{**CONFIG, name: value})) for name, value in KNOBS]
    assert {name for name, _ in KNOBS} == {entry.name for entry in dataclasses.fields(RunConfig)}
    original = run_id(RunConfig(**CONFIG))
    monkeypatch.setattr(module, "RESULTS_VERSION", module.RESULTS_VERSION + 1)
    digests = [identity[-12:] for identity in (*changed, original, run_id(RunConfig(**CONFIG)))]
    assert len(set(digests)) == len(digests)


@given(st.dictionaries(st.text(), st.integers() | st.lists(st.booleans()) | st.none(), max_size=5), st.randoms())
def test_identity_does_not_depend_on_the_order_of_knobs(knobs: dict[str, Any], random: Any) -> None:
    items = list(knobs.items())
    random.shuffle(items)
    one, two = (
        RunConfig(**{**CONFIG, "regime": Regime(**{**REGIME, "env_kwargs": kwargs})}) for kwargs in (knobs, dict(items))
    )
    assert canonical(one) == canonical(two) and run_id(one) == run_id(two)


def test_identity_is_the_same_tomorrow() -> None:
    """A changed digest orphans all stored results: change RESULTS_VERSION instead, on purpose."""
    assert run_id(RunConfig(**CONFIG)) == "report/scale-10/grpo/lr0.001/3-e8e06855a84f"


def test_regime_does_not_follow_later_changes_and_pickles() -> None:
    knobs = {"scale": [1, 2]}
    regime = Regime("r", "x", knobs, 1)
    knobs["scale"].append(3)
    assert regime.env_kwargs == {"scale": [1, 2]}
    config = RunConfig(**{**CONFIG, "regime": regime})
    assert pickle.loads(pickle.dumps(config)) == config
    assert isinstance(hash(config), int)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of experiment modules beside the real ones."""
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(tmp_path)])
    for name in ("fake_one", "fake_two", "fake_three"):
        monkeypatch.delitem(sys.modules, f"benchmarks.experiments.{name}", raising=False)
    source = f"""
from benchmarks.experiment import Budget, Experiment, Regime
budget = Budget(**{BUDGET!r})
def make(name):
    regimes = (Regime("r", "x", {{}}, 1.0),)
    return Experiment(name, "q", "c", regimes, ("a",), (0,), (), (0.1,), budget, "axis", "mean")
EXPERIMENT = make("fake_one")
QUICK = make("fake_one_quick")
"""
    (tmp_path / "fake_one.py").write_text(source)
    (tmp_path / "fake_two.py").write_text("EXPERIMENT = None")
    (tmp_path / "fake_three.py").write_text("from benchmarks.experiments.fake_one import EXPERIMENT")
    (tmp_path / "_helper.py").write_text("")
    return tmp_path


@pytest.mark.usefixtures("registry")
def test_registry_loads_by_name() -> None:
    assert {"fake_one", "fake_two"} <= set(experiments.names())
    assert "_helper" not in experiments.names()
    assert experiments.load("fake_one").name == "fake_one"
    assert experiments.load("fake_one", quick=True).name == "fake_one_quick"


@pytest.mark.usefixtures("registry")
def test_registry_refuses() -> None:
    with pytest.raises(ValueError, match=r"must be one of .*'fake_one', 'fake_three', 'fake_two'.*Got 'nonsense'"):
        experiments.load("nonsense")
    with pytest.raises(BenchmarkError, match=r"fake_two.EXPERIMENT must be an Experiment named 'fake_two'. Got None"):
        experiments.load("fake_two")
    with pytest.raises(BenchmarkError, match=r"fake_three.EXPERIMENT must be .* Got one named 'fake_one'"):
        experiments.load("fake_three")


@pytest.mark.usefixtures("registry")
def test_the_small_version_is_optional(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert set(experiments.names()) - set(experiments.names(quick=True)) == {"fake_two", "fake_three"}
    with pytest.raises(BenchmarkError, match=r"'quick' is for .*'fake_one'.*Got 'fake_two': .*fake_two has no QUICK"):
        experiments.load("fake_two", quick=True)
    for command in ("run", "table", "status"):
        assert command_line.main([command, "fake_two", "--quick", "--root", str(tmp_path)]) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: 'quick' is for experiments with a small version") and "Traceback" not in err
    # What is asked of all of them leaves the others out.
    assert command_line.main(["status", "--quick", "--root", str(tmp_path)]) == 0
    assert "fake_one_quick" in (out := capsys.readouterr().out) and "fake_two" not in out


def test_shipped_experiments_load() -> None:
    for name in experiments.names():
        assert experiments.load(name).name == name
        assert experiments.load(name, quick=True).name == f"{name}_quick"
