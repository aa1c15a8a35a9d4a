"""What a worker does for its pool: hears from the head, and hands tasks to executor and actors.

Which task runs where is the head's decision; how a task runs is `execution`'s. What becomes of the process in
which it is, the subclass says: `process` for those that nannies make, `hosted` for one that users have made.
"""

from __future__ import annotations

import contextvars
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import CoroutineType
from typing import Any

from fray.errors import TransportError
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.current import RunningTask, current_task
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
from fray.runtime.pool.messages.specs import HostId, ObjectId, Shape, Value, WorkerId
from fray.runtime.pool.objects.peers import PeerFetch
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.outbox import Outbox
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.worker.actor_host import ActorHost
from fray.runtime.pool.worker.coroutines import CoroutineLoop, TaskLoops
from fray.runtime.pool.worker.execution import Call, Execution, Session
from fray.runtime.pool.worker.executor import Executor, QueuedTask
from fray.runtime.pool.worker.failures import no_thread
from fray.runtime.pool.worker.functions import Functions
from fray.runtime.pool.worker.generators import Window, stream
from fray.runtime.pool.worker.hearing import HearingTurn
from fray.runtime.pool.worker.memory_limit import MemoryLimit
from fray.runtime.pool.worker.threads import ElasticThreads, Inbox

__all__ = ["Worker"]


