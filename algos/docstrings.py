"""What docstrings say, for the command line and the documentation."""

from __future__ import annotations

import inspect
import re
from typing import Any


def first_line(documented: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def meanings(documented: type) -> dict[str, str]:
    """Return what a class' docstring says of each of its attributes."""
    lines = inspect.cleandoc(documented.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines.splitlines():
        entry = re.fullmatch(r"    (\w+(?:, \w+)*): (.*)", line)
        if entry:
            names = entry[1].split(", ")
        for name in names:
            found[name] = entry[2] if entry else f"{found[name]} {line.strip()}"
    return found
