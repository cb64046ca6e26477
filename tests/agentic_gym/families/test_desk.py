"""Desk by hand: what observations say, what messages do, what is drawn, and what is known."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from agentic_gym import AgenticVectorEnv
from agentic_gym.families.desk import FEE, FEE_UNIT, Desk
from agentic_gym.knobs import Knobs
from agentic_gym.streams import mix

NONE = -1
PRICES = 36
SECTORS = ("banks", "energy", "retail", "steel", "ships", "tech")
TRUSTED = {"banks": 0, "tech": 0, "energy": 1, "steel": 1, "retail": 2, "ships": 2}
REPORTERS = ("filings", "broker", "wire")
LOTS = ("one-lot", "two-lots", "three-lots")


def make(n: int, **knobs: Any) -> AgenticVectorEnv:
    return AgenticVectorEnv(n, family="Desk", autoreset_mode="Disabled", **knobs)


def fields(observation: np.ndarray, depth: int, prices: int = PRICES) -> list[np.ndarray]:
    """Read the documented layout: sector, price, three times worth and side, size, closed."""
    worths = prices + 6
    sizes = (6, prices, worths, 2, worths, 2, worths, 2, 4, depth + 1)
    assert observation.shape[1] == sum(sizes) + 3
    edges = np.cumsum([0, *sizes])
    parts = [observation[:, a:b] for a, b in itertools.pairwise(edges)]
    assert all(((part == 0) | (part == 1)).all() and (part.sum(axis=1) <= 1).all() for part in parts)
    return [np.where(part.any(axis=1), part.argmax(axis=1), NONE) for part in parts]


def deal(gap: int) -> tuple[str, ...]:
    return ("pass",) if gap == 0 else ("buy" if gap > 0 else "sell", LOTS[abs(gap) - 1])


def read(engine: AgenticVectorEnv, observation: np.ndarray, prices: int) -> np.ndarray:
    """A second expert, from the documentation alone."""
    messages = []
    for sector, price, *reports, size, _ in zip(*fields(observation, engine.family.depth, prices), strict=True):
        reporter = TRUSTED[SECTORS[sector]]
        worth, side = reports[2 * reporter : 2 * reporter + 2]
        if worth != NONE:
            words = deal(worth - (price + 3))
        elif size == 0:
            words = ("pass",)
        elif side == NONE:
            words = ("research", REPORTERS[reporter])
        elif size == NONE:
            words = ("research", "audit")
        else:
            words = deal(size if side == 1 else -size)
        messages.append(engine.grammar.encode(*words))
    return np.array(messages)


def run(
    engine: AgenticVectorEnv, policy: Any, prompt: Any = None, rollout: Any = None, split: str = "train"
) -> dict[str, Any]:
    """Play one rollout per row; return the last info, summed components and flags."""
    n = engine.num_envs
    rows = np.arange(n)
    options = {
        "prompt": rows % engine.num_prompts if prompt is None else prompt,
        "rollout": rows if rollout is None else rollout, "split": split,
    }  # fmt: skip
    observation, info = engine.reset(options=options)
    total, over = np.zeros((n, 3)), np.zeros(n, dtype=bool)
    while not over.all():
        observation, _, terminated, truncated, info = engine.step(policy(engine, observation, info))
        total += info["reward_components"]
        over = terminated | truncated
    return {**info, "total": total, "truncated": truncated}


def expert(engine: AgenticVectorEnv, observation: np.ndarray, info: dict[str, Any]) -> np.ndarray:
    return engine.expert_message()


def mixed(share: Any, seed: int = 0) -> Any:
    """The expert with probability ``share`` (a number or one per row), else a random legal message."""
    random = np.random.default_rng(seed)

    def policy(engine: AgenticVectorEnv, observation: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        n = engine.num_envs
        legal = engine.grammar.sample(random.random((n, engine.grammar.n_slots)), np.zeros(n, dtype=int))
        return np.where((random.random(n) < share)[:, None], engine.expert_message(), legal)

    return policy


@pytest.mark.parametrize(
    "knobs",
    [
        {}, {"depth": 5, "difficulty": 0.9}, {"depth": 1, "max_turns": 12},
        {"prices": 1}, {"prices": 7}, {"prices": 60},
    ],
    ids=str,
)  # fmt: skip
def test_the_expert_is_a_function_of_the_observation(knobs: dict[str, Any]) -> None:
    """A second expert, written from the documented layout, agrees in every state that errors lead to."""
    n = 300
    engine = make(n, slip=0.2, **knobs)
    compared = 0
    policy = mixed(np.arange(n) % 3 / 2.5)

    def compare(engine: AgenticVectorEnv, observation: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        nonlocal compared
        expected = read(engine, observation, knobs.get("prices", PRICES))
        np.testing.assert_array_equal(expected, engine.expert_message())
        compared += n
        return policy(engine, observation, info)

    run(engine, compare)
    assert compared >= 8 * n


def find(engine: AgenticVectorEnv, gap: int, conflict: bool) -> int:
    """Return a prompt whose first quote has this gap, and conflicting opinions or not."""
    family = engine.family
    prompts = np.arange(400)
    state = family.new_state(400)
    family.begin(state, prompts, prompts, np.zeros(400, dtype=int))
    specialist = np.array([TRUSTED[name] for name in SECTORS])[state["quote"][:, 0, 0]]
    split = state["quote"][prompts, 0, 3 + 2 * specialist] != NONE
    return int(np.flatnonzero((state["gap"][:, 0] == gap) & (split == conflict))[0])


@pytest.mark.parametrize("gap", range(-3, 4))
def test_profits_by_hand(gap: int) -> None:
    """size * q * (g - q / 2), the same size for all decisions of one rollout; the right one is best."""
    engine = make(7, depth=1, dense=True, tail=6.0)
    engine.reset(options={"prompt": find(engine, gap, False), "rollout": 5})
    lots = np.arange(-3, 4)
    _, reward, terminated, truncated, info = engine.step(np.array([engine.grammar.encode(*deal(q)) for q in lots]))
    multiples = lots * (gap - lots / 2)
    size = reward[lots == 1][0] / multiples[lots == 1][0]
    assert size >= 5 and np.abs(reward).max() < 1000
    np.testing.assert_allclose(reward, size * multiples, rtol=1e-12)
    assert terminated.all() and not truncated.any() and lots[reward.argmax()] == gap
    np.testing.assert_array_equal(info["reward_components"], np.stack([reward, 0 * reward, 0 * reward], axis=1))
    np.testing.assert_array_equal(info["is_success"], lots == gap)
    np.testing.assert_array_equal(info["score"], lots == gap)
    assert (engine.expert_message()[:, 0] == 2).all() and engine.family.describe(engine._state, 0).startswith("All")


@pytest.mark.parametrize("prices", [PRICES, 7])
def test_reports_and_fees_by_hand(prices: int) -> None:
    """A conflict costs 0.1 and 0.2; asking again changes nothing; other reporters do not help."""
    engine = make(1, depth=2, difficulty=1.0, dense=True, render_mode="ansi", prices=prices)
    observation, info = engine.reset(options={"prompt": find(engine, -2, True), "rollout": 0})
    truth = info["ground_truth"].copy()
    np.testing.assert_array_equal(truth[0], engine.grammar.encode("sell", "two-lots"))
    sector, price, *reports, size, closed = (int(field[0]) for field in fields(observation, 2, prices))
    assert set(reports) == {NONE} and (size, closed) == (NONE, 0)
    reporter = TRUSTED[SECTORS[sector]]
    other = REPORTERS[(reporter + 1) % 3]
    assert engine.step(engine.grammar.encode("research", other)[None])[1][0] == -0.1
    assert engine.expert_message()[0].tolist() == engine.grammar.encode("research", REPORTERS[reporter]).tolist()
    for fee in (-0.1, 0.0):
        observation, reward, *_, info = engine.step(engine.grammar.encode("research", REPORTERS[reporter])[None])
        assert reward[0] == fee and info["score"][0] == 0.0
    assert [int(field[0]) for field in fields(observation, 2, prices)][2 + 2 * reporter :][:2] == [NONE, 0]
    observation, reward, *_ = engine.step(engine.grammar.encode("research", "audit")[None])
    assert reward[0] == -0.2 and fields(observation, 2, prices)[8][0] == 2
    np.testing.assert_array_equal(engine.expert_message(), truth)
    before = info["state_key"][0]
    observation, reward, terminated, _, info = engine.step(truth)
    assert reward[0] >= 10.0 and not terminated[0] and info["state_key"][0] != before
    assert info["score"][0] == pytest.approx((1 - 0.4 / 2) / 2) and not info["is_success"][0]
    sector, price, *reports, size, closed = (int(field[0]) for field in fields(observation, 2, prices))
    assert set(reports) == {NONE} and (size, closed) == (NONE, 1)
    expected = f"Quote 2 of 2: {SECTORS[sector]}, price {price + 3}."
    assert engine.family.describe(engine._state, 0) == expected and expected in engine.render()[0]
    while not terminated[0]:
        _, _, terminated, _, info = engine.step(engine.expert_message())
    text = engine.render()[0]
    assert f"By the {REPORTERS[reporter]} it is worth less, opinions conflict." in text and "finds a gap of 2." in text
    assert info["is_success"][0] and info["score"][0] in (pytest.approx(1 - 0.5 / 4), pytest.approx(1 - 0.7 / 4))


@pytest.mark.parametrize("prices", [PRICES, 7, 60])
def test_firm_reports_tell_the_worth_and_wrong_reporters_anything(prices: int) -> None:
    """Without conflicts the trusted reporter's worth is price plus gap; another's is unrelated to the gap."""
    n = 4000
    engine = make(n, difficulty=0.0, num_prompts=n, prices=prices)
    observation, info = engine.reset(options={"prompt": np.arange(n)})
    sector, price = fields(observation, 3, prices)[:2]
    gap, trusted = engine._state["gap"][:, 0], np.array([TRUSTED[name] for name in SECTORS])[sector]
    assert (info["task"] == 0).all()
    for shift in range(3):
        engine.reset(options={"prompt": np.arange(n)})
        asked = (trusted + shift) % 3
        observation, *_ = engine.step(np.stack([np.full(n, 2), 6 + asked], axis=1))
        reports = np.array(fields(observation, 3, prices)[2:8]).reshape(3, 2, n)
        assert (reports[:, 1] == NONE).all() and ((reports[:, 0] != NONE).sum(axis=0) == 1).all()
        worth = reports[asked, 0, np.arange(n)]
        assert (worth.min(), worth.max()) == (0, prices + 5)
        claim = worth - price - 3
        np.testing.assert_allclose(np.bincount(claim + 3, minlength=7) / n, 1 / 7, atol=0.025)
        right = np.mean(claim == gap)
        assert right == 1.0 if shift == 0 else abs(right - 1 / 7) < 4 * math.sqrt(1 / 7 * 6 / 7 / n)


def test_running_out_of_turns() -> None:
    """Open quotes earn nothing and are not right; asking what was asked is free."""
    engine = make(1, depth=2)
    engine.reset(options={"prompt": 3, "rollout": 0})
    while engine._state["closed"][0] == 0:
        engine.step(engine.expert_message())
    spent, truncated = engine._state["spent"][0] / 10, np.zeros(1, dtype=bool)
    while not truncated[0]:
        _, _, terminated, truncated, info = engine.step(engine.grammar.encode("research", "wire")[None])
    assert info["turn"][0] == 9 and not terminated[0] and not info["is_success"][0]
    assert info["score"][0] == pytest.approx((1 - (spent + 0.1) / 2) / 2)
    engine.reset(options={"prompt": 3, "rollout": 0})
    for source in ("filings", "wire", "audit", "broker"):
        info = engine.step(engine.grammar.encode("research", source)[None])[4]
    engine.step(info["ground_truth"])
    info = engine.step(engine._book["ground_truth"])[4]
    assert info["is_success"][0] and info["score"][0] == pytest.approx(1 - 0.5 / 4)
    blank = run(make(2), lambda e, o, i: np.zeros(e.action_space.shape, dtype=int))
    assert blank["total"].sum(axis=1).tolist() == [-12.0, -12.0] and blank["truncated"].all()


@pytest.mark.parametrize("prices", [PRICES, 7, 60])
@pytest.mark.parametrize("difficulty", [0.0, 0.4, 1.0])
def test_start_draws_what_it_documents(difficulty: float, prices: int) -> None:
    n = 12_000
    state = Desk(Knobs(depth=2, difficulty=difficulty), prices=prices).start(mix(np.arange(n)))
    sector, price, gap = state["quote"][:, :, 0], state["quote"][:, :, 1], state["gap"].astype(int)
    for values, size in ((sector, 6), (price, prices), (gap + 3, 7)):
        share, atol = np.bincount(values.ravel(), minlength=size) / (2 * n), 0.029 / math.sqrt(size)
        np.testing.assert_allclose(share, 1 / size, atol=atol)
    table = np.column_stack([sector, price, gap, np.log(state["factor"])])
    assert np.abs(np.corrcoef(table.T) - np.eye(8)).max() < 0.04
    trusted = np.array([TRUSTED[name] for name in SECTORS])[sector]
    worth = np.take_along_axis(state["quote"][:, :, 2:8:2], trusted[:, :, None], axis=2)[:, :, 0]
    side = np.take_along_axis(state["quote"][:, :, 3:8:2], trusted[:, :, None], axis=2)[:, :, 0]
    conflict = side != NONE
    assert ((worth == NONE) == conflict).all() and not conflict[gap == 0].any()
    assert conflict[gap != 0].mean() == pytest.approx(difficulty, abs=0.02)
    np.testing.assert_array_equal(side[conflict] == 1, gap[conflict] > 0)
    np.testing.assert_array_equal(worth[~conflict], (price + 3 + gap)[~conflict])
    np.testing.assert_array_equal(state["quote"][:, :, 8], np.abs(gap))
    np.testing.assert_array_equal(state["stressed"], conflict.any(axis=1))
    if difficulty == 0.4:  # prompts differ by more than chance
        both = (gap != 0).all(axis=1)
        assert np.cov(conflict[both].T)[0, 1] > 0.01


@pytest.mark.parametrize("tail", [1.2, 2.0, 5.0])
def test_sizes_are_heavy_tailed_between_and_within_prompts(tail: float) -> None:
    """log(a) and log(b) are exponential with rate ``tail``; equal keys of noise give equal profits."""
    n = 6000
    family = Desk(Knobs(depth=1), tail=tail)
    factor = np.log(family.start(mix(np.arange(n)))["factor"])
    assert factor.min() >= 0 and factor.mean() == pytest.approx(1 / tail, rel=0.06)
    engine = make(n, depth=1, tail=tail)
    prompt = find(engine, 1, False)
    played = run(engine, lambda e, o, i: i["ground_truth"], prompt=prompt)
    profit = played["total"][:, 0]
    # The median, because the largest profits are cut off.
    assert np.log(np.median(profit) / profit.min()) == pytest.approx(math.log(2) / tail, rel=0.08)
    assert profit.max() <= 0.5 * 1000 / 4.5 and played["is_success"].all()
    assert len(set(profit)) > 0.9 * n
    again = run(engine, lambda e, o, i: i["ground_truth"], prompt=prompt)
    np.testing.assert_array_equal(again["total"], played["total"])
    shared = make(20, depth=1, tail=tail, common_random_numbers=True)
    assert len(set(run(shared, lambda e, o, i: i["ground_truth"], prompt=prompt)["total"][:, 0])) == 1


@pytest.mark.parametrize("knobs", [{}, {"depth": 5, "tail": 1.2}, {"depth": 1, "max_turns": 4}], ids=str)
def test_score_follows_from_decisions_and_fees(knobs: dict[str, Any]) -> None:
    """Also for truncated rollouts; no failure outscores a success; values stay in their range."""
    n = 2500
    engine = make(n, slip=0.2, **knobs)
    depth, right, closed = engine.family.depth, np.zeros(n), np.zeros(n, dtype=int)
    policy, random = mixed(np.arange(n) % 5 / 4), np.random.default_rng(1)

    def count(engine: AgenticVectorEnv, observation: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        # Half of the rows' random messages are reports, so that turns run out.
        message = policy(engine, observation, info)
        lazy = (random.random(n) < 0.5) & (np.arange(n) % 2 == 0)
        message[lazy] = engine.grammar.encode("research", "audit")
        return message

    observation, info = engine.reset(options={"prompt": np.arange(n), "rollout": np.arange(n)})
    total, over = np.zeros((n, 3)), np.zeros(n, dtype=bool)
    gap = engine._state["gap"]
    while not over.all():
        message = count(engine, observation, info)
        observation, _, terminated, truncated, info = engine.step(message)
        effective = ~over & (observation[:, -2] == 0) & (message[:, 0] != 2)
        signed = np.select([message[:, 0] == 3, message[:, 0] == 4], [message[:, 1] - 9, 9 - message[:, 1]])
        right += effective & (signed == gap[np.arange(n), np.minimum(closed, depth - 1)])
        closed += effective
        total += info["reward_components"]
        over = terminated | truncated
    np.testing.assert_allclose(info["score"], np.maximum(right + total[:, 1] / depth, 0) / depth, atol=1e-12)
    np.testing.assert_array_equal(terminated, closed == depth)
    np.testing.assert_array_equal(info["is_success"], right == depth)
    assert info["is_success"].sum() > 50 and truncated.sum() > 20 and (right == 0).sum() > 50
    assert info["score"][~info["is_success"]].max() < info["score"][info["is_success"]].min()
    low, high = engine.family.value_range
    assert low <= total.sum(axis=1).min() and total.sum(axis=1).max() <= high
    assert -1000 - 0.5 * depth <= low <= -1000 and high == 1000
    assert make(1).family.value_range[0] == pytest.approx(-1001.2)


def test_success_has_the_largest_profit_of_equal_draws() -> None:
    """With common random numbers, deal for deal, no failed rollout of a prompt earns more."""
    n, groups = 3000, 60
    engine = make(n, common_random_numbers=True, tail=1.2)
    prompt = np.repeat(np.arange(groups), n // groups)
    random = np.random.default_rng(0)

    def policy(engine: AgenticVectorEnv, observation: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        # The noise belongs to a turn, so every turn is a deal.
        legal = engine.grammar.sample(random.random((n, 2)), np.zeros(n, dtype=int))
        deals = np.where((legal[:, 0] == 2)[:, None], engine.grammar.encode("pass"), legal)
        return np.where((random.random(n) < 0.6)[:, None], info["ground_truth"], deals)

    played = run(engine, policy, prompt=prompt, rollout=0)
    for group in range(groups):
        mine = prompt == group
        value, success = played["total"][mine, 0], played["is_success"][mine]
        assert len(set(value[success])) == 1 and value[~success].max() <= value[success].min()


def mean_profit(multiple: float, tail: float, depth: int) -> float:
    """By quadrature: log(a * b) has the density tail ** 2 * x * exp(-tail * x)."""
    x = (np.arange(20_000) + 0.5) / 20_000 * 60
    size = np.minimum(5 * np.exp(x), 1000 / (4.5 * depth))
    profit = np.maximum(multiple * size, -1000 / depth)
    return float((profit * tail**2 * x * np.exp(-tail * x)).sum() * 60 / 20_000)


@pytest.mark.parametrize("depth", [1, 5])
@pytest.mark.parametrize("tail", [1.1, 1.2, 2.0, 10.0])
def test_asking_pays(tail: float, depth: int) -> None:
    """The expert's way is the best by value: an audit is worth its fee, and is not asked first."""
    profit = {(q, g): mean_profit(q * (g - q / 2), tail, depth) for q in range(-3, 4) for g in range(-3, 4)}
    known = {g: profit[g, g] for g in range(-3, 4)}
    # The wrong deal costs more than all reports can.
    assert all(known[g] - profit[q, g] > 0.5 * depth for q, g in profit if q != g)
    positive = sum(known[g] for g in (1, 2, 3)) / 3
    assert positive - 0.2 > max(sum(profit[q, g] for g in (1, 2, 3)) / 3 for q in range(-3, 4))
    blind = max(sum(profit[q, g] for g in range(-3, 4)) / 7 for q in range(-3, 4))
    sized = max(profit[q, g] + profit[q, -g] for q in range(-3, 4) for g in (1, 2, 3)) / 2
    # A size without a side is worth nothing, so that the audit alone only saves the report on one gap of seven.
    assert abs(blind) < 1e-9 and abs(sized) < 1e-9
    fee, audit = FEE_UNIT * FEE[[0, -1]]
    assert fee + 6 / 7 * audit < audit + 6 / 7 * fee
    family = Desk(Knobs(depth=depth, difficulty=0.3), tail=tail)
    expected = depth * (sum(known.values()) / 7 - 0.1 - 0.2 * 0.3 * 6 / 7)
    assert family.closed_forms()["best_value"] == pytest.approx(expected, rel=1e-4)
    assert family.closed_forms()["best_score"] == pytest.approx(1 - (0.1 + 0.2 * 0.3 * 6 / 7) / depth)


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_expert_succeeds_on_every_prompt(split: str) -> None:
    for knobs in ({}, {"depth": 1, "difficulty": 1.0}, {"depth": 5, "difficulty": 0.0}):
        played = run(make(500, **knobs), expert, split=split)
        assert played["is_success"].all()
        assert played["score"].min() >= 1 - 0.3 / make(1, **knobs).family.depth - 1e-9


