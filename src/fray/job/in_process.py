"""What the contexts of one process have in common: values, waiting, cancelling, actors, counts.

They differ in which thread runs a task, and when: that is left to them.
"""

from __future__ import annotations

import itertools
import threading
import uuid
import weakref
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar, cast

from fray.errors import (
    ActorDiedError,
    FrayError,
    GetTimeoutError,
    PoolClosedError,
    TaskCancelledError,
)
from fray.job.actors import ActorHandle
from fray.job.calls import Call, is_generator_function
from fray.job.cells import LATE, Cell, Waitable, await_some, deadline_after
from fray.job.checks import check_count
from fray.job.context import ContextStats, JobContext
from fray.job.current import task_variables
from fray.job.ledger import Ledger
from fray.job.local_actors import ActorNames, LocalActor, LocalHandle
from fray.job.local_refs import LocalGenerator, LocalRef, find_pickled, local, remember_pickled
from fray.job.options import ActorOptions, TaskOptions
from fray.job.progress import FutureState
from fray.job.progress_board import watching
from fray.job.refs import ObjectRef
from fray.job.streams import Stream
from fray.job.tasks import Task, run_task
from fray.job.timeline import TaskRun
from fray.job.waiting import find_ready, take_out

__all__ = ["InProcessContext"]

T = TypeVar("T")

_READY = Cell.of(None)
"""Stands for a value among futures: it is there."""


