"""Threads that run work, a bounded number at once, and give way while what they run is blocked.

A thread that waits for another task lends its slot, so that the task it waits for can run: nested tasks
never deadlock, however few slots there are. What the work is, nobody here knows.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Protocol

from fray.errors import PoolClosedError

__all__ = ["Lendable", "Slot", "ThreadWorkers", "blocking", "current_slot", "know_slot", "lend"]

Work = Callable[[], None]

IDLE_SECONDS = 5.0
"""How long an idle thread stays for the next work; so contexts nobody shuts down leave no threads."""

_thread = threading.local()


def current_slot() -> Slot | None:
    """Return the slot that this thread's work holds; None where nothing is lent."""
    return getattr(_thread, "slot", None)


class Lendable(Protocol):
    """What a thread's work holds and lends while it is blocked."""

    def lend(self) -> None:
        """Let other work run until `take_back` was called as often."""

    def take_back(self) -> None:
        """Count as running again."""


_of_task: ContextVar[Lendable | None] = ContextVar("fray_slot", default=None)


def know_slot(slot: Lendable | None) -> None:
    """Let code of the present context know its slot, in whatever thread it runs."""
    _of_task.set(slot)


def lend() -> Callable[[], None]:
    """Lend the slot of this thread's work or task, if it has one, to others; return what takes it back."""
    slot: Lendable | None = current_slot() or _of_task.get()
    if slot is None:
        return lambda: None
    slot.lend()
    return slot.take_back


@contextlib.contextmanager
def blocking() -> Iterator[None]:
    """Lend the slot of this thread's work, if it holds one, to other work until the end of the block."""
    take_back = lend()
    try:
        yield
    finally:
        take_back()


class ThreadWorkers:
    """Runs what is submitted in its order, at most `slots` at once; threads start when needed.

    `lends=False` keeps a slot while its work is blocked, as an actor must whose calls exclude each other.
    """

    def __init__(self, slots: int, *, name: str, lends: bool = True) -> None:
        self.slots = slots
        self._name = name
        self._lends = lends
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._running = 0
        self._parked: list[queue.SimpleQueue[Work | None]] = []
        self._closed = False

    def submit(self, work: Work) -> None:
        """Run `work` in a thread as soon as a slot is free. It must not raise.

        Raises:
            PoolClosedError: after `close`.
        """
        with self._lock:
            if self._closed:
                raise PoolClosedError(self._name)
            self._waiting.append(work)
            self._start_waiting()

    def close(self) -> None:
        """Forget what has not started, and let each thread end after its work. May be called twice."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            for parked in self._parked:
                parked.put(None)
            self._parked.clear()

    def change_running(self, difference: int) -> None:
        """Count work in or out of the slots, and start what fits then."""
        with self._lock:
            self._running += difference
            self._start_waiting()

    def _start_waiting(self) -> None:
        """Hand work to threads while slots are free. The lock is held."""
        while self._waiting and self._running < self.slots:
            work = self._waiting.popleft()
            self._running += 1
            if self._parked:
                self._parked.pop().put(work)
                continue
            # In a list, to be taken out: a thread keeps its arguments for as long as it lives.
            thread = threading.Thread(target=self._loop, args=([work],), name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads: those that run take it later
                self._running -= 1
                self._waiting.appendleft(work)
                if not self._running:
                    raise
                return

    def _loop(self, first: list[Work]) -> None:
        work: Work | None = first.pop()
        while work is not None:
            slot = Slot(self)
            _thread.slot = slot if self._lends else None
            work()
            _thread.slot = None
            work = None  # what it holds must not live on while this thread idles
            work = self._next(slot)

    def _next(self, slot: Slot) -> Work | None:
        inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        with self._lock:
            if slot.release():
                self._running -= 1
            if self._waiting and self._running < self.slots:
                self._running += 1
                return self._waiting.popleft()
            if self._closed or len(self._parked) >= self.slots:
                return None
            self._parked.append(inbox)
        try:
            return inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            pass
        with self._lock:
            if inbox in self._parked:
                self._parked.remove(inbox)
                return None
        return inbox.get()  # just taken from the parked ones: work is on its way


class Slot:
    """The right of one piece of work to run; it is lent while the work is blocked."""

    def __init__(self, workers: ThreadWorkers) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._held = True
        self._given_up = False
        self._loans = 0

    def lend(self) -> None:
        """Let other work run until `take_back` was called as often."""
        with self._lock:
            self._loans += 1
        self._leave()

    def take_back(self) -> None:
        """Count as running again after the last loan; for a moment more may run than there are slots."""
        with self._lock:
            self._loans -= 1
            if self._loans or self._given_up or self._held:
                return
            self._held = True
        self._workers.change_running(+1)

    def give_up(self) -> None:
        """Let other work run for good: nobody wants the result of this one any more."""
        with self._lock:
            self._given_up = True
        self._leave()

    def release(self) -> bool:
        """End the slot with its work; return whether it still counted as running."""
        with self._lock:
            held, self._held, self._given_up = self._held, False, True
        return held

    def _leave(self) -> None:
        with self._lock:
            held, self._held = self._held, False
        if held:
            self._workers.change_running(-1)
