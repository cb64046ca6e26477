"""Speed: GroupPPO against SB3 PPO, the update against its matrix products, and the engine alone.

    python -m benchmarks.speed              # everything, about three minutes
    python -m benchmarks.speed --json results/speed.json

Every measurement is the best of several repetitions in one process with one thread, alternating
between the things compared, so that a noisy neighbour hits all of them alike.
"""

from __future__ import annotations

import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

import agentic_gym  # noqa: F401
from agentic_gym.sb3 import AgenticVecEnv
from algos import RECIPES, GroupPPO
from algos.advantages import advantages
from algos.collector import Trajectories, collect
from algos.surrogates.aggregation import token_weights
from algos.surrogates.loss import token_losses
from algos.threads import limit_threads
from algos.update import UpdateTensors
from benchmarks.store import write_text

ENVIRONMENT = "agentic_gym/Chain-v0"
# Graded, so that every group has a signal: an update without one costs nothing.
KNOBS = {"options": 4, "depth": 10, "graded": True}
WIDTHS = [64, 64]
UPDATE_WIDTHS = (64, 128, 256, 512)
"""Both hidden layers of the networks whose update is set beside its matrix products."""
GROUPS, GROUP_SIZE = 32, 8
TURNS = GROUPS * GROUP_SIZE * 10
MINIBATCHES = 4
RECIPE_ENVIRONMENT = "agentic_gym/Search-v0"
RECIPE_KNOBS = {"entities": 8, "relations": 4, "reward_offset": 1.0}
"""Search, because it has all that recipes ask for; the offset makes rewards non-negative, as VGPO needs them."""
FAMILIES = ("Chain", "Search", "Database", "Mixture")
ROWS = (1, 64, 1024, 8192)


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        repetitions: how often each thing is measured; the best counts.
        json: where to write the numbers; None writes nothing.
    """

    repetitions: int = 5
    json: Path | None = None


def group_ppo(n_epochs: int) -> Callable[[], int]:
    """Return a function that trains for a few updates and returns the number of turns."""
    minibatches = MINIBATCHES if n_epochs > 1 else 1
    model = GroupPPO(
        "MessagePolicy", ENVIRONMENT, scheme="grpo", n_prompts=GROUPS, group_size=GROUP_SIZE, n_epochs=n_epochs,
        n_minibatches=minibatches, env_kwargs=KNOBS, policy_kwargs={"net_arch": WIDTHS}, seed=0,
        learning_rate=1e-6, diagnostics_interval=0,
    )  # fmt: skip

    def run() -> int:
        before = model.num_timesteps
        model.learn(4 * TURNS, reset_num_timesteps=before == 0, log_interval=None)
        return model.num_timesteps - before

    return run


def sb3_ppo(env: VecEnv) -> Callable[[], int]:
    """SB3's PPO with as many turns per update, the same epochs, minibatches and network."""
    model = PPO(
        "MlpPolicy", env, n_steps=TURNS // env.num_envs, batch_size=TURNS // MINIBATCHES, n_epochs=4, device="cpu",
        learning_rate=1e-6, seed=0, policy_kwargs={"net_arch": WIDTHS, "activation_fn": torch.nn.ReLU},
    )  # fmt: skip

    def run() -> int:
        before = model.num_timesteps
        model.learn(TURNS, reset_num_timesteps=before == 0)
        return model.num_timesteps - before

    return run


