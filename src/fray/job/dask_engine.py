"""Tasks and actors on a Dask cluster: the same engine in the process that made the context, and in workers.

Dask decides which worker runs a task and keeps its result; `dask_host` runs it there. What differs from other
engines stands in docs/contexts.md.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from distributed import Client, Future, KilledWorker

from fray.errors import (
    ActorDiedError,
    ActorExistsError,
    ActorNotFoundError,
    FrayError,
    ObjectLostError,
    PoolClosedError,
    TaskCancelledError,
    UnschedulableError,
    WorkerDiedError,
)
from fray.job.actor_methods import ActorMethods, RemoteActor
from fray.job.calls import Call
from fray.job.cells import WaitableEngine, await_ready, when_ready
from fray.job.dask_plugin import key_of
from fray.job.dask_values import (
    ActorSpec,
    CallEntry,
    CallSpec,
    DaskActorEntry,
    DaskEntry,
    Failure,
    Outcome,
    StreamEntry,
    TaskSpec,
    failure_of,
    read_outcome,
    reduce_handle,
    reduce_ref,
    register_engine,
    until_ready,
)
from fray.job.engine import END, LATE, ContextStats, time_left
from fray.job.options import ActorOptions, CallOptions, TaskOptions
from fray.job.pool_refs import check_receiver, only_of
from fray.job.progress import FutureState
from fray.job.refs import GeneratorFuture, ObjectRef
from fray.job.timeline import TaskRun
from fray.job.traits import Feature, refuse
from fray.job.workers import ThreadWorkers, blocking
from fray.runtime.pool.objects.calls import EncodedCall, encode_call
from fray.runtime.pool.objects.flat_format import Encoded
from fray.runtime.pool.objects.functions import EncodedFunction, encode_function
from fray.runtime.pool.objects.values import INLINE_LIMIT, encode

__all__ = ["ACTORS", "TASKS", "DaskEngine", "Owner", "Work"]

TASKS, ACTORS = "fray-tasks", "fray-actors"
"""Resources of Dask workers that take tasks or actors alone; a cluster without them gives both to all."""
PLAIN = frozenset({"CPU", "memory", "head_node"})
"""Resources that Dask workers don't count."""

_NOTHING: AbstractContextManager[None] = nullcontext()
AnyEntry = DaskEntry | StreamEntry


class Owner(Protocol):
    """What the maker of a context has, and workers haven't."""

    def close(self) -> None:
        """Let go of the cluster, and end it if it is the context's own."""


class Work(NamedTuple):
    """What an engine lets workers of Dask do: the functions of `dask_host`, which needs this file."""

    run_task: Callable[..., Any]
    make_actor: Callable[..., Any]
    cancel_task: Callable[..., None]
    count_running: Callable[..., int]
    list_runs: Callable[..., list[TaskRun]]


