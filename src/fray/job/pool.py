"""Tasks and actors in worker processes: the same context in the driver, which owns the pool, and in workers.

Here is the context that users see; its refs and handles are in `pool_refs`. Where processes come from is in
`fray.runtime.pool`; what differs from the contexts of one process stands in docs/contexts.md.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from fray.errors import (
    ActorDiedError,
    GetTimeoutError,
    InvalidOptionError,
    ObjectLostError,
    TaskCancelledError,
)
from fray.job.actors import ActorHandle
from fray.job.calls import Call, is_generator_function
from fray.job.cells import deadline_after
from fray.job.checks import check_count, check_resources
from fray.job.context import ContextStats, JobContext
from fray.job.current import use
from fray.job.defaults import attach_process, get_job_context
from fray.job.options import ActorOptions, TaskOptions
from fray.job.pool_options import actor_profile, actor_shape, retried_exceptions, task_profile, task_shape
from fray.job.pool_owner import LocalOwner, PoolOwner
from fray.job.pool_refs import (
    ActorMethods,
    PoolGenerator,
    PoolHandle,
    PoolRef,
    find_context,
    only_of,
    register_context,
    time_left,
)
from fray.job.progress import FutureState
from fray.job.progress_board import turn_off, watching
from fray.job.refs import ObjectRef
from fray.job.timeline import TaskRun
from fray.job.waiting import find_ready, take_out
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.client.waiting import Entry
from fray.runtime.pool.current import current_task, uninterrupted
from fray.runtime.pool.local_pool import LocalPool
from fray.runtime.pool.messages import ActorSpec, Failed, Inline, Stored, TaskSpec
from fray.runtime.pool.objects.calls import EncodedCall, encode_call
from fray.runtime.pool.objects.flat_format import Encoded
from fray.runtime.pool.objects.functions import encode_function
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.objects.values import decode, encode
from fray.runtime.pool.worker.failures import build_failure

__all__ = ["PoolContext", "PoolSession", "attach", "start_pool"]

T = TypeVar("T")

_READY = Entry(0, Inline(b""))
"""Stands for a value among futures: it is there."""

METHOD_ITEMS = 2**62
"""How far a generator method is ahead of its reader: its actor is busy until it ends, so that a bound could
block the very call that its reader waits for."""


@dataclass(frozen=True)
class PoolSession:
    """One process's part of a pool: what `PoolContext` works with."""

    token: str = field(repr=False)
    """The pool's name, unique: handles say by it which pool they are of."""
    client: PoolClient
    objects: ObjectReader


