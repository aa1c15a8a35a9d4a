"""Threads that come into being when work needs them and stay a while for the next."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable

from fray.runtime.pool.current import current_task, set_current_task
from fray.runtime.pool.worker.reception import Inbox, Reception, Work

__all__ = ["IDLE_SECONDS", "ElasticThreads", "let_threads_know_their_task", "start_apart"]

IDLE_SECONDS = 10.0
"""How long a thread without work stays."""


def start_apart(work: Work, name: str) -> None:
    """Start a thread that is of no task, whichever task's thread starts it."""
    contextvars.Context().run(threading.Thread(target=work, name=name, daemon=True).start)


def let_threads_know_their_task() -> None:
    """Let each thread that a task starts be of that task, so that it lends the task's lane when it waits.

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

    Parameters: `name` of the threads; the `reception` at which they read between their works.
    """

    def __init__(self, name: str, reception: Reception) -> None:
        self._name = name
        self._reception = reception
        self._lock = threading.Lock()
        self._idle: list[Inbox] = []

    def run(self, work: Work) -> None:
        """Run `work` in a thread that idles, the last one first, or in a new one."""
        inbox = self._reception.own_inbox()
        if inbox is None or not inbox.shared:
            with self._lock:
                inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            made = inbox = Inbox(shared=True)
            start_apart(lambda: self._loop(made, IDLE_SECONDS), self._name)
        self._reception.give(inbox, work)

    def lend_this_thread(self, ready: Callable[[], None]) -> None:
        """Let this thread be one of them, for ever: some code wants the main thread.

        `ready` is called once it is: work that follows from that finds it.
        """
        inbox = Inbox(shared=True)
        with self._lock:
            self._idle.append(inbox)
        ready()
        self._loop(inbox, None)

    def _loop(self, inbox: Inbox, idle_seconds: float | None) -> None:
        # Where a new thread has been started, work is on its way.
        work = inbox.work.get()
        while work is not None:
            work()
            work = None  # what it refers to must not live on while this thread idles
            self._reception.rest()
            self._reception.serve(inbox, _always)
            with self._lock:
                self._idle.append(inbox)
            work = self._wait(inbox, idle_seconds)

    def _wait(self, inbox: Inbox, idle_seconds: float | None) -> Work | None:
        try:
            return inbox.work.get(timeout=idle_seconds)
        except queue.Empty:
            pass
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                return None
        return inbox.work.get()  # `run` has just taken it from the list: work is on its way


def _always() -> bool:
    # A thread that reads isn't among those that idle, so that nobody has work for it.
    return True
