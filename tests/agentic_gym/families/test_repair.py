"""Repair by hand and by numbers: rules, draws, verdicts, known truth, and infrastructure failures."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from agentic_gym import AgenticVectorEnv
from agentic_gym.families.repair import SITES, STATEMENTS, Repair
from agentic_gym.knobs import Knobs
from agentic_gym.streams import mix

NONE = -1
READ, INSPECT, EDIT, COMPILE, TEST, SUBMIT = range(2, 8)
STATEMENTS_N = 32
BUILT, UNBUILT, PASSED, FAILED, DOWN = range(5)
RIGHT, MISSED, FAILING, BROKEN, NEVER = range(5)


def make(n: int, **knobs: Any) -> AgenticVectorEnv:
    return AgenticVectorEnv(n, family="Repair", autoreset_mode="Disabled", **knobs)


def fields(observation: np.ndarray, statements: int = STATEMENTS_N) -> list[np.ndarray]:
    """Read the one-hot fields; -1 where a field is empty."""
    sizes = (3, 2, 6, *[statements] * 3, 5, 6, 6, *[3] * 6)
    assert observation.shape[1] == sum(sizes) + 3
    edges = np.cumsum([0, *sizes])
    parts = [observation[:, a:b] for a, b in itertools.pairwise(edges)]
    assert all(((part == 0) | (part == 1)).all() and (part.sum(axis=1) <= 1).all() for part in parts)
    return [np.where(part.any(axis=1), part.argmax(axis=1), NONE) for part in parts]


def decide(kind: int, _half: int, hand: int, a: int, b: int, standing: int, result: int, named: int, also: int,
           *status: int) -> tuple[int, ...]:  # fmt: skip
    """One observation's expert message, written from the documentation."""
    if hand != NONE and (standing not in (a, b) or status[hand] == 2):
        return EDIT, 8 + hand, 14 + (b if standing == a else a)
    unsettled = [site for site in (hand, *range(6)) if site != NONE and status[site] in (0, 2)]
    if unsettled:
        return (INSPECT if status[unsettled[0]] == 0 else READ), 8 + unsettled[0], 0
    if named != NONE:
        return READ, 8 + (also if hand == named and also != NONE else named), 0
    if result == PASSED or (kind == 0 and result == BUILT):
        return SUBMIT, 0, 0
    return (COMPILE if kind == 0 else TEST), 0, 0


def mixture(engine: AgenticVectorEnv, random: np.random.Generator, skill: Any) -> np.ndarray:
    """The expert's message with probability ``skill``, else a random legal one."""
    n = engine.num_envs
    legal = engine.grammar.sample(random.random((n, engine.grammar.n_slots)), np.zeros(n, dtype=int))
    return np.where(random.random((n, 1)) < np.reshape(skill, (-1, 1)), engine.expert_message(), legal)


def run(engine: AgenticVectorEnv, act: Any, **options: Any) -> dict[str, np.ndarray]:
    """Finish one rollout per row; return the last info, with component sums and flags."""
    rows = np.arange(engine.num_envs)
    observation, info = engine.reset(options={"prompt": rows % engine.num_prompts, "rollout": rows, **options})
    total, over = np.zeros(engine.num_envs), np.zeros(engine.num_envs, dtype=bool)
    while not over.all():
        observation, _, terminated, truncated, info = engine.step(act(observation))
        total += info["reward_components"].sum(axis=1)
        over = terminated | truncated
    return info | {"total": total, "terminated": terminated, "truncated": truncated}


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"depth": 1, "difficulty": 1.0},
        {"depth": 3, "max_turns": 40, "failure": 0.0},
        {"statements": 8},
        {"statements": 4, "depth": 3},
    ],
)
def test_the_expert_is_a_function_of_the_observation(knobs: dict[str, Any]) -> None:
    """A second expert, written from the documented layout, agrees in every state that errors lead to."""
    n, turns, tools, statements = 250, 0, set(), knobs.get("statements", STATEMENTS_N)
    engine, random = make(n, slip=0.2, **knobs), np.random.default_rng(0)
    assert tuple(engine.grammar.vocabulary[14:]) == STATEMENTS[:statements]
    observation, _ = engine.reset(seed=0)
    over = np.zeros(n, dtype=bool)
    while not over.all():
        running = np.flatnonzero(~over)
        expected = [decide(*row) for row in np.array(fields(observation[running], statements)).T.tolist()]
        np.testing.assert_array_equal(engine.expert_message()[running], expected)
        tools |= {message[0] for message in expected}
        observation, _, terminated, truncated, _ = engine.step(mixture(engine, random, 0.7))
        over = terminated | truncated
        turns += len(running)
    assert turns > 3 * n and len(tools) == 6


