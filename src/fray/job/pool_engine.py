"""Tasks and actors in worker processes: the same engine in the driver, which owns the pool, and in workers.

How its refs and handles are pickled is in `numbered_refs`. Where pools come from is in `pool`; what differs
from the engines of one process stands in docs/contexts.md.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, cast

from fray.errors import (
    ActorDiedError,
    ActorNotFoundError,
    GetTimeoutError,
    InvalidOptionError,
    TaskCancelledError,
)
from fray.job.actor_methods import ActorMethods, RemoteActor
from fray.job.calls import Call, MethodCall, has_async_methods
from fray.job.engine import END, LATE, ContextStats, time_left
from fray.job.numbered_refs import NumberedEngine, only_of, register_engine
from fray.job.options import ActorOptions, TaskOptions
from fray.job.passing import list_generators, list_items
from fray.job.pool_options import actor_profile, actor_shape, retried_exceptions, task_profile, task_shape
from fray.job.pool_owner import PoolOwner
from fray.job.progress import FutureState
from fray.job.refs import GeneratorFuture
from fray.job.timeline import TaskRun
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.client.waiting import Entry, StreamEntry
from fray.runtime.pool.current import current_task, shielded, uninterrupted
from fray.runtime.pool.messages.specs import ActorSpec, Failed, Inline, Stored, TaskSpec
from fray.runtime.pool.objects.calls import EncodedCall, encode_call
from fray.runtime.pool.objects.flat_format import Encoded
from fray.runtime.pool.objects.functions import encode_function
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.objects.values import decode, encode
from fray.runtime.pool.worker.failures import build_failure

__all__ = ["ASYNC_CALLS", "PoolEngine", "PoolSession"]

ASYNC_CALLS = 1_000
"""Calls that an actor with async methods takes at once, unless it says otherwise."""


@dataclass(frozen=True)
class PoolSession:
    """One process's part of a pool: what `PoolEngine` works with."""

    token: str = field(repr=False)
    """The pool's name, unique: handles say by it which pool they are of."""
    client: PoolClient
    objects: ObjectReader


