"""The catalogue."""

import inspect
import json

import gymnasium
import pytest

from agentic_gym import IDS, truth
from agentic_gym.catalogue import OWN_DEFAULT, catalogue, describe, list_arguments, read_documentation
from agentic_gym.families import FAMILIES
from agentic_gym.knobs import KNOB_NAMES
from agentic_gym.mixture import Mixture


@pytest.mark.parametrize("env_id", IDS)
def test_entries_say_what_the_environment_is(env_id: str) -> None:
    entry, env = describe(env_id), gymnasium.make(env_id)
    assert entry.id == env_id and {"family": entry.family, **entry.knobs} == gymnasium.spec(env_id).kwargs
    assert env.observation_space.shape == (entry.observation_size,)
    assert env.action_space == gymnasium.spaces.MultiDiscrete([entry.n_tokens] * entry.n_slots)
    _, info = env.reset(seed=0)
    assert len(entry.environments) == len(truth(env_id)) and entry.summary and "Rewards" in entry.documentation
    for environment, known in zip(entry.environments, truth(env_id), strict=True):
        assert environment.truth == known and environment.name == known.environment
        assert environment.summary == read_documentation(FAMILIES[environment.family])[0]
        assert environment.value_range[0] == known.worst_value <= known.best_value
        assert environment.components[-1] == "illegal"
        assert len(environment.components) <= len(info["reward_components"])
        assert environment.turn_limit * environment.n_slots <= entry.max_tokens
        assert set(environment.knobs) == set(KNOB_NAMES) and environment.knobs["depth"] >= 1
    assert {argument.name for argument in entry.arguments} >= {*entry.knobs, *KNOB_NAMES}


def test_the_catalogue_is_plain_data() -> None:
    entries = catalogue(IDS[:2])
    assert [entry["id"] for entry in entries] == list(IDS[:2])
    text = json.dumps(entries, allow_nan=False)
    assert json.loads(text)[1]["environments"][0]["truth"]["best_score"] == 1.0


@pytest.mark.parametrize("family", FAMILIES)
def test_every_knob_has_a_default_and_a_meaning(family: str) -> None:
    arguments = {argument.name: argument for argument in list_arguments(FAMILIES[family])}
    own = [name for name in inspect.signature(FAMILIES[family]).parameters if name != "knobs"]
    assert list(arguments) == [*own, *KNOB_NAMES]
    assert all(argument.meaning for argument in arguments.values())
    depth = arguments["depth"]
    assert depth.low <= depth.default <= depth.high and "steps the task" in depth.meaning
    assert arguments["max_turns"].default is None
    assert arguments["difficulty"].meaning.endswith("prompts of one split differ around it.")
    text = read_documentation(FAMILIES[family])[1]["Arguments"]
    assert all(f"``{name}``" in text for name in own)


def test_a_mixture_leaves_depths_to_its_families() -> None:
    arguments = {argument.name: argument for argument in list_arguments(Mixture)}
    assert list(arguments)[:3] == ["preset", "spread", "environments"]
    assert arguments["depth"].default == arguments["difficulty"].default == OWN_DEFAULT
    assert arguments["depth"].low is None


def test_documentation_may_be_bare() -> None:
    def bare() -> None:
        """One line."""

    assert read_documentation(bare) == ("One line.", {})
    assert read_documentation(lambda: None) == ("", {})
