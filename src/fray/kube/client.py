"""`KubeApi` on HTTP, with the official `kubernetes` package for its configuration and credentials.

Only transport is here. The generated models aren't used: they cost memory, drop fields they don't know,
and Fray's own kinds have none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fray.kube.api import KubeApi
from fray.kube.configuration import Configuration
from fray.kube.errors import UnauthorizedError, UnreachableError, read_api_error
from fray.kube.objects import ListReader, Manifest, Page, WatchEvent, parse_event, parse_object
from fray.kube.official_client import config
from fray.kube.pod_streams import COMMAND_PROTOCOL, FORWARD_PROTOCOL, ForwardedPort, RemoteCommand
from fray.kube.request import WATCH_SECONDS, Request, build_apply, build_create
from fray.kube.resources import PODS, Resource
from fray.kube.single_exchange import exchange, needs_proxy

if TYPE_CHECKING:  # imported where they are used, as is `connection_pool`: slow, and one request needs none
    import aiohttp

    from fray.kube.connection_pool import ConnectionPool

__all__ = [
    "REQUEST_SECONDS",
    "WATCH_GRACE_SECONDS",
    "WATCH_SECONDS",
    "WATCH_SILENCE_SECONDS",
    "KubernetesApi",
]

REQUEST_SECONDS = 30.0
WATCH_GRACE_SECONDS = 15.0
LOG_SILENCE_SECONDS = 300.0
"""A program may be silent for longer, but so may a dead connection: who follows its log asks again then."""
LOG_PIECE = 1 << 14
"""Bytes of a log that are handed out at once, at most."""
LINE_PIECE = 1 << 21
"""Bytes that are read ahead of others, at most: no line of a watch may be longer than twice this."""
LIST_PIECE = 1 << 16
COMMAND_HEARTBEAT_SECONDS = 30.0
"""Between two pings: a load balancer would cut a connection that is silent."""
FORWARD_HEARTBEAT_SECONDS = 4.0
"""The same where a lost connection is to be noticed soon."""
MOST_PAGE = 1 << 24
"""Bytes of a pod's own answer that are taken."""
PAGE_BYTES = 1 << 20
"""Of objects that are handed out at once, at most, but for the last of them."""
MOST_CONNECTIONS = 100
WATCH_SILENCE_SECONDS = 90.0
"""A watch that is silent for so long is dead: the server sends a bookmark every minute."""


