"""Every wrong knob names itself, its value and what is allowed."""

from typing import Any

import gymnasium
import numpy as np
import pytest

import agentic_gym
from agentic_gym.families import FAMILIES
from agentic_gym.knobs import KNOB_NAMES, Knobs, check_bool, check_integer, check_number, did_you_mean

WRONG = {
    "reward_scale": [0.0, -1.0, float("inf"), float("nan"), "1", None, True],
    "reward_offset": [float("nan"), float("-inf"), 1e13, "0"],
    "reward_noise": [-0.1, float("inf")],
    "reward_noise_dist": ["cauchy", None, 3],
    "dense": [1, "yes", None],
    "depth": [0, -1, 65, 2.0, "3", True],
    "max_turns": [0, 3, 20_000, 4.5],
    "difficulty": [-0.1, 1.1, float("nan"), "hard"],
    "filler": [-1, 65, 1.0, None],
    "slip": [-0.1, 1.1, None],
    "num_prompts": [0, -1, 2**41, 4.0],
    "common_random_numbers": [0, None],
    "options": [1, 33, 4.0, None],
    "graded": [1, None],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_values(name: str, value: Any) -> None:
    """Including the ones that depend on the family, here Chain with depth 4."""
    with pytest.raises(ValueError, match=rf"^{name}={value!r} is not allowed: it must be "):
        agentic_gym.AgenticVectorEnv(2, family="Chain", **{name: value})


def test_every_knob_has_a_wrong_value_here() -> None:
    assert set(KNOB_NAMES) < set(WRONG)


@pytest.mark.parametrize(
    ("family", "knobs", "message"),
    [
        ("Search", {"depth": 1}, r"depth=1 is not allowed: it must be an integer in \[2, 6\]"),
        ("Database", {"depth": 5}, r"depth=5 is not allowed: it must be an integer in \[1, 4\]"),
        ("Search", {"max_turns": 1}, r"max_turns=1 is not allowed: it must be an integer in \[2, 10000\]"),
        ("Chain", {"depth": 5, "max_turns": 4}, r"max_turns=4 is not allowed: it must be an integer in \[5, 10000\]"),
        (
            "Searhc",
            {},
            r"family='Searhc' is not allowed: it must be one of \['Reason', .*, 'Mixture'\]",
        ),
        ("Chain", {"autoreset_mode": "Never"}, "autoreset_mode='Never' is not allowed"),
        ("Chain", {"num_envs": 0}, "num_envs=0 is not allowed"),
        ("Chain", {"render_mode": "human"}, "render_mode='human' is not allowed"),
        ("Chain", {"max_episode_steps": 0}, "max_episode_steps=0 is not allowed"),
    ],
)
def test_wrong_values_by_family(family: str, knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agentic_gym.AgenticVectorEnv(family=family, **knobs)


@pytest.mark.parametrize(
    ("family", "meant"),
    [
        ("SearchHard", "'agentic_gym/SearchHard-v0' or "),
        ("searchhard-v0", "'agentic_gym/SearchHard-v0' or "),
        ("agentic_gym/HouseholdLnog-v0", "'agentic_gym/HouseholdLong-v0'"),
        ("agentic_gym/Reason", "'Reason'"),
        ("Reason-v0", "'Reason'"),
        ("Chian", "'Chain'"),
        (["Chain"], "'Chain'"),
        ("xyz", ""),
    ],
)
def test_unknown_families_name_the_nearest(family: Any, meant: str) -> None:
    with pytest.raises(ValueError, match=r"or one of agentic_gym.IDS, such as 'agentic_gym/SearchHard-v0'\.") as error:
        agentic_gym.AgenticVectorEnv(2, family)
    assert f" Did you mean {meant}" in str(error.value) if meant else "Did you mean" not in str(error.value)


def test_the_family_that_nobody_named_is_said_to_be_the_default() -> None:
    for make in (agentic_gym.AgenticVectorEnv, agentic_gym.AgenticEnv):
        with pytest.raises(TypeError, match=r"\['id'\].* No family is given, so Chain is made: family= takes .*an id"):
            make(id="agentic_gym/Search-v0")
        with pytest.raises(TypeError, match=r"\['id'\]") as error:
            make(family="Chain", id="agentic_gym/Search-v0")
        assert "No family is given" not in str(error.value)
        assert make().environment_names == ("Chain",)


@pytest.mark.parametrize("family", [*FAMILIES, "Mixture"])
def test_unknown_knobs_name_the_allowed_ones(family: str) -> None:
    with pytest.raises(TypeError, match=r"has no argument \['reward_scales'\]: allowed are .*'reward_scale'") as error:
        agentic_gym.AgenticVectorEnv(family=family, reward_scales=1.0)
    assert all(name in str(error.value) for name in KNOB_NAMES)
    with pytest.raises(TypeError, match="reward_scales"):
        gymnasium.make("agentic_gym/Search-v0", reward_scales=1.0)
    if family == "Chain":
        assert "'options', 'graded'" in str(error.value)
    else:
        with pytest.raises(TypeError, match="graded"):
            agentic_gym.AgenticVectorEnv(family=family, graded=True)


def test_numpy_numbers_are_numbers() -> None:
    assert check_integer("x", np.int64(3), 0, 5) == 3 and type(check_integer("x", np.int8(3), 0, 5)) is int
    assert type(check_number("x", np.float32(0.5), 0, 1)) is float and check_number("x", 1, 0, 1) == 1.0
    assert check_bool("x", True) is True
    assert Knobs(reward_scale=np.float64(2.0), filler=np.int64(1)).filler == 1


def test_bounds_are_inclusive() -> None:
    assert check_integer("x", 5, 0, 5) == 5 and check_number("x", 0.0, 0.0, 1.0) == 0.0
    with pytest.raises(ValueError, match=r"x=0\.0 is not allowed: it must be a finite number in \(0\.0, 1\.0\]"):
        check_number("x", 0.0, 0.0, 1.0, open_low=True)


def test_max_turns_leaves_room_for_failures() -> None:
    """A chain whose turn limit is larger than its depth can repeat after a tool failure."""
    engine = agentic_gym.AgenticVectorEnv(2000, depth=2, max_turns=6, slip=0.5, autoreset_mode="Disabled")
    engine.reset(seed=0)
    over = np.zeros(2000, dtype=bool)
    while not over.all():
        _, _, terminated, truncated, info = engine.step(engine.expert_message())
        over = terminated | truncated
    expected = 1 - 7 * 0.5**6  # at least 2 of 6 tries
    assert info["is_success"].mean() == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 2000))
    assert not truncated.any()


