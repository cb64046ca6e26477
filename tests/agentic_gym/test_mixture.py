"""Mixtures: how prompts are dealt, and what presets change."""

from typing import Any

import numpy as np
import pytest

from agentic_gym import AgenticVectorEnv
from agentic_gym.families import FAMILIES
from agentic_gym.mixture import Mixture, make_family, preset

NAMES = ["ChainShort", "Database", "Search", "ChainLong"]


@pytest.mark.parametrize("weights", [[1, 1, 1], [1, 2, 4], [5, 1], [3], [7, 11, 2, 5]])
def test_prompts_are_dealt_by_weight(weights: list[int]) -> None:
    """``locate`` is a bijection onto each environment's own prompts, and the deal is even."""
    environments = [{"family": "Chain", "name": str(i), "weight": w} for i, w in enumerate(weights)]
    mixture = Mixture(environments=environments, num_prompts=30)
    cycle, cycles = sum(weights), 30 // max(weights)
    assert mixture.prompt_cycle == cycle and mixture.num_prompts == cycles * cycle
    environment, local = mixture.locate(np.arange(mixture.num_prompts))
    for index, weight in enumerate(weights):
        assert np.sort(local[environment == index]).tolist() == list(range(weight * cycles))
        for start in range(0, mixture.num_prompts, cycle):
            assert np.sum(environment[start : start + cycle] == index) == weight
        # At any point an environment is less than one prompt away from its share.
        share = np.arange(1, cycle + 1) * weight / cycle
        assert np.abs(np.cumsum(environment[:cycle] == index) - share).max() < 1


def test_rows_get_the_environment_of_their_prompt() -> None:
    engine = AgenticVectorEnv(7, family="Mixture", preset="frequency")
    _, info = engine.reset(options={"prompt": np.arange(7)})
    np.testing.assert_array_equal(info["environment"], engine.family.locate(np.arange(7))[0])
    assert engine.environment_names == tuple(NAMES)
    counts = np.bincount(engine.family.locate(np.arange(engine.num_prompts))[0])
    np.testing.assert_allclose(counts / counts[-1], [4, 3, 2, 1])


def test_a_member_plays_as_it_does_alone() -> None:
    """Same prompts, features, rewards; only noise and padding differ."""
    environments = [{"family": "Search", "depth": 2}, {"family": "Database", "depth": 3, "filler": 1}]
    mixture = AgenticVectorEnv(8, family="Mixture", environments=environments, autoreset_mode="Disabled")
    prompts = np.arange(8)
    observation, info = mixture.reset(options={"prompt": prompts, "split": "test"})
    for index, knobs in enumerate(environments):
        rows = info["environment"] == index
        alone = AgenticVectorEnv(4, autoreset_mode="Disabled", **knobs)
        own, own_info = alone.reset(options={"prompt": mixture.family.locate(prompts[rows])[1], "split": "test"})
        width = alone.family.n_features
        padded = observation[rows]
        np.testing.assert_array_equal(padded[:, 2 : 2 + width], own[:, :width])
        assert (padded[:, 2 + width :] == 0).all() and (padded[:, index] == 1).all()
        for name in ("task", "state_key", "score"):
            np.testing.assert_array_equal(info[name][rows], own_info[name])
        slots = alone.grammar.n_slots
        np.testing.assert_array_equal(mixture.expert_message()[rows, :slots], alone.expert_message())
        np.testing.assert_array_equal(info["ground_truth"][rows, :slots], own_info["ground_truth"])


def test_twins_in_a_mixture_have_noise_of_their_own() -> None:
    environments = [{"family": "Chain", "name": n, "reward_noise": 1.0, "depth": 1} for n in "ab"]
    engine = AgenticVectorEnv(200, family="Mixture", environments=environments, autoreset_mode="Disabled")
    observation, _ = engine.reset(options={"prompt": np.arange(200), "rollout": 5})
    np.testing.assert_array_equal(observation[::2, 2:], observation[1::2, 2:])
    reward = engine.step(engine.expert_message())[1]
    assert (reward[::2] != reward[1::2]).all() and abs(np.corrcoef(reward[::2], reward[1::2])[0, 1]) < 0.4


def test_names_of_columns_are_joined() -> None:
    mixture = Mixture(environments=[{"family": "Database"}, {"family": "Chain"}])
    assert mixture.components == ("cost|correct", "outcome") and mixture.tasks == ("plain|copy", "conditional|shift")


def test_shared_knobs_override_members() -> None:
    mixture = Mixture(preset="scale", reward_scale=3.0, slip=0.25, depth=2)
    assert {(m.knobs.reward_scale, m.knobs.slip, m.depth) for m in mixture.members} == {(3.0, 0.25, 2)}


CHANGES = {
    "matched": set(),
    "scale": {"reward_scale"},
    "depth": {"depth"},
    "difficulty": {"difficulty"},
    "noise": {"reward_noise"},
    "length": {"filler"},
    "frequency": {"weight"},
    "all": {"reward_scale", "depth", "difficulty", "reward_noise", "filler", "weight"},
}


def test_the_natural_mixture_has_every_family_as_it_is() -> None:
    members = preset("natural")
    assert members == [{"name": name, "family": name} for name in FAMILIES] and len(members) == 9
    ranges = [member.value_range for member in Mixture(preset="natural").members]
    spans = [high - low for low, high in ranges]
    assert max(spans) / min(spans) > 1000  # mismatched by nature


