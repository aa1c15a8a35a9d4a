"""What runs tasks and actors of contexts in a worker of Dask: threads of Fray beside those of Dask.

A task holds a slot of its worker until its result is there, or nobody wants it any more; one that waits for
another gives its slot away. So a task can be cancelled, or take too long, and nobody else waits for it.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import pickle
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from distributed import Client, Worker, WorkerPlugin, get_worker
from distributed.worker_state_machine import SecedeEvent

from fray.errors import (
    ActorDiedError,
    ObjectLostError,
    PoolClosedError,
    TaskCancelledError,
    TaskRaisedError,
)
from fray.job.calls import Call
from fray.job.cancelled import CancelledCalls
from fray.job.cells import Cell
from fray.job.dask_actors import Work
from fray.job.dask_client import hurry
from fray.job.dask_engine import DaskEngine
from fray.job.dask_plugin import key_of
from fray.job.dask_values import (
    ActorSpec,
    CallSpec,
    Failure,
    Outcome,
    TaskSpec,
    failure_of,
    outcome_of,
    until_ready,
)
from fray.job.engine import END
from fray.job.local_actors import LocalActor
from fray.job.numbered_refs import serve_engines
from fray.job.options import ActorOptions, TaskOptions
from fray.job.progress_display import turn_off
from fray.job.refs import ObjectRef
from fray.job.streams import BufferedStream
from fray.job.tasks import Task
from fray.job.threads import ThreadEngine
from fray.job.workers import ThreadWorkers, know_slot
from fray.payload.values.exceptions import decode_error
from fray.runtime.actor_life import current_life, find_method
from fray.runtime.pool.objects.calls import decode_call
from fray.runtime.pool.objects.functions import decode_function
from fray.runtime.pool.objects.values import INLINE_LIMIT, decode

__all__ = ["WORK", "ActorHost", "Host", "forget_context"]

T = TypeVar("T")

THREADS = 1_000_000
"""Tasks that run at once as far as a worker's threads go: its slots are Dask's."""
AHEAD = 16
"""Items of a generator task that may wait to be sent; then the generator pauses and gives its slot away."""
NAME = "fray"


class Slot:
    """The right of a task to one of the threads of its Dask worker. Once given away it doesn't come back."""

    def __init__(self, worker: Worker, key: str) -> None:
        self._worker = worker
        self._key = key
        self._held = True
        self._began = time.time()

    def lend(self) -> None:
        """Let other tasks run; this one goes on beside them when its wait is over."""
        if self._held:
            self._held = False
            event = SecedeEvent(
                key=self._key,
                compute_duration=time.time() - self._began,
                stimulus_id=f"fray-{self._key}-{time.time()}",
            )
            self._worker.loop.add_callback(self._worker.handle_stimulus, event)

    def take_back(self) -> None:
        """Do nothing: Dask has no way back."""


_slot: contextvars.ContextVar[Slot | None] = contextvars.ContextVar("fray_dask_slot", default=None)


