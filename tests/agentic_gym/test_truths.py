"""The stored truths, and how truths come about."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from agentic_gym import IDS, AgenticVectorEnv, Truth, truth
from agentic_gym.families.search import Search
from agentic_gym.truth import STORE, measure, store_truths, stored_truths

FIELDS = ("best_score", "random_score", "best_value", "random_value")


@pytest.mark.parametrize("env_id", IDS)
def test_stored_truths_are_those_of_a_fresh_measurement(env_id: str) -> None:
    """And closed forms agree with what is measured."""
    arguments = gymnasium.spec(env_id).kwargs
    stored = stored_truths().get(env_id)
    assert stored is not None and stored.truths == truth(env_id), "run python -m agentic_gym measure"
    members = AgenticVectorEnv(1, **arguments).family.members
    fresh, raw = measure(arguments), measure(arguments, closed_forms=False)
    for kept, new, measured, member in zip(stored.truths, fresh, raw, members, strict=True):
        assert kept.environment == new.environment
        assert dataclasses.astuple(kept)[1:] == pytest.approx(dataclasses.astuple(new)[1:], rel=1e-9, abs=1e-12)
        forms = member.closed_forms()
        for name in FIELDS:
            error = getattr(measured, f"{name}_se")
            # An event that is rarer than one in a thousand may not have happened at all.
            span = 1.0 if name.endswith("score") else kept.best_value - kept.worst_value
            assert getattr(kept, name) == pytest.approx(getattr(measured, name), abs=4 * error + 1e-3 * span)
            assert (getattr(kept, f"{name}_se") == 0.0) or name not in forms
        assert kept.chance_score == member.chance()


def test_the_file_holds_the_ids_and_plain_numbers() -> None:
    entries = json.loads(STORE.read_text())
    assert list(entries) == list(IDS)
    for env_id in IDS:
        for found in truth(env_id):
            values = dataclasses.asdict(found)
            assert type(values.pop("environment")) is str
            assert all(type(value) is float for value in values.values())


def test_other_knobs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    (own,) = truth("agentic_gym/Search-v0")
    (other,) = truth("agentic_gym/Search-v0", depth=2)
    assert own.environment == other.environment == "Search"
    assert own.random_value != other.random_value
    assert other == measure({"family": "Search", "depth": 2})[0]
    with pytest.raises(ValueError, match="reward_scale"):
        truth("agentic_gym/Search-v0", reward_scale=-1.0)
    with pytest.raises(TypeError, match="no argument"):
        truth("agentic_gym/Search-v0", height=2)


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "truths.json"
    assert stored_truths(path) == {}
    store_truths(IDS[:1], path)
    found = stored_truths(path)
    assert list(found) == [IDS[0]] and found[IDS[0]].truths == measure(found[IDS[0]].knobs)
    before = path.read_text()
    monkeypatch.setattr("os.replace", lambda *paths: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store_truths(IDS[:2], path)
    assert path.read_text() == before and list(tmp_path.iterdir()) == [path]


def test_rollouts_whose_reward_is_not_valid_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong answers made invalid: what remains of the random policy is right answers."""
    measured = {"family": "Search", "depth": 4}
    assert measure(measured)[0].random_score < 0.3

    def valid(self: Search, state: Any, rows: np.ndarray) -> np.ndarray:
        return np.asarray(state["answered"][rows] == 1)

    monkeypatch.setattr(Search, "valid", valid)
    (found,) = measure({**measured, "filler": 1}, closed_forms=False)
    assert found.random_score == 1.0 and found.random_value == pytest.approx(1.0, abs=0.1)


def test_truth_is_a_record() -> None:
    known = Truth("x", 1.0, 0.5, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25)
    assert known.normalise([0.5, 1.0, 0.75]).tolist() == [0.0, 1.0, 0.5]


@pytest.mark.parametrize("short", ["Search-v0", "search", "agentic_gym/search-v0", "agentic_gym/Search-v1"])
def test_ids_without_the_namespace_are_recognised(short: str) -> None:
    with pytest.raises(gymnasium.error.Error, match=f"no environment '{short}'. Did you mean 'agentic_gym/Search-v0'"):
        truth(short)
    with pytest.raises(gymnasium.error.Error, match="Nowhere"):
        truth("Nowhere-v0")
