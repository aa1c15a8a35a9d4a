"""A head for tests: the asyncio shell on a thread of its own, whose events a test can wait for."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from fray.errors import TransportError
from fray.errors.transport import RefusalReason
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.endpoints import Connection, Server, serve
from fray.runtime.pool.transport.frames import Frame
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.refusals import RefusalCounts
from fray.runtime.pool.transport.settings import DEFAULT_SETTINGS, TransportSettings
from tests.pool.standing_time import StandingLoop

Result = TypeVar("Result")
PATIENCE = 60.0
"""Seconds after which something that should have happened never will."""


@dataclass(frozen=True)
class Link:
    """A way from a worker to a head."""

    address: Address
    key: TransportKey


class ObservedCounts(RefusalCounts):
    """Counts that a test can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._reasons: queue.SimpleQueue[RefusalReason] = queue.SimpleQueue()

    def count(self, reason: RefusalReason) -> None:
        super().count(reason)
        self._reasons.put(reason)

    def next(self) -> RefusalReason:
        """Return the next reason that is counted."""
        return self._reasons.get(timeout=PATIENCE)


class Head:
    """Echoes each frame, unless `receive` is replaced, and keeps what happens."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.refusals = ObservedCounts()
        self.connections: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self.losses: queue.SimpleQueue[TransportError] = queue.SimpleQueue()
        self.pauses: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.receive: Callable[[Connection, Frame], None] = echo
        self.server: Server

    @property
    def address(self) -> Address:
        return self.server.address

    def take_in(self, connection: Connection) -> None:
        connection.on_frame = lambda frame: self.receive(connection, frame)
        connection.on_lost = self.losses.put
        connection.on_pause = self.pauses.put
        self.connections.put(connection)

    def call(self, function: Callable[[], Result]) -> Result:
        """Run a function on the head's thread and return its result."""

        async def run() -> Result:
            return function()

        return self.wait(run())

    def pass_time(self, seconds: float) -> None:
        """Let the timers of a loop whose time stands still see that so much has passed."""
        assert isinstance(self.loop, StandingLoop)
        self.loop.call_soon_threadsafe(self.loop.pass_time, seconds)

    def wait(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)


def echo(connection: Connection, frame: Frame) -> None:
    connection.send(frame.kind, frame.body, frame.buffers, flags=frame.flags)


@contextlib.contextmanager
def running_head(
    address: Address,
    key: TransportKey,
    settings: TransportSettings = DEFAULT_SETTINGS,
    *,
    standing: bool = False,
) -> Iterator[Head]:
    """Serve on `address` until the end of the block; `standing`: time passes when the test says so."""
    loop = StandingLoop() if standing else asyncio.new_event_loop()
    head = Head(loop)
    loop.set_exception_handler(lambda _, context: head.errors.put(context.get("exception")))
    thread = threading.Thread(target=loop.run_forever, name="head")
    thread.start()
    try:
        head.server = head.wait(serve(address, key, head.take_in, settings=settings, refusals=head.refusals))
        try:
            yield head
        finally:
            head.wait(head.server.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
    assert head.errors.empty(), head.errors.get()
