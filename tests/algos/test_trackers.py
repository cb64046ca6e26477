"""Baselines that are remembered: SPO, SPO++, role-conditioned averages, and DCPO's smooth advantage."""

import math
import pickle
import statistics

import numpy as np
import pytest

from algos import RolloutBatch, advantages, estimate_first_values, make_scheme
from algos.advantages.trackers import set_beta
from algos.memory import Memory

# Most tests give a scheme only what they are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(environment|task). not given, so all rollouts:UserWarning"),
    pytest.mark.filterwarnings("ignore:memory. .* remembers earlier updates:UserWarning"),
]

NAN = math.nan


def close(actual, expected, tolerance=1e-9):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def rollouts(returns, prompt=None, drift=NAN, **columns):
    """One-turn rollouts, by default of one prompt each."""
    prompt = range(len(returns)) if prompt is None else prompt
    drift = np.broadcast_to(np.asarray(drift, dtype=float), len(returns))
    return RolloutBatch.from_arrays(returns=returns, prompt=list(prompt), drift=drift, **columns)


def update(scheme, batch, memory):
    """Compute the advantages of a batch, and remember it."""
    scheme = make_scheme(scheme)
    credit = advantages(scheme, batch, memory)
    for part in scheme.parts:
        if part.after_update is not None:
            part.after_update(scheme, batch, memory, **scheme.options_of(part))
    return credit


def tracked(scheme, memory, prompt=0):
    """What the tracker says of a prompt: what is left of a reward of 0."""
    return -advantages(f"{scheme},whitening=none", rollouts([0.0], [prompt]), memory)[0]


EIGHT = "spo:start=8"
"""alpha = beta = 4."""


# schemes.md B7.


@pytest.mark.parametrize(
    ("drift", "value"),
    [(0.0, 0.5576), (NAN, 0.5576), (0.01, 0.5615), (0.01156, 0.5625), (0.05, 0.5625), (1e9, 0.5625)],
)
def test_vector_spo(drift, value):
    memory = Memory()
    update(EIGHT, rollouts([1.0], drift=drift), memory)
    assert tracked(EIGHT, memory) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize(("drift", "rho"), [(0.0, 0.96), (0.001, 0.96), (0.01, 2 ** (-1 / 6)), (0.06, 0.875)])
def test_spo_forgets_by_drift_within_floor_and_ceiling(drift, rho):
    memory = Memory()
    for reward in (1.0, 0.0, 1.0):
        update(EIGHT, rollouts([reward], drift=drift), memory)
    alpha = beta = 4.0
    for reward in (1.0, 0.0, 1.0):
        alpha, beta = rho * alpha + reward, rho * beta + 1 - reward
    assert tracked(EIGHT, memory) == pytest.approx(alpha / (alpha + beta), rel=1e-12)


def test_spo_constants():
    for settings, rho in (("forgetting=constant", 0.875), ("half_life=0.03", 2 ** (-0.005 / 0.03)),
                          ("rho_low=0.5,half_life=0.003", 0.5), ("rho_high=0.9,half_life=1", 0.9)):  # fmt: skip
        memory = Memory()
        update(f"{EIGHT},{settings}", rollouts([1.0], drift=0.005), memory)
        expected = (rho * 4 + 1) / (rho * 8 + 1)
        assert tracked(f"{EIGHT},{settings}", memory) == pytest.approx(expected, rel=1e-12)


def test_spo_begins_at_one_half_with_the_evidence_of_one():
    memory = Memory()
    assert tracked("spo:start=1", memory) == 0.5
    assert tracked("spo:start=3", Memory()) == 0.5
    update("spo", rollouts([1.0]), memory)
    assert tracked("spo:start=1", memory) == pytest.approx((0.96 * 0.5 + 1) / 1.96)


def test_spo_never_sees_its_own_reward():
    memory = Memory()
    for returns in ([1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]):
        baseline = [tracked("spo:start=1", memory, prompt) for prompt in range(3)]
        batch = rollouts(returns)
        once = advantages("spo:whitening=none", batch, memory)
        assert advantages("spo:whitening=none", batch, memory).tolist() == once.tolist()
        close(update("spo:whitening=none", batch, memory), np.array(returns) - baseline)


