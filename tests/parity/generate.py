"""Make the reference numbers of the parity tests by running verl and TRL themselves.

Run by hand, in an environment of its own (see README.md beside this file)::

    python tests/parity/generate.py          # everything
    python tests/parity/generate.py verl     # one tool
    python tests/parity/generate.py trl

Everything runs in float64 on the CPU with fixed seeds. Nothing of the tools is re-implemented here:
verl's registered functions and TRL's own ``GRPOTrainer`` methods are called on made-up batches, and
their inputs, settings and outputs are stored in ``reference/*.npz``.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import logging
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

SEED = 20260
FOLDER = Path(__file__).parent / "reference"
Batch = dict[str, np.ndarray]

MODES = ("token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
"""verl's loss_agg_mode."""
WIDTH = 12
"""Padded length of a response; the longest response is shorter, so that the two can be told apart."""


# ------------------------------------------------------------------------------------------ batches


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def make_batch(
    seed: int, group: list[int], length: list[int], reward: list[float], holes: bool = False, empty: int | None = None
) -> Batch:
    """Return one batch of random rollouts.

    Args:
        seed: of this batch.
        group: (B,) prompt of each rollout.
        length: (B,) number of tokens of each response, environment tokens included.
        reward: (B,) outcome, multiples of 1/8: exact in float32, in which some of the tools compute.
        holes: whether some tokens inside a response are the environment's, hence masked out.
        empty: a rollout without any token in the mask.
    """
    rng = np.random.default_rng([SEED, seed])
    n = len(group)
    attention = np.arange(WIDTH)[None] < np.array(length)[:, None]
    mask = attention & (rng.random((n, WIDTH)) > 0.35) if holes else attention.copy()
    mask[np.arange(n), np.array(length) - 1] |= mask.sum(1) < 2
    mask[:, 0] |= mask.sum(1) < 2
    mask[:, 0] &= attention[:, 0]
    if empty is not None:
        mask[empty] = False
    # Everything is filled outside the mask, too: what is masked must not matter.
    old = rng.normal(0.5, 1.5, (n, WIDTH))
    old_log_prob = np.log(sigmoid(old))
    dense = rng.integers(-8, 9, (n, WIDTH)) / 8.0
    outcome = np.array(reward)
    terminal = np.zeros((n, WIDTH))
    last = np.where(mask.any(1), WIDTH - 1 - np.argmax(mask[:, ::-1], axis=1), 0)
    terminal[np.arange(n), last] = outcome
    advantage = np.round(rng.normal(0.0, 1.2, n), 3)
    advantage[n // 2] = 0.0
    probability = np.exp(old_log_prob)
    return {
        "group": np.array(group),
        "mask": mask.astype(np.int8),
        "attention": attention.astype(np.int8),
        "reward": outcome,
        "terminal_rewards": terminal,
        "dense_rewards": dense * mask,
        "dense_rewards_everywhere": dense * attention,
        "reward_baseline": rng.integers(-8, 9, n) / 8.0,
        "value": np.round(rng.normal(0.0, 1.0, (n, WIDTH)), 3),
        "old_log_prob": old_log_prob,
        "log_prob_near": np.log(sigmoid(old + rng.normal(0.0, 0.5, (n, WIDTH)))),
        "log_prob_far": np.log(sigmoid(old + rng.normal(0.0, 2.5, (n, WIDTH)))),
        "rollout_log_prob": np.log(sigmoid(old + rng.normal(0.0, 0.6, (n, WIDTH)))),
        "reference_log_prob": np.log(sigmoid(old + rng.normal(0.0, 1.0, (n, WIDTH)))),
        "advantage": advantage,
        "advantage_token": np.round(rng.normal(0.0, 1.0, (n, WIDTH)), 3),
        "entropy": rng.random((n, WIDTH), dtype=np.float32).astype(np.float64) * 2.0,
        "sum_pi_squared": probability**2 + (1.0 - probability) ** 2 * rng.random((n, WIDTH)),
        "is_weight": np.round(rng.uniform(0.2, 2.0, (n, WIDTH)), 3),
    }


def make_batches() -> dict[str, Batch]:
    """Return the batches: groups of unequal size, in mixed order, with ragged lengths.

    ``ragged``, ``holes``, ``empty`` and ``extreme`` have groups 0 (4 rollouts), 1 (3), 2 (one alone) and
    3 (3, equal rewards). ``pairs`` has no group of one, and a tie at the top of group 1.
    """
    group = [0, 1, 0, 2, 3, 0, 1, 3, 0, 1, 3]
    length = [10, 6, 7, 4, 3, 5, 9, 8, 7, 9, 1]
    reward = [1.0, 2.0, 0.0, 0.75, 0.5, 0.25, 0.0, 0.5, -0.5, 1.25, 0.5]
    batches = {
        "ragged": make_batch(1, group, length, reward),
        "holes": make_batch(2, group, [10, 8, 9, 6, 7, 10, 9, 8, 5, 9, 4], reward, holes=True),
        "empty": make_batch(3, group, [10, 8, 9, 6, 7, 10, 9, 8, 5, 9, 4], reward, holes=True, empty=2),
        "pairs": make_batch(
            4,
            [0, 1, 2, 1, 2, 0, 3, 2, 1, 3, 2],
            [10, 4, 6, 9, 3, 8, 2, 7, 5, 6, 1],
            [1.0, 0.75, 0.25, 0.75, 2.0, 0.0, 0.5, -0.5, 0.0, 0.5, 1.75],
        ),
        "extreme": make_batch(5, group, length, reward),
    }
    # Log-ratios beyond +-20, where verl cuts them, for both signs of the advantage; the last one is a whole response.
    extreme = batches["extreme"]
    for row, column, up in ((0, 1, True), (1, 2, False), (6, 3, True), (8, 4, False), (10, 0, True)):
        low, high = -22.0 - row / 4, -0.25 - column / 16
        extreme["old_log_prob"][row, column] = low if up else high
        extreme["log_prob_far"][row, column] = high if up else low
        extreme["reference_log_prob"][row, column] = low if up else high
        extreme["rollout_log_prob"][row, column] = high if up else low
    extreme["advantage"][[0, 1, 6, 8, 10]] = [0.75, -0.5, -1.25, 0.625, -0.875]
    return batches


class Store:
    """Arrays and settings of one file of reference numbers."""

    def __init__(self, name: str, packages: tuple[str, ...], batches: dict[str, Batch], columns: tuple[str, ...]):
        """Start with the batches' columns."""
        self.name = name
        self.arrays: dict[str, np.ndarray] = {}
        self.cases: dict[str, dict[str, Any]] = {}
        self.versions = {package: importlib.metadata.version(package) for package in (*packages, "torch", "numpy")}
        for batch, content in batches.items():
            for column in columns:
                self.arrays[f"inputs/{batch}/{column}"] = content[column]

    def add(self, case: str, settings: dict[str, Any], **arrays: torch.Tensor | np.ndarray | float) -> None:
        """Add one case: its settings (must be JSON) and its arrays."""
        if case in self.cases:
            raise ValueError(f"case={case!r} is there already.")
        self.cases[case] = settings
        for name, array in arrays.items():
            value = array.detach().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)
            if not np.isfinite(value).all():
                warnings.warn(f"{case}/{name} has values that are not finite.", stacklevel=2)
            self.arrays[f"{case}/{name}"] = value

    def write(self) -> None:
        """Write ``reference/<name>.npz``."""
        meta = {"versions": self.versions, "seed": SEED, "cases": self.cases}
        FOLDER.mkdir(exist_ok=True)
        path = FOLDER / f"{self.name}.npz"
        np.savez_compressed(path, meta=np.array(json.dumps(meta)), **self.arrays)
        print(f"{path.name}: {len(self.cases)} cases, {path.stat().st_size / 1024:.0f} KiB")


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array, dtype=torch.float64)


