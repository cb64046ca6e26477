"""The microscope: exact gradients are exact, and unbiased schemes agree with them on average."""

import dataclasses

import numpy as np
import pytest
import torch

from algos.collector import collect
from algos.threads import limit_threads
from algos.warmstart import warmstart
from benchmarks.microscope import Seen, Setting, estimate, exact_gradients, look, make_model, summarise

SMALL = Setting(n_environments=2, n_prompts=32, group_size=4)


@pytest.fixture(scope="module")
def model():
    with limit_threads(1):
        made = make_model(SMALL, "rloo")
        warmstart(made, 0.3, rollouts=512)
    return made


def mean_scores(model):
    """Mean score of each environment over all prompts, by sampling every prompt many times."""
    total = 2 * 64
    prompt = np.repeat(np.arange(total), 60)
    data = collect(model.rows, model.policy, prompt, np.arange(len(prompt)), np.random.default_rng(0))
    return np.array([data.score[data.batch.environment == index].mean() for index in range(2)])


def test_the_exact_gradient_predicts_a_small_step(model):
    """The score changes by the gradient's squared norm times the step."""
    exact = exact_gradients(model, SMALL.environments())
    before = mean_scores(model)
    flat = model.policy.flat_parameters
    step = 0.3 / np.linalg.norm(exact[0])
    direction = torch.from_numpy((step * exact[0]).astype(np.float32))
    with torch.no_grad():
        flat.add_(direction)
    after = exact_gradients(model, SMALL.environments()), mean_scores(model)
    with torch.no_grad():
        flat.sub_(direction)
    predicted = 0.5 * step * (exact[0] + after[0][0]) @ exact[0]
    assert after[1][0] - before[0] == pytest.approx(predicted, rel=0.25)
    assert predicted > 0.02


@pytest.mark.parametrize("scheme", ["reinforce", "rloo"])
def test_unbiased_schemes_estimate_the_exact_gradient(model, scheme):
    """The loss divides by the tokens of the batch, which are as many in every batch here."""
    twin = make_model(SMALL, scheme)
    twin.policy.load_state_dict(model.policy.state_dict(), strict=False)
    exact = exact_gradients(twin, SMALL.environments())
    random = np.random.default_rng(1)
    estimates = []
    for _ in range(60):
        local = np.array([random.choice(64, 16, replace=False) for _ in range(2)])
        prompt = np.repeat((local * 2 + np.arange(2)[:, None]).ravel(), 4)
        data = collect(twin.rows, twin.policy, prompt, random.integers(2**62, size=len(prompt)), random)
        tokens = data.batch.tokens_per_rollout.sum()
        assert tokens == 16 * 4 * (2 * 2 + 3 * 2)
        estimates.append(estimate(twin, data) * tokens / (16 * 4))
    estimates = np.array(estimates)
    directions = [exact[0], exact[1], *random.normal(size=(6, exact.shape[1]))]
    for index in range(2):
        for direction in directions:
            along = estimates[:, index] @ direction
            error = along.std(ddof=1) / np.sqrt(len(along))
            assert abs(along.mean() - exact[index] @ direction) < 4.5 * error


def test_what_is_seen():
    with limit_threads(1):
        even = look("grpo", dataclasses.replace(SMALL, n_prompts=8), n=20)
        uneven = look("rloo", dataclasses.replace(SMALL, n_prompts=8, spread=1000.0), n=20)
    assert sum(even.shares) == pytest.approx(1.0) == sum(even.exact_shares)
    assert 0.2 < even.shares[0] < 0.8 and uneven.shares[0] > 0.9
    assert 0 < even.cosine < even.bias_cosine <= 1 and even.signal_to_noise > 0 and even.n == 20
    assert even.length > 0 and 0 <= even.bias < 0.5 and even.variance > 0
    # The squared norm of the mean is that of its part along the exact gradient, and more.
    assert even.signal_to_noise * even.variance == pytest.approx(1 / even.bias_cosine**2)


def test_several_policies_come_together():
    def one(cosine, share):
        return Seen("grpo", SMALL, cosine, 0.9, 1.0, 0.1, 2.0, 1.0, (share, 1 - share), (0.5, 0.5), 20)

    entry = summarise([one(0.1, 0.2), one(0.5, 0.4), one(0.2, 0.9)])
    assert (entry["cosine"], entry["low"]["cosine"], entry["high"]["cosine"]) == (0.2, 0.1, 0.5)
    assert (entry["shares"], entry["low"]["shares"]) == ([0.4, pytest.approx(0.6)], [0.2, pytest.approx(0.1)])
    assert (entry["policies"], entry["n"], entry["scheme"]) == (3, 20, "grpo")
    assert entry["setting"] == dataclasses.asdict(SMALL)


def test_bad_requests():
    with pytest.raises(ValueError, match="scheme='igpo' is not allowed: it needs"):
        look("igpo", SMALL)
    slipping = [{**member, "slip": 0.1} for member in SMALL.environments()]
    with pytest.raises(ValueError, match="needs plain chains without slips"):
        exact_gradients(make_model(SMALL, "grpo"), slipping)