@pytest.mark.parametrize("name", CHANGES)
def test_presets_change_what_they_say(name: str) -> None:
    matched, changed = preset("matched"), preset(name)
    assert [member["name"] for member in changed] == NAMES
    differing = {
        key for one, two in zip(matched, changed, strict=True) for key in {*one, *two} if one.get(key) != two.get(key)
    }
    assert differing == CHANGES[name]
    assert preset(name) == preset(name) and preset(name)[0] is not preset(name)[0]


def test_matched_values_span_one_unit() -> None:
    """The premise of the presets: in ``matched``, best minus random is about the same everywhere."""
    from agentic_gym import truth

    scales = [member["reward_scale"] for member in preset("matched")]
    spans = [(t.best_value - t.random_value) * s for t, s in zip(truth("agentic_gym/Mixture-v0"), scales, strict=True)]
    assert min(spans) > 0.4 and max(spans) < 1.1


def test_spread() -> None:
    """The spread is what the documentation says it is, and out of range it raises."""
    scales = np.array([m["reward_scale"] for m in preset("scale", 16.0)]) / [
        m["reward_scale"] for m in preset("matched")
    ]
    assert scales.max() / scales.min() == pytest.approx(16.0) and np.log(scales).sum() == pytest.approx(0.0)
    assert preset("depth", 12)[3]["depth"] == 12
    assert [m["difficulty"] for m in preset("difficulty", 1.0)] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    noise = [m["reward_noise"] * m["reward_scale"] for m in preset("noise", 0.6)]
    assert noise == pytest.approx([0.0, 0.2, 0.4, 0.6])
    assert [m["filler"] for m in preset("length", 6)] == [0, 2, 4, 6]
    assert [m["weight"] for m in preset("frequency", 8.0)] == [8, 4, 2, 1]
    for name, spread in [
        ("matched", 2.0), ("scale", 0.0), ("depth", 65), ("difficulty", 1.1), ("noise", -1.0), ("length", 65),
        ("frequency", 0.5), ("all", "a"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=f"spread={spread!r} is not allowed"):
            preset(name, spread)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"preset": "scales"}, ValueError, "preset='scales' is not allowed: it must be one of .*mean 'scale'"),
        ({"preset": "matched", "spread": 3.0}, ValueError, "'matched' has no spread; those that have are .'scale', "),
        ({"spread": "a"}, ValueError, "spread='a' is not allowed: preset='matched' has no spread"),
        ({"environments": []}, ValueError, r"environments=\[\] is not allowed"),
        ({"environments": [{}]}, ValueError, "must be a list of dictionaries with a 'family'"),
        ({"environments": ["Chain"]}, ValueError, "must be a list of dictionaries with a 'family'"),
        ({"environments": [{"family": "Mixture"}]}, ValueError, "a Mixture may not contain a Mixture"),
        ({"environments": [{"family": "agentic_gym/Mixture-v0"}]}, ValueError, "a Mixture may not contain a Mixture"),
        ({"environments": [{"family": "Chain"}] * 2}, ValueError, "must be unique"),
        ({"environments": [{"family": "Chain"}], "preset": "matched"}, ValueError, "not both"),
        ({"environments": [{"family": "Chain"}], "spread": 2.0}, ValueError, "not both"),
        ({"environments": [{"family": "Cain"}]}, ValueError, "family='Cain' is not allowed: .*mean 'Chain'"),
        # A mixture is no choice here.
        ({"environments": [{"family": "Mixtur"}]}, ValueError, r"'Report', 'Chain'\], or one of .*-v0'\.$"),
        ({"environments": [{"family": "Chain", "weight": 0}]}, ValueError, "weight=0 is not allowed"),
        ({"environments": [{"family": "Chain", "weight": 1.5}]}, ValueError, "weight=1.5 is not allowed"),
        ({"preset": "frequency", "num_prompts": 3}, ValueError, "num_prompts of ChainShort=3 is not allowed"),
        (
            {"environments": [{"family": "Chain", "depht": 3}]},
            TypeError,
            r"Chain has no argument \['depht'\].*mean 'depth'",
        ),
        ({"environments": [{"family": "Search"}], "depth": 1}, ValueError, "depth=1 is not allowed"),
    ],
)
def test_wrong_mixtures(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        AgenticVectorEnv(family="Mixture", **arguments)


def test_arguments_are_not_changed() -> None:
    environments = [{"family": "Chain", "weight": 2, "name": "x"}, {"family": "Search"}]
    before = [dict(member) for member in environments]
    engine = AgenticVectorEnv(2, family="Mixture", environments=environments)
    assert environments == before and engine.clone(3, "Disabled").environment_names == ("x", "Search")


def test_ids_among_the_environments() -> None:
    """They stand for their family and knobs; those beside them win, and those of all environments over both."""
    environments = [{"family": "agentic_gym/SearchHard-v0", "entities": 9}, {"family": "Search"}]
    mixture = Mixture(environments=environments)
    assert mixture.environment_names == ("SearchHard-v0", "Search")
    hard = make_family("agentic_gym/SearchHard-v0", entities=9)
    assert (mixture.members[0].depth, mixture.members[0].n_features) == (5, hard.n_features)
    assert mixture.members[0].n_features != make_family("agentic_gym/SearchHard-v0").n_features
    assert [member.depth for member in Mixture(environments=environments, depth=2).members] == [2, 2]