def program(kind: int, depth: int = 1, **knobs: Any) -> tuple[AgenticVectorEnv, dict[str, Any]]:
    """A one-row engine on a prompt of that kind in which some fault's other statements are of every worth."""
    for prompt in range(400):
        engine = make(1, depth=depth, dense=True, failure=0.0, render_mode="ansi", **knobs)
        _, info = engine.reset(options={"prompt": prompt, "rollout": 0})
        state = {name: value[0] for name, value in engine._state.items()}
        site, right = info["ground_truth"][0, 1] - 8, info["ground_truth"][0, 2] - 14
        standing = int(state["site"][site, 2])
        others = [index for index in range(STATEMENTS_N) if index != standing]
        worth = {int(state["quality"][site, index]): index for index in others}
        decoy = next(index for index in map(int, state["site"][site, :2]) if index != right)
        if info["task"][0] == kind and set(worth) == {RIGHT, MISSED, FAILING, BROKEN}:
            return engine, {"site": site, "fault": standing, "worth": worth, "decoy": decoy, "right": right}
    raise AssertionError


def play(engine: AgenticVectorEnv, *messages: tuple[str, ...]) -> tuple[list[int], float, bool, bool, dict[str, Any]]:
    """Write messages into the one row; return the observation's fields and the last step's results."""
    for words in messages:
        observation, reward, terminated, truncated, info = engine.step(engine.grammar.encode(*words)[None])
    return [int(f[0]) for f in fields(observation)], reward[0], terminated[0], truncated[0], info


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_rules_by_hand(kind: int) -> None:
    """What each tool shows, that a report lives until the next edit, and that loops return to equal states."""
    engine, made = program(kind)
    site, fault, decoy, right = (made[name] for name in ("site", "fault", "decoy", "right"))
    name, start = SITES[site], engine._book["state_key"][0]
    seen, *_ = play(engine, ("test",))
    assert seen[0] == kind and seen[1] == site // 3 and seen[2:6] == [NONE] * 4
    named = {0: [NONE, NONE], 1: [site, NONE]}
    if kind == 2:
        assert set(seen[7:9]) == {site, (site + 1) % 6}
    else:
        assert seen[7:9] == named[kind]
    assert seen[6] == (UNBUILT if kind == 0 else FAILED)
    seen, *_ = play(engine, ("compile",))
    assert seen[6:9] == ([UNBUILT, site, NONE] if kind == 0 else [BUILT, NONE, NONE])
    seen, *_ = play(engine, ("read", name))
    assert seen[2] == site and set(seen[3:5]) == {right, decoy} and seen[5] == fault and seen[9:] == [NONE] * 6
    assert seen[6] != NONE and engine._book["state_key"][0] != start
    sound = next(index for index in range(6) if index != site)
    seen, *_ = play(engine, ("inspect", name), ("inspect", SITES[sound]))
    assert seen[9 + site] == 2 and seen[9 + sound] == 1 and seen[6] != NONE
    before = engine._book["state_key"][0]
    # Writing what stands there already changes nothing.
    assert play(engine, ("edit", name, STATEMENTS[fault]))[4]["state_key"][0] == before
    seen, *_ = play(engine, ("edit", name, STATEMENTS[decoy]))
    assert seen[5] == decoy and seen[9 + site] == 0 and seen[6:9] == [NONE] * 3
    once = engine._book["state_key"][0]
    seen, *_ = play(engine, ("edit", name, STATEMENTS[right]), ("edit", name, STATEMENTS[decoy]))
    assert engine._book["state_key"][0] == once


