"""The microscope: each scheme's gradient estimate against the exact gradient, on chains.

    python -m benchmarks.microscope --jobs 2                                   # the table, 15 minutes
    python -m benchmarks.microscope --jobs 2 --json results/microscope.json    # and its numbers

On ``Chain`` the probability that a policy succeeds is a product of the probabilities of the right
messages, so the gradient of the mean score over prompts and environments is exact, without
sampling. A scheme's estimate is the gradient of its loss at the start of an update (all ratios 1),
sampled many times. Both are taken with respect to all weights of a warm-started policy. All of it
is done for several such policies; what is shown is their median, and the lowest and highest of them.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import tyro
from joblib import Parallel, delayed
from rich.table import Table

import agentic_gym
from agentic_gym.console import show
from agentic_gym.families.chain import Chain
from algos import GroupPPO, make_scheme
from algos.advantages import advantages
from algos.collector import Trajectories, collect
from algos.scheme import SchemeLike
from algos.surrogates.aggregation import token_weights
from algos.threads import limit_threads
from algos.update import UpdateTensors
from algos.warmstart import warmstart
from benchmarks.store import write_text

FloatArray = npt.NDArray[np.float64]
SCHEMES = ("reinforce", "rloo", "dr_grpo", "grpo", "lite_ppo", "reinforce_pp_baseline", "agentrl", "erpo", "maxrl")
PROMPTS = 64
"""Prompts per environment, all of them in the exact gradient."""


@dataclass(frozen=True)
class Setting:
    """What is looked at.

    Attributes:
        spread: ratio of the largest to the smallest reward scale of the environments.
        group_size: rollouts per prompt.
        noise: standard deviation of reward noise, in units of value.
        n_environments: chains of unlike depth, 1 and more.
        n_prompts: prompts per update.
    """

    spread: float = 1.0
    group_size: int = 8
    noise: float = 0.0
    n_environments: int = 3
    n_prompts: int = 12

    def environments(self) -> list[dict[str, Any]]:
        """Return chains of depth 2, 3, ... whose scales are spread geometrically, the shortest largest."""
        scales = self.spread ** np.linspace(0.5, -0.5, self.n_environments)
        return [
            {
                "family": "Chain", "name": f"chain-{depth}", "options": 16, "depth": depth, "num_prompts": PROMPTS,
                "reward_scale": float(scale), "reward_noise": self.noise,
            }
            for depth, scale in zip(range(2, 2 + self.n_environments), scales, strict=True)
        ]  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What a scheme's estimates look like.

    Attributes:
        scheme: its name.
        setting: where.
        cosine: mean cosine between one estimate and the exact gradient.
        bias_cosine: cosine between the mean of the estimates and the exact gradient.
        length: length of the mean estimate along the exact gradient, in units of that; schemes that rescale
            rewards change it on purpose.
        bias: norm of the expected estimate's difference from the exact gradient, the latter at the same
            ``length``, in units of that length; what of it the finite number of estimates adds is taken off.
        variance: mean squared deviation of an estimate from the mean, in units of the squared length.
        signal_to_noise: squared norm of the mean over the mean squared deviation from it.
        shares: each environment's part of the mean estimate's norm; they sum to 1.
        exact_shares: the same of the exact gradient.
        n: number of estimates.
    """

    scheme: str
    setting: Setting
    cosine: float
    bias_cosine: float
    length: float
    bias: float
    variance: float
    signal_to_noise: float
    shares: tuple[float, ...]
    exact_shares: tuple[float, ...]
    n: int


def make_model(setting: Setting, scheme: SchemeLike, seed: int = 0) -> GroupPPO:
    """Return a model on the setting's environments; not yet warm-started."""
    return GroupPPO(
        "MessagePolicy", "agentic_gym/Mixture-v0", scheme=scheme, n_prompts=setting.n_prompts,
        group_size=setting.group_size, n_minibatches=1, n_epochs=1, seed=seed, diagnostics_interval=0,
        env_kwargs={"environments": setting.environments()}, policy_kwargs={"net_arch": [32, 32]},
    )  # fmt: skip


