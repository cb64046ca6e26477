"""What schemes remember from one update to the next: trackers, cumulative statistics, a conductor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Kept = TypeVar("Kept")


class Memory:
    """Named objects that parts keep between updates; saved with the model.

    A part reads what it needs while credit is computed, and writes in its ``after_update``: a
    baseline must not have seen the rewards that it is subtracted from.
    """

    def __init__(self) -> None:
        """Start without memories."""
        self._kept: dict[str, Any] = {}

    def get(self, name: str, make: Callable[[], Kept]) -> Kept:
        """Return the object of that name, made at its first use."""
        if name not in self._kept:
            self._kept[name] = make()
        kept: Kept = self._kept[name]
        return kept
