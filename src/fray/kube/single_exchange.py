"""One request over a connection of its own, by the standard library: for who asks once, and ends.

What aiohttp takes to be imported is a third of such a command's time. Proxies, redirections and streams are
aiohttp's business.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit
from urllib.request import getproxies

from fray.kube.configuration import Configuration
from fray.kube.errors import UnreachableError
from fray.kube.request import Request

__all__ = ["Answer", "exchange", "needs_proxy"]


@dataclass(frozen=True)
class Answer:
    """What a server answers, whatever it is; `retry_after` is the header, or empty."""

    status: int
    retry_after: str
    text: bytes = field(repr=False)


class _Recording:
    """A socket for `http.client`: keeps what is sent to it, and has received what it is given."""

    def __init__(self, received: bytes = b"") -> None:
        self.sent = bytearray()
        self._received = received

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._received)

    def close(self) -> None:
        pass


def needs_proxy(configuration: Configuration) -> bool:
    """Return whether a server may have to be reached through a proxy, as the kubeconfig or variables say."""
    return configuration.proxy is not None or bool(getproxies().keys() - {"no"})


async def exchange(
    configuration: Configuration, request: Request, headers: Mapping[str, str], *, seconds: float
) -> Answer:
    """Return what the server answers; raises `UnreachableError` where it doesn't.

    Parameters: `seconds` that all of it may take.
    """
    parts = urlsplit(configuration.host)
    host, tls = parts.hostname or "", configuration.tls
    try:
        port = parts.port or (80 if tls is None else 443)
        recording = _Recording()
        connection = http.client.HTTPConnection(host, port)
        connection.sock = cast("socket.socket", recording)
        plain = {"Accept-Encoding": "identity", "Connection": "close"}
        connection.request(request.verb, parts.path + request.target, request.content, {**headers, **plain})
        async with asyncio.timeout(seconds):
            name = None if tls is None else configuration.tls_server_name or host
            try:
                reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=name)
            except OSError as failed:
                reason = f"NotConnected ({type(failed).__name__})"
                raise UnreachableError(str(request), 0, reason, str(failed)) from failed
            try:
                writer.write(recording.sent)
                received = await reader.read()  # until the server closes the connection, as it was asked to
            finally:
                writer.transport.abort()  # nobody would wait for TLS to close it
        response = http.client.HTTPResponse(cast("socket.socket", _Recording(received)), method=request.verb)
        response.begin()
        return Answer(response.status, response.getheader("Retry-After", ""), response.read())
    except (OSError, ValueError, http.client.HTTPException) as lost:
        raise UnreachableError(str(request), 0, type(lost).__name__, str(lost)) from lost
