"""How far a long `get`, `wait` or `map` is: what is counted, and how it reads.

When and where it shows is in `progress_display`; nothing here knows threads or terminals.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from fray.errors import PoolClosedError

__all__ = ["FutureState", "MapWatch", "Progress", "Surveyed", "Watch", "describe", "total_of"]

T = TypeVar("T")

PAUSE_SECONDS = 1.0
"""How long `map`'s line stays while its caller works on an item."""

FutureState: TypeAlias = Literal["pending", "ready", "failed"]


class Surveyed(Protocol):
    """What is asked of a context."""

    def state_of(self, future: Any, *, whole: bool) -> FutureState:
        """Return how far a future is; `whole`: a generator counts once it has ended."""

    def count_running(self) -> int | None:
        """Return how many tasks and calls run in the context now; None if that can't be known."""


@dataclass(frozen=True)
class Progress:
    """How far one call is. `rate` is in tasks a second since the first look; None at that look.

    `total` is None for a `map` over iterables of unknown length, `running` where it can't be known.
    """

    what: str
    done: int
    total: int | None
    failed: int
    running: int | None
    elapsed: float
    rate: float | None

    @property
    def remaining(self) -> float | None:
        """Seconds until the end at this rate; None if nothing tells."""
        if self.total is None or not self.rate:
            return None
        return (self.total - self.done) / self.rate


def describe(progress: Progress) -> str:
    """Return all of it but the bar in one line."""
    total = "" if progress.total is None else f"/{progress.total}"
    parts = [f"{progress.done}{total}"]
    if progress.rate is not None:
        parts.append(f"{progress.rate:.1f}/s")
    if progress.running is not None:
        parts.append(f"{progress.running} running")
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    parts.append(_clock(progress.elapsed))
    if progress.remaining is not None:
        parts.append(f"{_clock(progress.remaining)} left")
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# --- what is watched ---------------------------------------------------------------------------------------


class Watch:
    """One call that waits for `needed` of its futures (None: all of them). One thread surveys it.

    `began` is monotonic (None: now).
    """

    def __init__(
        self,
        what: str,
        context: Surveyed,
        futures: Collection[Any],
        needed: int | None = None,
        *,
        began: float | None = None,
    ) -> None:
        self._what = what
        self._context = context
        self._pending = futures
        self._total = len(futures) if needed is None else min(needed, len(futures))
        self._whole = what == "get"
        self._ready = 0
        self._failed = 0
        self._first: tuple[int, float] | None = None
        """How many were ready at the first look, perhaps since before the call, and when that was."""
        self.began = time.monotonic() if began is None else began

    @property
    def surveyed(self) -> bool:
        """Whether there was a first look."""
        return self._first is not None

    def is_hidden(self, now: float) -> bool:  # noqa: ARG002 - see `MapWatch`
        """Return whether the call isn't waiting."""
        return False

    def survey(self, now: float) -> Progress:
        """Look which futures are ready by now. Costs time in proportion to those that were not."""
        self._look()
        return self._progress(min(self._ready, self._total), self._total, now)

    def _look(self) -> None:
        state_of, whole = self._context.state_of, self._whole
        pending: list[Any] = []
        for future in self._pending:
            state = state_of(future, whole=whole)
            if state == "pending":
                pending.append(future)
            elif state == "failed":
                self._failed += 1
        self._ready += len(self._pending) - len(pending)
        self._pending = pending

    def _progress(self, done: int, total: int | None, now: float) -> Progress:
        if self._first is None:
            self._first = (done, now)
        before, since = self._first
        rate = (done - before) / (now - since) if now > since else None
        running: int | None = None
        with contextlib.suppress(PoolClosedError):
            running = self._context.count_running()
        return Progress(self._what, done, total, self._failed, running, now - self.began, rate)


class MapWatch(Watch):
    """One `map` of `total` items (None: nobody knows): done is what its caller was given.

    What else has ended isn't counted: a pool doesn't tell of results that nobody waits for yet.
    """

    def __init__(self, context: Surveyed, total: int | None, *, began: float | None = None) -> None:
        super().__init__("map", context, (), began=began)
        self._length = total
        self._done = 0
        self._paused_at = 0.0
        """When an item was handed out that the caller works on; 0: the caller waits."""

    def hand_out(self, item: T) -> T:
        """Note that the caller gets an item, and return it."""
        self._done += 1
        self._paused_at = time.monotonic()
        return item

    def hand_out_many(self, count: int) -> None:
        """Note that the caller gets so many items at once."""
        self._done += count
        self._paused_at = time.monotonic()

    def resume(self) -> None:
        """Note that the caller asks for the next item."""
        self._paused_at = 0.0

    def is_hidden(self, now: float) -> bool:
        """Return whether the caller has been at an item for a while."""
        paused_at = self._paused_at
        return paused_at > 0 and now - paused_at > PAUSE_SECONDS

    def survey(self, now: float) -> Progress:
        """Look how many results were taken by now."""
        return self._progress(self._done, self._length, now)


def total_of(iterables: Sequence[Any]) -> int | None:
    """Return how many items there are side by side; None if one of them doesn't say."""
    try:
        return min(map(len, iterables), default=None)
    except TypeError:
        return None
