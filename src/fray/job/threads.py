"""An engine that runs tasks in threads of this process: the default on a laptop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial

from fray.errors import PoolClosedError, TaskCancelledError, TaskTimeoutError
from fray.job.calls import Call
from fray.job.cells import Waitable, when_ready
from fray.job.checks import check_count
from fray.job.context import JobContext
from fray.job.in_process import InProcessEngine
from fray.job.local_actors import LocalActor
from fray.job.options import ActorOptions
from fray.job.refs import ObjectRef
from fray.job.streams import BufferedStream
from fray.job.tasks import Task
from fray.job.workers import ThreadWorkers, current_slot, know_slot
from fray.runtime.container import available_cpus

__all__ = ["ThreadContext", "ThreadEngine"]

STREAM_ITEMS = 64
"""Items of a generator task that may wait for a reader; then the generator pauses and lends its slot."""


class ThreadEngine(InProcessEngine):
    """Runs up to `max_workers` tasks at once (None: as many as there are CPUs), each actor beside them.

    A task that waits for another lends its place, so nested tasks never deadlock. A generator task runs
    ahead of its reader by a bounded number of items; a generator method of an actor by any number, since
    the actor's other calls wait for its end.
    """

    kind = "threadpool"

    def __init__(self, max_workers: int | None = None) -> None:
        workers = available_cpus() if max_workers is None else check_count("max_workers", max_workers, 1)
        super().__init__(workers=workers)
        self._workers = ThreadWorkers(workers, name=self.token)

    def shutdown(self) -> None:
        """End the engine; code that runs goes on, and nobody hears of it."""
        super().shutdown()
        self._workers.close()

    def _start(self, task: Task, actor: LocalActor | None) -> None:
        if actor is not None:
            if task.options.timeout is not None:
                task.timer = self._start_timer(task, task.options.timeout)
            # Its arguments are waited for in its turn: a later call must not overtake it.
            self._enqueue(task, actor.workers or self._workers)
            return
        call = task.call
        refs = [item for item in (*call.args, *call.kwargs.values()) if type(item) is ObjectRef]
        # Refs of other engines are waited for in the thread.
        awaited = [ref._entry for ref in refs if isinstance(ref._entry, Waitable)]
        when_ready(awaited, partial(self._enqueue, task, self._workers))

    def _enqueue(self, task: Task, workers: ThreadWorkers) -> None:
        try:
            workers.submit(partial(self._run_in_thread, task))
        except PoolClosedError:
            self._end(task, TaskCancelledError(task.name))

    def _run_in_thread(self, task: Task) -> None:
        task.slot = current_slot()
        task.variables.run(know_slot, task.slot)
        self._run(task)

    def _new_stream(self, task: Task) -> BufferedStream:
        return BufferedStream(STREAM_ITEMS if task.actor is None else None, task.id)

    def _new_actor(self, actor_id: str, call: Call, options: ActorOptions) -> LocalActor:
        return LocalActor(actor_id, call, options, own_threads=True)

    @contextlib.contextmanager
    def _time_limit(self, task: Task) -> Iterator[None]:
        limit = task.options.timeout
        if limit is None:
            yield
            return
        timer, due = task.timer or self._start_timer(task, limit)
        try:
            yield
        finally:
            timer.cancel()
        if time.monotonic() > due:  # where the timer's thread hasn't had its turn yet
            raise TaskTimeoutError(task.name, limit)

    def _start_timer(self, task: Task, limit: float) -> tuple[threading.Timer, float]:
        timer = threading.Timer(limit, self._end, args=(task, TaskTimeoutError(task.name, limit)))
        timer.daemon = True
        due = time.monotonic() + limit
        timer.start()
        return timer, due


def ThreadContext(max_workers: int | None = None) -> JobContext:  # noqa: N802 - it was a class
    """Return a new context that runs up to `max_workers` tasks at once in threads of this process.

    None: as many as there are CPUs.
    """
    return JobContext(ThreadEngine(max_workers))
