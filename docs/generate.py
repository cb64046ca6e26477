"""Writes the pages that follow from the code: ``python docs/generate.py`` (``make docs`` does it, too).

Whole pages under ``environments/`` and ``mixtures.md``; tables between ``<!-- begin: NAME -->`` and
``<!-- end: NAME -->`` in other pages and in the README; and one card per family. They are kept under
version control, so that they can be read without building anything; a test says when they are out of date.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from PIL import Image

import agentic_gym
from agentic_gym.catalogue import (
    OWN_DEFAULT,
    Argument,
    Entry,
    Environment,
    describe,
    list_arguments,
    read_documentation,
)
from agentic_gym.families import FAMILIES
from agentic_gym.knobs import KNOB_NAMES
from agentic_gym.mixture import PRESETS, Mixture, preset
from agentic_gym.registration import NAMESPACE
from benchmarks import readme
from benchmarks.suite_results import load, markdown_table, page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
RESULTS = ROOT / "results" / "suite.json"
CARDS = DOCS / "environments" / "cards"
NOTE = "<!-- Made by docs/generate.py: edit the code that it describes instead. -->"
EXAMPLES = 15
"""Test prompts from which a page's example is chosen: the one of median length."""
ALLOWED = {
    "reward_scale": "> 0",
    "reward_offset": "any",
    "reward_noise": ">= 0",
    "reward_noise_dist": '`"normal"`, `"student_t"`',
    "dense": "`True`, `False`",
    "depth": "the family's",
    "max_turns": "up to 10000",
    "filler": "0 to 64",
    "num_prompts": ">= 1",
    "common_random_numbers": "`True`, `False`",
}
"""Allowed values of common knobs whose range the catalogue does not state."""
BEFORE = ("Description", "Action Space", "Observation Space", "Starting State", "Rewards", "Episode End", "Arguments")
AFTER = ("References", "Version History")
"""Headings of the families' documentation, after Gymnasium's; "Known truth" comes between."""


def pages() -> dict[Path, str]:
    """Return every file that is made of text, and what it should hold."""
    whole = {
        DOCS / "environments" / "index.md": suite_page(),
        DOCS / "environments" / "measured.md": page(load(RESULTS)),
        DOCS / "mixtures.md": mixtures_page(),
        **{page_of(family): family_page(family) for family in FAMILIES},
    }
    common = [argument for argument in list_arguments(Mixture) if argument.name in KNOB_NAMES]
    blocks: dict[Path, dict[str, Callable[[], str]]] = {
        ROOT / "README.md": {
            "families": lambda: families_table("docs/"),
            "durations": readme.durations,
            "scale": readme.scale_table,
            "summary": readme.summary,
            "speed": readme.speed_table,
        },
        DOCS / "index.md": {"families": lambda: families_table("")},
        DOCS / "knobs.md": {"knobs": lambda: knob_table(common)},
    }
    return whole | {path: fill_blocks(path.read_text(encoding="utf-8"), made) for path, made in blocks.items()}


def page_of(family: str) -> Path:
    """Return the path of a family's page."""
    return DOCS / "environments" / f"{family.lower()}.md"


def fill_blocks(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """Replace what stands between the marks of blocks.

    Raises:
        ValueError: if a block has no marks.
    """
    for name, make in blocks.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"The text must have {begin} and {end} once each.")
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n{make()}\n{end}{rest.partition(end)[2]}"
    return text


@functools.cache
def entries() -> dict[str, Entry]:
    """Return id -> what the catalogue says."""
    return {env_id: describe(env_id) for env_id in agentic_gym.IDS}


# Tables of all ids.


def suite_page() -> str:
    """Write the page of all ids."""
    rows = [row for env_id in entries() for row in suite_rows(env_id)]
    header = (
        "id", "mirrors", "differs by", "turns", "tokens per message", "value", "random", "chance", "best",
    )  # fmt: skip
    lines = [
        "# Environments", NOTE,
        "Every id has the namespace `agentic_gym/`. Turns and tokens are the most that there can be; value is what a "
        "rollout of legal messages can be worth before `reward_scale`, `reward_offset` and noise. Scores lie in [0, 1] "
        "and are free of the reward's scale: `random` sends uniformly random legal messages, `chance` is the most that "
        "a policy which ignores the observation can expect, `best` is the expert.",
        table(header, rows),
        "All figures are for the default knobs of the id. How fast the environments are, and how fast they are "
        "learned, is on the page [Measured](measured.md).",
        "![What rollouts have earned, turn by turn](../../plots/figures/families.png)",
        "![Returns and turns of all families](../../plots/figures/mismatch.png)",
    ]  # fmt: skip
    return "\n\n".join(lines) + "\n"


