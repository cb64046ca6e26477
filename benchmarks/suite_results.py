"""What is stored of the suite: one JSON file, its tables, and the documentation's page (needs no torch)."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from agentic_gym.registration import NAMESPACE
from benchmarks.experiment import BenchmarkError
from benchmarks.store import REPOSITORY

PAGE = REPOSITORY / "docs" / "environments" / "measured.md"


def load(path: Path) -> dict[str, Any]:
    """Read results; where there are none, an empty record.

    Raises:
        BenchmarkError: if the file is not readable as results.
    """
    if not path.exists():
        return {"ids": {}}
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        return {"ids": dict(results["ids"])}
    except (ValueError, KeyError, TypeError) as error:
        raise BenchmarkError(f"cannot read {path}, restore it or move it away: {error}") from error


def save(results: Mapping[str, Any], path: Path) -> None:
    """Write results, whole or not at all."""
    _write(path, json.dumps(results, indent=1, allow_nan=False) + "\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class Sheet(NamedTuple):
    """A table.

    Attributes:
        title: its title.
        note: what to know about it.
        header: names of the columns; the first one is text, the others are numbers.
        rows: the cells as text.
    """

    title: str
    note: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def sheets(results: Mapping[str, Any]) -> list[Sheet]:
    """Make the tables of stored results; those without rows are left out."""
    ids = results["ids"]
    if not ids:
        return []
    settings = next(iter(ids.values()))["settings"]
    tables = [
        _engine_sheet(ids),
        _rollout_sheet(ids),
        _signal_sheet(ids, settings),
        _learning_sheet(ids, settings),
        _sb3_sheet(ids, settings),
    ]
    return [table for table in tables if table.rows]


def _engine_sheet(ids: Mapping[str, Any]) -> Sheet:
    counts = sorted({int(n) for entry in ids.values() for n in entry["turns_per_second"]})
    rows = []
    for env_id, entry in ids.items():
        rates = [_count(entry["turns_per_second"].get(str(n))) for n in counts]
        memory = [_count(entry["bytes_per_row"][kind]) for kind in ("kept", "step")]
        rows.append((_short(env_id), *rates, *memory))
    header = ("id", *(f"{n:,} row" + "s" * (n > 1) for n in counts), "bytes per row", "and in a step")
    note = (
        "Turns per second of the native engine with random legal messages, by number of rows; memory of what a row "
        "keeps, and the most that a step takes besides."
    )
    return Sheet("Speed and memory", note, header, rows)


def _rollout_sheet(ids: Mapping[str, Any]) -> Sheet:
    rows = []
    for name, found in _environments(ids):
        best, chance, base = found["expert"], found["random"], found["base"]
        low = min(policy["reward_lowest"] for policy in found.values())
        high = max(policy["reward_highest"] for policy in found.values())
        turns = (f"{best['turns_mean']:.1f}", str(best["turns_max"]), f"{best['tokens_mean']:.1f}")
        others = (f"{chance['turns_mean']:.1f}", f"{base['turns_mean']:.1f}")
        rewards = (f"{low:.5g} to {high:.5g}", f"{chance['reward_mean']:.4g}", f"{best['reward_mean']:.4g}")
        rows.append((name, *turns, *others, *rewards))
    header = (
        "environment", "expert: turns", "at most", "tokens", "random: turns", "base policy: turns", "rewards seen",
        "random: mean", "expert: mean",
    )  # fmt: skip
    note = (
        "Length of rollouts by the expert, by random legal messages and by the base policy; lowest and highest reward "
        "of a rollout that any of them got, as the id delivers it."
    )
    return Sheet("Depth and reward", note, header, rows)


def _signal_sheet(ids: Mapping[str, Any], settings: Mapping[str, Any]) -> Sheet:
    rows = []
    for name, found in _environments(ids):
        cells = []
        for policy in ("random", "base"):
            seen = found[policy]
            silent = f"{100 * seen['groups_without_signal']:.0f} %"
            cells += [f"{seen['success']:.3f}", f"{seen['std_within_groups']:.3g}", silent]
        rows.append((name, *cells))
    header = (
        "environment", "random: success", "std in groups", "no signal", "base policy: success", "std in groups",
        "no signal",
    )  # fmt: skip
    note = (
        f"Groups of {settings['group_size']} rollouts of one prompt: mean standard deviation of the reward within a "
        "group, and share of the groups whose rewards are all equal, for random legal messages and for the base policy "
        f"(imitation of an erring expert, success about {settings['success_rate']:.0%})."
    )
    return Sheet("Signal", note, header, rows)


def _learning_sheet(ids: Mapping[str, Any], settings: Mapping[str, Any]) -> Sheet:
    rows = []
    for env_id, entry in ids.items():
        seen = entry["learning"]["GroupPPO"]
        others = [found for name, found in entry["learning"].items() if name.startswith("GroupPPO, seed")]
        start, learned = f"{entry['warmstart']['cpu_s']:.0f}", _seconds(seen["seconds_to_learn"])
        reached = [point["turns"] for point in seen["curve"] if point["score"] >= settings["learned"]]
        scores = [_score(seen[score]) for score in ("score_start", "score_early", "score_end")]
        end = (f"{seen['cpu_s_end']:.0f}", _count(seen["turns_end"]))
        turns = _count(reached[0]) if reached else "not reached"
        again = ", ".join(_seconds(found["seconds_to_learn"]) for found in others)
        rows.append((_short(env_id), start, scores[0], learned, again, turns, *scores[1:], *end))
    header = (
        "id", "warm start, CPU s", "score before", f"CPU s to {settings['learned']:g}", "other seeds",
        f"turns to {settings['learned']:g}", f"score at {settings['early_seconds']:g} CPU s", "score at the end",
        "CPU s", "turns",
    )  # fmt: skip
    note = (
        f"`GroupPPO` with the recipe `grpo` and the learning rate {settings['group_ppo']['learning_rate']:g} from the "
        "base policy, one seed, and until it is learned with others. Scores are normalised (0 random, 1 expert; mean "
        f"of a mixture's environments). Learning ends at {settings['solved']:g} or after "
        f"{settings['learning_seconds']:g} CPU seconds; examinations do not count."
    )
    return Sheet("Learning from a base policy", note, header, rows)


def _seconds(number: float | None) -> str:
    return "not reached" if number is None else f"{number:.1f}"


def _sb3_sheet(ids: Mapping[str, Any], settings: Mapping[str, Any]) -> Sheet:
    rows = []
    for env_id, entry in ids.items():
        cells = []
        for name in ("PPO", "MaskablePPO"):
            if seen := entry["learning"].get(name):
                cells += [_score(seen["score_end"]), f"{seen['cpu_s_end']:.0f}", _count(seen["turns_end"])]
        if len(cells) == 6:
            rows.append((_short(env_id), *cells))
    header = ("id", "PPO: score", "CPU s", "turns", "MaskablePPO: score", "CPU s", "turns")
    chosen = ", ".join(f"`{name}={value:g}`" for name, value in settings["sb3_ppo"].items())
    note = (
        f"SB3's algorithms on `AgenticVecEnv` with {settings['sb3_rows']} rows, from scratch and one seed, for the "
        f"record: they get no base policy, and nothing was tuned ({chosen}, else SB3's defaults)."
    )
    return Sheet("Learning from scratch with SB3", note, header, rows)


def _environments(ids: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the rollouts of every environment of every id."""
    for env_id, entry in ids.items():
        for name, found in entry["rollouts"].items():
            yield (_short(env_id) if len(entry["rollouts"]) == 1 else f"{_short(env_id)}: {name}"), found


