"""Report by hand: what the brief says, what sections earn, and how the four qualities are graded."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from agentic_gym import AgenticVectorEnv
from agentic_gym.families import report
from agentic_gym.families.report import FORMATS, TOPICS, Report
from agentic_gym.knobs import Knobs
from agentic_gym.streams import mix

FINDINGS = report.FINDINGS[:6]


def fields(observation: np.ndarray, findings: int) -> list[np.ndarray]:
    """Read the one-hot fields; -1 where a field is empty."""
    sizes = [4, 1, *[1] * 6, *[findings] * 12]
    assert observation.shape[1] == sum(sizes)
    edges = np.cumsum([0, *sizes])
    parts = [observation[:, a:b] for a, b in itertools.pairwise(edges)]
    assert all(((part == 0) | (part == 1)).all() and (part.sum(axis=1) <= 1).all() for part in parts)
    return [np.where(part.any(axis=1), part.argmax(axis=1), -1) for part in parts]


def documented_expert(observation: np.ndarray, findings: int) -> np.ndarray:
    """Research and write the wanted topics in turn, then submit; only from the documented layout."""
    audience, urgent, *rest = fields(observation[:, :-3], findings)
    wanted, known, written = (np.array(rest[a : a + 6]).T for a in (0, 6, 12))
    message = np.zeros((len(audience), 3), dtype=int)
    for index in range(len(audience)):
        topics = [t for t in range(6) if wanted[index, t] == 0 and written[index, t] == -1]
        if not topics:
            message[index, :2] = 4, 11 + findings + (audience[index] + (urgent[index] == 0)) % 4
        elif known[index, topics[0]] == -1:
            message[index, :2] = 2, 5 + topics[0]
        else:
            message[index] = 3, 5 + topics[0], 11 + known[index, topics[0]]
    return message


def play_mixed(engine: AgenticVectorEnv, share: float, **options: Any) -> Any:
    """Yield (running, observation, info, done) before and after every turn of a mix of expert and random messages."""
    n = engine.num_envs
    observation, info = engine.reset(options={"rollout": np.arange(n), **options})
    random, over, value = np.random.default_rng(0), np.zeros(n, dtype=bool), np.zeros((n, 5))
    yield observation, info, over, over, value
    while not over.all():
        legal = engine.grammar.sample(random.random((n, engine.grammar.n_slots)), np.zeros(n, dtype=int))
        message = np.where(random.random((n, 1)) < share, engine.expert_message(), legal)
        observation, _, terminated, truncated, info = engine.step(message)
        value = value + info["reward_components"]
        over = terminated | truncated
        yield observation, info, over, truncated, value


@pytest.mark.parametrize(
    "knobs",
    [
        {}, {"depth": 5, "difficulty": 0.8}, {"depth": 1, "difficulty": 0.2},
        {"findings": 2}, {"findings": 4}, {"findings": 8},
    ],
)  # fmt: skip
def test_the_expert_is_a_function_of_the_observation(knobs: dict[str, Any]) -> None:
    n = 300
    engine = AgenticVectorEnv(n, family="Report", autoreset_mode="Disabled", slip=0.2, **knobs)
    for observation, *_ in play_mixed(engine, 0.75, prompt=np.arange(n)):
        expected = documented_expert(observation, knobs.get("findings", len(FINDINGS)))
        np.testing.assert_array_equal(expected, engine.expert_message())


@pytest.mark.parametrize(
    ("knobs", "findings"), [({}, 6), ({"findings": 2}, 2), ({"findings": 4}, 4), ({"findings": 8}, 8)]
)
def test_the_words_are_as_many_as_findings(knobs: dict[str, Any], findings: int) -> None:
    family = Report(Knobs(), **knobs)
    words = "up", "down", "flat", "mixed", "high", "low", "good", "poor"
    assert family.grammar.vocabulary[5:] == (*TOPICS, *words[:findings], *FORMATS)
    assert family.n_features == 4 + 1 + 6 + 12 * findings


def start(**knobs: Any) -> tuple[AgenticVectorEnv, list[str], dict[str, str], list[str], str]:
    """Begin one rollout; return the engine, the wanted topics, all findings, the other topics and the format."""
    knobs = {"dense": True, "difficulty": 1.0, "max_turns": 20, **knobs}
    engine = AgenticVectorEnv(1, family="Report", autoreset_mode="Disabled", render_mode="ansi", **knobs)
    _, info = engine.reset(options={"prompt": 5, "rollout": 0})
    wanted = engine._state["brief"][0, 2:] == 0
    truth = {topic: report.FINDINGS[f] for topic, f in zip(TOPICS, engine._state["finding"][0], strict=True)}
    topics = [topic for topic, flag in zip(TOPICS, wanted, strict=True) if flag]
    others = [topic for topic, flag in zip(TOPICS, wanted, strict=True) if not flag]
    return engine, topics, truth, others, engine.grammar.vocabulary[info["ground_truth"][0, 1]]


def step(engine: AgenticVectorEnv, *words: str) -> tuple[list[float], bool, dict[str, Any]]:
    _, reward, terminated, truncated, info = engine.step(engine.grammar.encode(*words)[None])
    assert reward[0] == pytest.approx(info["reward_components"][0].sum())
    return info["reward_components"][0].tolist(), bool(terminated[0] | truncated[0]), info


def another(words: tuple[str, ...], word: str) -> str:
    return words[(words.index(word) + 1) % len(words)]


@pytest.mark.parametrize("findings", [len(FINDINGS), 4])
def test_the_best_report(findings: int) -> None:
    engine, topics, truth, _, best_format = start(findings=findings)
    for topic in topics:
        before = engine._book["state_key"][0]
        components, _, info = step(engine, "research", topic)
        assert components == [0.0] * 5 and info["state_key"][0] != before
        assert step(engine, "research", topic)[2]["state_key"][0] == info["state_key"][0]
        components, over, info = step(engine, "write", topic, truth[topic])
        assert components == pytest.approx([10 / 3, 1 / 3, -0.5, 0, 0]) and not over and info["score"][0] == 0
    # A section stands, whatever is written on its topic.
    key = info["state_key"][0]
    assert step(engine, "write", topic, another(FINDINGS[:findings], truth[topic]))[0] == [0.0] * 5
    assert engine._book["state_key"][0] == key
    components, over, info = step(engine, "submit", best_format)
    assert components == pytest.approx([0, 0, 0, 0.5, 0]) and over and info["is_success"][0]
    assert info["score"][0] == 1.0
    text = engine.render()[0]
    assert all(f"{topic} {truth[topic]}" in text for topic in topics) and "in the right format" in text


def test_faulty_reports() -> None:
    """A wrong section, a topic too many and a wrong format cost what is documented."""
    engine, topics, truth, others, best_format = start(section_cost=0.8, accuracy_scale=30)
    assert step(engine, "write", topics[0], truth[topics[0]])[0] == pytest.approx([10, 1 / 3, -0.8, 0, 0])
    assert step(engine, "write", topics[1], another(FINDINGS, truth[topics[1]]))[0] == pytest.approx(
        [0, 1 / 3, -0.8, 0, 0]
    )
    assert step(engine, "write", topics[2], truth[topics[2]])[0] == pytest.approx([10, 1 / 3, -0.8, 0, 0])
    assert step(engine, "write", others[0], truth[others[0]])[0] == pytest.approx([0, -1 / 3, -0.8, 0, 0])
    components, over, info = step(engine, "submit", another(FORMATS, best_format))
    assert components == [0.0] * 5 and over and not info["is_success"][0]
    assert info["score"][0] == pytest.approx((2 / 3 + 2 / 3 + 2 / 5 + 0) / 3.6)
    assert "wrong format" in engine.render()[0]


def test_coverage_is_not_negative() -> None:
    engine, topics, truth, others, _ = start()
    assert [step(engine, "write", other, "up")[0][1] for other in others] == [0.0] * 3
    assert step(engine, "write", topics[0], truth[topics[0]])[0] == pytest.approx([10 / 3, 0, -0.5, 0, 0])


def test_rejected_reports() -> None:
    """Fewer than half of the wanted topics right: everything is taken back, also the brevity."""
    for depth, needed in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 3)):
        for right in (needed - 1, needed):
            engine, topics, truth, _, best_format = start(depth=depth)
            earned = np.zeros(5)
            for topic in topics[:right]:
                earned += step(engine, "write", topic, truth[topic])[0]
            components, over, info = step(engine, "submit", best_format)
            earned += components
            assert over and info["is_success"][0] == (right == depth)
            if right < needed:
                assert earned.tolist() == pytest.approx([0, 0, -3, 0, 0]) and info["score"][0] == 0
            else:
                share = right / depth
                assert earned.tolist() == pytest.approx([10 * share, share, -right / 2, 0.5, 0])
                score = (2 * share + (6 - right) / 5 + 1) / (3 + (6 - depth) / 5)
                assert info["score"][0] == pytest.approx(score)


def test_a_late_report_is_worth_the_least() -> None:
    engine, topics, truth, _, _ = start(max_turns=3)
    total = np.sum([step(engine, "write", topic, truth[topic])[0] for topic in topics], axis=0)
    assert total.tolist() == pytest.approx([0, 0, -3, 0, 0])
    assert engine._book["truncated"][0] and not engine._book["success"][0] and engine._book["score"][0] == 0
    assert "late" in engine.render()[0]


@pytest.mark.parametrize("findings", [len(FINDINGS), 4, 8])
def test_prompts_are_drawn_as_documented(findings: int) -> None:
    n = 20_000
    for depth, difficulty in ((3, 0.5), (2, 0.2), (1, 0.0), (5, 1.0)):
        state = Report(Knobs(depth=depth, difficulty=difficulty), findings=findings).start(mix(np.arange(n)))
        audience, urgent, wanted = state["brief"][:, 0], state["brief"][:, 1] == 0, state["brief"][:, 2:] == 0
        assert (wanted.sum(axis=1) == depth).all() and (state["written"] == -1).all()
        np.testing.assert_allclose(wanted.mean(axis=0), depth / 6, atol=0.015)
        np.testing.assert_allclose(np.bincount(audience, minlength=4) / n, 0.25, atol=0.015)
        assert urgent.mean() == pytest.approx(0.5, abs=0.015)
        for column in state["finding"].T:
            share, atol = np.bincount(column, minlength=findings) / n, 0.03 / math.sqrt(findings)
            np.testing.assert_allclose(share, 1 / findings, atol=atol)
        told = state["known"] != -1
        assert not told[~wanted].any() and (state["known"] == state["finding"])[told].all()
        hidden = (wanted & ~told).sum(axis=1) / depth
        assert hidden.mean() == pytest.approx(difficulty, abs=0.01)
        if depth > 1 and 0 < difficulty < 1:  # prompts differ by more than chance
            assert hidden.var() > difficulty * (1 - difficulty) / depth + 0.003
        # Nothing of the brief tells anything of the rest of it.
        columns = np.column_stack([audience, urgent, wanted[:, 0], state["finding"]])
        assert np.abs(np.corrcoef(columns.T) - np.eye(9)).max() < 0.03


@pytest.mark.parametrize("knobs", [{}, {"depth": 5, "section_cost": 0.8, "accuracy_scale": 5.0}, {"depth": 1}])
def test_score_and_success_are_functions_of_the_components(knobs: dict[str, Any]) -> None:
    n = 3000
    engine = AgenticVectorEnv(n, family="Report", autoreset_mode="Disabled", **knobs)
    family = engine.family
    scores, successes, values = [], [], []
    for share in (0.5, 0.85, 1.0):
        *_, (_, info, _, truncated, components) = play_mixed(engine, share, prompt=np.arange(n))
        accuracy, coverage, brevity, form, _ = components.T
        worst, best = -6 * family.section_cost, -family.section_cost
        quality = accuracy / family.accuracy_scale + coverage + (brevity - worst) / (best - worst) + form / 0.5
        np.testing.assert_allclose(info["score"], quality / (3 + (6 - family.depth) / 5), atol=1e-12)
        assert (info["score"][truncated] == 0).all() and not info["is_success"][truncated].any()
        scores.append(info["score"])
        successes.append(info["is_success"])
        values.append(components.sum(axis=1))
    score, success, value = map(np.concatenate, (scores, successes, values))
    assert 0.3 < success.mean() < 0.95 and truncated.sum() == 0
    assert score[~success].max() < 1 == score[success].min() == score.max()
    low, high = family.value_range
    assert low == value.min() and value[success].min() == pytest.approx(high) and value.max() <= high + 1e-12
    assert value[~success].max() < high - 0.1


@pytest.mark.parametrize("depth", [1, 3, 5])
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_expert_writes_the_best_report(depth: int, split: str) -> None:
    engine = AgenticVectorEnv(500, family="Report", autoreset_mode="Disabled", depth=depth)
    *_, (_, info, _, truncated, value) = play_mixed(engine, 1.0, prompt=np.arange(500), split=split)
    assert info["is_success"].all() and not truncated.any() and info["turn"].max() <= 2 * depth + 1
    best = engine.family.closed_forms()
    assert best == {"best_score": 1.0, "best_value": pytest.approx(11.5 - depth / 2)}
    np.testing.assert_allclose(value.sum(axis=1), best["best_value"], rtol=1e-12)
    assert info["score"].mean() == best["best_score"]
    assert Report(Knobs(depth=depth, max_turns=2 * depth)).closed_forms() == {}
    assert Report(Knobs(depth=depth, slip=0.1)).closed_forms() == {}


def blind_score(engine: AgenticVectorEnv, *messages: tuple[str, ...]) -> np.ndarray:
    """Write fixed messages in turn (the last one again and again) on distinct prompts."""
    n = engine.num_envs
    engine.reset(options={"prompt": np.arange(n), "rollout": np.arange(n)})
    for turn in range(engine.family.turn_limit):
        words = messages[min(turn, len(messages) - 1)]
        _, _, terminated, truncated, info = engine.step(np.tile(engine.grammar.encode(*words), (n, 1)))
        if (terminated | truncated).all():
            break
    return info["score"]


@pytest.mark.parametrize("findings", [len(FINDINGS), 4])
@pytest.mark.parametrize("depth", [2, 3])
def test_policies_that_do_not_look_score_at_most_chance(depth: int, findings: int) -> None:
    n = 6000
    knobs = {"depth": depth, "findings": findings, "num_prompts": n}
    engine = AgenticVectorEnv(n, family="Report", autoreset_mode="Disabled", **knobs)
    chance, means = engine.family.chance(), []
    assert chance < 0.13
    sections = [("write", topic, FINDINGS[index % findings]) for index, topic in enumerate(TOPICS)]
    plans = [[*sections[:m], ("submit", "memo")] for m in (0, 1, 3, 4, 5, 6)[: engine.family.turn_limit - 1]]
    plans += [[("research", "law")], [("write", "law", "up")], [("submit", "slides")]]
    for plan in plans:
        score = blind_score(engine, *plan)
        error = max(score.std(), math.sqrt(chance * (1 - chance))) / math.sqrt(n)
        assert score.mean() <= chance + 4 * error
        means.append(score.mean())
    assert max(means) >= chance - min(0.02, chance / 4)  # the bound is reached
    *_, (_, info, _, _, _) = play_mixed(engine, 0.0, prompt=np.arange(n))
    assert info["score"].mean() <= chance


def test_default_chance_is_as_documented() -> None:
    assert Report(Knobs()).chance() == pytest.approx(0.019, abs=5e-4)
    assert Report(Knobs(), findings=4).chance() == pytest.approx(0.042, abs=5e-4)
    assert Report(Knobs(max_turns=2)).chance() == 0.0  # one section is not enough


@pytest.mark.parametrize("findings", [len(FINDINGS), 4, 8])
def test_state_keys_identify_states(findings: int) -> None:
    n = 2000
    engine = AgenticVectorEnv(n, family="Report", autoreset_mode="Disabled", findings=findings)
    states: dict[int, bytes] = {}
    for observation, info, *_ in play_mixed(engine, 0.6, prompt=3):
        for row, key in enumerate(info["state_key"].tolist()):
            arrays = [engine._state[name][row].tobytes() for name in sorted(engine._state)]
            content = b"".join([*arrays, observation[row, :-3].tobytes()])
            assert states.setdefault(key, content) == content
    assert len(set(states.values())) == len(states) > 500
    assert 0 <= min(states) and max(states) < 2**62


@pytest.mark.parametrize(
    "knobs",
    [
        {"accuracy_scale": 4.9}, {"accuracy_scale": "10"}, {"section_cost": 0.0}, {"section_cost": 0.9},
        {"n_rewards": 0}, {"n_rewards": 5}, {"n_rewards": 2.0},
        {"findings": 1}, {"findings": 9}, {"findings": 4.0}, {"findings": True},
    ],
)  # fmt: skip
def test_knobs_are_checked(knobs: dict[str, Any]) -> None:
    name, value = next(iter(knobs.items()))
    with pytest.raises(ValueError, match=rf"^{name}={value!r} is not allowed: it must be "):
        AgenticVectorEnv(1, family="Report", **knobs)


def earned_by_the_expert(n_rewards: int) -> np.ndarray:
    engine = AgenticVectorEnv(50, family="Report", n_rewards=n_rewards)
    engine.reset(options={"rollout": np.arange(50)})
    value, over = np.zeros((50, 5)), np.zeros(50, dtype=bool)
    for _ in range(2 * 3 + 1):
        _, _, terminated, truncated, info = engine.step(engine.expert_message())
        value += np.where(over[:, None], 0.0, info["reward_components"])
        over |= terminated | truncated
    assert over.all()
    return value


@pytest.mark.parametrize("n_rewards", [1, 2, 3, 4])
def test_rewards_that_are_paid(n_rewards: int) -> None:
    """The first components are as with all four, and the others nothing."""
    every, some = (earned_by_the_expert(n) for n in (4, n_rewards))
    np.testing.assert_array_equal(some[:, :n_rewards], every[:, :n_rewards])
    assert not some[:, n_rewards:4].any() and every[:, :4].any(axis=0).all()
    family = Report(Knobs(), n_rewards=n_rewards)
    best = [family.accuracy_scale, 1.0, -3 * family.section_cost, 0.5]
    assert family.closed_forms()["best_value"] == pytest.approx(sum(best[:n_rewards]))
    assert family.value_range[0] == (-3.0 if n_rewards >= 3 else 0.0)


def test_no_rows() -> None:
    assert all(len(column) == 0 for column in Report(Knobs()).start(np.zeros(0, dtype=np.uint64)).values())
