"""An event loop in a thread of its own, for threads that have none: they hand it coroutines, and may wait.

Started by the first call, ended by `close`. What the coroutines do, and whose they are, isn't known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import selectors
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from typing import Any, Generic, TypeVar

__all__ = ["LoopThread", "RunningCoroutine", "iterate"]

T = TypeVar("T")

CLEANUP_SECONDS = 15.0
"""How long a call that was interrupted, or the end of the thread, may take to clean up."""
SIGNAL_SECONDS = 1.0
"""How late the main thread may hear of a signal."""
CLOSE_SECONDS = 2.0
"""How long connections may take to close."""

_AT_END = object()
_OF_COROUTINES = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_inherited: list[object] = []
"""Loops of the process that this one was forked from. A loop that is collected closes its selector, which the
two processes share, so they are kept."""


class RunningCoroutine(Generic[T]):
    """A coroutine on the loop of another thread, from its start to its true end, also when it is cancelled.

    A future of `asyncio.run_coroutine_threadsafe` counts as cancelled before the coroutine has ended.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], context: contextvars.Context | None = None) -> None:
        self._coroutine, self._context = coroutine, context
        self.loop: _Loop | None = None
        """Where it runs; None before it was handed over."""
        self.cancelled = False
        """Whether somebody wants it to end, or its loop has ended."""
        self._task: asyncio.Task[T] | None = None
        self._ended: Future[T] = Future()

    @property
    def succeeded(self) -> bool:
        """Whether it has returned a value."""
        return self._ended.done() and self._ended.exception() is None

    @property
    def failed(self) -> bool:
        """Whether it has ended with an error, or was cancelled."""
        return self._ended.done() and self._ended.exception() is not None

    def cancel(self) -> None:
        """Let it raise `asyncio.CancelledError` where it awaits, unless it has ended."""
        self.cancelled = True
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed, which has cancelled all in it
                self.loop.asyncio.call_soon_threadsafe(self._cancel)

    def result(self, *, own: bool = False) -> T:
        """Return its value once it has ended.

        Raises what it raises, and `concurrent.futures.CancelledError` where it was cancelled, or ended as if
        it were; with `own`, an `asyncio.CancelledError` that is the code's own doing is raised as it is.
        """
        # A lock alone, since a signal within a Condition may leave that locked. With a limit, since a
        # signal that comes just before the main thread goes to sleep doesn't wake it.
        limit = SIGNAL_SECONDS if threading.current_thread() is threading.main_thread() else -1
        ended = threading.Lock()
        ended.acquire()
        self._ended.add_done_callback(lambda _: ended.release())
        try:
            while not ended.acquire(timeout=limit):
                pass
            return self._ended.result()
        except CancelledError as error:
            if own and not self.cancelled and error.__cause__ is not None:
                raise error.__cause__ from None
            raise
        finally:
            del self  # it and the traceback of its error would keep each other

    def then(self, end: Callable[[Exception | None], None]) -> None:
        """Call `end` with how it ended, on the loop: None, or what `result` raises."""
        self._ended.add_done_callback(lambda ended: end(ended.exception()))  # type: ignore[arg-type]

    def wait(self, seconds: float) -> None:
        """Return once it has ended, and after so many seconds at the latest."""
        wait([self._ended], seconds)

    def begin(self, loop: _Loop) -> None:
        """Start it on a loop, in the caller's context variables; coroutines begin in the order of calls."""
        self.loop = loop
        loop.asyncio.call_soon_threadsafe(self._begin, loop)

    def discard(self) -> bool:
        """Let it never start, where no loop has it yet; return whether that is so."""
        if self.loop is None:
            self._coroutine.close()
        return self.loop is None

    # --- on the loop ---------------------------------------------------------------------------------------

    def _begin(self, loop: _Loop) -> None:
        loop.coroutines.add(self)  # asyncio itself refers to its tasks weakly
        self._task = loop.asyncio.create_task(self._coroutine, context=self._context)
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:  # its caller was interrupted between the two halves of `begin`
            self._coroutine.close()
            self._ended.set_exception(CancelledError())

    def _end(self, task: asyncio.Task[T]) -> None:
        if self.loop is not None:
            self.loop.coroutines.discard(self)
        error: BaseException | None
        try:
            error = task.exception()
        except asyncio.CancelledError as raised:
            error = CancelledError()
            error.__cause__ = raised.with_traceback(None)  # which would keep this frame
        if error is not None:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(task.result())