def _short(env_id: str) -> str:
    return env_id.removeprefix(f"{NAMESPACE}/")


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _score(number: float) -> str:
    return f"{round(number, 2) + 0.0:.2f}"


def show(results: Mapping[str, Any], console: Console) -> None:
    """Print the tables."""
    for sheet in sheets(results):
        table = Table(sheet.header[0], title=sheet.title, caption=sheet.note.replace("`", ""))
        for name in sheet.header[1:]:
            table.add_column(name, justify="right")
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table)


def page(results: Mapping[str, Any]) -> str:
    """Write the tables as a page of the documentation; without results it says how to get them."""
    lines = ["# Measured", "", "<!-- Made from results/suite.json: edit benchmarks/suite_results.py instead. -->", ""]
    if not results["ids"]:
        lines += ["Nothing is stored yet. `make suite` measures the suite and fills this page."]
    else:
        lines += [_how_measured(list(results["ids"].values()))]
    for sheet in sheets(results):
        lines += ["", f"## {sheet.title}", "", sheet.note, "", *markdown_table(sheet.header, sheet.rows)]
    notes = [(_short(env_id), text) for env_id, entry in results["ids"].items() for text in entry["warnings"]]
    if notes:
        lines += ["", "## Warnings", "", *(f"* {name}: {text}" for name, text in notes)]
    return "\n".join(lines) + "\n"


def _how_measured(entries: Sequence[Mapping[str, Any]]) -> str:
    days = sorted({entry["date"][:10] for entry in entries})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    machine, versions = entries[-1]["machine"], entries[-1]["versions"]
    return (
        "Everything here comes from `make suite`: one process and one thread on a machine with "
        f"{machine['cores']} {machine['processor']} cores, {when}, with "
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}. "
        "The numbers, with the learning curves, are in `results/suite.json`."
    )


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; all columns but the first are aligned to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in (header, rule, *rows)]


def write_page(results: Path, target: Path = PAGE) -> None:
    """Write the documentation's page from the stored file.

    Args:
        results: the stored file.
        target: the page.
    """
    _write(target, page(load(results)))