class InProcessContext(JobContext):
    """A context whose tasks and actors run in this process and share its memory."""

    def __init__(self, *, workers: int) -> None:
        self._id = f"{type(self).__name__}-{uuid.uuid4().hex[:8]}"
        self._workers_wanted = workers
        self._numbers = itertools.count(1)
        self._ledger = Ledger(self._id)
        self._names = ActorNames()
        self._actors: weakref.WeakSet[LocalActor] = weakref.WeakSet()
        self._actors_lock = threading.Lock()

    @abstractmethod
    def _start(self, task: Task, actor: LocalActor | None) -> None:
        """See to it that the task runs, or fails."""

    @abstractmethod
    def _new_stream(self, task: Task) -> Stream:
        """Return the stream for the items of a generator task."""

    @abstractmethod
    def _new_actor(self, actor_id: str, instance: Any, options: ActorOptions) -> LocalActor:
        """Return the actor of an instance."""

    @abstractmethod
    def _time_limit(self, task: Task) -> AbstractContextManager[None]:
        """Return what ends a task's result when one run of it takes too long."""

    @property
    def closed(self) -> bool:
        """Whether the context was shut down."""
        return self._ledger.closed

    def put(self, obj: Any) -> LocalRef:
        """Keep a value, which is not copied; return its ref."""
        return LocalRef(self._new_id(), Cell.of(obj))

    def get(self, ref: Any, *, timeout: float | None = None) -> Any:
        """Return the value of a ref or of each in a list; see `JobContext.get`."""
        if isinstance(ref, ObjectRef):
            return _take(ref, deadline_after(timeout), timeout)
        if isinstance(ref, list) and any(isinstance(item, ObjectRef) for item in ref):
            deadline = deadline_after(timeout)
            with watching("get", self, ref):
                return [
                    _take(item, deadline, timeout) if isinstance(item, ObjectRef) else item for item in ref
                ]
        return ref

    def wait(
        self, futures: Sequence[T], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[T], list[T]]:
        """Block until so many futures are ready; see `JobContext.wait`."""
        check_count("num_returns", num_returns, 1)
        futures = list(futures)
        count = min(num_returns, len(futures))
        ready, pending = _look(futures, count)
        if len(ready) < count:
            with watching("wait", self, futures, count):
                deadline, in_time = deadline_after(timeout), True
                while len(ready) < count and in_time:
                    in_time = await_some(pending, count - len(ready), deadline)
                    # Anew: another reader may have taken the item that made a stream ready.
                    ready, pending = _look(futures, count)
        return take_out(futures, ready)

    def submit(self, call: Call, options: TaskOptions) -> ObjectRef:
        """Start a task; see `JobContext.run`."""
        return self._submit(call, options, options.name or call.name, None)

    def start_actor(self, call: Call, options: ActorOptions) -> ActorHandle:
        """Construct an actor here and now, or find it by its name; see `JobContext.create_actor`."""
        if self.closed:
            raise PoolClosedError(self._id)
        if options.name is None:
            return self._construct(call, options)
        create = partial(self._construct, call, options)
        return self._names.claim(options.name, create, share=options.get_if_exists)

    def call_actor(
        self, actor: LocalActor, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> ObjectRef:
        """Call a method of an actor; return the ref of its result at once."""
        call = Call(getattr(actor.instance, method), args, kwargs)
        if actor.dead:
            died = Cell()
            died.fail(_actor_died(actor.name))
            return LocalRef(self._new_id(), died)
        return self._submit(call, TaskOptions(), f"{actor.name}.{method}", actor)

    def cancel(self, ref: ObjectRef, *, force: bool = False) -> None:  # noqa: ARG002 - threads can't be ended
        """Let a task yield `TaskCancelledError`; code that runs already goes on, and nobody hears of it."""
        task = self._ledger.find(ref.id)
        if task is not None:
            self._end(task, TaskCancelledError(task.name))

    def stats(self) -> ContextStats:
        """Return what the context has and did."""
        counts = self._ledger.counts()
        with self._actors_lock:
            actors = sum(not actor.dead for actor in self._actors)
        return ContextStats(workers=self._workers_wanted, actors=actors, **vars(counts))

    def runs(self) -> list[TaskRun]:
        """Return the last runs; see `JobContext`. Retries of one task count as one run."""
        return self._ledger.runs()

    def state_of(self, future: Any, *, whole: bool) -> FutureState:
        """Return how far a future is; see `JobContext`."""
        if not isinstance(future, LocalRef | LocalGenerator):
            return "ready"
        waitable = cast("Cell | Stream", future.waitable)
        settled = waitable.ended if whole and isinstance(waitable, Stream) else waitable.ready
        if not settled:
            return "pending"
        return "failed" if waitable.error is not None else "ready"

    def count_running(self) -> int:
        """Return how many tasks run; see `JobContext`."""
        return self._ledger.counts().running

    def shutdown(self) -> None:
        """End the context; values that are there can still be got."""
        left = self._ledger.close()
        with self._actors_lock:
            actors = list(self._actors)
        for actor in actors:
            actor.end()
        for task in left:
            self._end(task, _actor_died(task.actor) if task.actor else TaskCancelledError(task.name))
        self._names.clear()

    def __repr__(self) -> str:
        return f"<{self._id}>"

    def __reduce__(self) -> tuple[Any, ...]:
        remember_pickled(self._id, self)
        return _revive, (self._id,)

    def _new_id(self) -> str:
        return f"{self._id}-{next(self._numbers)}"

    def _submit(self, call: Call, options: TaskOptions, name: str, actor: LocalActor | None) -> ObjectRef:
        task = Task(self._new_id(), name, call, options, task_variables(self), Cell())
        if actor is not None:
            task.actor = actor.name
            task.start_coroutine = actor.start_coroutine
        ref: LocalRef | LocalGenerator
        if is_generator_function(call.function):
            stream = self._new_stream(task)
            task.result = stream
            ref = LocalGenerator(task.id, stream)
        else:
            ref = LocalRef(task.id, cast("Cell", task.result))
        self._ledger.enter(task)
        self._start(task, actor)
        return ref

    def _run(self, task: Task) -> BaseException | None:
        """Run a task in this thread, unless it has ended before; return what it raised."""
        if not self._ledger.start(task):
            return None
        value, error = run_task(task, self._time_limit)
        # Counted before anybody hears of it, so that `stats` never lags behind `get`.
        if self._ledger.leave(task, error):
            if error is None:
                task.result.succeed(value)
            else:
                task.result.fail(error)
        return error

    def _end(self, task: Task, error: FrayError) -> None:
        """End a task from outside."""
        if self._ledger.leave(task, error):
            task.result.fail(error)
        task.interrupt()
        if task.slot is not None:
            task.slot.give_up()

    def _construct(self, call: Call, options: ActorOptions) -> ActorHandle:
        actor_id = self._new_id()
        task = Task(actor_id, call.name, call, TaskOptions(), task_variables(self), Cell())
        instance, error = run_task(task, self._time_limit)
        if error is not None:
            raise error
        actor = self._new_actor(actor_id, instance, options)
        with self._actors_lock:
            self._actors.add(actor)
        return LocalHandle(self, actor)


def _take(ref: ObjectRef, deadline: float | None, timeout: float | None) -> Any:
    value = local(ref).take(deadline)
    if value is LATE:
        raise GetTimeoutError(repr(ref), cast("float", timeout))
    return value


def _look(futures: Sequence[object], count: int) -> tuple[list[int], list[Waitable]]:
    return find_ready(
        (future.waitable if type(future) is LocalRef else _waitable(future) for future in futures), count
    )


def _waitable(future: object) -> Waitable:
    return local(future).waitable if isinstance(future, ObjectRef) else _READY


def _actor_died(name: str) -> ActorDiedError:
    return ActorDiedError(name, "its context was shut down")


def _revive(context_id: str) -> JobContext:
    context = find_pickled(context_id)
    if context is None:
        from fray.job.defaults import get_job_context  # noqa: PLC0415 - which imports this module

        return get_job_context()
    return cast("JobContext", context)