def value_and_gradient(loss: torch.Tensor, leaf: torch.Tensor) -> dict[str, torch.Tensor]:
    (gradient,) = torch.autograd.grad(loss, leaf, allow_unused=True)
    return {"loss": loss, "grad": torch.zeros_like(leaf) if gradient is None else gradient}


# --------------------------------------------------------------------------------- verl: advantages


def verl_advantages(batches: dict[str, Batch]) -> None:
    """Call every registered advantage estimator."""
    columns = (
        "group", "mask", "attention", "reward", "terminal_rewards", "dense_rewards", "dense_rewards_everywhere",
        "reward_baseline", "value", "old_log_prob", "sum_pi_squared", "is_weight",
    )  # fmt: skip
    chosen = {name: batches[name] for name in ("ragged", "holes", "empty", "pairs")}
    store = Store("verl_advantages", ("verl",), chosen, columns)
    for name, batch in chosen.items():
        verl_outcome_advantages(store, name, batch)
        verl_token_advantages(store, name, batch)
        verl_gdpo(store, name, batch)
    store.write()


def verl_estimate(
    store: Store, case: str, batch: str, estimator: str, rewards: str, content: Batch, algorithm: dict, **arguments: Any
) -> None:
    """Call an estimator and store what it returns; ``algorithm`` are the fields of verl's AlgoConfig."""
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    tensors = {name: tensor(value) for name, value in arguments.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in arguments.items() if name not in tensors}
    if "index" in tensors:
        tensors["index"] = arguments["index"]
    config = {} if estimator in ("gae",) else {"config": AlgoConfig(**algorithm)}
    advantages, returns = get_adv_estimator_fn(estimator)(
        token_level_rewards=tensor(content[rewards]),
        response_mask=tensor(content["mask"]),
        **config,
        **tensors,
        **plain,
    )
    settings = {"estimator": estimator, "batch": batch, "rewards": rewards, **algorithm, **plain}
    if "old_log_probs" in arguments:
        settings["weighted"] = "rollout_is_weights" in arguments
    outputs = {"advantages": advantages}
    if not torch.equal(advantages, returns):
        outputs["returns"] = returns
    store.add(f"{case}.{batch}", settings, **outputs)


def verl_outcome_advantages(store: Store, name: str, batch: Batch) -> None:
    """Estimators with one advantage per rollout."""
    index = batch["group"]
    terminal = "terminal_rewards"
    for estimator in ("grpo", "grpo_vectorized"):
        for by_std in (True, False):
            case = estimator if by_std else f"{estimator}_no_std"
            options = {"norm_adv_by_std_in_grpo": by_std, "epsilon": 1e-6}
            verl_estimate(store, case, name, estimator, terminal, batch, {}, index=index, **options)
    for estimator in ("rloo", "rloo_vectorized", "reinforce_plus_plus_baseline", "opo", "gpg"):
        verl_estimate(store, estimator, name, estimator, terminal, batch, {}, index=index)
    if name == "pairs":
        for by_std in (True, False):
            case = "grpo_passk" if by_std else "grpo_passk_no_std"
            algorithm = {"norm_adv_by_std_in_grpo": by_std}
            verl_estimate(store, case, name, "grpo_passk", terminal, batch, algorithm, index=index, epsilon=1e-6)


