"""The command line of the environments."""

import functools
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agentic_gym import IDS, AgenticEnv, AgenticVectorEnv
from agentic_gym.__main__ import main, parse_knobs, resolve_id
from agentic_gym.grammar import END, FILLER, Tool, build_grammar
from agentic_gym.play import FILLER_WORD, WORD, Game, UnclearMessageError, complete, read_message
from agentic_gym.registration import TABLE
from agentic_gym.truth import Truth, stored_truths, truth

Type = Callable[..., str]
GRAMMAR = build_grammar(
    [Tool("lookup", (("Ada", "Adam", "Bly"), ("rival", "row-1"))), Tool("look"), Tool("quit")], filler=2
)


@pytest.fixture
def type_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Type:
    """Run the command line with lines on standard input; returns what it prints."""

    def run(arguments: str, *lines: str, status: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        assert main(arguments.split()) == status
        return capsys.readouterr().out

    return run


def test_importing_the_package_imports_no_tools() -> None:
    code = "import sys, agentic_gym; sys.exit(bool({'tyro', 'rich', 'torch', 'PIL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_arguments_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert all(command in out for command in ("list", "play", "truth", "measure"))


def test_list(type_lines: Type) -> None:
    table = type_lines("list")
    assert all(f"│ {env_id.split('/')[1]} " in table for env_id in IDS)
    assert "ChainShort" in table and "-1 to 1" in table


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as to a terminal of 80 columns."""
    terminal = functools.partial(Console, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("agentic_gym.console.Console", terminal)


@pytest.mark.usefixtures("narrow")
def test_tables_can_be_read_in_80_columns(type_lines: Type) -> None:
    table = type_lines("list")
    assert all(f"│ {env_id.split('/')[1]} " in table for env_id in IDS) and "│   ChainShort " in table
    assert "│ -50 to -1 " in table and max(map(len, table.splitlines())) <= 80 and "…" not in table
    for env_id in IDS:
        table = type_lines(f"truth {env_id}")
        assert env_id in table and max(map(len, table.splitlines())) <= 80 and "…" not in table


def test_truth(type_lines: Type) -> None:
    table = type_lines("truth database")
    (row,) = [line for line in table.splitlines() if "Database" in line and "│" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "Database", "-3", "-41.22", "-50", "0.94", "0.1755", "0.2"
    ]  # fmt: skip
    assert [line for line in type_lines("truth Mixture").splitlines() if line.startswith("│ ChainShort ")]


def test_truth_as_json(type_lines: Type) -> None:
    document = json.loads(type_lines("truth Mixture-v0 --json"))
    assert document["id"] == "agentic_gym/Mixture-v0"
    assert tuple(Truth(**known) for known in document["environments"]) == truth("agentic_gym/Mixture-v0")


def test_list_as_json(type_lines: Type) -> None:
    entries = json.loads(type_lines("list --json"))
    assert [entry["id"] for entry in entries] == list(IDS)


def test_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("agentic_gym.__main__.IDS", IDS[:1])
    assert main(["measure", "--output", str(tmp_path / "truths.json")]) == 0
    assert stored_truths(tmp_path / "truths.json") == {IDS[0]: stored_truths()[IDS[0]]}
    assert "1 ids" in capsys.readouterr().err


@pytest.mark.parametrize("env_id", IDS)
def test_the_expert_plays(env_id: str, type_lines: Type) -> None:
    out = type_lines(f"play {env_id} --prompt 5", "hint", "help", "auto", "hint", "hello")
    assert ", test prompt 5, at most" in out and "turn 1 of" in out and "expert: " in out
    assert re.search(r"\n(Success|Failure): score \S+, return", out), out
    assert "Mean score here: best" in out and "Messages:\n  " in out
    assert out.count("The rollout is over: write restart or quit.") == 2


def test_a_person_plays(type_lines: Type) -> None:
    """The expert's messages typed in different ways, with mistakes between them that cost nothing."""
    env = AgenticEnv(**TABLE["Search-v0"])
    env.reset(seed=0, options={"prompt": 7, "split": "train"})
    lines, over = [], False
    while not over:
        message = env.expert_message()
        text = env.grammar.text(message)
        lines += ["", "lookup", "lookup Nobody rival", text.lower().replace("(", " ") if len(lines) % 2 else text]
        _, reward, terminated, truncated, info = env.step(message)
        over = terminated or truncated
    out = type_lines("play search --prompt 7 --split train --expert", *lines)
    assert "illegal" not in out and f"end:   score {info['score']:.3g}, success" in out
    assert f"Success: score 1, return {reward:g}." in out
    assert f"turn {info['turn']} of 8> " in out and f"turn {info['turn'] + 1} of" not in out
    assert "'Nobody' cannot stand there. Possible: Ada, Bly" in out
    assert "Possible after 'lookup': Ada, Bly" in out
    assert out.count("expert: ") >= info["turn"]


def test_restarting_repeats_the_prompt_and_its_noise(type_lines: Type) -> None:
    out = type_lines("play chain depth=3 slip=0.5 --seed 4 max_turns=9", "auto", "restart", "auto", "quit", "auto")
    start = out.index("Chain, task")
    first, second = (part[: part.index("Mean score")] for part in (out[start:], out[out.rindex("Chain, task") :]))
    assert first == second and out.count("Success") == 2


def test_a_failure_is_named(type_lines: Type) -> None:
    out = type_lines("play Chain-v0 depth=1", "press option-0", "restart", "turn option-0", "restart", "turn option-1")
    assert "Failure: score 0, return 0." in out


def test_mixtures_are_played_in_the_words_of_each_environment(type_lines: Type) -> None:
    out = type_lines("play mixture --prompt 1", "press option-0", "select elm")
    assert "'press' cannot stand there. Possible: select, update, rollback, commit." in out
    assert "agent: select(elm)\n       cost -1\n" in out


def test_environments_too_rare_to_be_measured_can_be_played(type_lines: Type) -> None:
    environments = '[{"family":"Chain"},{"family":"Search","weight":10000}]'
    out = type_lines(f"play Mixture environments={environments} num_prompts=20000 --prompt 1", "auto")
    assert "Success" in out and "too rare" in out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("play Nothing", "ID='Nothing' is not allowed: it must be one of"),
        ("play Chain depth=300", "depth=300 is not allowed"),
        ("play Chain height=3", "no argument"),
        ("play Chain =3", "must be name=value"),
        ("play Chain --seed -1", "Seed must be"),
        ("truth Nothing", "ID='Nothing' is not allowed: it must be one of"),
        ("measure --output no/such/folder/truths.json", "--output no/such/folder/truths.json cannot be written"),
        ("measure --output .", "--output . cannot be written"),
        ("play Chain --prompt 4096", "options['prompt']=4096 is not allowed"),
    ],
)
def test_bad_requests_are_explained(
    arguments: str, reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentic_gym.__main__.store_truths", lambda *_: pytest.fail("it measures"))
    assert main(arguments.split()) == 2
    captured = capsys.readouterr()
    assert reason in captured.err and captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1


def test_the_program_runs_as_a_module() -> None:
    command = [sys.executable, "-W", "error", "-m", "agentic_gym", "play", "Chain-v0", "--prompt", "0"]
    done = subprocess.run(command, input="auto\n", capture_output=True, text=True, check=True)
    assert "Success" in done.stdout and "\x1b" not in done.stdout and done.stderr == ""


def game(**settings: Any) -> tuple[Game, io.StringIO]:
    out = io.StringIO()
    settings = {"prompt": 0, "console": Console(file=out, force_terminal=True, width=60), **settings}
    return Game("agentic_gym/Search-v0", {}, **settings), out


def test_interrupts_stop_cleanly() -> None:
    def interrupt(prompt: str) -> str:
        assert prompt == "turn 1 of 8> "
        raise KeyboardInterrupt

    player, out = game(read=interrupt)
    player.run()
    assert out.getvalue().endswith("\n") and "\x1b[" in out.getvalue()


def test_interrupting_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentic_gym.__main__.store_truths", interrupt)
    assert main(["measure"]) == 130


def test_names_and_knobs() -> None:
    assert resolve_id("search") == resolve_id("Search-v0") == resolve_id("agentic_gym/Search-v0")
    assert resolve_id("SEARCHHARD") == "agentic_gym/SearchHard-v0"
    pairs = ["depth=2", "dense=True", "slip=0.5", "reward_noise_dist=student_t", "max_turns=None", 'x={"a":[1]}']
    assert parse_knobs(pairs) == {
        "depth": 2, "dense": True, "slip": 0.5, "reward_noise_dist": "student_t", "max_turns": None, "x": {"a": [1]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lookup Ada rival", ["lookup", "Ada", "rival"]),
        ("LOOKUP(adam, RI)", ["lookup", "Adam", "rival"]),
        ("looku b ro ... ...", ["lookup", "Bly", "row-1", "<filler>", "<filler>"]),
        ("look", ["look"]),
        ("look()", ["look"]),
        ("q...", ["quit", "<filler>"]),
    ],
)
def test_messages_can_be_typed_loosely(text: str, words: list[str]) -> None:
    assert read_message(GRAMMAR, 0, text.replace("q...", "q ...")).tolist() == GRAMMAR.encode(*words).tolist()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("l", "'l' can mean lookup, look."),
        ("take", "'take' cannot stand there. Possible: lookup, look, quit."),
        ("lookup ad", "'ad' can mean Ada, Adam."),
        ("lookup", "The message goes on. Possible after 'lookup': Ada, Adam, Bly."),
        ("lookup Bly", "Possible after 'lookup Bly': rival, row-1."),
        ("lookup Bly rival Ada", "'Ada' cannot stand there. Possible: ..."),
        ("look <end>", "cannot stand there"),
        ("look ... ... ...", "The message is over before '...'."),
        ("", "Possible in the beginning: lookup, look, quit."),
    ],
)
def test_unclear_messages_get_a_hint(text: str, hint: str) -> None:
    with pytest.raises(UnclearMessageError) as problem:
        read_message(GRAMMAR, 0, text)
    assert hint in str(problem.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["lookup", "look", "quit", "help", "hint", "auto", "restart"]),
        ("LO", ["lookup", "look"]),
        ("h", ["help", "hint"]),
        ("lookup", ["lookup"]),
        ("lookup ", ["Ada", "Adam", "Bly"]),
        ("lookup(a", ["Ada", "Adam"]),
        ("lookup(Ada, r", ["rival", "row-1"]),
        ("look ", [FILLER_WORD]),
        ("look ... ... ", []),
        ("nonsense ", []),
    ],
)
def test_completion_follows_the_grammar(text: str, words: list[str]) -> None:
    assert complete(GRAMMAR, 0, text) == words


@pytest.mark.parametrize("env_id", IDS)
def test_every_message_can_be_typed(env_id: str) -> None:
    """What the transcript shows of a message, typed again, is that message."""
    engine = AgenticVectorEnv(1, **{**TABLE[env_id.split("/")[1]], "filler": 1})
    random = np.random.default_rng(0)
    for dialect, words in enumerate(engine.grammar.words):
        assert all(WORD.fullmatch(word) for word in words if word not in (words[END], words[FILLER]))
        for _ in range(30):
            (message,) = engine.grammar.sample(random.random((1, engine.grammar.n_slots)), np.array([dialect]))
            text = engine.grammar.text(message, dialect)
            assert read_message(engine.grammar, dialect, text).tolist() == message.tolist()


def test_tools_named_like_commands_are_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["Quit", "/quit"])
    player, out = game(read=lambda prompt: next(lines))
    monkeypatch.setattr(player.env, "grammar", GRAMMAR)
    monkeypatch.setattr(player, "_step", lambda message: player._say(f"sent {message[0]}"))
    player.run()
    assert "sent" not in out.getvalue()
    lines = iter(["quit", "/quit"])
    player._carry_out("quit")
    assert f"sent {GRAMMAR.vocabulary.index('quit')}" in out.getvalue()
