"""One worker process: hears from the head, hands tasks to executor and actors, ends when the head is gone.

Made by `nanny`, which forks it and calls `run_worker`. Which task runs where is the head's decision; how a
task runs is `execution`'s.
"""

from __future__ import annotations

import contextvars
import gc
import importlib
import math
import os
import select
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import CoroutineType
from typing import Any, NoReturn

from fray.errors import HandshakeError, PeerUnreachableError, TransportError
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.current import RunningTask, current_task, shielded
from fray.runtime.pool.host_config import HostConfig
from fray.runtime.pool.message_codec import decode_messages
from fray.runtime.pool.messages.commands import (
    AnswerActor,
    CancelTask,
    CreateActor,
    Deliver,
    DeliverItems,
    EndActor,
    ForgetFunctions,
    LimitInline,
    ReclaimTasks,
    ResumeGenerator,
    RunTask,
    StopWorker,
)
from fray.runtime.pool.messages.events import (
    ItemsProduced,
    ObjectCopied,
    TaskBlocked,
    TaskDone,
    TasksReturned,
    TaskUnblocked,
)
from fray.runtime.pool.messages.greetings import HostAddresses, WorkerHello
from fray.runtime.pool.messages.specs import HostId, Inline, ObjectId, Profile, Shape, Stored, WorkerId
from fray.runtime.pool.objects.peers import PeerFetch
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.outbox import Outbox
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.worker.actor_host import ActorHost
from fray.runtime.pool.worker.coroutines import CoroutineLoop, TaskLoops
from fray.runtime.pool.worker.execution import Call, Execution, Session
from fray.runtime.pool.worker.executor import Executor, QueuedTask
from fray.runtime.pool.worker.failures import no_thread
from fray.runtime.pool.worker.functions import Functions
from fray.runtime.pool.worker.generators import Window, stream
from fray.runtime.pool.worker.memory_limit import MemoryLimit
from fray.runtime.pool.worker.standard_output import flush_output
from fray.runtime.pool.worker.threads import (
    ElasticThreads,
    let_threads_know_their_task,
    start_apart,
    threads_of_tasks,
)
from fray.vocabulary import EXIT_WORKER_ENDED, EXIT_WORKER_LOST_HEAD

__all__ = ["DRAIN", "run_worker"]

FLUSH_SECONDS = 1.0
"""How often an idle worker looks for references that were dropped."""
COLLECT_SHARE = 20
"""A garbage collection comes no sooner than after so many times the time that the last one took."""
WARN_SECONDS = 10.0
"""How long a worker that is to end waits for threads without a word."""
DRAIN = b"d"
"""Written to a worker's leash: it ends when it has ended what it runs."""


def run_worker(
    config: HostConfig,
    worker: WorkerId,
    profile: Profile,
    limit: MemoryLimit | None,
    *,
    store: HostStore,
    leash: int,
) -> NoReturn:
    """Be a worker until the end of this process; call it on the main thread.

    `limit` is told of what runs here, where that asks for so much `memory` and no more. `leash` is the
    reading end of a pipe from the nanny: DRAIN may come, or its end, at which this ends too.

    Raises `TransportError` if the head refuses it, and what `config.attach` raises.
    """
    connection = _connect(config)
    _Worker(config, worker, profile, limit, store, connection).run(leash)


def _connect(config: HostConfig) -> BlockingConnection:
    try:
        return BlockingConnection.connect(Address.parse(config.head), config.key)
    except (PeerUnreachableError, HandshakeError) as error:
        if isinstance(error, HandshakeError) and error.reason != "truncated":
            raise
        # The pool ends while this starts, mostly; if not, the nanny tells the head how this ended.
        _end_without_head()


