"""Command line of the environments: ``python -m agentic_gym list``, ``play ID``, ``truth ID``, ``measure``."""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from gymnasium.error import Error as GymnasiumError
from rich.table import Table

from agentic_gym import IDS
from agentic_gym.catalogue import catalogue
from agentic_gym.console import say, show
from agentic_gym.play import open_game
from agentic_gym.registration import NAMESPACE
from agentic_gym.truth import STORE, Truth, store_truths
from agentic_gym.truth import truth as look_up


class CommandError(Exception):
    """A request that cannot be met; the text says why."""


def list_ids(as_json: Annotated[bool, tyro.conf.arg(name="json")] = False) -> int:
    """List the environments.

    Args:
        as_json: Print the whole catalogue as JSON.
    """
    entries = catalogue()
    if as_json:
        print(json.dumps(entries, indent=2, allow_nan=False))
        return 0
    table = Table("id", "what it is", "turns", "value", "random\nscore", "best\nscore", title=f"{NAMESPACE}/ID")
    for column in table.columns:
        column.no_wrap = column.header not in ("what it is", "value")
    table.columns[1].min_width, table.columns[3].min_width = 14, 11  # What the longest words take.
    for entry in entries:
        environments, name = entry["environments"], _short(entry["id"])
        if len(environments) == 1:
            table.add_row(name, entry["summary"], *_numbers(environments[0]))
            continue
        table.add_row(name, entry["summary"], "", "", "", "")
        for environment in environments:
            table.add_row(f"  {environment['name']}", environment["summary"], *_numbers(environment))
    show(table)
    return 0


def play_id(
    env_id: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ID")],
    prompt: int | None = None,
    split: Literal["train", "test"] = "test",
    expert: bool = False,
    seed: int = 0,
    knobs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KNOB=VALUE ...")] = (),
) -> int:
    """Play an environment in the terminal.

    Args:
        env_id: Which environment, for example Search-v0.
        prompt: Which prompt; by default the seed draws one.
        split: Which prompts.
        expert: Show the expert's message every turn.
        seed: Seed of the prompt and of the noise.
        knobs: Knobs that differ from the id's own, for example depth=2 slip=0.1; they may stand
            anywhere, without --knobs.
    """
    try:
        game = open_game(
            resolve_id(env_id), parse_knobs(knobs), prompt=prompt, split=split, seed=seed, show_expert=expert
        )
    except (ValueError, TypeError, GymnasiumError) as error:
        raise CommandError(str(error)) from error
    game.run()
    return 0


def truth(
    env_id: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ID")],
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Show what the best, the random and the worst policy get: values and scores by environment.

    A value is a return before scale, offset and noise of the reward. Chance is the highest score of a
    policy that ignores the observation.

    Args:
        env_id: Which environment, for example Search-v0.
        as_json: Print JSON, with the standard errors of what is measured.
    """
    try:
        full = resolve_id(env_id)
    except ValueError as error:
        raise CommandError(str(error)) from error
    truths = look_up(full)
    if as_json:
        print(json.dumps({"id": full, "environments": [asdict(known) for known in truths]}, indent=2, allow_nan=False))
    else:
        show(_truth_table(full, truths))
    return 0


def measure(output: Path = STORE) -> int:
    """Measure the reference policies of all ids and store the truths.

    Args:
        output: The file to write.
    """
    try:
        # Measuring takes long, so writing is tried before; the store writes beside the file, then renames.
        with tempfile.TemporaryFile(dir=output.parent):
            pass
        if output.is_dir():
            raise IsADirectoryError("it is a folder.")
        store_truths(IDS, output)
    except OSError as error:
        raise CommandError(f"--output {output} cannot be written: {error}") from error
    say(f"{output}: {len(IDS)} ids")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What follows ``python -m agentic_gym``; None reads it from the process.

    Returns:
        Exit status: 0, 2 if the request cannot be met, 130 if interrupted.
    """
    commands: dict[str, Callable[..., int]] = {
        "list": list_ids,
        "play": play_id,
        "truth": truth,
        "measure": measure,
    }
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status: int = tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="python -m agentic_gym",
            description="Look at the environments, play them, measure them.",
            args=_gather_knobs(given) if given else ["--help"],
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except CommandError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def resolve_id(name: str) -> str:
    """Return the id that a name means; namespace, version and case may be left out.

    Raises:
        ValueError: if there is no such id.
    """
    short = _short(name.lower())
    for env_id in IDS:
        full = _short(env_id).lower()
        if short in (full, full.rpartition("-v")[0]):
            return env_id
    raise ValueError(f"ID={name!r} is not allowed: it must be one of {list(IDS)}.")


def parse_knobs(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs; values are JSON, or else text.

    Raises:
        ValueError: if a pair has no ``=``.
    """
    knobs: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ValueError(f"KNOB={pair!r} is not allowed: it must be name=value, for example depth=2.")
        try:
            knobs[name] = json.loads({"True": "true", "False": "false", "None": "null"}.get(value, value))
        except json.JSONDecodeError:
            knobs[name] = value
    return knobs


def _gather_knobs(arguments: list[str]) -> list[str]:
    """Move the ``name=value`` pairs of ``play``, wherever they stand, behind the option ``--knobs``."""
    pairs = [word for word in arguments if "=" in word and not word.startswith("-")]
    if arguments[0] != "play" or not pairs:
        return arguments
    return [*(word for word in arguments if word not in ("--knobs", *pairs)), "--knobs", *pairs]


def _short(env_id: str) -> str:
    """Return an id without its namespace."""
    return env_id.removeprefix(f"{NAMESPACE}/")


def _truth_table(env_id: str, truths: Sequence[Truth]) -> Table:
    """Show one environment per row."""
    names = ("best_value", "random_value", "worst_value", "best_score", "random_score", "chance_score")
    table = Table("environment", *(name.replace("_", "\n") for name in names), title=env_id)
    for column in table.columns:
        column.no_wrap = True
    for known in truths:
        table.add_row(known.environment, *(f"{getattr(known, name):.4g}" for name in names))
    return table


def _numbers(environment: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return turns, value range, random and best score of an environment as text."""
    (low, high), truth = environment["value_range"], environment["truth"]
    random, best = (f"{truth[name]:.3g}" for name in ("random_score", "best_score"))
    return str(environment["turn_limit"]), f"{low:g} to {high:g}", random, best


if __name__ == "__main__":
    sys.exit(main())
