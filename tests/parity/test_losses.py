"""Losses, aggregation, KL and corrections against stored numbers of verl and TRL, in value and gradient."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from algos import RolloutBatch, make_scheme, policy_loss
from algos.parts import find
from algos.surrogates.aggregation import token_weights
from algos.surrogates.kl import kl_penalty
from algos.surrogates.tokens import Tokens

REFERENCE = Path(__file__).parent / "reference"
NAMES = ("verl_losses", "verl_parts", "trl_losses", "trl_advantages")
STORES = {name: dict(np.load(REFERENCE / f"{name}.npz")) for name in NAMES}
CASES = {name: json.loads(str(store["meta"]))["cases"] for name, store in STORES.items()}
CLOSE = {"rtol": 0, "atol": 1e-6}

EXCLUDED = {
    # TRL's log W of VESPO also holds the sampler's ratio at masked tokens, unless its old policy is the
    # sampler; with a filter and a KL term on top, there is no one old policy that gives all of them.
    "vespo.token.empty.far.rollout.together",
    "vespo.sequence.empty.far.rollout.together",
}
"""Cases of trl_losses that no setting reproduces."""


def columns(store, batch):
    prefix = f"inputs/{batch}/"
    return {name.removeprefix(prefix): STORES[store][name] for name in STORES[store] if name.startswith(prefix)}


def batch_of(content, mask=None, **more):
    mask = content["mask"].astype(bool) if mask is None else mask
    n = len(mask)
    return RolloutBatch.from_arrays(
        returns=np.zeros(n), prompt=np.zeros(n, int), token_mask=mask, max_tokens=mask.shape[1], **more
    )


def outcome(scheme, content, policy, advantage, old="old_log_prob", batch=None, **others):
    """Return our loss and its gradient to the log-probabilities; ``others`` are (n, L) arrays."""
    new = torch.tensor(content[f"log_prob_{policy}"], requires_grad=True)
    old = torch.tensor(content[old] if isinstance(old, str) else old)
    others = {name: torch.tensor(value) for name, value in others.items()}
    loss, _ = policy_loss(scheme, new, old, advantage, batch_of(content) if batch is None else batch, **others)
    return loss.item(), torch.autograd.grad(loss, new)[0].numpy()


def compare(store, case, loss, gradient):
    for ours, name in ((loss, "loss"), (gradient, "grad")):
        theirs = STORES[store][f"{case}/{name}"]
        # Where ratios are not cut, numbers go to 1e9; the tools' own 1e-8 next to lengths shows there.
        difference = np.abs(ours - theirs).max() / max(1.0, np.abs(theirs).max())
        assert difference < 1e-6, f"{case}: {name} differs by {difference}."


# verl's losses.

UNCUT = {"max_log_ratio": 80.0}


def verl_scheme(s):
    """Our fields for verl's settings of a policy loss."""
    if "clip_ratio_low" in s:
        clip = {"clip_low": s["clip_ratio_low"], "clip_high": s["clip_ratio_high"]}
    return {
        "vanilla": lambda: {**clip, "dual_clip": s["clip_ratio_c"]},
        "dppo_tv": lambda: {"surrogate": "dppo_tv", **clip, "truncation": s["clip_ratio_c"]},
        "dppo_kl": lambda: {"surrogate": "dppo_kl", **clip, "truncation": s["clip_ratio_c"]},
        "gspo": lambda: {"ratio": "rollout_mean", "gradient": "own", "max_log_ratio": 10.0, **clip},
        "sapo": lambda: {"surrogate": "sapo", "tau_positive": s["tau_pos"], "tau_negative": s["tau_neg"]},
        "gpg": lambda: {"surrogate": "reinforce"},
        "clip_cov": lambda: {
            "surrogate": "clip_cov", **clip, **UNCUT, "cov_share": s["clip_cov_ratio"], "cov_low": s["clip_cov_lb"],
            "cov_high": s["clip_cov_ub"],
        },
        "kl_cov": lambda: {
            "surrogate": "kl_cov", **UNCUT, "kl_cov_share": s["kl_cov_ratio"], "kl_cov_coef": s["ppo_kl_coef"]
        },
        "geo_mean": lambda: {"surrogate": "gmpo", **clip, **UNCUT},
        "dro": lambda: {"surrogate": "dro", "dro_beta": s["dro_beta"]},
        "cispo": lambda: {"surrogate": "cispo", **clip},
    }[s["loss"]]()  # fmt: skip


