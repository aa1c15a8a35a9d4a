"""An event loop in a thread of its own, for callers that have none: they hand it coroutines and wait.

Started by the first call, ended by `close`, at the latest when the interpreter ends. What the coroutines do
is no matter of this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fray.errors import ClusterClosedError, FrayError

__all__ = ["LoopThread", "Started"]

T = TypeVar("T")

CLEANUP_SECONDS = 15.0
"""How long a call that was interrupted, or the end of the thread, may take to clean up."""
SIGNAL_SECONDS = 1.0
"""How late a caller may hear of a signal."""
FAREWELL_SECONDS = 2.0
"""How long connections may take to close."""

_inherited: list[object] = []
"""Loops of the process that this one was forked from. A loop that is collected closes its selector, which the
two processes share, so they are kept."""


@dataclass(eq=False)
class _Running:
    """A loop with its thread."""

    loop: asyncio.SelectorEventLoop
    selector: selectors.BaseSelector
    process: int
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    thread: threading.Thread | None = None


class _Call(Generic[T]):
    """A coroutine on its way through the loop; all but `result` and `loop` is for the loop's thread."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where it is to run; None before it was handed over."""
        self.result: Future[T] = Future()

    @property
    def failed(self) -> bool:
        """Whether the coroutine has ended with an error, or was cancelled."""
        return self.result.done() and not self.succeeded

    @property
    def succeeded(self) -> bool:
        """Whether the coroutine has returned a value."""
        return self.result.done() and not self.result.cancelled() and self.result.exception() is None

    def await_answer(self) -> None:
        """Return once `result` is there; for the caller's thread."""
        # A lock alone, since a signal within a Condition may leave that locked. With a limit, since a
        # signal that comes just before the thread goes to sleep doesn't wake it.
        answered = threading.Lock()
        answered.acquire()
        self.result.add_done_callback(lambda _: answered.release())
        while not answered.acquire(timeout=SIGNAL_SECONDS):
            pass

    def begin(self) -> None:
        """Start the coroutine."""
        self._task = asyncio.create_task(self.coroutine)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        """Cancel the coroutine, which may never have been started."""
        if self._task is not None:
            self._task.cancel()
        else:
            self.coroutine.close()
            self.result.cancel()

    def _end(self, task: asyncio.Task[T]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self.result.set_exception(error)
        else:
            self.result.set_result(task.result())


@dataclass(frozen=True, eq=False)
class Started:
    """A coroutine that was begun by `LoopThread.start`.

    `cancel` cancels it, from any thread. `run` is that of the `LoopThread`, for what has to do with it: on
    its very loop, so it raises `ClusterClosedError` once that was closed.
    """

    cancel: Callable[[], None]
    run: Callable[[Coroutine[Any, Any, Any]], Any]


class LoopThread:
    """A loop in a thread. Methods may be called from any thread, and after a fork from the child too.

    Args:
        name: Of the thread.
        farewell: Called on the loop at its end, to close what lives on it. A loop that begins anew may run
            at the same time.
        owner: What is closed with it, as errors name it.
    """

    def __init__(self, name: str, farewell: Callable[[], Awaitable[None]], *, owner: str) -> None:
        self._name, self._farewell, self._owner = name, farewell, owner
        # Entered again by a thread within it that the garbage collector makes close another object.
        self._lock = threading.RLock()
        self._running: _Running | None = None

    def run(
        self,
        coroutine: Coroutine[Any, Any, T],
        undo: Callable[[T], Coroutine[Any, Any, None]] | None = None,
    ) -> T:
        """Run a coroutine on the loop, and return what it returns or raise what it raises.

        When the caller is interrupted (Ctrl-C) while the coroutine runs, it is cancelled, and has some
        seconds to clean up. Where it had returned before, `undo` is run with its value, which the caller
        never gets; an error of `undo` becomes a note of the interruption.

        Raises:
            ClusterClosedError: Another thread has closed it.
        """
        return self._run(coroutine, undo=undo)

    def start(
        self, coroutine: Coroutine[Any, Any, Any], end: Callable[[BaseException | None], None]
    ) -> Started:
        """Begin a coroutine on the loop, and return at once.

        `end` is told on the loop how it ended, also where it was cancelled before it began.
        """
        call = _Call(coroutine)

        def tell(result: Future[Any]) -> None:
            end(asyncio.CancelledError() if result.cancelled() else result.exception())

        call.result.add_done_callback(tell)
        running = self._hand_over(call)

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the coroutine with it
                running.loop.call_soon_threadsafe(call.cancel)

        return Started(cancel, lambda beside: self._run(beside, running))

    def close(self) -> None:
        """End the loop with what runs on it, and wait for that; it begins anew with the next call."""
        with self._lock:
            running, self._running = self._running, None
            if running is None:
                return
            if running.process != os.getpid():
                _inherited.append(running)
                return
            running.loop.call_soon_threadsafe(running.stop.set)
        # The garbage collector may call this on the loop's own thread.
        if running.thread is not None and running.thread is not threading.current_thread():
            running.thread.join(2 * CLEANUP_SECONDS)

    def _run(
        self,
        coroutine: Coroutine[Any, Any, T],
        running: _Running | None = None,
        undo: Callable[[T], Coroutine[Any, Any, None]] | None = None,
    ) -> T:
        """As `run`; on one loop alone, where `running` is given."""
        call = _Call(coroutine)
        try:
            self._hand_over(call, running)
            call.await_answer()
            return call.result.result()
        except asyncio.CancelledError:
            raise ClusterClosedError(self._owner) from None
        except BaseException as error:
            if call.failed:
                raise
            # An interruption, which may come at any point from the first line on. A signal that another
            # thread takes is raised here up to `SIGNAL_SECONDS` later, so the coroutine may have ended.
            if call.loop is None:
                coroutine.close()
                raise
            with contextlib.suppress(RuntimeError):  # another thread has closed the loop just now
                call.loop.call_soon_threadsafe(call.cancel)
                wait([call.result], CLEANUP_SECONDS)
            if undo is not None and call.succeeded:
                try:
                    self._run(undo(call.result.result()))
                except FrayError as failure:
                    error.add_note(str(failure))
            raise
        finally:
            del call  # it and the traceback of its error would keep each other

    def _hand_over(self, call: _Call[Any], running: _Running | None = None) -> _Running:
        """Let a loop begin a call, before it hears of its end: a later one would never be answered."""
        with self._lock:
            if running is None:
                running = self._ensure()
            elif running is not self._running or running.process != os.getpid():
                raise ClusterClosedError(self._owner)
            call.loop = running.loop
            running.loop.call_soon_threadsafe(call.begin)
            return running

    def _ensure(self) -> _Running:
        with self._lock:
            running = self._running
            if running is not None and running.process != os.getpid():
                _inherited.append(running)
                running = None
            if running is None:
                selector = selectors.DefaultSelector()
                loop = asyncio.SelectorEventLoop(selector)
                running = _Running(loop, selector, os.getpid())
                main = _serve(running, self._farewell)
                running.thread = threading.Thread(
                    target=_run, args=(running, main), name=self._name, daemon=True
                )
                running.thread.start()
                self._running = running
            return running


def _run(running: _Running, main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: running.loop) as runner:
        runner.run(main)
        runner.run(_until_closed(running.selector))


async def _serve(running: _Running, farewell: Callable[[], Awaitable[None]]) -> None:
    await running.stop.wait()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=CLEANUP_SECONDS)
    await farewell()


async def _until_closed(selector: selectors.BaseSelector) -> None:
    """Wait until the farewells of TLS connections have been said, but not for long."""
    # The loop's own socket stays; nothing tells when the others have gone.
    for _ in range(int(FAREWELL_SECONDS / 0.01)):
        if len(selector.get_map()) <= 1:
            return
        await asyncio.sleep(0.01)
