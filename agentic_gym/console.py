"""How the command lines print: results to standard output, everything else to standard error."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.measure import measure_renderables
from rich.table import Table

WITHOUT_TERMINAL = 1000  # columns: a file or a pipe has no edge, so no table is cut there
LINES = 3
"""A table is split before the cells of a column take more lines than this."""


def show(table: Table, keys: int = 0) -> None:
    """Print a table; where there is no terminal, as wide as it likes.

    In a terminal cells are wrapped between words. Words, such as numbers, stay whole; only a column that
    is wider than the terminal by a single word breaks it, and nothing is left out.

    Args:
        table: what to print.
        keys: split a table that is too wide into several, each of which begins with this many of its
            columns; 0 never splits.
    """
    table.title_justify = table.caption_justify = "left"
    console = Console()
    if not console.is_terminal:
        console.width = WITHOUT_TERMINAL
    widths = [_column_widths(table, column, console) for column in range(len(table.columns))]
    if sum(most for _, most in widths) <= _room(console.width, len(widths)):
        console.print(table)
        return
    tables = _split(widths, keys, console.width) if keys else [list(range(len(widths)))]
    for number, columns in enumerate(tables):
        part = _take(table, columns, number == 0, number == len(tables) - 1) if len(tables) > 1 else table
        _fit(part, [widths[column] for column in columns], _room(console.width, len(columns)))
        console.print(part)


def say(text: str) -> None:
    """Print beside the results, literally: names of runs and tracebacks are no markup."""
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def _column_widths(table: Table, index: int, console: Console) -> tuple[int, int]:
    """Return the widths of a column's longest word and longest line."""
    column = table.columns[index]
    shown = [column.header] if table.show_header else []
    # Measured without the edge of the terminal.
    endless = console.options.update(max_width=10_000)
    found = measure_renderables(console, endless, [*shown, *column.cells])
    least = found.maximum if column.no_wrap else found.minimum
    return max(least, column.min_width or 0), max(found.maximum, column.min_width or 0)


def _room(width: int, n_columns: int) -> int:
    """Return what lines and spaces of a table leave for its text."""
    return width - 3 * n_columns - 1


def _split(widths: Sequence[tuple[int, int]], keys: int, width: int) -> list[list[int]]:
    """Return the columns of each table: as few tables as possible, and these as equally wide as possible."""
    fewest = _fill(widths, keys, width)
    for narrower in range(width - 1, 0, -1):
        tables = _fill(widths, keys, narrower)
        if len(tables) > len(fewest):
            break
        fewest = tables
    return fewest


def _fill(widths: Sequence[tuple[int, int]], keys: int, width: int) -> list[list[int]]:
    """Return the columns of each table: the keys, and as many others as fit."""
    needed = [max(least, -(-most // LINES)) for least, most in widths]
    tables: list[list[int]] = []
    for column in range(keys, len(widths)):
        more = [*(tables[-1] if tables else range(keys)), column]
        if tables and sum(needed[c] for c in more) <= _room(width, len(more)):
            tables[-1] = more
        else:
            tables.append([*range(keys), column])
    return tables


def _take(table: Table, columns: Sequence[int], first: bool, last: bool) -> Table:
    """Return a table of some columns; the first has the title, the last the caption."""
    part = Table(
        title=table.title if first else None,
        caption=table.caption if last else None,
        show_header=table.show_header,
        title_justify="left",
        caption_justify="left",
    )
    chosen = [table.columns[column] for column in columns]
    for column in chosen:
        part.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap)
    for row, cells in zip(table.rows, zip(*(column.cells for column in chosen), strict=True), strict=True):
        part.add_row(*cells, end_section=row.end_section)
    return part


def _fit(table: Table, widths: Sequence[tuple[int, int]], room: int) -> None:
    """Narrow the widest columns until the table fits, none below its longest word unless that is not enough."""
    chosen = [most for _, most in widths]
    floors = [least for least, _ in widths]
    if sum(floors) > room:
        floors = [least if column.no_wrap else 1 for least, column in zip(floors, table.columns, strict=True)]
    while sum(chosen) > room:
        spare = [width if width > floor else 0 for width, floor in zip(chosen, floors, strict=True)]
        if not any(spare):
            break
        chosen[spare.index(max(spare))] -= 1
    for column, width in zip(table.columns, chosen, strict=True):
        column.width, column.overflow = width, "fold"
