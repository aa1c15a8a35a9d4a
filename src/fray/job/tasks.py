"""One task of an in-process context, and how it is run: arguments, retries, and where its result goes.

Which thread runs it, and when, is the context's business.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fray.job.calls import Call
from fray.job.cells import Waitable
from fray.job.options import TaskOptions
from fray.job.refs import ObjectRef
from fray.job.streams import BufferedStream
from fray.job.workers import Slot

if TYPE_CHECKING:
    from fray.runtime.loop_thread import RunningCoroutine

__all__ = ["Task", "TimeLimit", "make_generator", "retry_wanted", "run_task"]


@dataclass(eq=False)
class Task:
    """A call on its way to its result. `variables` are the context variables that it sees.

    `actor` is the name of the actor whose method it calls; `start_coroutine` starts what an async function
    returns (None: it gets a loop of its own). `slot` is set while it runs, if it may be given up. `timer`
    ends a call of an actor whose time began before it runs, at that time of `time.monotonic`. `submitted`
    and `began` are seconds since the epoch, `row` numbers the thread that it began in: for a timeline.
    """

    id: str
    name: str
    call: Call
    options: TaskOptions
    variables: Context
    result: Waitable
    actor: str | None = None
    start_coroutine: Callable[[Coroutine[Any, Any, Any]], RunningCoroutine[Any]] | None = None
    running_coroutine: RunningCoroutine[Any] | None = None
    interrupted: bool = False
    slot: Slot | None = None
    timer: tuple[threading.Timer, float] | None = None
    submitted: float = 0.0
    began: float = 0.0
    row: int = 0

    def interrupt(self) -> None:
        """Cancel the coroutine that it awaits, now or later; other code can't be ended."""
        # In this order, as `_await` has the other: one of the two sees what the other has done.
        self.interrupted = True
        if self.running_coroutine is not None:
            self.running_coroutine.cancel()


TimeLimit = Callable[[Task], AbstractContextManager[None]]
"""Makes what surrounds each run of a task, and ends its result when that takes too long."""


def run_task(task: Task, limit: TimeLimit) -> tuple[Any, BaseException | None]:
    """Run the task; return its value and None, or None and its exception. Items go to its stream."""
    try:
        return task.variables.run(_attempt, task, limit), None
    except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the reader of the result
        return None, error


def make_generator(task: Task) -> Generator[Any, Any, Any]:
    """Call the task's generator function with its arguments as values."""
    args, kwargs = _values(task.call)
    generator: Generator[Any, Any, Any] | AsyncGenerator[Any, Any] = task.call.function(*args, **kwargs)
    if isinstance(generator, AsyncGenerator):
        return _iterate(generator, task)
    return generator


def retry_wanted(options: TaskOptions, attempts: int, error: BaseException) -> bool:
    """Return whether a task that raised `error` in the last of so many attempts is run again."""
    if attempts > options.retries or options.retry_exceptions is False:
        return False
    if options.retry_exceptions is True:
        return isinstance(error, Exception)
    return isinstance(error, options.retry_exceptions)


def _attempt(task: Task, limit: TimeLimit) -> Any:
    if isinstance(task.result, BufferedStream):
        with limit(task):
            task.result.fill(make_generator(task))
        return None
    args, kwargs = _values(task.call)
    attempts = 0
    while True:
        attempts += 1
        try:
            with limit(task):
                value = task.call.function(*args, **kwargs)
                if inspect.iscoroutine(value):
                    value = _await(task, value)
        except BaseException as error:
            if task.result.ready or not retry_wanted(task.options, attempts, error):
                raise
        else:
            return value


def _await(task: Task, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end; an actor's is cancelled when its task is ended from outside."""
    if task.start_coroutine is None:
        import asyncio  # noqa: PLC0415 - it costs what few tasks need

        return asyncio.run(coroutine)
    task.running_coroutine = task.start_coroutine(coroutine)
    if task.interrupted:
        task.running_coroutine.cancel()
    return task.running_coroutine.result(own=True)


def _iterate(source: AsyncGenerator[Any, Any], task: Task) -> Generator[Any, Any, Any]:
    """Give the items of an async generator, each awaited in the actor's loop, or all in one of their own."""
    import asyncio  # noqa: PLC0415 - it costs what few tasks need

    from fray.runtime.loop_thread import iterate  # noqa: PLC0415 - which needs asyncio, too

    start = task.start_coroutine
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(asyncio.Runner()).run if start is None else partial(_await, task)
        # What ends the generator isn't cancelled with its task.
        stack.callback(lambda: run(_end(source)) if start is None else start(_end(source)).result())
        yield from iterate(source, run)


async def _end(source: AsyncGenerator[Any, Any]) -> None:
    await source.aclose()


def _values(call: Call) -> tuple[list[Any], dict[str, Any]]:
    return [_value(item) for item in call.args], {key: _value(item) for key, item in call.kwargs.items()}


def _value(argument: Any) -> Any:
    return argument._take(None) if isinstance(argument, ObjectRef) else argument
