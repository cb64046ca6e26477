"""Known truth: experts, closed forms, policies that do not look at the task, exact group statistics."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from agentic_gym import truth
from agentic_gym.truth import measure

ENTITIES, RELATIONS = 24, 8
"""Search's default sizes."""


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_expert_succeeds_on_every_prompt(env_id: str, tools: Any, split: str) -> None:
    """On every rollout whose reward is valid; and its value is the closed form, where chance has no part in it."""
    engine = tools.engine_of(env_id, 500)
    played = tools.run(engine, prompt=np.arange(500), split=split)
    valid = played.info["reward_valid"]
    assert played.info["is_success"][valid].all() and played.terminated[valid].all() and valid.mean() > 0.3
    assert not played.info["is_success"][~valid].any() and played.truncated[~valid].all()
    for environment, member in enumerate(engine.family.members):
        rows = valid & (played.info["environment"] == environment)
        if member.name not in EXACT:
            continue
        assert "best_value" in member.closed_forms()
        for name, values in (("best_value", played.values), ("best_score", played.info["score"])):
            np.testing.assert_allclose(values[rows], member.closed_forms()[name], rtol=1e-9)


EXACT = ("Reason", "Search", "Household", "Shop", "Database", "Repair", "Report", "Chain")
"""Families whose expert always gets the best value, which has a closed form."""


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize(("depth", "options", "slip"), [(1, 2, 0.0), (2, 2, 0.2), (3, 3, 0.1)])
def test_chain_truth_equals_its_closed_forms(graded: bool, depth: int, options: int, slip: float) -> None:
    """The docstring's formulas."""
    knobs = {"depth": depth, "options": options, "slip": slip, "graded": graded}
    (found,) = measure({"family": "Chain", **knobs}, closed_forms=False)
    (exact,) = truth("agentic_gym/Chain-v0", **knobs)
    power = 1 if graded else depth
    best, random = (1 - slip) ** power, ((1 - slip) / (2 * options)) ** power
    assert abs(found.best_score - best) <= 4 * found.best_score_se
    assert abs(found.random_score - random) <= 4 * found.random_score_se
    assert (exact.best_score, exact.random_score) == pytest.approx((best, random), rel=1e-12)
    assert exact.best_score_se == exact.random_score_se == 0.0
    # Nearly every rollout scores 0 or 1 (or a share of it), so the stated errors must be about right.
    if not graded:
        assert found.random_score_se == pytest.approx(np.sqrt(random * (1 - random) / 8192), rel=0.3)
    assert found.best_value == found.best_score and found.random_value == found.random_score
    assert found.worst_value == 0.0


def test_truth_does_not_depend_on_the_reward_knobs(env_id: str) -> None:
    base = truth(env_id)
    assert base == truth(env_id, reward_scale=9.0, reward_offset=3.0, reward_noise=2.0, dense=True)
    for environment in base:
        assert 0 <= environment.random_score < environment.best_score <= 1
        assert environment.worst_value <= environment.random_value <= environment.best_value
        assert environment.normalise([environment.random_score, environment.best_score]).tolist() == [0.0, 1.0]


def test_truth_names_environments_that_are_too_rare() -> None:
    environments = [{"family": "Chain"}, {"family": "Search", "weight": 10_000}]
    with pytest.raises(ValueError, match="Chain is too rare"):
        truth("agentic_gym/Mixture-v0", environments=environments, num_prompts=20_000)


def _legal(grammar: Any, words: list[str]) -> bool:
    if len(words) > grammar.n_slots or not set(words) <= set(grammar.vocabulary):
        return False
    return bool(grammar.parse(grammar.encode(*words)[None], np.zeros(1, dtype=int)).legal[0])


def constant(*words: str) -> Any:
    def policy(engine: Any, info: dict[str, Any]) -> np.ndarray:
        message = np.zeros(engine.action_space.shape, dtype=int)
        for index, member in enumerate(engine.family.members):
            known = [word for word in words if _legal(member.grammar, word.split())]
            if known:
                text = member.grammar.encode(*known[0].split())
                message[info["environment"] == index, : len(text)] = text
        return message

    return policy


BLIND = {
    "constant": constant(
        "answer number-3", "lookup Ada rival", "go hall", "open slot-0", "select elm", "edit index swap",
        "buy two-lots", "write law up", "press option-1",
    ),
    "empty": lambda engine, info: np.zeros(engine.action_space.shape, dtype=int),
    "at once": constant(
        "decline", "answer Ada", "put chest", "buy", "commit", "submit memo", "submit", "pass", "turn option-0",
    ),
    "write and wait": constant(
        "answer number-7", "check Bly", "use stove", "next", "update row-0 held", "read index", "research audit",
        "research law", "turn option-1",
    ),
}  # fmt: skip


