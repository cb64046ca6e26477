"""The suite, measured: speed and memory of every id, how rollouts end, and how fast they are learned.

    python -m benchmarks.suite            # everything, about two hours on one core
    python -m benchmarks.suite --quick    # every part of it, seconds per id, into a file of its own
    python -m benchmarks.suite --show     # the tables of what is stored

Results are kept in one JSON file, written after every id, whole or not at all; an interrupted run
goes on where it was when the command is given again.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
import tracemalloc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console
from stable_baselines3 import PPO

from agentic_gym import IDS, AgenticVectorEnv, truth
from agentic_gym.families import FAMILIES
from agentic_gym.registration import NAMESPACE
from agentic_gym.sb3 import AgenticVecEnv
from algos import GroupPPO
from algos.segments import Segments
from algos.threads import limit_threads
from algos.warmstart import WarmStart, warmstart
from benchmarks.experiment import BenchmarkError
from benchmarks.rollouts import IntArray, Played, Writer, at_random, expert, make_engine, play
from benchmarks.store import RESULTS
from benchmarks.suite_results import PAGE, load, save, show, write_page

DEFAULT_IDS = tuple(f"{NAMESPACE}/{family}-v0" for family in FAMILIES)
"""The families at their defaults; only these are learned by SB3 as well."""
GROUP_SIZE = 8
SUCCESS_RATE = 0.2
"""Success of the base policy."""
LEARNED, SOLVED = 0.8, 0.95
"""Normalised scores: that counts as learned; at that learning stops."""
GROUP_PPO: dict[str, Any] = dict(scheme="grpo", n_prompts=16, n_epochs=4, n_minibatches=4, learning_rate=3e-4)
"""The rate is the default of SB3's PPO."""
OTHER_SEEDS = (1, 2)
"""With these the families at their defaults are learned again, but only until they count as learned."""
CHUNK = 2000
"""Turns between two looks at the clock."""
SB3_ROWS = 64
SB3_PPO: dict[str, Any] = {"n_steps": 64, "batch_size": 512, "n_epochs": 4, "learning_rate": 1e-3}
FILE_OPTIONS = ("--json", "--page")
BANK = 8
"""Messages per row that are drawn before the engine's clock starts."""


@dataclass(frozen=True)
class Budget:
    """How much to measure.

    Attributes:
        row_counts: rows of the engine whose speed is measured.
        timing_seconds: seconds per timing loop.
        timing_repetitions: timing loops; the fastest counts.
        memory_rows: rows of the engine whose memory is measured.
        groups: groups of rollouts per environment and policy.
        warmstart_rollouts: demonstrations per environment.
        warmstart_epochs: passes over the demonstrations at most.
        examination: test rollouts per environment and point of a learning curve.
        points: points of a learning curve.
        first_seconds, early_seconds, learning_seconds: CPU seconds of learning at its first point, at
            the one that is reported, and in all.
        sb3_seconds: CPU seconds of learning from scratch with SB3's algorithms; 0 leaves them out.
    """

    row_counts: tuple[int, ...] = (1, 64, 1024, 8192)
    timing_seconds: float = 0.5
    timing_repetitions: int = 3
    memory_rows: int = 8192
    groups: int = 256
    warmstart_rollouts: int = 2048
    warmstart_epochs: int = 60
    examination: int = 512
    points: int = 20
    first_seconds: float = 1.0
    early_seconds: float = 5.0
    learning_seconds: float = 180.0
    sb3_seconds: float = 30.0


QUICK = Budget((1, 64), 0.02, 1, 256, 16, 128, 3, 32, 3, 0.2, 0.5, 1.0, 0.5)


@dataclass(frozen=True)
class Options:
    """What to measure, and where the results are.

    Attributes:
        json: file of the results; by default results/suite.json, or results/suite_quick.json with --quick.
        ids: which ids, for example Search-v0; by default all.
        quick: measure next to nothing, to see that everything works.
        again: measure also what is stored already.
        only: of what is stored, measure again the engine's speed and memory, or what GroupPPO learns, and
            nothing else.
        sb3_seconds: CPU seconds for each of SB3's algorithms on each family; 0 leaves them out.
        seed: seed of policies and samples.
        show: only show what is stored.
        page: where to write the documentation's page; by default in docs/ for results/suite.json, else nowhere.
    """

    json: Path | None = None
    ids: tuple[str, ...] = ()
    quick: bool = False
    again: bool = False
    only: Literal["engine", "learning"] | None = None
    sb3_seconds: float | None = None
    seed: int = 0
    show: bool = False
    page: Path | None = None