class DaskEngine(WaitableEngine):
    """Runs tasks and actors on a Dask cluster; see `Engine`.

    Parameters: this process's `client`; the `token` of the context; the `work`; `roles`: there are workers
    for tasks and others for actors; the `owner` where the context was made, so that `shutdown` ends it there.
    """

    items_are_refs = False

    def __init__(
        self, client: Client, token: str, work: Work, *, roles: bool = False, owner: Owner | None = None
    ) -> None:
        self.token = self.home = token
        self.roles = roles
        self._client: Any = client
        self._work = work
        self._owner = owner
        self._lock = threading.RLock()
        self._closed = False
        self._entries: weakref.WeakValueDictionary[int, DaskEntry] = weakref.WeakValueDictionary()
        self._unfinished: dict[int, AnyEntry] = {}
        self._actors: weakref.WeakSet[DaskActorEntry] = weakref.WeakSet()
        self._ended: Counter[str] = Counter()
        self._fitting: set[tuple[tuple[str, float], ...]] = set()
        self._helpers = ThreadWorkers(4, name="fray dask", lends=False)
        register_engine(self)

    # --- values --------------------------------------------------------------------------------------------

    def put(self, value: Any) -> DaskEntry:
        """Keep a copy of a value in this process, and in the cluster once others need it; see `Engine`."""
        self._check_open()
        with only_of(self):
            encoded = encode(value)
        return self._keep(encoded)

    def _keep(self, encoded: Encoded) -> DaskEntry:
        entry = DaskEntry(self.new_number(), "")
        self._note(entry)
        entry.succeed(Outcome(self.token, encoded.to_bytes(), encoded.contained))
        return entry

    def take(self, ref: Any, deadline: float | None) -> Any:
        """Return the value of a ref; see `Engine`."""
        entry: DaskEntry = ref._entry
        outcome = entry.take(deadline)
        if outcome is None:
            outcome = entry.outcome or self._fetch(entry, deadline)
        return LATE if outcome is LATE else read_outcome(outcome, entry.name)

    def next_item(self, ref: Any, deadline: float | None) -> Any:
        """Return the next item of a generator; see `Engine`."""
        item = ref._entry.take(deadline)
        if item is LATE or item is END:
            return item
        if item.data:
            return read_outcome(item, ref._entry.name)
        outcome = self._fetch(item.held[0], None)  # a large one, which stayed where it was made
        return read_outcome(outcome, ref._entry.name)

    def _fetch(self, entry: DaskEntry, deadline: float | None) -> Any:
        future = entry.future
        try:
            with blocking() if future.status != "finished" else _NOTHING:
                outcome: Outcome = future.result(timeout=time_left(deadline))
        except TimeoutError:
            return LATE
        except (CancelledError, asyncio.CancelledError) as error:
            raise self._lost(entry) from error
        except Exception as error:
            raise self._failed(entry, error) from error
        if len(outcome.data) <= INLINE_LIMIT:
            entry.outcome = outcome
        return outcome

    def prefetch(self, entries: Sequence[Any], deadline: float | None) -> None:
        """Wait for all of the values, and bring them here at once."""
        if not await_ready(entries, deadline):
            return
        absent = {
            entry.number: entry
            for entry in entries
            if entry.outcome is None and entry.future is not None and entry.future.status == "finished"
        }
        try:
            found = self._client.gather({number: entry.future for number, entry in absent.items()})
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - `take` tells of the one that failed
            return
        for number, outcome in found.items():
            absent[number].outcome = outcome

    def state_of(self, entry: Any, *, whole: bool) -> FutureState:
        """Return how far an entry is; see `Engine`."""
        if isinstance(entry, StreamEntry):
            if not (entry.ended if whole else entry.ready):
                return "pending"
            return "failed" if entry.error is not None else "ready"
        if not entry.ready:
            return "pending"
        return "failed" if entry.error is not None or _has_failed(entry) else "ready"

    def release(self, entry: Any) -> None:
        """Let a generator end that nobody reads; other entries go with their last ref."""
        if isinstance(entry, StreamEntry) and not entry.ended:
            entry.abandon()
            self._leave(entry, "cancelled")
            self._soon(self._end_stream, entry)

    # --- tasks ---------------------------------------------------------------------------------------------

    def submit(self, call: Call, options: TaskOptions, *, streaming: bool) -> AnyEntry:
        """Start a task; see `Engine`."""
        self._check_open()
        _check_features(
            {
                Feature.TASK_ENV: options.env,
                Feature.RUNTIME_ENV: options.runtime_env,
                Feature.MAX_CALLS: options.max_calls,
            }
        )
        with only_of(self):
            function = encode_function(call.function)
            encoded, needed = self._encode(call.args, call.kwargs, function)
            plain = encode(replace(options, name=options.name or call.name, resources=None))
        number, name = self.new_number(), options.name or call.name
        entry: AnyEntry = StreamEntry(number, name, None) if streaming else DaskEntry(number, name)
        task = TaskSpec(
            token=self.token,
            roles=self.roles,
            number=number,
            name=name,
            function=function.blob,
            args=encoded.args,
            options=plain.to_bytes(),
            holds=tuple(each.number for each in needed),
            reader=self._client.id if streaming else "",
        )
        self._enter(entry, needed)
        resources = _counted(options.resources)
        if not self._fits(resources):
            entry.fail(self._unschedulable(name, resources))
            self._leave(entry, "failed")
            return entry
        if streaming:
            self._soon(self._receive, entry)
        if self.roles:
            resources |= {TASKS: 1}
        start = partial(
            self._start, entry, self._work.run_task, pickle.dumps(tuple(task)), encoded.deps, resources
        )
        self._once_published(entry, needed, start)
        return entry

    def _start(
        self,
        entry: AnyEntry,
        function: Callable[..., Any],
        spec: bytes,
        deps: Sequence[int],
        resources: dict[str, float],
    ) -> None:
        """Hand a task or an actor to Dask, unless it was cancelled before."""
        if (isinstance(entry, StreamEntry) and entry.ended) or (isinstance(entry, DaskEntry) and entry.ready):
            return
        known = {each.number: each for each in entry.holds}
        entry.future = self._client.submit(
            function,
            spec,
            *(known[number].future for number in deps),
            key=key_of(self.token, entry.number),
            pure=False,
            resources=resources or None,
            actor=isinstance(entry, DaskActorEntry),
        )
        entry.future.add_done_callback(partial(self._note_end, entry))

    def _note_end(self, entry: AnyEntry, future: Any) -> None:
        """Settle an entry when its future is done: called by a thread of Dask's."""
        status = future.status
        if status in ("finished", "lost"):
            failed = not isinstance(entry, StreamEntry) and _has_failed(entry)
            self._leave(entry, "failed" if failed else "succeeded")
            if isinstance(entry, DaskEntry):
                entry.succeed(None)
            return
        if status == "error":
            failure = self._failed(entry, future.exception())
        elif isinstance(entry, DaskActorEntry):
            failure = entry.died or ActorDiedError(entry.name, "it was killed")
        else:
            failure = self._lost(entry)
        if isinstance(entry, DaskActorEntry):
            entry.died = entry.died or ActorDiedError(entry.name, "its worker has ended")
        self._leave(entry, "cancelled" if isinstance(failure, TaskCancelledError) else "failed")
        entry.fail(failure)
        if isinstance(entry, StreamEntry):
            self._soon(self._end_stream, entry)

    def _failed(self, entry: AnyEntry, error: BaseException) -> BaseException:
        if isinstance(entry, DaskActorEntry):
            return ActorDiedError(entry.name, "its worker has ended", (str(error),))
        if isinstance(error, KilledWorker):
            return WorkerDiedError(entry.name, str(error.last_worker.address), error.allowed_failures + 1)
        return error

    def _lost(self, entry: AnyEntry) -> FrayError:
        if self._closed:
            return ObjectLostError(entry.name or entry.id, "its context was shut down")
        if self._client.status != "running":
            return ObjectLostError(entry.name or entry.id, "the Dask cluster has ended")
        return TaskCancelledError(entry.name or f"object {entry.id}")

    def cancel(self, entry: Any, *, force: bool) -> None:  # noqa: ARG002 - threads can't be ended
        """Let a task yield `TaskCancelledError`, here and for all who have its ref; see `Engine`."""
        if _has_ended(entry):
            return
        self._leave(entry, "cancelled")
        entry.fail(TaskCancelledError(entry.name))
        if isinstance(entry, StreamEntry):
            self._soon(self._end_stream, entry)
        elif isinstance(entry, CallEntry):
            self._soon(self._tell_actor, entry.actor, "cancel", entry.number)
        elif entry.future is not None:
            # One after the other, so that it begins nowhere once this returns.
            with suppress(OSError):
                self._client.sync(self._cancel, entry)
                self._client.run(self._work.cancel_task, self.token, entry.number, on_error="ignore")

    async def _cancel(self, entry: AnyEntry) -> None:
        if entry.future is not None:
            key = key_of(self.token, entry.number)
            await self._client.scheduler.fray_cancel(key=key, client=self._client.id)

    # --- generators ----------------------------------------------------------------------------------------

    async def _receive(self, entry: StreamEntry) -> None:
        """Bring the items of a generator here, a batch at a time, for as long as they are read."""
        scheduler = self._client.scheduler
        where = {"token": self.token, "number": entry.number}
        while not entry.ended:
            try:
                batch = await scheduler.fray_receive(**where, client=self._client.id)
            except OSError as error:
                entry.fail(ObjectLostError(entry.name, "the Dask cluster has ended", (str(error),)))
                return
            if batch is None:
                return
            for kind, data, contained in batch:
                if kind == "item":
                    made = Failure if data[:1] == b"!" else Outcome
                    entry.add([made(self.token, bytes(data[1:]), tuple(contained))])
                elif kind == "failed":
                    self._leave(entry, "failed")
                    entry.fail(_raised(data, entry.name))
                else:
                    self._leave(entry, "succeeded")
                    entry.succeed(None)
            await entry.until_empty()

    async def _end_stream(self, entry: StreamEntry) -> None:
        """Let a generator end that nobody reads any more."""
        await self._client.scheduler.fray_close_box(token=self.token, number=entry.number)
        if entry.actor is not None:
            await self._tell_actor(entry.actor, "cancel", entry.number)
        else:
            await self._cancel(entry)

    # --- actors --------------------------------------------------------------------------------------------

    def create_actor(self, call: Call, options: ActorOptions) -> RemoteActor:
        """Start an actor; see `Engine`. Returns before the constructor has: what it raises, calls raise."""
        self._check_open()
        _check_features(
            {
                Feature.ACTOR_ENV: options.env,
                Feature.ACTOR_RESOURCES: _counted(options.resources),
                Feature.MAX_RESTARTS: options.max_restarts,
                Feature.MAX_TASK_RETRIES: options.max_task_retries,
            }
        )
        with only_of(self):
            function = encode_function(call.function)
            encoded, needed = self._encode(call.args, call.kwargs, function)
        number = self.new_number()
        methods = ActorMethods.of(call.function, call.name, options.name)
        if options.name:
            found = self._ask("claim", name=options.name, number=number, methods=methods.encode(),
                              client=self._client.id, share=options.get_if_exists)  # fmt: skip
            if found is False:
                raise ActorExistsError(options.name)
            if found is not True:
                return self._found(found)
        actor = ActorSpec(
            token=self.token,
            roles=self.roles,
            number=number,
            name=options.name or "",
            label=methods.label,
            function=function.blob,
            args=encoded.args,
            holds=tuple(each.number for each in needed),
            max_concurrency=options.max_concurrency or 1,
        )
        entry = DaskActorEntry(number, methods.label)
        self._note(entry)
        self._actors.add(entry)
        entry.holds = needed
        resources: dict[str, float] = {ACTORS: 1} if self.roles else {}
        start = partial(
            self._start, entry, self._work.make_actor, pickle.dumps(tuple(actor)), encoded.deps, resources
        )
        self._once_published(entry, needed, start)
        return RemoteActor(self.token, entry, methods)

    def find_actor(self, name: str) -> RemoteActor:
        """Return the actor that has a name; see `Engine`."""
        self._check_open()
        found = self._ask("find", name=name)
        if found[0] is None:
            raise ActorNotFoundError(name, tuple(found[1]))
        return self._found(found)

    def _found(self, found: Sequence[Any]) -> RemoteActor:
        methods = ActorMethods.decode(bytes(found[1]))
        return RemoteActor(self.token, self.refer_actor(found[0], methods.label), methods)

    def call_actor(
        self,
        actor: RemoteActor,
        method: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        streaming: bool,
        options: CallOptions,
    ) -> AnyEntry:
        """Call a method of an actor; see `Engine`."""
        if options.max_task_retries:
            raise refuse("dask", Feature.MAX_TASK_RETRIES)
        number, name, target = self.new_number(), f"{actor.label}.{method}", actor.entry
        entry: AnyEntry = StreamEntry(number, name, target) if streaming else CallEntry(number, name, target)
        died = ActorDiedError(actor.label, "its context was shut down") if self._closed else target.died
        if died is not None:
            entry.fail(died)
            return entry
        with only_of(self):
            encoded, needed = self._encode(args, kwargs, None)
        with self._lock:
            spec = CallSpec(
                caller=target.caller,
                order=next(target.calls),
                client=self._client.id,
                number=number,
                name=name,
                method=method,
                args=encoded.args,
                deps=encoded.deps,
                holds=tuple(each.number for each in needed),
                timeout=options.timeout,
                streaming=streaming,
            )
        self._enter(entry, needed)
        if streaming:
            self._soon(self._receive, entry)
        send = partial(self._soon, self._call, entry, target, pickle.dumps(tuple(spec)))
        self._once_published(entry, needed, send)
        return entry

    async def _call(self, entry: AnyEntry, target: DaskActorEntry, spec: bytes) -> None:
        """Send a call to its actor and wait for its end. Calls that were cancelled keep their turn."""
        try:
            outcome = await self._execute(target, "call", spec)
        except FrayError as error:
            self._leave(entry, "failed")
            entry.fail(error)
            return
        if isinstance(entry, CallEntry):
            self._leave(entry, "failed" if isinstance(outcome, Failure) else "succeeded")
            entry.succeed(outcome)

    async def _tell_actor(self, target: DaskActorEntry, method: str, *args: Any) -> None:
        try:
            await self._execute(target, method, *args)
        except FrayError:
            return  # it has ended

    async def _execute(self, target: DaskActorEntry, method: str, *args: Any) -> Any:
        """Call a method of `ActorHost`, in the worker that has it, which needs no slot for it."""
        await until_ready(target)
        if target.error is not None:
            raise target.died or target.error
        key = key_of(self.token, target.number)
        try:
            if target.address is None:
                found = await self._client.scheduler.who_has(keys=[key])
                target.address = next(iter(found.get(key) or ()), None)
                if target.address is None:
                    raise target.died or ActorDiedError(target.name, "its worker has ended")
            worker = self._client.rpc(target.address)
            reply = await worker.actor_execute(actor=key, function=method, args=list(args))
        except OSError as error:
            died = ActorDiedError(target.name, "the connection to its worker was lost", (str(error),))
            target.died = target.died or died
            raise target.died from error
        if reply["status"] != "OK":
            raise ActorDiedError(target.name, "its worker has let it go", (repr(reply["exception"]),))
        return reply["result"]

    def kill(self, actor: RemoteActor) -> None:
        """End an actor; code of it that runs already goes on, its result is dropped."""
        entry = actor.entry
        if entry.died is None and not self._closed:
            entry.died = ActorDiedError(actor.label, "it was killed")
            self._actors.discard(entry)
            self._ask("forget", name=actor.label, number=entry.number)
            self._client.sync(self._kill, entry)

    async def _kill(self, entry: DaskActorEntry) -> None:
        if entry.ready:
            await self._tell_actor(entry, "kill")
        else:
            entry.fail(entry.died or ActorDiedError(entry.name, "it was killed"))
        await self._cancel(entry)

    # --- refs in other processes ---------------------------------------------------------------------------

    def new_number(self) -> int:
        """Return a number that no other value or actor has."""
        return uuid.uuid4().int >> 65

    def knows(self, number: int) -> bool:
        """Return whether somebody in this process has a value's ref."""
        return number in self._entries

    def refer(self, number: int) -> DaskEntry:
        """Return the entry of a value that other processes know by its number."""
        return self._refer(number, DaskEntry(number, ""))

    def refer_actor(self, number: int, label: str) -> DaskActorEntry:
        """Return the entry of an actor that other processes know by its number."""
        found = self._refer(number, DaskActorEntry(number, label))
        if not isinstance(found, DaskActorEntry):
            raise ActorNotFoundError(label)
        return found

    def _refer(self, number: int, made: DaskEntry) -> DaskEntry:
        with self._lock:
            known = self._entries.get(number)
            # A ref inside a value is read before one knows that it is an actor's.
            if known is not None and (type(known) is type(made) or not isinstance(made, DaskActorEntry)):
                return known
            made.future = Future(key_of(self.token, number), self._client)
            self._entries[number] = made
        made.future.add_done_callback(partial(self._note_end, made))
        self._soon(self._adopt, made)
        return made

    async def _adopt(self, entry: DaskEntry) -> None:
        """See to it that the scheduler keeps a value for this process; one that is lost fails."""
        key = key_of(self.token, entry.number)
        if await self._client.scheduler.fray_desire(keys=[key], client=self._client.id):
            entry.fail(ObjectLostError(entry.id, "nobody held its ref any more"))

    def _note(self, entry: DaskEntry) -> None:
        with self._lock:
            self._entries[entry.number] = entry

    def _encode(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], function: EncodedFunction | None
    ) -> tuple[EncodedCall, list[DaskEntry]]:
        """Encode arguments; return also what must be in the cluster before they arrive."""
        kept: list[DaskEntry] = []

        def put(encoded: Encoded) -> int:
            kept.append(self._keep(encoded))
            return kept[-1].number

        if GeneratorFuture in map(type, (*args, *kwargs.values())):
            args = tuple(self._listed(part, kept) for part in args)
            kwargs = {name: self._listed(part, kept) for name, part in kwargs.items()}
        encoded = encode_call(args, dict(kwargs), put=put, limit=INLINE_LIMIT)
        numbers = dict.fromkeys((*encoded.holds, *(function.contained if function is not None else ())))
        return encoded, [self._entries[number] for number in numbers]

    def _listed(self, part: Any, kept: list[DaskEntry]) -> Any:
        """Return the items of a generator as a list; of one that failed, a ref that fails."""
        if not isinstance(part, GeneratorFuture):
            return part
        try:
            return part._take(None)
        except Exception as error:  # noqa: BLE001 - the task fails with it
            entry = DaskEntry(self.new_number(), part.name)
            self._note(entry)
            entry.succeed(failure_of(self.token, error))
            kept.append(entry)
            return ObjectRef(self, entry, part.name)

    def _once_published(
        self, entry: AnyEntry, needed: Sequence[DaskEntry], action: Callable[[], None]
    ) -> None:
        """Do what hands values to other processes, once these can read them; `entry` fails if it fails."""
        local = [each for each in needed if each.future is None]
        pending = [each for each in local if not each.ready]

        def do() -> None:
            try:
                for each in local:
                    self._publish(each)
                action()
            except Exception as error:  # noqa: BLE001 - it belongs to who waits for the entry
                self._leave(entry, "failed")
                entry.fail(error)

        if pending:
            when_ready(pending, partial(self._in_helper, do))
        else:
            do()

    def _in_helper(self, work: Callable[[], None]) -> None:
        try:
            self._helpers.submit(work)
        except PoolClosedError:
            return  # the context has ended, and with it who waits

    def _publish(self, entry: DaskEntry) -> None:
        """Give the cluster a value that this process has. Blocks while a large one goes."""
        with self._lock:
            if entry.future is not None:
                return
            outcome = failure_of(self.token, entry.error) if entry.error is not None else entry.take(None)
            key = key_of(self.token, entry.number)
            failed = isinstance(outcome, Failure)
            if len(outcome.data) <= INLINE_LIMIT:
                given = (self.token, bytes(outcome.data), outcome.contained, failed)
                entry.future = self._client.submit(_give, *given, key=key, pure=False)
            else:
                entry.future = self._client.scatter({key: outcome})[key]

    # --- pickling, and interrupts --------------------------------------------------------------------------

    def wire_id(self, entry: Any) -> int:
        """Return the entry's number; see `Engine`."""
        check_receiver(self, str(entry.id))
        number: int = entry.number
        return number

    def reduce_ref(self, ref: Any) -> tuple[Any, ...]:
        """Return what makes the ref again; see `dask_values`."""
        return reduce_ref(self, ref)

    def reduce_handle(self, handle: Any) -> tuple[Any, ...]:
        """Return what makes the handle again; see `dask_values`."""
        return reduce_handle(self, handle._actor)

    def shielded(self) -> AbstractContextManager[None]:
        """Do nothing: nobody interrupts the threads of tasks."""
        return _NOTHING

    # --- the engine itself ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it was shut down."""
        return self._closed

    @property
    def metrics_address(self) -> str:
        """Raise `UnsupportedFeatureError`: only a pool serves its counts."""
        raise refuse("dask", Feature.METRICS)

    def stats(self) -> ContextStats:
        """Return what it has, and what became of what this process has submitted."""
        self._check_open()
        running = self.count_running()
        with self._lock:
            waiting = max(0, len(self._unfinished) - running)
            ended = dict(self._ended)
        workers = len(self._client.scheduler_info(n_workers=-1)["workers"])
        counts = {kind: ended.get(kind, 0) for kind in ("succeeded", "failed", "cancelled")}
        return ContextStats(
            workers=workers, waiting=waiting, running=running, actors=len(self._actors), **counts
        )

    def runs(self) -> list[TaskRun]:
        """Return the last runs on all workers; see `Engine`."""
        self._check_open()
        found = self._client.run(self._work.list_runs, self.token)
        return [
            replace(run, row=(1_000 * index + run.row[0], f"{address} {run.row[1]}"))
            for index, (address, runs) in enumerate(sorted(found.items()))
            for run in runs
        ]

    def count_running(self) -> int:
        """Return how many of this process's tasks and calls run now."""
        if not self._unfinished or self._closed:
            return 0
        running: int = sum(self._client.run(self._work.count_running, self.token).values())
        return min(len(self._unfinished), running)

    def shutdown(self) -> None:
        """End all tasks and actors; see `Engine`. In a worker it does nothing."""
        if self._owner is None:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            left = list(self._unfinished.values())
            actors = list(self._actors)
        for actor in actors:
            actor.died = actor.died or ActorDiedError(actor.name, "its context was shut down")
        for entry in left:
            self._leave(entry, "cancelled")
            target = entry.actor if isinstance(entry, StreamEntry | CallEntry) else None
            entry.fail(target.died if target and target.died else TaskCancelledError(entry.name))
        self._helpers.close()
        self._owner.close()

    def __repr__(self) -> str:
        return self.token

    def _check_open(self) -> None:
        if self._closed:
            raise PoolClosedError(self.token)

    def _enter(self, entry: AnyEntry, needed: list[DaskEntry]) -> None:
        entry.holds = needed
        with self._lock:
            self._check_open()
            self._unfinished[entry.number] = entry
            if isinstance(entry, DaskEntry):
                self._entries[entry.number] = entry

    def _leave(self, entry: AnyEntry, how: str) -> None:
        """Count the end of a task, once."""
        with self._lock:
            if self._unfinished.pop(entry.number, None) is not None:
                self._ended[how] += 1
        entry.holds = []

    def _ask(self, what: str, **details: Any) -> Any:
        """Call the scheduler's plugin and wait for its answer; this thread's task gives its slot away."""
        call = getattr(self._client.scheduler, f"fray_{what}")
        with blocking() if what == "claim" else _NOTHING:
            return self._client.sync(call, token=self.token, **details)

    def _soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Let a coroutine function run in the client's event loop. Never blocks."""
        self._client.loop.add_callback(self._safely, function, *args)

    async def _safely(self, function: Callable[..., Any], *args: Any) -> None:
        try:
            await function(*args)
        except (OSError, asyncio.CancelledError):
            return  # the cluster has ended: futures tell their readers

    def _fits(self, resources: Mapping[str, float]) -> bool:
        shape = tuple(sorted(resources.items()))
        if not shape or shape in self._fitting:
            return True
        if any(all(each.get(name, 0) >= wanted for name, wanted in shape) for each in self._offers()):
            self._fitting.add(shape)
            return True
        return False

    def _offers(self) -> list[Mapping[str, float]]:
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return [each["resources"] for each in workers]

    def _unschedulable(self, name: str, resources: Mapping[str, float]) -> UnschedulableError:
        offered = [{key: one for key, one in each.items() if key not in (TASKS, ACTORS)}
                   for each in self._offers()]  # fmt: skip
        most = max(offered, key=len, default={})
        return UnschedulableError(name, _shown(resources), _shown(most) or "none")


