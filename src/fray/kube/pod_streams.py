"""Streams to a pod, each over one websocket to the API server: a command in a container, and a port.

The first byte of each message is a channel. A command has its streams, its terminal and its exit code, by the
protocol `v5.channel.k8s.io`; a port has 0 for data and 1 for what went wrong, and the first message of each
holds the port:
https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go
https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from fray.kube.errors import ServerError, UnreachableError, build_api_error

if TYPE_CHECKING:
    import aiohttp

__all__ = ["COMMAND_PROTOCOL", "FORWARD_PROTOCOL", "Channel", "ForwardedPort", "RemoteCommand"]

COMMAND_PROTOCOL: Final = "v5.channel.k8s.io"
"""The first one that can send the end of standard input. API servers have it from 1.30 on."""
NON_ZERO_EXIT: Final = "NonZeroExitCode"

FORWARD_PROTOCOL: Final = "v4.channel.k8s.io"
DATA: Final = 0
PROBLEM: Final = 1
"""Channels of a forwarded port."""


class Channel(IntEnum):
    """What a message belongs to. ENDING holds the `Status` of the command, CLOSE the number of a channel."""

    INPUT = 0
    OUTPUT = 1
    ERRORS = 2
    ENDING = 3
    SIZE = 4
    CLOSE = 255


async def _read_messages(
    request: str, socket: aiohttp.ClientWebSocketResponse
) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the channel and the content of each message."""
    import aiohttp  # noqa: PLC0415 - slow, and imported already by who has opened a websocket

    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            raise UnreachableError(request, 0, message.type.name, str(message.data))
        yield message.data[0], message.data[1:]


class RemoteCommand:
    """A command that runs in a container. Iterate over it for what it prints, then ask for `exit_code`.

    Args:
        request: How errors name it.
        socket: The open websocket; its opener closes it.
    """

    def __init__(self, request: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._request, self._socket = request, socket
        self._ending: dict[str, Any] | None = None

    async def send(self, data: bytes) -> None:
        """Write to its standard input; raises ConnectionError once the command has ended."""
        await self._send(Channel.INPUT, data)

    async def end_input(self) -> None:
        """Close its standard input; raises ConnectionError once the command has ended."""
        await self._send(Channel.CLOSE, bytes([Channel.INPUT]))

    async def resize(self, columns: int, lines: int) -> None:
        """Tell its terminal how large it is; raises ConnectionError once the command has ended."""
        await self._send(Channel.SIZE, json.dumps({"Width": columns, "Height": lines}).encode())

    async def __aiter__(self) -> AsyncIterator[tuple[Channel, bytes]]:
        """Yield what it prints, each piece with OUTPUT or ERRORS, until it has ended.

        Raises:
            UnreachableError: The connection broke, or somebody else answered.
        """
        async for channel, data in _read_messages(self._request, self._socket):
            if channel in (Channel.OUTPUT, Channel.ERRORS):
                if data:
                    yield Channel(channel), data
            elif channel == Channel.ENDING:
                self._ending = self._read_status(data)
                return

    @property
    def exit_code(self) -> int:
        """The exit code, once iteration has ended.

        Raises:
            UnreachableError: The connection ended before the command did.
            ApiError: The command could not be run.
        """
        if self._ending is None:
            raise UnreachableError(self._request, 0, "closed", "the connection ended before the command did")
        if self._ending.get("status") == "Success":
            return 0
        if self._ending.get("reason") == NON_ZERO_EXIT:
            causes = (self._ending.get("details") or {}).get("causes") or []
            codes = [cause.get("message", "") for cause in causes if cause.get("reason") == "ExitCode"]
            if codes and codes[0].isdecimal():
                return int(codes[0])
        raise build_api_error(self._request, self._ending.get("code") or 500, self._ending)

    async def _send(self, channel: Channel, data: bytes) -> None:
        await self._socket.send_bytes(bytes([channel]) + data)

    def _read_status(self, data: bytes) -> dict[str, Any]:
        try:
            status = json.loads(data)
        except ValueError as garbled:
            raise UnreachableError(self._request, 0, "no object", str(garbled)) from garbled
        if not isinstance(status, dict):
            raise UnreachableError(self._request, 0, "no object", "the ending of the command is no Status")
        return status


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
        async for channel, data in _read_messages(self._request, self._socket):
            if channel not in begun:
                begun.add(channel)
            elif channel == PROBLEM:
                raise ServerError(self._request, 0, "PortForward", data.decode(errors="replace"))
            elif data:
                yield data