class _Loop:
    """A loop with its thread, in one process."""

    def __init__(self, selector: selectors.BaseSelector | None) -> None:
        self.process = os.getpid()
        self.selector = selector
        self.asyncio: asyncio.AbstractEventLoop = (
            asyncio.new_event_loop() if selector is None else asyncio.SelectorEventLoop(selector)
        )
        self.coroutines: set[RunningCoroutine[Any]] = set()
        """Those that run; only the loop's thread touches it."""
        self.thread: threading.Thread | None = None


class LoopThread:
    """A loop in a thread. Methods may be called from any thread, and after a fork from the child too.

    A loop that was closed begins anew with the next call; so does that of a child after a fork.

    Args:
        name: Of the thread.
        on_end: Called on the loop at its end, to close what lives on it. A loop that begins anew may run
            at the same time.
        closed: Returns what is raised to callers whose coroutine was cancelled because the loop ended.
        cancels: Whether the end cancels what still runs; else it is left where it is.
    """

    def __init__(
        self,
        name: str,
        *,
        on_end: Callable[[], Awaitable[None]] | None = None,
        closed: Callable[[], Exception] = CancelledError,
        cancels: bool = True,
    ) -> None:
        self._name, self._on_end, self._closed, self._cancels = name, on_end, closed, cancels
        # Entered again by a thread within it that the garbage collector makes close another object.
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._running: _Loop | None = None

    @property
    def belongs_here(self) -> bool:
        """Whether this is the process that made it, and not a fork of that."""
        return self._process == os.getpid()

    def run(
        self,
        coroutine: Coroutine[Any, Any, T],
        undo: Callable[[T], Coroutine[Any, Any, None]] | None = None,
        *,
        beside: RunningCoroutine[Any] | None = None,
    ) -> T:
        """Run a coroutine on the loop, and return what it returns or raise what it raises.

        When the caller is interrupted (Ctrl-C) while the coroutine runs, it is cancelled, and has some
        seconds to clean up. Where it had returned before, `undo` is run with its value, which the caller
        never gets; an error of `undo` becomes a note of the interruption.

        With `beside` it runs on the very loop of that coroutine, or not at all. Raises `closed()` where
        another thread has closed the loop.
        """
        running = RunningCoroutine(coroutine)
        try:
            self._hand_over(running, beside)
            return running.result()
        except CancelledError:
            raise self._closed() from None
        except BaseException as error:
            if running.failed:
                raise
            # An interruption, which may come at any point from the first line on. A signal that another
            # thread takes is raised here up to `SIGNAL_SECONDS` later, so the coroutine may have ended.
            if running.discard():
                raise
            running.cancel()
            running.wait(CLEANUP_SECONDS)
            if undo is not None and running.succeeded:
                try:
                    self.run(undo(running.result()))
                except Exception as failure:  # noqa: BLE001 - the interruption is raised, and tells it
                    error.add_note(str(failure))
            raise
        finally:
            del running  # it and the traceback of its error would keep each other

    def start(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        context: contextvars.Context | None = None,
        end: Callable[[Exception | None], None] | None = None,
    ) -> RunningCoroutine[T]:
        """Begin a coroutine on the loop, in this context or the caller's, and return at once.

        `end` is called on the loop with what it raised, with `closed()` where it was cancelled.
        """
        running = RunningCoroutine(coroutine, context)
        if end is not None:
            running.then(lambda error: end(self._closed() if type(error) is CancelledError else error))
        self._hand_over(running)
        return running

    def call(self, function: Callable[[], object]) -> None:
        """Let the loop call a function, which must not raise, after what it was asked before."""
        with self._lock:
            self._ensure().asyncio.call_soon_threadsafe(function)

    def close(self, *, wait: bool = True) -> None:
        """End the loop with what runs on it, and `wait` for that. May be called twice."""
        with self._lock:
            running, self._running = self._running, None
            if running is None:
                return
            if running.process != os.getpid():
                _inherited.append(running)
                return
            running.asyncio.call_soon_threadsafe(running.asyncio.stop)
        # The garbage collector may call this on the loop's own thread.
        if wait and running.thread is not None and running.thread is not threading.current_thread():
            running.thread.join(2 * CLEANUP_SECONDS)

    def _hand_over(self, running: RunningCoroutine[Any], beside: RunningCoroutine[Any] | None = None) -> None:
        """Let a loop begin a coroutine, before it hears of its end: a later one would never be answered."""
        with self._lock:
            loop = self._ensure() if beside is None else beside.loop
            if loop is None or loop is not self._running or loop.process != os.getpid():
                raise self._closed()
            running.begin(loop)

    def _ensure(self) -> _Loop:
        with self._lock:
            running = self._running
            if running is not None and running.process != os.getpid():
                _inherited.append(running)
                running = None
            if running is None:
                running = _Loop(None if self._on_end is None else selectors.DefaultSelector())
                thread = threading.Thread(target=self._serve, args=(running,), name=self._name, daemon=True)
                running.thread = thread
                # It is of no task, and has no variables of one, no matter who starts it.
                contextvars.Context().run(thread.start)
                self._running = running
            return running

    # --- the loop's thread ---------------------------------------------------------------------------------

    def _serve(self, running: _Loop) -> None:
        loop = running.asyncio
        try:
            _run_on(loop, loop.run_forever, lambda: self._running is not running)
            if self._cancels:
                for coroutine in running.coroutines:
                    coroutine.cancelled = True
                end = loop.create_task(_end(self._on_end))
                _run_on(loop, lambda: loop.run_until_complete(end), end.done)
            if running.selector is not None:
                loop.run_until_complete(_until_closed(running.selector))
        finally:
            loop.close()


