"""What a process knows of the values that a context on Dask has: entries, and the futures that keep them.

A value stays where it was made until another process needs it; then the cluster gets it.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from distributed import Client, Future, KilledWorker

from fray.errors import (
    ActorDiedError,
    ActorNotFoundError,
    FrayError,
    ObjectLostError,
    PoolClosedError,
    TaskCancelledError,
    WorkerDiedError,
)
from fray.job.cells import WaitableEngine, when_ready
from fray.job.dask_plugin import key_of
from fray.job.dask_values import (
    DaskActorEntry,
    DaskEntry,
    Failure,
    Outcome,
    StreamEntry,
    failure_of,
)
from fray.job.engine import Engine
from fray.job.numbered_refs import NumberedEngine, only_of
from fray.job.passing import list_generators
from fray.job.refs import GeneratorFuture, ObjectRef
from fray.job.workers import ThreadWorkers, blocking
from fray.runtime.pool.objects.calls import EncodedCall, encode_call
from fray.runtime.pool.objects.flat_format import Encoded
from fray.runtime.pool.objects.functions import EncodedFunction
from fray.runtime.pool.objects.values import INLINE_LIMIT, encode

__all__ = ["AnyEntry", "DaskRefs", "has_failed"]

_NOTHING: AbstractContextManager[None] = nullcontext()
AnyEntry = DaskEntry | StreamEntry


class DaskRefs(NumberedEngine, WaitableEngine, Engine):
    """The entries of one process, by their numbers, and what has become of the tasks that it submitted.

    Parameters: this process's `client`; the `token` of the context.
    """

    kind = "dask"
    items_are_refs = False

    def __init__(self, client: Client, token: str) -> None:
        self.token = self.home = token
        self._client: Any = client
        self._lock = threading.RLock()
        self._entries: weakref.WeakValueDictionary[int, DaskEntry] = weakref.WeakValueDictionary()
        self._unfinished: dict[int, AnyEntry] = {}
        self._ended: Counter[str] = Counter()
        self._helpers = ThreadWorkers(4, name="fray dask", lends=False)

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

    def _note_end(self, entry: AnyEntry, future: Any) -> None:
        """Settle an entry when its future is done: called by a thread of Dask's."""
        status = future.status
        if status in ("finished", "lost"):
            failed = not isinstance(entry, StreamEntry) and has_failed(entry)
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

    # --- arguments, and how the cluster gets values ---------------------------------------------------------

    def _encode(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], function: EncodedFunction | None
    ) -> tuple[EncodedCall, list[DaskEntry]]:
        """Encode arguments; return also what must be in the cluster before they arrive."""
        kept: list[DaskEntry] = []

        def put(encoded: Encoded) -> int:
            kept.append(self._keep(encoded))
            return kept[-1].number

        given, named = list_generators(args, kwargs, lambda part: self._listed(part, kept))
        encoded = encode_call(given, named, put=put, limit=INLINE_LIMIT)
        numbers = dict.fromkeys((*encoded.holds, *(function.contained if function is not None else ())))
        return encoded, [self._entries[number] for number in numbers]

    def _listed(self, part: GeneratorFuture[Any], kept: list[DaskEntry]) -> Any:
        """Return the items of a generator as a list; of one that failed, a ref that fails."""
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

    # --- what was submitted, and the scheduler --------------------------------------------------------------

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


def _give(token: str, data: bytes, contained: tuple[int, ...], failed: bool) -> Outcome:  # noqa: FBT001
    return (Failure if failed else Outcome)(token, data, tuple(contained))


def has_failed(entry: DaskEntry) -> bool:
    """Return whether a task that has ended has raised. Never blocks."""
    outcome = entry.outcome
    if outcome is None and entry.error is None and entry.ready:
        outcome = entry.take(0.0)
    if outcome is not None:
        return isinstance(outcome, Failure)
    return entry.future is not None and "Failure" in str(entry.future.type)