def test_every_worth_of_a_statement() -> None:
    """The false pass, the failure, the broken build and the right fix, each tested and then submitted."""
    value = {RIGHT: 1.0, MISSED: 0.0, FAILING: -0.75, BROKEN: -1.0}
    report = {RIGHT: PASSED, MISSED: PASSED, FAILING: FAILED, BROKEN: UNBUILT}
    words = {RIGHT: "is right", MISSED: "is wrong", FAILING: "fails the tests", BROKEN: "does not build"}
    for kind, worth in itertools.product(range(3), value):
        engine, made = program(kind)
        name = SITES[made["site"]]
        seen, reward, *_ = play(engine, ("edit", name, STATEMENTS[made["worth"][worth]]), ("test",))
        assert (seen[6], reward) == (report[worth], 0.0)
        seen, *_ = play(engine, ("compile",))
        assert seen[6:8] == ([UNBUILT, made["site"]] if worth == BROKEN else [BUILT, NONE])
        seen, *_ = play(engine, ("inspect", name))
        assert seen[9 + made["site"]] == (1 if worth == RIGHT else 2)
        _, reward, terminated, truncated, info = play(engine, ("submit",))
        assert (reward, terminated, truncated) == (value[worth], True, False)
        assert (info["score"][0], info["is_success"][0]) == (float(worth == RIGHT), worth == RIGHT)
        assert words[worth] in engine.render()[0]


def test_other_ends() -> None:
    """At once: -1 or -0.75. Never: -1, truncated, no success even with the right program. Illegal: -0.02."""
    for kind in range(3):
        engine, _ = program(kind)
        assert play(engine, ("submit",))[1] == (-1.0 if kind == 0 else -0.75)
    engine, made = program(1)
    fix = ("edit", SITES[made["site"]], STATEMENTS[made["right"]])
    _, reward, terminated, truncated, info = play(engine, *[fix] * 11)
    assert (reward, terminated, truncated, info["is_success"][0], info["score"][0]) == (-1.0, False, True, False, 0.0)
    assert info["reward_valid"][0] and "Nothing was submitted." in engine.render()[0]
    engine, _ = program(1)
    assert engine.step(np.array([[EDIT, 8, 8]]))[1][0] == -0.02
    # A new fault elsewhere is a fault as well.
    engine, made = program(1)
    other = (made["site"] + 1) % 6
    wrong = STATEMENTS[(int(engine._state["site"][0, other, 2]) + 1) % STATEMENTS_N]
    assert play(engine, fix, ("edit", SITES[other], wrong), ("submit",))[1] < 1.0


