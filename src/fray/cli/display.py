"""Showing a job while it runs, in a thread of its own: its output as it comes, and what happens to it.

The thread reads the output back from disk at the speed of whoever reads the screen. So a slow reader
neither stops the job nor makes memory grow, and the runner's loop never waits for a terminal.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from fray.cli.lines import LineFormatter
from fray.cli.screen import Screen
from fray.cli.story import Line, describe_change, describe_end
from fray.cluster.local.logs import AttemptLogReader
from fray.errors import StateDirectoryError
from fray.plan.gang import derive_gang
from fray.plan.observation import GangObservation
from fray.plan.status import is_finished
from fray.wire.frayjob import FrayJob
from fray.wire.status import FrayJobStatus

__all__ = ["Display"]

REFRESH_SECONDS = 0.25
REDRAW_SECONDS = 0.1
"""Much output must not become as many redrawn lines."""
BATCH_CHARACTERS = 64 * 1024
ENORMOUS_CHARACTERS = 4 * 1024 * 1024


class Display:
    """Follows a job from its first attempt to its end; a `fray.cluster.local.runner.RunListener`.

    `logs_of` returns the folder of an attempt's logs. `lost` is called, from the display's thread, with
    the error that ended it: nobody reads any more.
    """

    def __init__(
        self,
        screen: Screen,
        *,
        job: FrayJob,
        terminal: bool,
        color: bool,
        logs_of: Callable[[int], Path],
        lost: Callable[[OSError], None],
    ) -> None:
        self._screen = screen
        self._job = job
        self._observed: GangObservation | None = None
        self._logs_of = logs_of
        self._lost = lost
        hosts = derive_gang(job.spec).hosts_per_slice
        self._formatter = LineFormatter(hosts_per_slice=hosts, terminal=terminal, color=color)
        self._reader: AttemptLogReader | None = None
        self._told = FrayJobStatus()
        self._news: deque[FrayJob | list[Line]] = deque()
        self._wake = threading.Condition()
        self._something_new = False
        self._drawn_at = 0.0
        self._closing = False
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="display", daemon=True)

    # --- called from the runner's thread ----------------------------------------------------------------

    def start(self) -> None:
        """Begin to show."""
        self._thread.start()

    def status_changed(self, job: FrayJob, observed: GangObservation | None) -> None:
        """Take in a new status."""
        with self._wake:
            self._observed = observed
            self._notify(job)

    def output_written(self) -> None:
        """Take note that there is more output on disk."""
        with self._wake:
            self._notify()

    def ports_moved(self, attempt: int, ports: Mapping[str, str]) -> None:
        """Take in that ports have other numbers than the declared ones."""
        moved = "; ".join(f"{name} {change}" for name, change in ports.items())
        self.say([Line(f"{self._job.metadata.name}: attempt {attempt}: ports: {moved}")])

    def say(self, lines: list[Line]) -> None:
        """Show lines after all output that is on disk by now."""
        with self._wake:
            self._notify(lines)

    def close(self) -> None:
        """Let the thread end once all is shown."""
        with self._wake:
            self._closing = True
            self._notify()

    def abandon(self) -> None:
        """Let the thread end as soon as it can; what isn't shown by then never is."""
        self._abandoned = True
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the thread still shows something, or is stuck in doing so."""
        return self._thread.is_alive()

    def _notify(self, news: FrayJob | list[Line] | None = None) -> None:
        if news is not None:
            self._news.append(news)
        self._something_new = True
        self._wake.notify()

    # --- the display's own thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._show_news():
                pass
            self._screen.close()
        except OSError as error:
            self._lost(error)
        except StateDirectoryError:
            # The files went away below it: the runner meets the same error, and tells it.
            return
        finally:
            if self._reader is not None:
                self._reader.close()

    def _show_news(self) -> bool:
        """Show what is new, or after a moment how the job stands; return whether to go on."""
        with self._wake:
            if not self._something_new:
                self._wake.wait(REFRESH_SECONDS)
            self._something_new = False
            news = list(self._news)
            self._news.clear()
            closing, observed = self._closing, self._observed
        self._show_output()
        for item in news:
            self._show(item)
        if closing or self._abandoned:
            return False
        if not is_finished(self._job.status) and time.monotonic() - self._drawn_at >= REDRAW_SECONDS:
            self._screen.show_progress(self._job, observed)
            self._drawn_at = time.monotonic()
        return True

    def _show(self, item: FrayJob | list[Line]) -> None:
        if not isinstance(item, FrayJob):
            self._screen.print_lines(item)
            return
        self._job = item
        status, before = item.status, self._told
        self._told = status
        if status.attempt is not None and status.attempt != before.attempt:
            self._show_output()
            self._open_attempt(status.attempt)
        retries = item.spec.retries.failures
        lines = describe_change(before, status, name=item.metadata.name, retries=retries)
        if is_finished(status):
            # The last output is on disk before the job has finished.
            self._show_output()
            self._screen.close()
            lines = describe_end(item)
        self._screen.print_lines(lines)

    def _open_attempt(self, number: int) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = AttemptLogReader(self._logs_of(number))

    def _show_output(self) -> None:
        if self._reader is None:
            return
        batch: list[str] = []
        size = 0
        for piece in self._reader.read():
            if self._abandoned:
                return
            batch.append(self._formatter.format(piece))
            size += len(batch[-1])
            # A live line can't be drawn beside an unfinished one; only enormous lines are cut.
            if size >= (BATCH_CHARACTERS if batch[-1].endswith("\n") else ENORMOUS_CHARACTERS):
                self._screen.print_output("".join(batch))
                batch, size = [], 0
        if batch:
            self._screen.print_output("".join(batch))