# The engine.


def engine_rate(env_id: str, n_rows: int, budget: Budget) -> float:
    """Turns per second of the engine alone with random legal messages, the fastest of the loops.

    Rows restart by themselves. A tick in which a row restarts is no turn of that row, and does not count.
    """
    engine = make_engine(env_id, n_rows, "NextStep")
    _, info = engine.reset(seed=0)
    bank, rows = _message_bank(engine), np.arange(n_rows)
    best = 0.0
    for _ in range(budget.timing_repetitions + 1):  # One more, for the first one warms up.
        turns, tick, start = 0, 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < budget.timing_seconds or not turns:
            _, _, _, _, info = engine.step(bank[tick % BANK][info["environment"], rows])
            turns += int(np.count_nonzero(info["turn"]))
            tick += 1
        best = max(best, turns / elapsed)
    return best


def _message_bank(engine: AgenticVectorEnv) -> list[IntArray]:
    """Draw legal messages (E, n, L) for every row in every environment that it may be in."""
    n, slots, random = engine.num_envs, engine.grammar.n_slots, np.random.default_rng(0)
    environments = range(len(engine.environment_names))
    return [
        np.stack([engine.grammar.sample(random.random((n, slots)), np.full(n, index)) for index in environments])
        for _ in range(BANK)
    ]


