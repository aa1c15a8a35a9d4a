"""What Ray's workers run for a context: tasks, generators, and the actor that hosts a user's object.

Each call gets the engine of its context as its first argument: reading that argument makes the engine known
in the worker. Refs among the arguments have been resolved by Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

from fray.errors import TaskCancelledError, TaskTimeoutError
from fray.job.actor_methods import ActorMethods
from fray.job.cancelled import CancelledCalls
from fray.job.current import use
from fray.job.engine import Engine
from fray.job.options import TaskOptions
from fray.job.progress_display import turn_off
from fray.job.ray_failures import ConstructorFailedError, RetriedFailureError, TaskFailureError, TimeUp
from fray.job.tasks import retry_wanted
from fray.runtime.actor_life import ActorLife, find_method, set_current_life
from fray.runtime.loop_thread import LoopThread, RunningCoroutine, iterate
from fray.vocabulary import EXIT_FAILURE

__all__ = ["CONTROL", "ActorHost", "RayTask", "raise_error", "run_stream", "run_task"]

CONTROL = "control"
"""The thread of an actor that serves Fray's own calls, while the actor is busy."""


class RayTask(NamedTuple):
    """What a worker is told of a task, besides its function and arguments."""

    name: str
    timeout: float | None
    retry_exceptions: bool | tuple[type[BaseException], ...]


