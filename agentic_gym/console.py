"""How the command lines print: results to standard output, everything else to standard error."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

WITHOUT_TERMINAL = 1000  # columns: a file or a pipe has no edge, so no table is cut there


def show(table: Table) -> None:
    """Print a table; where there is no terminal, as wide as it likes."""
    table.title_justify = table.caption_justify = "left"
    console = Console()
    if not console.is_terminal:
        console.width = WITHOUT_TERMINAL
    console.print(table)


def say(text: str) -> None:
    """Print beside the results, literally: names of runs and tracebacks are no markup."""
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)