def verl_token_advantages(store: Store, name: str, batch: Batch) -> None:
    """Estimators with one advantage per token."""
    index, old, squares = batch["group"], batch["old_log_prob"], batch["sum_pi_squared"]
    for kind in ("terminal_rewards", "dense_rewards", "dense_rewards_everywhere"):
        short = kind.replace("_rewards", "")
        for gamma in (1.0, 0.9):
            case = f"reinforce_plus_plus.{short}.gamma{gamma}"
            verl_estimate(store, case, name, "reinforce_plus_plus", kind, batch, {"gamma": gamma})
        baselines = {"reward_baselines": batch["reward_baseline"]}
        verl_estimate(store, f"remax.{short}", name, "remax", kind, batch, {}, **baselines)
        for gamma, lam in ((1.0, 1.0), (0.95, 0.9)):
            options = {"gamma": gamma, "lam": lam, "values": batch["value"]}
            verl_estimate(store, f"gae.{short}.gamma{gamma}", name, "gae", kind, batch, {}, **options)
    for estimator in ("optimal_token_baseline", "tir_optimal_token_baseline"):
        for kind in ("terminal_rewards", "dense_rewards"):
            for zero_tail in (True, False):
                for weighted in (False, True):
                    short = kind.replace("_rewards", "")
                    case = f"{estimator}.{short}{'.zero_tail' if zero_tail else ''}{'.weighted' if weighted else ''}"
                    options = {"handle_zero_tail": zero_tail, "epsilon": 1e-8}
                    arrays = {"index": index, "old_log_probs": old, "sum_pi_squared": squares}
                    if weighted:
                        arrays["rollout_is_weights"] = batch["is_weight"]
                    verl_estimate(store, case, name, estimator, kind, batch, {}, **arrays, **options)


def verl_gdpo(store: Store, name: str, batch: Batch) -> None:
    """GDPO on three components; its group statistics are float32 inside."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    rng = np.random.default_rng([SEED, 100, ("ragged", "holes", "empty", "pairs").index(name)])
    n = len(batch["group"])
    components = np.stack(
        [batch["reward"], rng.integers(0, 2, n).astype(np.float64), rng.integers(-24, 25, n) / 8.0], axis=1
    )
    components[batch["group"] == 0, 1] = 1.0
    store.arrays[f"inputs/{name}/components"] = components
    attention = torch.tensor(np.concatenate([np.ones((n, 2)), batch["attention"]], axis=1), dtype=torch.int64)
    keys = ["first", "second", "third"]
    for weights in (None, [1.0, 0.5, 2.0]):
        for by_std in (True, False):
            config = OmegaConf.create({"gdpo_reward_keys": keys, "gdpo_reward_weights": weights})
            advantages, _ = get_adv_estimator_fn("gdpo")(
                token_level_rewards=tensor(batch["terminal_rewards"]),
                response_mask=tensor(batch["mask"]),
                index=batch["group"],
                epsilon=1e-6,
                norm_adv_by_std_in_grpo=by_std,
                config=config,
                non_tensor_batch={key: components[:, i] for i, key in enumerate(keys)},
                batch={"prompts": torch.zeros((n, 2), dtype=torch.int64), "attention_mask": attention},
            )
            case = f"gdpo{'' if weights is None else '.weighted'}{'' if by_std else '.no_std'}"
            settings = {
                "estimator": "gdpo", "batch": name, "gdpo_reward_weights": weights, "epsilon": 1e-6,
                "norm_adv_by_std_in_grpo": by_std,
            }  # fmt: skip
            store.add(f"{case}.{name}", settings, advantages=advantages)


# ------------------------------------------------------------------------------------- verl: losses

GENERIC: dict[str, dict[str, Any]] = {
    "vanilla": {},
    "dppo_tv": {},
    "dppo_kl": {},
    "gspo": {},
    "sapo": {},
    "gpg": {},
    "clip_cov": {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.05, "clip_cov_ub": 5.0},
    "kl_cov": {"kl_cov_ratio": 0.1, "ppo_kl_coef": 0.1},
    "geo_mean": {},
    "dro": {"dro_beta": 0.5},
    "cispo": {},
}
"""Loss -> the settings that every kind of batch is run with; what is not given is verl's default.

clip_cov draws tokens at random: with a ratio of 1 it takes all candidates, so nothing is random.
"""
VARIANTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "vanilla": [
        ("asymmetric", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}),
        ("c10", {"clip_ratio_c": 10.0}),
        ("c1.5", {"clip_ratio_c": 1.5, "clip_ratio_low": 0.1, "clip_ratio_high": 0.3}),
    ],
    "dppo_tv": [
        ("tight", {"clip_ratio_low": 0.05, "clip_ratio_high": 0.1}),
        ("c20", {"clip_ratio_c": 20.0}),
        ("c1.1", {"clip_ratio_c": 1.1}),
    ],
    "dppo_kl": [
        ("tight", {"clip_ratio_low": 0.02, "clip_ratio_high": 0.05}),
        ("c20", {"clip_ratio_c": 20.0}),
        ("c1.1", {"clip_ratio_c": 1.1}),
    ],
    "gspo": [
        ("paper", {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}),
        ("asymmetric", {"clip_ratio_low": 0.05, "clip_ratio_high": 0.1}),
    ],
    "sapo": [("hot", {"tau_pos": 2.0, "tau_neg": 3.0})],
    "clip_cov": [
        ("default_bounds", {"clip_cov_ratio": 1.0, "clip_cov_lb": 1.0, "clip_cov_ub": 5.0}),
        ("band", {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.1, "clip_cov_ub": 0.5, "clip_ratio_high": 0.28}),
    ],
    "kl_cov": [
        ("one_token", {"kl_cov_ratio": 2e-4, "ppo_kl_coef": 1.0}),
        ("many", {"kl_cov_ratio": 0.3, "ppo_kl_coef": 1.0}),
    ],
    "geo_mean": [
        ("paper", {"clip_ratio_low": 0.4, "clip_ratio_high": 0.4}),
        ("asymmetric", {"clip_ratio_low": 0.1, "clip_ratio_high": 0.3}),
    ],
    "dro": [("small", {"dro_beta": 0.1})],
    "cispo": [
        ("asymmetric", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}),
        ("wide", {"clip_ratio_low": 1.0, "clip_ratio_high": 4.0}),
    ],
}
GLOBAL = {"dp_size": 2, "batch_num_tokens": 150, "global_batch_size": 24, "loss_scale_factor": 32}
"""Denominators of a larger, distributed batch."""


def actor_config(**fields: Any) -> Any:
    """Return verl's ActorConfig; fields of its PolicyLossConfig may be given as well."""
    from verl.workers.config.actor import ActorConfig, PolicyLossConfig

    names = {field.name for field in dataclasses.fields(PolicyLossConfig)}
    policy_loss = PolicyLossConfig(**{name: fields.pop(name) for name in list(fields) if name in names})
    return ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, policy_loss=policy_loss, **fields)