class HostThreads(ThreadEngine):
    """Runs the tasks of one context in threads of this worker; what they make are outcomes."""

    kind = "dask-worker"

    def __init__(self, engine: DaskEngine) -> None:
        super().__init__(THREADS)
        self._workers = ThreadWorkers(THREADS, name=self.token, lends=False)  # what a task lends is Dask's
        self._current = engine

    def soon(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function in a thread; return the future of what it returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                value = function()
            except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the caller
                loop.call_soon_threadsafe(future.set_exception, error)
            else:
                loop.call_soon_threadsafe(future.set_result, value)

        self._workers.submit(work)
        return future

    def call(self, function: Callable[[], Any], spec: CallSpec, actor: LocalActor) -> Any:
        """Start a call of an actor."""
        options = TaskOptions(timeout=spec.timeout)
        return self._submit(Call(function, (), {}), options, spec.name, actor, streaming=spec.streaming)

    def _run_in_thread(self, task: Task) -> None:
        task.variables.run(know_slot, task.variables.get(_slot) if task.actor is None else None)
        self._run(task)

    def _new_cell(self, task_id: str) -> Cell:
        return _OutcomeCell(self._current.token, task_id)

    def _new_stream(self, task: Task) -> BufferedStream:
        return _OutcomeStream(self._current.token, AHEAD if task.actor is None else None, task.id)


class _OutcomeCell(Cell):
    """Settles with the outcome of a task: what it returned or raised, encoded in the task's thread."""

    def __init__(self, token: str, id: str) -> None:  # noqa: A002
        super().__init__(id)
        self._token = token

    def succeed(self, value: Any) -> bool:
        return not self.ready and super().succeed(outcome_of(self._token, value))

    def fail(self, error: BaseException) -> bool:
        # The reader makes a TaskRaisedError again, from what the task raised.
        cause = error.__cause__ if isinstance(error, TaskRaisedError) else None
        return super().succeed(failure_of(self._token, cause or error))


class _OutcomeStream(BufferedStream):
    """Items of a generator, encoded in its thread."""

    def __init__(self, token: str, bound: int | None, id: str) -> None:  # noqa: A002
        super().__init__(bound, id)
        self._token = token

    def _put(self, item: Any) -> bool:
        return super()._put(outcome_of(self._token, item))


class Host(WorkerPlugin):
    """Runs what contexts send to this worker."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self._threads: dict[str, HostThreads] = {}
        self._engines: dict[str, DaskEngine] = {}
        self._running: dict[str, tuple[HostThreads, Any]] = {}
        self._cancelled: dict[str, CancelledCalls] = {}
        """Tasks of contexts that may have been on their way here when they were cancelled."""

    async def setup(self, worker: Worker) -> None:
        """Connect to the scheduler as a client; see `WorkerPlugin`."""
        self.worker = worker
        client = await Client(
            worker.scheduler.address,
            loop=worker.loop,
            security=worker.security,
            set_as_default=False,
            asynchronous=True,
            direct_to_workers=True,
            name=NAME,
        )
        self.client: Any = hurry(client)
        turn_off()
        serve_engines("dask", self.engine)

    async def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - see WorkerPlugin
        """End all contexts here; see `WorkerPlugin`."""
        for token in list(self._threads):
            self.forget(token)
        await self.client.close()

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:  # noqa: ARG002
        """End a task that was cancelled, or that nobody wants any more; see `WorkerPlugin`."""
        if finish in ("cancelled", "released", "forgotten"):
            self._end(key)

    def cancel(self, token: str, number: int) -> None:
        """End a task, and let it not begin if it hasn't."""
        self._cancelled.setdefault(token, CancelledCalls()).add(number)
        self._end(key_of(token, number))

    def _end(self, key: str) -> None:
        running = self._running.pop(key, None)
        if running is not None:
            threads, entry = running
            threads.cancel(entry, force=False)

    def engine(self, token: str) -> DaskEngine:
        """Return this process's engine of a context."""
        if token not in self._engines:
            self._engines[token] = DaskEngine(self.client, token, WORK)
        return self._engines[token]

    def threads(self, token: str) -> HostThreads:
        """Return what runs a context's tasks here."""
        if token not in self._threads:
            self._threads[token] = HostThreads(self.engine(token))
        return self._threads[token]

    def forget(self, token: str) -> None:
        """End what a context has here."""
        threads = self._threads.pop(token, None)
        if threads is not None:
            threads.shutdown()
        self._engines.pop(token, None)
        self._cancelled.pop(token, None)

    async def run(self, spec: TaskSpec, values: Sequence[Outcome]) -> Outcome:
        """Run a task to its end, or until nobody wants it."""
        engine, threads = self.engine(spec.token), self.threads(spec.token)
        engine.roles |= spec.roles
        key = key_of(spec.token, spec.number)
        failed = next((value for value in values if isinstance(value, Failure)), None)
        if spec.number in self._cancelled.get(spec.token, ()):
            failed = failure_of(spec.token, TaskCancelledError(spec.name))
        if failed is not None:
            if spec.reader:
                await self.send(spec.token, spec.number, [], failed)
            return failed
        _slot.set(Slot(self.worker, key))
        function = functools.partial(_call, spec.function, spec.args, values)
        options: TaskOptions = decode(spec.options)
        entry: Any = threads.submit(Call(function, (), {}), options, streaming=bool(spec.reader))
        self._running[key] = threads, entry
        try:
            if spec.reader:
                await self.send_items(spec.token, spec.number, entry)
                return Outcome(spec.token, b"")
            await until_ready(entry)
            outcome: Outcome = entry.take(None)
        finally:
            self._running.pop(key, None)
        await self.keep(engine, spec.holds)
        return outcome

    async def keep(self, engine: DaskEngine, holds: tuple[int, ...]) -> None:
        """See to it that what a task was given, and has kept, stays when its caller lets go of it."""
        kept = [key_of(engine.token, number) for number in holds if engine.knows(number)]
        if kept:
            await self.client.scheduler.fray_desire(keys=kept, client=self.client.id)

    async def send_items(self, token: str, number: int, stream: BufferedStream) -> None:
        """Bring the items of a generator to the scheduler until it ends, or nobody reads them."""
        ended = False
        while not ended:
            await until_ready(stream)
            items: list[Outcome] = []
            end: Failure | None = None
            try:
                # No more at once: a generator that keeps pace would never let this loop hear of its end.
                while stream.ready and not ended and len(items) < AHEAD:
                    item = stream.take(0.0)
                    ended = item is END
                    if not ended:
                        items.append(item)
            except BaseException as error:  # noqa: BLE001 - what ended the generator is for its reader
                ended, end = True, failure_of(token, error)
            if not await self.send(token, number, items, end, ended=ended):
                # It may wait for what never comes, and who cancels it finds it gone after this.
                threads = self._threads.get(token)
                if threads is not None:
                    threads.cancel(stream, force=False)
                return

    async def send(
        self, token: str, number: int, items: list[Outcome], end: Failure | None, *, ended: bool = True
    ) -> bool:
        """Bring items, and the end of their generator; return whether somebody reads them."""
        held: list[Any] = []  # until the scheduler keeps them for the context: Dask forgets what nobody wants
        batch = [["item", *await self._portable(token, item, held)] for item in items]
        if end is not None:
            batch.append(["failed", bytes(end.data), []])
        elif ended:
            batch.append(["end", b"", []])
        sent: bool = await self.client.scheduler.fray_send(token=token, number=number, batch=batch)
        held.clear()
        return sent

    async def _portable(self, token: str, item: Outcome, held: list[Any]) -> list[Any]:
        """Return an item as bytes and the refs inside; a large one is a ref itself, without bytes.

        What keeps a large one in the cluster is added to `held`.
        """
        if isinstance(item, Failure):
            return [b"!" + bytes(item.data), []]
        if len(item.data) <= INLINE_LIMIT:
            return [b"=" + bytes(item.data), list(item.contained)]
        number = self.engine(token).new_number()
        scattered = await self.client.scatter(
            {key_of(token, number): item}, workers=[self.worker.address], direct=True, asynchronous=True
        )
        held.append(scattered)
        return [b"", [number]]


def _construct(label: str, function: bytes, args: bytes, values: Sequence[Outcome]) -> Any:
    life = current_life()
    assert life is not None
    life.label = label
    return _call(function, args, values)


def _call(function: bytes, args: bytes, values: Sequence[Outcome]) -> Any:
    positional, named = decode_call(args, [decode(value.data) for value in values])
    return decode_function(function)(*positional, **named)


def host_of(worker: Worker) -> Host:
    """Return what runs contexts' tasks in a worker."""
    found = worker.plugins.get(NAME)
    if not isinstance(found, Host):
        raise ObjectLostError(NAME, f"worker {worker.address} knows no contexts")
    return found


async def run_task(spec: bytes, *values: Outcome) -> Outcome:
    """Run a task in this worker: what contexts submit to Dask."""
    return await host_of(get_worker()).run(TaskSpec(*pickle.loads(spec)), values)


async def make_actor(spec: bytes, *values: Outcome) -> ActorHost:
    """Construct an actor in this worker: what contexts submit to Dask as an actor."""
    made = ActorSpec(*pickle.loads(spec))
    worker = get_worker()
    host = host_of(worker)
    engine, threads = host.engine(made.token), host.threads(made.token)
    engine.roles |= made.roles
    Slot(worker, key_of(made.token, made.number)).lend()
    names = {"token": made.token, "name": made.name, "number": made.number}
    if made.name:
        await host.client.scheduler.fray_made(**names)
    try:
        for value in values:
            if isinstance(value, Failure):
                raise decode_error(value.data)  # noqa: TRY301 - as if its constructor had raised it
        call = Call(functools.partial(_construct, made.label, made.function, made.args, values), (), {})
        options = ActorOptions(max_concurrency=made.max_concurrency)
        actor = await threads.soon(functools.partial(threads.create_actor, call, options))
    except BaseException as error:  # noqa: BLE001 - what its constructor raises is for who calls it
        if made.name:
            await host.client.scheduler.fray_forget(**names)
        return ActorHost(host, made, None, failure_of(made.token, error))
    actor.label = made.label
    await host.keep(engine, made.holds)
    return ActorHost(host, made, actor, None)


class ActorHost:
    """An actor in the worker that has it: Dask's actor, which runs the calls of Fray's."""

    def __init__(
        self, host: Host, spec: ActorSpec, actor: LocalActor | None, failure: Failure | None
    ) -> None:
        self._host = host
        self._spec = spec
        self._actor = actor
        self._failure = failure
        self._due: dict[str, int] = {}
        self._early: dict[tuple[str, int], asyncio.Event] = {}
        self._calls: dict[int, Any] = {}
        self._cancelled = CancelledCalls()
        """Those that don't run: they may be still to come."""
        if actor is not None:
            weakref.finalize(self, actor.end).atexit = False

    async def call(self, data: bytes) -> Outcome:
        """Run a call in its turn; return its outcome, or for a generator nothing once it has ended."""
        spec = CallSpec(*pickle.loads(data))
        await self._turn(spec.caller, spec.order)
        token, host = self._spec.token, self._host
        engine, threads = host.engine(token), host.threads(token)
        failure = self._failure or failure_of(token, ActorDiedError(self._spec.label, self._died_of))
        entry: Any = None
        try:
            if spec.number in self._cancelled:
                self._cancelled.discard(spec.number)
                failure = failure_of(token, TaskCancelledError(spec.name))
            elif self._actor is not None and not self._actor.dead:
                function = functools.partial(_call_method, engine, self._actor, spec)
                entry = self._calls[spec.number] = threads.call(function, spec, self._actor)
        except PoolClosedError:
            pass  # the context has ended, and its actors with it
        self._advance(spec.caller)
        if entry is None:
            if spec.streaming:
                await host.send(token, spec.number, [], failure)
            return failure
        try:
            if spec.streaming:
                await host.send_items(token, spec.number, entry)
                return Outcome(token, b"")
            await until_ready(entry)
        finally:
            self._calls.pop(spec.number, None)
        outcome: Outcome = entry.take(None)
        await host.keep(engine, spec.holds)
        if outcome.contained:
            keys = [key_of(token, number) for number in outcome.contained]
            await host.client.scheduler.fray_desire(keys=keys, client=spec.client)
        return outcome

    async def cancel(self, number: int) -> None:
        """Cancel a call that hasn't ended."""
        entry = self._calls.get(number)
        if entry is None:
            self._cancelled.add(number)
        else:
            self._host.threads(self._spec.token).cancel(entry, force=False)

    @property
    def _died_of(self) -> str:
        return "" if self._actor is None else self._actor.died_of

    async def kill(self) -> None:
        """End the actor: its calls that haven't ended fail."""
        if self._actor is not None:
            self._host.threads(self._spec.token).kill(self._actor)

    async def _turn(self, caller: str, order: int) -> None:
        """Return once all calls before it have started."""
        if self._due.setdefault(caller, 0) != order:
            event = self._early[caller, order] = asyncio.Event()
            await event.wait()

    def _advance(self, caller: str) -> None:
        self._due[caller] += 1
        event = self._early.pop((caller, self._due[caller]), None)
        if event is not None:
            event.set()


def _call_method(engine: DaskEngine, actor: LocalActor, spec: CallSpec) -> Any:
    values = [ObjectRef(engine, engine.refer(number))._take(None) for number in spec.deps]
    positional, named = decode_call(spec.args, values)
    return find_method(actor.instance, spec.method)(*positional, **named)


def cancel_task(token: str, number: int, dask_worker: Worker) -> None:
    """End a task of a context in a worker, and let it not begin if it hasn't."""
    host_of(dask_worker).cancel(token, number)


def count_running(token: str, dask_worker: Worker) -> int:
    """Return how many tasks and calls of a context a worker runs."""
    threads = host_of(dask_worker)._threads.get(token)
    return 0 if threads is None else threads.count_running()


def list_runs(token: str, dask_worker: Worker) -> list[Any]:
    """Return the last runs of a context's tasks in a worker."""
    threads = host_of(dask_worker)._threads.get(token)
    return [] if threads is None else threads.runs()


WORK = Work(run_task, make_actor, cancel_task, count_running, list_runs)


def forget_context(token: str, dask_worker: Worker) -> None:
    """End what a context has in a worker."""
    host_of(dask_worker).forget(token)