def _give(token: str, data: bytes, contained: tuple[int, ...], failed: bool) -> Outcome:  # noqa: FBT001
    return (Failure if failed else Outcome)(token, data, tuple(contained))


def _has_ended(entry: AnyEntry) -> bool:
    return entry.ended if isinstance(entry, StreamEntry) else entry.ready


def _has_failed(entry: DaskEntry) -> bool:
    outcome = entry.outcome
    if outcome is None and entry.error is None and entry.ready:
        outcome = entry.take(0.0)
    if outcome is not None:
        return isinstance(outcome, Failure)
    return entry.future is not None and "Failure" in str(entry.future.type)


def _raised(data: bytes, name: str) -> BaseException:
    try:
        read_outcome(Failure("", data), name)
    except BaseException as error:  # noqa: BLE001 - it is what the generator raised
        return error
    raise AssertionError


def _counted(resources: Mapping[str, float] | None) -> dict[str, float]:
    return {name: amount for name, amount in (resources or {}).items() if name not in PLAIN and amount}


def _shown(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {amount:g}" for name, amount in resources.items())


def _check_features(asked: Mapping[Feature, object]) -> None:
    """Raise `UnsupportedFeatureError` for the first of these features that is asked for."""
    for feature, value in asked.items():
        if value:
            raise refuse("dask", feature)
