"""A kubelet that only has logs: the API server asks it for those of the pods on its node.

Logs are lists of lines with their times. It does what a kubelet does with `sinceTime`, `tailLines` and
`follow`, and can cut the streams that are open.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from e2e.cluster.api import Api
from e2e.cluster.certificates import Authority
from e2e.loops import run_in_loop

__all__ = ["START", "FakeKubelet"]

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
PATIENCE = 60.0


class FakeKubelet:
    """The kubelet of one node, in a thread of its own inside a `with` block."""

    def __init__(self, api: Api, node: str, directory: Path) -> None:
        self._api, self.node, self._directory = api, node, directory
        self._thread = threading.Thread(target=lambda: run_in_loop(self._serve()), name="kubelet")
        self._started = threading.Event()
        self._changed = asyncio.Condition()
        self._stop = asyncio.Event()
        self._logs: dict[str, list[tuple[datetime, bytes]]] = {}
        self._ended: set[str] = set()
        self._cuts = 0
        self.knows_pods = True
        """Whether it has heard of its pods: one that has just started denies that there are any."""
        self.open_streams = 0
        """Logs that are being read."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        """Pod and query of each request."""
        self.sent_bytes: Counter[str] = Counter()
        """How much of the log of each pod was sent, times included."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(PATIENCE)
        assert self._api.post("/api/v1/nodes", {"metadata": {"name": self.node}}).ok
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }
        assert self._api.merge(f"/api/v1/nodes/{self.node}/status", {"status": status}).ok
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        assert self._api.delete(f"/api/v1/nodes/{self.node}").ok

    def write(self, pod: str, *lines: str | bytes, at: float = 0.0, ended: bool = False) -> None:
        """Let a pod print lines, a millisecond apart, from `at` seconds after `START`; and end."""
        begin = START + timedelta(seconds=at)
        encoded = [line.encode() if isinstance(line, str) else line for line in lines]
        timed = [(begin + timedelta(milliseconds=index), line) for index, line in enumerate(encoded)]

        async def change() -> None:
            self._logs.setdefault(pod, []).extend(timed)
            if ended:
                self._ended.add(pod)
            await self._tell()

        self._do(change())

    def rotate(self, pod: str) -> None:
        """Lose what a pod has printed so far."""

        async def change() -> None:
            self._logs[pod] = []

        self._do(change())

    def cut(self) -> None:
        """Cut all open streams."""

        async def change() -> None:
            self._cuts += 1
            await self._tell()

        self._do(change())

    def size_of(self, pod: str, *, last: int | None = None) -> int:
        """Return how many bytes the log of a pod has as it is sent, or its last lines."""
        lines = self._logs[pod][-last if last is not None else 0 :]
        return sum(len(_encode(at, line)) for at, line in lines)

    def streams_of(self, pod: str) -> int:
        """Return how often the log of a pod was asked for."""
        return sum(name == pod for name, _ in self.requests)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _do(self, change: Any) -> None:
        asyncio.run_coroutine_threadsafe(change, self._loop).result(PATIENCE)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        pair = Authority().issue_server("kubelet", ["127.0.0.1"])
        for name, content in (("kubelet.crt", pair.certificate), ("kubelet.key", pair.key)):
            (self._directory / name).write_bytes(content)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._directory / "kubelet.crt", self._directory / "kubelet.key")
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._count)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        self._port = runner.addresses[0][1]
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _count(self, request: web.Request) -> web.StreamResponse:
        self.open_streams += 1
        try:
            return await self._answer(request)
        finally:
            self.open_streams -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        pod = request.match_info["pod"]
        self.requests.append((pod, dict(request.query)))
        if not self.knows_pods:
            return web.Response(status=404, text=f'pod "{pod}" does not exist')
        cuts = self._cuts
        since = request.query.get("sinceTime")
        first = datetime.fromisoformat(since) if since else START
        response = web.StreamResponse()
        await response.prepare(request)
        sent = 0
        if (tail := request.query.get("tailLines")) is not None:
            sent = max(0, len(self._logs.get(pod, [])) - int(tail))
        while True:
            log = self._logs.get(pod, [])
            sent = min(sent, len(log))
            for at, line in log[sent:]:
                if at >= first:
                    data = _encode(at, line)
                    await response.write(data)
                    self.sent_bytes[pod] += len(data)
            sent = len(log)
            if pod in self._ended or request.query.get("follow") != "true":
                return response
            async with self._changed:
                while self._cuts == cuts and len(self._logs.get(pod, [])) == sent and pod not in self._ended:
                    await self._changed.wait()
            if self._cuts != cuts:
                assert request.transport is not None
                request.transport.abort()
                return response


def _encode(at: datetime, line: bytes) -> bytes:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode() + b" " + line + b"\n"