def suite_rows(env_id: str) -> list[tuple[str, ...]]:
    """Return the row of an id; a mixture has one more for each of its environments."""
    entry = entries()[env_id]
    name = f"`{short(env_id)}`"
    if entry.family == "Mixture":
        first = (f"[{name}](../mixtures.md)", "several environments, one policy", "", *[""] * 6)
        return [first, *(member_row(member) for member in entry.environments)]
    (environment,) = entry.environments
    link = f"[{name}]({page_of(entry.family).name})"
    return [(link, mirrors(entry.family), settings(entry.knobs), *numbers(environment))]


def member_row(member: Environment) -> tuple[str, ...]:
    """Return the row of a mixture's environment."""
    link = f"[{member.family}]({page_of(member.family).name})"
    return (f"&nbsp;&nbsp;{member.name}", link, settings({"depth": member.knobs["depth"]}), *numbers(member))


def numbers(environment: Environment) -> tuple[str, ...]:
    """Return turns, tokens, values and scores."""
    low, high = environment.value_range
    truth = environment.truth
    scores = (truth.random_score, truth.chance_score, truth.best_score)
    return (
        str(environment.turn_limit), str(environment.n_slots), f"{low:g} to {high:g}", *(f"{s:.3g}" for s in scores),
    )  # fmt: skip


def families_table(prefix: str) -> str:
    """Return the short table of families, with links to their pages.

    Args:
        prefix: what leads from the table's file to the folder of the documentation.
    """
    rows: list[tuple[str, ...]] = []
    for family in FAMILIES:
        entry = entries()[id_of(family)]
        (environment,) = entry.environments
        turns, tokens, value, random, _, best = numbers(environment)
        others = [short(env_id) for env_id, other in entries().items() if other.family == family][1:]
        link = f"[`{family}`]({prefix}environments/{page_of(family).name})"
        rows.append((link, mirrors(family), turns, tokens, value, random, best, ", ".join(f"`{o}`" for o in others)))
    rows.append((f"[`Mixture`]({prefix}mixtures.md)", "several of them behind one policy", *[""] * 6))
    return table(("family", "mirrors", "turns", "tokens", "value", "random", "best", "further ids"), rows)


def mirrors(family: str) -> str:
    """Return the workload that a family mirrors, from its documentation."""
    _, sections = read_documentation(FAMILIES[family])
    found = re.search(r"Mirrors (.*?)(?: \(|[.:,] |\.$)", " ".join(sections["Description"].split()))
    return found[1] if found else "nothing: made for diagnosis"


# The page of a family.


def family_page(family: str) -> str:
    """Write the page of a family."""
    entry = entries()[id_of(family)]
    summary, sections = read_documentation(FAMILIES[family])
    transcript, picture = f"```text\n{example(family).text}```", f"cards/{family.lower()}.png"
    parts = [f"# {family}", NOTE, summary, facts_table(entry), f"![A rollout of {family}, by the expert]({picture})"]
    for heading in BEFORE:
        parts += [f"## {heading}", sections[heading]]
    own = meanings(sections["Arguments"]) | {"max_turns": (f"{fewest_turns(entry)} to 10000", "turn limit.")}
    parts += ["### All knobs", knob_table(entry.arguments, own, {"max_turns": entry.environments[0].turn_limit})]
    parts += ["## Known truth", sections["Known truth"], truth_table(family)]
    parts += [
        "What was measured has its standard error; the rest has a closed form, or was the same in every rollout. Other "
        "knobs: `agentic_gym.truth(id, **knobs)`.",
    ]
    parts += ["## Example", "The expert on a prompt of the test split:", transcript]
    for heading in AFTER:
        if heading in sections:
            parts += [f"## {heading}", sections[heading]]
    return "\n\n".join(parts) + "\n"