@pytest.mark.parametrize("knob", [{}, {"statements": 8}, {"statements": 4}])
def test_draws(knob: dict[str, int]) -> None:
    """Kinds, fault sites, statements and worths are distributed as documented."""
    n, statements = 15_000, knob.get("statements", STATEMENTS_N)
    uniform, others = 1 / statements, 1 / (statements - 1)
    near, near_other = (5.5 * math.sqrt(p * (1 - p) / n) for p in (uniform, others))  # standard errors
    for depth, difficulty in ((1, 0.5), (2, 0.2), (3, 1.0), (3, 0.0)):
        state = Repair(Knobs(depth=depth, difficulty=difficulty), **knob).start(mix(np.arange(n)))
        quality, site, issue = state["quality"], state["site"], state["issue"]
        assert quality.shape == (n, 6, statements)
        right = quality == RIGHT
        assert (right.sum(axis=2) == 1).all()
        gold = right.argmax(axis=2)
        faulty = site[:, :, 2] != gold
        assert (faulty.sum(axis=1) == depth).all()
        sets = np.unique(faulty @ (1 << np.arange(6)), return_counts=True)[1]
        assert len(sets) == math.comb(6, depth)
        np.testing.assert_allclose(sets / n, 1 / len(sets), atol=0.012)
        for column in gold.T:
            np.testing.assert_allclose(np.bincount(column, minlength=statements) / n, uniform, atol=near)
        # Right statements of faulty sites are independent of each other and of the fault set.
        share = np.bincount(gold[faulty], minlength=statements) / depth / n
        np.testing.assert_allclose(share, uniform, atol=near)
        np.testing.assert_allclose(np.bincount(issue[:, 0]) / n, 1 / 3, atol=0.015)
        np.testing.assert_array_equal(issue[:, 1], faulty.argmax(axis=1) >= 3)
        first = site[:, :, 0] == gold
        assert (first ^ (site[:, :, 1] == gold)).all() and first.mean() == pytest.approx(0.5, abs=0.01)
        standing = site[:, :, 2]
        # The plausible and the faulty statement are any others, wherever the right one is.
        decoy = site[:, :, 0] + site[:, :, 1] - gold
        for wrong, where in ((decoy, np.ones_like(faulty)), (standing, faulty)):
            apart = np.bincount((wrong - gold)[where] % statements, minlength=statements) / where.sum()
            np.testing.assert_allclose(apart, [0, *[others] * (statements - 1)], atol=near_other)
        assert ((standing != site[:, :, 0]) & (standing != site[:, :, 1]) == faulty).all()
        fault = np.take_along_axis(quality, standing[:, :, None].astype(int), axis=2)[:, :, 0]
        assert (fault[faulty].reshape(n, depth) == np.where(issue[:, :1] == 0, BROKEN, FAILING)).all()
        other = ~right & (np.arange(statements) != standing[:, :, None])
        assert (quality[other] == BROKEN).mean() == pytest.approx(0.25, abs=0.01)
        missed, builds = ((quality == MISSED) & other).sum((1, 2)), (other & (quality != BROKEN)).sum((1, 2))
        assert missed.sum() / builds.sum() == pytest.approx(difficulty, abs=0.01)
        if 0.0 < difficulty < 1.0:  # prompts differ by more than chance
            share = missed / builds
            assert share.var() > difficulty * (1 - difficulty) / builds.mean() + 0.005
        np.testing.assert_array_equal(state["solution"][:, 0], faulty.argmax(axis=1))
        np.testing.assert_array_equal(state["solution"][:, 1], gold[np.arange(n), state["solution"][:, 0]])
        pair, here = state["blamed"], np.arange(6)
        interface = issue[:, 0] == 2
        assert (pair[~interface] == np.stack([here, np.full(6, NONE)], axis=1)).all()
        assert (np.sort(pair[interface], axis=2) == np.sort(np.stack([here, (here + 1) % 6], axis=1), axis=1)).all()
        assert (pair[interface][:, :, 0] == here).mean() == pytest.approx(0.5, abs=0.015)


