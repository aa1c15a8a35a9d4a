"""What the threads of the driver give the head's loop: events, and questions about its state, in one order.

The only part of the head that several threads use at once. It has no lock: a deque takes what comes, and a
byte in a socket, the bell, wakes the loop. What other processes say comes by `membership`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from fray.errors import PoolClosedError
from fray.runtime.pool.head.dispatcher import Dispatcher
from fray.runtime.pool.messages.events import Event
from fray.runtime.pool.messages.specs import DRIVER
from fray.runtime.pool.state import PoolState

__all__ = ["DriverInbox"]

EVENTS_A_TURN = 512
"""Events of the driver that are handled before the loop looks at its sockets again."""


class _Question(NamedTuple):
    """What `ask` was given, among the events, so that it sees what those before it did."""

    function: Callable[[PoolState], Any]
    answer: Future[Any]


class DriverInbox:
    """Takes events from any thread; hands them to the `dispatcher` on the thread of the `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dispatcher: Dispatcher) -> None:
        self._loop = loop
        self._dispatcher = dispatcher
        self._inbox: deque[Event | _Question] = deque()
        self._awake = False
        # The loop's own way to be woken costs several times as much: a handle, and two reads by an exception.
        self._bell, self._bell_end = socket.socketpair()
        self._bell.setblocking(False)
        self._bell_end.setblocking(False)
        self._closed = False

    # --- from any thread -----------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Hand an event to the loop, after those before it. Never blocks."""
        if self._dispatcher.stopped:
            return
        self._inbox.append(event)
        if not self._awake:
            self.wake()

    def defer(self, event: Event) -> None:
        """Hand an event to the loop with the next one that is posted, or with the next `drain`."""
        if not self._dispatcher.stopped:
            self._inbox.append(event)

    def wake(self) -> None:
        """Have the loop drain the inbox, and tell what has ended, even if nothing is in it."""
        self._awake = True
        try:
            self._bell.send(b"\0")
        except BlockingIOError:
            pass  # it rings already
        except OSError:
            pass  # closed with the loop: nobody waits for anything any more

    def ask(self, function: Callable[[PoolState], Any]) -> Any:
        """Return what `function` makes of the state, on the loop's thread, where nothing else changes it.

        Raises `PoolClosedError` once the inbox is closed.
        """
        question = _Question(function, Future())
        self._inbox.append(question)
        self.wake()
        if self._closed:
            self._refuse_questions()
        return question.answer.result()

    # --- the loop's thread ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Drain the inbox from here on whenever the bell rings."""
        self._loop.add_reader(self._bell_end, self._answer_bell)

    def drain(self) -> None:
        """Handle what is in the inbox, and let all have what was decided for them."""
        # First of all: what is posted from here on wakes the loop again.
        self._awake = False
        dispatcher = self._dispatcher
        if dispatcher.stopped:
            return
        inbox, handle = self._inbox, dispatcher.handle
        for _ in range(min(len(inbox), EVENTS_A_TURN)):
            event = inbox.popleft()
            if type(event) is _Question:
                self._answer(event)
            else:
                handle(DRIVER, event)  # type: ignore[arg-type]
        if inbox and not self._awake:
            self._awake = True
            self._loop.call_soon(self.drain)
        dispatcher.flush()

    def close(self) -> None:
        """Refuse what is asked, now and from here on; after the loop was closed."""
        self._bell.close()
        self._bell_end.close()
        self._closed = True
        self._refuse_questions()

    def _answer_bell(self) -> None:
        self._bell_end.recv(4096)
        self.drain()

    def _answer(self, question: _Question) -> None:
        try:
            question.answer.set_result(question.function(self._dispatcher.state))
        except Exception as error:  # noqa: BLE001 - the caller raises it
            question.answer.set_exception(error)

    def _refuse_questions(self) -> None:
        # By two kinds of threads: the loop's thread at its end, and those that ask later.
        with contextlib.suppress(IndexError):
            while True:
                left = self._inbox.popleft()
                if isinstance(left, _Question):
                    left.answer.set_exception(PoolClosedError("the pool"))