def facts_table(entry: Entry) -> str:
    """Return the table at the top of a family's page."""
    (environment,) = entry.environments
    low, high = environment.value_range
    end = "the task's own limit: termination" if environment.limit_ends_task else "then truncation"
    facts = {
        "Make": f'`gymnasium.make("{entry.id}")`',
        "Mirrors": mirrors(entry.family),
        "Action space": f"`MultiDiscrete([{entry.n_tokens}] * {entry.n_slots})`",
        "Observation space": f"`Box(0.0, 1.0, ({entry.observation_size},), float32)`",
        "Turns": f"at most {environment.turn_limit} ({end})",
        "Value of a rollout": f"{low:g} to {high:g}; {environment.illegal_penalty:g} for each illegal message",
        "Reward components": ", ".join(f"`{name}`" for name in environment.components),
        "Tasks": ", ".join(f"`{name}`" for name in environment.tasks),
    }
    return table(("", entry.id), [(f"**{name}**", value) for name, value in facts.items()])


def fewest_turns(entry: Entry) -> int:
    """Return the smallest turn limit that a family accepts at its defaults."""
    for limit in range(1, 100):
        with contextlib.suppress(ValueError):
            gymnasium.make(entry.id, max_turns=limit)
            return limit
    raise ValueError(f"{entry.id} accepts no turn limit below 100.")


