"""An HTTP server on loopback that answers the client as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import test_utils, web

from fray.kube.api import Manifest
from fray.kube.client import KubernetesApi
from fray.kube.configuration import Configuration

__all__ = ["Handler", "answer", "ask", "connect", "hang", "serve", "status_of"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve(handler: Handler) -> AsyncIterator[str]:
    """Answer every request by a handler; the value is the URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    server = test_utils.TestServer(app)
    # A handler that hangs ends with its caller.
    await server.start_server(shutdown_timeout=0.1)
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


@asynccontextmanager
async def connect(handler: Handler, **options: Any) -> AsyncIterator[KubernetesApi]:
    """Connect a client to a server with this handler."""
    async with serve(handler) as url, KubernetesApi(Configuration(host=url), **options) as api:
        yield api


def ask(handler: Handler, test: Callable[[KubernetesApi], Awaitable[None]], **options: Any) -> None:
    """Run a test with a client of this handler."""

    async def main() -> None:
        async with connect(handler, **options) as api:
            await test(api)

    asyncio.run(main())


def answer(
    status: int, body: Manifest | list[Any] | str, *, headers: dict[str, str] | None = None
) -> Handler:
    """Answer everything by this; text is a page of HTML."""

    async def handle(_: web.Request) -> web.Response:
        if isinstance(body, str):
            return web.Response(status=status, text=body, content_type="text/html", headers=headers)
        return web.json_response(body, status=status, headers=headers)

    return handle


async def hang(_: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


def status_of(code: int, reason: str, message: str = "said so", **details: Any) -> Manifest:
    """The `Status` of a request that failed."""
    found = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return {**found, "message": message, **({"details": details} if details else {})}