def engine_memory(env_id: str, n_rows: int) -> dict[str, float]:
    """Bytes per row: of what the engine keeps, and the most that one step takes besides."""
    engine = make_engine(env_id, n_rows)
    engine.reset(seed=0)
    kept = engine.snapshot()
    message = _message_bank(engine)[0][0]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        engine.step(message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    size = count_bytes(kept["state"]) + count_bytes(kept["book"])
    return {"kept": size / n_rows, "step": (peak - before) / n_rows}


def count_bytes(arrays: Mapping[str, Any]) -> int:
    """Return the size of arrays in nested dictionaries."""
    return sum(count_bytes(value) if isinstance(value, Mapping) else value.nbytes for value in arrays.values())


# Rollouts.


def policy_of(model: GroupPPO, seed: int) -> Writer:
    """Return a trained policy, sampling."""
    random, policy = np.random.default_rng(seed), model.policy
    return lambda observation, info: policy.write(policy.features(observation), random).message


def rollout_statistics(played: Played, environment: int) -> dict[str, float]:
    """Summarise the rollouts of one environment; those whose reward is not valid count for their length only."""
    rows = played.environment == environment
    valid = rows & played.valid
    groups = Segments.by(played.prompt[valid])
    reward, weight = played.reward[valid], np.ones(int(valid.sum()))
    # Groups of one have nothing to compare.
    several = groups.sum(weight) > 1
    spread, silent = groups.spread(reward, weight, ddof=1), groups.constant(reward, weight > 0)
    return {
        "rollouts": int(rows.sum()),
        "score": float(played.score[valid].mean()),
        "success": float(played.success[valid].mean()),
        "turns_mean": float(played.turns[rows].mean()),
        "turns_max": int(played.turns[rows].max()),
        "tokens_mean": float(played.tokens[rows].mean()),
        "reward_mean": float(reward.mean()),
        "reward_lowest": float(reward.min()),
        "reward_highest": float(reward.max()),
        "std_within_groups": float(spread[several].mean()),
        "groups_without_signal": float(silent[several].mean()),
    }


def rollouts(env_id: str, model: GroupPPO, budget: Budget, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """Play groups by the expert, at random, and by the model: environment -> policy -> statistics."""
    cycle = make_engine(env_id, 1).prompt_cycle
    names = make_engine(env_id, 1).environment_names
    # Whole cycles of prompts, at least the stated number of groups of every environment.
    groups = -(-budget.groups * len(names) // cycle) * cycle
    engine = make_engine(env_id, groups * GROUP_SIZE)
    writers = {"expert": expert(engine), "random": at_random(engine, seed), "base": policy_of(model, seed)}
    played = {name: play(engine, write, GROUP_SIZE) for name, write in writers.items()}
    return {
        name: {policy: rollout_statistics(found, index) for policy, found in played.items()}
        for index, name in enumerate(names)
    }


# Learning.


class Learner(Protocol):
    """Something that learns."""

    turns: int

    def learn(self) -> None:
        """Learn for a moment."""

    def write(self, observation: npt.NDArray[np.float32], info: dict[str, Any]) -> IntArray:
        """Write messages, sampled."""


class GroupLearner:
    """GroupPPO from a model that has been started."""

    def __init__(self, model: GroupPPO, seed: int) -> None:
        """See the class docstring."""
        self.model, self.turns = model, 0
        self.write = policy_of(model, seed)

    def learn(self) -> None:
        """Take at least ``CHUNK`` turns, in whole updates."""
        self.model.learn(CHUNK, reset_num_timesteps=self.turns == 0, log_interval=None)
        self.turns = self.model.num_timesteps


class Sb3Learner:
    """SB3's PPO, or sb3-contrib's MaskablePPO, from scratch on ``AgenticVecEnv``."""

    def __init__(self, name: str, env_id: str, seed: int) -> None:
        """See the class docstring."""
        env = AgenticVecEnv(SB3_ROWS, **gymnasium.spec(env_id).kwargs)
        self.masked, self.turns = name == "MaskablePPO", 0
        algorithm: Any = PPO
        if self.masked:
            from sb3_contrib import MaskablePPO

            algorithm = MaskablePPO
        self.model = algorithm("MlpPolicy", env, device="cpu", seed=seed, **SB3_PPO)

    def learn(self) -> None:
        """Take one update."""
        self.model.learn(1, reset_num_timesteps=self.turns == 0)
        self.turns = self.model.num_timesteps

    def write(self, observation: npt.NDArray[np.float32], info: dict[str, Any]) -> IntArray:
        """Sample messages."""
        masks = {"action_masks": info["action_mask"].astype(np.bool_)} if self.masked else {}
        message, _ = self.model.predict(observation, deterministic=False, **masks)
        return np.asarray(message)


class Examiner:
    """Plays test rollouts and maps scores so that 0 is the random policy and 1 the expert."""

    def __init__(self, env_id: str, budget: Budget) -> None:
        """See the class docstring."""
        one = make_engine(env_id, 1)
        self.names, self.truths = one.environment_names, truth(env_id)
        n = -(-budget.examination * len(self.names) // one.prompt_cycle) * one.prompt_cycle
        self.engine = make_engine(env_id, n)

    def examine(self, learner: Learner) -> dict[str, Any]:
        """Return the normalised score (mean of the environments, and each), success and turns."""
        played = play(self.engine, learner.write)
        scores = {}
        for index, (name, known) in enumerate(zip(self.names, self.truths, strict=True)):
            rows = (played.environment == index) & played.valid
            scores[name] = float(known.normalise(played.score[rows].mean()))
        return {
            "score": float(np.mean(list(scores.values()))),
            "success": float(played.success[played.valid].mean()),
            "length": float(played.turns.mean()),
            "scores": scores,
        }


def learning_curve(
    learner: Learner, examiner: Examiner, points: Sequence[float], stop_at: float = np.inf
) -> list[dict[str, Any]]:
    """Learn, and examine at the given CPU seconds of learning; examinations do not count.

    Args:
        learner: learns.
        examiner: examines.
        points: CPU seconds, increasing; learning ends with the last one.
        stop_at: normalised score at which it ends before.

    Returns:
        One dictionary per examination, the first one before learning: ``cpu_s``, ``turns``, and what the
        examiner reports.
    """
    curve = [{"cpu_s": 0.0, "turns": 0, **examiner.examine(learner)}]
    spent, waiting = 0.0, list(points)
    while waiting and curve[-1]["score"] < stop_at:
        start = time.process_time()
        learner.learn()
        spent += time.process_time() - start
        if spent >= waiting[0]:
            waiting = [point for point in waiting if point > spent]
            curve.append({"cpu_s": round(spent, 3), "turns": learner.turns, **examiner.examine(learner)})
    return curve


def points_in_time(budget: Budget, last: float) -> list[float]:
    """Return CPU seconds in geometric steps, with the one that is reported among them."""
    steps = np.geomspace(min(budget.first_seconds, last), last, budget.points).tolist()
    return sorted({*steps, *([budget.early_seconds] if budget.early_seconds < last else [])})


def summarise(curve: Sequence[Mapping[str, Any]], early: float) -> dict[str, Any]:
    """Take from a learning curve what the tables show.

    Returns:
        ``seconds_to_learn`` (None if it was not learned), ``score_start``, ``score_early`` (the last score if
        learning stopped before), ``score_end``, ``success_end``, ``turns_end``, ``cpu_s_end``.
    """
    learned = [point["cpu_s"] for point in curve if point["score"] >= LEARNED]
    later = [point["score"] for point in curve if point["cpu_s"] >= early]
    first, last = curve[0], curve[-1]
    return {
        "seconds_to_learn": learned[0] if learned else None,
        "score_start": first["score"],
        "score_early": later[0] if later else last["score"],
        "score_end": last["score"],
        "success_end": last["success"],
        "turns_end": last["turns"],
        "cpu_s_end": last["cpu_s"],
    }


def start_model(env_id: str, budget: Budget, seed: int) -> tuple[GroupPPO, WarmStart]:
    """Return a model that succeeds now and then."""
    model = GroupPPO("MessagePolicy", env_id, group_size=GROUP_SIZE, seed=seed, **GROUP_PPO)
    reached = warmstart(
        model, SUCCESS_RATE, rollouts=budget.warmstart_rollouts, max_epochs=budget.warmstart_epochs, seed=seed
    )
    return model, reached


@contextmanager
def noted_warnings() -> Iterator[list[str]]:
    """Gather warnings, each text once, instead of printing them."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts.extend(dict.fromkeys(str(warning.message) for warning in caught))


# One id, all ids.


def measure_id(env_id: str, budget: Budget, seed: int) -> dict[str, Any]:
    """Measure everything about one id."""
    entry = measure_engine(env_id, budget)
    with noted_warnings() as texts:
        start = time.process_time()
        model, reached = start_model(env_id, budget, seed)
        entry["warmstart"] = {"cpu_s": round(time.process_time() - start, 3), **asdict(reached)}
        entry["rollouts"] = rollouts(env_id, model, budget, seed)
        entry["learning"] = group_learning(env_id, budget, seed)
        if budget.sb3_seconds > 0 and env_id in DEFAULT_IDS:
            examiner, times = Examiner(env_id, budget), points_in_time(budget, budget.sb3_seconds)
            for name in ("PPO", "MaskablePPO"):
                curve = learning_curve(Sb3Learner(name, env_id, seed), examiner, times, SOLVED)
                entry["learning"][name] = {**summarise(curve, budget.early_seconds), "curve": curve}
    return {**entry, "warnings": texts}


def group_learning(env_id: str, budget: Budget, seed: int) -> dict[str, Any]:
    """Let GroupPPO learn from the base policy; the families at their defaults with other seeds, too."""
    examiner, times = Examiner(env_id, budget), points_in_time(budget, budget.learning_seconds)

    def learn(with_seed: int, stop_at: float) -> dict[str, Any]:
        model, _ = start_model(env_id, budget, with_seed)
        curve = learning_curve(GroupLearner(model, with_seed), examiner, times, stop_at)
        return {**summarise(curve, budget.early_seconds), "curve": curve}

    learned = {"GroupPPO": learn(seed, SOLVED)}
    if env_id in DEFAULT_IDS:
        learned |= {f"GroupPPO, seed {seed + other}": learn(seed + other, LEARNED) for other in OTHER_SEEDS}
    return learned


def measure_engine(env_id: str, budget: Budget) -> dict[str, Any]:
    """Measure speed and memory of the engine alone."""
    return {
        "turns_per_second": {str(n): engine_rate(env_id, n, budget) for n in budget.row_counts},
        "bytes_per_row": engine_memory(env_id, budget.memory_rows),
    }


def measure_part(options: Options, budget: Budget, path: Path, console: Console) -> None:
    """Measure one part of every chosen id that is stored again, and say so in its entry."""
    results, part = load(path), options.only
    for env_id in chosen_ids(options.ids):
        if env_id in results["ids"]:
            entry, start = results["ids"][env_id], time.perf_counter()
            if part == "engine":
                entry |= measure_engine(env_id, budget)
            else:
                with noted_warnings():  # Those of the base policy are noted in the entry already.
                    entry["learning"] |= group_learning(env_id, budget, options.seed)
                entry["settings"] = make_settings(env_id, options.seed, budget)
            entry[f"{part}_measured"] = origin(time.perf_counter() - start)
            save(results, path)
            console.print(f"{env_id}: {part} measured", highlight=False)


def measure_all(options: Options, budget: Budget, path: Path, console: Console) -> list[str]:
    """Measure what is missing, store it after every id, and return the ids that failed."""
    results, failed = load(path), []
    for env_id in chosen_ids(options.ids):
        settings = make_settings(env_id, options.seed, budget)
        stored = results["ids"].get(env_id)
        if stored and stored["settings"] == settings and not options.again:
            console.print(f"{env_id}: stored already")
            continue
        start = time.perf_counter()
        try:
            entry = measure_id(env_id, budget, options.seed)
        except Exception:  # One id must not cost the night's other ones.
            failed.append(env_id)
            console.print(f"{env_id}: failed\n{traceback.format_exc()}", markup=False, highlight=False)
            continue
        seconds = time.perf_counter() - start
        results["ids"][env_id] = {"settings": settings, **origin(seconds), **entry}
        results["ids"] = {name: results["ids"][name] for name in IDS if name in results["ids"]}
        save(results, path)
        console.print(f"{env_id}: {seconds:.0f} s", highlight=False)
    return failed


def make_settings(env_id: str, seed: int, budget: Budget) -> dict[str, Any]:
    """Return everything that a measurement depends on besides the code, as JSON gives it back."""
    protocol = {
        "group_size": GROUP_SIZE, "success_rate": SUCCESS_RATE, "learned": LEARNED, "solved": SOLVED,
        "group_ppo": GROUP_PPO, "sb3_rows": SB3_ROWS, "sb3_ppo": SB3_PPO,
    }  # fmt: skip
    others = {"other_seeds": OTHER_SEEDS} if env_id in DEFAULT_IDS else {}
    return dict(json.loads(json.dumps({"seed": seed, **asdict(budget), **protocol, **others})))


def chosen_ids(names: Sequence[str]) -> list[str]:
    """Return full ids; all if no name is given.

    Raises:
        BenchmarkError: if a name is unknown.
    """
    full = [name if name.startswith(f"{NAMESPACE}/") else f"{NAMESPACE}/{name}" for name in names]
    unknown = [name for name in full if name not in IDS]
    if unknown:
        raise BenchmarkError(f"'ids' must be among {list(IDS)}. Got {unknown} instead.")
    return full or list(IDS)


def origin(seconds: float) -> dict[str, Any]:
    """Say when and with what something was measured; the machine's name is nobody's business."""
    packages = ("agentic-gym", "numpy", "torch", "gymnasium", "stable-baselines3", "sb3-contrib")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "wall_s": round(seconds, 1),
        "command": " ".join(["python -m benchmarks.suite", *_without_files(sys.argv[1:])]),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
    }


def _without_files(arguments: Sequence[str]) -> list[str]:
    """Leave out where the results were written: that is this machine's business, too."""
    return [
        argument
        for before, argument in zip(["", *arguments], arguments, strict=False)
        if before not in FILE_OPTIONS and argument not in FILE_OPTIONS
    ]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def main(options: Options) -> int:
    """Measure what is missing, print, and write the page.

    Returns:
        Exit status: 1 if an id failed.
    """
    console = Console()
    if not console.is_terminal:
        console.width = 160
    path = options.json or RESULTS / ("suite_quick.json" if options.quick else "suite.json")
    budget = QUICK if options.quick else Budget()
    if options.sb3_seconds is not None:
        budget = Budget(**{**asdict(budget), "sb3_seconds": options.sb3_seconds})
    failed = []
    if not options.show:
        with limit_threads(1):
            if options.only:
                measure_part(options, budget, path, console)
            else:
                failed = measure_all(options, budget, path, console)
    show(load(path), console)
    target = PAGE if options.page is None and path == RESULTS / "suite.json" else options.page
    if target is not None:
        write_page(path, target)
    if failed:
        console.print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(tyro.cli(Options, description=__doc__)))
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