def test_spo_is_whitened_over_rollouts_and_spo_pp_over_tokens():
    mask = np.arange(5) < np.array([1, 5, 2])[:, None]
    batch = rollouts([1.0, 0.0, 0.0], token_mask=mask)
    centre, spread = 1 / 3, statistics.stdev([1, 0, 0])
    close(advantages("spo", batch), (np.array([1, 0, 0]) - centre) / (spread + 1e-8), 1e-12)
    tokens = [1] + [0] * 7
    variance = statistics.variance(tokens)
    expected = (np.array([1, 0, 0]) - 1 / 8) / math.sqrt(variance + 1e-8)
    credit = advantages("spo_pp", batch)
    close(credit, expected, 1e-12)
    assert (credit * [1, 5, 2]).sum() == pytest.approx(0.0, abs=1e-12)


def test_spo_pp_forgets_per_policy_update_since_the_last_visit():
    memory = Memory()
    seen = rollouts([1.0], [0])
    other = rollouts([1.0], [7])
    update("spo_pp:start=8", seen, memory)
    for _ in range(3):
        update("spo_pp:start=8", other, memory)
    update("spo_pp:start=8", rollouts([0.0], [0]), memory)
    # At the first visit once, at the second four updates later.
    alpha, beta = 0.875 * 4 + 1, 0.875 * 4
    alpha, beta = 0.875**4 * alpha, 0.875**4 * beta + 1
    assert tracked("spo_pp:start=8", memory) == pytest.approx(alpha / (alpha + beta), rel=1e-12)


def test_trackers_take_several_rollouts_of_a_prompt_at_once():
    memory = Memory()
    update(EIGHT, rollouts([1.0, 0.0, 1.0], [0, 0, 0], drift=[0.0, 0.02, 0.01]), memory)
    rho = 2 ** (-0.01 / 0.06)
    assert tracked(EIGHT, memory) == pytest.approx((4 * rho + 2) / (8 * rho + 3), rel=1e-12)


def test_trackers_know_prompts_by_environment_and_count_only_what_counts():
    memory = Memory()
    batch = rollouts([1.0, 0.0, 1.0], ["p", "p", "q"], environment=["x", "y", "x"], valid=[True, True, False])
    update("spo:whitening=none", batch, memory)
    after = advantages("spo:whitening=none", rollouts([0, 0, 0], ["p", "p", "q"], environment=["x", "y", "x"]), memory)
    high, low = (0.48 + 1) / 1.96, 0.48 / 1.96
    close(after, [-high, -low, -0.5])


