"""Connections to ports of pods, against a server on loopback that speaks `v4.channel.k8s.io`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from fray.kube.client import KubernetesApi
from fray.kube.errors import ForbiddenError, ServerError, UnreachableError
from fray.kube.pod_streams import FORWARD_PROTOCOL, ForwardedPort
from tests.unit.kube.scripted_server import Handler, answer, ask, status_of

PATH = "/api/v1/namespaces/ml/pods/counter-0/portforward"
PORT = (8788).to_bytes(2, "little")


def serve(
    talk: Callable[[web.WebSocketResponse], Awaitable[None]], protocol: str = FORWARD_PROTOCOL
) -> Handler:
    """Greet as a kubelet does, on both channels, and then talk."""

    async def handle(request: web.Request) -> web.StreamResponse:
        assert (request.path, request.query["ports"]) == (PATH, "8788")
        if request.headers.get("Accept", "*/*") != "*/*":  # a kubelet has no other
            raise web.HTTPNotAcceptable
        socket = web.WebSocketResponse(protocols=(protocol,))
        await socket.prepare(request)
        for channel in (b"\0", b"\1"):
            await socket.send_bytes(channel + PORT)
        await talk(socket)
        await socket.close()
        return socket

    return handle


def use(handler: Handler, talk: Callable[[ForwardedPort], Awaitable[None]]) -> None:
    async def main(api: KubernetesApi) -> None:
        async with api.forward_port("counter-0", namespace="ml", port=8788) as forwarded:
            await talk(forwarded)

    ask(handler, main)


async def read(forwarded: ForwardedPort) -> None:
    assert [piece async for piece in forwarded] == []


def test_bytes_go_both_ways_until_the_pod_closes() -> None:
    heard: list[Any] = []

    async def echo(socket: web.WebSocketResponse) -> None:
        message = await socket.receive()
        heard.append(message.data)
        await socket.send_bytes(b"\0")
        await socket.send_bytes(b"\0" + message.data[1:].upper())

    async def talk(forwarded: ForwardedPort) -> None:
        await forwarded.send(b"hello")
        assert [piece async for piece in forwarded] == [b"HELLO"]

    use(serve(echo), talk)
    assert heard == [b"\0hello"]


def test_a_port_where_nobody_listens_is_an_error_of_the_server() -> None:
    async def refuse(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\1connection refused")

    with pytest.raises(ServerError, match="connection refused"):
        use(serve(refuse), read)


def test_who_may_not_forward_ports_is_told_so() -> None:
    message = 'User "ann" cannot create resource "pods/portforward"'
    with pytest.raises(ForbiddenError, match="cannot create resource"):
        use(answer(403, status_of(403, "Forbidden", message)), read)


def test_a_server_of_another_protocol_is_refused() -> None:
    async def say_nothing(_: web.WebSocketResponse) -> None: ...

    with pytest.raises(UnreachableError, match=FORWARD_PROTOCOL):
        use(serve(say_nothing, protocol="v9"), read)