def verl_aggregation(mode, mask, info):
    """Our aggregation for verl's mode, and the factor between its denominator and ours."""
    rollouts, tokens = int(mask.any(axis=1).sum()), int(mask.sum())
    wide = info.get("dp_size", 1) * rollouts / info.get("global_batch_size", rollouts)
    constant = info.get("loss_scale_factor", mask.shape[1])
    return {
        "token-mean": (
            {"aggregation": "token_mean"}, info.get("dp_size", 1) * tokens / info.get("batch_num_tokens", tokens)
        ),
        "token-sum": ({"aggregation": "plain_sum"}, info.get("dp_size", 1)),
        "seq-mean-token-mean": ({"aggregation": "rollout_mean"}, wide),
        "seq-mean-token-sum": ({"aggregation": "token_sum"}, wide),
        "seq-mean-token-sum-norm": ({"aggregation": "constant", "aggregation_constant": float(constant)}, wide),
    }[mode]  # fmt: skip


def verl_advantage(content, level):
    return content["advantage" if level == "rollout" else "advantage_token"]


@pytest.mark.parametrize("case", [case for case, s in CASES["verl_losses"].items() if s["loss"] != "bypass_mode"])
def test_verl_losses(case):
    s = CASES["verl_losses"][case]
    content = columns("verl_losses", s["batch"])
    mode = {"sapo": "seq-mean-token-mean"}.get(s["loss"], s["loss_agg_mode"])
    aggregation, factor = verl_aggregation(mode, content["mask"].astype(bool), s["global_batch_info"])
    if s["loss"] == "geo_mean":
        aggregation, factor = {"aggregation": "rollout_mean", "empty": "counted"}, 1.0
    fields, others = verl_scheme(s), {}
    if s["weighted"]:
        of_rollout = {"correction": "tis_rollout", "weight_of": "mean"}
        fields |= {**(of_rollout if s["loss"] == "geo_mean" else {"correction": "tis"}), "weight_max": 1e9}
        others["behaviour_log_prob"] = content["old_log_prob"] - np.log(content["is_weight"])
    scheme = make_scheme("grpo", **fields, **aggregation)
    advantage = verl_advantage(content, s["advantage"])
    loss, gradient = outcome(scheme, content, s["log_prob"], advantage, **others)
    compare("verl_losses", case, factor * loss, factor * gradient)


@pytest.mark.parametrize("case", [case for case, s in CASES["verl_losses"].items() if s["loss"] == "bypass_mode"])
def test_verl_corrects_for_the_sampler_itself(case):
    s = CASES["verl_losses"][case]
    content = columns("verl_losses", s["batch"])
    mask = content["mask"].astype(bool)
    new, sampler = content[f"log_prob_{s['log_prob']}"], content["rollout_log_prob"]
    if s["rollout_rs"]:
        # verl takes the rejected tokens out of the mask, and so of its denominators.
        mask &= rejected(s["rollout_rs"], s["rollout_rs_threshold"], mask, new, sampler)
    aggregation, factor = verl_aggregation(s["loss_agg_mode"], mask, {})
    if s["loss_type"] == "reinforce":
        scheme = make_scheme("grpo", surrogate="reinforce", **aggregation, **weighting(s))
        old, others = new, {} if s["rollout_is"] is None else {"behaviour_log_prob": sampler}
    else:
        scheme, old, others = make_scheme("grpo", dual_clip=3.0, **aggregation), sampler, {}
    loss, gradient = outcome(
        scheme, content, s["log_prob"], content["advantage"], old, batch_of(content, mask), **others
    )
    compare("verl_losses", case, factor * loss, factor * gradient)


def weighting(s):
    """Our correction for verl's settings of importance weights."""
    if s["rollout_is"] is None:
        return {}
    threshold, normalise = s["rollout_is_threshold"], s.get("rollout_is_batch_normalize", False)
    if isinstance(threshold, str):
        low, high = map(float, threshold.split("_"))
        level = {"token": "token", "sequence": "rollout"}[s["rollout_is"]]
        return {
            "correction": "icepop", "level": level, "weight_min": low, "weight_max": high, "normalise": normalise
        }  # fmt: skip
    name = {"token": "tis", "sequence": "tis_rollout"}[s["rollout_is"]]
    return {"correction": name, "weight_max": float(threshold), "normalise": normalise}


def run_correction(fields, mask, old, behaviour):
    tokens = Tokens(
        torch.tensor(old), torch.tensor(old), torch.zeros(len(mask), 1), torch.tensor(mask),
        torch.arange(len(mask)), len(mask), torch.tensor(behaviour),
    )  # fmt: skip
    scheme = make_scheme("grpo", **fields)
    return scheme.run("correction", tokens).expand(mask.shape).numpy()


