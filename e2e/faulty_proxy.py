"""A proxy before the API server that does to requests and watches what networks and servers do to them.

It speaks plain HTTP on loopback, or TLS on any address, to its clients and TLS to the server, and passes on
who asks. A rule sees every request and may name a fault for it; open watches can be hurt at any time.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, Self

import aiohttp
from aiohttp import web

from e2e.loops import run_in_loop

__all__ = ["Call", "Fault", "FaultyProxy", "Harm", "Upstream"]

START_SECONDS = 180.0
DROPPED_HEADERS = {"host", "connection", "transfer-encoding", "content-length", "content-encoding"}


class Upstream(Protocol):
    """The API server: its address, and the PEM of the authority that signed it."""

    @property
    def url(self) -> str: ...  # noqa: D102 - said above
    @property
    def authority(self) -> bytes: ...  # noqa: D102


class Harm(StrEnum):
    """What can happen to a request."""

    ANSWER = "answered by an error"
    """The server never sees it."""
    LIE = "carried out, but answered by an error"
    CUT = "cut before it arrived"
    CUT_AFTER = "carried out, but cut before the answer"
    CUT_IN_BODY = "carried out, but cut within the answer"
    HANG = "swallowed"
    HANG_AFTER = "carried out, but never answered"
    DELAY = "late"


@dataclass(frozen=True)
class Fault:
    """One harm. `status`, `reason` and `headers` are the error's; a throttled caller returns after 1 s."""

    harm: Harm
    status: int = 0
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.harm} {self.status} {self.reason}".removesuffix(" 0 ")


