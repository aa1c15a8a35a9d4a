"""The API server of tests for programs outside of a cluster: objects, lists of actors, and port-forwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import WSMsgType, test_utils, web

from fray.kube.pod_streams import FORWARD_PROTOCOL
from tests.actors.objects_api import ObjectsApi

__all__ = ["ForwardingApi"]

PATIENCE = 60.0


class ForwardingApi:
    """Serves objects, and lets ports of this machine be those of all pods."""

    def __init__(self, objects: ObjectsApi) -> None:
        self._objects = objects
        self._sockets: set[web.WebSocketResponse] = set()
        self.denied = ""
        """The resource that the caller has no right to; empty: none."""
        self.forwarded: list[str] = []
        """The pods that connections were made to."""

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve it from a thread; give the URL."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)

        async def start() -> test_utils.TestServer:
            server = test_utils.TestServer(app)
            await server.start_server(shutdown_timeout=0.1)
            return server

        server = asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE)
        self._loop = loop
        try:
            yield str(server.make_url("")).rstrip("/")
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(PATIENCE)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def cut(self) -> None:
        """Break all connections to pods."""

        async def abort() -> None:
            for each in self._sockets:
                assert each._req is not None
                assert each._req.transport is not None
                each._req.transport.abort()

        asyncio.run_coroutine_threadsafe(abort(), self._loop).result(PATIENCE)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        *_, pod, last = request.path.rsplit("/", 2)
        resource = "pods/portforward" if last == "portforward" else request.path.split("/")[-2]
        if resource == self.denied:
            problem = (
                f'{resource} is forbidden: User "ann" cannot create resource "{resource}" in API group ""'
            )
            return web.json_response(
                {"kind": "Status", "reason": "Forbidden", "message": problem}, status=403
            )
        if last == "portforward":
            self.forwarded.append(pod)
            return await self._forward(request)
        body = await request.json() if request.can_read_body else {}
        if request.method == "GET" and last == "frayactors":
            found = [each for each in self._objects.objects.values() if each["kind"] == "FrayActor"]
            return web.json_response({"kind": "FrayActorList", "metadata": {}, "items": found})
        status, answer = self._objects.answer(request.method, request.path, body)
        return web.json_response(answer, status=status)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        port = int(request.query["ports"])
        websocket = web.WebSocketResponse(protocols=(FORWARD_PROTOCOL,), max_msg_size=0)
        await websocket.prepare(request)
        self._sockets.add(websocket)
        for channel in (0, 1):
            await websocket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as refused:
            await websocket.send_bytes(b"\1" + str(refused).encode())
            await websocket.close()
            return websocket

        async def send() -> None:
            while data := await reader.read(1 << 16):
                await websocket.send_bytes(b"\0" + data)
            await websocket.close()

        sending = asyncio.ensure_future(send())
        try:
            async for message in websocket:
                if message.type is WSMsgType.BINARY and message.data[0] == 0:
                    writer.write(message.data[1:])
                    await writer.drain()
        finally:
            sending.cancel()
            writer.close()
            self._sockets.discard(websocket)
        return websocket