def exact_gradients(model: GroupPPO, environments: Sequence[dict[str, Any]]) -> FloatArray:
    """Return (E, P): for each environment the gradient of its mean score over all its train prompts.

    Raises:
        ValueError: if an environment is not a chain whose score is a product of probabilities.
    """
    size = len(environments) * PROMPTS
    engine = agentic_gym.AgenticVectorEnv(size, family="Mixture", environments=environments, autoreset_mode="Disabled")
    for member in engine.family.members:
        if not isinstance(member, Chain) or member.graded or member.knobs.slip or member.turn_limit != member.depth:
            raise ValueError("environments: the exact gradient needs plain chains without slips and spare turns.")
    observation, info = engine.reset(options={"prompt": np.arange(size), "rollout": 0})
    environment = info["environment"]
    log_success, over = torch.zeros(size), np.zeros(size, dtype=np.bool_)
    flat = model.policy.flat_parameters
    assert flat.grad is not None
    while not over.all():
        rows = np.flatnonzero(~over)
        message = engine.expert_message()
        written = model.policy.read(observation[rows], message[rows])
        slots = model.policy.slots(observation[rows], written.state, written.previous, written.position)
        per_row = torch.zeros(size).index_add(0, torch.from_numpy(rows), model.policy.log_probs(slots).sum(dim=1))
        log_success = log_success + per_row
        observation, _, terminated, truncated, _ = engine.step(message)
        over = terminated | truncated
    gradients = []
    for index in range(len(environments)):
        flat.grad.zero_()
        members = torch.from_numpy(environment == index)
        log_success[members].exp().mean().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        gradients.append(flat.grad.numpy().astype(np.float64))
    return np.array(gradients)


def estimate(model: GroupPPO, data: Trajectories) -> FloatArray:
    """Return (E, P) each environment's part of the scheme's ascent direction on one batch of rollouts."""
    flat = model.policy.flat_parameters
    assert flat.grad is not None
    credit = advantages(model.scheme, data.batch, model._memory)
    tensors = UpdateTensors.build(model.policy, model.scheme, data, credit, token_weights(model.scheme, data.batch))
    parts = []
    for index in range(len(model.rows.environment_names)):
        turns = np.flatnonzero(data.batch.environment[data.batch.turn_rollout] == index)
        if len(turns):
            model._differentiate(tensors.take(torch.from_numpy(turns)))
        else:
            flat.grad.zero_()
        parts.append(-flat.grad.numpy().astype(np.float64))
    return np.array(parts)


@functools.lru_cache(maxsize=2)
def base_policy(setting: Setting, seed: int) -> tuple[dict[str, torch.Tensor], FloatArray]:
    """Return the weights of a policy that succeeds in three rollouts of ten, and its exact gradients (E, P)."""
    base = make_model(setting, "grpo", seed)
    warmstart(base, 0.3, rollouts=512, seed=seed)
    return base.policy.state_dict(), exact_gradients(base, setting.environments())


def look(scheme: str, setting: Setting, n: int = 200, seed: int = 0) -> Seen:
    """Compare a scheme's estimates with the exact gradient.

    Args:
        scheme: what ``make_scheme`` takes; without columns that only training measures.
        setting: where.
        n: number of estimates, at least 2.
        seed: of the base policy and of the rollouts.

    Raises:
        ValueError: if the scheme needs columns that are not collected, or the setting is not allowed.
    """
    needs = make_scheme(scheme).needs
    if needs:
        raise ValueError(f"scheme={scheme!r} is not allowed: it needs {sorted(needs)}, which only training measures.")
    weights, exact = base_policy(setting, seed)
    model = make_model(setting, scheme, seed)
    model.policy.load_state_dict(weights, strict=False)
    random = np.random.default_rng(seed)
    total = len(setting.environments()) * PROMPTS
    estimates = []
    for _ in range(n):
        prompt = np.repeat(_balanced(random, total, setting), setting.group_size)
        data = collect(model.rows, model.policy, prompt, random.integers(2**62, size=len(prompt)), random)
        assert data is not None
        estimates.append(estimate(model, data))
    parts = np.array(estimates)
    whole, target = parts.sum(axis=1), exact.sum(axis=0)
    mean = whole.mean(axis=0)
    noise = ((whole - mean) ** 2).sum(axis=1).mean()
    length = float(mean @ target / (target @ target))
    size = max(float(length**2 * (target @ target)), 1e-300)
    # The mean of n estimates has a squared error of its own; n - 1, because deviations are from that mean.
    off = ((mean - length * target) ** 2).sum() - noise / (n - 1)
    return Seen(
        scheme, setting,
        cosine=float(np.mean([_cosine(one, target) for one in whole])),
        bias_cosine=_cosine(mean, target),
        length=length, bias=math.sqrt(max(float(off), 0.0) / size), variance=float(noise) / size,
        signal_to_noise=float((mean**2).sum() / noise),
        shares=_shares(parts.mean(axis=0)), exact_shares=_shares(exact), n=n,
    )  # fmt: skip