def rates(runs: dict[str, Callable[[], int]], repetitions: int) -> dict[str, float]:
    """Turns per second of each, the best of the repetitions; the first one warms up."""
    best = dict.fromkeys(runs, 0.0)
    for repetition in range(repetitions + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            turns = run()
            if repetition:
                best[name] = max(best[name], turns / (time.perf_counter() - start))
    return best


def one_minibatch(width: int) -> tuple[GroupPPO, UpdateTensors]:
    """Return a model whose hidden layers have that width, and a minibatch to train it on."""
    model = GroupPPO(
        "MessagePolicy", ENVIRONMENT, n_prompts=GROUPS, group_size=GROUP_SIZE, env_kwargs=KNOBS, seed=0,
        policy_kwargs={"net_arch": [width, width]},
    )  # fmt: skip
    model.learn(1, log_interval=None)
    prompt = np.repeat(np.arange(GROUPS), GROUP_SIZE)
    data = collect(model.rows, model.policy, prompt, np.arange(len(prompt)), np.random.default_rng(0))
    assert data is not None
    credit, weights = advantages("grpo", data.batch) + 0.1, token_weights(model.scheme, data.batch)
    tensors = UpdateTensors.build(model.policy, model.scheme, data, credit, weights)
    return model, next(tensors.shuffled(np.random.default_rng(0)).minibatches(MINIBATCHES))


def fastest(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Microseconds of each, the fastest of the rounds, in which they take turns."""
    best = dict.fromkeys(functions, np.inf)
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], (time.perf_counter() - start) * 1e6)
    return best


def update_times(width: int, repetitions: int) -> dict[str, float]:
    """Microseconds of one minibatch: optimiser step included, and its bare matrix products."""
    model, part = one_minibatch(width)
    layers = [weight.detach() for weight in model.policy.actor.weights]

    def step() -> None:
        model._differentiate(part)
        model._step()

    def products() -> None:
        with torch.no_grad():
            inputs = [part.slots.features]
            for weight in layers:
                inputs.append(inputs[-1] @ weight)
            delta = inputs[-1]
            for layer, weight in zip(reversed(inputs[:-1]), reversed(layers), strict=True):
                layer.t() @ delta
                if layer is not inputs[0]:
                    delta = delta @ weight.t()

    return fastest({"update": step, "products": products}, 100 * repetitions)


def loss_times(repetitions: int) -> dict[str, float]:
    """Microseconds of the loss of one minibatch and its gradient, as it is and through ``torch.compile``.

    Returns:
        ``eager``, ``compiled``, and the seconds of the compilation, ``compilation_s``.
    """
    model, part = one_minibatch(WIDTHS[0])

    def loss(log_prob: torch.Tensor) -> torch.Tensor:
        return (part.weights * token_losses(model.scheme, part.tokens(log_prob))).sum()

    def pulled(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], object]:
        return lambda: function(part.old_log_prob.clone().requires_grad_()).backward()  # type: ignore[no-untyped-call]

    compiled = pulled(torch.compile(loss))
    start = time.perf_counter()
    compiled()
    seconds = time.perf_counter() - start
    return {**fastest({"eager": pulled(loss), "compiled": compiled}, 100 * repetitions), "compilation_s": seconds}


def recipe_times(repetitions: int) -> dict[str, float]:
    """Milliseconds of ``GroupPPO.train`` on one batch, by recipe: credit, tensors, all epochs and minibatches.

    Every recipe trains on rollouts of its own at the same setting, so what it measures besides (for
    example answer probabilities) is not in its time; that belongs to the collection.
    """
    trained: dict[str, tuple[GroupPPO, Trajectories]] = {}
    for name in RECIPES:
        model = GroupPPO(
            "MessagePolicy", RECIPE_ENVIRONMENT, scheme=name, n_prompts=GROUPS, group_size=GROUP_SIZE, n_epochs=4,
            n_minibatches=MINIBATCHES, seed=0, learning_rate=1e-6, diagnostics_interval=0, env_kwargs=RECIPE_KNOBS,
        )  # fmt: skip
        kept: list[Trajectories] = []
        train = model.train

        def keep(data: Trajectories, kept: list[Trajectories] = kept, train: Any = train) -> None:
            kept.append(data)
            train(data)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.train = keep  # type: ignore[method-assign]
            model.learn(1, log_interval=None)
        model.train = train  # type: ignore[method-assign]
        trained[name] = (model, kept[-1])
    best = dict.fromkeys(trained, np.inf)
    # Differences of a few per cent are wanted, of two hundredths of a second each.
    for _ in range(4 * repetitions):
        for name, (model, data) in trained.items():
            start = time.process_time()
            model.train(data)
            best[name] = min(best[name], (time.process_time() - start) * 1e3)
    return best


def engine_rate(family: str, n_rows: int, repetitions: int) -> float:
    """Turns per second of the engine alone, with random legal messages and autoreset."""
    env: Any = gymnasium.make_vec(f"agentic_gym/{family}-v0", num_envs=n_rows)
    _, info = env.reset(seed=0)
    random = np.random.default_rng(0)
    dialect = info["environment"] if env.grammar.dialect_features else np.zeros(n_rows, np.int64)
    messages = [env.grammar.sample(random.random((n_rows, env.grammar.n_slots)), dialect) for _ in range(10)]
    best = 0.0
    steps = max(10, min(300, 100_000 // n_rows))
    for _ in range(repetitions + 1):
        start = time.perf_counter()
        for index in range(steps):
            env.step(messages[index % 10])
        best = max(best, n_rows * steps / (time.perf_counter() - start))
    return best


def measure(repetitions: int) -> dict[str, Any]:
    """Measure everything."""
    # First, as in a process that trains and has done nothing else.
    updates = {str(width): update_times(width, repetitions) for width in UPDATE_WIDTHS}
    trainers = rates(
        {
            "GroupPPO, 4 epochs of 4 minibatches": group_ppo(4),
            "GroupPPO, 1 epoch of 1 minibatch": group_ppo(1),
            "SB3 PPO, 8 envs (make_vec_env)": sb3_ppo(make_vec_env(ENVIRONMENT, 8, env_kwargs=KNOBS)),
            "SB3 PPO, 8 envs (AgenticVecEnv)": sb3_ppo(AgenticVecEnv(8, family="Chain", **KNOBS)),
            "SB3 PPO, 64 envs (make_vec_env)": sb3_ppo(make_vec_env(ENVIRONMENT, 64, env_kwargs=KNOBS)),
            "SB3 PPO, 64 envs (AgenticVecEnv)": sb3_ppo(AgenticVecEnv(64, family="Chain", **KNOBS)),
        },
        repetitions,
    )
    return {
        "machine": {
            "processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version(),
            "torch": torch.__version__, "numpy": np.__version__,
        },
        "setting": {"environment": ENVIRONMENT, **KNOBS, "widths": WIDTHS, "turns_per_update": TURNS},
        "turns_per_second": trainers,
        "minibatch_microseconds": updates,
        "loss_microseconds": loss_times(repetitions),
        "train_milliseconds": recipe_times(repetitions),
        "engine_turns_per_second": {
            family: {str(n): engine_rate(family, n, repetitions) for n in ROWS} for family in FAMILIES
        },
    }  # fmt: skip


def show(result: dict[str, Any]) -> None:
    """Print the numbers as tables."""
    console = Console()
    trainers = Table("training", "turns/s", title=f"{ENVIRONMENT}, depth {KNOBS['depth']}, two layers of 64")
    for name, rate in result["turns_per_second"].items():
        trainers.add_row(name, f"{rate:,.0f}")
    console.print(trainers)
    updates = Table(
        "width", "update, us", "its matrix products, us", "ratio", title=f"a minibatch of {TURNS // MINIBATCHES} turns"
    )
    for width, times in result["minibatch_microseconds"].items():
        ratio = times["update"] / times["products"]
        updates.add_row(width, f"{times['update']:.0f}", f"{times['products']:.0f}", f"{ratio:.2f}")
    console.print(updates)
    loss = result["loss_microseconds"]
    console.print(
        f"the loss and its gradient: {loss['eager']:.0f} us, through torch.compile {loss['compiled']:.0f} us, "
        f"compiled in {loss['compilation_s']:.0f} s"
    )
    by_recipe = result["train_milliseconds"]
    recipes = Table("recipe", "one update, ms", "times grpo's (ppo has a critic, too)")
    for name, milliseconds in sorted(by_recipe.items(), key=lambda pair: pair[1]):
        recipes.add_row(name, f"{milliseconds:.1f}", f"{milliseconds / by_recipe['grpo']:.2f}")
    console.print(recipes)
    engine = Table("engine alone, turns/s", *(f"{n} rows" for n in ROWS))
    for family, by_rows in result["engine_turns_per_second"].items():
        engine.add_row(family, *(f"{rate:,.0f}" for rate in by_rows.values()))
    console.print(engine)


def main(options: Options) -> None:
    """Measure, print, and write."""
    with limit_threads(1):
        result = measure(options.repetitions)
    show(result)
    if options.json is not None:
        write_text(options.json, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
