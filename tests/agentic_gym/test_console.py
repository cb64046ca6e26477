"""Tables in terminals of any width."""

import functools

import pytest
from rich.console import Console
from rich.table import Table

from agentic_gym.console import _split, show


def _shown(table: Table, width: int, capsys: pytest.CaptureFixture[str], keys: int = 0) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        terminal = functools.partial(Console, force_terminal=True, width=width, color_system=None)
        patch.setattr("agentic_gym.console.Console", terminal)
        show(table, keys)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width and not any("…" in line for line in lines)
    return lines


def _table() -> Table:
    table = Table("name", "text", "number", "other", title="a title", caption="a note")
    table.add_row("one", "many short words one after the other", "0.123456 | -0.654321", "1.25", end_section=True)
    table.add_row("two", "few", "-1", "2.5")
    return table


def test_a_table_that_fits_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _shown(_table(), 100, capsys, keys=1)
    assert sum("name" in line for line in lines) == 1 and len(max(lines, key=len)) < 100
    assert "many short words one after the other │ 0.123456 | -0.654321 │ 1.25" in "\n".join(lines)


@pytest.mark.parametrize("width", range(37, 80))
def test_words_stay_whole(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The narrowest table has the longest word of each column."""
    lines = _shown(_table(), width, capsys)
    words = " ".join(lines).replace("│", " ").split()
    assert {"0.123456", "-0.654321", "1.25", "many", "short", "words"} <= set(words)
    assert sum("name" in line for line in lines) == 1


def test_a_table_that_is_too_wide_is_split(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _shown(_table(), 28, capsys, keys=1)
    heads = [line.replace("┃", " ").split() for line in lines if "name" in line]
    assert heads == [["name", "text"], ["name", "number", "other"]]
    text = "\n".join(lines)
    assert text.count("a title") == text.count("a note") == 1
    # The line between the sections is in each of them.
    assert text.count("├") == 2
    assert {"0.123456", "-0.654321"} <= set(text.split())


def test_a_word_wider_than_the_terminal_is_folded(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name", "text")
    table.add_row("one", "x" * 50)
    for keys in (0, 1):
        assert "".join(_shown(table, 20, capsys, keys)).count("x") == 50 + 1  # and that of "text"
    table.columns[0].no_wrap = True
    assert any("│ one  │ x" in line for line in _shown(table, 20, capsys))


def test_tables_are_few_and_equally_wide() -> None:
    # A key and n columns of 10 take 14 + 13 n: three would fit 60, but then one were left alone.
    assert _split([(10, 10)] * 5, 1, 60) == [[0, 1, 2], [0, 3, 4]]
    assert _split([(10, 10)] * 5, 1, 80) == [[0, 1, 2, 3, 4]]
    assert _split([(10, 10)] * 3, 1, 5) == [[0, 1], [0, 2]]
