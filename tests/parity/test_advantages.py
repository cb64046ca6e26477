"""Our schemes, with the arguments that reproduce a tool's conventions, against what the tool computes.

``reference/`` was made by running verl 0.9.1 and TRL 1.16.0, see the README beside this file. Every stored case
is compared, except for these habits of verl that no setting of ours reproduces:

* With a spread, a group of one gets r / (1 + eps) in ``grpo``, ``grpo_vectorized`` and ``gdpo``; ours keeps r. The
  tests divide that row themselves.
* ``optimal_token_baseline`` aligns tokens by their position, at which the environment's tokens count too; a batch
  does not know those. Left out where there are such tokens (``holes``, ``empty``); its variant
  ``tir_optimal_token_baseline``, which aligns as ours, is compared everywhere.
* The estimators that read rewards token by token drop those at the environment's tokens; ours pass them on to the
  turn before. Our batches are given without them.
"""

import dataclasses
import functools
import json
from pathlib import Path

import numpy as np
import pytest

from algos import RolloutBatch, advantages, make_scheme
from algos.surrogates.kl import from_here_on

REFERENCE = Path(__file__).parent / "reference"

SINGLETON = 3
"""Row of the only group of one in ``ragged``, ``holes`` and ``empty``; ``pairs`` has none."""


@functools.cache
def reference(tool):
    data = dict(np.load(REFERENCE / f"{tool}_advantages.npz"))
    return data, json.loads(str(data["meta"]))["cases"]


VERL = {name: case for name, case in reference("verl")[1].items()}
TRL = {name: case for name, case in reference("trl")[1].items() if not name.startswith("importance.")}


def column(case, name):
    return reference("verl")[0][f"inputs/{case['batch']}/{name}"]


def rollouts(case, returns=None, **columns):
    """One turn per rollout, its tokens in the slots."""
    return RolloutBatch.from_arrays(
        returns=column(case, case["rewards"]).sum(axis=1) if returns is None else returns,
        prompt=column(case, "group"), token_mask=column(case, "mask"), **columns,
    )  # fmt: skip


def tokens_as_turns(case, **columns):
    """Every token of a rollout is a turn; those of the environment are turns without tokens."""
    mask = column(case, "mask").astype(bool)
    # verl drops what the environment's tokens earn.
    rewards = np.where(mask, column(case, case["rewards"]), 0.0)
    return RolloutBatch.from_arrays(
        returns=rewards.sum(axis=1), prompt=column(case, "group"), turn_reward=rewards.ravel(),
        turn_rollout=np.repeat(np.arange(len(mask)), mask.shape[1]), token_mask=mask.reshape(-1, 1), **columns,
    )  # fmt: skip


def assert_equal_in_mask(case, ours, theirs, tolerance):
    mask = column(case, "mask").astype(bool)
    ours = np.broadcast_to(ours.reshape(len(mask), -1), mask.shape)
    np.testing.assert_allclose(ours[mask], theirs[mask], rtol=0, atol=tolerance)


WHITENED = {"whitening": "batch", "whitening_weight": "token", "eps": 1e-8, "eps_placement": "inside"}
"""verl's masked_whiten."""

WHITENED_WITHIN = 2e-9
"""masked_mean divides by the number of tokens plus 1e-8."""

OF_ROLLOUTS = {
    "rloo": "rloo:singleton=raw",
    "rloo_vectorized": "rloo",
    "reinforce_plus_plus_baseline": "reinforce_pp_baseline:singleton=raw",
    "opo": "opo:singleton=raw",
    "gpg": "gpg:singleton=raw",
}


@pytest.mark.parametrize("name", [name for name, case in VERL.items() if case["estimator"] in OF_ROLLOUTS])
def test_verl_outcome_estimators(name):
    case = VERL[name]
    ours = advantages(OF_ROLLOUTS[case["estimator"]], rollouts(case))
    within = WHITENED_WITHIN if case["estimator"].startswith("reinforce") else 1e-12
    assert_equal_in_mask(case, ours, reference("verl")[0][f"{name}/advantages"], within)


@pytest.mark.parametrize("name", [name for name, case in VERL.items() if case["estimator"].startswith("grpo")])
def test_verl_grpo(name):
    case = VERL[name]
    scheme = {"recipe": "grpo", "singleton": "raw", "eps": 1e-6}
    if case["estimator"] == "grpo_passk":
        scheme["baseline_kind"] = "second_best"
    if not case["norm_adv_by_std_in_grpo"]:
        del scheme["eps"]
        scheme["scale"] = "none"
    ours = advantages(scheme, rollouts(case))
    if case["batch"] != "pairs" and case["norm_adv_by_std_in_grpo"]:
        ours[SINGLETON] /= 1.0 + 1e-6  # verl's habit, see above.
    theirs = reference("verl")[0][f"{name}/advantages"]
    assert_equal_in_mask(case, ours, theirs, 1e-6 if case["estimator"] == "grpo_vectorized" else 1e-12)


@pytest.mark.parametrize("name", [name for name, case in VERL.items() if case["estimator"] == "reinforce_plus_plus"])
def test_verl_reinforce_plus_plus(name):
    case, data = VERL[name], reference("verl")[0]
    scheme = make_scheme("reinforce_pp", signal="return_to_go", gamma=case["gamma"])
    batch = tokens_as_turns(case)
    assert_equal_in_mask(case, advantages(scheme, batch), data[f"{name}/advantages"], WHITENED_WITHIN)
    raw = advantages(make_scheme(scheme, whitening="none"), batch)
    assert_equal_in_mask(case, raw, data[f"{name}/returns"], 1e-12)


