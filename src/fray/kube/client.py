"""`KubeApi` on the official `kubernetes` package, for its configuration and credentials, and on aiohttp.

Only transport is here. The generated models aren't used: they cost memory, drop fields they don't know,
and Fray's own kinds have none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp

from fray.kube.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
    read_api_error,
)
from fray.kube.objects import (
    ListReader,
    Manifest,
    Page,
    Propagation,
    WatchEvent,
    build_delete_options,
    parse_event,
    parse_object,
)
from fray.kube.official_client import ApiClient, Configuration, config
from fray.kube.pod_streams import COMMAND_PROTOCOL, FORWARD_PROTOCOL, ForwardedPort, RemoteCommand
from fray.kube.resources import DISCOVERY, PODS, Resource

__all__ = [
    "REQUEST_SECONDS",
    "WATCH_GRACE_SECONDS",
    "WATCH_SECONDS",
    "WATCH_SILENCE_SECONDS",
    "KubernetesApi",
]

REQUEST_SECONDS = 30.0
WATCH_SECONDS = 300
"""How long the server keeps a watch open; a silent one ends here at the latest."""
WATCH_GRACE_SECONDS = 15.0
LOG_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_SECONDS, sock_read=300.0)
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
CLOSE_SECONDS = 2.0
MOST_PAGE = 1 << 24
"""Bytes of a pod's own answer that are taken."""
PAGE_BYTES = 1 << 20
"""Of objects that are handed out at once, at most, but for the last of them."""
JSON = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""For what is created or watched: https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches"""
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
WATCH_SILENCE_SECONDS = 90.0
"""A watch that is silent for so long is dead: the server sends a bookmark every minute."""


class KubernetesApi:
    """Access to one API server. Use as an async context manager, or call `close`.

    `on_answer` gets the method, resource and HTTP status of every answer (0 when none came).
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        request_seconds: float = REQUEST_SECONDS,
        watch_silence_seconds: float = WATCH_SILENCE_SECONDS,
        on_answer: Callable[[str, Resource, int], None] | None = None,
    ) -> None:
        self._client = ApiClient(configuration)
        self._session: aiohttp.ClientSession | None = None
        self._timeout = aiohttp.ClientTimeout(total=request_seconds)
        self._watch_timeout = aiohttp.ClientTimeout(
            total=WATCH_SECONDS + WATCH_GRACE_SECONDS, sock_read=watch_silence_seconds
        )
        self._on_answer = on_answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await self._client.close()

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Manifest:
        """Return an object; raises `NotFoundError`."""
        return await self._json("GET", resource, resource.path(namespace=namespace, name=name))

    async def list_pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        metadata_only: bool = False,
    ) -> AsyncIterator[Page]:
        """Yield a collection in pages of at most `limit` objects; raises `ExpiredError` if too slow.

        A page is cut short where its objects are large; the last one has the version to watch from. With
        `metadata_only` nothing but their metadata is sent.
        """
        accept = METADATA_LIST if metadata_only else JSON
        query = {"limit": str(limit), "labelSelector": labels, "fieldSelector": fields}
        path = resource.path(namespace=namespace)
        while True:
            asked = {key: value for key, value in query.items() if value}
            metadata: Manifest = {}
            async for items, envelope in self._read_list(resource, path, asked, accept):
                metadata = envelope.get("metadata") or {}
                yield Page(items, metadata.get("resourceVersion", ""))
            query["continue"] = metadata.get("continue") or ""
            if not query["continue"]:
                return

    async def _read_list(
        self, resource: Resource, path: str, query: dict[str, str], accept: str
    ) -> AsyncIterator[tuple[list[Manifest], Manifest]]:
        """Yield the objects of an answer, as many at once as are small, at last with the rest of it."""
        reader, items, size = ListReader(), [], 0
        async with self._request(
            "GET", resource, path, query=query, accept=accept, timeout=self._timeout, packed=False
        ) as response:
            async for piece in response.content.iter_chunked(LIST_PIECE):
                items += reader.feed(piece)
                size += len(piece)
                if size >= PAGE_BYTES and items:
                    yield items, {}
                    items, size = [], 0
        try:
            last, envelope = reader.finish()
        except ValueError as garbled:
            raise UnreachableError(f"GET {path}", 0, "no object", str(garbled)) from garbled
        if not envelope.keys() >= {"kind", "metadata"}:
            raise UnreachableError(f"GET {path}", 0, "no object", "not a list")
        yield items + last, envelope

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """Yield changes after a version until the server ends the stream; raises `ExpiredError`."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        path = resource.path(namespace=namespace)
        accept, timeout = METADATA_ONLY if metadata_only else JSON, self._watch_timeout
        async with self._request(
            "WATCH", resource, path, query=query, accept=accept, timeout=timeout
        ) as response:
            try:
                async for line in response.content:
                    yield parse_event(f"WATCH {path}", line)
            except (aiohttp.ClientError, TimeoutError, ValueError) as cut:
                raise UnreachableError(f"WATCH {path}", 0, type(cut).__name__, str(cut)) from cut

    async def create(self, resource: Resource, body: Manifest, *, namespace: str | None = None) -> Manifest:
        """Create an object, strictly checked; of several callers one succeeds.

        Raises `AlreadyExistsError` for the others.
        """
        return await self._create(resource, body, namespace)

    async def store(self, resource: Resource, body: Manifest, *, namespace: str | None = None) -> None:
        """Create an object as `create` does, of which nothing comes back: for what is large, and known.

        A server packs its answers, which takes it longer than all the rest for a megabyte.
        """
        await self._create(resource, body, namespace, accept=METADATA_ONLY)

    async def replace(self, resource: Resource, body: Manifest, *, subresource: str = "") -> Manifest:
        """Replace an object of this resourceVersion; raises `ConflictError` if it has changed.

        One that is gone is a `NotFoundError`, or a `ConflictError` where a PUT may create (Leases).
        """
        metadata = body["metadata"]
        path = resource.path(
            namespace=metadata.get("namespace"), name=metadata["name"], subresource=subresource
        )
        return await self._json("PUT", resource, path, body=body)

    async def apply(
        self, resource: Resource, body: Manifest, *, manager: str, namespace: str | None = None
    ) -> Manifest:
        """Make an object be as `body` says, no matter who set its fields before; strictly checked.

        It is a server-side apply of `manager`: what that has set before and `body` lacks is taken away.
        """
        metadata = body["metadata"]
        path = resource.path(namespace=namespace or metadata.get("namespace"), name=metadata["name"])
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Strict"}
        return await self._json("PATCH", resource, path, body=body, query=query)

    async def discover(self, group: str, version: str = "") -> Manifest:
        """Return what a version of an API group serves, or which versions there are.

        Raises `NotFoundError` where there is no such group or version.
        """
        path = "/".join(quote(part, safe="") for part in ("apis", group, version) if part)
        return await self._json("GET", DISCOVERY, f"/{path}")

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation = "Background",
    ) -> None:
        """Delete an object, only if it still has this uid; one that is gone already is fine.

        With a version only if it still is of that one; raises `ConflictError` if it has changed.
        """
        body = build_delete_options(propagation, uid=uid, resource_version=resource_version)
        try:
            await self._json("DELETE", resource, resource.path(namespace=namespace, name=name), body=body)
        except NotFoundError:
            return
        except ConflictError:
            if uid is None or await self._has_uid(resource, name, namespace=namespace, uid=uid):
                raise
            # Another object has taken the name: the one that was meant is gone.

    async def _has_uid(self, resource: Resource, name: str, *, namespace: str | None, uid: str) -> bool:
        try:
            found = await self.get(resource, name, namespace=namespace)
        except NotFoundError:
            return False
        return bool(found["metadata"]["uid"] == uid)

    async def read_log(self, pod: str, *, namespace: str, container: str, tail_lines: int) -> str:
        """Return the last lines of a container's log."""
        path = PODS.path(namespace=namespace, name=pod, subresource="log")
        query = {"container": container, "tailLines": str(tail_lines)}
        async with self._request("GET", PODS, path, query=query, timeout=self._timeout) as response:
            return (await response.read()).decode(errors="replace")

    async def read_page(self, pod: str, *, namespace: str, port: int, path: str) -> bytes:
        """Return what a pod answers by HTTP, through the API server; needs the verb `get` on `pods/proxy`.

        Raises `NotFoundError` where there is no such pod or page, `ServerError` where it can't be reached.
        """
        path = PODS.path(namespace=namespace, name=f"{pod}:{port}", subresource="proxy") + path
        page = b""
        async with self._request("GET", PODS, path, timeout=self._timeout) as response:
            async for piece in response.content.iter_chunked(LIST_PIECE):
                page += piece
                if len(page) > MOST_PAGE:
                    problem = f"the pod answers with more than {MOST_PAGE} bytes"
                    raise UnreachableError(f"GET {path}", 0, "no page", problem)
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
        path = PODS.path(namespace=namespace, name=pod, subresource="log")
        query = {"container": container, "timestamps": "true", "follow": str(follow).lower()}
        if since is not None:
            query["sinceTime"] = since
        if tail_lines is not None:
            query["tailLines"] = str(tail_lines)
        # Little is read ahead: many logs are read at once.
        async with self._request(
            "GET", PODS, path, query=query, timeout=LOG_TIMEOUT, read_ahead=LOG_PIECE
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
        path = PODS.path(namespace=namespace, name=pod, subresource="exec")
        wanted = {"stdin": True, "stdout": True, "stderr": not tty, "tty": tty}
        query: dict[str, str | list[str]] = {name: str(value).lower() for name, value in wanted.items()}
        query |= {"container": container, "command": list(command)}
        async with self._socket(path, query, COMMAND_PROTOCOL, heartbeat=COMMAND_HEARTBEAT_SECONDS) as socket:
            yield RemoteCommand(f"GET {path}", socket)

    @asynccontextmanager
    async def forward_port(self, pod: str, *, namespace: str, port: int) -> AsyncIterator[ForwardedPort]:
        """Connect to a port of a pod within the context; needs `get` and `create` on `pods/portforward`.

        Raises `NotFoundError` where there is no such pod, and `RefusedError` where it can't be reached so.
        """
        path = PODS.path(namespace=namespace, name=pod, subresource="portforward")
        query = {"ports": str(port)}
        heartbeat = FORWARD_HEARTBEAT_SECONDS
        async with self._socket(path, query, FORWARD_PROTOCOL, heartbeat=heartbeat) as socket:
            yield ForwardedPort(f"GET {path}", socket)

    @asynccontextmanager
    async def _socket(
        self, path: str, query: Mapping[str, str | list[str]], protocol: str, *, heartbeat: float
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a websocket to a subresource of a pod; raises the typed error of any other answer."""
        headers = await self._authorize({}, "GET", PODS, path)
        try:
            async with asyncio.timeout(self._timeout.total):
                socket = await self._open_session().ws_connect(
                    self._url(path, query),
                    protocols=(protocol,),
                    headers=headers,
                    heartbeat=heartbeat,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                    max_msg_size=0,
                    **self._route(),
                )
        except aiohttp.WSServerHandshakeError as refused:
            # aiohttp drops the answer's text: asked plainly, the server says the same and does nothing.
            async with self._request("GET", PODS, path, query=query, timeout=self._timeout):
                problem = f"its answer to a websocket was {refused.status} {refused.message}"
            raise UnreachableError(f"GET {path}", 0, "no websocket", problem) from refused
        except (aiohttp.ClientError, OSError, TimeoutError) as lost:
            self._count("GET", PODS, 0)
            raise UnreachableError(f"GET {path}", 0, type(lost).__name__, str(lost)) from lost
        self._count("GET", PODS, 101)
        try:
            if socket.protocol != protocol:
                problem = f"the server doesn't speak {protocol}"
                raise UnreachableError(f"GET {path}", 0, "no websocket", problem)
            yield socket
        finally:
            await socket.close()

    async def _create(
        self, resource: Resource, body: Manifest, namespace: str | None, *, accept: str = JSON
    ) -> Manifest:
        path = resource.path(namespace=namespace or body["metadata"].get("namespace"))
        # Plain create drops unknown fields silently.
        query = {"fieldValidation": "Strict"}
        return await self._json("POST", resource, path, body=body, query=query, accept=accept)

    async def _json(
        self,
        method: str,
        resource: Resource,
        path: str,
        *,
        body: Manifest | None = None,
        query: dict[str, str] | None = None,
        accept: str = JSON,
    ) -> Manifest:
        async with self._request(
            method, resource, path, body=body, query=query, accept=accept, timeout=self._timeout
        ) as response:
            text = await response.read()
        try:
            answer = parse_object(text, "kind")
        except ValueError as garbled:
            # Something between us and the server answered, or cut the answer.
            raise UnreachableError(f"{method} {path}", 0, "no object", str(garbled)) from garbled
        return answer

    @asynccontextmanager
    async def _request(  # noqa: PLR0913 - all requests go through it
        self,
        method: str,
        resource: Resource,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, which also bounds silence
        body: Manifest | None = None,
        query: Mapping[str, str | list[str]] | None = None,
        accept: str = JSON,
        packed: bool = True,
        read_ahead: int = LINE_PIECE,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; raise the typed error of any answer but success."""
        request = f"{method} {path}"
        # The only patch that is sent is a server-side apply, whose YAML may be JSON.
        content = "application/apply-patch+yaml" if method == "PATCH" else JSON
        headers = {"Accept": accept, "Content-Type": content}
        if not packed:
            headers["Accept-Encoding"] = "identity"  # a small piece may hold a hundred megabytes
        headers = await self._authorize(headers, method, resource, path)
        try:
            response = await self._open_session().request(
                "GET" if method == "WATCH" else method,
                self._url(path, query),
                headers=headers,
                data=None if body is None else json.dumps(body),
                timeout=timeout,
                read_bufsize=read_ahead,
                **self._route(),
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as lost:
            self._count(method, resource, 0)
            raise UnreachableError(request, 0, type(lost).__name__, str(lost)) from lost
        self._count(method, resource, response.status)
        try:
            if response.status >= 400:
                raise await _error_of(request, response)
            yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as cut:
            raise UnreachableError(request, 0, type(cut).__name__, str(cut)) from cut
        finally:
            _end(response)

    def _open_session(self) -> aiohttp.ClientSession:
        """Return the session of this API, opened by the first request: it belongs to the loop of that."""
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._client.configuration.connection_pool_maxsize,
                ssl=self._client.rest_client.ssl_context,
            )
            self._session = aiohttp.ClientSession(connector=connector, trust_env=True)
        return self._session

    def _url(self, path: str, query: Mapping[str, str | list[str]] | None) -> str:
        host: str = self._client.configuration.host
        return host + path + (f"?{urlencode(query, doseq=True)}" if query else "")

    def _route(self) -> dict[str, Any]:
        """Return what a kubeconfig says of the way: a proxy, and the name in the server's certificate."""
        configuration = self._client.configuration
        known = {
            "proxy": configuration.proxy,
            "proxy_headers": configuration.proxy_headers,
            "server_hostname": configuration.tls_server_name,
        }
        return {name: value for name, value in known.items() if value}

    async def _authorize(
        self, headers: dict[str, str], method: str, resource: Resource, path: str
    ) -> dict[str, str]:
        """Return headers with the credentials; raises `UnauthorizedError`."""
        try:
            # In a pod this reads the token's file, at most once a minute: it may be unreadable, empty
            # (ConfigException) or no text (incluster_config.py of kubernetes 37).
            await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
        except (config.ConfigException, OSError, UnicodeDecodeError) as unread:
            self._count(method, resource, 0)
            raise UnauthorizedError(f"{method} {path}", 0, type(unread).__name__, str(unread)) from unread
        # As client-go does: a token's file may end with a line break, which no header can hold.
        return {key: value.strip() for key, value in headers.items()}

    def _count(self, method: str, resource: Resource, status: int) -> None:
        if self._on_answer is not None:
            self._on_answer(method, resource, status)


def _shrink_transport(response: aiohttp.ClientResponse) -> None:
    """Let the buffers of a connection stay small, too, those of TLS included."""
    transport = response.connection.transport if response.connection is not None else None
    if (limit := getattr(transport, "set_read_buffer_limits", None)) is not None:
        limit(high=LOG_PIECE)  # that of TLS alone has it, which holds half a megabyte
    if (tls := getattr(transport, "_ssl_protocol", None)) is not None:
        # Buffers of 256 KiB (asyncio/sslproto.py of Python 3.11 to 3.14); each read looks at these anew.
        tls.max_size, tls._ssl_buffer = LOG_PIECE, bytearray(LOG_PIECE)
        tls._ssl_buffer_view = memoryview(tls._ssl_buffer)


def _end(response: aiohttp.ClientResponse) -> None:
    """Give the connection back to the pool, or close it if a part of the answer is still to come."""
    if response.closed or response.content.is_eof():
        response.release()
        return
    # Nobody would wait for TLS to close the connection.
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


async def _error_of(request: str, response: aiohttp.ClientResponse) -> ApiError:
    return read_api_error(
        request, response.status, await response.read(), retry_after=response.headers.get("Retry-After", "")
    )
