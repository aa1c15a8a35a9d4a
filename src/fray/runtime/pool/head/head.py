"""The head of a pool: carries out, in a thread of the driver, what the state machine decides.

Here is the thread with its event loop: how it starts, listens and ends. What runs on the loop is elsewhere:
events come from this process by `inbox` and from others by `membership`; both hand them to the `dispatcher`,
which asks the state machine and sends what it commands to `peers`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.head.dispatcher import Dispatcher, Driver
from fray.runtime.pool.head.inbox import DriverInbox
from fray.runtime.pool.head.membership import Membership
from fray.runtime.pool.head.metrics_server import MetricsServer
from fray.runtime.pool.head.pages import PoolPages
from fray.runtime.pool.head.peers import Peers
from fray.runtime.pool.messages.events import HostJoined, ObjectCopied
from fray.runtime.pool.messages.greetings import HostWelcome, PoolFailed
from fray.runtime.pool.messages.specs import DRIVER, HostId, ObjectId
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.state import PoolState
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.endpoints import Server, serve
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.refusals import RefusalCounts

__all__ = ["Head"]

_log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.2
"""How often the head looks whether an idle driver has dropped references."""
STOP_SECONDS = 10.0
"""How long `stop` waits for the loop to end."""


class Head:
    """Runs a pool from a thread of this process until `stop`.

    Parameters: the `address` to listen on; the pool's `key`; `state`, fresh; the `store` of the driver's own
    host, whose number is `host`; the driver's `limit`.
    """

    def __init__(
        self,
        address: Address,
        key: TransportKey,
        *,
        state: PoolState,
        host: HostId,
        store: HostStore,
        limit: SubmitLimit,
    ) -> None:
        self.refusals = RefusalCounts()
        self.on_tick: Callable[[], None] = _nothing
        """Called several times a second, on the loop's thread."""
        self.on_nanny_lost: Callable[[], bool] = lambda: False
        """Starts another nanny for the driver's own host, on the loop's thread; False: the host is lost."""
        self._address = address
        self._key = key
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fray-pool-head", daemon=True)
        self._host = host
        self._peers = peers = Peers(host)
        self._driver = driver = Driver(store, limit, lambda _: None, lambda *_: 0)
        self._dispatcher = Dispatcher(loop, state, peers=peers, driver=driver)
        self._inbox = DriverInbox(loop, self._dispatcher)
        self.client = PoolClient(DRIVER, self._inbox.post, limit=limit, eager=True, defer=self._inbox.defer)
        driver.on_news = self.client.deliver
        self._membership = Membership(loop, self._dispatcher, peers=peers, refusals=self.refusals)
        self._membership.on_home_lost = self._restart_nanny
        limit.on_wait = self._inbox.wake
        limit.exempt = self._thread
        self._server: Server | None = None
        self._outer: Server | None = None
        self._pages: PoolPages | None = None
        self._metrics: MetricsServer | None = None
        self._failure: BaseException | None = None

    # --- from other threads --------------------------------------------------------------------------------

    def start(self) -> Address:
        """Start the thread; return the address once it listens there.

        Raises `AddressError` or `TransportKeyError` if it can't.
        """
        listening = threading.Event()
        self._loop.call_soon(self._begin, listening)
        self._thread.start()
        listening.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        assert self._server is not None
        return self._server.address

    def listen(self, address: Address, welcome: HostWelcome) -> Address:
        """Listen on a further address, for other hosts and clients; return the real one.

        `welcome` is what they learn of the pool; each gets a number of its own.

        Raises `AddressError` or `TransportKeyError` if it can't.
        """
        self._membership.welcome = welcome
        self._outer = asyncio.run_coroutine_threadsafe(self._serve(address), self._loop).result()
        return self._outer.address

    def serve_metrics(self, address: Address, *, job: str = "") -> None:
        """Show what the pool has and did on a unix socket, as Prometheus text and as JSON over HTTP.

        `job` is the job of this process, if it has one.

        Raises `AddressError` if it can't.
        """
        pages = PoolPages(self._dispatcher.state, self.refusals, job=job)
        server = MetricsServer(address, pages.pages)
        asyncio.run_coroutine_threadsafe(server.start(), self._loop).result()
        self._metrics, self._pages = server, pages

    def fetch_by(self, fetch: Callable[[ObjectId, HostId], int]) -> None:
        """Let objects that readers can't reach be copied to the driver's host by this."""
        self._driver.fetch = fetch

    def note_copied(self, object_id: ObjectId, size: int) -> None:
        """Take note of a copy on the driver's host, from any thread."""
        self._inbox.post(ObjectCopied(object_id, self._host, size))

    def address_of(self, host: HostId) -> str | None:
        """Return where the objects of a host are read, for any thread; None or empty: they can't be."""
        return self._peers.address_of(host)

    def has_nanny(self, host: HostId) -> bool:
        """Return whether a host's nanny is connected."""
        return self._peers.has_nanny(host)

    def join(self, event: HostJoined) -> None:
        """Let the driver's own host join; its nanny, which comes later, hears what it has missed.

        So whatever the driver puts lies on a host that the pool knows.
        """
        self._peers.note_joined(event.host)
        self._inbox.post(event)

    def call(self, function: Callable[[PoolState], Any]) -> Any:
        """Return what `function` makes of the state, on the loop's thread, where nothing else changes it.

        Raises `PoolClosedError` once the head has stopped.
        """
        return self._inbox.ask(function)

    def stop(self) -> None:
        """Cut all connections, at which nannies end their workers; end the thread. May be called twice."""
        self.client.close()
        here = self._thread is threading.current_thread()
        if not self._dispatcher.stopped:
            self._dispatcher.stopped = True
            if here:
                self._end()
            else:
                self._loop.call_soon_threadsafe(self._end)
        if not here:
            self._thread.join(STOP_SECONDS)

    def fail(self, reason: str) -> None:
        """End the pool on the loop's thread, since it can't go on; those who wait get the reason."""
        _log.error("the pool has ended: %s", reason)
        self._peers.tell_clients(PoolFailed(reason))
        self.client.close(f"the pool, which has failed ({reason}),")
        self.stop()

    def forget(self) -> None:
        """Let this process, a fork of the one that has the pool, touch nothing of it."""
        self._dispatcher.stopped = True
        self.client.close_in_fork()

    # --- the loop's thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._inbox.open()
        self._loop.set_exception_handler(self._on_bug)
        try:
            self._loop.run_forever()
        finally:
            self._dispatcher.stopped = True
            self.client.close()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._inbox.close()

    def _begin(self, listening: threading.Event) -> None:
        task = self._loop.create_task(self._serve(self._address))

        def begun(_: asyncio.Task[Server]) -> None:
            self._failure = task.exception()
            if self._failure is None:
                self._server = task.result()
                self._loop.call_later(FLUSH_SECONDS, self._tick)
            else:
                self._dispatcher.stopped = True
                self._loop.stop()
            listening.set()

        task.add_done_callback(begun)

    async def _serve(self, address: Address) -> Server:
        return await serve(address, self._key, self._membership.on_connection, refusals=self.refusals)

    def _end(self) -> None:
        self._peers.close()
        closing = [
            server.close() for server in (self._server, self._outer, self._metrics) if server is not None
        ]
        if closing:
            asyncio.gather(*closing).add_done_callback(lambda _: self._loop.stop())
        else:
            self._loop.stop()

    def _on_bug(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A callback that raised may have left the state between two of its own: nothing can be trusted.
        error = context.get("exception")
        _log.error("the pool's head failed: %s", context.get("message"), exc_info=error)
        if not self._dispatcher.stopped:
            self.fail(f"its head: {type(error).__name__}: {error}")

    def _tick(self) -> None:
        if self._dispatcher.stopped:
            return
        self.client.flush()
        self._inbox.drain()
        if self._pages is not None:
            self._pages.note()
        for warning in self._dispatcher.state.find_warnings(time.monotonic()):
            _log.warning("%s", warning)
        self.on_tick()
        self._loop.call_later(FLUSH_SECONDS, self._tick)

    def _restart_nanny(self) -> bool:
        # Looked up when it's needed: it is set once the head has started.
        return self.on_nanny_lost()


def _nothing() -> None:
    pass