def rejected(criteria, threshold, mask, old, behaviour):
    """What our ``rejection`` keeps, for a comma list of verl's criteria."""
    keep = np.ones_like(mask)
    for name, limit in zip(criteria.split(","), str(threshold).split(","), strict=True):
        over, measure = name.rsplit("_", 1)
        fields = {"correction": "rejection", "over": over.removeprefix("seq_"), "measure": measure}
        if measure == "k1":
            # verl's limits are of the inverse weight.
            low, high = map(float, limit.split("_")) if "_" in limit else (1 / float(limit), float(limit))
            fields |= {"weight_min": 1 / high, "weight_max": 1 / low}
        else:
            fields["measure_max"] = float(limit)
        keep &= run_correction(fields, mask, old, behaviour).astype(bool)
    return keep


# verl's parts.


def of(function):
    return [case for case in CASES["verl_parts"] if case.startswith(function)]


@pytest.mark.parametrize("case", of("agg_loss"))
def test_verl_aggregation(case):
    s = CASES["verl_parts"][case]
    content = columns("verl_parts", s["batch"])
    mask = content["mask"].astype(bool)
    aggregation, factor = verl_aggregation(s["loss_agg_mode"], mask, s)
    weights = factor * token_weights(make_scheme("grpo", **aggregation), batch_of(content))
    loss = (weights * np.where(mask, content["advantage_token"], 0.0)).sum()
    compare("verl_parts", case, loss, weights)