def _run_on(loop: asyncio.AbstractEventLoop, run: Callable[[], object], done: Callable[[], bool]) -> None:
    """Run a loop until `done`, whatever its coroutines and callbacks raise.

    asyncio raises a SystemExit or KeyboardInterrupt out of the loop. That of a coroutine it gives to the
    coroutine's task, too; nobody would hear of that of a callback.
    """
    while True:
        try:
            run()
        except (SystemExit, KeyboardInterrupt) as error:
            if not _is_of_coroutine(error):
                message = (
                    f"A callback of an event loop raised {error!r}; the loop goes on, and no call ends."
                    " To end a call of an actor, raise it in the coroutine; to end the actor, `kill` it."
                )
                loop.call_exception_handler({"message": message, "exception": error})
        if done():
            return


def _is_of_coroutine(error: BaseException) -> bool:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_code.co_flags & _OF_COROUTINES for frame in frames)


async def _end(on_end: Callable[[], Awaitable[None]] | None) -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=CLEANUP_SECONDS)
    if on_end is not None:
        await on_end()


async def _until_closed(selector: selectors.BaseSelector) -> None:
    """Wait until TLS connections have been closed by both sides, but not for long."""
    # The loop's own socket stays; nothing tells when the others have gone.
    for _ in range(int(CLOSE_SECONDS / 0.01)):
        if len(selector.get_map()) <= 1:
            return
        await asyncio.sleep(0.01)


def iterate(source: AsyncIterator[Any], run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[Any]:
    """Give the items of an asynchronous iterator to a thread; `run` runs a coroutine to its end."""
    while (item := run(_next(source))) is not _AT_END:
        yield item


async def _next(source: AsyncIterator[Any]) -> Any:
    return await anext(source, _AT_END)
