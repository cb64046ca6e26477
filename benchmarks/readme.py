"""The tables of results that the README shows, from ``results/``; ``python docs/generate.py`` puts them there."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from algos import make_scheme
from benchmarks import experiments, store
from benchmarks.aggregate import ALPHA, against, best_first, change, choose_learning_rates, current, run_scores
from benchmarks.experiment import rates_in
from benchmarks.statistics import Interval

SPREADS = ("spread-1", "spread-1000")
SMALLEST = "ChainLong"
"""The environment of ``scale_mismatch`` whose rewards are scaled down most."""
WITHIN = 1.3


def durations(root: Path = store.RESULTS) -> str:
    """How long the commands take."""
    found = _read(root / "durations.json")
    cores = {entry["machine"]["cores"] for entry in found.values()}
    times = {name: f"{entry['seconds'] / 60:.1f}" for name, entry in found.items()}
    install, others = times.pop("install"), ", ".join(f"`make {name}` {value}" for name, value in times.items())
    text = (
        f"Minutes in a fresh clone on {' or '.join(map(str, sorted(cores)))} cores: installation {install}, and after "
        f"it {others}. The last makes the headline results anew (`make reproduce ROOT=fresh/results`). Measured by "
        "`python -m benchmarks.durations --json results/durations.json`."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False)


def summary(root: Path = store.RESULTS) -> str:
    """What RESULTS.md has."""
    claims = _read(root / "claims.json")
    text = (
        "**[RESULTS.md](RESULTS.md) has the rest**: which scheme when (a decision table over "
        f"{len(experiments.names())} experiments), whether {len(claims)} published claims replicate here, what the "
        "exact gradient predicts, and what none of this can say."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False)


def scale_table(root: Path = store.RESULTS) -> str:
    """What a spread of reward scales does to each scheme, and how the schemes compare without it."""
    experiment = experiments.load("scale_mismatch")
    stored = store.gather(experiment, root)
    scores = run_scores(current(experiment, stored))
    moved = change(scores, SPREADS[1], SPREADS[0])
    order = best_first(moved)
    lines = [
        f"| scheme | scale | `{SMALLEST}` (smallest rewards) | mean of the four |",
        "|---|---|---|---|",
        *(f"| `{s}` | {_levels(s)} | {_signed(moved[s][SMALLEST])} | {_signed(moved[s]['mean'])} |" for s in order),
    ]
    level = against(scores, SPREADS[0])
    alike = [scheme for scheme, entry in level.items() if entry.p_value >= ALPHA]
    means = [level[scheme].score for scheme in alike]
    rates = choose_learning_rates(experiment, stored)
    chosen = {scheme: max(rates_in(rate)) for scheme, rate in rates.items()}
    largest = [scheme for scheme, rate in chosen.items() if rate == max(experiment.learning_rates)]
    hardest, best = _hardest(scores)
    lines += [
        "",
        f"At spread 1 {len(alike)} of {len(level)} schemes are not distinguishable from the best "
        f"(paired t-test, Holm, 5 %): {_names(alike)}, with means from {min(means):.3f} to "
        f"{max(means):.3f}. `{hardest}` is learned least: at most {best:.3f} in the mean over "
        f"training. Chosen learning rates lie between {min(chosen.values()):g} and "
        f"{max(chosen.values()):g}" + (f"; {_names(largest)} chose the largest of the grid." if largest else "."),
    ]
    return "\n".join(lines)


def _levels(name: str) -> str:
    scheme = make_scheme(name)
    levels = [level for level in (scheme.scale, scheme.whitening) if level != "none"]
    text = ", then ".join(levels) or "none"
    return f"critic, {text}" if scheme.needs_critic else text


def _signed(interval: Interval) -> str:
    return f"{interval.estimate:+.3f} ({interval.low:.3f}, {interval.high:.3f})"


def _names(schemes: list[str]) -> str:
    quoted = [f"`{scheme}`" for scheme in schemes]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]


def _hardest(scores: Any) -> tuple[str, float]:
    """Return the environment whose best scheme scores least, and that score."""
    runs = scores.to_pylist()
    skip = {"regime", "axis_value", "scheme", "seed", "learning_rate", "run_id", "mean", "worst"}
    names = [name for name in runs[0] if name not in skip and not name.startswith("final_")]
    cells = {(run["regime"], run["scheme"]) for run in runs}

    def best(name: str) -> float:
        return max(
            float(np.mean([run[name] for run in runs if (run["regime"], run["scheme"]) == cell])) for cell in cells
        )

    hardest = min(names, key=best)
    return hardest, best(hardest)


def speed_table(root: Path = store.RESULTS) -> str:
    """Turns per second beside SB3, the cost of an update and of recipes, other trainers, and sweeps."""
    speed = _read(root / "speed.json")
    rates = speed["turns_per_second"]
    engine = {family: by_rows["8192"] / 1e6 for family, by_rows in speed["engine_turns_per_second"].items()}
    rows = [
        ("`GroupPPO`", f"{rates['GroupPPO, 4 epochs of 4 minibatches']:,.0f}"),
        ("`GroupPPO`, one epoch in one batch", f"{rates['GroupPPO, 1 epoch of 1 minibatch']:,.0f}"),
        *(
            (
                f"SB3 `PPO`, {n} envs, `AgenticVecEnv` / `make_vec_env`",
                " / ".join(
                    f"{rates[f'SB3 PPO, {n} envs ({kind})']:,.0f}" for kind in ("AgenticVecEnv", "make_vec_env")
                ),
            )
            for n in (64, 8)
        ),
        (
            f"environments alone, 8192 rows: {' / '.join(f'`{family}`' for family in engine)}",
            f"{' / '.join(f'{rate:.1f}' for rate in engine.values())} million",
        ),
    ]
    updates = {width: t["update"] / t["products"] for width, t in speed["minibatch_microseconds"].items()}
    (narrowest, first), *others = updates.items()
    widths = ", ".join(f"{ratio:.1f} with {width}" for width, ratio in others)
    loss = speed["loss_microseconds"]
    eager, compiled = (f"{loss[kind]:.0f}" for kind in ("eager", "compiled"))
    recipes = speed["train_milliseconds"]
    # PPO's clip without and with a critic, which is a second network.
    plain = {name: recipes["ppo" if make_scheme(name).needs_critic else "grpo"] for name in recipes}
    ratios = {name: value / plain[name] for name, value in recipes.items()}
    dearer = sorted((name for name in ratios if ratios[name] > WITHIN), key=lambda name: -ratios[name])
    lines = ["| | turns/s |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]
    lines.append(
        f"One minibatch update takes {first:.1f} times as long as its matrix products, with layers of "
        f"{narrowest}, {widths}. Its loss and gradient take {eager} microseconds, and {compiled} "
        f"through `torch.compile` after {loss['compilation_s']:.0f} s of compilation, so the trainer does without. "
        f"{len(ratios) - len(dearer)} of {len(ratios)} recipes take at most {WITHIN} times as long for an update as "
        "PPO's clip, `grpo`, or with a critic `ppo`, which takes "
        f"{recipes['ppo'] / recipes['grpo']:.2f} times as long as `grpo`"
        + (f"; above: {', '.join(f'`{name}` ({ratios[name]:.2f})' for name in dearer)}." if dearer else ".")
    )
    peers = _read(root / "peers.json")
    beside = [
        (
            f"{setting['steps_per_update']:,}",
            str(setting["width"]),
            setting["environment"],
            ", ".join(f"{name} {rate:,.0f}" for name, rate in _falling(setting["steps_per_second"])),
        )
        for setting in peers["rates"]
    ]
    lines += [
        "",
        f"Beside other trainers of PPO, all on {_cores(peers)} (`{peers['command']}`). They have a critic, and so has "
        "GroupPPO with `ppo`; `grpo` needs none:",
        "",
        "| steps per update | two layers of | environment | steps/s |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in beside),
    ]
    if (root / "sweep.json").exists():
        sweep = _read(root / "sweep.json")
        lines += [
            "",
            f"A sweep of {sweep['runs']} runs is {sweep['ratio']:.2f} times as fast with two processes as with one; "
            f"on that machine two programs that share nothing train {sweep['bare']:.2f} times as many runs as one, "
            f"and do {sweep['ceiling']:.2f} times as many matrix products (`{sweep['command']}`).",
        ]
    return "\n".join(lines)


def _falling(rates: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(rates.items(), key=lambda pair: -pair[1])


def _cores(document: dict[str, Any]) -> str:
    used = document["machine"]["cores_used"]
    return "one core" if used == 1 else f"{used} cores"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