@pytest.mark.parametrize("knobs", [{}, {"depth": 1, "failure": 0.2}, {"depth": 3, "slip": 0.1}])
def test_scores_of_mixed_rollouts(knobs: dict[str, Any]) -> None:
    """The score is ``submit``, at least 0; failures never beat successes; the value keeps its range."""
    n = 3000
    engine, random = make(n, **knobs), np.random.default_rng(1)
    skill = random.choice([0.0, 0.5, 0.9, 1.0], n)
    last = run(engine, lambda _: mixture(engine, random, skill))
    valid, success, total = last["reward_valid"], last["is_success"], last["total"]
    np.testing.assert_array_equal(last["score"], np.maximum(total, 0.0) * valid)
    low, high = engine.family.value_range
    assert low <= total.min() and total.max() <= high and set(total) <= {1.0, 0.0, -0.75, -1.0}
    assert last["score"][~success].max() < last["score"][success].min() == 1.0
    assert (last["truncated"] & valid).any() and (total[last["truncated"] & valid] == -1.0).all()
    assert not success[last["truncated"]].any() and (last["truncated"] ^ last["terminated"]).all()
    aborted = ~valid
    assert aborted.any() and last["truncated"][aborted].all() and (total[aborted] == 0.0).all()


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_expert_succeeds(depth: int, split: str) -> None:
    """On all valid rollouts, within the limit, and its mean is the closed form."""
    for knobs in ({}, {"failure": 0.0}, {"difficulty": 0.0}, {"difficulty": 1.0, "max_turns": 7 * depth + 2}):
        engine = make(500, depth=depth, **knobs)
        last = run(engine, lambda _, e=engine: e.expert_message(), split=split)
        valid, best = last["reward_valid"], engine.family.closed_forms()
        assert last["is_success"][valid].all() and not last["is_success"][~valid].any()
        assert last["score"][valid].mean() == best["best_score"] and last["total"][valid].mean() == best["best_value"]
        assert valid.all() == (engine.family.failure == 0.0) and valid.mean() > 0.85
    assert make(1, depth=depth, max_turns=7 * depth + 1).family.closed_forms() == {}
    assert make(1, depth=depth, slip=0.1).family.closed_forms() == {}


@pytest.mark.parametrize(
    ("n", "statements", "depth", "max_turns"),
    [(24_000, STATEMENTS_N, 1, None), (6000, 8, 1, None), (6000, 8, 2, 5)],
)
def test_blind_policies_stay_at_chance(n: int, statements: int, depth: int, max_turns: int | None) -> None:
    """Constant messages, an edit and a submission, random legal messages: at most ``chance()``."""
    assert make(1).family.chance() == 1 / (15 * STATEMENTS_N**2)
    knob = {} if statements == STATEMENTS_N else {"statements": statements}
    engine = make(n, depth=depth, max_turns=max_turns, num_prompts=n, **knob)
    chance, random = engine.family.chance(), np.random.default_rng(0)
    assert chance == 1 / (math.comb(6, depth) * statements**depth)
    word = engine.grammar.encode
    constant = [
        ("read", "index"),
        ("inspect", "cache"),
        ("edit", "index", "swap"),
        ("compile",),
        ("test",),
        ("submit",),
    ]
    plans = [[word(*message)] for message in constant]
    plans.append([word("edit", "index", "swap"), word("submit")])
    plans.append([word("edit", "index", "swap"), word("edit", "cache", "add"), word("submit")])
    blind = []
    for plan in plans:
        turns = itertools.chain(plan, itertools.repeat(plan[-1]))
        blind.append(run(engine, lambda _, t=turns: np.tile(next(t), (n, 1))))
    blind.append(run(engine, lambda _: engine.grammar.sample(random.random((n, 3)), np.zeros(n, dtype=int))))
    for last in blind:
        score = last["score"][last["reward_valid"]]
        assert score.mean() <= chance + 4 * math.sqrt(chance / len(score))