@dataclass(frozen=True)
class Call:
    """A request as a rule sees it."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]

    @property
    def watch(self) -> bool:
        """Whether it opens a watch."""
        return self.query.get("watch") == "true"

    @property
    def what(self) -> str:
        """Method and kind, such as `PUT frayjobs/status` or `WATCH pods`."""
        parts = self.path.split("/")
        parts = parts[parts.index("namespaces") + 2 :] if "namespaces" in parts else parts[-1:]
        kind = "/".join([parts[0], *parts[2:]]) if parts else ""
        return f"{'WATCH' if self.watch else self.method} {kind}"


Rule = Callable[[Call], Fault | None]


class FaultyProxy:
    """The proxy, running in a thread of its own inside a `with` block.

    Parameters: `upstream` the server; `address` to listen at; `tls` for those who ask, plain without;
    `remember` whether all requests are kept in `calls`.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        address: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        remember: bool = True,
    ) -> None:
        self._upstream = upstream
        self._address, self._tls, self._remember = address, tls, remember
        self._thread = threading.Thread(target=lambda: run_in_loop(self._serve()), name="proxy")
        self._started = threading.Event()
        self._stop = asyncio.Event()
        self._watches: set[_Watch] = set()
        self._deaf: set[str] = set()
        self.url = ""
        self.rule: Rule = lambda _: None
        self.calls: list[Call] = []

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_SECONDS)
        assert not self._thread.is_alive()

    def open_watches(self, kind: str) -> int:
        """Return how many watches of a kind are open and unharmed."""
        return sum(watch.kind == kind and not watch.silent for watch in list(self._watches))

    def cut_watches(self, kind: str) -> int:
        """Cut the connections of all open watches of a kind; returns how many there were."""
        return self._on_watches(kind, lambda watch: watch.cut())

    def cut_all_watches(self) -> int:
        """Cut the connections of all watches that are open; returns how many there were."""
        return self._on_watches(None, lambda watch: watch.cut())

    def expire_all_watches(self) -> int:
        """Send an ERROR event (410) to all open watches, and end them; returns how many there were."""
        return self._on_watches(None, lambda watch: watch.fail(_status(410, "Expired")))

    def silence_watches(self, kind: str) -> int:
        """Pass nothing more on to the open watches of a kind, and keep them open; returns their number."""
        return self._on_watches(kind, lambda watch: watch.silence())

    @contextmanager
    def silenced(self, kind: str) -> Iterator[None]:
        """Pass nothing on to any watch of a kind that is open, or is opened within the block."""
        self._deaf.add(kind)
        try:
            self.silence_watches(kind)
            yield
        finally:
            self._deaf.discard(kind)

    def expire_watches(self, kind: str, *, code: int = 410, reason: str = "Expired") -> int:
        """Send an ERROR event to all open watches of a kind, and end them; returns how many there were."""
        return self._on_watches(kind, lambda watch: watch.fail(_status(code, reason)))

    def _on_watches(self, kind: str | None, harm: Callable[[_Watch], None]) -> int:
        def hurt() -> int:
            found = [watch for watch in self._watches if kind in (None, watch.kind)]
            for watch in found:
                harm(watch)
            return len(found)

        async def run() -> int:
            return hurt()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(START_SECONDS)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        context = ssl.create_default_context(cadata=self._upstream.authority.decode())
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, self._address, 0, ssl_context=self._tls)
            await site.start()
            scheme = "http" if self._tls is None else "https"
            self.url = f"{scheme}://{self._address}:{runner.addresses[0][1]}"
            self._started.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        payload = await request.read()
        call = Call(request.method, request.path, dict(request.query), json.loads(payload) if payload else {})
        if self._remember:
            self.calls.append(call)
        fault = self.rule(call)
        harm = fault.harm if fault is not None else None
        match harm:
            case Harm.ANSWER:
                return _refuse(fault)
            case Harm.CUT:
                return _cut(request)
            case Harm.HANG:
                return await _hang()
            case Harm.DELAY:
                await asyncio.sleep(0.3)
        headers = {key: value for key, value in request.headers.items() if key.lower() not in DROPPED_HEADERS}
        url = f"{self._upstream.url}{request.path_qs}"
        async with self._session.request(
            request.method, url, headers=headers, data=payload or None, skip_auto_headers=["Content-Type"]
        ) as answer:
            if call.watch and answer.status == 200:
                return await self._stream(request, call, answer)
            body = await answer.read()
        match harm:
            case Harm.LIE:
                return _refuse(fault)
            case Harm.CUT_AFTER:
                return _cut(request)
            case Harm.HANG_AFTER:
                return await _hang()
            case Harm.CUT_IN_BODY:
                return await _cut_in_body(request, answer.status, body)
        kept = {key: value for key, value in answer.headers.items() if key.lower() not in DROPPED_HEADERS}
        return web.Response(status=answer.status, headers=kept, body=body)

    async def _stream(
        self, request: web.Request, call: Call, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=200, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        watch = _Watch(call.what.removeprefix("WATCH "), request)
        if watch.kind in self._deaf:
            watch.silence()
        self._watches.add(watch)
        try:
            async for chunk in watch.chunks(answer.content):
                await response.write(chunk)
        finally:
            self._watches.discard(watch)
        return response


class _Watch:
    """One open watch."""

    def __init__(self, kind: str, request: web.Request) -> None:
        self.kind, self._request = kind, request
        self._error: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.silent = False

    def cut(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()

    def silence(self) -> None:
        self.silent = True

    def fail(self, status: dict[str, Any]) -> None:
        if not self._error.done():
            self._error.set_result(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")

    async def chunks(self, content: aiohttp.StreamReader) -> Any:
        """Yield what is to be passed on, until an error was sent or the server has ended it."""
        while True:
            reading = asyncio.ensure_future(content.readany())
            try:
                await asyncio.wait({reading, self._error}, return_when=asyncio.FIRST_COMPLETED)
                if self._error.done():
                    yield self._error.result()
                    return
                chunk = reading.result()
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            if not chunk:
                return
            if not self.silent:
                yield chunk


def _status(code: int, reason: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": f"made up by the proxy: {reason}",
    }


def _refuse(fault: Fault | None) -> web.Response:
    assert fault is not None
    headers = {"Retry-After": "1"} if fault.status == 429 else {}
    return web.json_response(_status(fault.status, fault.reason), status=fault.status, headers=headers)


def _cut(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _hang() -> web.Response:
    await asyncio.Event().wait()  # until the caller has gone
    return web.Response()


async def _cut_in_body(request: web.Request, status: int, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(
        status=status, headers={"Content-Type": "application/json", "Content-Length": str(len(body))}
    )
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    assert request.transport is not None
    # Not abort: what was written is to arrive.
    request.transport.close()
    return response
