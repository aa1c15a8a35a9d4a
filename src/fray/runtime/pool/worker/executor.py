"""Where the tasks of a worker run: a slot is the right to run one task at a time, and a thread that uses it.

The head opens a slot with each task that mustn't wait. When its task ends or blocks, the slot goes on to a
task that waits, or closes. What running a task means, nobody here knows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from fray.runtime.pool.current import RunningTask
from fray.runtime.pool.messages.events import TaskBegun, TaskBlocked, TaskUnblocked
from fray.runtime.pool.messages.specs import ClientId, ObjectId, Shape
from fray.runtime.pool.worker.round_robin import RoundRobin
from fray.runtime.pool.worker.threads import ElasticThreads

__all__ = ["Executor", "QueuedTask"]


class QueuedTask(NamedTuple):
    """A task as far as slots are concerned."""

    running: RunningTask
    caller: tuple[ClientId, ObjectId]
    """Who takes turns with others."""
    shape: Shape
    """A slot goes on to tasks of the same shape only: it holds no other resources."""
    run: Callable[[], Callable[[ObjectId], None]]
    """Runs it; never raises. Returns what tells its end, given the task that took its place (0: none)."""
    fail: Callable[[RuntimeError], None]
    """Tells its end, since no thread can be started for it."""


class Executor:
    """The slots of one worker.

    Parameters: `threads` to run on; `tell` sends a message, `tell_soon` with the next ones;
    `on_idle` is called when the last slot closed.
    """

    def __init__(
        self,
        threads: ElasticThreads,
        tell: Callable[[TaskBlocked | TaskUnblocked], None],
        tell_soon: Callable[[TaskBegun], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._threads = threads
        self._tell = tell
        self._tell_soon = tell_soon
        self._on_idle = on_idle
        self._lock = threading.Lock()
        self._waiting: dict[Shape, RoundRobin[QueuedTask]] = {}
        self._open: dict[Shape, int] = {}
        """Executor whose task isn't blocked."""
        self._begun: dict[ObjectId, QueuedTask] = {}
        self._lent: set[ObjectId] = set()
        """Tasks that are blocked: their slots went on without them."""

    @property
    def idle(self) -> bool:
        """Whether nothing runs, waits or is blocked."""
        with self._lock:
            return not self._begun and not any(self._waiting.values())

    def open(self, task: QueuedTask) -> None:
        """Open a slot for `task` at once."""
        with self._lock:
            self._begin(task)
            self._open[task.shape] = self._open.get(task.shape, 0) + 1
        self._start(task)

    def wait(self, task: QueuedTask) -> None:
        """Let `task` wait for a slot of its shape; open one if there is none."""
        with self._lock:
            if self._open.get(task.shape, 0):
                queue = self._waiting.setdefault(task.shape, RoundRobin())
                queue.add(task.running.id, task.caller, task)
                return
        # Before it begins: its end must not be reported before its start. Others are reported with an end.
        self._tell_soon(TaskBegun(task.running.id))
        self.open(task)

    def cancel(self, id: ObjectId) -> QueuedTask | None:  # noqa: A002
        """Take the task from what waits and return it, or interrupt it if it runs."""
        with self._lock:
            for queue in self._waiting.values():
                task = queue.remove(id)
                if task is not None:
                    return task
            task = self._begun.get(id)
        if task is not None:
            task.running.interrupt()
        return None

    def reclaim(self, count: int) -> tuple[ObjectId, ...]:
        """Take up to `count` tasks from what waits, the last that came first."""
        taken: list[ObjectId] = []
        with self._lock:
            for queue in self._waiting.values():
                taken += queue.take_last(count - len(taken))
        return tuple(taken)

    def blocked(self, task: RunningTask) -> None:
        """Lend the slot of a task that waits for objects to another task, or close it.

        What has outlived its task, or its attempt, has no slot to lend.
        """
        with self._lock:
            waiting = self._begun.get(task.id)
            if waiting is None or waiting.running is not task:
                return
            self._lent.add(task.id)
            following = self._following(waiting.shape)
        # Before the other one begins: its end must not be reported before its start.
        self._tell(TaskBlocked(task.id, following.running.id if following else 0))
        if following is not None:
            self._start(following)

    def unblocked(self, task: RunningTask) -> None:
        """Open a slot again for a task that goes on; for a while there may be one more than the head gave."""
        with self._lock:
            waiting = self._begun.get(task.id)
            if waiting is None or waiting.running is not task:
                return
            self._lent.discard(task.id)
            self._open[waiting.shape] += 1
        self._tell(TaskUnblocked(task.id))

    def borrow(self) -> RunningTask | None:
        """Return the task that has run longest of those that don't wait: it lends its slot to others.

        For a thread that waits and isn't known to be of any task.
        """
        with self._lock:
            return next((each.running for key, each in self._begun.items() if key not in self._lent), None)

    def _start(self, task: QueuedTask) -> None:
        """Run a task that has begun in a thread; where none can be started, that costs this task alone."""
        while True:
            try:
                self._threads.run(lambda run=task: self._run(run))  # type: ignore[misc]
            except RuntimeError as error:
                task.fail(error)
            else:
                return
            with self._lock:
                del self._begun[task.running.id]
                if self._begun:
                    self._open[task.shape] -= 1  # those that wait go on when one of these has ended
                    return
                following = self._following(task.shape)
            if following is None:
                self._on_idle()
                return
            self._tell_soon(TaskBegun(following.running.id))
            task = following

    def _run(self, task: QueuedTask | None) -> None:
        while task is not None:
            tell_end = task.run()
            with self._lock:
                del self._begun[task.running.id]
                # One that ends while a thread of it waits has lent its slot.
                lent = task.running.id in self._lent
                self._lent.discard(task.running.id)
                following = None if lent else self._following(task.shape)
            tell_end(following.running.id if following else 0)
            task = following
        if self.idle:
            self._on_idle()

    def _following(self, shape: Shape) -> QueuedTask | None:
        """Take the task that a slot goes on to, or close the slot. The lock is held."""
        queue = self._waiting.get(shape)
        following = queue.take() if queue else None
        if following is None:
            self._open[shape] -= 1
        else:
            self._begin(following)
        return following

    def _begin(self, task: QueuedTask) -> None:
        self._begun[task.running.id] = task
