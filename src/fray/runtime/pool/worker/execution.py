"""Running one task: from its arguments as bytes to its outcome as bytes, in a copy of the worker's context.

When and in which thread is decided by the executor and actors. Nothing here knows the connection to the head.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fray.payload.values.exceptions import encode_error
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.current import RunningTask, TaskInterrupt, set_current_task, shielded
from fray.runtime.pool.messages.commands import CreateActor, RunTask
from fray.runtime.pool.messages.events import TaskDone
from fray.runtime.pool.messages.specs import Failed, Inline, ObjectId, Outcome, Stored, TaskSpec, Value
from fray.runtime.pool.objects.calls import decode_call
from fray.runtime.pool.objects.flat_format import HEADER, Encoded, pack
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.objects.values import decode, encode_other, pickle_plain
from fray.runtime.pool.worker.coroutines import CoroutineLoop
from fray.runtime.pool.worker.failures import build_failure
from fray.runtime.pool.worker.forks import ForkGuard

__all__ = ["Call", "Execution", "Invoke", "Session"]

Invoke = Callable[[tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True)
class Session:
    """What code of tasks shares in this process."""

    client: PoolClient
    objects: ObjectReader
    context: contextvars.Context
    """Each task runs in a copy of it."""
    worker: str
    """This process, in words."""


class Call(NamedTuple):
    """One run of a task or method."""

    running: RunningTask
    command: RunTask
    resolve: Callable[[], Callable[..., Any]]
    """Gives what is to be called; may import modules, may raise."""
    consume: Callable[[Call, Any], Any] | None = None
    """Turns what was returned into the value, within the task: for generators and coroutines."""
    loop: CoroutineLoop | None = None
    """The actor's event loop; None: a task has one to itself while it runs."""


