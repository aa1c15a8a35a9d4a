"""A keyed work queue: each key is worked on by one worker at a time, however often it is added.

Level-based controllers need no events, only to know *which* object to look at again. A key that was worked
on rests for a moment, so that changes that come together are one piece of work; one that fails comes back
later each time.
Nothing here knows what a key stands for.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

from fray.backoff import Backoff

__all__ = ["REST_SECONDS", "WorkQueue"]

Key = TypeVar("Key", bound=Hashable)

BACKOFF: Final = Backoff(0.1, 60.0)
REST_SECONDS: Final = 0.1
"""How long a key rests after it was worked on well: what is added in this time is due at its end.

An attempt's pods are created, placed and prepared in less; the first change after a while never waits.
"""
SPARE_ENTRIES = 100
"""How many times that no longer count are kept at least, before looking for them."""


class WorkQueue(Generic[Key]):
    """Keys that are due, in the order in which they became so.

    `clock` returns seconds; `backoff` says how long a key pauses after failures in a row.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None, backoff: Backoff = BACKOFF) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._backoff = backoff
        self._due: dict[Key, None] = {}
        self._active: set[Key] = set()
        self._again: set[Key] = set()
        self._resting: dict[Key, float] = {}
        """Until when keys rest, the first to end first."""
        self._failures: dict[Key, int] = {}
        self._later: list[tuple[float, int, Key]] = []
        self._wake: dict[Key, tuple[float, int, Key]] = {}
        self._order = itertools.count()
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        """Of the worker that waits: if all waited, each change would wake them all."""

    def __len__(self) -> int:
        return len(self._due) + len(self._active)

    def __iter__(self) -> Iterator[Key]:
        return itertools.chain(self._due, self._active)

    def add(self, key: Key) -> None:
        """Make a key due now, or when it has rested."""
        rest = self._resting.get(key, -math.inf) - self._clock()
        if rest > 0:
            self.add_after(key, rest)
            return
        self._wake.pop(key, None)
        if key in self._active:
            self._again.add(key)
        else:
            self._due.setdefault(key)
            self._changed.set()

    def add_after(self, key: Key, seconds: float) -> None:
        """Make a key due later, unless it is due earlier anyway."""
        entry = self._clock() + max(seconds, 0.0), next(self._order), key
        if key in self._wake and self._wake[key] < entry:
            return
        self._wake[key] = entry
        heapq.heappush(self._later, entry)
        if len(self._later) > 2 * len(self._wake) + SPARE_ENTRIES:
            # Times that were replaced would stay until they come, which may be days.
            self._later = sorted(self._wake.values())
        self._changed.set()

    async def get(self) -> Key:
        """Wait for a key that is due and take it; `done` or `failed` must follow."""
        async with self._turn:
            while True:
                pause = self._collect()
                if self._due:
                    key = next(iter(self._due))
                    del self._due[key]
                    self._active.add(key)
                    return key
                self._changed.clear()
                try:
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    def done(self, key: Key) -> None:
        """Say that a key was worked on well."""
        self._failures.pop(key, None)
        self._active.discard(key)
        self._end_rests()
        self._resting[key] = self._clock() + REST_SECONDS
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def failed(self, key: Key, *, at_least: float = 0.0) -> float:
        """Say that a key has to be tried again; return the pause in seconds before that."""
        count = self._failures.get(key, 0) + 1
        self._failures[key] = count
        pause = self._backoff.pause(count, at_least)
        # A change seen in between must not skip the pause: the failure may be the server's plea for one.
        self._again.discard(key)
        self._active.discard(key)
        self.add_after(key, pause)
        return pause

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a key that no longer exists."""
        for remembered in (self._failures, self._wake, self._resting):
            remembered.pop(key, None)

    def _end_rests(self) -> None:
        """Forget the keys that have rested."""
        now = self._clock()
        while self._resting and self._resting[first := next(iter(self._resting))] <= now:
            del self._resting[first]

    def _collect(self) -> float | None:
        """Move what has become due; return seconds until the next one, None when there is none."""
        now = self._clock()
        while self._later:
            entry = self._later[0]
            at, _, key = entry
            if self._wake.get(key) is entry and at > now:
                return at - now
            heapq.heappop(self._later)
            if self._wake.get(key) is entry:  # else it was added again since, for another time
                del self._wake[key]
                self.add(key)
        return None
