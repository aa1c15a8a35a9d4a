"""A watch of the client: every end that isn't the server's own is a typed error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from fray.kube.api import KubeApi, WatchEvent
from fray.kube.errors import ApiError, ExpiredError, ForbiddenError, ServerError, UnreachableError
from fray.kube.resources import PODS
from tests.unit.kube.scripted_server import Handler, answer, ask, connect, hang, status_of

ADDED = {"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "8"}}}
BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
FIRST = [WatchEvent("ADDED", ADDED["object"])]  # type: ignore[arg-type]


def line(event: Any) -> bytes:
    return json.dumps(event).encode() + b"\n"


def stream(*chunks: bytes, then: Callable[[web.Request], None] | None = None) -> Handler:
    """Send these pieces; then end in order, or as told."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            then(request)
        return response

    return handle


def close(request: web.Request) -> None:
    assert request.transport is not None
    # Not abort: what was written is to arrive.
    request.transport.close()


def watch(handler: Handler, **options: Any) -> tuple[list[WatchEvent], ApiError | None]:
    """Everything that was told, and the error at the end."""
    events: list[WatchEvent] = []
    errors: list[ApiError] = []

    async def main(api: KubeApi) -> None:
        try:
            async for event in api.watch(PODS, resource_version="7", namespace="default", labels="x"):
                events.append(event)  # noqa: PERF401 - those before a failure count
        except ApiError as error:
            errors.append(error)

    ask(handler, main, **options)
    return events, errors[0] if errors else None


def test_changes_and_bookmarks_are_told_until_the_server_ends_the_watch() -> None:
    asked: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        whole = line(ADDED) + line(BOOKMARK)
        # Pieces need not be lines.
        return await stream(whole[:10], whole[10:-5], whole[-5:])(request)

    events, error = watch(handle)
    assert error is None
    assert events == [*FIRST, WatchEvent("BOOKMARK", BOOKMARK["object"])]  # type: ignore[arg-type]
    (request,) = asked
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/default/pods")
    assert dict(request.query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "labelSelector": "x",
        "timeoutSeconds": "300",
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (status_of(410, "Expired", "too old"), ExpiredError),
        (status_of(500, "InternalError"), ServerError),
        ({"kind": "Status", "message": "without a code"}, ServerError),
    ],
    ids=["expired", "internal", "without a code"],
)
def test_an_error_event_ends_the_watch(status: dict[str, Any], kind: type[ApiError]) -> None:
    events, error = watch(stream(line(ADDED), line({"type": "ERROR", "object": status}), line(ADDED)))
    assert events == FIRST
    assert type(error) is kind
    assert error.detail == status["message"]
    assert error.request == "WATCH /api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    "rest",
    [
        line(ADDED)[:-10],
        b"<html>\n",
        b"[]\n",
        b'"ADDED"\n',
        b"null\n",
        b"{}\n",
        line({"type": "ADDED"}),
        line({"object": {}}),
        line({"type": 1, "object": {"metadata": {}}}),
        line({"type": "ADDED", "object": {}}),
        line({"type": "ADDED", "object": "a"}),
        line({"type": "ERROR", "object": []}),
        line({"type": "ERROR", "object": {"code": "soon"}}),
        line({"type": "ERROR", "object": {"code": None}}),
        b"\xff\n",
    ],
    ids=repr,
)
def test_a_line_that_is_no_event_ends_the_watch(rest: bytes) -> None:
    events, error = watch(stream(line(ADDED), rest))
    assert events == FIRST
    assert type(error) is UnreachableError


@pytest.mark.parametrize("rest", [b"", line(ADDED)[:-10]], ids=["between lines", "within a line"])
def test_a_watch_that_is_cut_is_an_error(rest: bytes) -> None:
    events, error = watch(stream(line(ADDED), rest, then=close))
    assert events == FIRST
    assert type(error) is UnreachableError
    assert error.reason == "ClientPayloadError"


def test_a_watch_that_is_silent_for_too_long_is_an_error() -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        return await hang(request)

    for handler in (hang, silent):
        events, error = watch(handler, watch_silence_seconds=0.2)
        assert events == []
        assert type(error) is UnreachableError
        assert error.reason == "SocketTimeoutError"


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (answer(410, status_of(410, "Expired")), ExpiredError),
        (answer(403, status_of(403, "Forbidden")), ForbiddenError),
        (answer(502, "<html>"), ServerError),
        (answer(404, "<html>"), UnreachableError),
        (answer(200, "<html>\n<body>\n"), UnreachableError),
    ],
    ids=["expired", "forbidden", "bad gateway", "not found by a proxy", "log-in page"],
)
def test_a_watch_that_is_not_opened_is_a_typed_error(handler: Handler, kind: type[ApiError]) -> None:
    events, error = watch(handler)
    assert events == []
    assert type(error) is kind


def test_a_watch_that_nobody_follows_any_more_is_closed() -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def handle(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(line(ADDED))
            try:
                return await hang(request)
            finally:
                ended.set()

        async with connect(handle) as api:
            events = api.watch(PODS, resource_version="7")
            assert await anext(events) == FIRST[0]
            await events.aclose()  # type: ignore[attr-defined]
            await ended.wait()

    asyncio.run(main())
