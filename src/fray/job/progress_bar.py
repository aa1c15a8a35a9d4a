"""The bar itself, drawn with rich on standard error: one line, which goes when the call has ended.

Only `progress_display` imports this, where a terminal is. rich's own live display moves the cursor up when it
ends, and would erase a line that a worker process prints at that moment: here the cursor never leaves its
line, and each drawing is one write.
"""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from fray.job.progress import Progress, describe

__all__ = ["BarPainter"]

ERASE_LINE = "\r\x1b[2K"
"""ECMA-48: carriage return; EL (erase in line) of the whole line."""


class BarPainter:
    """Draws a bar with its figures. `console`: where (None: standard error)."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        # Never started, so that it draws nothing by itself: it only lays out the line.
        self._layout = RichProgress(
            _text("{task.description}"),
            BarColumn(bar_width=24),
            _text("{task.fields[figures]}"),
            console=self._console,
            auto_refresh=False,
        )
        self._task: TaskID | None = None

    def paint(self, progress: Progress) -> None:
        """Draw it in place of what was drawn before."""
        if self._console.is_dumb_terminal:
            return
        if self._task is None:
            self._task = self._layout.add_task(progress.what, figures="")
        self._layout.update(
            self._task,
            description=progress.what,
            completed=progress.done,
            total=progress.total,
            figures=describe(progress),
        )
        with self._console.capture() as drawn:
            self._console.print(self._layout.get_renderable(), end="")
        self._write(ERASE_LINE + drawn.get().strip("\n"))

    def clear(self) -> None:
        """Erase it."""
        if self._task is None:
            return
        self._layout.remove_task(self._task)
        self._task = None
        self._write(ERASE_LINE)

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def _text(template: str) -> TextColumn:
    return TextColumn(template, markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
