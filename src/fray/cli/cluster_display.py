"""Showing a job of a cluster while it runs: its output and its status, as both come.

Two threads read, one prints. The queue between them is bounded: who reads the screen slowly slows the
reading down, and memory doesn't grow.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fray.cli.lines import format_log_line
from fray.cli.screen import Screen
from fray.cli.story import Line, Tone, describe_change, describe_end, describe_waiting
from fray.errors import FrayError
from fray.plan.status import is_finished
from fray.types import LogLine
from fray.wire.frayjob import FrayJob
from fray.wire.status import FrayJobStatus

__all__ = ["JobSource", "follow_job"]

REFRESH_SECONDS = 0.25
REDRAW_SECONDS = 0.1
"""Much output must not become as many redrawn lines."""
MOST_WAITING = 2000
"""Lines that were read and aren't shown yet."""
BATCH = 500


class JobSource(Protocol):
    """What can be followed of a job."""

    def changes(self) -> Iterator[FrayJob]:
        """Yield the job as it is, then after each change, until it has finished."""
        ...

    def lines(self) -> Iterator[LogLine]:
        """Yield what its hosts print, until it has ended."""
        ...


@dataclass(frozen=True)
class _Ended:
    """The end of one of the two, and what ended it."""

    lines: bool
    error: BaseException | None


_News: TypeAlias = LogLine | FrayJob | _Ended


def follow_job(source: JobSource, screen: Screen, *, terminal: bool, color: bool) -> FrayJob:
    """Show a job until it has finished and its last line is shown; return it as it ended.

    `terminal` makes output safe to show, `color` paints the hosts' places.

    Raises:
        OSError: Nobody reads any more; the job runs on.
        FrayError: The job can't be seen any more, since it was deleted or the cluster refuses.
    """
    return _Following(source, screen, terminal=terminal, color=color).run()


class _Following:
    def __init__(self, source: JobSource, screen: Screen, *, terminal: bool, color: bool) -> None:
        self._source, self._screen = source, screen
        self._terminal, self._color = terminal, color
        self._news: queue.Queue[_News] = queue.Queue(MOST_WAITING)
        self._left = threading.Event()
        self._job: FrayJob | None = None
        self._told = FrayJobStatus()
        self._drawn_at = -math.inf

    def run(self) -> FrayJob:
        self._start("changes", self._source.changes, lines=False)
        self._start("lines", self._source.lines, lines=True)
        try:
            going = 2
            while going:
                going -= self._show(self._next())
        finally:
            self._left.set()
            self._screen.close()
        assert self._job is not None
        self._screen.print_lines(describe_end(self._job))
        return self._job

    def _start(self, name: str, read: Callable[[], Iterable[LogLine | FrayJob]], *, lines: bool) -> None:
        def pass_on() -> None:
            ending: BaseException | None = None
            try:
                for item in read():
                    if not self._put(item):
                        return
            except BaseException as error:  # noqa: BLE001 - the printing thread raises or tells it
                ending = error
            self._put(_Ended(lines, ending))

        threading.Thread(target=pass_on, name=f"display-{name}", daemon=True).start()

    def _put(self, item: _News) -> bool:
        """Hand on what was read; return whether anybody still takes it."""
        while not self._left.is_set():
            try:
                self._news.put(item, timeout=REFRESH_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def _next(self) -> list[_News]:
        """Return what is new, in its order; nothing where nothing happened for a moment."""
        found: list[_News] = []
        try:
            found.append(self._news.get(timeout=REFRESH_SECONDS))
            while len(found) < BATCH:
                found.append(self._news.get_nowait())
        except queue.Empty:
            return found
        return found

    def _show(self, news: list[_News]) -> int:
        """Show what is new; return how many of the two threads have ended."""
        ended, text = 0, ""
        for item in news:
            if isinstance(item, LogLine):
                text += format_log_line(item, terminal=self._terminal, color=self._color)
                continue
            if text:
                self._screen.print_output(text)
                text = ""
            if isinstance(item, FrayJob):
                self._show_change(item)
            else:
                self._take_end(item)
                ended += 1
        if text:
            self._screen.print_output(text)
        self._draw()
        return ended

    def _draw(self) -> None:
        if self._job is None or is_finished(self._job.status):
            return
        if time.monotonic() - self._drawn_at >= REDRAW_SECONDS:
            self._screen.show_progress(self._job, None)
            self._drawn_at = time.monotonic()

    def _show_change(self, job: FrayJob) -> None:
        name, retries = job.metadata.name, job.spec.retries.failures
        lines = describe_waiting(self._job, job)
        lines += describe_change(self._told, job.status, name=name, retries=retries)
        self._job, self._told = job, job.status
        self._screen.print_lines(lines)

    def _take_end(self, end: _Ended) -> None:
        if end.error is None:
            return
        if end.lines and isinstance(end.error, FrayError):
            # How the job ends is known without its output.
            self._screen.print_lines([Line(f"its output can't be shown: {end.error}", Tone.BAD)])
            return
        raise end.error
