"""Showing a job while it runs: its output and its status, as both come, here and on clusters.

Two threads read, one prints. The queue between them is bounded: who reads the screen slowly slows the
reading down, memory doesn't grow, and the job isn't held up.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from fray.cli.lines import LineFormatter
from fray.cli.screen import Screen
from fray.cli.story import Line, Tone, describe_change, describe_end, describe_waiting
from fray.errors import FrayError
from fray.plan.status import is_finished
from fray.types import JobId, LogLine
from fray.wire.frayjob import FrayJob
from fray.wire.status import FrayJobStatus

__all__ = ["Following", "JobSource"]

REFRESH_SECONDS = 0.25
REDRAW_SECONDS = 0.1
"""Much output must not become as many redrawn lines."""
SETTLE_SECONDS = 0.05
PATIENCE_SECONDS = 1.0
"""A change is shown once no output has come for a moment, so that it follows what was printed before it. A
job that prints without a pause makes it wait so long at most."""
MOST_WAITING = 2000
"""Lines that were read and aren't shown yet."""
BATCH = 500


class JobSource(Protocol):
    """What can be followed of jobs; a `Cluster`."""

    def watch(self, job_id: JobId) -> Iterator[FrayJob]:
        """Yield the job as it is, then after each change, until it has finished."""
        ...

    def logs(self, job_id: JobId, *, follow: bool = False, unfinished: bool = False) -> Iterator[LogLine]:
        """Yield what its hosts print, until it has ended."""
        ...


@dataclass(frozen=True)
class _Ended:
    """The end of one of the two, and what ended it."""

    lines: bool
    error: BaseException | None


_News: TypeAlias = LogLine | FrayJob | _Ended


class Following:
    """Shows one job. `terminal` makes output safe to show, `color` paints the hosts' places."""

    def __init__(
        self, source: JobSource, job_id: JobId, screen: Screen, *, terminal: bool, color: bool
    ) -> None:
        self._source, self._job_id, self._screen = source, job_id, screen
        self._formatter = LineFormatter(terminal=terminal, color=color)
        self._news: queue.Queue[_News] = queue.Queue(MOST_WAITING)
        self._said: deque[Line] = deque()
        self._held: deque[FrayJob] = deque()
        self._held_since = 0.0
        self._left = threading.Event()
        self._job: FrayJob | None = None
        self._shown = FrayJobStatus()
        self._drawn_at = -math.inf

    def say(self, lines: Iterable[Line]) -> None:
        """Show lines beside the job's own; from any thread."""
        self._said.extend(lines)

    def abandon(self) -> None:
        """Let `run` end as soon as it can; what isn't shown by then never is."""
        self._left.set()

    def run(self) -> FrayJob | None:
        """Return the job as it ended, once its last line is shown; None where it was abandoned before.

        Raises:
            OSError: Nobody reads any more; the job runs on.
            FrayError: The job can't be seen any more, since it was deleted or the cluster refuses.
        """
        self._start("watch", lambda: self._source.watch(self._job_id), lines=False)
        read = partial(self._source.logs, self._job_id, follow=True, unfinished=True)
        self._start("logs", read, lines=True)
        try:
            going = 2
            while going and not self._left.is_set():
                going -= self._show(self._next())
            self._print(self._formatter.end())
            self._show_held()
            self._show_said()
        finally:
            self._left.set()
            self._screen.close()
        if going:
            return None
        assert self._job is not None
        self._tell(describe_end(self._job))
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
            found.append(self._news.get(timeout=SETTLE_SECONDS if self._held else REFRESH_SECONDS))
            while len(found) < BATCH:
                found.append(self._news.get_nowait())
        except queue.Empty:
            return found
        return found

    def _show(self, news: list[_News]) -> int:
        """Show what is new; return how many of the two threads have ended."""
        self._show_said()
        ends = [item for item in news if isinstance(item, _Ended)]
        self._print("".join(self._formatter.format(item) for item in news if isinstance(item, LogLine)))
        for item in news:
            if isinstance(item, FrayJob):
                if not self._held:
                    self._held_since = time.monotonic()
                self._held.append(item)
        overdue = time.monotonic() - self._held_since >= PATIENCE_SECONDS
        if overdue or not any(isinstance(item, LogLine) for item in news):
            self._show_held()
        for end in ends:
            self._take_end(end)
        self._draw()
        return len(ends)

    def _print(self, text: str) -> None:
        if text:
            self._screen.print_output(text)

    def _tell(self, lines: Iterable[Line]) -> None:
        """Show what Fray itself says, above the unfinished lines of hosts."""
        self._print(self._formatter.lift_states())
        self._screen.print_lines(lines)
        self._print(self._formatter.draw_states())

    def _show_said(self) -> None:
        lines = [self._said.popleft() for _ in range(len(self._said))]
        if lines:
            self._tell(lines)

    def _show_held(self) -> None:
        while self._held:
            self._show_change(self._held.popleft())

    def _draw(self) -> None:
        if self._job is None or is_finished(self._job.status):
            return
        if time.monotonic() - self._drawn_at >= REDRAW_SECONDS:
            self._screen.show_progress(self._job)
            self._drawn_at = time.monotonic()

    def _show_change(self, job: FrayJob) -> None:
        name, retries = job.metadata.name, job.spec.retries.failures
        lines = describe_waiting(self._job, job)
        lines += describe_change(self._shown, job.status, name=name, retries=retries)
        self._job, self._shown = job, job.status
        self._tell(lines)

    def _take_end(self, end: _Ended) -> None:
        if end.error is None:
            return
        if end.lines and isinstance(end.error, FrayError):
            # How the job ends is known without its output.
            self._tell([Line(f"its output can't be shown: {end.error}", Tone.BAD)])
            return
        self._show_held()
        raise end.error