UNDISCOUNTED = [n for n, c in VERL.items() if c["estimator"] == "reinforce_plus_plus" and c["gamma"] == 1.0]


@pytest.mark.parametrize("name", UNDISCOUNTED)
def test_penalties_of_the_following_tokens_are_verls_returns(name):
    """verl takes a KL from the rewards of tokens, here all they are, and sums what follows."""
    case, data = VERL[name], reference("verl")[0]
    mask = column(case, "mask").astype(bool)
    penalty = -np.where(mask, column(case, case["rewards"]), 0.0)
    batch = RolloutBatch.from_arrays(returns=np.zeros(len(mask)), prompt=column(case, "group"), token_mask=mask)
    batch = dataclasses.replace(batch, token_penalty=from_here_on(batch, penalty))
    assert_equal_in_mask(case, advantages("reinforce_pp", batch), data[f"{name}/advantages"], WHITENED_WITHIN)


@pytest.mark.parametrize("name", [name for name, case in VERL.items() if case["estimator"] == "remax"])
def test_verl_remax(name):
    case, data = VERL[name], reference("verl")[0]
    batch = tokens_as_turns(case, greedy_return=column(case, "reward_baseline"))
    scheme = make_scheme("remax", signal="return_to_go", gamma=1.0)
    assert_equal_in_mask(case, advantages(scheme, batch), data[f"{name}/advantages"], 1e-12)


@pytest.mark.parametrize("name", [name for name, case in VERL.items() if case["estimator"] == "gae"])
def test_verl_gae(name):
    case, data = VERL[name], reference("verl")[0]
    scheme = make_scheme("ppo", gamma=case["gamma"], gae_lambda=case["lam"], **WHITENED)
    batch = tokens_as_turns(case, value=column(case, "value").ravel())
    assert_equal_in_mask(case, advantages(scheme, batch), data[f"{name}/advantages"], WHITENED_WITHIN)
    target = advantages(make_scheme(scheme, whitening="none"), batch) + batch.value
    assert_equal_in_mask(case, target, data[f"{name}/returns"], 1e-12)


def knows_the_positions(case):
    return case["estimator"].startswith("tir") or case["batch"] in ("ragged", "pairs")


OTB = [n for n, c in VERL.items() if c["estimator"].endswith("optimal_token_baseline") and knows_the_positions(c)]


@pytest.mark.parametrize("name", OTB)
def test_verl_optimal_token_baseline(name):
    case, data = VERL[name], reference("verl")[0]
    old, squares = column(case, "old_log_prob"), column(case, "sum_pi_squared")
    if case["weighted"]:
        # The weight enters nowhere but in this norm.
        p = np.exp(old)
        squares = (1.0 - 2.0 * p + squares) * column(case, "is_weight") ** 2 - 1.0 + 2.0 * p
    batch = tokens_as_turns(case, log_prob=old.reshape(-1, 1), probability_square=squares.reshape(-1, 1))
    ours = advantages(make_scheme("otb", zero_tail=case["handle_zero_tail"]), batch)
    # verl adds 1e-8 to the sum of the weights.
    assert_equal_in_mask(case, ours, data[f"{name}/advantages"], 2e-7)


@pytest.mark.parametrize("name", [name for name, case in VERL.items() if case["estimator"] == "gdpo"])
def test_verl_gdpo(name):
    case = VERL[name]
    weights = case["gdpo_reward_weights"]
    scheme = {"recipe": "gdpo", "whitening": "none", "singleton": "raw", "component_weights": weights}
    if not case["norm_adv_by_std_in_grpo"]:
        scheme["scale"] = "none"
    components = column(case, "components")
    batch = rollouts(case, components.sum(axis=1), components=components)
    joined = advantages(scheme, batch)
    if case["batch"] != "pairs" and case["norm_adv_by_std_in_grpo"]:
        joined[SINGLETON] /= 1.0 + 1e-6  # verl's habit, see above.
    # The two steps have an eps of their own, in places of their own.
    ours = advantages(make_scheme("reinforce", **WHITENED), rollouts(case, joined))
    assert_equal_in_mask(case, ours, reference("verl")[0][f"{name}/advantages"], 1e-6)  # float32


@pytest.mark.filterwarnings("ignore:returns. no rollout")
@pytest.mark.parametrize("name", TRL)
def test_trl(name):
    data, case = reference("trl")[0], TRL[name]
    values = data[f"inputs/{case['rewards']}/rewards"]
    scheme = {"recipe": "weighted_sum", "eps": 1e-4, "component_weights": tuple(case["reward_weights"])}
    if case["multi_objective_aggregation"] == "normalize_then_sum":
        scheme["recipe"] = "gdpo"
    else:
        scheme["scale"] = case["scale_rewards"]
    if case["scale_rewards"] == "none":
        del scheme["eps"]
    returns = np.where(np.isnan(values).all(axis=1), np.nan, 0.0)
    group = np.arange(len(values)) // case["num_generations"]
    batch = RolloutBatch.from_arrays(returns=returns, prompt=group, components=values)
    np.testing.assert_allclose(advantages(scheme, batch), data[f"{name}/advantages"], rtol=0, atol=1e-12)


def test_every_other_case_is_compared():
    estimators = {"grpo", "grpo_vectorized", "grpo_passk", "reinforce_plus_plus", "remax", "gae", "gdpo", *OF_ROLLOUTS}
    left = {name for name, case in VERL.items() if case["estimator"] not in estimators and name not in OTB}
    assert {(VERL[name]["estimator"], VERL[name]["batch"]) for name in left} == {
        ("optimal_token_baseline", "holes"), ("optimal_token_baseline", "empty"),
    }  # fmt: skip
