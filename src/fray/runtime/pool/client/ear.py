"""Who waits for what the head sends: the thread that has the connection, or one of the client that waits."""

from __future__ import annotations

import select
import sys
import time

from fray.runtime.pool.client.undisturbed import Undisturbed

__all__ = ["Ear"]

LONGEST_SECONDS = 3600.0
"""Of one wait of the system's: how much it can take depends on the platform."""
LOOK_SECONDS = 0.001
"""How long a thread of the client looks for what it waits for before it sleeps, if the last one was as quick.

So a processor is kept busy for nothing for that long at most, once for each slow answer after a quick one."""
MOST_MISSES = 10
"""Looks that found nothing, as far as they are counted: after so many, 2**10 quick answers are slept for."""


class Ear:
    """Waits for a connection and for a bell, both descriptors.

    `lends` says whether another thread can wait for the connection meanwhile; that needs epoll.
    """

    def __init__(self, connection: int, bell: int) -> None:
        self._connection = connection
        self._bell = bell
        self._frames = select.poll()
        self._frames.register(connection, select.POLLIN)
        self._quick = False
        """Whether what was waited for last has come within `LOOK_SECONDS`."""
        self._misses = 0
        """Looks that found nothing, less those that found something."""
        self._sleeps = 0
        """Quick answers to come that are slept for."""
        self._news = select.poll()
        self._news.register(connection, select.POLLIN)
        self._room = select.poll()
        self._room.register(connection, select.POLLOUT)
        self.lends = sys.platform == "linux"
        if sys.platform == "linux":
            self._both = select.epoll()
            self._both.register(connection, select.EPOLLIN)
            self._both.register(bell, select.EPOLLIN)
        else:
            self._either = select.poll()
            self._either.register(connection, select.POLLIN)
            self._either.register(bell, select.POLLIN)

    def listen(self, seconds: float) -> tuple[bool, bool]:
        """Return whether the bell has rung and whether something has come, once or after some seconds."""
        if sys.platform == "linux":
            ready = [descriptor for descriptor, _ in self._both.poll(seconds)]
        else:
            ready = [descriptor for descriptor, _ in self._either.poll(seconds * 1000)]
        return self._bell in ready, self._connection in ready

    def lend(self) -> None:
        """Let `listen` wait for the bell alone."""
        self._watch(0)

    def take_back(self) -> None:
        """Let `listen` wait for both again."""
        self._watch(select.POLLIN)

    def _watch(self, events: int) -> None:
        if sys.platform == "linux":
            # From this thread, while another is in `listen`: it takes effect at once (epoll_wait(2)).
            try:  # noqa: SIM105 - at each call, and `suppress` takes longer than the rest
                self._both.modify(self._connection, events)
            except (OSError, ValueError):
                pass  # the connection was closed, or this was

    def await_frame(self, here: Undisturbed, deadline: float | None) -> bool:
        """Return once something may have come; False: the `deadline` has passed, or a signal has come.

        For one thread at a time.
        """
        began = time.monotonic()
        left = LONGEST_SECONDS if deadline is None else max(0.0, deadline - began)
        if here.signalled:  # first: where much comes, its handler would wait for as long as that lasts
            return False
        # The last one was quick, so this one may be, and to be woken would take a third of its time.
        came = self._quick and self._may_look() and self._look(here, began + min(left, LOOK_SECONDS))
        if not came:
            rest = left if deadline is None else max(0.0, deadline - time.monotonic())
            came = here.poll(self._frames, min(rest, LONGEST_SECONDS) * 1000)
        self._quick = came and time.monotonic() - began < LOOK_SECONDS
        return came or (left >= LONGEST_SECONDS and not here.signalled)

    def _look(self, here: Undisturbed, until: float) -> bool:
        """Return whether something has come, looking again and again until then, or until a signal comes."""
        look = self._frames.poll
        came = bool(look(0))
        while not came and time.monotonic() < until and not here.signalled:
            came = bool(look(0))
        if came:
            self._misses = max(0, self._misses - 1)
        else:
            self._misses = min(self._misses + 1, MOST_MISSES)
            self._sleeps = 2**self._misses
        return came

    def _may_look(self) -> bool:
        """Count this wait, and return whether to look: on busy processors that keeps off who would answer."""
        self._sleeps -= self._sleeps > 0
        return self._sleeps == 0

    def has_news(self) -> bool:
        """Return whether something has come, or the connection has ended. For one thread at a time."""
        return bool(self._news.poll(0))

    def has_room(self) -> bool:
        """Return whether the connection takes some bytes without a wait. For one thread at a time."""
        return bool(self._room.poll(0))

    def close(self) -> None:
        """Wait no more."""
        if sys.platform == "linux":
            self._both.close()