def knob_table(
    arguments: Sequence[Argument],
    own: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    derived: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return a table of knobs.

    Args:
        arguments: the knobs.
        own: name -> allowed values ("" if not stated) and meaning, of those that the family explains itself.
        derived: name -> default of those whose default follows from other knobs.
    """
    rows = []
    for argument in arguments:
        allowed, meaning = own.get(argument.name, ("", argument.meaning))
        if argument.low is not None:
            allowed = f"{argument.low:g} to {argument.high:g}"
        default = default_of(argument, derived.get(argument.name))
        rows.append((f"`{argument.name}`", default, allowed or ALLOWED[argument.name], meaning))
    return table(("knob", "default", "allowed", "meaning"), rows)


def default_of(argument: Argument, derived: object) -> str:
    """Write a default."""
    if argument.default is None:
        return "follows from `depth`" if derived is None else f"`{derived}`, from `depth`"
    return OWN_DEFAULT if argument.default == OWN_DEFAULT else f"`{argument.default}`"


def meanings(section: str) -> dict[str, tuple[str, str]]:
    """Read what a family says of its own arguments, of ``depth`` and of ``difficulty``.

    Returns:
        Name -> allowed values ("" if the catalogue states them), meaning.
    """
    found = {}
    for name, default, text in re.findall(
        r"^\* ``(\w+)`` \(default ([^)]*)\):\s*(.*?)(?=^\* |^\s*$|\Z)", section, flags=re.MULTILINE | re.DOTALL
    ):
        text = " ".join(text.split())
        span = re.search(r"(-?[\d.]+) to (-?\d+(?:\.\d+)?)", f"{default} {text}")
        allowed = "`True`, `False`" if default in ("True", "False") else f"{span[1]} to {span[2]}" if span else ""
        # The range has a column of its own.
        found[name] = allowed, re.sub(r", -?[\d.]+ to -?\d+(?:\.\d+)?", "", text).rstrip(".") + "."
    for name in ("depth", "difficulty"):
        said = re.search(rf"``{name}`` \([^)]*\)(?::| is)\s+(.*?)[.;](?:\s|$)", section, flags=re.DOTALL)
        if said:
            found[name] = "", f"{' '.join(said[1].split())}."
    return found


def truth_table(family: str) -> str:
    """Return the table of scores and values of a family's ids."""
    rows = []
    for env_id, entry in entries().items():
        if entry.family == family:
            (environment,) = entry.environments
            truth = environment.truth
            scores = [measured(truth.random_score, truth.random_score_se), f"{truth.chance_score:.3g}"]
            scores += [measured(truth.best_score, truth.best_score_se)]
            values = [f"{truth.worst_value:g}", measured(truth.random_value, truth.random_value_se)]
            values += [measured(truth.best_value, truth.best_value_se)]
            rows.append((f"`{short(env_id)}`", settings(entry.knobs), str(environment.turn_limit), *scores, *values))
    header = (
        "id", "differs by", "turns", "random score", "chance score", "best score", "worst value", "random value",
        "best value",
    )  # fmt: skip
    return table(header, rows)


def measured(mean: float, error: float) -> str:
    """Write an estimate with its standard error, or a number that is known."""
    return f"{mean:.4g} ± {error:.1g}" if error else f"{mean:.4g}"


# Examples.


class Example(NamedTuple):
    """A rollout by the expert on a test prompt.

    Attributes:
        prompt: the prompt.
        turns: how many it took.
        text: its transcript.
    """

    prompt: int
    turns: int
    text: str


def play(family: str, prompt: int, render_mode: str, turns: float = math.inf) -> tuple[int, Any]:
    """Let the expert play, to the end or for some turns; return the turns taken and what is rendered then."""
    env: Any = gymnasium.make(id_of(family), render_mode=render_mode).unwrapped
    _, info = env.reset(options={"prompt": prompt, "split": "test", "rollout": 0})
    over = False
    while info["turn"] < turns and not over:
        _, _, terminated, truncated, info = env.step(env.expert_message())
        over = terminated or truncated
    return info["turn"], env.render()


@functools.cache
def example(family: str) -> Example:
    """Return the rollout of median length among a few prompts."""
    found = [Example(prompt, *play(family, prompt, "ansi")) for prompt in range(EXAMPLES)]
    return sorted(found, key=lambda one: one.turns)[EXAMPLES // 2]


def draw_card(family: str) -> npt.NDArray[np.uint8]:
    """Draw the example when two thirds of it are over."""
    chosen = example(family)
    return np.asarray(play(family, chosen.prompt, "rgb_array", chosen.turns - chosen.turns // 3)[1])


def write_cards() -> list[Path]:
    """Write the families' cards as PNG."""
    CARDS.mkdir(parents=True, exist_ok=True)
    paths = []
    for family in FAMILIES:
        paths.append(CARDS / f"{family.lower()}.png")
        Image.fromarray(draw_card(family)).quantize(64).save(paths[-1], optimize=True)
    return paths


# Mixtures.


def mixtures_page() -> str:
    """Write the page of the mixture and its presets."""
    summary, sections = read_documentation(Mixture)
    parts = ["# Mixtures", NOTE, summary, f'`gymnasium.make_vec("{id_of("Mixture")}", num_envs=64, preset="scale")`']
    for heading in BEFORE:
        parts += [f"## {heading}", sections[heading]]
    parts += [
        "## Presets",
        "All presets are made of the same four environments, which `matched` brings to about equal size. Each of the "
        "others changes one thing, by as much as `spread` says; `all` changes everything.",
    ]
    for name, (_, default, (low, high)) in PRESETS.items():
        spread = f"`spread`: default {default:g}, {low:g} to {high:g}. Members" if low < high else "Members"
        parts += [f"### {name}", f"{spread} at the default:", members_table(preset(name))]
    parts += [
        "## Known truth",
        'Each environment has its own, in the order of `info["environment"]`: `agentic_gym.truth(id, preset=...)`. '
        f"With the default preset (`{short(id_of('Mixture'))}`):",
        table(
            ("environment", "family", "differs by", "turns", "tokens per message", "value", "random", "chance", "best"),
            [member_row(member) for member in entries()[id_of("Mixture")].environments],
        ).replace("](", "](environments/"),
        "## Version History",
        sections["Version History"],
    ]
    return "\n\n".join(parts) + "\n"


def members_table(members: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of a preset's members, with those columns that occur."""
    names = list(dict.fromkeys(name for member in members for name in member))
    rows = []
    for member in members:
        cells = [member.get(name, "") for name in names]
        rows.append(tuple(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells))
    return table([name if name in ("name", "family") else f"`{name}`" for name in names], rows)


# Small things.


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; columns of numbers are aligned to the right."""
    lines = markdown_table(header, rows)
    columns = list(zip(*rows, strict=True))
    numeric = [any(column) and all(re.match(r"^(-?\d|$)", cell) for cell in column) for column in columns]
    lines[1] = "| " + " | ".join("---:" if right else "---" for right in numeric) + " |"
    return "\n".join(lines)


def settings(knobs: Mapping[str, Any]) -> str:
    """Write knobs as they are given."""
    return ", ".join(f"`{name}={value}`" for name, value in knobs.items())


def id_of(family: str) -> str:
    """Return the id of a family at its defaults."""
    return f"{NAMESPACE}/{family}-v0"


def short(env_id: str) -> str:
    """Leave the namespace out."""
    return env_id.removeprefix(f"{NAMESPACE}/")


def main() -> None:
    """Write everything, and say what changed."""
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
    write_cards()


if __name__ == "__main__":
    main()