class _Worker:
    def __init__(
        self,
        config: HostConfig,
        worker: WorkerId,
        profile: Profile,
        limit: MemoryLimit | None,
        store: HostStore,
        connection: BlockingConnection,
    ) -> None:
        self._config = config
        self._id = worker
        self._store = store
        self._connection = connection
        self._addresses: dict[HostId, str] = {}
        self._calls_left = profile.max_calls or -1
        self._draining = False
        self._warn_at = 0.0
        self._forgot = False
        self._collect_at = 0.0
        self._outbox = Outbox(connection, _end_without_head)
        self._client = PoolClient(worker, self._outbox.send, blocking=self._waiting)
        self._client.lend = self._lend
        self._client.post_added = self._outbox.defer
        fetch = PeerFetch(config.host, self._address_of, config.key, store, self._note_copied)
        objects = ObjectReader(config.host, store, fetch)
        session = Session(self._client, objects, contextvars.Context(), f"worker {worker} on {config.name}")
        session.context.run(_attach, config, self._client, objects)
        # The last reference to an object may go with the work itself, after its end was reported.
        self._threads = ElasticThreads("fray-task", self._client.flush)
        self._loops = TaskLoops()
        self._execution = Execution(session)
        self._functions = Functions()
        self._limit = limit
        self._windows: dict[ObjectId, Window] = {}
        self._executor = Executor(self._threads, self._outbox.send, self._outbox.send_soon, self._on_idle)
        self._actors = ActorHost(
            self._execution,
            self._threads,
            on_wait=_Calls(self._outbox.send),
            tell=self._tell_end,
            on_idle=self._on_idle,
        )
        self._handlers: dict[type, Callable[[Any], None]] = {
            RunTask: self._run_task,
            CreateActor: self._create_actor,
            EndActor: self._actors.end,
            CancelTask: self._cancel,
            ReclaimTasks: self._reclaim,
            ResumeGenerator: self._resume,
            ForgetFunctions: self._forget,
            HostAddresses: lambda news: news.update(self._addresses),
            # From the head itself it comes in order with tasks; from the nanny it may overtake them.
            StopWorker: lambda _: self._drain(),
            **dict.fromkeys(
                (Deliver, DeliverItems, AnswerActor, LimitInline), lambda news: self._client.deliver((news,))
            ),
        }

    def run(self, leash: int) -> NoReturn:
        os.register_at_fork(after_in_child=self._leave_to_parent)
        let_threads_know_their_task()
        start_apart(lambda: self._watch(leash), "fray-leash")
        start_apart(self._receive, "fray-reader")
        # The first task may need the main thread, so it is there before the head hears of this worker.
        self._threads.lend_this_thread(lambda: self._outbox.send(WorkerHello(self._id, os.getpid())))
        raise AssertionError("the main thread was lent for ever")

    def _leave_to_parent(self) -> None:
        # A child that user code forks must not write into the connection, nor keep it open.
        _cover(self._connection.fileno())
        self._client.close_in_fork()

    # --- threads of the worker's own -----------------------------------------------------------------------

    def _receive(self) -> None:
        handlers = self._handlers
        try:
            while True:
                for message in decode_messages(self._connection.receive().body):
                    handlers[type(message)](message)
        except TransportError:
            _end_without_head()
        except BaseException:  # noqa: BLE001 - reported, and the process ends
            # The worker can't hear any more: it would look alive, and do nothing.
            sys.excepthook(*sys.exc_info())
            os._exit(1)

    def _watch(self, leash: int) -> None:
        poll = select.poll()
        poll.register(leash, select.POLLIN)
        while True:
            if not poll.poll(FLUSH_SECONDS * 1000):
                # A thread that a task or an actor has started may drop a reference when nothing else is sent.
                self._client.flush()
                self._on_idle()
                if self._forgot and time.monotonic() >= self._collect_at:
                    with suppress(RuntimeError):  # no thread can be started now
                        self._threads.run(self._collect)
                        self._forgot = False
            elif order := os.read(leash, 1):
                if order == DRAIN:
                    self._drain()
            else:
                _end_without_head()

    def _collect(self) -> None:
        """Free functions that refer to themselves: they hold what they have captured until this is done."""
        begun = time.monotonic()
        if gc.isenabled():
            gc.collect()
        now = time.monotonic()
        self._collect_at = now + COLLECT_SHARE * (now - begun)

    def _drain(self) -> None:
        self._draining = True
        self._actors.ask_to_end()
        self._on_idle()

    def _on_idle(self) -> None:
        if not ((self._draining or self._calls_left == 0) and self._executor.idle and self._actors.idle):
            return
        if threads := threads_of_tasks():  # as any program does; `_watch` looks again
            self._warn_of_threads(threads)
            return
        self._client.flush()
        self._outbox.flush()
        flush_output()
        os._exit(EXIT_WORKER_ENDED)

    def _warn_of_threads(self, threads: Sequence[threading.Thread]) -> None:
        now = time.monotonic()
        if not self._warn_at:
            self._warn_at = now + WARN_SECONDS
        elif now > self._warn_at:
            self._warn_at = math.inf
            names = ", ".join(thread.name for thread in threads)
            sys.stderr.write(
                f"fray: worker {self._id} is to end and waits for threads that its tasks started: {names}. "
                "Join them in the task, or make them daemons\n"
            )

    # --- what the head says --------------------------------------------------------------------------------

    def _run_task(self, command: RunTask) -> None:
        spec = command.spec
        consume = self._consume
        if spec.streaming:
            self._windows[spec.id] = Window(spec.buffered, command.skip)
            consume = self._stream
        if spec.actor:
            self._actors.call(command, consume)
            return
        function = self._functions.learn(spec.function, command.blob)
        running = RunningTask(spec.id, spec.name, self._executor)
        call = Call(running, command, function.resolve, consume)
        task = QueuedTask(
            running,
            (command.client, spec.parent),
            spec.shape,
            lambda: self._run(call),
            lambda e: self._fail(call, e),
        )
        if command.waits:
            self._executor.wait(task)
        else:
            self._executor.open(task)

    def _run(self, call: Call) -> Callable[[ObjectId], None]:
        identity = call.running.id
        self._begin_limit(call.command.spec.shape)
        ended = self._execution.run(call)
        if self._limit is not None:
            self._limit.end()
        if self._calls_left > 0:
            self._calls_left -= 1
        return lambda started: self._tell_end(ended.as_message(identity, started), soon=started != 0)

    def _begin_limit(self, shape: Shape) -> None:
        if self._limit is not None:
            self._limit.begin(int(dict(shape)["memory"]))

    def _fail(self, call: Call, error: RuntimeError) -> None:
        """Tell the end of a task for which no thread can be started."""
        self._tell_end(TaskDone(call.running.id, no_thread(call.running.name, error)))

    def _create_actor(self, command: CreateActor) -> None:
        spec = command.spec
        self._begin_limit(spec.shape)  # its process ends with it
        self._actors.create(command, self._functions.learn(command.spec.function, command.blob))

    def _cancel(self, command: CancelTask) -> None:
        dropped = self._executor.cancel(command.id)
        if dropped is not None:
            self._tell_end(TaskDone(command.id, self._execution.cancelled(dropped.running.name)))
        else:
            self._actors.cancel(command.id)

    def _reclaim(self, command: ReclaimTasks) -> None:
        returned = self._executor.reclaim(command.most)
        for identity in returned:
            self._windows.pop(identity, None)
        self._outbox.send(TasksReturned(returned))

    def _resume(self, command: ResumeGenerator) -> None:
        window = self._windows.get(command.task)
        if window is not None:
            window.consume(command.taken)

    def _forget(self, command: ForgetFunctions) -> None:
        self._functions.forget(command.functions)
        # They may have held references.
        self._client.flush()
        self._forgot = True

    def _address_of(self, host: HostId) -> str | None:
        return self._addresses.get(host)

    def _note_copied(self, object_id: ObjectId, size: int) -> None:
        self._outbox.defer(ObjectCopied(object_id, self._config.host, size))

    def _waiting(self, wake: Callable[[], None]) -> AbstractContextManager[object]:
        task = self._waiting_task()
        return task.waiting(wake) if task is not None else nullcontext()

    def _lend(self) -> Callable[[], None]:
        task = self._waiting_task()
        return task.lend() if task is not None else lambda: None

    def _waiting_task(self) -> RunningTask | None:
        task = current_task()
        # A thread that one task has started may work for the next one, as those of an executor do.
        unknown = task is None or (task.ended and not task.interrupted)
        return (self._executor.borrow() or self._actors.borrow()) if unknown else task

    # --- what tasks need -----------------------------------------------------------------------------------

    def _tell_end(self, message: Any, *, soon: bool = False) -> None:
        """Tell of an end. `soon`: more work follows here, so that the message may wait for the next one."""
        if type(message) is TaskDone:
            self._windows.pop(message.id, None)
        if soon:
            self._outbox.send_soon(message)
        else:
            self._outbox.send(message)
        # References that the task held were dropped with its end.
        self._client.flush()

    def _consume(self, call: Call, value: Any) -> Any:
        if type(value) is not CoroutineType:
            return value
        with self._loop_of(call) as loop:
            return loop.result(value, call.running)

    def _loop_of(self, call: Call) -> AbstractContextManager[CoroutineLoop]:
        return self._loops.lend() if call.loop is None else nullcontext(call.loop)

    def _stream(self, call: Call, value: Any) -> int:
        command, running = call.command, call.running
        window = self._windows[running.id]
        with self._loop_of(call) as loop:
            items = loop.items(value, running) if isinstance(value, AsyncIterator) else value
            return stream(
                items, command.spec, skip=command.skip, window=window, sink=self, waiting=running.waiting
            )

    def new_id(self) -> ObjectId:
        """Return an identity for an item of a generator."""
        return self._client.new_id()

    def keep(self, id: ObjectId, value: Any, limit: int) -> Inline | Stored:  # noqa: A002
        """Return an item as it is sent."""
        with shielded():
            return self._execution.keep(id, value, limit)

    def tell(self, item: ItemsProduced) -> None:
        """Tell the head of an item, with those that follow closely."""
        self._outbox.send_soon(item)

    def flush(self) -> None:
        """Send what was deferred."""
        self._outbox.flush()


class _Calls:
    """Tells the head that a call of an actor waits: others may use its CPUs, and who waits can be asked."""

    def __init__(self, tell: Callable[[TaskBlocked | TaskUnblocked], None]) -> None:
        self._tell = tell

    def blocked(self, task: RunningTask) -> None:
        """See `OnWait`."""
        self._tell(TaskBlocked(task.id))

    def unblocked(self, task: RunningTask) -> None:
        """See `OnWait`."""
        self._tell(TaskUnblocked(task.id))


def _attach(config: HostConfig, client: PoolClient, objects: ObjectReader) -> None:
    if config.attach:
        module, _, name = config.attach.partition(":")
        getattr(importlib.import_module(module), name)(config.token, client, objects)


def _end_without_head() -> NoReturn:
    os._exit(EXIT_WORKER_LOST_HEAD)


def _cover(descriptor: int) -> None:
    """Put nothing in the place of a descriptor that belongs to the parent, so that its number stays taken."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
