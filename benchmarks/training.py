"""One run: warm start, training under a scheme, evaluation at equal spacing.

Prompts, the base policy and the randomness of rollouts depend on the seed alone, so that runs of
different schemes with one seed are paired.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

import agentic_gym
import algos
from agentic_gym.mixture import preset
from agentic_gym.truth import measure
from algos import GroupPPO
from algos.collector import Trajectories, collect
from algos.rows import VectorRows, make_rows
from algos.warmstart import warmstart
from benchmarks.experiment import Budget, RunConfig
from benchmarks.store import RESULTS

REWARD_KNOBS = ("reward_scale", "reward_offset", "reward_noise", "reward_noise_dist", "dense")
CACHE = RESULTS / "runs" / "base_policies"


def train(config: RunConfig) -> list[dict[str, Any]]:
    """Train and evaluate one configuration.

    Args:
        config: what to run.

    Returns:
        One row per evaluation point and environment: turns, update, environment, score
        (normalised: 0 random, 1 expert), raw_score, success, return_mean, gradient_share and
        dead_groups of the last update before it, wall_s.
    """
    budget, regime = config.budget, config.regime
    model = GroupPPO(
        "MessagePolicy", regime.env_id, scheme=config.scheme, n_prompts=budget.n_prompts,
        group_size=budget.group_size, n_epochs=budget.n_epochs, n_minibatches=budget.n_minibatches,
        learning_rate=config.learning_rate, env_kwargs=regime.env_kwargs, seed=config.seed,
        staleness=budget.staleness, policy_kwargs=_network(budget),
    )  # fmt: skip
    if budget.warmstart_success > 0:
        _load_base_policy(model, config)
    examiner = _Examiner(config)
    start = time.perf_counter()
    rows = examiner.examine(model, start)
    for point in range(1, budget.n_evaluations + 1):
        missing = round(budget.total_turns * point / budget.n_evaluations) - model.num_timesteps
        if missing <= 0:
            continue  # One update went past several points.
        with warnings.catch_warnings():
            # A starved scheme may be silent for long; its scores say so.
            warnings.filterwarnings("ignore", message="no learning signal")
            model.learn(missing, reset_num_timesteps=model.num_timesteps == 0, log_interval=None)
        rows += examiner.examine(model, start)
    return rows


class _Examiner:
    """Evaluates the sampled policy on fixed prompts."""

    def __init__(self, config: RunConfig) -> None:
        regime, per_environment = config.regime, config.budget.eval_rollouts
        self.truths = reference_scores(regime.env_id, regime.env_kwargs)
        size = per_environment * len(self.truths)
        # Several rollouts of each prompt; the prompts of a mixture are dealt to environments in turn.
        self.group = config.budget.eval_group
        rows = make_rows(regime.env_id, size, regime.env_kwargs)
        assert isinstance(rows, VectorRows)
        self.rows = rows
        self.prompt = np.arange(size) // self.group % rows.num_prompts
        self.seed, self.split = config.seed, config.budget.eval_split

    def examine(self, model: GroupPPO, start: float) -> list[dict[str, Any]]:
        random = np.random.default_rng([self.seed, model.num_timesteps])
        keys = random.integers(2**63 - 1, size=len(self.prompt))
        data = collect(self.rows, model.policy, self.prompt, keys, random, split=self.split)
        assert data is not None
        logged = dict(model.logger.name_to_value) if model.num_timesteps else {}
        return [self._row(model, data, index, logged, time.perf_counter() - start) for index in range(len(self.truths))]

    def _row(
        self, model: GroupPPO, data: Trajectories, index: int, logged: Mapping[str, float], wall: float
    ) -> dict[str, Any]:
        truth = self.truths[index]
        members = data.batch.environment == index
        raw = float(data.score[members].mean())
        return {
            "turns": model.num_timesteps,
            "update": model._n_updates,
            "environment": truth.environment,
            "score": float(truth.normalise(raw)),
            "raw_score": raw,
            "success": float(data.success[members].mean()),
            "return_mean": float(data.batch.returns[members].mean()),
            "gradient_share": float(logged.get(f"train/gradient_share/{truth.environment}", np.nan)),
            "dead_groups": float(logged.get("group/frac_reward_zero_std", np.nan)),
            "entropy": float(logged.get("rollout/entropy", np.nan)),
            "tokens": float(data.batch.tokens_per_rollout[members].mean()),
            "tokens_wrong": _mean_or_nan(data.batch.tokens_per_rollout[members & ~data.success]),
            "length": float(data.batch.turns_per_rollout[members].mean()),
            "pass_at_k": _pass_at_k(data, members),
            "wall_s": wall,
        }


def _mean_or_nan(values: npt.NDArray[Any]) -> float:
    """Return the mean, NaN where there is nothing."""
    return float(values.mean()) if len(values) else math.nan


def _pass_at_k(data: Trajectories, members: npt.NDArray[np.bool_]) -> float:
    """Share of the prompts with at least one success."""
    prompts = data.batch.level("prompt").ids[members]
    return float(np.mean([data.success[members][prompts == prompt].any() for prompt in np.unique(prompts)]))


def _network(budget: Budget) -> dict[str, Any]:
    return {"net_arch": [budget.net_width] * 2}


def reference_scores(env_id: str, env_kwargs: Mapping[str, Any]) -> tuple[agentic_gym.Truth, ...]:
    """Return the truths of a regime; they do not depend on its rewards."""
    return _truths(env_id, json.dumps(dynamics(env_kwargs), sort_keys=True))


@functools.cache
def _truths(env_id: str, knobs: str) -> tuple[agentic_gym.Truth, ...]:
    # Measured throughout, as when the stored results were made.
    return measure({**gymnasium.spec(env_id).kwargs, **json.loads(knobs)}, closed_forms=False)


def dynamics(env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the knobs without those of the reward, with a preset written out."""
    knobs = {name: value for name, value in env_kwargs.items() if name not in REWARD_KNOBS}
    if "preset" in knobs:
        knobs["environments"] = preset(knobs.pop("preset"), knobs.pop("spread", None))
    if "environments" in knobs:
        knobs["environments"] = [
            {name: value for name, value in member.items() if name not in REWARD_KNOBS}
            for member in knobs["environments"]
        ]
    return knobs


def _load_base_policy(model: GroupPPO, config: RunConfig) -> None:
    """Give the model the base policy of its seed, made once and kept in a file."""
    regime, rate = config.regime, config.budget.warmstart_success
    width = config.budget.net_width
    parts = [_code(), regime.env_id, dynamics(regime.env_kwargs), config.seed, rate, width]
    identity = json.dumps(parts, sort_keys=True)
    path = CACHE / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.pt"
    if not path.exists():
        base = GroupPPO(
            "MessagePolicy", regime.env_id, env_kwargs=regime.env_kwargs, seed=config.seed,
            policy_kwargs=_network(config.budget),
        )  # fmt: skip
        with warnings.catch_warnings():
            # Short of the band is short for all schemes alike; the first evaluation point shows it.
            warnings.filterwarnings("ignore", message="warmstart:")
            warmstart(base, rate, seed=config.seed)
        _save(base.policy.state_dict(), path)
    model.policy.load_state_dict(torch.load(path, weights_only=True), strict=False)


@functools.cache
def _code() -> str:
    """A digest of the code that makes base policies, so that none outlives a change of it."""
    digest = hashlib.sha256()
    for package in (agentic_gym, algos):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _save(state: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)
