"""A local port that stands for a port of a pod: port-forwards of the API server.

Each connection to it is a websocket of its own, so that one which breaks is made anew by the next that
connects.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from functools import partial
from typing import Final

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.session import Session
from fray.kube.pod_streams import ForwardedPort
from fray.runtime.pool.transport.addresses import Address

__all__ = ["PortForward"]

LOCAL: Final = "127.0.0.1"
PIECE: Final = 1 << 16
"""Bytes that are read from a local connection at once."""


class PortForward:
    """A local port that stands for a port of a pod, until `close`."""

    def __init__(self, session: Session, pod: str, port: int) -> None:
        self._session, self._pod, self._port = session, pod, port
        self._listener = socket.create_server((LOCAL, 0))
        self.address = Address(host=LOCAL, port=self._listener.getsockname()[1])
        self.problem: Exception | None = None
        """Why the last connection couldn't be made, or has ended."""
        threading.Thread(target=self._accept, name=f"fray-forward {pod}:{port}", daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread, as closing it doesn't
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return  # closed
            accepted.setblocking(False)
            self._session.start(partial(self._carry, accepted), partial(self._end, accepted))

    async def _carry(self, accepted: socket.socket, access: Access) -> None:
        """Move bytes between a local connection and the pod, until one of them ends."""
        async with access.api.forward_port(
            self._pod, namespace=access.namespace, port=self._port
        ) as forwarded:
            reader, writer = await asyncio.open_connection(sock=accepted)
            ways = [
                asyncio.ensure_future(_send(reader, forwarded)),
                asyncio.ensure_future(_receive(forwarded, writer)),
            ]
            try:
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                try:
                    await asyncio.wait(ways)
                finally:  # a second cancellation may cut the wait short
                    writer.transport.abort()
            for way in done:
                way.result()

    def _end(self, accepted: socket.socket, error: Exception | None) -> None:
        # First of all: who connected learns it once the connection is closed.
        self.problem = error
        accepted.close()


async def _send(reader: asyncio.StreamReader, forwarded: ForwardedPort) -> None:
    try:
        while data := await reader.read(PIECE):
            await forwarded.send(data)
    except ConnectionError:
        return  # one of the two has ended, which is all that there is to tell


async def _receive(forwarded: ForwardedPort, writer: asyncio.StreamWriter) -> None:
    async for data in forwarded:
        writer.write(data)
        try:
            await writer.drain()
        except ConnectionError:
            return  # who connected has gone
