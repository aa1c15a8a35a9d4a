"""An engine that runs each task at once in the caller's thread: for debugging, and for tests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from fray.errors import TaskTimeoutError
from fray.job.calls import Call
from fray.job.context import JobContext
from fray.job.in_process import InProcessEngine
from fray.job.local_actors import LocalActor
from fray.job.options import ActorOptions
from fray.job.streams import LazyStream
from fray.job.tasks import Task, make_generator

__all__ = ["InlineEngine", "SyncContext"]


class InlineEngine(InProcessEngine):
    """Runs a task within `run`, an actor's method within its call, and a generator item by item on `next`.

    An exception of a task comes from `get`, as everywhere; only KeyboardInterrupt comes at once.
    """

    kind = "sync"

    def __init__(self) -> None:
        super().__init__(workers=1)

    def _start(self, task: Task, actor: LocalActor | None) -> None:
        if isinstance(task.result, LazyStream):
            return
        with actor.call_lock if actor is not None else contextlib.nullcontext():
            error = self._run(task)
        if isinstance(error, KeyboardInterrupt):
            raise error

    def _new_stream(self, task: Task) -> LazyStream:
        def start() -> Any:
            self._ledger.start(task)
            return make_generator(task)

        return LazyStream(start, task.variables, partial(self._ledger.leave, task), task.name, task.id)

    def _new_actor(self, actor_id: str, call: Call, options: ActorOptions) -> LocalActor:
        return LocalActor(actor_id, call, options, own_threads=False)

    @contextlib.contextmanager
    def _time_limit(self, task: Task) -> Iterator[None]:
        # The caller's thread can't be interrupted: a task that took too long is judged when it is over.
        started = time.monotonic()
        yield
        limit = task.options.timeout
        if limit is not None and time.monotonic() - started > limit:
            raise TaskTimeoutError(task.name, limit)


def SyncContext() -> JobContext:  # noqa: N802 - it was a class
    """Return a new context that runs each task at once in the caller's thread."""
    return JobContext(InlineEngine())
