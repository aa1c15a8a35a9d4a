"""The client's typed error for each answer of a server, a proxy or a broken connection."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fray.kube.api import KubeApi, Manifest
from fray.kube.client import KubernetesApi
from fray.kube.configuration import Configuration
from fray.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    ServerError,
    ThrottledError,
    UnauthorizedError,
    UnreachableError,
)
from fray.kube.resources import LEASES, Resource
from tests.unit.kube.scripted_server import Handler, answer, ask, hang, serve, status_of

pytestmark = pytest.mark.usefixtures("brief")

LEASE: Manifest = {"kind": "Lease", "metadata": {"name": "a", "namespace": "default", "uid": "1"}}
PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a"
DEAD_END = "http://127.0.0.1:1"
PAGE = "<html><body>Please log in.</body></html>"


def failure_of(handler: Handler, **options: Any) -> ApiError:
    """The error of a GET that is answered so."""
    failures: list[ApiError] = []

    async def main(api: KubeApi) -> None:
        with pytest.raises(ApiError) as failed:
            await api.get(LEASES, "a", namespace="default")
        failures.append(failed.value)

    ask(handler, main, **options)
    return failures[0]


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", RefusedError),
        (401, "Unauthorized", UnauthorizedError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (405, "MethodNotAllowed", RefusedError),
        (409, "AlreadyExists", AlreadyExistsError),
        (409, "Conflict", ConflictError),
        (410, "Expired", ExpiredError),
        (410, "Gone", ExpiredError),
        (422, "Invalid", RefusedError),
        (429, "TooManyRequests", ThrottledError),
        (500, "InternalError", ServerError),
        (503, "ServiceUnavailable", ServerError),
        (504, "Timeout", ServerError),
    ],
)
def test_an_answer_is_the_error_that_says_what_to_do(status: int, reason: str, kind: type[ApiError]) -> None:
    error = failure_of(answer(status, status_of(status, reason)))
    assert type(error) is kind
    assert (error.request, error.status, error.reason, error.detail) == (
        f"GET {PATH}",
        status,
        reason,
        "said so",
    )
    assert error.retry_after_seconds is None
    assert error.message == f"GET {PATH}: {status} {reason}: said so"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (kind, str(error))


def test_an_object_that_can_never_be_applied_is_refused_although_the_server_says_500() -> None:
    message = "failed to create typed patch object: .spec.replica: field not declared in schema"
    assert type(failure_of(answer(500, status_of(500, "", message)))) is RefusedError


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({"Retry-After": "1"}, {"retryAfterSeconds": 9}, 9.0),
        ({}, {"retryAfterSeconds": 9}, 9.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, None),
        ({"Retry-After": "-1"}, {}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_server_says_when_to_come_back(
    status: int, headers: dict[str, str], details: dict[str, Any], seconds: float | None
) -> None:
    error = failure_of(answer(status, status_of(status, "Later", **details), headers=headers))
    assert error.retry_after_seconds == seconds


def test_a_long_message_is_cut() -> None:
    assert len(failure_of(answer(500, status_of(500, "InternalError", "x" * 5000))).detail) == 1024


@pytest.mark.parametrize(
    ("status", "kind"), [(401, UnauthorizedError), (429, ThrottledError), (502, ServerError)]
)
def test_a_page_of_a_proxy_is_told_as_it_is(status: int, kind: type[ApiError]) -> None:
    error = failure_of(answer(status, PAGE))
    assert type(error) is kind
    assert (error.reason, error.detail) == ("", PAGE)


@pytest.mark.parametrize("body", [PAGE, "", {"message": "no route"}, ["no route"]], ids=repr)
def test_only_the_api_server_can_say_that_something_is_not_there(body: Any) -> None:
    error = failure_of(answer(404, body))
    assert type(error) is UnreachableError
    assert error.status == 404


def test_a_kind_that_is_not_served_is_not_found() -> None:
    assert type(failure_of(answer(404, "404 page not found\n"))) is NotFoundError


@pytest.mark.parametrize(
    "body", [PAGE, "", '{"kind": "Lease", "meta', "[]", '"ok"', "null", "{}", '{"status": "ok"}']
)
def test_a_success_that_is_no_object_is_no_answer(body: str) -> None:
    error = failure_of(answer(200, body))
    assert type(error) is UnreachableError
    assert error.reason == "no object"
    lists: list[ApiError] = []

    async def main(api: KubeApi) -> None:
        with pytest.raises(UnreachableError) as failed:
            _ = [page async for page in api.list_pages(LEASES)]
        lists.append(failed.value)

    ask(answer(200, body), main)
    assert lists[0].reason == "no object"


@pytest.mark.parametrize("status", [200, 409])
def test_an_answer_that_is_cut_is_no_answer(status: int, brief: bool) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"kind": "Lease", ')
        assert request.transport is not None
        request.transport.close()
        return response

    error = failure_of(cut)
    assert type(error) is UnreachableError
    assert (error.status, error.reason) == (0, "IncompleteRead" if brief else "ClientPayloadError")


def test_a_connection_that_is_cut_is_no_answer() -> None:
    async def cut(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    error = failure_of(cut)
    assert type(error) is UnreachableError
    assert error.__cause__ is not None


def test_a_server_that_hangs_is_given_up() -> None:
    counted: list[tuple[str, Resource, int]] = []
    error = failure_of(hang, request_seconds=0.2, on_answer=lambda *call: counted.append(call))
    assert type(error) is UnreachableError
    assert isinstance(error.__cause__, TimeoutError)
    assert counted == [("GET", LEASES, 0)]


def test_a_server_that_hangs_within_an_answer_is_given_up() -> None:
    async def stall(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        return await hang(request)

    error = failure_of(stall, request_seconds=0.2)
    assert type(error) is UnreachableError
    assert isinstance(error.__cause__, TimeoutError)


def test_nobody_there_is_an_answer_that_was_not_sent() -> None:
    async def main(api: KubernetesApi) -> None:
        api._configuration.host = "http://127.0.0.1:1"
        with pytest.raises(UnreachableError) as lost:
            await api.get(LEASES, "a", namespace="default")
        assert not lost.value.was_sent

    ask(hang, main)


@pytest.mark.parametrize("variable", [False, True])
def test_a_proxy_is_asked(brief: bool, variable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({**LEASE, "asked": request.host})

    async def main() -> None:
        async with serve(handle) as url:
            configuration = Configuration(host="http://server.invalid")
            if variable:
                monkeypatch.setenv("http_proxy", url)
            else:
                configuration.proxy = url
            async with KubernetesApi(configuration, brief=brief) as api:
                found = await api.get(LEASES, "a", namespace="default")
        assert found["asked"] == "server.invalid"

    asyncio.run(main())


def test_no_proxy_and_no_netrc_come_between_a_client_and_its_server(
    brief: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n", encoding="utf-8")
    netrc.chmod(0o600)

    async def handle(request: web.Request) -> web.Response:
        return web.json_response({**LEASE, "as": request.headers["Authorization"]})

    async def main() -> None:
        async with serve(handle) as url:
            for name, value in {"http_proxy": DEAD_END, "no_proxy": "127.0.0.1", "NETRC": str(netrc)}.items():
                monkeypatch.setenv(name, value)
            configuration = Configuration(host=url, api_key={"BearerToken": "Bearer token"})
            async with KubernetesApi(configuration, brief=brief) as api:
                found = await api.get(LEASES, "a", namespace="default")
        assert found["as"] == "Bearer token"

    asyncio.run(main())


def test_a_client_goes_on_after_each_failure_and_counts_every_answer() -> None:
    counted: list[tuple[str, Resource, int]] = []
    statuses = iter([500, 429, 200])

    async def handle(_: web.Request) -> web.Response:
        return web.json_response(LEASE, status=next(statuses))

    async def main(api: KubeApi) -> None:
        for kind in (ServerError, ThrottledError):
            with pytest.raises(kind):
                await api.get(LEASES, "a", namespace="default")
        assert await api.get(LEASES, "a", namespace="default") == LEASE

    ask(handle, main, on_answer=lambda *call: counted.append(call))
    assert counted == [("GET", LEASES, status) for status in (500, 429, 200)]


def test_a_list_that_takes_too_long_expires_between_its_pages() -> None:
    asked: list[dict[str, str]] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        if "continue" in request.query:
            return web.json_response(status_of(410, "Expired"), status=410)
        metadata = {"resourceVersion": "7", "continue": "more&=?"}
        return web.json_response({"kind": "LeaseList", "metadata": metadata, "items": None})

    async def main(api: KubeApi) -> None:
        pages = api.list_pages(LEASES, labels="x", limit=2)
        page = await anext(pages)
        assert (page.items, page.resource_version) == ([], "7")
        with pytest.raises(ExpiredError):
            await anext(pages)

    ask(handle, main)
    first = {"limit": "2", "labelSelector": "x"}
    assert asked == [first, {**first, "continue": "more&=?"}]


@pytest.mark.parametrize(
    ("uid", "found", "fine"),
    [
        ("1", None, True),
        ("1", {**LEASE, "metadata": {"uid": "2"}}, True),
        ("1", LEASE, False),
        (None, LEASE, False),
    ],
    ids=["gone", "another object", "still there", "no uid"],
)
def test_a_conflict_on_deletion_is_fine_if_the_object_is_gone(
    uid: str | None, found: Manifest | None, fine: bool
) -> None:
    bodies: list[Manifest] = []

    async def handle(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            bodies.append(json.loads(await request.read()))
            return web.json_response(status_of(409, "Conflict"), status=409)
        if found is None:
            return web.json_response(status_of(404, "NotFound"), status=404)
        return web.json_response(found)

    async def main(api: KubeApi) -> None:
        deletion = api.delete(LEASES, "a", namespace="default", uid=uid, propagation="Foreground")
        if fine:
            await deletion
            return
        with pytest.raises(ConflictError):
            await deletion

    ask(handle, main)
    (body,) = bodies
    assert body["propagationPolicy"] == "Foreground"
    assert body.get("preconditions") == (None if uid is None else {"uid": uid})


def test_a_deletion_may_depend_on_the_version() -> None:
    bodies: list[Manifest] = []

    async def handle(request: web.Request) -> web.Response:
        bodies.append(json.loads(await request.read()))
        return web.json_response(LEASE)

    async def main(api: KubeApi) -> None:
        await api.delete(LEASES, "a", namespace="default", uid="1", resource_version="7")

    ask(handle, main)
    assert [body["preconditions"] for body in bodies] == [{"uid": "1", "resourceVersion": "7"}]


def test_a_log_is_text_whatever_its_bytes() -> None:
    async def handle(request: web.Request) -> web.Response:
        assert request.path == "/api/v1/namespaces/default/pods/a/log"
        assert dict(request.query) == {"container": "main", "tailLines": "3"}
        return web.Response(body=b"one\xff\n")

    async def main(api: KubeApi) -> None:
        assert await api.read_log("a", namespace="default", container="main", tail_lines=3) == "one\ufffd\n"

    ask(handle, main)
