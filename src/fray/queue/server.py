"""The server of HttpQueue: a thread with an event loop that carries requests to QueueService and back.

aiohttp reads HTTP; here stand the limits: who may speak, how long, how much, how many at a time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from aiohttp.http import HttpProcessingError

from fray.errors.queue import QueueServerError, QueueTokenError
from fray.queue.client import ClientLimits, HttpQueue
from fray.queue.protocol import (
    ANSWER_HEADER,
    DIGEST_HEADER,
    MAX_ITEM_BYTES,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    checked_name,
    digest_of,
    sign_answer,
    sign_request,
    signatures_match,
)
from fray.queue.service import QueueService, Reply, Request
from fray.runtime.loop_thread import LoopThread

__all__ = ["HttpQueueServer", "ServerLimits"]

LEAST_TOKEN = 16


@dataclass(frozen=True)
class ServerLimits:
    """What one server takes upon itself; sizes in bytes, all queues together where not said otherwise."""

    max_item_bytes: int = MAX_ITEM_BYTES
    max_bytes: int = 2**30
    max_items: int = 1_000_000
    max_connections: int = 256
    idle_seconds: float = 15.0
    """How long a connection may take to send a request's head, or rest between two."""
    request_seconds: float = 30.0
    """How long a request may take from its head to the answer's last byte."""


class HttpQueueServer:
    """Serves queues to HttpQueue while its `with` block runs, in a thread of this process.

    Args:
        host: where to listen; anything but a loopback address needs a `token`.
        port: 0 takes a free one; `port` then tells which.
        token: what clients must have, at least 16 characters; on loopback one is made by default.
        limits: sizes and times.
        clock: seconds, for leases; never goes back.

    Its items are in memory and end with it: a FileQueue outlives its processes.

    Raises:
        QueueTokenError: no token where one is needed, or one that is too short.
        QueueServerError: on entry, when the address can't be listened on.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9999,
        *,
        token: str | None = None,
        limits: ServerLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host
        self.port = port
        if token is None and not _is_loopback(host):
            raise QueueTokenError(f"{host}:{port}", "others can reach this address, so a token is needed")
        if token is not None and len(token) < LEAST_TOKEN:
            raise QueueTokenError(f"{host}:{port}", f"the token has fewer than {LEAST_TOKEN} characters")
        self._token = token or secrets.token_urlsafe(32)
        self._limits = limits or ServerLimits()
        self._clock = clock
        self._service = QueueService(max_items=self._limits.max_items, max_bytes=self._limits.max_bytes)
        self._loop = LoopThread("fray-queue-server")
        self._runner: web.ServerRunner | None = None

    def __enter__(self) -> Self:
        try:
            self.port = self._loop.run(self._start())
        except BaseException as error:
            self._close()
            if isinstance(error, OSError | OverflowError | ValueError):
                raise QueueServerError(f"{self.host}:{self.port}", str(error)) from error
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        """End it; requests under way have a second to be answered."""
        self._loop.run(self._stop())
        self._loop.close()

    @property
    def token(self) -> str:
        """What clients prove to have; a secret."""
        return self._token

    def new_queue(self, name: str) -> HttpQueue[Any]:
        """Return the queue of this name, made when there is none; with the token, ready to be pickled.

        Raises:
            QueueArgumentError: the name can't stand in a path.
            QueueServerError: the server doesn't run.
        """
        checked_name(name)
        if self._runner is None:
            raise QueueServerError(f"{self.host}:{self.port}", "the server runs inside its `with` block only")
        self._service.add(name)
        return HttpQueue(
            self.get_client_host(),
            self.port,
            name,
            token=self._token,
            limits=ClientLimits(max_item_bytes=self._limits.max_item_bytes),
        )

    def get_client_host(self) -> str:
        """The address for clients: that of this machine when the server listens on all of them."""
        if self.host not in ("", "0.0.0.0", "::"):
            return self.host
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                # Sends nothing; it chooses the route. RFC 5737 keeps this network for documentation.
                probe.connect(("192.0.2.1", 9))
            except OSError:
                return "127.0.0.1"
            return str(probe.getsockname()[0])

    async def _start(self) -> int:
        """Listen, and return on which port."""
        self._runner = runner = web.ServerRunner(
            _LimitedServer(
                self._handle,
                most=self._limits.max_connections,
                access_log=None,
                keepalive_timeout=self._limits.idle_seconds,
                lingering_time=1.0,
                logger=_LOGGER,
            ),
            shutdown_timeout=1.0,
        )
        await runner.setup()
        await web.TCPSite(runner, self.host or None, self.port).start()
        return int(runner.addresses[0][1])

    async def _stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.Response(status=HTTPStatus.REQUEST_TIMEOUT)
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                response = await self._respond(request)
                await response.prepare(request)
                await response.write_eof()
        except (TimeoutError, ConnectionError):
            if response.prepared and request.transport is not None:
                # The client is gone or doesn't read: without this its answer would stay in memory.
                request.transport.abort()
            response.force_close()
        return response

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        signature = request.headers.get(SIGNATURE_HEADER, "")
        expected = sign_request(
            self._token,
            path=request.raw_path,
            nonce=request.headers.get(NONCE_HEADER, ""),
            length=request.content_length or 0,
            digest=request.headers.get(DIGEST_HEADER, ""),
        )
        # Before the body: nobody else's bytes are kept.
        if request.method != "POST" or not signatures_match(expected, signature):
            refusal = web.Response(status=HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": "Fray-HMAC"})
            refusal.force_close()
            return refusal
        reply = await self._reply(request)
        proof = sign_answer(self._token, request=signature, status=reply.status, body=reply.body)
        body = None if reply.status == HTTPStatus.NO_CONTENT else reply.body
        return web.Response(status=reply.status, body=body, headers={ANSWER_HEADER: proof})

    async def _reply(self, request: web.BaseRequest) -> Reply:
        size = request.content_length
        if size is None:
            return Reply(HTTPStatus.LENGTH_REQUIRED)
        if size > self._limits.max_item_bytes:
            return Reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(self._limits.max_item_bytes).encode())
        if not self._service.reserve(size):
            return Reply(HTTPStatus.INSUFFICIENT_STORAGE)
        try:
            body = await request.content.readexactly(size) if size else b""
        finally:
            self._service.give_back(size)
        if digest_of(body) != request.headers[DIGEST_HEADER]:
            return Reply(HTTPStatus.BAD_REQUEST, b"the body isn't the one that was signed")
        match request.path.split("/"):
            case ["", "queues", queue, verb]:
                asked = Request(queue, verb, dict(request.query), body, self._clock())
                return self._service.answer(asked)
            case _:
                return Reply(HTTPStatus.NOT_FOUND, b"no such path")


class _LimitedServer(web.Server):
    """aiohttp's server with at most so many connections: one more is cut, so that its memory is bounded."""

    def __init__(self, handler: Any, *, most: int, **options: Any) -> None:
        super().__init__(handler, **options)
        self._most = most

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self.connections) > self._most:
            # Not at once: the connection's task, which aiohttp is about to make, must have begun.
            asyncio.get_running_loop().call_soon(transport.abort)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Keep what senders of bad HTTP do out of the log: they must not be able to fill it."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_LOGGER = logging.getLogger("fray.queue.server")
_LOGGER.addFilter(_is_worth_a_line)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