@pytest.mark.parametrize("scheme", ["spo", "spo_pp", "rae", "dcpo_smooth"])
def test_memories_are_saved_with_the_model(scheme):
    memory = Memory()
    random = np.random.default_rng(0)
    batches = [
        rollouts(random.random(12), np.arange(12) // 3, drift=random.random(12), environment=np.arange(12) // 6)
        for _ in range(3)
    ]
    for batch in batches[:2]:
        update(scheme, batch, memory)
    loaded = pickle.loads(pickle.dumps(memory))
    assert update(scheme, batches[2], loaded).tolist() == update(scheme, batches[2], memory).tolist()
    assert advantages(scheme, batches[0], loaded).tolist() == advantages(scheme, batches[0], memory).tolist()
    assert advantages(scheme, batches[0], memory).tolist() != advantages(scheme, batches[0]).tolist()


def test_a_drift_column_is_needed():
    with pytest.raises(ValueError, match="drift=None is not allowed with this scheme"):
        update("spo", RolloutBatch.from_arrays([1.0], [0]), Memory())


def test_a_group_of_one_is_nothing_special_to_a_tracker():
    with pytest.raises(ValueError, match="singleton='raw' has no effect here"):
        make_scheme("spo", singleton="raw")
    assert advantages("spo:whitening=none", rollouts([1.0])).tolist() == [0.5]


# RAE.


def test_rae_averages_per_environment():
    memory = Memory()
    batch = rollouts([1.0, 3.0, 8.0], [0, 1, 2], environment=["x", "x", "y"])
    assert update("rae", batch, memory).tolist() == [1.0, 3.0, 8.0]
    close(advantages("rae", batch, memory), [1 - 0.1, 3 - 0.1, 8 - 0.4])
    update("rae", rollouts([5.0, NAN], [0, 0], environment=["x", "x"]), memory)
    close(advantages("rae", batch, memory), np.array([1, 3, 8]) - [0.345, 0.345, 0.4])
    memory = Memory()
    update("rae:decay=0.5", batch, memory)
    close(advantages("rae:decay=0.5", batch, memory), [0.0, 2.0, 4.0])


# DCPO.


def test_dcpo_smooth_over_three_visits():
    memory = Memory()
    visits = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    mean = variance = 0.0
    for t, returns in enumerate(visits):
        now, spread = statistics.mean(returns), statistics.stdev(returns)
        variance = (t * variance + spread**2 + t / (t + 1) * (mean - now) ** 2) / (t + 1)
        mean = (t * mean + now) / (t + 1)
        i = t + 1
        expected = []
        for r in returns:
            new, total = (r - now) / spread if spread else 0.0, (r - mean) / math.sqrt(variance)
            mixtures = ((i - 1) / i * new + total / i, new / i + (i - 1) / i * total)
            expected.append(min(mixtures, key=abs))
        close(update("dcpo_smooth", rollouts(returns, [0, 0, 0]), memory), expected)
    # The last group has no spread, but the prompt had one before: the smaller mixture, a third of the z-score.
    third = (1 - 2 / 3) / math.sqrt(variance) / 3
    close(expected, [third] * 3)
    assert third > 0.1


def test_dcpo_smooth_at_the_first_visit_is_grpo():
    batch = rollouts([1, 0, 0, 5, 5, 7], [0, 0, 0, 1, 1, 1])
    close(advantages("dcpo_smooth", batch), advantages("grpo:eps=0", batch), 1e-12)
    assert advantages("dcpo_smooth", rollouts([0.3, 0.1 + 0.2], [0, 0])).tolist() == [0.0, 0.0]


def test_p04_dcpo_smooth_does_not_train_on_rounding():
    memory = Memory()
    for returns in ([0.3, 0.3], [0.1 + 0.2, 0.1 + 0.2], [0.3, 0.1 + 0.2], [1.1 - 0.8, 0.3]):
        assert update("dcpo_smooth", rollouts(returns, [0, 0]), memory).tolist() == [0.0, 0.0]


def test_dcpo_smooth_counts_visits_per_prompt():
    memory = Memory()
    update("dcpo_smooth", rollouts([1, 0, 3, NAN], [0, 0, 1, 1]), memory)
    update("dcpo_smooth", rollouts([NAN, NAN], [0, 0], valid=[False, False]), memory)
    new = advantages("dcpo_smooth", rollouts([1.0, 0.0], [2, 2]), memory)
    close(new, advantages("grpo:eps=0", rollouts([1.0, 0.0], [2, 2])), 1e-12)
    # Prompt 0 was seen once, not twice.
    variance = (0.5 + 2 + 0.5 * 1.5**2) / 2
    score, total = [-math.sqrt(0.5), math.sqrt(0.5)], [(1 - 1.25) / variance**0.5, (3 - 1.25) / variance**0.5]
    expected = [(a + b) / 2 for a, b in zip(score, total, strict=True)]
    close(advantages("dcpo_smooth", rollouts([1.0, 3.0], [0, 0]), memory), expected)


# First values.


@pytest.fixture(scope="module")
def spo_model():
    from algos import GroupPPO

    return GroupPPO(
        "MessagePolicy", "agentic_gym/Chain-v0", scheme="spo", n_prompts=16, group_size=1, seed=0,
        env_kwargs={"num_prompts": 40, "options": 3, "depth": 1},
    )  # fmt: skip


@pytest.mark.parametrize(("smoothing", "allowed"), [(0.0, np.arange(9) / 8), (0.5, (np.arange(9) + 0.5) / 9)])
def test_first_values_are_the_paper_s_or_the_code_s(spo_model, smoothing, allowed):
    values = estimate_first_values(spo_model, rollouts=8, smoothing=smoothing, seed=1)
    assert values.shape == (40,)
    assert np.abs(values[:, None] - allowed).min(axis=1).max() < 1e-12
    assert len(set(values)) > 3
    success = estimate_first_values(spo_model, rollouts=64, smoothing=0.0, seed=2).mean()
    assert 0.1 < success < 0.5
    assert values.mean() == pytest.approx((8 * success + smoothing) / (8 + 2 * smoothing), abs=0.08)
    assert (estimate_first_values(spo_model, rollouts=8, smoothing=smoothing, seed=1) == values).all()


def test_first_values_are_what_training_subtracts_first(spo_model):
    values = estimate_first_values(spo_model, rollouts=4, smoothing=0.0, evidence=8.0, seed=2)
    memory = spo_model._memory
    batch = rollouts([1.0, 0.0, 0.5], prompt=[3, 0, 39], drift=0.0)
    credit = advantages("spo:whitening=none", batch, memory)
    close(credit, batch.returns - values[[3, 0, 39]])
    # alpha = 8 v, beta = 8 (1 - v), a drift of 0 forgets by .96.
    update("spo:whitening=none", rollouts([1.0], prompt=[3], drift=0.0), memory)
    assert tracked("spo:start=8", memory, 3) == pytest.approx((0.96 * 8 * values[3] + 1) / (0.96 * 8 + 1))


def test_first_values_move_what_is_sampled():
    """The sampler prefers prompts of which the first rollouts say that they are uncertain."""
    from algos.sampling.prioritised import weights

    memory = Memory()
    set_beta(rollouts([0.0, 0.0], prompt=[0, 1]), memory, np.array([0.5, 0.0]), 8.0)
    tracker = memory.get("beta_tracker", lambda: None)
    close(weights(np.array([0, 1, 2]), tracker, 0.0, 0.05), [0.55, 0.05, 0.55])
    close(weights(np.array([0, 1, 2]), tracker, 1.0, 0.05), [0.5 / 8 + 0.05, 0.05, 0.55])


@pytest.mark.parametrize("chunk", [8, 56, 2**14])
def test_chunks_change_nothing_but_the_draws(spo_model, chunk, monkeypatch):
    from algos import first_values

    monkeypatch.setattr(first_values, "CHUNK", chunk)
    values = estimate_first_values(spo_model, rollouts=8, smoothing=0.0, seed=3)
    assert values.shape == (40,) and 0.05 < values.mean() < 0.5
    tracker = spo_model._memory.get("beta_tracker", lambda: None)
    assert len(tracker.rows) == 40
    close([tracker.columns["value"][tracker.rows[0, prompt]] for prompt in range(40)], values)


def test_first_values_are_in_the_units_of_the_rewards():
    from algos import GroupPPO

    def model(scale):
        return GroupPPO(
            "MessagePolicy", "agentic_gym/Chain-v0", scheme="spo", n_prompts=16, group_size=1, seed=0,
            env_kwargs={"num_prompts": 40, "options": 3, "depth": 1, "reward_scale": scale},
        )  # fmt: skip

    one, hundred = (estimate_first_values(model(scale), smoothing=0.0, seed=1) for scale in (1.0, 100.0))
    close(hundred, 100 * one)
    with pytest.raises(ValueError, match=r"smoothing=0.5 is not allowed here: .* in \[0, 100\]"):
        estimate_first_values(model(100.0))


def test_first_values_refuse_what_makes_no_sense(spo_model):
    from algos import GroupPPO

    with pytest.raises(ValueError, match="rollouts=0 is not allowed"):
        estimate_first_values(spo_model, rollouts=0)
    with pytest.raises(ValueError, match="smoothing=-1 is not allowed"):
        estimate_first_values(spo_model, smoothing=-1)
    with pytest.raises(ValueError, match="evidence=0 is not allowed"):
        estimate_first_values(spo_model, evidence=0)
    with pytest.raises(ValueError, match="keeps no tracker"):
        estimate_first_values(GroupPPO("MessagePolicy", "agentic_gym/Chain-v0", scheme="grpo"))
    with pytest.raises(ValueError, match="seed=-1 is not allowed"):
        estimate_first_values(spo_model, seed=-1)
    with pytest.raises(ValueError, match="at most 4194304 rollouts"):
        estimate_first_values(GroupPPO("MessagePolicy", "CartPole-v1", scheme="spo", group_size=1))