def copying(engine: Any, info: dict[str, Any]) -> np.ndarray:
    """Legal messages whose tokens are chosen by what the first features happen to be."""
    observation = engine._observations()[:, : engine.grammar.n_slots].astype(float)
    return engine.grammar.sample(np.minimum(observation, 1 - 1e-9), info["environment"])


def longest(engine: Any, info: dict[str, Any]) -> np.ndarray:
    """Random messages with all the filler that may follow."""
    uniform = np.random.default_rng(int(info["turn"].max())).random((engine.num_envs, engine.grammar.n_slots))
    uniform[:, 1:] = 1 - 1e-9  # the last choice of a filler slot is filler
    return engine.grammar.sample(uniform, info["environment"])


@pytest.mark.parametrize("name", [*BLIND, "random", "copying", "longest"])
def test_policies_that_do_not_look_score_at_most_chance(env_id: str, tools: Any, name: str) -> None:
    """P39: the documented chance level of each family bounds them all."""
    n = 6000
    engine = tools.engine_of(env_id, n, **({"filler": 4} if name == "longest" else {}))
    own = {"random": tools.random_legal(0), "copying": copying, "longest": longest}
    played = tools.run(engine, {**BLIND, **own}[name], rollout=np.arange(n))
    for environment, member in enumerate(engine.family.members):
        rows = (played.info["environment"] == environment) & played.info["reward_valid"]
        score, chance = played.info["score"][rows], member.chance()
        error = max(score.std(), math.sqrt(chance * (1 - chance))) / math.sqrt(len(score))
        assert score.mean() <= chance + 4 * error
        if name == "empty":
            assert played.values[rows].max() < 0


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize(
    ("entities", "relations", "knobs"),
    [(ENTITIES, RELATIONS, {}), (8, 4, {"entities": 8, "relations": 4}), (4, 2, {"entities": 4, "relations": 2})],
)
def test_guessing_after_the_question_is_as_good_as_documented(
    tools: Any, depth: int, entities: int, relations: int, knobs: dict[str, int]
) -> None:
    """Search without a look-up: the start after an even number of hops is the best guess, 1/(entities - 1) at most."""
    n, chance = 32_000, 1 / (entities - 1)
    deviation = math.sqrt(chance * (1 - chance))
    engine = tools.engine_of("agentic_gym/Search-v0", n, depth=depth, num_prompts=n, **knobs)
    assert engine.family.chance() == chance
    observation, info = engine.reset(options={"prompt": np.arange(n)})
    assert observation.shape[1] == depth * relations + depth + 1 + 4 * entities + 3
    established = observation[:, depth * relations + depth + 1 :][:, :entities].argmax(axis=1)
    message = np.stack([np.full(n, 4), 5 + established, np.zeros(n, int)], axis=1)
    score = engine.step(message)[4]["score"]
    two_hops = info["task"] == (1 if depth == 2 else 0)
    assert score[two_hops].mean() == pytest.approx(chance, abs=4 * deviation / np.sqrt(two_hops.sum()))
    assert score[~two_hops].mean() <= chance + 4 * deviation / np.sqrt((~two_hops).sum())


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_group_statistics_of_a_bernoulli_chain(tools: Any, p: float) -> None:
    """Depth 1, slip 1 - p, expert messages: in-group spread and dead groups have closed forms."""
    size, groups = 8, 4096
    engine = tools.engine_of("agentic_gym/Chain-v0", size * groups, depth=1, slip=1 - p)
    played = tools.run(engine, prompt=np.repeat(np.arange(groups), size), rollout=np.arange(size * groups))
    reward = played.returns.reshape(groups, size)
    right = np.arange(size + 1)
    spread = np.sqrt(right / size * (1 - right / size))
    weight = binom.pmf(right, size, p)
    expected, dead = weight @ spread, p**size + (1 - p) ** size
    error = np.sqrt(weight @ (spread - expected) ** 2 / groups)
    assert abs(reward.std(axis=1, ddof=0).mean() - expected) < 4 * error
    assert abs((np.ptp(reward, axis=1) == 0).mean() - dead) < 4 * np.sqrt(dead * (1 - dead) / groups)
    assert abs(reward.mean() - p) < 4 * np.sqrt(p * (1 - p) / reward.size)