def _balanced(random: np.random.Generator, total: int, setting: Setting) -> npt.NDArray[np.int64]:
    """Draw as many prompts of every environment, which are dealt in turn."""
    n_environments = len(setting.environments())
    each = setting.n_prompts // n_environments
    local = np.array([random.choice(total // n_environments, each, replace=False) for _ in range(n_environments)])
    return (local * n_environments + np.arange(n_environments)[:, None]).ravel()


def _cosine(one: FloatArray, two: FloatArray) -> float:
    norms = np.linalg.norm(one) * np.linalg.norm(two)
    return float(one @ two / norms) if norms > 0 else 0.0


def _shares(parts: FloatArray) -> tuple[float, ...]:
    norms = np.linalg.norm(parts, axis=1)
    return tuple(float(x) for x in norms / max(norms.sum(), 1e-300))


def summarise(seen: Sequence[Seen]) -> dict[str, Any]:
    """Bring what was seen of one scheme in one setting with several policies together.

    Returns:
        The fields of `Seen` as medians over the policies, ``policies``, their number, and ``low`` and ``high``, the
        same fields' smallest and largest values. With five policies these are a 94 % interval of the median.
    """
    first = asdict(seen[0])
    measured = [name for name, value in first.items() if isinstance(value, float | tuple)]
    values = {name: np.array([getattr(one, name) for one in seen]) for name in measured}
    ends = {
        end: {name: pick(found, axis=0).tolist() for name, found in values.items()}
        for end, pick in (("low", np.min), ("high", np.max))
    }
    middle = {name: np.median(found, axis=0).tolist() for name, found in values.items()}
    return {**first, **middle, "policies": len(seen), **ends}


SETTINGS = (
    *(Setting(spread=spread) for spread in (1.0, 10.0, 100.0, 1000.0)),
    *(Setting(group_size=size, n_prompts=96 // size) for size in (2, 4, 16, 32)),
    *(Setting(noise=noise) for noise in (0.1, 0.3, 1.0)),
)


@dataclass(frozen=True)
class Options:
    """What to look at.

    Attributes:
        n: estimates per policy, scheme and setting.
        policies: base policies, each from a seed of its own.
        jobs: processes.
        json: where to write the numbers; None writes nothing.
    """

    n: int = 60
    policies: int = 5
    jobs: int = 1
    json: Path | None = None


def look_at_all(setting: Setting, seed: int, n: int) -> list[Seen]:
    """Look at every scheme in one setting, with one base policy."""
    with limit_threads(1):
        return [look(scheme, setting, n, seed) for scheme in SCHEMES]


def main(options: Options) -> None:
    """Look at every scheme in every setting, print and write."""
    # Run as a program this module is __main__, whose classes other processes cannot find.
    from benchmarks import microscope

    every = [(setting, seed) for setting in microscope.SETTINGS for seed in range(options.policies)]
    found = Parallel(options.jobs)(delayed(microscope.look_at_all)(*one, options.n) for one in every)
    by_scheme: dict[tuple[Setting, str], list[Seen]] = {}
    for one in itertools.chain.from_iterable(found):
        by_scheme.setdefault((one.setting, one.scheme), []).append(one)
    seen = [summarise(several) for several in by_scheme.values()]
    table = Table("setting", "scheme", "cosine", "bias cosine", "signal/noise", "shares", title="microscope")
    for entry in seen:
        s = entry["setting"]
        shares = " ".join(f"{share:.2f}" for share in entry["shares"])
        numbers = (f"{entry[name]:.3f}" for name in ("cosine", "bias_cosine", "signal_to_noise"))
        where = f"spread {s['spread']:g}, G {s['group_size']}, noise {s['noise']:g}"
        table.add_row(where, entry["scheme"], *numbers, shares)
    show(table)
    if options.json is not None:
        command = f"python -m benchmarks.microscope --n {options.n} --policies {options.policies}"
        document = {"command": command, "seen": seen}
        write_text(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
