"""Connections to an API server that are kept and shared, and streams over them, by aiohttp."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from fray.kube.configuration import Configuration
from fray.kube.errors import UnreachableError, read_api_error
from fray.kube.request import Request

__all__ = ["ConnectionPool"]

CONNECT_SECONDS = 30.0
"""How long a stream without an end may take to begin."""
CLOSE_SECONDS = 2.0


class ConnectionPool:
    """Connections to one API server; they belong to the loop of the first request.

    `on_answer` gets each request and the HTTP status of its answer (0 when none came); `limit` is how many
    connections there may be at once, 0: any number.
    """

    def __init__(
        self, configuration: Configuration, on_answer: Callable[[Request, int], None], *, limit: int
    ) -> None:
        self._host, self._on_answer = configuration.host, on_answer
        # What a kubeconfig says of the way: a proxy, and the name in the server's certificate.
        known = {"proxy": _find_proxy(configuration), "server_hostname": configuration.tls_server_name}
        self._route: dict[str, Any] = {name: value for name, value in known.items() if value}
        tls = True if configuration.tls is None else configuration.tls
        connector = aiohttp.TCPConnector(limit=limit, ssl=tls)
        self._session = aiohttp.ClientSession(connector=connector)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    @asynccontextmanager
    async def send(
        self,
        request: Request,
        headers: Mapping[str, str],
        *,
        seconds: float | None,
        silence: float | None = None,
        read_ahead: int,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; raise the typed error of any answer but success.

        Parameters: `seconds` that all of it may take, None: as long as it likes; how many seconds its
        `silence` may last; how many bytes are read ahead.
        """
        begin = CONNECT_SECONDS if seconds is None else None
        try:
            response = await self._session.request(
                request.verb,
                self._host + request.target,
                headers=headers,
                data=request.content,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=begin, sock_read=silence),
                read_bufsize=read_ahead,
                **self._route,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as lost:
            self._on_answer(request, 0)
            raise UnreachableError(str(request), 0, type(lost).__name__, str(lost)) from lost
        self._on_answer(request, response.status)
        try:
            if response.status >= 400:
                after = response.headers.get("Retry-After", "")
                raise read_api_error(str(request), response.status, await response.read(), retry_after=after)
            yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as cut:
            raise UnreachableError(str(request), 0, type(cut).__name__, str(cut)) from cut
        finally:
            _end(response)

    @asynccontextmanager
    async def open_socket(
        self, request: Request, headers: Mapping[str, str], protocol: str, *, heartbeat: float, seconds: float
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a websocket; raises the typed error of any other answer.

        Parameters: the `protocol` that is to be spoken; `heartbeat`: seconds between two pings; `seconds`
        that the opening may take.
        """
        # A kubelet answers 406 to a request for a socket that accepts JSON alone.
        own = {name: value for name, value in headers.items() if name == "Authorization"}
        try:
            async with asyncio.timeout(seconds):
                socket = await self._session.ws_connect(
                    self._host + request.target,
                    protocols=(protocol,),
                    headers=own,
                    heartbeat=heartbeat,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                    max_msg_size=0,
                    **self._route,
                )
        except aiohttp.WSServerHandshakeError as refused:
            # aiohttp drops the answer's text: asked plainly, the server says the same and does nothing.
            async with self.send(request, headers, seconds=seconds, read_ahead=1 << 16):
                problem = f"its answer to a websocket was {refused.status} {refused.message}"
            raise UnreachableError(str(request), 0, "no websocket", problem) from refused
        except (aiohttp.ClientError, OSError, TimeoutError) as lost:
            self._on_answer(request, 0)
            raise UnreachableError(str(request), 0, type(lost).__name__, str(lost)) from lost
        self._on_answer(request, 101)
        try:
            if socket.protocol != protocol:
                problem = f"the server doesn't speak {protocol}"
                raise UnreachableError(str(request), 0, "no websocket", problem)
            yield socket
        finally:
            await socket.close()


def _end(response: aiohttp.ClientResponse) -> None:
    """Give the connection back to the pool, or close it if a part of the answer is still to come."""
    if response.closed or response.content.is_eof():
        response.release()
        return
    # Nobody would wait for TLS to close the connection.
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


def _find_proxy(configuration: Configuration) -> str | None:
    """Return the proxy of a kubeconfig, or else that of the environment.

    It is found once: aiohttp would look for it in another thread at each request, and for a netrc too, whose
    password it can't send beside a token.
    """
    server = urlsplit(configuration.host)
    if configuration.proxy is not None or proxy_bypass(server.hostname or ""):
        return configuration.proxy
    return getproxies().get(server.scheme)
