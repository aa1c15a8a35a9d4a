"""Threads that come into being when work needs them and stay a while for the next."""

from __future__ import annotations

import contextvars
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TypeAlias

from fray.runtime.pool.current import current_task, set_current_task

__all__ = [
    "IDLE_SECONDS",
    "ElasticThreads",
    "Inbox",
    "Work",
    "let_threads_know_their_task",
    "start_apart",
    "threads_of_tasks",
]

Work: TypeAlias = Callable[[], None]
Inbox: TypeAlias = "queue.SimpleQueue[Work | None]"
"""What one thread is to do; None: nothing any more."""

IDLE_SECONDS = 10.0
"""How long a thread without work stays."""

_own: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""The threads that are of no task."""


def start_apart(work: Work, name: str, *, daemon: bool = False) -> None:
    """Start a thread that is of no task, whichever task's thread starts it.

    In a worker's process it is no daemon, so that threads which tasks start are none either, unless they are
    to be.
    """
    thread = threading.Thread(target=work, name=name, daemon=daemon)
    _own.add(thread)
    contextvars.Context().run(thread.start)


def threads_of_tasks() -> list[threading.Thread]:
    """Return the threads that tasks have started and that a program would wait for.

    So no daemons, and none of executors.
    """
    executors = sys.modules.get("concurrent.futures.thread")
    kept = getattr(executors, "_threads_queues", ())  # which idle until a program ends
    return [
        thread
        for thread in threading.enumerate()
        if not (thread.daemon or thread in _own or thread in kept or thread is threading.main_thread())
    ]


def let_threads_know_their_task() -> None:
    """Let each thread that a task starts be of that task, so that it lends the task's slot when it waits.

    What Python 3.14 calls `thread_inherit_context`, for the running task alone.
    """
    start = threading.Thread.start

    def start_with_task(thread: threading.Thread) -> None:
        task = current_task()
        if task is not None:

            def run() -> None:
                del thread.run  # the class's own shows again; and no cycle is left
                set_current_task(task)
                thread.run()

            thread.run = run  # type: ignore[method-assign]
        start(thread)

    threading.Thread.start = start_with_task  # type: ignore[assignment, method-assign]


class ElasticThreads:
    """Runs each piece of work at once, in a thread of its own; work must not raise.

    Parameters: `name` of the threads; `rest` is called by each that has ended its work and let go of it;
    `daemon`: whether the end of the main thread ends them.
    """

    def __init__(self, name: str, rest: Callable[[], None], *, daemon: bool = False) -> None:
        self._name = name
        self._rest = rest
        self.daemon = daemon
        self._lock = threading.Lock()
        self._idle: list[Inbox] = []

    def run(self, work: Work) -> None:
        """Run `work` in a thread that idles, the last one first, or in a new one."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            made: Inbox = queue.SimpleQueue()
            start_apart(lambda: self._loop(made, IDLE_SECONDS), self._name, daemon=self.daemon)
            inbox = made
        inbox.put(work)

    def lend_this_thread(self, ready: Callable[[], None]) -> None:
        """Let this thread be one of them, for ever: some code wants the main thread.

        `ready` is called once it is: work that follows from that finds it.
        """
        inbox: Inbox = queue.SimpleQueue()
        with self._lock:
            self._idle.append(inbox)
        ready()
        self._loop(inbox, None)

    def serve(self, inbox: Inbox) -> None:
        """Do what comes for this thread alone, until there is nothing any more."""
        while (work := inbox.get()) is not None:
            work()
            del work
            self._rest()

    def _loop(self, inbox: Inbox, idle_seconds: float | None) -> None:
        # Where a new thread has been started, work is on its way.
        work = inbox.get()
        while work is not None:
            work()
            work = None  # what it refers to must not live on while this thread idles
            self._rest()
            with self._lock:
                self._idle.append(inbox)
            work = self._wait(inbox, idle_seconds)

    def _wait(self, inbox: Inbox, idle_seconds: float | None) -> Work | None:
        try:
            return inbox.get(timeout=idle_seconds)
        except queue.Empty:
            pass
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                return None
        return inbox.get()  # `run` has just taken it from the list: work is on its way
