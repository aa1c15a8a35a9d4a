"""A cluster of tests whose programs are outside of it: they reach the ports of its pods by port-forwards."""

from __future__ import annotations

import asyncio

from aiohttp import WSMsgType, web

from fray.kube.errors import ApiError, ForbiddenError
from fray.kube.pod_streams import FORWARD_PROTOCOL
from fray.testing import Call, FakeCluster

__all__ = ["ForwardingCluster"]


class ForwardingCluster(FakeCluster):
    """Lets ports of this machine be those of all pods."""

    def __init__(self, *, namespace: str) -> None:
        super().__init__(namespace=namespace)
        self._sockets: set[web.WebSocketResponse] = set()
        self.denied = ""
        """The resource that the caller has no right to; empty: none."""
        self.forwarded: list[str] = []
        """The pods that connections were made to."""
        self.fault = self._refuse

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/portforward", self._forward)
        super().add_routes(router)

    def cut(self) -> None:
        """Break all connections to pods."""
        self._ask(self._abort)

    def _abort(self) -> None:
        for each in self._sockets:
            assert each._req is not None
            assert each._req.transport is not None
            each._req.transport.abort()

    def _refuse(self, call: Call) -> ApiError | None:
        if call.resource.plural != self.denied:
            return None
        return ForbiddenError(str(call), 403, "Forbidden", _forbidden(self.denied))

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if self.denied == "pods/portforward":
            status = {"kind": "Status", "reason": "Forbidden", "message": _forbidden(self.denied)}
            return web.json_response(status, status=403)
        self.forwarded.append(request.match_info["pod"])
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


def _forbidden(resource: str) -> str:
    return f'{resource} is forbidden: User "ann" cannot create resource "{resource}" in API group ""'