class Worker(ABC):
    """One worker of a pool.

    Parameters: its number; the `connection` to the head; the `store` of its `host`, and the pool's `key`, by
    which it reads those of other hosts; `name`, for people; `context`, of which each task runs in a copy;
    `max_calls`: how many tasks it runs, -1: any number; `limit` is told of what runs, where that asks for so
    much `memory` and no more; `daemon`: its threads don't keep the process.
    """

    def __init__(  # noqa: PLR0913 - a process's own, each of another kind
        self,
        worker: WorkerId,
        connection: BlockingConnection,
        store: HostStore,
        *,
        host: HostId,
        key: TransportKey,
        name: str,
        context: contextvars.Context,
        max_calls: int = -1,
        limit: MemoryLimit | None = None,
        daemon: bool = False,
    ) -> None:
        self.id = worker
        self._host = host
        self._connection = connection
        self._addresses: dict[HostId, str] = {}
        self._hearing = HearingTurn()
        self._calls_left = max_calls
        self._forgot = False
        self._outbox = Outbox(connection, self.lose_head)
        self.client = PoolClient(worker, self._outbox.send, blocking=self._waiting)
        self.client.lend = self._lend
        self.client.post_added = self._outbox.defer
        fetch = PeerFetch(host, self._address_of, key, store, self._note_copied)
        self.objects = ObjectReader(host, store, fetch)
        # The last reference to an object may go with the work itself, after its end was reported.
        self._threads = ElasticThreads("fray-task", self.client.flush, daemon=daemon)
        self._loops = TaskLoops()
        self._execution = Execution(Session(self.client, self.objects, context, name))
        self._functions = Functions()
        self._limit = limit
        self._windows: dict[ObjectId, Window] = {}
        self._executor = Executor(self._threads, self._outbox.send, self._outbox.send_soon, self.on_idle)
        self._actors = ActorHost(
            self._execution,
            self._threads,
            on_wait=_Calls(self._outbox.send),
            tell=self.tell_end,
            on_idle=self.on_idle,
            unbound=self._unbound,
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
            StopWorker: lambda _: self.drain(),
            **dict.fromkeys(
                (Deliver, DeliverItems, AnswerActor, LimitInline), lambda news: self.client.deliver((news,))
            ),
        }

    # --- what the process is to do -------------------------------------------------------------------------

    @abstractmethod
    def lose_head(self) -> None:
        """Take note that the connection to the head has ended, from any thread."""

    @abstractmethod
    def drain(self) -> None:
        """End once nothing runs."""

    @abstractmethod
    def on_idle(self) -> None:
        """Take note that a task, a call or an actor has ended."""

    def greet(self) -> None:
        """Tell the head that it is there: work may come from here on."""
        self._outbox.send(WorkerHello(self.id, os.getpid()))

    def receive(self) -> None:
        """Do what the head says, until the connection has ended. Raises what must not happen."""
        try:
            while True:
                self._do(self._hearing.await_turn() or self._hear())
        except TransportError:
            self.lose_head()

    def _hear(self) -> list[Any]:
        """Return all that has come from the head, once something has."""
        heard: list[Any] = []
        for frame in self._connection.receive_all():
            heard += decode_messages(frame.body)
        return heard

    def _do(self, heard: list[Any]) -> None:
        """Do what the head says; after a call that came alone, lend the turn."""
        for message in heard:
            self._handlers[type(message)](message)
        if _is_lone_call(heard):
            self._lend_turn()

    def _lend_turn(self) -> bool:
        """Let the thread of a lone actor hear what comes next, if no call waits.

        Not while another thread waits for what may come: the call may take long.
        """
        inbox = None if self.client.waits else self._actors.find_idle_inbox()
        if inbox is None:
            return False
        loan = self._hearing.lend()
        inbox.put(partial(self._hear_in, inbox, loan))
        return True

    def _hear_in(self, inbox: Inbox, loan: int) -> None:
        """Hear a call in an actor's thread, unless it has something else to do.

        All else that comes is left to the reader: threads that start here would have what the actor's code
        has made of this one, its priority, its processors and its mask of signals.
        """
        if not self._hearing.take_up(loan):
            return
        left: list[Any] = []
        problem: BaseException | None = None
        try:
            # In this order: a call that waited and is started meanwhile is seen in the inbox.
            if self._actors.find_idle_inbox() is inbox and inbox.empty():
                left = self._hear()
                if _is_lone_call(left):
                    self._run_task(left.pop())
                    if self._lend_turn():
                        return
        except BaseException as error:  # noqa: BLE001 - the reader raises it
            problem = error
        self._hearing.give_back(left, problem)

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
        self._begin_limit(call.command.spec.shape)
        done = self._execution.run(call)
        if self._limit is not None:
            self._limit.end()
        if self._calls_left > 0:
            self._calls_left -= 1
        return lambda started: self.tell_end(
            done._replace(started=started) if started else done, soon=started != 0
        )

    def _fail(self, call: Call, error: RuntimeError) -> None:
        """Tell the end of a task for which no thread can be started."""
        self.tell_end(TaskDone(call.running.id, no_thread(call.running.name, error)))

    def _begin_limit(self, shape: Shape) -> None:
        if self._limit is not None:
            self._limit.begin(int(dict(shape)["memory"]))

    def _create_actor(self, command: CreateActor) -> None:
        spec = command.spec
        self._begin_limit(spec.shape)  # its process ends with it
        self._actors.create(command, self._functions.learn(command.spec.function, command.blob))

    def _cancel(self, command: CancelTask) -> None:
        dropped = self._executor.cancel(command.id)
        if dropped is not None:
            self.tell_end(TaskDone(command.id, self._execution.cancelled(dropped.running.name)))
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

    def _unbound(self, task: ObjectId) -> None:
        window = self._windows.get(task)
        if window is not None:
            window.unbound()

    def _forget(self, command: ForgetFunctions) -> None:
        self._functions.forget(command.functions)
        # They may have held references.
        self.client.flush()
        self._forgot = True

    def _address_of(self, host: HostId) -> str | None:
        return self._addresses.get(host)

    def _note_copied(self, object_id: ObjectId, size: int) -> None:
        self._outbox.defer(ObjectCopied(object_id, self._host, size))

    def _waiting(self, wake: Callable[[], None]) -> AbstractContextManager[object]:
        self._hearing.recall()
        task = self._waiting_task()
        return task.waiting(wake) if task is not None else nullcontext()

    def _lend(self) -> Callable[[], None]:
        self._hearing.recall()
        task = self._waiting_task()
        return task.lend() if task is not None else lambda: None

    def _waiting_task(self) -> RunningTask | None:
        task = current_task()
        # A thread that one task has started may work for the next one, as those of an executor do.
        unknown = task is None or (task.ended and not task.interrupted)
        return (self._executor.borrow() or self._actors.borrow()) if unknown else task

    # --- what tasks need -----------------------------------------------------------------------------------

    def tell_end(self, message: Any, *, soon: bool = False) -> None:
        """Tell of an end. `soon`: more work follows here, so that the message may wait for the next one."""
        if type(message) is TaskDone:
            self._windows.pop(message.id, None)
        if soon:
            self._outbox.send_soon(message)
        else:
            self._outbox.send(message)
        # References that the task held were dropped with its end.
        self.client.flush()

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
        return self.client.new_id()

    def keep(self, id: ObjectId, value: Any, limit: int) -> Value:  # noqa: A002
        """Return an item as it is sent."""
        return self._execution.keep(id, value, limit)

    def tell(self, item: ItemsProduced) -> None:
        """Tell the head of an item, with those that follow closely."""
        self._outbox.send_soon(item)

    def flush(self) -> None:
        """Send what was deferred."""
        self._outbox.flush()


def _is_lone_call(heard: list[Any]) -> bool:
    return len(heard) == 1 and type(heard[0]) is RunTask and not heard[0].spec.streaming


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
