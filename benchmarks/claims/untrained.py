"""Claims about advantages alone, judged without training: nothing is learned, so nothing is tuned.

    python -m benchmarks.claims.untrained --jobs 2 --json results/claims_untrained.json

Each seed draws groups of its own, or plays rollouts of a base policy of its own. The scoreboard reads the stored
values and applies the same rule as to the other claims; its variants are other settings instead of other rates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from joblib import Parallel, delayed
from rich.console import Console

from algos.advantages import advantages
from algos.batch import RolloutBatch
from algos.threads import limit_threads
from benchmarks.claims.claim import Arm, Claim, effect, verdict
from benchmarks.claims.scoreboard import FEWEST_SEEDS, Entry
from benchmarks.claims.suite import SEEDS, Choice
from benchmarks.credit import ACCUMULATIONS, ENVIRONMENT, collect_batches, gain_part, gains_ahead
from benchmarks.experiment import Budget, Regime
from benchmarks.store import write_text

FILE = "claims_untrained.json"
GROUPS = 512
FEW, MANY = 2, 6
"""Numbers of gains in a sum that are compared."""
Pair = tuple[float, float]
"""The metric of treatment and control with one seed."""


@dataclass(frozen=True)
class Measured:
    """A claim with what measures it.

    Attributes:
        claim: the statement and its rule.
        measure: called with a seed, and with the settings of a variant as keywords.
        variants: name -> settings.
    """

    claim: Claim
    measure: Callable[..., Pair]
    variants: Mapping[str, Mapping[str, Any]]


def advantage_of_success(seed: int, p: float, group_size: int = 8) -> Pair:
    """Return the advantage of a success by its group's mean, and the true one, which is 1 - p.

    Args:
        seed: of the rewards, which are 1 with probability p, else 0.
        p: success rate of every prompt.
        group_size: rollouts per prompt.

    Returns:
        Means over the groups that have both successes and failures.
    """
    success = np.random.default_rng(seed).random((GROUPS, group_size)) < p
    batch = RolloutBatch.from_arrays(
        returns=success.reshape(-1).astype(float), prompt=np.repeat(np.arange(GROUPS), group_size)
    )
    credit = advantages("grpo:scale=none", batch).reshape(GROUPS, group_size)
    mixed = success.any(axis=1) & ~success.all(axis=1)
    return float(credit[mixed].max(axis=1).mean()), 1.0 - p


def change_of_level(seed: int, group_size: int = 8, **env_kwargs: Any) -> Pair:
    """Return by how much the size of credit for gains changes from few gains to many, for the root and the sum.

    Args:
        seed: of base policy and rollouts.
        group_size: rollouts per question.
        **env_kwargs: changes of the environment.

    Returns:
        Absolute logarithms of the ratio of the mean absolute credit of turns with ``MANY`` gains ahead to that
        of turns with ``FEW``.
    """
    tables = [data.batch for data in collect_batches(2, seed, group_size=group_size, env_kwargs=env_kwargs)]

    def change(scheme: str) -> float:
        credit = np.concatenate([np.abs(gain_part(scheme, batch)) for batch in tables])
        ahead = np.concatenate([gains_ahead(batch) for batch in tables])
        return abs(float(np.log(credit[ahead == MANY].mean() / credit[ahead == FEW].mean())))

    return change(ACCUMULATIONS["root"]), change(ACCUMULATIONS["sum"])


def _budget(n_prompts: int, group_size: int = 8) -> Budget:
    return Budget(1, n_prompts, group_size, 1, 1, 1, 1, 0.0)


def _bias(key: str, statement: str, p: float, direction: Any, extreme: float) -> Measured:
    regime = Regime(f"success-{p:g}", "agentic_gym/Chain-v0", {}, p)
    claim = Claim(
        key, "biased group-relative advantages, arXiv 2601.08521", statement,
        Arm("grpo:scale=none", regime, _budget(GROUPS)), Arm("1 - p", regime, _budget(GROUPS)),
        "advantage of a success", direction,
        note="groups with a signal; rewards are drawn with a known success rate, nothing is played",
    )  # fmt: skip
    variants = {"groups of 4": {"p": p, "group_size": 4}, "groups of 16": {"p": p, "group_size": 16}}
    variants[f"success rate {extreme:g}"] = {"p": extreme, "group_size": 8}
    return Measured(claim, lambda seed, **changes: advantage_of_success(seed, **{"p": p, **changes}), variants)


SEARCH = Regime("search-hard", ENVIRONMENT, {}, 0.0)
CLAIMS: tuple[Measured, ...] = (
    _bias("advantage-hard", "The group's mean under-estimates the advantage on hard prompts.", 0.2, "less", 0.1),
    _bias("advantage-easy", "The group's mean over-estimates the advantage on easy prompts.", 0.8, "greater", 0.9),
    Measured(
        Claim(
            "a2tgpo-level", "A2TGPO, arXiv 2605.06200",
            "Dividing the sum of gains by the root of their number keeps the size of credit level over depth.",
            Arm(ACCUMULATIONS["root"], SEARCH, _budget(32)), Arm(ACCUMULATIONS["sum"], SEARCH, _budget(32)),
            "change of credit's size", "less",
            note=f"closer to level than the plain sum: |log ratio| of the mean absolute credits with {MANY} gains "
            f"ahead and with {FEW}; of base policies",
        ),
        change_of_level,
        {"groups of 4": {"group_size": 4}, "four hops": {"depth": 4}, "fewer doubtful facts": {"difficulty": 0.3}},
    ),
)  # fmt: skip


def measure(seeds: Sequence[int] = SEEDS, jobs: int = 1) -> dict[str, dict[str, list[Pair]]]:
    """Measure every claim and variant: key -> variant (``""`` for the claim itself) -> pairs by seed."""
    every = [(i, name, seed) for i in range(len(CLAIMS)) for name in ("", *CLAIMS[i].variants) for seed in seeds]
    found: dict[str, dict[str, list[Pair]]] = {measured.claim.key: {} for measured in CLAIMS}
    for (i, name, _), pair in zip(every, Parallel(jobs)(delayed(_measure_one)(*one) for one in every), strict=True):
        found[CLAIMS[i].claim.key].setdefault(name, []).append(pair)
    return found


def _measure_one(i: int, variant: str, seed: int) -> Pair:
    # Claims are named by their place, since functions without names cannot be sent to processes.
    measured = CLAIMS[i]
    with limit_threads(1):
        return measured.measure(seed, **(measured.variants[variant] if variant else {}))


def judge(found: Mapping[str, Any]) -> list[Entry]:
    """Apply the rule to stored values."""
    entries = []
    for measured in CLAIMS:
        if measured.claim.key not in found:
            continue
        values = {
            name: [dict(enumerate(column)) for column in zip(*pairs, strict=True)]
            for name, pairs in found[measured.claim.key].items()
            if len(pairs) >= FEWEST_SEEDS
        }
        claim, main = measured.claim, values.pop("")
        seen = effect(claim, main)
        entries.append(Entry(
            claim, seen, float(np.mean(list(main[1].values()))), len(main[0]), verdict(claim, seen),
            (Choice(claim.treatment.scheme, 0.0), Choice(claim.control.scheme, 0.0)),
            {name: verdict(claim, effect(claim, arms)) for name, arms in values.items()},
        ))  # fmt: skip
    return entries


def stored(root: Path) -> list[Entry]:
    """Judge what is stored in a folder of results; nothing if that was not measured."""
    path = root / FILE
    return judge(json.loads(path.read_text(encoding="utf-8"))["values"]) if path.exists() else []


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        jobs: processes; -1 takes all cores.
        json: where to write the values; None writes nothing.
    """

    jobs: int = 1
    json: Path | None = None


def main(options: Options) -> None:
    """Measure, print the verdicts, and write."""
    found = measure(jobs=options.jobs)
    console = Console()
    for entry in judge(found):
        seen = entry.effect
        console.print(
            f"{entry.claim.key}: {seen.estimate:+.3f} [{seen.low:+.3f}, {seen.high:+.3f}], {entry.verdict}, "
            f"{dict(entry.sensitivity)}", highlight=False,
        )  # fmt: skip
    if options.json is not None:
        document = {"command": "python -m benchmarks.claims.untrained", "seeds": list(SEEDS), "values": found}
        write_text(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    from benchmarks.claims import untrained  # not __main__, whose functions other processes cannot find

    untrained.main(tyro.cli(untrained.Options, description=__doc__))
