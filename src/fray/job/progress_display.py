"""When and where the progress of long calls shows: on a terminal, in a notebook, in a log, or not at all.

A call that blocks is watched from a thread of its own, which looks a few times a second: the call itself
pays for one entry in a list, and nothing per task. One line is shown at a time, that of the call that has
waited longest. What is counted is in `progress`; how the bar looks is in `progress_bar`, which needs rich,
and in `progress_notebook`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, TypeAlias

from fray.errors import SettingError
from fray.job.progress import MapWatch, Progress, Surveyed, Watch, describe
from fray.job.progress_notebook import NotebookPainter, is_notebook

if TYPE_CHECKING:
    from fray.job.progress_bar import BarPainter

__all__ = ["Mode", "Painter", "ProgressDisplay", "choose_mode", "turn_off", "watching", "watching_map"]

VARIABLE = "FRAY_PROGRESS"
IDLE_SECONDS = 5.0
"""How long the thread stays when there is nothing to watch."""
SHARE = 20
"""The thread rests for at least so many times the processor time that a look took."""
LINES_SECONDS = 10.0
"""How often a line is written where no terminal is."""

Mode: TypeAlias = Literal["off", "bar", "lines", "notebook"]


def choose_mode(environ: Mapping[str, str], stream: TextIO | None, *, notebook: bool = False) -> Mode:
    """Return what is shown: a bar on a terminal or in a notebook, else nothing, or lines.

    FRAY_PROGRESS=0 is for none of them, 1 for lines where there would be nothing.

    Raises:
        SettingError: FRAY_PROGRESS is something else.
    """
    wish = environ.get(VARIABLE, "")
    if wish not in ("", "0", "1"):
        raise SettingError(VARIABLE, f"is {wish!r}; legal are 0 (never) and 1 (lines where no terminal is)")
    if wish == "0":
        return "off"
    if notebook:
        return "notebook"
    if stream is None or stream.closed:
        return "off"
    if stream.isatty():
        return "bar"
    return "lines" if wish == "1" else "off"


class Painter(Protocol):
    """Shows one line at a time."""

    delay: float
    """Seconds that a call waits before it shows."""
    interval: float
    """Seconds between two looks, at least."""

    def paint(self, progress: Progress) -> None:
        """Show it in place of what is shown."""

    def clear(self) -> None:
        """Show nothing, and leave the terminal as it was. May be called twice."""


class LinePainter:
    """Writes a line every few seconds, for logs."""

    delay = LINES_SECONDS
    interval = LINES_SECONDS

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def paint(self, progress: Progress) -> None:
        """Write it."""
        self._stream.write(f"{progress.what}  {describe(progress)}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Do nothing: what is written stays."""


class LazyBar:
    """A bar that is loaded when the first call has waited long enough: few programs ever need rich."""

    delay = 1.0
    interval = 0.1

    def __init__(self) -> None:
        self._bar: BarPainter | None = None
        self._absent = False

    def paint(self, progress: Progress) -> None:
        """Show it; do nothing where rich isn't installed."""
        if self._bar is None and not self._absent:
            try:
                from fray.job.progress_bar import BarPainter  # noqa: PLC0415 - see above
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] != "rich":
                    raise
                self._absent = True
            else:
                self._bar = BarPainter()
        if self._bar is not None:
            self._bar.paint(progress)

    def clear(self) -> None:
        """Show nothing."""
        if self._bar is not None:
            self._bar.clear()