def test_trusting_a_pass_costs_what_is_documented() -> None:
    """Reading and editing without inspection: 1 - 0.375 * difficulty at depth 1."""
    n = 2000
    for difficulty in (0.3, 1.0):
        engine = make(n, depth=1, difficulty=difficulty, failure=0.0)

        def trusting(observation: np.ndarray, engine: AgenticVectorEnv = engine) -> np.ndarray:
            seen = fields(observation)
            message = engine.expert_message()
            untested = (message[:, 0] == INSPECT) & (seen[6] == NONE)
            wrong = (message[:, 0] == INSPECT) & ((seen[6] == UNBUILT) | (seen[6] == FAILED))
            other = np.where(seen[5] == seen[3], seen[4], seen[3])
            message[untested] = [TEST, 0, 0]
            message[(message[:, 0] == INSPECT) & (seen[6] == PASSED)] = [SUBMIT, 0, 0]
            message[wrong] = np.stack([np.full(n, EDIT), 8 + seen[2], 14 + other], axis=1)[wrong]
            return message

        last = run(engine, trusting, split="test")
        assert last["is_success"].mean() == pytest.approx(1 - 0.375 * difficulty, abs=0.04)
        assert set(last["total"]) <= {0.0, 1.0}


@pytest.mark.parametrize("failure", [0.0, 0.02, 0.3, 0.5])
def test_infrastructure_failures(failure: float) -> None:
    """Each check fails with the stated probability; the row is then truncated, invalid and still readable."""
    n, failures, checks = 4000, 0, 0
    engine = make(n, failure=failure, dense=True, num_prompts=n)
    engine.reset(options={"prompt": np.arange(n), "rollout": np.arange(n)})
    over = np.zeros(n, dtype=bool)
    for words in [("compile",), ("test",), ("read", "index"), ("test",)]:
        observation, reward, terminated, truncated, info = engine.step(np.tile(engine.grammar.encode(*words), (n, 1)))
        now = truncated & ~over
        checks, failures = checks + (words[0] != "read") * (~over).sum(), failures + now.sum()
        assert words[0] != "read" or not now.any()
        assert not terminated.any() and (reward == 0.0).all()
        np.testing.assert_array_equal(info["reward_valid"], ~truncated)
        np.testing.assert_array_equal(fields(observation)[6] == DOWN, truncated)
        assert (info["score"] == 0).all() and not info["is_success"].any()
        over = truncated
    assert failures / checks == pytest.approx(failure, abs=4 * math.sqrt(failure * (1 - failure) / checks) + 1e-12)
    for row in np.flatnonzero(over)[:1]:
        assert engine.family.describe(engine._state, int(row)) == "The infrastructure is down."


@pytest.mark.parametrize("value", [-0.1, 0.51, float("nan"), True, "0.1"])
def test_failure_is_validated(value: Any) -> None:
    with pytest.raises(ValueError, match="failure="):
        make(1, failure=value)


@pytest.mark.parametrize("value", [3, 33, 8.0, True, "8", None])
def test_statements_is_validated(value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^statements={value!r} is not allowed: it must be an integer in \[4, 32\]"):
        make(1, statements=value)


def test_statements_may_be_of_any_integer_type() -> None:
    observation, _ = make(2, statements=np.int8(32)).reset(seed=0)
    np.testing.assert_array_equal(observation, make(2).reset(seed=0)[0])


def test_state_keys_identify_states() -> None:
    """Within a prompt, two states have one key if and only if the state arrays and features are the same."""
    n = 1500
    engine, random = make(n, max_turns=12, failure=0.1), np.random.default_rng(0)
    observation, info = engine.reset(seed=0, options={"prompt": 3, "rollout": np.arange(n)})
    skill, over = random.choice([0.3, 0.6, 0.95], n), np.zeros(n, dtype=bool)
    by_key: dict[int, bytes] = {}
    by_state: dict[bytes, int] = {}
    while True:
        for row, key in enumerate(info["state_key"].tolist()):
            arrays = [engine._state[name][row].tobytes() for name in ("site", "hand", "report", "outcome")]
            content = b"|".join([*arrays, observation[row, :-3].tobytes()])
            assert by_key.setdefault(key, content) == content and by_state.setdefault(content, key) == key
        if over.all():
            break
        observation, _, terminated, truncated, info = engine.step(mixture(engine, random, skill))
        over = terminated | truncated
    assert len(by_key) > 1000 and min(by_key) >= 0 and max(by_key) < 2**62