def run_task(engine: Engine, task: RayTask, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a task to its result; what it raises goes as data."""
    with _failures_as_data(task), _in_context(engine), _time_limit(task):
        value = function(*args, **kwargs)
        return asyncio.run(value) if inspect.iscoroutine(value) else value


def run_stream(
    engine: Engine, task: RayTask, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Iterator[Any]:
    """Yield two objects for each item of a generator: None and the item. A failure comes in place of None.

    So who reads the items learns of a failure without fetching them.
    """
    with _in_context(engine), _time_limit(task), contextlib.ExitStack() as stack:
        items: Any
        try:
            items = function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to the reader of the items
            yield TaskFailureError.of(error, task.name)
            return
        if isinstance(items, AsyncGenerator):
            runner = stack.enter_context(asyncio.Runner())
            stack.callback(runner.run, _end(items))
            items = iterate(items, runner.run)
        yield from _paired(items, task.name)


def raise_error(error: BaseException) -> Any:
    """Fail a task with an error that its caller has met already."""
    raise error


class ActorHost:
    """Holds a user's object as an actor of Ray, and runs the calls of its methods."""

    def __init__(
        self, engine: Engine, label: str, made_by: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> None:
        self._engine = engine
        self._label = label
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._coroutines: dict[str, RunningCoroutine[Any]] = {}
        self._cancelled = CancelledCalls()
        self._constructed = False
        self._early: BaseException | None = None
        """What code of its constructor has said that it fails with."""
        try:
            with _in_context(engine):
                set_current_life(ActorLife(self._end_life, label=label))
                self._instance = made_by(*args, **kwargs)
            self._constructed = True
            if self._early is not None:
                raise self._early  # noqa: TRY301 - as if its constructor had raised it
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the actor's callers
            raise ConstructorFailedError.of(error, label) from None

    def _end_life(self, error: BaseException | None) -> None:
        """End this process, which has this actor alone; Ray starts it again after an error, if it may."""
        if error is not None and not self._constructed:
            self._early = self._early or error
            return
        if error is None:
            import ray  # noqa: PLC0415 - it is there: this is a process of Ray's

            ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
            return
        traceback.print_exception(error)
        sys.stderr.flush()
        os._exit(EXIT_FAILURE)

    def methods(self) -> ActorMethods:
        """Return what handles of the actor know of it, for who has found it by its name."""
        kind = type(self._instance)
        return ActorMethods.of(kind, kind.__name__, self._label)

    def cancel(self, call: str) -> None:
        """Let a call not start, or end at its next `await`; other code can't be ended."""
        with self._lock:
            self._cancelled.add(call)
            running = self._coroutines.get(call)
        if running is not None:
            running.cancel()

    def call(self, call: str, task: RayTask, method: str, *args: Any, **kwargs: Any) -> Any:
        """Run a method to its result."""
        with _failures_as_data(task), _in_context(self._engine), self._cancellable(call, task):
            value = find_method(self._instance, method)(*args, **kwargs)
            return self._await(call, value) if inspect.iscoroutine(value) else value

    def stream(self, call: str, task: RayTask, method: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Yield two objects for each item of a generator method, as `run_stream` does."""
        with _in_context(self._engine):
            try:
                with self._cancellable(call, task):
                    source = find_method(self._instance, method)(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - see `run_stream`
                yield TaskFailureError.of(error, task.name)
                return
            if not isinstance(source, AsyncGenerator):
                yield from _paired(self._until_cancelled(call, task, source), task.name)
                return
            with contextlib.ExitStack() as stack:
                # What ends the generator isn't cancelled with its call.
                stack.callback(lambda: self._start(_end(source)).result())
                items = iterate(source, lambda step: self._await(call, step))
                yield from _paired(self._until_cancelled(call, task, items), task.name)

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> RunningCoroutine[Any]:
        with self._lock:
            if self._loop is None:
                self._loop = LoopThread(f"actor {self._label} event loop")
            return self._loop.start(coroutine)

    def _await(self, call: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        running = self._start(coroutine)
        with self._lock:
            self._coroutines[call] = running
            cancelled = call in self._cancelled
        if cancelled:
            running.cancel()
        try:
            return running.result()
        finally:
            with self._lock:
                del self._coroutines[call]

    @contextlib.contextmanager
    def _cancellable(self, call: str, task: RayTask) -> Iterator[None]:
        self._check(call, task)
        try:
            yield
        except CancelledError:
            self._check(call, task)
            raise
        self._check(call, task)

    def _check(self, call: str, task: RayTask) -> None:
        with self._lock:
            cancelled = call in self._cancelled
        if cancelled:
            raise TaskCancelledError(task.name)

    def _until_cancelled(self, call: str, task: RayTask, items: Iterator[Any]) -> Iterator[Any]:
        with self._cancellable(call, task):
            for item in items:
                self._check(call, task)
                yield item


def _paired(items: Iterator[Any], task: str) -> Iterator[Any]:
    try:
        for item in items:
            yield None
            yield item
    except TimeUp as end:
        yield TaskFailureError.of(TaskTimeoutError(task, end.seconds), task)
    except (GeneratorExit, KeyboardInterrupt):  # nobody reads it any more, and how Ray cancels a task
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the reader of the items
        yield TaskFailureError.of(error, task)


async def _end(source: AsyncGenerator[Any, Any]) -> None:
    await source.aclose()


@contextlib.contextmanager
def _in_context(engine: Engine) -> Iterator[None]:
    turn_off()
    use(engine)
    yield


@contextlib.contextmanager
def _failures_as_data(task: RayTask) -> Iterator[None]:
    try:
        yield
    except TimeUp as end:
        raise TaskFailureError.of(TaskTimeoutError(task.name, end.seconds), task.name) from None
    except KeyboardInterrupt:  # how Ray cancels a task
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the reader of the result
        asked = TaskOptions(retries=1, retry_exceptions=task.retry_exceptions)
        kind = RetriedFailureError if retry_wanted(asked, 1, error) else TaskFailureError
        raise kind.of(error, task.name) from None


@contextlib.contextmanager
def _time_limit(task: RayTask) -> Iterator[None]:
    """Raise `TimeUp` in the block when the task's time is up; tasks run in their process's main thread."""
    if task.timeout is None:
        yield
        return
    limit = task.timeout

    def end(*_: Any) -> None:
        raise TimeUp(task.name, limit)

    due = time.monotonic() + limit
    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, limit)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if time.monotonic() > due:
        raise TimeUp(task.name, limit)
