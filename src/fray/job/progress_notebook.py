"""The bar as HTML below the running cell of a notebook: one display, empty when the call has ended.

IPython is never imported before a bar is shown.
https://ipython.readthedocs.io/en/stable/api/generated/IPython.display.html
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from fray.job.progress import Progress, describe

__all__ = ["NotebookPainter", "is_notebook"]


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, whose front end shows HTML."""
    # Not imported: a kernel has done that, and the shell of a terminal shows no HTML.
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return find_shell is not None and getattr(find_shell(), "kernel", None) is not None


class NotebookPainter:
    """Shows a bar with its figures; each update is a message to the front end."""

    delay = 1.0
    interval = 0.4

    def __init__(self) -> None:
        self._handle: Any = None

    def paint(self, progress: Progress) -> None:
        """Show it in place of what was shown before."""
        display = import_module("IPython.display")
        shown = display.HTML(describe_html(progress))
        if self._handle is None:
            self._handle = display.display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def clear(self) -> None:
        """Show nothing; the next call gets a display of its own, below its own cell."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            handle.update(import_module("IPython.display").HTML(""))


def describe_html(progress: Progress) -> str:
    """Return the bar in one line of HTML; without a total it only moves."""
    import html  # noqa: PLC0415 - for notebooks alone, and slow to import

    of = "" if progress.total is None else f' value="{progress.done}" max="{max(progress.total, 1)}"'
    figures = html.escape(describe(progress))
    return f"<code>{html.escape(progress.what)}</code> <progress{of}></progress> <code>{figures}</code>"
