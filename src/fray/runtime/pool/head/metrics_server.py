"""HTTP over a unix socket for one page of text: what scrapers and `curl --unix-socket` read.

It runs on the head's loop, so nothing that a client does may cost more than a bounded amount of memory and
time: requests are small or refused, slow clients are cut off, and the page is made anew only so often that
making it takes a small share of the loop's time. Nothing here knows what the page says.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Final

from fray.errors import HandshakeError
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.sockets import check_user, listening_socket, unlink_socket

__all__ = ["MetricsServer"]

MAX_REQUEST = 8192
"""Bytes of a request's head; there is no body."""
MAX_CLIENTS = 16
"""Connections at once; further ones wait in the kernel's queue."""
CLIENT_SECONDS = 5.0
"""How long a client may take, from its connection to the last byte of its answer."""
ACCEPT_PAUSE_SECONDS = 0.5
FRESH_SECONDS = 1.0
"""How long a page is given out before it's made anew."""
SHARE = 20
"""A page is given out for at least so many times the time that making it took."""

_PATH: Final = b"/metrics"
_END: Final = b"\r\n\r\n"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
}
_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves what `render` returns at `/metrics` of a unix socket that only this user may open.

    Parameters: the `address` of the socket; `render`, called on the loop's thread; the `content_type` of what
    it returns. `client_seconds` is how long a client may take; `clock` is monotonic.
    """

    def __init__(
        self,
        address: Address,
        render: Callable[[], str],
        *,
        content_type: str,
        client_seconds: float = CLIENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._render = render
        self._content_type = content_type
        self._client_seconds = client_seconds
        self._clock = clock
        self._page = b""
        self._stale_at = 0.0
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(MAX_CLIENTS)

    async def start(self) -> None:
        """Listen.

        Raises `AddressError` if that can't be done.
        """
        self._listener = listening_socket(self.address)
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
            accepted.setblocking(False)
            client = asyncio.create_task(self._serve(accepted))
            self._clients.add(client)
            client.add_done_callback(self._client_ended)

    def _client_ended(self, client: asyncio.Task[None]) -> None:
        self._clients.discard(client)
        self._places.release()
        if not client.cancelled() and (error := client.exception()) is not None:
            _log.error("the page of %s could not be made", self.address, exc_info=error)

    async def _serve(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with client:
            try:
                check_user(client)
                async with asyncio.timeout(self._client_seconds):
                    await loop.sock_sendall(client, self._answer(await _read_head(client)))
            except HandshakeError as error:
                _log.warning("%s (%s)", error.message, self.address)
            except OSError:
                # TimeoutError is one: too slow, or gone. Nobody is there to be told.
                _log.debug("a client of %s has gone, or was too slow", self.address)

    def _answer(self, head: bytes) -> bytes:
        status = _judge(head)
        return _response(200, self._fresh_page(), self._content_type) if status == 200 else _response(status)

    def _fresh_page(self) -> bytes:
        began = self._clock()
        if began >= self._stale_at:
            self._page = self._render().encode()
            ended = self._clock()
            self._stale_at = ended + max(FRESH_SECONDS, (ended - began) * SHARE)
        return self._page


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


def _judge(head: bytes) -> int:
    """Return the status of a request by its first line; its headers don't matter."""
    if _END not in head:
        return 431 if len(head) >= MAX_REQUEST else 400
    method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    target, _, version = rest.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or not method.isalpha() or not target.startswith(b"/"):
        return 400
    if target.partition(b"?")[0] != _PATH:
        return 404
    return 200 if method == b"GET" else 405


def _response(status: int, body: bytes = b"", content_type: str = "text/plain; charset=utf-8") -> bytes:
    body = body or f"{_REASONS[status]}\n".encode()
    allow = "Allow: GET\r\n" if status == 405 else ""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{allow}Connection: close\r\n\r\n"
    )
    return head.encode() + body