class PoolContext(JobContext):
    """Runs tasks and actors in worker processes.

    Parameters: the `session` of this process; the `owner` where the pool belongs to this process, so that
    `shutdown` ends it. `create_job_ctx("pool")` makes one.
    """

    def __init__(self, session: PoolSession, owner: PoolOwner | None = None) -> None:
        self.token = session.token
        self.client = session.client
        self._objects = session.objects
        self._owner = owner
        self._shut_down = False
        if owner is not None:
            # At the interpreter's end the pool itself goes, and nobody has forgotten anything.
            weakref.finalize(self, owner.abandon).atexit = False
        register_context(self)

    # --- values --------------------------------------------------------------------------------------------

    @uninterrupted
    def put(self, obj: Any) -> ObjectRef:
        """See `JobContext`. The value is copied: later changes to `obj` aren't seen."""
        with only_of(self):
            encoded = encode(obj)
        return PoolRef(self, self._keep(encoded), "")

    def _keep(self, encoded: Encoded) -> Entry:
        object_id = self.client.new_id()
        if encoded.inline:
            return self.client.put(object_id, Inline(encoded.to_bytes(), encoded.contained))
        size = self._objects.write(object_id, encoded)
        return self.client.put(object_id, Stored(self._objects.host, size, encoded.contained))

    @uninterrupted
    def get(self, ref: Any, *, timeout: float | None = None) -> Any:
        """See `JobContext`. Arrays in a value are read-only where they are shared with other processes."""
        if isinstance(ref, ObjectRef):
            return self._get(self._own(ref), deadline_after(timeout), timeout)
        if not isinstance(ref, list) or not any(isinstance(part, ObjectRef) for part in ref):
            return ref
        with watching("get", self, ref):
            return self._get_all(ref, timeout)

    def _get_all(self, parts: list[Any], timeout: float | None) -> list[Any]:
        deadline = deadline_after(timeout)
        own = [self._own(part) for part in parts if isinstance(part, ObjectRef)]
        pending = [part._entry for part in own if type(part) is PoolRef and not part._entry.ready]
        if pending and not self.client.wait(pending, len(pending), timeout):
            late = next(part for part in own if type(part) is PoolRef and not part._entry.ready)
            raise GetTimeoutError(repr(late), timeout or 0.0)
        return [self._get(part, deadline, timeout) if isinstance(part, PoolRef) else part for part in parts]

    def _own(self, ref: ObjectRef) -> PoolRef:
        if isinstance(ref, PoolRef) and ref.belongs_to(self):
            return ref
        raise ObjectLostError(ref.id, "it belongs to another context")

    def _get(self, ref: PoolRef, deadline: float | None, timeout: float | None) -> Any:
        """Return a value by the deadline; `timeout` is what the caller gave, of which it's the end."""
        if isinstance(ref, PoolGenerator):
            try:
                ref.gather(time_left(deadline))
            except GetTimeoutError as error:
                error.seconds = timeout or 0.0
                raise
            return [self._get(item, deadline, timeout) for item in ref.take_rest(None)]
        entry = ref._entry
        while True:
            try:
                outcome = entry.outcome or self.client.await_outcome(entry, time_left(deadline), repr(ref))
            except GetTimeoutError as error:
                error.seconds = timeout or 0.0  # the wait itself knew only what was left of it
                raise
            if type(outcome) is Inline:
                return decode(outcome.data)
            if type(outcome) is Failed:
                raise self.failure(ref, outcome)
            stored = cast("Stored", outcome)
            data = self._objects.read(entry.id, stored.host)
            if isinstance(data, str):
                self.client.reject(entry, stored, data)
            else:
                return decode(data)

    def failure(self, ref: PoolRef, failed: Failed) -> BaseException:
        """Return what to raise for a ref whose outcome is `failed`."""
        if failed is not self.client.end or not self._shut_down:
            return build_failure(failed)
        if ref.actor:
            return ActorDiedError(ref.actor, "its context was shut down")
        return TaskCancelledError(ref.name)

    @uninterrupted
    def wait(
        self, futures: Sequence[T], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[T], list[T]]:
        """See `JobContext`. Values aren't brought here."""
        check_count("num_returns", num_returns, 1)
        futures = list(futures)
        count = min(num_returns, len(futures))
        ready, pending = self._look(futures, count)
        if len(ready) < count:
            with watching("wait", self, futures, count):
                deadline, in_time = deadline_after(timeout), True
                while len(ready) < count and in_time:
                    # Of several refs to one object all are ready at once: more needn't be waited for.
                    missing = count - len(ready) if len(set(pending)) == len(pending) else 1
                    in_time = self.client.wait(pending, missing, time_left(deadline))
                    ready, pending = self._look(futures, count)
        return take_out(futures, ready)

    def _look(self, futures: Sequence[object], count: int) -> tuple[list[int], list[Entry]]:
        return find_ready((self._entry_of(future) for future in futures), count)

    def _entry_of(self, future: object) -> Entry:
        if type(future) is PoolRef and future._context is self:
            return future._entry
        return self._own(future)._entry if isinstance(future, ObjectRef) else _READY

    # --- tasks ---------------------------------------------------------------------------------------------

    @uninterrupted
    def submit(self, call: Call, options: TaskOptions) -> ObjectRef:
        """See `JobContext`. Blocks until a generator among the arguments has ended, and where too much waits.

        Too much: the arguments of the driver's tasks that haven't ended take half a gigabyte.
        """
        name = options.name or call.name
        streaming = is_generator_function(call.function)
        retry_on, retries_on = retried_exceptions(options)
        kept: list[Entry] = []
        with only_of(self):
            function = encode_function(call.function)
            encoded = self._encode_call(call.args, call.kwargs, kept)
        parent = current_task()
        spec = TaskSpec(
            id=self.client.new_id(),
            function=function.id,
            args=encoded.args,
            name=name,
            parent=parent.id if parent is not None else 0,
            deps=encoded.deps,
            holds=(*encoded.holds, *function.contained) if function.contained else encoded.holds,
            shape=task_shape(options),
            profile=task_profile(options),
            # A generator that raised has given items already, which a further run would give again.
            retries=options.retries,
            retry_exceptions=0 if streaming else retries_on,
            retry_on=retry_on,
            timeout=options.timeout or 0.0,
            streaming=streaming,
        )
        entry = self.client.submit(spec, function.blob)
        self._drop(kept)
        return PoolGenerator(self, entry, name) if streaming else PoolRef(self, entry, name)

    def _encode_call(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], kept: list[Entry]
    ) -> EncodedCall:
        """Encode arguments; `kept` gets the entries to drop once the task is submitted."""

        def put(encoded: Encoded) -> int:
            kept.append(self._keep(encoded))
            return kept[-1].id

        # By exact type: nothing derives from it, and a generator expression costs more than the encoding.
        if PoolGenerator in map(type, (*args, *kwargs.values())):
            args = tuple(self._listed(part, kept) for part in args)
            kwargs = {name: self._listed(part, kept) for name, part in kwargs.items()}
        return encode_call(args, dict(kwargs), put=put)

    def _listed(self, part: Any, kept: list[Entry]) -> Any:
        """Return the ref of a generator's list of items; of one that failed, the generator, which fails."""
        if not isinstance(part, PoolGenerator) or not part.gather(None):
            return part
        items = tuple(part.take_rest(None))
        listed = cast("PoolRef", self.submit(Call(_as_list, items, {}), TaskOptions(name=part.name)))
        kept.append(self.client.refer(listed.object_id))
        return listed

    def _drop(self, kept: list[Entry]) -> None:
        for entry in kept:
            self.client.drop(entry)

    @uninterrupted
    def cancel(self, ref: ObjectRef, *, force: bool = False) -> None:
        """See `JobContext`. With `force`, a task that doesn't end is ended with its worker."""
        self.client.cancel(self._own(ref)._entry, force=force)

    # --- actors --------------------------------------------------------------------------------------------

    @uninterrupted
    def start_actor(self, call: Call, options: ActorOptions) -> ActorHandle:
        """See `JobContext`. Returns before the constructor has: what it raises, calls raise."""
        kept: list[Entry] = []
        with only_of(self):
            function = encode_function(call.function)
            encoded = self._encode_call(call.args, call.kwargs, kept)
        actor_id = self.client.new_id()
        methods = ActorMethods.of(call.function, call.name, options.name)
        spec = ActorSpec(
            id=actor_id,
            function=function.id,
            args=encoded.args,
            name=options.name or "",
            class_name=call.name,
            deps=encoded.deps,
            holds=(*encoded.holds, *function.contained),
            shape=actor_shape(options),
            profile=actor_profile(options, actor_id),
            max_concurrency=options.max_concurrency,
            max_restarts=options.max_restarts,
            max_task_retries=options.max_task_retries,
            get_if_exists=options.get_if_exists,
            methods=methods.encode() if options.name else b"",
        )
        created = self.client.create_actor(spec, function.blob)
        self._drop(kept)
        if isinstance(created, Failed):
            raise build_failure(created)
        entry, found = created
        return PoolHandle(self, entry, ActorMethods.decode(found) if found else methods)

    @uninterrupted
    def call_method(
        self, handle: PoolHandle, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> ObjectRef:
        """Call a method of an actor; return the ref of its result."""
        label = handle._methods.label
        name = f"{label}.{method}"
        if self.client.end is not None:
            return PoolRef(self, self.client.fail(self.client.new_id()), name, label)
        kept: list[Entry] = []
        with only_of(self):
            encoded = self._encode_call(args, kwargs, kept)
        parent = current_task()
        streaming = method in handle._methods.generators
        spec = TaskSpec(
            id=self.client.new_id(),
            function=b"",
            args=encoded.args,
            name=name,
            parent=parent.id if parent is not None else 0,
            deps=encoded.deps,
            holds=encoded.holds,
            shape=(),
            streaming=streaming,
            buffered=METHOD_ITEMS,
            actor=handle._entry.id,
            method=method,
        )
        entry = self.client.submit(spec, b"")
        self._drop(kept)
        kind = PoolGenerator if streaming else PoolRef
        return kind(self, entry, name, label)

    # --- the context itself --------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the pool has ended."""
        return self.client.end is not None

    def stats(self) -> ContextStats:
        """See `JobContext`; a pool knows more (`PoolContextStats`).

        Raises `InvalidOptionError` in a worker, since the counts are the driver's, and `PoolClosedError`.
        """
        return self._owner_for("stats()").stats()

    @property
    def metrics_address(self) -> str:
        """The path of the unix socket that shows the pool's counts, as Prometheus text over HTTP.

        Raises `InvalidOptionError` in a worker: the socket is the driver's.
        """
        return self._owner_for("metrics_address").metrics_address

    def runs(self) -> list[TaskRun]:
        """See `JobContext`. Raises `InvalidOptionError` in a worker, and `PoolClosedError`."""
        return self._owner_for("runs()").runs()

    def state_of(self, future: Any, *, whole: bool) -> FutureState:
        """See `JobContext`."""
        if not isinstance(future, PoolRef):
            return "ready"
        entry = future._entry
        outcome = entry.outcome
        if outcome is None:
            return "pending" if whole or not entry.ready else "ready"
        return "failed" if type(outcome) is Failed else "ready"

    def count_running(self) -> int:
        """See `JobContext`. Raises `InvalidOptionError` in a worker, and `PoolClosedError`."""
        return self._owner_for("count_running()").count_running()

    def _owner_for(self, what: str) -> PoolOwner:
        if self._owner is None:
            raise InvalidOptionError(what, "called in a worker", "a call in the process that made the pool")
        return self._owner

    def shutdown(self) -> None:
        """See `JobContext`. In a worker it does nothing: the pool is the driver's."""
        if self._owner is not None:
            self._shut_down = True
            self._owner.stop()

    def __repr__(self) -> str:
        return f"<PoolContext-{self.token[:8]}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _read_context, (self.token,)


def _as_list(*items: Any) -> list[Any]:
    return list(items)


def _read_context(token: str) -> JobContext:
    context = find_context(token)
    return cast("PoolContext", context) if context is not None else get_job_context()


def attach(token: str, client: PoolClient, objects: ObjectReader) -> None:
    """Make the pool's context that of this process: what each worker does before its first task."""
    turn_off()
    context = PoolContext(PoolSession(token, client, objects))
    attach_process(context)
    use(context)


def start_pool(
    max_workers: int | None = None,
    *,
    resources: Mapping[str, float] | None = None,
    memory: int | None = None,
) -> PoolContext:
    """Start a pool of processes on this machine; return its context, which ends it with `shutdown`.

    `max_workers` counts processes (None: one for each CPU); `resources` is what there is besides, by name;
    `memory` is for objects, in bytes (None: 30 % of the machine's).

    Raises `InvalidOptionError` for fewer than one worker, `StoreDirectoryError` where objects can't be kept.
    """
    workers = os.cpu_count() or 1 if max_workers is None else check_count("max_workers", max_workers, 1)
    check_resources(resources)
    pool = LocalPool(
        workers,
        resources=resources,
        store_limit=memory,
        attach=f"{__name__}:{attach.__name__}",
        environ=os.environ,  # noqa: TID251 - the entry of the pool
    )
    session = PoolSession(pool.token, pool.client, pool.objects)
    return PoolContext(session, LocalOwner(pool))