class ProgressDisplay:
    """The calls of this process that wait, and the thread that shows the longest one.

    `painter` is what shows it; `clock` is monotonic; `work_clock` counts what this thread works, not what it
    waits for others: a look that had to wait once mustn't let the bar stand still for long.
    """

    def __init__(
        self,
        painter: Painter,
        *,
        clock: Callable[[], float] = time.monotonic,
        work_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._painter = painter
        self._clock = clock
        self._work_clock = work_clock
        # Reentrant: the garbage collector may end a `map` inside any of the sections it guards.
        self._lock = threading.RLock()
        self._watches: list[Watch] = []
        self._shown: Watch | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    @contextlib.contextmanager
    def show(self, watch: Watch) -> Iterator[None]:
        """Watch a call for as long as the block lasts; afterwards nothing of it is on the screen."""
        with self._lock:
            self._watches.append(watch)
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name="fray-progress", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._watches.remove(watch)
                if self._shown is watch:
                    self._hide()

    def end(self) -> None:
        """Show nothing any more."""
        self._ended.set()
        with self._lock:
            self._hide()

    def abandon(self) -> None:
        """Leave the screen to the parent: this process is a fork of it, without its thread."""
        # The thread may have held the lock.
        self._lock = threading.RLock()
        self._shown = None
        self._ended = threading.Event()
        self._ended.set()

    def refresh(self) -> float:
        """Look once, and show what is to be shown; return the seconds of work that looking took."""
        began, work = self._clock(), self._work_clock()
        with self._lock:
            due = self._due(began)
            if due is None:
                self._hide()
            new = [watch for watch in self._watches if watch is not due and not watch.surveyed]
        # Not under the lock: it may take long, or ask another thread.
        for watch in new:
            watch.survey(began)  # rates count from here
        progress = due.survey(began) if due is not None else None
        took = self._work_clock() - work
        with self._lock:
            if due is not None and progress is not None and due in self._watches and not self._ended.is_set():
                self._shown = due
                self._draw(partial(self._painter.paint, progress))
        return took

    def _due(self, now: float) -> Watch | None:
        for watch in self._watches:  # the oldest first
            if now - watch.began >= self._painter.delay and not watch.is_hidden(now):
                return watch
        return None

    def _hide(self) -> None:
        if self._shown is not None:
            self._shown = None
            self._draw(self._painter.clear)

    def _draw(self, draw: Callable[[], None]) -> None:
        try:
            draw()
        except OSError:
            # The terminal is gone: a bar is no reason to end what waits.
            self._ended.set()

    def _run(self) -> None:
        idle_since = self._clock()
        pause = self._painter.interval
        while not self._ended.wait(pause):
            with self._lock:
                if self._watches:
                    idle_since = self._clock()
                elif self._clock() - idle_since > IDLE_SECONDS:
                    self._thread = None
                    return
            pause = max(self._painter.interval, self.refresh() * SHARE)


# --- the display of this process ---------------------------------------------------------------------------

_lock = threading.Lock()
_display: ProgressDisplay | None = None
_known = False
"""Whether `_display` is what it will be: None then means that nothing is shown in this process."""


def watching(
    what: str, context: Surveyed, futures: Collection[Any], needed: int | None = None
) -> contextlib.AbstractContextManager[None]:
    """Return what surrounds a call that waits for `needed` of the futures (None: all), and may take long.

    Raises:
        SettingError: FRAY_PROGRESS is something that it can't mean.
    """
    display = _display if _known else _find_display()
    return _NOTHING if display is None else display.show(Watch(what, context, futures, needed))


def watching_map(watch: MapWatch) -> contextlib.AbstractContextManager[None]:
    """Return what surrounds a `map` from its first item to its last; see `watching`."""
    display = _display if _known else _find_display()
    return _NOTHING if display is None else display.show(watch)


def turn_off() -> None:
    """Show nothing in this process: it is a worker, and its output is another's."""
    global _display, _known
    with _lock:
        if _display is not None:
            _display.end()
        _display, _known = None, True


def _find_display() -> ProgressDisplay | None:
    global _display, _known  # noqa: PLW0603 - one terminal a process
    with _lock:
        if not _known:
            environ = os.environ  # noqa: TID251 - read once, here
            painter = _make_painter(choose_mode(environ, sys.stderr, notebook=is_notebook()))
            if painter is not None:
                _display = ProgressDisplay(painter)
                atexit.register(_display.end)
            _known = True
        return _display


def _make_painter(mode: Mode) -> Painter | None:
    if mode == "lines":
        return LinePainter(sys.stderr)
    if mode == "notebook":
        return NotebookPainter()
    return LazyBar() if mode == "bar" else None


def _forget() -> None:
    global _display, _known, _lock
    if _display is not None:
        _display.abandon()
    _display, _known, _lock = None, False, threading.Lock()


os.register_at_fork(after_in_child=_forget)
_NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