def test_tokens_out_of_range_are_shown() -> None:
    env = gymnasium.make("agentic_gym/Search-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"actions\[0, 0\]=999 is not allowed: tokens must be in \[0, "):
        env.step([999, 0, 0])
    with pytest.raises(ValueError, match=r"actions\[0, 2\]=-3 is not allowed"):
        env.step([2, 0, -3])


def test_open_ranges_read_plainly() -> None:
    with pytest.raises(ValueError, match=r"x=-1 is not allowed: it must be a finite number >= 0\.$"):
        check_number("x", -1, 0.0, np.inf)
    with pytest.raises(ValueError, match=r"x=0 is not allowed: it must be a finite number > 0\.$"):
        check_number("x", 0, 0.0, np.inf, open_low=True)
    with pytest.raises(ValueError, match=r"x=nan is not allowed: it must be a finite number\.$"):
        check_number("x", np.nan, -np.inf, np.inf)


def test_near_names_are_suggested() -> None:
    assert did_you_mean("GRPO", ["erpo", "grpo", "other"]).startswith(" Did you mean 'grpo'")
    assert did_you_mean("grop", ["grpo", "other"], {"grpo": "the/grpo"}) == " Did you mean 'the/grpo'?"
    assert did_you_mean("xyz", ["grpo"]) == did_you_mean(None, ["grpo"]) == ""


@pytest.mark.parametrize(
    ("family", "knobs"),
    [
        ("Chain", {"options": 32}),
        ("Desk", {"prices": 60}),
        ("Reason", {"reach": 9}),
        ("Repair", {"statements": 32}),
        ("Report", {"findings": 8, "n_rewards": 3}),
        ("Search", {"entities": 24, "relations": 8}),
        ("Shop", {"pages": 4}),
    ],
)
def test_integers_of_numpy_are_integers(family: str, knobs: dict[str, int]) -> None:
    """They are narrow, and what is computed from them must not overflow."""
    narrow = {name: np.int8(value) for name, value in knobs.items()}
    one, two = (agentic_gym.AgenticVectorEnv(8, family=family, **kwargs) for kwargs in (knobs, narrow))
    assert one.single_observation_space == two.single_observation_space
    one.reset(seed=0), two.reset(seed=0)
    for _ in range(12):
        message = one.expert_message()
        (*seen, info), (*twin, other) = one.step(message), two.step(message)
        for a, b in zip((*seen, info["state_key"]), (*twin, other["state_key"]), strict=True):
            np.testing.assert_array_equal(a, b)
