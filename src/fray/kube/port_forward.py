"""A connection to a port of a pod, over one websocket to the API server.

The first byte of each message is a channel, 0 for data and 1 for what went wrong; the first message of each
holds the port: https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import aiohttp

from fray.kube.errors import ServerError, UnreachableError

__all__ = ["PROTOCOL", "ForwardedPort"]

PROTOCOL: Final = "v4.channel.k8s.io"
DATA: Final = 0
PROBLEM: Final = 1


class ForwardedPort:
    """A connection to a port of a pod. Iterate over it for what comes from there.

    Args:
        request: How errors name it.
        socket: The open websocket; its opener closes it.
    """

    def __init__(self, request: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._request, self._socket = request, socket

    async def send(self, data: bytes) -> None:
        """Send to the port; raises ConnectionError once the connection has ended."""
        await self._socket.send_bytes(bytes([DATA]) + data)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield what comes, until the other end closes the connection.

        Raises:
            ServerError: The pod can't be reached, or nobody listens there.
            UnreachableError: The connection broke, or somebody else answered.
        """
        begun: set[int] = set()
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                raise UnreachableError(self._request, 0, message.type.name, str(message.data))
            channel, data = message.data[0], message.data[1:]
            if channel not in begun:
                begun.add(channel)
            elif channel == PROBLEM:
                raise ServerError(self._request, 0, "PortForward", data.decode(errors="replace"))
            elif data:
                yield data
