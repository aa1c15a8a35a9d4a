"""HTTP for a few pages of text, over TCP or a unix socket: what scrapers, `fray top` and `curl` read.

It runs on the head's loop, so nothing that a client does may cost more than a bounded amount of memory and
time: requests are small or refused, slow clients are cut off, one machine gets only some of the places, and
a page is made anew only so often that making it takes a small share of the loop's time. Nothing here knows
what the pages say.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from fray.errors import HandshakeError
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.sockets import check_user, listening_socket, source_of, unlink_socket

__all__ = ["MetricsServer", "Page"]

MAX_REQUEST = 8192
"""Bytes of a request's head; there is no body."""
MAX_CLIENTS = 16
"""Connections at once; further ones wait in the kernel's queue."""
MAX_CLIENTS_OF_SOURCE = 4
"""Of one network address; further ones are cut off, so that it can't take all places."""
CLIENT_SECONDS = 5.0
"""How long a client may take, from its connection to the last byte of its answer."""
ACCEPT_PAUSE_SECONDS = 0.5
FRESH_SECONDS = 1.0
"""How long a page is given out before it's made anew."""
SHARE = 20
"""A page is given out for at least so many times the time that making it took."""

_END: Final = b"\r\n\r\n"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Page:
    """A page, made by `render` on the loop's thread."""

    content_type: str
    render: Callable[[], str]


class MetricsServer:
    """Serves pages to anybody who reaches a TCP address, or at a unix socket that only this user may open.

    Parameters: the `address`, which is the real one once `start` has returned; `pages` by path.
    `client_seconds` is how long a client may take; `clock` is monotonic.
    """

    def __init__(
        self,
        address: Address,
        pages: Mapping[str, Page],
        *,
        client_seconds: float = CLIENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._pages = {path.encode(): _KeptPage(page, clock) for path, page in pages.items()}
        self._client_seconds = client_seconds
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(MAX_CLIENTS)
        self._sources: Counter[str] = Counter()

    async def start(self) -> None:
        """Listen.

        Raises `AddressError` if that can't be done.
        """
        self._listener = listening_socket(self.address)
        if not self.address.is_unix:
            self.address = Address(host=self.address.host, port=self._listener.getsockname()[1])
        self._accepting = asyncio.create_task(self._accept(self._listener))

    async def close(self) -> None:
        """Stop listening, and cut off all clients."""
        if self._listener is None or self._accepting is None:
            return
        # First the accepting task: no client begins after it.
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._listener.close()
        if self.address.is_unix:
            unlink_socket(self.address)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._places.acquire()
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                # accept(2): the process is out of descriptors, or this connection has gone already. asyncio's
                # own servers would tell the loop's exception handler, which ends the pool.
                self._places.release()
                _log.warning("can't accept a connection on %s: %s", self.address, error)
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            source = source_of(accepted)
            if source and self._sources[source] >= MAX_CLIENTS_OF_SOURCE:
                accepted.close()
                self._places.release()
                continue
            self._sources[source] += 1
            accepted.setblocking(False)
            client = asyncio.create_task(self._serve(accepted))
            self._clients.add(client)
            client.add_done_callback(partial(self._client_ended, source))

    def _client_ended(self, source: str, client: asyncio.Task[None]) -> None:
        self._clients.discard(client)
        self._sources[source] -= 1
        if not self._sources[source]:
            del self._sources[source]
        self._places.release()
        if not client.cancelled() and (error := client.exception()) is not None:
            _log.error("the page of %s could not be made", self.address, exc_info=error)

    async def _serve(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with client:
            try:
                check_user(client, self.address)
                async with asyncio.timeout(self._client_seconds):
                    await loop.sock_sendall(client, self._answer(await _read_head(client)))
            except HandshakeError as error:
                _log.warning("%s (%s)", error.message, self.address)
            except OSError:
                # TimeoutError is one: too slow, or gone. Nobody is there to answer.
                _log.debug("a client of %s has gone, or was too slow", self.address)

    def _answer(self, head: bytes) -> bytes:
        status, path = _judge(head)
        if status != 200:
            return _response(status)
        kept = self._pages.get(path)
        return _response(404) if kept is None else _response(200, kept.read(), kept.page.content_type)


class _KeptPage:
    """A page with its last text, which is given out until it's stale."""

    def __init__(self, page: Page, clock: Callable[[], float]) -> None:
        self.page = page
        self._clock = clock
        self._text = b""
        self._stale_at = 0.0

    def read(self) -> bytes:
        """Return its text, made anew if it's stale."""
        began = self._clock()
        if began >= self._stale_at:
            self._text = self.page.render().encode()
            ended = self._clock()
            self._stale_at = ended + max(FRESH_SECONDS, (ended - began) * SHARE)
        return self._text


async def _read_head(client: socket.socket) -> bytes:
    """Return what a client has sent, up to the end of a request's head, `MAX_REQUEST` or its end."""
    loop = asyncio.get_running_loop()
    head = b""
    while _END not in head and len(head) < MAX_REQUEST:
        part = await loop.sock_recv(client, MAX_REQUEST)
        if not part:
            break
        head += part
    return head


def _judge(head: bytes) -> tuple[int, bytes]:
    """Return the status of a request by its first line, and its path; its headers don't matter."""
    if _END not in head:
        return (431 if len(head) >= MAX_REQUEST else 400), b""
    method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    target, _, version = rest.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or not method.isalpha() or not target.startswith(b"/"):
        return 400, b""
    return (200 if method == b"GET" else 405), target.partition(b"?")[0]


def _response(status: int, body: bytes = b"", content_type: str = "text/plain; charset=utf-8") -> bytes:
    body = body or f"{_REASONS[status]}\n".encode()
    allow = "Allow: GET\r\n" if status == 405 else ""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{allow}Connection: close\r\n\r\n"
    )
    return head.encode() + body