@pytest.mark.parametrize("knobs", [{}, {"tail": 1.2, "depth": 2}, {"tail": 9.0, "difficulty": 0.9}], ids=str)
def test_the_experts_mean_equals_the_closed_form(knobs: dict[str, Any]) -> None:
    n = 8000
    engine = make(n, num_prompts=n, **knobs)
    played, known = run(engine, expert), engine.family.closed_forms()
    for name, values in (("best_score", played["score"]), ("best_value", played["total"].sum(axis=1))):
        assert abs(values.mean() - known[name]) < 4 * values.std() / math.sqrt(n)
    assert not make(1, slip=0.1).family.closed_forms() and not make(1, max_turns=8).family.closed_forms()


BLIND = [
    "pass", "buy one-lot", "buy two-lots", "buy three-lots", "sell one-lot", "sell two-lots", "sell three-lots",
    "research filings", "research broker", "research wire", "research audit", "", "random",
]  # fmt: skip


@pytest.mark.parametrize("name", BLIND)
def test_policies_that_do_not_look_score_at_most_chance(name: str) -> None:
    n = 6000
    engine = make(n, num_prompts=n)
    message = engine.grammar.encode(*name.split()) if name not in ("", "random") else np.zeros(2, dtype=int)
    policy = mixed(0.0) if name == "random" else lambda e, o, i: np.tile(message, (n, 1))
    played = run(engine, policy)
    chance = engine.family.chance()
    assert chance == pytest.approx(1 / 7)
    error = max(played["score"].std(), math.sqrt(chance * (1 - chance))) / math.sqrt(n)
    assert played["score"].mean() <= chance + 4 * error
    value = played["total"].sum(axis=1).mean()
    if name == "pass":
        assert value == 0 and played["score"].mean() == pytest.approx(chance, abs=4 * error)
    elif name[:3] in ("buy", "sel"):
        assert value < 0 and played["score"].mean() == pytest.approx(chance, abs=4 * error)
    else:
        assert value < 0
    assert engine.family.closed_forms()["best_value"] > 50


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_state_keys_identify_states(depth: int) -> None:
    """Equal keys for equal states of a prompt, different keys for different ones."""
    n = 300
    engine = make(n, depth=depth, difficulty=0.8)
    seen: dict[int, bytes] = {}
    policy = mixed(np.arange(n) % 4 / 3)

    def look(observation: np.ndarray, info: dict[str, Any]) -> None:
        arrays = [engine._state[name] for name in ("closed", "asked", "right", "spent")]
        for row, key in enumerate(info["state_key"].tolist()):
            state = b"".join(array[row].tobytes() for array in arrays) + observation[row, :-3].tobytes()
            assert seen.setdefault(key, state) == state and 0 <= key < 2**62

    def watch(engine: AgenticVectorEnv, observation: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        look(observation, info)
        return policy(engine, observation, info)

    run(engine, watch, prompt=7)
    look(engine._observations(), engine._info())
    assert len(set(seen.values())) == len(seen) > 10 * depth
    fixed = [name for name in engine._state if name not in ("closed", "asked", "right", "spent")]
    assert all((engine._state[name] == engine._state[name][:1]).all() for name in fixed)


@pytest.mark.parametrize("tail", [1.0, 10.1, "2", True, math.nan, None])
def test_wrong_tails(tail: Any) -> None:
    with pytest.raises(ValueError, match=r"tail=.* is not allowed"):
        make(1, tail=tail)


@pytest.mark.parametrize("prices", [0, 61, 7.0, "7", True, None])
def test_wrong_prices(prices: Any) -> None:
    with pytest.raises(ValueError, match=rf"^prices={prices!r} is not allowed: it must be an integer in \[1, 60\]"):
        make(1, prices=prices)


@pytest.mark.parametrize(
    ("knobs", "width"), [({}, 179), ({"prices": 1}, 39), ({"prices": 7}, 63), ({"prices": 60}, 275)]
)
def test_every_depth_starts_from_no_rows(knobs: dict[str, Any], width: int) -> None:
    for depth in range(1, 6):
        for difficulty in (0.0, 1.0):
            family = Desk(Knobs(depth=depth, difficulty=difficulty), **knobs)
            assert all(len(values) == 0 for values in family.start(np.zeros(0, dtype=np.uint64)).values())
            assert family.default_max_turns() == 3 * depth + 3 and family.n_features == width + depth