def actor_settings(config: Any, loss: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that a loss reads, defaults included."""
    clip = ("clip_ratio_low", "clip_ratio_high")
    read = {
        "vanilla": (*clip, "clip_ratio_c"), "dppo_tv": (*clip, "clip_ratio_c"), "dppo_kl": (*clip, "clip_ratio_c"),
        "gspo": clip, "sapo": ("tau_pos", "tau_neg"), "gpg": (), "geo_mean": clip, "cispo": clip,
        "clip_cov": (*clip, "clip_cov_ratio", "clip_cov_lb", "clip_cov_ub"), "kl_cov": ("kl_cov_ratio", "ppo_kl_coef"),
        "dro": ("dro_beta",),
    }[loss]  # fmt: skip
    values = {name: getattr(config, name, getattr(config.policy_loss, name, None)) for name in read}
    unread = sorted(set(given) - set(read) - {"global_batch_info"})
    if unread:
        raise ValueError(f"{unread} are not read by {loss}.")
    return values


def verl_loss(
    store: Store, batches: dict[str, Batch], loss: str, batch: str, policy: str, level: str, mode: str,
    variant: str = "default", given: dict[str, Any] | None = None, weighted: bool = False,
) -> None:  # fmt: skip
    """Call one registered policy loss and store its value and its gradient to the log-probabilities."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    content = batches[batch]
    given = GENERIC[loss] if given is None else {**GENERIC[loss], **given}
    config = actor_config(**given)
    mask = tensor(content["mask"])
    log_prob = tensor(content[f"log_prob_{policy}"]).requires_grad_()
    value, metrics = get_policy_loss_fn(loss)(
        old_log_prob=tensor(content["old_log_prob"]),
        log_prob=log_prob,
        advantages=verl_advantage(content, level, mask),
        response_mask=mask,
        loss_agg_mode=mode,
        config=config,
        rollout_is_weights=tensor(content["is_weight"]) if weighted else None,
    )
    settings = {
        "loss": loss, "batch": batch, "log_prob": policy, "advantage": level, "loss_agg_mode": mode,
        "weighted": weighted, **actor_settings(config, loss, given),
        "global_batch_info": given.get("global_batch_info", {}), "metrics": metrics,
    }  # fmt: skip
    case = f"{loss}.{batch}.{policy}.{level}.{mode}.{variant}{'.weighted' if weighted else ''}"
    store.add(case, settings, **value_and_gradient(value, log_prob))


def verl_advantage(content: Batch, level: str, mask: torch.Tensor) -> torch.Tensor:
    """Return (B, T) advantages, zero outside the mask, as verl's estimators give them."""
    if level == "rollout":
        return tensor(content["advantage"])[:, None] * mask
    return tensor(content["advantage_token"]) * mask


LOSS_COLUMNS = (
    "group", "mask", "attention", "old_log_prob", "log_prob_near", "log_prob_far", "reference_log_prob",
    "rollout_log_prob", "advantage", "advantage_token", "is_weight",
)  # fmt: skip


def verl_losses(batches: dict[str, Batch]) -> None:
    """Call every registered policy loss."""
    chosen = {name: batches[name] for name in ("ragged", "holes", "empty", "extreme")}
    columns = tuple(name for name in LOSS_COLUMNS if name not in ("group", "attention", "reference_log_prob"))
    store = Store("verl_losses", ("verl",), chosen, columns)
    for loss in GENERIC:
        for mode in MODES:
            verl_loss(store, chosen, loss, "ragged", "near", "rollout", mode)
            verl_loss(store, chosen, loss, "empty", "far", "token", mode)
        verl_loss(store, chosen, loss, "holes", "far", "rollout", "token-mean")
        verl_loss(store, chosen, loss, "extreme", "far", "rollout", "token-mean")
        verl_loss(store, chosen, loss, "holes", "near", "token", "token-mean", weighted=True)
        given = {"global_batch_info": GLOBAL}
        verl_loss(store, chosen, loss, "holes", "near", "rollout", "seq-mean-token-sum-norm", "global", given)
        for variant, given in VARIANTS.get(loss, []):
            verl_loss(store, chosen, loss, "ragged", "far", "rollout", "token-mean", variant, given)
            if loss not in ("dppo_tv", "dppo_kl"):  # near the old policy they mask next to nothing
                verl_loss(store, chosen, loss, "holes", "near", "token", "token-mean", variant, given)
    verl_single_clip_cov(store, chosen)
    verl_bypass(store, chosen)
    store.write()


def verl_single_clip_cov(store: Store, batches: dict[str, Batch]) -> None:
    """Clip-Cov with its default ratio and exactly one candidate: nothing is left to chance."""
    probe = Store("probe", ("verl",), {}, ())
    tokens = int(batches["ragged"]["mask"].sum())
    for step in range(1, 400):
        given = {"clip_cov_ratio": 1.0, "clip_cov_lb": step / 100, "clip_cov_ub": 50.0}
        verl_loss(probe, batches, "clip_cov", "ragged", "near", "rollout", "token-mean", str(step), given)
        fraction = list(probe.cases.values())[-1]["metrics"]["actor/pg_clipfrac"]
        if round(fraction * tokens) == 1:
            given["clip_cov_ratio"] = 2e-4
            verl_loss(store, batches, "clip_cov", "ragged", "near", "rollout", "token-mean", "one_candidate", given)
            return
    raise RuntimeError("no bound leaves exactly one candidate.")


def verl_bypass(store: Store, batches: dict[str, Batch]) -> None:
    """The loss that corrects for the sampler itself; here ``old_log_prob`` is the sampler's."""
    from verl.trainer.config.algorithm import RolloutCorrectionConfig
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    corrections: dict[str, dict[str, Any]] = {
        "reinforce": {"loss_type": "reinforce", "rollout_is": None},
        "reinforce_token": {"loss_type": "reinforce", "rollout_is": "token"},
        "reinforce_sequence": {"loss_type": "reinforce", "rollout_is": "sequence"},
        "reinforce_normalised": {"loss_type": "reinforce", "rollout_is": "token", "rollout_is_batch_normalize": True},
        "reinforce_icepop": {"loss_type": "reinforce", "rollout_is": "token", "rollout_is_threshold": "0.5_2.0"},
        "reinforce_rejected": {
            "loss_type": "reinforce", "rollout_is": "token", "rollout_rs": "token_k1",
            "rollout_rs_threshold": "0.5_2.0",
        },
        "ppo_clip_rejected": {
            "loss_type": "ppo_clip", "rollout_is": "token", "rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.2,
        },
    }  # fmt: skip
    for name, correction in corrections.items():
        for batch, mode in (("ragged", "token-mean"), ("empty", "seq-mean-token-sum")):
            content = batches[batch]
            full = RolloutCorrectionConfig(bypass_mode=True, **correction)
            log_prob = tensor(content["log_prob_near"]).requires_grad_()
            mask = tensor(content["mask"])
            value, metrics = get_policy_loss_fn("bypass_mode")(
                old_log_prob=tensor(content["rollout_log_prob"]),
                log_prob=log_prob,
                advantages=verl_advantage(content, "rollout", mask),
                response_mask=mask,
                loss_agg_mode=mode,
                config=actor_config(rollout_correction=full),
            )
            read = ("loss_type", "rollout_is", "rollout_is_threshold", "rollout_is_batch_normalize", "rollout_rs")
            settings = {
                "loss": "bypass_mode", "batch": batch, "log_prob": "near", "old": "rollout_log_prob",
                "advantage": "rollout", "loss_agg_mode": mode, "metrics": metrics,
                **{field: getattr(full, field) for field in (*read, "rollout_rs_threshold")},
            }  # fmt: skip
            case = f"bypass_mode.{batch}.near.rollout.{mode}.{name}"
            store.add(case, settings, **value_and_gradient(value, log_prob))


def verl_parts(batches: dict[str, Batch]) -> None:
    """Call agg_loss, kl_penalty and the rollout corrections on their own."""
    chosen = {name: batches[name] for name in ("ragged", "holes", "empty", "extreme")}
    columns = tuple(name for name in LOSS_COLUMNS if name not in ("group", "attention", "advantage", "is_weight"))
    store = Store("verl_parts", ("verl",), chosen, columns)
    verl_aggregation(store, chosen)
    verl_kl(store, chosen)
    verl_corrections(store, chosen)
    store.write()


def verl_aggregation(store: Store, batches: dict[str, Batch]) -> None:
    """agg_loss of ``advantage_token`` taken as a matrix of losses; the gradient is each token's weight."""
    from verl.trainer.ppo.core_algos import agg_loss

    for name in ("ragged", "holes", "empty"):
        for mode in MODES:
            for suffix, info in (("local", {}), ("scaled", {"loss_scale_factor": 32}), ("global", GLOBAL)):
                matrix = tensor(batches[name]["advantage_token"]).requires_grad_()
                loss = agg_loss(matrix, tensor(batches[name]["mask"]), mode, **info)
                settings = {"function": "agg_loss", "batch": name, "loss_agg_mode": mode, **info}
                store.add(f"agg_loss.{name}.{mode}.{suffix}", settings, **value_and_gradient(loss, matrix))


def verl_kl(store: Store, batches: dict[str, Batch]) -> None:
    """kl_penalty in every form: value per token, and the gradient of its sum over all (also masked) tokens."""
    from verl.trainer.ppo.core_algos import kl_penalty

    for name, policy in (("ragged", "near"), ("extreme", "far")):
        for form in ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"):
            for kind in (form, f"{form}+"):
                log_prob = tensor(batches[name][f"log_prob_{policy}"]).requires_grad_()
                value = kl_penalty(log_prob, tensor(batches[name]["reference_log_prob"]), kind)
                gradient = value_and_gradient(value.sum(), log_prob)["grad"]
                settings = {"function": "kl_penalty", "batch": name, "log_prob": policy, "kl_penalty": kind}
                store.add(f"kl_penalty.{kind}.{name}", settings, value=value, grad=gradient)


def verl_corrections(store: Store, batches: dict[str, Batch]) -> None:
    """Weights and masks against the mismatch of sampler and trainer, from old - rollout log-probabilities."""
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

    weights: list[tuple[str, dict[str, Any]]] = []
    for level in ("token", "sequence"):
        for threshold in (2.0, "0.5_2.0"):
            for normalised in (False, True):
                kind = "tis" if threshold == 2.0 else "icepop"
                options = {
                    "rollout_is": level, "rollout_is_threshold": threshold, "rollout_is_batch_normalize": normalised,
                }  # fmt: skip
                weights.append((f"weights.{level}.{kind}{'.normalised' if normalised else ''}", options))
    thresholds = {
        "token_k1": "0.6_1.5", "token_k2": 0.1, "token_k3": 0.1, "seq_sum_k1": "0.5_2.0", "seq_sum_k2": 0.4,
        "seq_sum_k3": 0.4, "seq_mean_k1": "0.9_1.1", "seq_mean_k2": 0.06, "seq_mean_k3": 0.06, "seq_max_k2": 0.3,
        "seq_max_k3": 0.3, "token_k1,seq_max_k2": "0.6_1.5,0.3",
    }  # fmt: skip
    masks = [(f"rejection.{rs}", {"rollout_rs": rs, "rollout_rs_threshold": at}) for rs, at in thresholds.items()]
    masks.append(("rejection.token_k1.one_number", {"rollout_rs": "token_k1", "rollout_rs_threshold": 1.5}))
    for name, content in batches.items():
        for case, options in (*weights, *masks):
            proto, mask, _ = compute_rollout_correction_and_rejection_mask(
                old_log_prob=tensor(content["old_log_prob"]),
                rollout_log_prob=tensor(content["rollout_log_prob"]),
                response_mask=tensor(content["mask"]),
                **options,
            )
            settings = {"function": "compute_rollout_correction_and_rejection_mask", "batch": name, **options}
            output = {"mask": mask.to(torch.int8)} if proto is None else {"weights": proto.batch["rollout_is_weights"]}
            store.add(f"{case}.{name}", settings, **output)


# ---------------------------------------------------------------------------------------------- TRL


def trl_trainer(model_training: bool = True, **fields: Any) -> Any:
    """Return a GRPOTrainer without model, data or generation: only what its formulas read.

    The constructor is not run. Settings come from a real ``GRPOConfig`` (its defaults are TRL's) and
    are copied to the trainer as the constructor does.
    """
    from accelerate import Accelerator
    from trl import GRPOConfig, GRPOTrainer

    logging.getLogger("trl").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = GRPOConfig(output_dir="unused", use_cpu=True, bf16=False, report_to="none", **fields)
    trainer = object.__new__(GRPOTrainer)
    copied = (
        "loss_type", "importance_sampling_level", "beta", "multi_objective_aggregation", "scale_rewards",
        "top_entropy_quantile", "off_policy_mask_threshold", "max_completion_length", "num_generations",
        "num_generations_eval", "num_iterations", "mask_truncated_completions", "use_vllm", "entropy_coef",
        "vllm_importance_sampling_correction", "vllm_importance_sampling_mode", "vllm_importance_sampling_clip_max",
        "vllm_importance_sampling_clip_min", "pad_to_multiple_of",
    )  # fmt: skip
    trainer.__dict__.update({name: getattr(args, name) for name in copied})
    trainer.__dict__.update(
        args=args,
        accelerator=Accelerator(cpu=True),
        model=SimpleNamespace(training=model_training, is_gradient_checkpointing=False),
        state=SimpleNamespace(global_step=0),
        epsilon_low=args.epsilon,
        epsilon_high=args.epsilon if args.epsilon_high is None else args.epsilon_high,
        aux_loss_enabled=False,
        use_adaptive_entropy=False,
        _entropy_bonus_enabled=args.entropy_coef != 0.0,
        current_gradient_accumulation_steps=args.gradient_accumulation_steps,
        environment_factories=None,
        environments=None,
        tools=None,
        ref_model=None,
        log_multimodal=False,
        _tokenizer=SimpleNamespace(pad_token_id=0),
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        _logs=defaultdict(list, rewards=defaultdict(list), extra=defaultdict(list)),
        _pending_extra_logs={},
        _pending_metrics={},
    )
    return trainer


def trl_score(trainer: Any, rewards: np.ndarray, weights: list[float], rollouts: Batch | None = None) -> dict[str, Any]:
    """Run GRPOTrainer's scoring of completions with the generation and the models' passes replaced.

    Args:
        trainer: from ``trl_trainer``.
        rewards: (B, K); NaN is a reward function that returned None.
        weights: (K,) of the reward functions.
        rollouts: a batch, for the importance sampling ratio.
    """
    n, count = rewards.shape
    lengths = [1] * n if rollouts is None else rollouts["attention"].sum(1).tolist()
    tool_mask = sampling = None
    if rollouts is not None:
        tool_mask = [rollouts["mask"][i, :size].astype(int).tolist() for i, size in enumerate(lengths)]
        sampling = [rollouts["rollout_log_prob"][i, :size].tolist() for i, size in enumerate(lengths)]
        old = tensor(rollouts["old_log_prob"])[:, : max(lengths)]
        trainer._get_per_token_logps_and_entropies = lambda *_, **__: (old, None, None)
    completions = [[1] * size for size in lengths]
    trainer._generate = lambda prompts: (
        [[1]] * n, completions, tool_mask, ["text"] * n, sampling, {}, None, None,
    )  # fmt: skip

    def reward_function(column: int) -> Any:
        return lambda **_: [None if np.isnan(value) else float(value) for value in rewards[:, column]]

    trainer.reward_funcs = [reward_function(column) for column in range(count)]
    trainer.reward_func_names = [f"reward{column}" for column in range(count)]
    trainer.reward_processing_classes = [None] * count
    trainer.reward_weights = torch.tensor(weights)
    return trainer._generate_and_score_completions([{"prompt": "text"} for _ in range(n)])


def trl_advantages(batches: dict[str, Batch]) -> None:
    """Advantages, and the importance sampling ratio against the sampler."""
    chosen = {name: batches[name] for name in ("ragged", "holes", "empty")}
    columns = ("mask", "attention", "old_log_prob", "rollout_log_prob")
    store = Store("trl_advantages", ("trl", "transformers", "accelerate"), chosen, columns)
    rng = np.random.default_rng([SEED, 200])
    one = rng.integers(-8, 9, (20, 1)) / 8.0
    one[4:8] = 0.5
    many = rng.integers(-8, 17, (20, 3)) / 8.0
    many[4:8] = [0.5, 1.0, -0.25]
    many[0:4, 1] = 1.0
    missing = many.copy()
    # A component that is missing here and there, a rollout that nobody could score, a group of which only one
    # rollout has the component, a group without it, and a group of which nobody could score anything.
    missing[0, 2], missing[9] = np.nan, np.nan
    missing[[12, 13, 15], 0], missing[4:8, 2], missing[16:20] = np.nan, np.nan, np.nan
    rewards = {"one": one, "many": many, "missing": missing, "missing_one": missing[:, :1]}
    store.arrays.update({f"inputs/{name}/rewards": value for name, value in rewards.items()})
    for name, value in rewards.items():
        weights = [1.0] if value.shape[1] == 1 else [1.0, 0.5, 2.0]
        for aggregation in ("sum_then_normalize", "normalize_then_sum"):
            # normalize_then_sum does not read scale_rewards.
            for scale in ("group", "batch", "none") if aggregation == "sum_then_normalize" else ("group",):
                for size, training in ((4, True), (1, False)):
                    trainer = trl_trainer(
                        training, multi_objective_aggregation=aggregation, scale_rewards=scale, num_generations=4,
                        num_generations_eval=size, per_device_train_batch_size=20,
                    )  # fmt: skip
                    settings = {
                        "rewards": name, "reward_weights": weights, "multi_objective_aggregation": aggregation,
                        "scale_rewards": scale, "num_generations": size,
                    }  # fmt: skip
                    output = trl_score(trainer, value, weights)
                    store.add(f"{aggregation}.{scale}.{name}.of{size}", settings, advantages=output["advantages"])
    trl_importance(store, chosen)
    store.write()


def trl_importance(store: Store, batches: dict[str, Batch]) -> None:
    """The ratio old / sampler in each mode; the loss multiplies by it (VESPO takes its logarithm)."""
    for name, content in batches.items():
        n = len(content["mask"])
        for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"):
            for low, high in ((None, 1.5), (0.7, 1.5)):
                # num_generations=1 is allowed in evaluation only, and 11 is a prime: all rollouts are one group.
                trainer = trl_trainer(
                    num_generations=n, per_device_train_batch_size=n, use_vllm=True, vllm_importance_sampling_mode=mode,
                    vllm_importance_sampling_clip_min=low, vllm_importance_sampling_clip_max=high,
                )  # fmt: skip
                output = trl_score(trainer, np.zeros((n, 1)), [1.0], content)
                ratio = output["importance_sampling_ratio"]
                if ratio.shape[1] > 1:
                    ratio = torch.nn.functional.pad(ratio, (0, WIDTH - ratio.shape[1]), value=1.0)
                settings = {"batch": name, "vllm_importance_sampling_mode": mode, "clip_min": low, "clip_max": high}
                case = f"importance.{mode}.{name}.{'upper' if low is None else 'both'}"
                store.add(case, settings, ratio=ratio, num_items_in_batch=output["num_items_in_batch"])


CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
LOSS_TYPES = (*CLIPPED, "cispo", "sapo", "vespo")


def trl_loss(
    store: Store, batches: dict[str, Batch], loss: str, level: str, batch: str, policy: str, variant: str = "default",
    advantage: str = "rollout", ratio: str | None = None, entropy_gradient: bool = False, **fields: Any,
) -> None:  # fmt: skip
    """Call GRPOTrainer._compute_loss; store its value and its gradient to the log-probabilities.

    Args:
        store: where to.
        batches: by name.
        loss: loss_type.
        level: importance_sampling_level.
        batch: which batch.
        policy: near or far.
        variant: name of the settings.
        advantage: rollout or token.
        ratio: column taken for the sampler's importance sampling ratio, per token or of the first token of each
            rollout (then (B, 1), as in TRL's sequence modes).
        entropy_gradient: also store the gradient to the entropies.
        fields: of GRPOConfig.
    """
    content = batches[batch]
    n = len(content["mask"])
    options = {"loss_type": loss, "importance_sampling_level": level, "max_completion_length": 16, **fields}
    options = {"gradient_accumulation_steps": 1, "num_generations": n, "per_device_train_batch_size": n, **options}
    if ratio is not None:
        options |= {"use_vllm": True, "vllm_importance_sampling_mode": "token_truncate"}
    trainer = trl_trainer(**options)
    log_prob = tensor(content[f"log_prob_{policy}"]).requires_grad_()
    entropy = tensor(content["entropy"]).requires_grad_()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (log_prob, entropy, None)
    as_mask = {name: torch.tensor(content[name], dtype=torch.int64) for name in ("attention", "mask")}
    ids = torch.ones((n, 1), dtype=torch.int64)
    items = int(content["mask"].sum()) * trainer.args.steps_per_generation // trainer.args.gradient_accumulation_steps
    items += 7 * (trainer.args.steps_per_generation - 1)
    inputs = {
        "prompt_ids": ids,
        "prompt_mask": ids,
        "completion_ids": as_mask["attention"],
        "completion_mask": as_mask["attention"],
        "tool_mask": as_mask["mask"],
        "advantages": tensor(content["advantage" if advantage == "rollout" else "advantage_token"]),
        "old_per_token_logps": tensor(content["old_log_prob"]),
        "ref_per_token_logps": tensor(content["reference_log_prob"]),
        "num_items_in_batch": torch.tensor(items),
    }
    if ratio is not None:
        weight = tensor(content["is_weight"])
        inputs["importance_sampling_ratio"] = weight if ratio == "token" else weight[:, :1]
    value = trainer._compute_loss(trainer.model, inputs)
    read = (
        "beta", "epsilon", "epsilon_high", "delta", "use_bias_correction_kl", "top_entropy_quantile",
        "off_policy_mask_threshold", "entropy_coef", "sapo_temperature_pos", "sapo_temperature_neg", "vespo_k_pos",
        "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg", "max_completion_length", "gradient_accumulation_steps",
        "steps_per_generation",
    )  # fmt: skip
    settings = {
        "loss_type": loss, "importance_sampling_level": level, "batch": batch, "log_prob": policy,
        "advantage": advantage, "ratio": ratio, "num_items_in_batch": items,
        **{name: getattr(trainer.args, name) for name in read},
    }  # fmt: skip
    outputs = value_and_gradient(value, log_prob) if not entropy_gradient else {"loss": value}
    if entropy_gradient:
        outputs["grad"], outputs["grad_entropy"] = torch.autograd.grad(value, [log_prob, entropy])
    store.add(f"{loss}.{level}.{batch}.{policy}.{advantage}.{variant}", settings, **outputs)


def trl_losses(batches: dict[str, Batch]) -> None:
    """Every loss type at each level of the ratio, with each option."""
    chosen = {name: batches[name] for name in ("ragged", "holes", "empty", "extreme")}
    columns = tuple(name for name in LOSS_COLUMNS if name not in ("group", "rollout_log_prob"))
    store = Store("trl_losses", ("trl", "transformers", "accelerate"), chosen, (*columns, "entropy"))
    for loss in LOSS_TYPES:
        # cispo's bound is epsilon_high itself, not 1 + epsilon_high.
        clip = {"epsilon_high": 5.0} if loss == "cispo" else {"epsilon_high": 0.28}
        corrected = {"variant": "kl_corrected", "beta": 0.04, "use_bias_correction_kl": True}
        for level in ("token", "sequence"):
            common = {"store": store, "batches": chosen, "loss": loss, "level": level}
            trl_loss(**common, batch="ragged", policy="near", **clip)
            trl_loss(**common, batch="holes", policy="far", **clip)
            trl_loss(**common, batch="holes", policy="near", advantage="token", **clip)
            trl_loss(**common, batch="empty", policy="near", **clip)
            trl_loss(**common, batch="ragged", policy="far", variant="defaults")
            trl_loss(**common, batch="ragged", policy="near", variant="kl", beta=0.04, use_bias_correction_kl=False)
            trl_loss(**common, batch="holes", policy="far", **corrected)
            if loss in CLIPPED:
                trl_loss(**common, batch="holes", policy="far", variant="delta", delta=1.5, **clip)
            for quantile in (0.2, 0.5):
                variant = f"entropy{quantile}"
                trl_loss(**common, batch="holes", policy="near", variant=variant, top_entropy_quantile=quantile, **clip)
            trl_loss(**common, batch="holes", policy="far", variant="sequences", off_policy_mask_threshold=0.1, **clip)
            ratios = ("token", "sequence") if loss != "vespo" else ("token",)
            for ratio in ratios:
                trl_loss(**common, batch="holes", policy="near", variant=f"ratio_{ratio}", ratio=ratio, **clip)
            trl_loss(
                **common, batch="ragged", policy="near", variant="accumulated", gradient_accumulation_steps=2,
                steps_per_generation=4, **clip,
            )  # fmt: skip
            trl_loss(
                **common, batch="empty", policy="far", variant="together", beta=0.04, top_entropy_quantile=0.5,
                off_policy_mask_threshold=0.1, ratio="token", entropy_coef=0.01, entropy_gradient=True, **clip,
            )  # fmt: skip
    for level in ("token", "sequence"):
        common = {"store": store, "batches": chosen, "level": level, "batch": "ragged"}
        trl_loss(**common, loss="grpo", policy="near", variant="tight", epsilon=3e-4, epsilon_high=4e-4)
        trl_loss(**common, loss="luspo", policy="near", variant="tight", epsilon=2e-3, epsilon_high=2.5e-3)
        trl_loss(**common, loss="cispo", policy="far", variant="tight", epsilon_high=1.2)
        trl_loss(**common, loss="sapo", policy="far", variant="hot", sapo_temperature_pos=2.0, sapo_temperature_neg=3.0)
        trl_loss(
            **common, loss="vespo", policy="near", variant="other", vespo_k_pos=1.0, vespo_lambda_pos=1.5,
            vespo_k_neg=2.0, vespo_lambda_neg=0.5,
        )  # fmt: skip
        trl_loss(**{**common, "batch": "extreme"}, loss="vespo", policy="far", variant="extreme")
    store.write()


def main(tools: list[str]) -> None:
    """Make the numbers of the named tools, of both by default."""
    torch.set_num_threads(1)
    # TRL makes tensors of rewards in the default precision; verl's constants follow it, too.
    torch.set_default_dtype(torch.float64)
    batches = make_batches()
    if not tools or "verl" in tools:
        verl_advantages(batches)
        verl_losses(batches)
        verl_parts(batches)
    if not tools or "trl" in tools:
        trl_advantages(batches)
        trl_losses(batches)


if __name__ == "__main__":
    main(sys.argv[1:])