KL_PARTS = {"kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}


@pytest.mark.parametrize("case", of("kl_penalty"))
def test_verl_kl(case):
    s = CASES["verl_parts"][case]
    content = columns("verl_parts", s["batch"])
    mask = content["mask"].astype(bool)
    name = KL_PARTS[s["kl_penalty"].removesuffix("+")]
    straight = s["kl_penalty"].endswith("+")
    new = torch.tensor(content[f"log_prob_{s['log_prob']}"], requires_grad=True)
    reference = torch.tensor(content["reference_log_prob"])

    def ours(part):
        if not part.startswith("k3"):
            return kl_penalty(part, new, reference)
        tokens = Tokens(new, new, new, torch.tensor(mask), reference_log_prob=reference)
        return find("kl", part).function(None, tokens, penalty_cap=10.0)

    # Of the other forms with a plus, the value is that of the form and the gradient that of k2.
    value = ours("k3_k2" if straight and name == "k3" else name)
    slope = value if not straight or name == "k3" else ours("k2")
    np.testing.assert_allclose(value.detach(), STORES["verl_parts"][f"{case}/value"], **CLOSE)
    gradient = torch.autograd.grad(slope.sum(), new)[0]
    np.testing.assert_allclose(gradient, STORES["verl_parts"][f"{case}/grad"], **CLOSE)


@pytest.mark.parametrize("case", of("weights"))
def test_verl_weights(case):
    s = CASES["verl_parts"][case]
    content = columns("verl_parts", s["batch"])
    mask = content["mask"].astype(bool)
    weights = run_correction(weighting(s), mask, content["old_log_prob"], content["rollout_log_prob"])
    np.testing.assert_allclose(weights[mask], STORES["verl_parts"][f"{case}/weights"][mask], rtol=1e-7)


@pytest.mark.parametrize("case", of("rejection"))
def test_verl_rejection(case):
    s = CASES["verl_parts"][case]
    content = columns("verl_parts", s["batch"])
    mask = content["mask"].astype(bool)
    keep = rejected(
        s["rollout_rs"], s["rollout_rs_threshold"], mask, content["old_log_prob"], content["rollout_log_prob"]
    )
    np.testing.assert_array_equal(keep & mask, STORES["verl_parts"][f"{case}/mask"].astype(bool))


# TRL's losses.


def trl_scheme(s):
    """Our fields for TRL's settings, without filters, correction and KL."""
    loss, high = s["loss_type"], s["epsilon"] if s["epsilon_high"] is None else s["epsilon_high"]
    clip = {"clip_low": s["epsilon"], "clip_high": high, "ratio_cap": s["delta"]}
    level = {"ratio": "token" if s["importance_sampling_level"] == "token" else "rollout_mean", **UNCUT}
    if loss == "vespo":
        names = {"power_positive": "k_pos", "decay_positive": "lambda_pos", "power_negative": "k_neg"}
        names["decay_negative"] = "lambda_neg"
        # Its weight does not depend on the level, only a corrected KL does.
        level = level if s["beta"] and s["use_bias_correction_kl"] else {}
        form = {"surrogate": "vespo", **{ours: s[f"vespo_{theirs}"] for ours, theirs in names.items()}}
    elif loss == "sapo":
        taus = {"tau_positive": s["sapo_temperature_pos"], "tau_negative": s["sapo_temperature_neg"]}
        form = {"surrogate": "sapo", **taus}
    elif loss == "cispo":
        form = {"surrogate": "cispo", "bounds": "absolute", "ratio_max": high}
    else:
        form = clip
    return {**form, **level}


def trl_aggregation(s, mask):
    loss, steps = s["loss_type"], s["gradient_accumulation_steps"]
    if loss in ("dapo", "cispo", "vespo"):
        items = s["num_items_in_batch"] * steps / s["steps_per_generation"]
        return {"aggregation": "token_mean"}, mask.sum() / items
    if loss == "bnpo":
        return {"aggregation": "token_mean"}, 1 / steps
    if loss == "dr_grpo":
        constant = float(s["max_completion_length"])
        return {"aggregation": "constant", "aggregation_constant": constant, "empty": "counted"}, 1 / steps
    return {"aggregation": "token_sum" if loss == "luspo" else "rollout_mean", "empty": "counted"}, 1 / steps


@pytest.mark.parametrize("case", [case for case in CASES["trl_losses"] if case not in EXCLUDED])
def test_trl_losses(case):
    s = CASES["trl_losses"][case]
    content = columns("trl_losses", s["batch"])
    mask, old = content["mask"].astype(bool), content["old_log_prob"]
    advantage = verl_advantage(content, s["advantage"])
    fields, factor = trl_aggregation(s, mask)
    fields |= trl_scheme(s)
    others, batch, bonus = {}, batch_of(content, entropy=content["entropy"]), 0.0
    share, drift = s["top_entropy_quantile"], s["off_policy_mask_threshold"]
    if share < 1.0:
        fields |= {"token_filter": "top_entropy", "entropy_share": share}
    elif drift is not None:
        fields |= {"token_filter": "off_policy", "drift_max": drift}
    if share < 1.0 and drift is not None:
        # Two filters: every loss is a multiple of the advantage, so the second one can go there.
        keep = find("token_filter", "off_policy").function
        new = torch.tensor(content[f"log_prob_{s['log_prob']}"])
        tensors = map(torch.tensor, (old, advantage[:, None], mask))
        tokens = Tokens(new, *tensors, torch.arange(len(mask)), len(mask))
        advantage = advantage * keep(None, tokens, None, drift_max=drift)[:, 0].numpy()
        top = find("token_filter", "top_entropy").prepare(make_scheme("grpo"), batch, None, entropy_share=share)
        kept = top["top_entropy"] > 0
        bonus = s["entropy_coef"] * content["entropy"][kept].mean() / s["gradient_accumulation_steps"]
    if s["ratio"] is not None:
        weight = content["is_weight"] if s["ratio"] == "token" else content["is_weight"][:, :1]
        if s["loss_type"] == "vespo":
            # Its old policy is then the sampler; what the tool adds at masked tokens goes to the first one.
            first = np.zeros_like(mask)
            first[np.arange(len(mask)), mask.argmax(axis=1)] = True
            outside = np.where(mask, 0.0, np.log(weight)).sum(axis=1, keepdims=True)
            old = old - np.log(weight) - first * outside
        else:
            fields |= {"correction": "tis", "weight_max": 1e9}
            others["behaviour_log_prob"] = old - np.log(weight)
    if s["beta"]:
        fields |= {"kl": "k3_corrected" if s["use_bias_correction_kl"] else "k3", "kl_coef": s["beta"]}
        others["reference_log_prob"] = content["reference_log_prob"]
    loss, gradient = outcome(make_scheme("grpo", **fields), content, s["log_prob"], advantage, old, batch, **others)
    compare("trl_losses", case, factor * loss - bonus, factor * gradient)


@pytest.mark.parametrize("case", [case for case in CASES["trl_advantages"] if case.startswith("importance")])
def test_trl_importance_ratios(case):
    s = CASES["trl_advantages"][case]
    content = columns("trl_advantages", s["batch"])
    mask = content["mask"].astype(bool)
    level, kind = s["vllm_importance_sampling_mode"].split("_")
    name = {"token": "tis", "sequence": "tis_rollout"}[level] if kind == "truncate" else "icepop"
    fields = {"correction": name, "weight_min": s["clip_min"] or 0.0, "weight_max": s["clip_max"]}
    if kind == "mask":
        fields["level"] = {"token": "token", "sequence": "rollout"}[level]
    weights = run_correction(fields, mask, content["old_log_prob"], content["rollout_log_prob"])
    expected = np.broadcast_to(STORES["trl_advantages"][f"{case}/ratio"], mask.shape)
    np.testing.assert_allclose(weights[mask], expected[mask], rtol=1e-7)