class KubernetesApi(KubeApi):
    """Access to one API server. Use as an async context manager, or call `close`.

    Args:
        configuration: Where it is, and as whom it is asked.
        brief: Whether few requests are made: each has a connection of its own then, by the standard library,
            where no proxy is asked. Streams use aiohttp all the same.
        connections: How many there may be at once; 0: any number.
        request_seconds: How long a request may take.
        watch_silence_seconds: How long a watch may be silent.
        on_answer: Gets the method, resource and HTTP status of every answer (0 when none came).
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        brief: bool = False,
        connections: int = MOST_CONNECTIONS,
        request_seconds: float = REQUEST_SECONDS,
        watch_silence_seconds: float = WATCH_SILENCE_SECONDS,
        on_answer: Callable[[str, Resource, int], None] | None = None,
    ) -> None:
        self._configuration = configuration
        self._brief = brief and not needs_proxy(configuration)
        self._connections = connections
        self._pool: ConnectionPool | None = None
        self._seconds, self._watch_silence = request_seconds, watch_silence_seconds
        self._on_answer = on_answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def ask(self, request: Request) -> Manifest:
        """Return the object that answers a request; see `KubeApi`."""
        text = b"".join([piece async for piece in self._read(request)])
        try:
            return parse_object(text, "kind")
        except ValueError as garbled:
            # Something between us and the server answered, or cut the answer.
            raise UnreachableError(str(request), 0, "no object", str(garbled)) from garbled

    async def read_list(self, request: Request) -> AsyncIterator[Page]:
        """Yield a collection in pages; see `KubeApi`."""
        rest = ""
        while True:
            metadata: Manifest = {}
            page = replace(request, query={**request.query, "continue": rest}) if rest else request
            async for items, envelope in self._read_page(page):
                metadata = envelope.get("metadata") or {}
                yield Page(items, metadata.get("resourceVersion", ""))
            rest = metadata.get("continue") or ""
            if not rest:
                return

    async def _read_page(self, request: Request) -> AsyncIterator[tuple[list[Manifest], Manifest]]:
        """Yield the objects of an answer, as many at once as are small, at last with the rest of it."""
        reader, items, size = ListReader(), [], 0
        async for piece in self._read(request):
            items += reader.feed(piece)
            size += len(piece)
            if size >= PAGE_BYTES and items:
                yield items, {}
                items, size = [], 0
        try:
            last, envelope = reader.finish()
        except ValueError as garbled:
            raise UnreachableError(str(request), 0, "no object", str(garbled)) from garbled
        if not envelope.keys() >= {"kind", "metadata"}:
            raise UnreachableError(str(request), 0, "no object", "not a list")
        yield items + last, envelope

    async def follow(self, request: Request) -> AsyncIterator[WatchEvent]:
        """Yield changes as they come; see `KubeApi`."""
        seconds = WATCH_SECONDS + WATCH_GRACE_SECONDS
        async with self._stream(request, seconds=seconds, silence=self._watch_silence) as response:
            try:
                async for line in response.content:
                    yield parse_event(str(request), line)
            except ValueError as cut:
                raise UnreachableError(str(request), 0, type(cut).__name__, str(cut)) from cut

    async def store(self, resource: Resource, body: Manifest, *, namespace: str | None = None) -> None:
        """Create an object as `create` does, of which nothing comes back: for what is large, and known.

        A server packs its answers, which takes it longer than all the rest for a megabyte.
        """
        await self.ask(build_create(resource, body, namespace=namespace, metadata_only=True))

    async def apply(
        self, resource: Resource, body: Manifest, *, manager: str, namespace: str | None = None
    ) -> Manifest:
        """Make an object be as `body` says; see `build_apply`."""
        return await self.ask(build_apply(resource, body, manager=manager, namespace=namespace))

    async def discover(self, group: str, version: str = "") -> Manifest:
        """Return what a version of an API group serves, or which versions there are.

        Raises `NotFoundError` where there is no such group or version.
        """
        return await self.ask(Request("GET", Resource(group, version, "", namespaced=False)))

    async def read_log(self, pod: str, *, namespace: str, container: str, tail_lines: int) -> str:
        """Return the last lines of a container's log."""
        query = {"container": container, "tailLines": str(tail_lines)}
        request = Request("GET", PODS, pod, namespace, "log", query=query)
        pieces = [piece async for piece in self._read(request)]
        return b"".join(pieces).decode(errors="replace")

    async def read_page(self, pod: str, *, namespace: str, port: int, path: str) -> bytes:
        """Return what a pod answers by HTTP, through the API server; needs the verb `get` on `pods/proxy`.

        Raises `NotFoundError` where there is no such pod or page, `ServerError` where it can't be reached.
        """
        request = Request("GET", PODS, f"{pod}:{port}", namespace, "proxy", path)
        page = b""
        async with self._stream(request, seconds=self._seconds) as response:
            async for piece in response.content.iter_chunked(LIST_PIECE):
                page += piece
                if len(page) > MOST_PAGE:
                    problem = f"the pod answers with more than {MOST_PAGE} bytes"
                    raise UnreachableError(str(request), 0, "no page", problem)
        return page

    async def stream_log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str,
        follow: bool,
        since: str | None = None,
        tail_lines: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield a container's log in pieces as it comes, each line with its time before it.

        From a time (RFC 3339, whole seconds) on, or only its last lines; with `follow` until the container
        has ended.
        """
        query = {"container": container, "timestamps": "true", "follow": str(follow).lower()}
        if since is not None:
            query["sinceTime"] = since
        if tail_lines is not None:
            query["tailLines"] = str(tail_lines)
        # Little is read ahead: many logs are read at once.
        request = Request("GET", PODS, pod, namespace, "log", query=query)
        async with self._stream(
            request, seconds=None, silence=LOG_SILENCE_SECONDS, read_ahead=LOG_PIECE
        ) as response:
            _shrink_transport(response)
            async for piece in response.content.iter_chunked(LOG_PIECE):
                yield piece

    @asynccontextmanager
    async def run_command(
        self, pod: str, *, namespace: str, container: str, command: Sequence[str], tty: bool
    ) -> AsyncIterator[RemoteCommand]:
        """Run a command in a container within the context; with `tty` on a terminal.

        Raises `NotFoundError` where there is no such pod, and `RefusedError` where it can't be asked so.
        """
        wanted = {"stdin": True, "stdout": True, "stderr": not tty, "tty": tty}
        query: dict[str, str | Sequence[str]] = {name: str(value).lower() for name, value in wanted.items()}
        query |= {"container": container, "command": list(command)}
        request = Request("GET", PODS, pod, namespace, "exec", query=query)
        async with self._socket(request, COMMAND_PROTOCOL, heartbeat=COMMAND_HEARTBEAT_SECONDS) as socket:
            yield RemoteCommand(str(request), socket)

    @asynccontextmanager
    async def forward_port(self, pod: str, *, namespace: str, port: int) -> AsyncIterator[ForwardedPort]:
        """Connect to a port of a pod within the context; needs `get` and `create` on `pods/portforward`.

        Raises `NotFoundError` where there is no such pod, and `RefusedError` where it can't be reached so.
        """
        request = Request("GET", PODS, pod, namespace, "portforward", query={"ports": str(port)})
        async with self._socket(request, FORWARD_PROTOCOL, heartbeat=FORWARD_HEARTBEAT_SECONDS) as socket:
            yield ForwardedPort(str(request), socket)

    @asynccontextmanager
    async def _socket(
        self, request: Request, protocol: str, *, heartbeat: float
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        headers = self._build_headers(request)
        opening = self._open_pool().open_socket(
            request, headers, protocol, heartbeat=heartbeat, seconds=self._seconds
        )
        async with opening as socket:
            yield socket

    async def _read(self, request: Request) -> AsyncIterator[bytes]:
        """Yield an answer in pieces; raises the typed error of any answer but success."""
        if not self._brief:
            async with self._stream(request, seconds=self._seconds) as response:
                async for piece in response.content.iter_chunked(LIST_PIECE):
                    yield piece
            return
        try:
            answer = await exchange(
                self._configuration, request, self._build_headers(request), seconds=self._seconds
            )
        except UnreachableError:
            self._count(request, 0)
            raise
        self._count(request, answer.status)
        if answer.status >= 300:
            raise read_api_error(str(request), answer.status, answer.text, retry_after=answer.retry_after)
        yield answer.text

    @asynccontextmanager
    async def _stream(
        self,
        request: Request,
        *,
        seconds: float | None,
        silence: float | None = None,
        read_ahead: int = LINE_PIECE,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; raise the typed error of any answer but success. See `ConnectionPool.send`."""
        headers = self._build_headers(request)
        sent = self._open_pool().send(
            request, headers, seconds=seconds, silence=silence, read_ahead=read_ahead
        )
        async with sent as response:
            yield response

    def _open_pool(self) -> ConnectionPool:
        """Return the connections of this API, opened by the first request that needs them."""
        if self._pool is None:
            from fray.kube.connection_pool import ConnectionPool  # noqa: PLC0415 - see the top

            self._pool = ConnectionPool(self._configuration, self._count, limit=self._connections)
        return self._pool

    def _build_headers(self, request: Request) -> dict[str, str]:
        """Return the headers with the credentials; raises `UnauthorizedError`, which never shows them."""
        try:
            # In a pod this reads the token's file, at most once a minute: it may be unreadable, empty
            # (ConfigException) or no text (incluster_config.py of kubernetes 37).
            authorization = self._configuration.read_authorization()
        except (config.ConfigException, OSError, UnicodeDecodeError) as unread:
            self._count(request, 0)
            raise UnauthorizedError(str(request), 0, type(unread).__name__, str(unread)) from unread
        if authorization is not None and not (authorization.isascii() and authorization.isprintable()):
            self._count(request, 0)
            raise UnauthorizedError(str(request), 0, "no token", "the account's token can't be sent")
        return request.build_headers(authorization)

    def _count(self, request: Request, status: int) -> None:
        if self._on_answer is not None:
            self._on_answer(request.method, request.resource, status)


def _shrink_transport(response: aiohttp.ClientResponse) -> None:
    """Let the buffers of a connection stay small, too, those of TLS included."""
    transport = response.connection.transport if response.connection is not None else None
    if (limit := getattr(transport, "set_read_buffer_limits", None)) is not None:
        limit(high=LOG_PIECE)  # that of TLS alone has it, which holds half a megabyte
    if (tls := getattr(transport, "_ssl_protocol", None)) is not None:
        # Buffers of 256 KiB (asyncio/sslproto.py of Python 3.11 to 3.14); each read looks at these anew.
        tls.max_size, tls._ssl_buffer = LOG_PIECE, bytearray(LOG_PIECE)
        tls._ssl_buffer_view = memoryview(tls._ssl_buffer)
