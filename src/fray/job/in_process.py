"""What the engines of one process have in common: values, waiting, cancelling, actors, counts.

They differ in which thread runs a task, and when: that is left to them.
"""

from __future__ import annotations

import itertools
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from fray.errors import (
    ActorDiedError,
    ActorNotFoundError,
    FrayError,
    ObjectLostError,
    TaskCancelledError,
)
from fray.job.actors import ActorHandle
from fray.job.calls import Call, MethodCall
from fray.job.cells import Cell, Waitable, WaitableEngine
from fray.job.current import task_variables
from fray.job.engine import ContextStats, Engine
from fray.job.ledger import Ledger
from fray.job.local_actors import ActorNames, LocalActor
from fray.job.options import ActorOptions, TaskOptions
from fray.job.progress import FutureState
from fray.job.streams import ItemStream
from fray.job.tasks import Task, run_task
from fray.job.timeline import TaskRun
from fray.payload.values.exceptions import raisable
from fray.runtime.actor_life import ActorLife, find_method, set_current_life

__all__ = ["InProcessEngine"]

ENDED_ITSELF: Final = "it has ended itself"
_pickled: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""Refs and handles that were pickled, for as long as somebody holds them."""


class InProcessEngine(WaitableEngine, ABC):
    """An engine whose tasks and actors run in this process and share its memory; see `Engine`."""

    home = "this process"
    items_are_refs = False

    def __init__(self, *, workers: int) -> None:
        self.token = f"{self.kind}-{uuid.uuid4().hex[:8]}"
        self._workers_wanted = workers
        self._numbers = itertools.count(1)
        self._ledger = Ledger(self.token)
        self._names = ActorNames()
        self._actors: weakref.WeakSet[LocalActor] = weakref.WeakSet()
        self._actors_lock = threading.Lock()
        self._current: Engine = self
        """What is current in the tasks."""

    @abstractmethod
    def _start(self, task: Task, actor: LocalActor | None) -> None:
        """See to it that the task runs, or fails."""

    @abstractmethod
    def _new_stream(self, task: Task) -> ItemStream:
        """Return the stream for the items of a generator task."""

    @abstractmethod
    def _new_actor(self, actor_id: str, call: Call, options: ActorOptions) -> LocalActor:
        """Return an actor that is to be constructed."""

    @abstractmethod
    def _time_limit(self, task: Task) -> AbstractContextManager[None]:
        """Return what ends a task's result when one run of it takes too long."""

    # --- values --------------------------------------------------------------------------------------------

    def put(self, value: Any) -> Cell:
        """Keep a value, which is not copied."""
        return Cell.of(value, self._new_id())

    def take(self, ref: Any, deadline: float | None) -> Any:
        """Return the value of a ref; see `Engine`."""
        return ref._entry.take(deadline)

    next_item = take

    def prefetch(self, entries: Sequence[Any], deadline: float | None) -> None:
        """Do nothing: the first failure of several values is raised at once."""

    def state_of(self, entry: Any, *, whole: bool) -> FutureState:
        """Return how far an entry is; see `Engine`."""
        settled = entry.ended if whole and isinstance(entry, ItemStream) else entry.ready
        if not settled:
            return "pending"
        return "failed" if entry.error is not None else "ready"

    def release(self, entry: Waitable | None) -> None:
        """Let a generator end that nobody reads."""
        if isinstance(entry, ItemStream):
            entry.abandon()

    # --- tasks and actors ----------------------------------------------------------------------------------

    def submit(self, call: Call, options: TaskOptions, *, streaming: bool) -> Waitable:
        """Start a task; see `Engine`."""
        return self._submit(call, options, options.name or call.name, None, streaming=streaming)

    def cancel(self, entry: Any, *, force: bool) -> None:  # noqa: ARG002 - threads can't be ended
        """Let a task yield `TaskCancelledError`; code that runs already goes on, its result is dropped."""
        task = self._ledger.find(entry.id)
        if task is not None:
            self._end(task, TaskCancelledError(task.name))

    def create_actor(self, call: Call, options: ActorOptions) -> LocalActor:
        """Construct an actor here and now, or find it by its name; see `Engine`."""
        self._check_open()
        if options.name is None:
            return self._construct(call, options)
        create = partial(self._construct, call, options)
        return self._names.claim(options.name, create, share=options.get_if_exists)

    def find_actor(self, name: str) -> LocalActor:
        """Return the actor that has a name; see `Engine`."""
        self._check_open()
        return self._names.find(name)

    def call_actor(self, actor: LocalActor, call: MethodCall, *, streaming: bool) -> Waitable:
        """Call a method of an actor; see `Engine`."""
        if actor.dead:
            died = Cell(self._new_id())
            died.fail(_build_died(actor))
            return died
        bound = Call(find_method(actor.instance, call.method), call.args, call.kwargs)
        # Never tried again: the code of a call that was lost with its actor's failure runs on here.
        how = TaskOptions(timeout=call.options.timeout)
        return self._submit(bound, how, f"{actor.label}.{call.method}", actor, streaming=streaming)

    def kill(self, actor: LocalActor) -> None:
        """End an actor; code of it that runs already goes on, its result is dropped."""
        self._end_actor(actor, "it was killed")

    def _end_actor(self, actor: LocalActor, reason: str) -> None:
        """End an actor for good, with its calls; its name is free."""
        if actor.dead:
            return
        actor.end(reason)
        self._names.forget(actor)
        self._end_calls(actor, _build_died(actor))

    def _end_calls(self, actor: LocalActor, error: FrayError) -> None:
        for task in self._ledger.unfinished():
            if task.start_coroutine == actor.start_coroutine:
                self._end(task, error)

    # --- pickling ------------------------------------------------------------------------------------------

    def reduce_ref(self, ref: Any) -> tuple[Any, ...]:
        """Let the ref come back as itself in this process; elsewhere there is no value to read."""
        _pickled[ref._entry.id] = ref
        return _revive_ref, (ref._entry.id,)

    def reduce_handle(self, handle: Any) -> tuple[Any, ...]:
        """Let the handle come back as itself in this process; elsewhere there is no actor to call."""
        _pickled[handle._actor.id] = handle
        return _revive_handle, (handle._actor.id,)

    # --- the engine itself ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it was shut down."""
        return self._ledger.closed

    def stats(self) -> ContextStats:
        """Return what it has and did."""
        counts = self._ledger.counts()
        with self._actors_lock:
            actors = sum(not actor.dead for actor in self._actors)
        return ContextStats(workers=self._workers_wanted, actors=actors, **vars(counts))

    def runs(self) -> list[TaskRun]:
        """Return the last runs; see `Engine`. Retries of one task count as one run."""
        return self._ledger.runs()

    def count_running(self) -> int:
        """Return how many tasks run; see `Engine`."""
        return self._ledger.counts().running

    def shutdown(self) -> None:
        """End the engine; values that are there can still be got."""
        left = self._ledger.close()
        with self._actors_lock:
            actors = list(self._actors)
        for actor in actors:
            actor.end()
        for task in left:
            ended = ActorDiedError(task.actor, "its context was shut down") if task.actor else None
            self._end(task, ended or TaskCancelledError(task.name))
        self._names.clear()

    def _new_id(self) -> str:
        return f"{self.token}-{next(self._numbers)}"

    def _new_cell(self, task_id: str) -> Cell:
        """Return the cell for the result of a task."""
        return Cell(task_id)

    def _submit(
        self, call: Call, options: TaskOptions, name: str, actor: LocalActor | None, *, streaming: bool
    ) -> Waitable:
        task_id = self._new_id()
        task = Task(task_id, name, call, options, task_variables(self._current), self._new_cell(task_id))
        if actor is not None:
            task.actor = actor.label
            task.start_coroutine = actor.start_coroutine
        if streaming:
            task.result = self._new_stream(task)
        self._ledger.enter(task)
        self._start(task, actor)
        return task.result

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
                task.result.fail(raisable(error, task.name))
        return error

    def _end(self, task: Task, error: FrayError) -> None:
        """End a task from outside."""
        if self._ledger.leave(task, error):
            task.result.fail(error)
        task.interrupt()
        if task.slot is not None:
            task.slot.give_up()

    def _construct(self, call: Call, options: ActorOptions) -> LocalActor:
        actor = self._new_actor(self._new_id(), call, options)
        try:
            goes_on = self._begin(actor)
        except BaseException as error:
            actor.end(_describe_failure("its constructor failed", error))
            raise
        with self._actors_lock:
            self._actors.add(actor)
        if not goes_on:
            self._end_actor(actor, ENDED_ITSELF)
        return actor

    def _begin(self, actor: LocalActor) -> bool:
        """Construct an actor; return whether it goes on, which its constructor may not want.

        Raises what the constructor raises, or says that it fails with.
        """
        this, call = weakref.ref(actor), actor.call  # threads of the actor may have its life for longer

        def find_handle() -> ActorHandle[Any] | None:
            living = this()
            return ActorHandle(self, living) if living is not None and self._current is self else None

        life: ActorLife = ActorLife(
            lambda error: self._end_life(this(), life, error), find_handle, actor.label
        )

        def make(*args: Any, **kwargs: Any) -> Any:
            set_current_life(life)
            return call.function(*args, **kwargs)

        made = Call(make, call.args, call.kwargs)
        task = Task(actor.id, call.name, made, TaskOptions(), task_variables(self._current), Cell())

        def construct() -> Any:
            instance, error = run_task(task, self._time_limit)
            if error is not None:
                raise raisable(error, call.name)
            return instance

        early = actor.construct(life, construct)
        if early is not None and early[0] is not None:
            raise early[0]
        return early is None

    def _end_life(self, actor: LocalActor | None, life: ActorLife, error: BaseException | None) -> None:
        """End one incarnation of an actor; after an error it is constructed anew here, if it may be."""
        if actor is None or not actor.leave(life, error):
            return
        life.ask_to_end()
        if error is None:
            self._end_actor(actor, ENDED_ITSELF)
            return
        reason = _describe_failure("it failed", error)
        if 0 <= actor.max_restarts <= actor.restarts:
            self._end_actor(actor, reason)
            return
        actor.restarts += 1
        self._end_calls(actor, ActorDiedError(actor.label, f"{reason}, and it was started again"))
        try:
            if not self._begin(actor):
                self._end_actor(actor, ENDED_ITSELF)
        except Exception as failed:  # noqa: BLE001 - its callers learn of it
            self._end_actor(actor, _describe_failure("its constructor failed", failed))


def _describe_failure(what: str, error: BaseException) -> str:
    return f"{what}: {type(error).__name__}: {error}"


def _build_died(actor: LocalActor) -> ActorDiedError:
    return ActorDiedError(actor.label, actor.died_of)


def _revive_ref(identity: str) -> Any:
    ref = _pickled.get(identity)
    if ref is None:
        reason = "its ref was pickled by another process, or nobody here holds it any more"
        raise ObjectLostError(identity, reason)
    return ref


def _revive_handle(identity: str) -> Any:
    handle = _pickled.get(identity)
    if handle is None:
        raise ActorNotFoundError(identity)
    return handle