class PoolEngine(NumberedEngine):
    """Runs tasks and actors in worker processes; see `Engine`.

    Parameters: the `session` of this process; the `owner` where the pool belongs to this process, so that
    `shutdown` ends it. `create_job_ctx("pool")` makes one.
    """

    items_are_refs = True

    def __init__(self, session: PoolSession, owner: PoolOwner | None = None) -> None:
        self.token = self.home = session.token
        self.client = session.client
        self._objects = session.objects
        self._owner = owner
        self._shut_down = False
        if owner is not None:
            # At the interpreter's end the pool itself goes, and nobody has forgotten anything.
            weakref.finalize(self, owner.abandon).atexit = False
        register_engine(self)

    # --- values --------------------------------------------------------------------------------------------

    @uninterrupted
    def put(self, value: Any) -> Entry:
        """Keep a copy of a value; see `Engine`."""
        with only_of(self):
            encoded = encode(value)
        return self._keep(encoded)

    def _keep(self, encoded: Encoded) -> Entry:
        object_id = self.client.new_id()
        if encoded.size <= self.client.inline_limit:
            return self.client.put(object_id, encoded.to_value())
        return self.client.put(object_id, self._objects.write(object_id, encoded))

    @uninterrupted
    def take(self, ref: Any, deadline: float | None) -> Any:
        """Return the value of a ref; see `Engine`."""
        entry: Entry = ref._entry
        while True:
            outcome = entry.outcome
            if outcome is None:
                try:
                    outcome = self.client.await_outcome(entry, time_left(deadline), "")
                except GetTimeoutError:
                    return LATE
            if type(outcome) is bytes:
                return decode(outcome)
            if type(outcome) is Failed:
                raise self._failure(ref, outcome)
            if type(outcome) is Inline:
                return decode(outcome.data)
            stored = cast("Stored", outcome)
            data = self._objects.read(entry.id, stored.host)
            if isinstance(data, str):
                self.client.reject(entry, stored, data)
            else:
                return decode(data)

    def next_item(self, ref: Any, deadline: float | None) -> Any:
        """Return the entry of a generator's next item; see `Engine`."""
        stream: StreamEntry = ref._entry
        try:
            item = self.client.next_item(stream, time_left(deadline))
        except GetTimeoutError:
            return LATE
        if item is not None:
            return item
        if isinstance(stream.outcome, Failed):
            raise self._failure(ref, stream.outcome)
        return END

    @uninterrupted
    def prefetch(self, entries: Sequence[Any], deadline: float | None) -> None:
        """Wait for all of the values: one message asks for all, and this thread wakes once."""
        self.client.wait(entries, len(entries), time_left(deadline))

    @uninterrupted
    def subscribe(self, entries: Sequence[Any], listener: Callable[[Any], None]) -> None:
        """Call `listener` with each entry once it is ready; see `Engine`. Values aren't brought here."""
        self.client.subscribe(entries, listener)

    def unsubscribe(self, entries: Iterable[Any], listener: Callable[[Any], None]) -> None:
        """Forget the listener, where it wasn't called yet."""
        self.client.unsubscribe(entries, listener)

    @uninterrupted
    def blocking(
        self,
        wake: Callable[[], None],
        deadline: float | None = None,  # noqa: ARG002
    ) -> AbstractContextManager[object]:
        """Lend the resources of the running task; see `Engine`."""
        return self.client.blocking(wake)

    @uninterrupted
    def lend(self) -> Callable[[], None]:
        """Lend the CPUs of the running task until the returned function is called; see `Engine`."""
        return self.client.lend()

    def state_of(self, entry: Any, *, whole: bool) -> FutureState:
        """Return how far an entry is; see `Engine`."""
        outcome = entry.outcome
        if outcome is None:
            return "pending" if whole or not entry.ready else "ready"
        return "failed" if type(outcome) is Failed else "ready"

    def release(self, entry: Any) -> None:
        """Count one ref or handle less."""
        self.client.drop(entry)

    def _failure(self, ref: Any, failed: Failed) -> BaseException:
        if failed is not self.client.end or not self._shut_down:
            return build_failure(failed)
        if ref._actor:
            return ActorDiedError(ref._actor, "its context was shut down")
        return TaskCancelledError(ref._name or f"object {ref._entry.id}")

    # --- tasks ---------------------------------------------------------------------------------------------

    @uninterrupted
    def submit(self, call: Call, options: TaskOptions, *, streaming: bool) -> Entry:
        """Start a task; see `Engine`. Blocks until a generator among the arguments has ended.

        Blocks too while the arguments of the driver's tasks that haven't ended take half a gigabyte.
        """
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
            name=options.name or call.name,
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
        return entry

    def _encode_call(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], kept: list[Entry]
    ) -> EncodedCall:
        """Encode arguments; `kept` gets the entries to drop once the task is submitted."""

        def put(encoded: Encoded) -> int:
            kept.append(self._keep(encoded))
            return kept[-1].id

        given, named = list_generators(args, kwargs, lambda part: self._listed(part, kept))
        return encode_call(given, named, put=put, limit=self.client.inline_limit)

    def _listed(self, part: GeneratorFuture[Any], kept: list[Entry]) -> Any:
        """Return the ref of a generator's list of items; of one that failed, the generator, which fails."""
        try:
            listed = list_items(self, part)
        except BaseException:
            if isinstance(part._entry.outcome, Failed):
                return part
            raise
        kept.append(self.client.refer(listed._entry.id))
        return listed

    def _drop(self, kept: list[Entry]) -> None:
        for entry in kept:
            self.client.drop(entry)

    @uninterrupted
    def cancel(self, entry: Any, *, force: bool) -> None:
        """Ask for the task to be ended; with `force`, together with its worker if it doesn't end."""
        self.client.cancel(entry, force=force)

    # --- actors --------------------------------------------------------------------------------------------

    @uninterrupted
    def create_actor(self, call: Call, options: ActorOptions) -> RemoteActor:
        """Start an actor; see `Engine`. Returns before the constructor has: what it raises, calls raise."""
        kept: list[Entry] = []
        with only_of(self):
            function = encode_function(call.function)
            encoded = self._encode_call(call.args, call.kwargs, kept)
        actor_id = self.client.new_id()
        methods = ActorMethods.of(call.function, call.name, options.name)
        on_loop = options.max_concurrency is None and has_async_methods(call.function)
        spec = ActorSpec(
            id=actor_id,
            function=function.id,
            args=encoded.args,
            name=options.name or "",
            class_name=call.name,
            deps=encoded.deps,
            holds=(*encoded.holds, *function.contained),
            shape=actor_shape(options),
            profile=actor_profile(options),
            isolated=options.isolation == "process",
            max_concurrency=options.max_concurrency or (ASYNC_CALLS if on_loop else 1),
            on_loop=on_loop,
            max_restarts=options.max_restarts or 0,
            max_task_retries=options.max_task_retries,
            get_if_exists=options.get_if_exists,
            methods=methods.encode() if options.name else b"",
        )
        created = self.client.create_actor(spec, function.blob)
        self._drop(kept)
        if isinstance(created, Failed):
            raise build_failure(created)
        entry, found = created
        return RemoteActor(self.token, entry, ActorMethods.decode(found) if found else methods)

    @uninterrupted
    def find_actor(self, name: str) -> RemoteActor:
        """Return the actor that has a name; see `Engine`."""
        spec = ActorSpec(self.client.new_id(), b"", b"", name, "", get_if_exists=True)
        found = self.client.create_actor(spec, b"")
        if isinstance(found, Failed):
            raise (
                ActorNotFoundError(name, found.story)
                if found.kind == ActorNotFoundError.__name__
                else build_failure(found)
            )
        entry, methods = found
        return RemoteActor(self.token, entry, ActorMethods.decode(methods))

    @uninterrupted
    def call_actor(self, actor: RemoteActor, call: MethodCall, *, streaming: bool) -> Entry:
        """Call a method of an actor; see `Engine`."""
        if self.client.end is not None:
            return self.client.fail(self.client.new_id())
        kept: list[Entry] = []
        with only_of(self):
            encoded = self._encode_call(call.args, call.kwargs, kept)
        parent = current_task()
        spec = TaskSpec(
            id=self.client.new_id(),
            function=b"",
            args=encoded.args,
            name=f"{actor.label}.{call.method}",
            parent=parent.id if parent is not None else 0,
            deps=encoded.deps,
            holds=encoded.holds,
            shape=(),
            timeout=call.options.timeout or 0.0,
            streaming=streaming,
            actor=actor.entry.id,
            method=call.method,
            max_task_retries=call.options.max_task_retries,
        )
        entry = self.client.submit(spec, b"")
        self._drop(kept)
        return entry

    @uninterrupted
    def kill(self, actor: RemoteActor) -> None:
        """End an actor together with its process; see `Engine`."""
        self.client.kill_actor(actor.entry)

    # --- pickling, and interrupts --------------------------------------------------------------------------

    def refer(self, number: int) -> Entry:
        """Return the entry of a value whose ref was read; see `NumberedEngine`."""
        return self.client.refer(number)

    def refer_actor(self, number: int, label: str) -> Entry:  # noqa: ARG002 - the client asks for no name
        """Return the entry of an actor whose handle was read; see `NumberedEngine`."""
        return self.client.refer(number)

    def shielded(self) -> AbstractContextManager[None]:
        """Defer interrupts of the running task to the end of the block."""
        return shielded()

    # --- the engine itself ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the pool has ended."""
        return self.client.end is not None

    def stats(self) -> ContextStats:
        """See `Engine`; a pool knows more (`PoolContextStats`).

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
        """See `Engine`. Raises `InvalidOptionError` in a worker, and `PoolClosedError`."""
        return self._owner_for("runs()").runs()

    def count_running(self) -> int:
        """See `Engine`. Raises `InvalidOptionError` in a worker, and `PoolClosedError`."""
        return self._owner_for("count_running()").count_running()

    def _owner_for(self, what: str) -> PoolOwner:
        if self._owner is None:
            raise InvalidOptionError(what, "called in a worker", "a call in the process that made the pool")
        return self._owner

    def shutdown(self) -> None:
        """See `Engine`. In a worker it does nothing: the pool is the driver's."""
        if self._owner is not None:
            self._shut_down = True
            self._owner.stop()

    def __repr__(self) -> str:
        return f"pool-{self.token[:8]}"