class Execution:
    """Runs tasks of one process. Parameters: the `session` that they share."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._forks = ForkGuard()

    def run(self, call: Call) -> TaskDone:
        """Run a task in this thread and return how it ended, as if none took its place; never raises."""
        began, start = time.time(), time.perf_counter()
        retry = False
        outcome: Outcome
        try:
            outcome = self._session.context.copy().run(self._run, call)
        except TaskInterrupt:
            outcome = self.cancelled(call.running.name)
        except BaseException as error:  # noqa: BLE001 - also SystemExit ends the task, not the worker
            outcome, retry = self.failed(call.command.spec, error)
        call.running.ended = True
        return TaskDone(call.running.id, outcome, 0, began, time.perf_counter() - start, retry)

    async def run_async(self, call: Call) -> TaskDone:
        """Run a method on the running loop, to which it may be async, and return how it ended; never raises.

        The caller has made the asyncio task with a context of its own (`new_context`).
        """
        began, start = time.time(), time.perf_counter()
        retry = False
        outcome: Outcome
        spec, running = call.command.spec, call.running
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        assert this is not None
        set_current_task(running)
        try:
            # Not in a coroutine of its own: a StopIteration that the method raises wouldn't come out of it.
            with running.woken_by(lambda: _cancel(loop, this)):
                function = call.resolve()
                args, kwargs = self._arguments(call.command)
                with self._forks:
                    value = function(*args, **kwargs)
                    value = await value if inspect.isawaitable(value) else value
            outcome = self.keep(spec.id, value)
        except TaskInterrupt:
            outcome = self.cancelled(spec.name)
        except BaseException as error:  # noqa: BLE001 - as in `run`
            outcome, retry = self._failed_async(call, error)
        running.ended = True
        return TaskDone(spec.id, outcome, 0, began, time.perf_counter() - start, retry)

    def ended_unrun(self, call: Call) -> TaskDone:
        """Return how a method ended whose coroutine was cancelled before `run_async` began."""
        call.running.ended = True
        outcome, retry = self._failed_async(call, asyncio.CancelledError())
        return TaskDone(call.running.id, outcome, 0, time.time(), 0.0, retry)

    def new_context(self) -> contextvars.Context:
        """Return a context for code that isn't run by `run`."""
        return self._session.context.copy()

    def construct(
        self, running: RunningTask, command: CreateActor, resolve: Callable[[], Callable[..., Any]]
    ) -> Any:
        """Return the object that an actor's class makes of its arguments.

        Raises what the class raises, or `TaskInterrupt`.
        """

        def build() -> Any:
            set_current_task(running)
            made_by = resolve()
            args, kwargs = self._arguments(command)
            try:
                running.enter()
                with self._forks:
                    return made_by(*args, **kwargs)
            finally:
                running.leave()

        return self._session.context.copy().run(build)

    def keep(self, id: ObjectId, value: Any, limit: int | None = None) -> Value:  # noqa: A002
        """Return a value as it is sent: in the message up to `limit` bytes, else from this host's store.

        Without a limit, the client's counts.

        Raises `SerializationError` or `StoreFullError`.
        """
        limit = self._session.client.inline_limit if limit is None else limit
        plain = pickle_plain(value)
        if plain is not None and HEADER.size + len(plain) <= limit:
            return pack(plain)
        # A generator's task may be interrupted between two items, but not within this.
        with shielded():
            encoded = Encoded(plain, [], ()) if plain is not None else encode_other(value, what="the result")
            if encoded.size <= limit:
                return encoded.to_value()
            return self._session.objects.write(id, encoded)

    def cancelled(self, name: str) -> Failed:
        """Return the outcome of a task called `name` that was asked to end."""
        return Failed(b"", "TaskCancelledError", name)

    def failed(self, spec: TaskSpec, error: BaseException) -> tuple[Failed, bool]:
        """Return the outcome of a task that raised, and whether its options say to try it again."""
        retry = spec.retry_exceptions > 0 and isinstance(error, Exception)
        if retry and spec.retry_on:
            try:
                retry = isinstance(error, decode(spec.retry_on, what="retry_exceptions"))
            except Exception as problem:  # noqa: BLE001 - the classes may not be importable here
                problem.__cause__ = error
                return self.error(problem, spec.name), False
        return self.error(error, spec.name), retry

    def _failed_async(self, call: Call, error: BaseException) -> tuple[Failed, bool]:
        """Return the outcome of an async method: it is cancelled only where that was asked for."""
        if call.running.interrupted and isinstance(error, asyncio.CancelledError):
            return self.cancelled(call.running.name), False
        return self.failed(call.command.spec, error)

    def error(self, error: BaseException, name: str) -> Failed:
        """Return what a task or actor called `name` raised, as an outcome."""
        return Failed(encode_error(error, task=name, worker=self._session.worker), name=name)

    def _run(self, call: Call) -> Value:
        set_current_task(call.running)
        function = call.resolve()
        args, kwargs = self._arguments(call.command)
        running = call.running
        try:
            # Only user code is interrupted: an exception out of nowhere would leave this code half done.
            running.enter()
            with self._forks:
                value = function(*args, **kwargs)
                if call.consume is not None:
                    value = call.consume(call, value)
        finally:
            running.leave()
        return self.keep(running.id, value)

    def _arguments(self, command: RunTask | CreateActor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        spec = command.spec
        if not spec.deps:
            return decode_call(spec.args, ())
        values = [self._read(each, kept) for each, kept in zip(spec.deps, command.deps, strict=True)]
        return decode_call(spec.args, values)

    def _read(self, id: ObjectId, kept: Value) -> Any:  # noqa: A002
        if type(kept) is bytes:
            return decode(kept)
        if isinstance(kept, Inline):
            return decode(kept.data)
        data = self._session.objects.read(id, kept.host)  # type: ignore[union-attr]
        return self._read_elsewhere(id) if isinstance(data, str) else decode(data)

    def _read_elsewhere(self, id: ObjectId) -> Any:  # noqa: A002
        """Read an argument that wasn't where it was said to be; the head finds or makes it again."""
        client, objects = self._session.client, self._session.objects
        entry = client.refer(id)
        try:
            while True:
                outcome = client.await_outcome(entry, None, f"object {id:x}")
                if isinstance(outcome, Failed):
                    raise build_failure(outcome)
                if not isinstance(outcome, Stored):
                    return self._read(id, outcome)
                data = objects.read(id, outcome.host)
                if not isinstance(data, str):
                    return decode(data)
                client.reject(entry, outcome, data)
        finally:
            client.drop(entry)


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    loop.call_soon_threadsafe(task.cancel)
