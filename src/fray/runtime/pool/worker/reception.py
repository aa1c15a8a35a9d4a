"""Which thread of a worker reads what the head says: the one that does the work, as long as that is short.

Waking another thread takes longer than a small task. So the thread that a message gave work to reads the
next message itself, and does what that one is for without any change of threads. A standby looks whether the
work of the one that is to read takes long; if so, it reads until that is done. What
messages mean isn't known here.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Inbox", "Reception", "Work"]

LOOK_SECONDS = 0.001
"""How often the standby looks; work that goes on from one look to the next takes long."""
IDLE_LOOKS = 20
"""Looks without work between them, after which the standby sleeps until there is some."""

Work: TypeAlias = Callable[[], None]


class Inbox:
    """What one thread is to do. `shared`: it's one of those that do anybody's work."""

    __slots__ = ("shared", "work")

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared
        self.work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()


class Reception:
    """Has one thread at a time read; `read` takes one frame and handles its messages, in that thread.

    The handler of a message gives the work that follows from it to `give`. `rest` is called by each thread
    that has done its work and refers to none of it any more.
    """

    def __init__(self, read: Callable[[], None], rest: Callable[[], None] = lambda: None) -> None:
        self._read, self.rest = read, rest
        self._reading = threading.Lock()
        """Held from a frame's first byte to the end of its last message, so that they stay in order."""
        self._lock = threading.Lock()
        self._reader: Inbox | None = None
        """Whose thread is to read once it has no work; None: the standby. Changed with the lock held."""
        self._busy = False
        """The reader does its work, or will soon."""
        self._turns = 0
        self._handling = 0
        """The thread that reads or handles a frame."""
        self._handler: Inbox | None = None
        """Its inbox; None: the standby, which has none."""
        self._own: Work | None = None
        """What the reader is to do itself after the frame."""
        self._alarm = threading.Lock()
        """Released to wake the standby."""
        self._alarm.acquire()
        self._asleep = False

    # --- who does the work ---------------------------------------------------------------------------------

    def own_inbox(self) -> Inbox | None:
        """Return the inbox of this thread if it reads and has no work yet: none is faster."""
        handler = self._handler
        if self._handling == threading.get_ident() and self._own is None and self._reader is handler:
            return handler
        return None

    def give(self, inbox: Inbox, work: Work) -> None:
        """Let the thread of `inbox` do some work; it reads next, if the reader gives it."""
        if self._handling != threading.get_ident():
            inbox.work.put(work)
            return
        if self.own_inbox() is inbox:
            self._own = work
            self._begin(inbox)
            return
        if self._own is None and not self._busy:
            self._begin(inbox)
        inbox.work.put(work)

    def _begin(self, inbox: Inbox) -> None:
        with self._lock:
            self._reader = inbox
            self._busy = True
            self._turns += 1
            if self._asleep:
                self._asleep = False
                self._ring()

    # --- who reads -----------------------------------------------------------------------------------------

    def serve(self, inbox: Inbox, may_read: Callable[[], bool]) -> None:
        """Read while it's the turn of this thread, whose inbox it is, and do what comes for it.

        `may_read` tells whether nobody but the reader can have work for it: none would get through.
        """
        while self._reader is inbox:
            if not self._reading.acquire(timeout=LOOK_SECONDS):
                # The reading thread may do so for long, and work may come here from elsewhere.
                self.resign(inbox)
                return
            try:
                # Only now: while this thread waited, the one before it may have given it more.
                if not may_read():
                    self.resign(inbox)
                    return
                with self._lock:
                    if self._reader is not inbox:
                        return
                    self._busy = False
                self._handle(inbox)
                work, self._own = self._own, None
            finally:
                self._reading.release()
            if work is not None:
                work()
                work = None  # what it refers to must not live on while this thread reads
                self.rest()

    def stand_by(self) -> None:
        """Read when nobody else does; for ever, in a thread of its own."""
        while True:
            with self._reading:
                if self._reader is None:
                    self._handle(None)
            if self._reader is not None:
                self._watch()

    def _handle(self, inbox: Inbox | None) -> None:
        self._handling, self._handler = threading.get_ident(), inbox
        self._read()
        self._handling = 0

    def resign(self, inbox: Inbox) -> None:
        """Let the thread of `inbox` read no more."""
        with self._lock:
            if self._reader is inbox:
                self._leave_to_standby()

    def let_go(self) -> None:
        """Let the standby read: the thread that is to read waits for something in its work."""
        if self._busy:
            with self._lock:
                if self._busy:
                    self._leave_to_standby()

    def _leave_to_standby(self) -> None:
        self._reader = None
        self._busy = False
        self._asleep = False
        self._ring()

    def _ring(self) -> None:
        if self._alarm.locked():
            self._alarm.release()

    def _watch(self) -> None:
        """Return when it's for the standby to read."""
        seen = 0
        idle = 0
        while True:
            self._alarm.acquire(timeout=-1 if self._asleep else LOOK_SECONDS)
            with self._lock:
                if self._reader is None:
                    return
                if not self._busy:
                    seen = 0
                    idle += 1
                    self._asleep = idle >= IDLE_LOOKS
                elif seen == self._turns:
                    self._reader, self._busy = None, False
                    return
                else:
                    seen = self._turns
                    idle = 0
