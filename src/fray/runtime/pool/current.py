"""Which task a thread or coroutine of this process runs, and how that task is stopped or waits.

The client reads it to name the parent of what a task submits and to tell that the task waits; those who run
tasks set it. How tasks get here and what becomes of their results is no concern of this module.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import ParamSpec, Protocol, TypeVar

from fray.runtime.pool.messages.specs import ObjectId
from fray.runtime.thread_interrupts import raise_in

__all__ = [
    "OnWait",
    "RunningTask",
    "TaskInterrupt",
    "current_task",
    "set_current_task",
    "shielded",
    "uninterrupted",
]

P = ParamSpec("P")
R = TypeVar("R")

_UNTIL_RAISED = 1000
"""Turns of a loop in which a thread raises what it was sent, unless a finalizer swallows it there."""


class TaskInterrupt(BaseException):
    """Raised inside a task that was cancelled; code that swallows it runs on until its worker is stopped."""


class OnWait(Protocol):
    """Is called when a task begins and ends to wait for objects, so that others can use what it holds."""

    def blocked(self, task: RunningTask) -> None:
        """Take note that the task waits."""

    def unblocked(self, task: RunningTask) -> None:
        """Take note that the task goes on."""


class RunningTask:
    """A task, or a call of an actor's method, from its arrival in this process to its end.

    Parameters: its `id` and `name`; `on_wait`, or None where nothing is to be given away while it waits.
    """

    __slots__ = (
        "_interrupted",
        "_lock",
        "_on_wait",
        "_telling",
        "_thread",
        "_waits",
        "_wakers",
        "ended",
        "id",
        "name",
    )

    def __init__(self, id: ObjectId, name: str, on_wait: OnWait | None = None) -> None:  # noqa: A002
        self.id = id
        self.name = name
        self.ended = False
        """Whether its code has returned; threads that it has started may go on."""
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._thread = 0
        self._interrupted = False
        self._waits = 0
        self._wakers: list[Callable[[], None]] = []

    @property
    def interrupted(self) -> bool:
        """Whether the task was asked to end."""
        return self._interrupted

    def enter(self) -> None:
        """Let this thread be interrupted from now on, until `leave`.

        Raises `TaskInterrupt` if the task was asked to end before.
        """
        with self._lock:
            if not self._interrupted:
                self._thread = threading.get_ident()
                return
        raise TaskInterrupt

    def leave(self) -> None:
        """Let this thread no longer be interrupted: no `TaskInterrupt` is raised after this has returned."""
        asked = False
        while True:
            try:
                with self._lock:
                    self._thread = 0
                if not self._interrupted:
                    return
                # It may be on its way to this thread still, or have come already. Asking for it takes the
                # place of one on its way, so that one comes now and none later. Taking it back instead (by
                # NULL) would leave CPython looking for it for ever, and hanging once somebody traces.
                asked = True
                raise_in(threading.get_ident(), TaskInterrupt)
                for _ in range(_UNTIL_RAISED):
                    pass
            except TaskInterrupt:
                if asked:
                    return

    def interrupt(self) -> None:
        """End the task: raise `TaskInterrupt` in its thread, and wake it if it waits for objects.

        A thread inside a long call of a C function sees it when that has returned.
        """
        with self._lock:
            if self._interrupted:
                return
            self._interrupted = True
            if self._thread:
                raise_in(self._thread, TaskInterrupt)
            wakers = tuple(self._wakers)
        for wake in wakers:
            wake()

    def shielded(self) -> AbstractContextManager[None]:
        """Keep interrupts from this thread within the block: it must not be left half done.

        Raises `TaskInterrupt` after the block if the task was asked to end inside it.
        """
        return _Shield(self)

    def runs_here(self) -> bool:
        """Whether this thread may be interrupted at this moment."""
        return self._thread == threading.get_ident()

    @contextlib.contextmanager
    def woken_by(self, wake: Callable[[], None]) -> Iterator[None]:
        """Let `wake` be called, from another thread, if the task is asked to end within the block.

        Raises `TaskInterrupt` if the task was asked to end before.
        """
        with self._lock:
            if self._interrupted:
                raise TaskInterrupt
            self._wakers.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._wakers.remove(wake)

    @contextlib.contextmanager
    def waiting(self, wake: Callable[[], None]) -> Iterator[None]:
        """Give away what the task holds while the block waits for objects.

        `wake` is called as by `woken_by`; the block should return then. A task whose threads wait at the same
        time counts as waiting once.

        Raises `TaskInterrupt` if the task was asked to end before.
        """
        with self.shielded(), self.woken_by(wake):
            if self._on_wait is None:
                yield
                return
            self._count_waits(+1, self._on_wait.blocked)
            try:
                yield
            finally:
                self._count_waits(-1, self._on_wait.unblocked)

    def lend(self) -> Callable[[], None]:
        """Give away what the task holds until the returned function is called: once, by any thread.

        For waits that can't be seen from here. They count like those of `waiting`.
        """
        if self._on_wait is None:
            return lambda: None
        self._count_waits(+1, self._on_wait.blocked)
        return functools.partial(self._count_waits, -1, self._on_wait.unblocked)

    def _count_waits(self, difference: int, tell: Callable[[RunningTask], None]) -> None:
        # Under a lock of its own, so that the reports have the order of what happened.
        with self._telling:
            before, self._waits = self._waits, self._waits + difference
            if not (before and self._waits):
                tell(self)


_current: ContextVar[RunningTask | None] = ContextVar("fray_running_task", default=None)


def current_task() -> RunningTask | None:
    """Return the task that this code runs in; None outside of tasks, and in threads that a task started."""
    return _current.get()


class _Shield:
    """See `RunningTask.shielded`. A generator would take three times as long, for each item of a stream."""

    __slots__ = ("_left", "_task")

    def __init__(self, task: RunningTask) -> None:
        self._task = task
        self._left = False

    def __enter__(self) -> None:
        if self._task.runs_here():
            self._task.leave()
            self._left = True

    def __exit__(self, *_: object) -> None:
        if self._left:
            self._task.enter()


_NOTHING = contextlib.nullcontext()


def shielded() -> AbstractContextManager[None]:
    """Keep interrupts from this thread within a block, whichever task it runs."""
    task = _current.get()
    return _NOTHING if task is None else _Shield(task)


def uninterrupted(function: Callable[P, R]) -> Callable[P, R]:
    """Defer interrupts of the running task while a function runs; raise them when it returns.

    For what tasks call that takes locks or makes references: left half done, it would stop the whole worker.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        task = _current.get()
        if task is None:
            return function(*args, **kwargs)
        with task.shielded():
            return function(*args, **kwargs)

    return call


def set_current_task(task: RunningTask) -> None:
    """Let the present context's code be that of `task`."""
    _current.set(task)
