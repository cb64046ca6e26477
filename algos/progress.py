"""A progress bar that counts turns, whatever their number per tick."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class TurnProgress:
    """Context manager around a rich progress bar; does nothing where it is not enabled.

    Args:
        total: turns to take.
        enabled: whether to show anything.
    """

    def __init__(self, total: int, enabled: bool) -> None:
        """See the class docstring."""
        self._bar = (
            Progress(TextColumn("turns"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) if enabled else None
        )
        self._task = self._bar.add_task("turns", total=total) if self._bar else None

    def __enter__(self) -> Self:
        """Show the bar."""
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar down, also after an error or an early stop."""
        if self._bar:
            self._bar.stop()

    def advance(self, turns: int) -> None:
        """Count turns; the total grows if the last update overshoots it."""
        if self._bar is not None and self._task is not None:
            task = self._bar.tasks[0]
            done = task.completed + turns
            self._bar.update(self._task, completed=done, total=max(task.total or 0, done))
