"""Speed beside other trainers on CartPole-v1 and Chain: SB3, tianshou, sbx and rejax (both in JAX), one process.

    pip install -c constraints.txt -e ".[dev,peers]"
    python -m benchmarks.peers --json results/peers.json

All train PPO with the same network (two hidden layers of 64, then of 256), 4 epochs of 4 minibatches,
on the same cores (one by default; only JAX makes use of more), with about 2,560 steps per update from 64
environments, then with eight times as many of both. Compilation is left out (the first run of each warms
up). Every number is the best of the repetitions, which alternate between the trainers. rejax only has
environments written in JAX, so it runs its own CartPole and no Chain. GroupPPO runs whole rollouts: 14
groups of 8 of an untrained policy on CartPole come to about 2,560 steps. It trains grpo, which needs no
critic, and ppo, which has one like the other trainers.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.table import Table
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import agentic_gym  # noqa: F401
from agentic_gym.console import show
from agentic_gym.sb3 import AgenticVecEnv
from algos import GroupPPO
from benchmarks.store import write_text

EPOCHS, MINIBATCHES = 4, 4
ROLLOUT = 40
"""Steps per environment and update; GroupPPO's rollouts are as long as they are."""
BATCHES = (2560, 20480)
"""Steps per update."""
WIDTHS = (64, 256)
"""Both hidden layers."""
CHAIN = {"options": 4, "depth": 10, "graded": True}
JAX_STEPS = 40 * BATCHES[0]
"""Steps of one call of a compiled training, a multiple of all batches."""
Run = Callable[[], int]


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        repetitions: how often each trainer is timed.
        json: where to write the numbers; None writes nothing.
        cores: how many cores the process may use.
    """

    repetitions: int = 5
    json: Path | None = None
    cores: int = 1


def _learner(model: Any, steps: int) -> Run:
    def run() -> int:
        before = model.num_timesteps
        model.learn(steps, reset_num_timesteps=before == 0, log_interval=None)
        return int(model.num_timesteps - before)

    return run


def group_ppo(net_arch: list[int], steps: int, scheme: str, env_id: str, **env_kwargs: Any) -> Run:
    """Ours: rollouts from reset seeds on CartPole, from prompts on Chain."""
    n_prompts = (32 if env_kwargs else 14) * steps // BATCHES[0]
    model = GroupPPO(
        "MessagePolicy", env_id, scheme=scheme, n_prompts=n_prompts, group_size=8, n_epochs=EPOCHS,
        n_minibatches=MINIBATCHES, learning_rate=1e-6, seed=0, diagnostics_interval=0, env_kwargs=env_kwargs or None,
        policy_kwargs={"net_arch": net_arch},
    )  # fmt: skip
    return _learner(model, 4 * steps)


def sb3(net_arch: list[int], steps: int, env: Any, algorithm: Any = PPO) -> Run:
    """SB3, and sbx, which has its interface."""
    model = algorithm(
        "MlpPolicy", env, n_steps=ROLLOUT, batch_size=steps // MINIBATCHES, n_epochs=EPOCHS,
        learning_rate=1e-6, seed=0, policy_kwargs={"net_arch": net_arch},
    )  # fmt: skip
    return _learner(model, steps)


def rejax_ppo(net_arch: list[int], steps: int) -> Run:
    """PPO with environment and update in one compiled function."""
    import jax
    import rejax

    algorithm = rejax.PPO.create(
        env="CartPole-v1", num_envs=steps // ROLLOUT, num_steps=ROLLOUT, num_epochs=EPOCHS,
        num_minibatches=MINIBATCHES, total_timesteps=JAX_STEPS, eval_freq=JAX_STEPS,
        learning_rate=1e-6,
        skip_initial_evaluation=True, agent_kwargs={"hidden_layer_sizes": net_arch},
    )  # fmt: skip
    train = jax.jit(algorithm.train)
    key = jax.random.PRNGKey(0)

    def run() -> int:
        jax.block_until_ready(train(key))
        return JAX_STEPS

    return run


def tianshou_ppo(net_arch: list[int], n_steps: int) -> Run:
    """PPO with tianshou's vector environment in this process, collecting and updating in turn."""
    import gymnasium
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.policy import PPOPolicy
    from tianshou.utils.net.common import ActorCritic, Net
    from tianshou.utils.net.discrete import Actor, Critic

    envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1")] * (n_steps // ROLLOUT))
    actor, critic = Actor(Net(4, hidden_sizes=net_arch), 2), Critic(Net(4, hidden_sizes=net_arch))
    policy = PPOPolicy(
        actor, critic, torch.optim.Adam(ActorCritic(actor, critic).parameters(), lr=1e-6),
        torch.distributions.Categorical, action_space=gymnasium.spaces.Discrete(2),
    )  # fmt: skip
    collector = Collector(policy, envs, VectorReplayBuffer(n_steps, n_steps // ROLLOUT))

    def run() -> int:
        steps = int(collector.collect(n_step=n_steps)["n/st"])
        policy.update(0, collector.buffer, batch_size=n_steps // MINIBATCHES, repeat=EPOCHS)
        collector.reset_buffer(keep_statistics=True)
        return steps

    return run


def measure(steps: int, width: int, repetitions: int) -> dict[str, dict[str, float]]:
    """Return steps per second by environment and trainer."""
    from sbx import PPO as SBX

    net_arch, n_envs = [width, width], steps // ROLLOUT
    runs: dict[tuple[str, str], Run] = {
        ("CartPole-v1", "GroupPPO grpo"): group_ppo(net_arch, steps, "grpo", "CartPole-v1"),
        ("CartPole-v1", "GroupPPO ppo"): group_ppo(net_arch, steps, "ppo", "CartPole-v1"),
        ("CartPole-v1", "SB3 PPO"): sb3(net_arch, steps, make_vec_env("CartPole-v1", n_envs)),
        ("CartPole-v1", "tianshou PPO"): tianshou_ppo(net_arch, steps),
        ("CartPole-v1", "sbx PPO"): sb3(net_arch, steps, make_vec_env("CartPole-v1", n_envs), SBX),
        ("CartPole-v1", "rejax PPO"): rejax_ppo(net_arch, steps),
        ("Chain-v0", "GroupPPO grpo"): group_ppo(net_arch, steps, "grpo", "agentic_gym/Chain-v0", **CHAIN),
        ("Chain-v0", "GroupPPO ppo"): group_ppo(net_arch, steps, "ppo", "agentic_gym/Chain-v0", **CHAIN),
        ("Chain-v0", "SB3 PPO"): sb3(net_arch, steps, AgenticVecEnv(n_envs, family="Chain", **CHAIN)),
        ("Chain-v0", "sbx PPO"): sb3(net_arch, steps, AgenticVecEnv(n_envs, family="Chain", **CHAIN), SBX),
    }
    best = dict.fromkeys(runs, 0.0)
    for repetition in range(repetitions + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            steps = run()
            if repetition:
                best[name] = max(best[name], steps / (time.perf_counter() - start))
    result: dict[str, dict[str, float]] = {}
    for (environment, trainer), rate in best.items():
        result.setdefault(environment, {})[trainer] = rate
    return result


def main(options: Options) -> None:
    """Measure, print, and write."""
    torch.set_num_threads(1)
    # Before JAX is imported, which makes its threads then.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    rates: list[dict[str, Any]] = [
        {"steps_per_update": steps, "width": width, "environment": environment, "steps_per_second": by_trainer}
        for steps in BATCHES
        for width in WIDTHS
        for environment, by_trainer in measure(steps, width, options.repetitions).items()
    ]
    table = Table("steps per update", "two layers of", "environment", "trainer", "steps/s", title="training")
    for setting in rates:
        *where, by_trainer = setting.values()
        for trainer, rate in by_trainer.items():
            table.add_row(*map(str, where), trainer, f"{rate:,.0f}")
    show(table)
    if options.json is not None:
        packages = ("torch", "stable-baselines3", "tianshou", "sbx-rl", "rejax", "jax")
        document = {
            "command": f"python -m benchmarks.peers --cores {options.cores}",
            "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "cores_used": options.cores},
            "versions": {name: metadata.version(name) for name in packages},
            "rates": rates,
        }
        write_text(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
