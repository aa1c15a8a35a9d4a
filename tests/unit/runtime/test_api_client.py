"""The client of pods: a typed error for every answer, repeats only where that is safe, no silent watch."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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
from fray.kube.objects import WatchEvent
from fray.kube.resources import FRAYJOBS, LEASES, PODS
from fray.runtime.api import client as module
from fray.runtime.api.client import BACKOFF, ApiAccess, ApiClient

LEASE = {"kind": "Lease", "metadata": {"name": "a", "uid": "1", "namespace": "ml", "resourceVersion": "7"}}
PATH = "/apis/coordination.k8s.io/v1/namespaces/ml/leases/a"
DROP = 0


@dataclass(frozen=True)
class Answer:
    """One answer; a status of `DROP` ends the connection without any."""

    status: int = 200
    body: Any = field(default_factory=lambda: LEASE)
    headers: dict[str, str] = field(default_factory=dict)


def status(code: int, reason: str = "", **details: Any) -> Answer:
    """The `Status` of a request that failed."""
    return Answer(code, {"kind": "Status", "reason": reason, "message": "said so", "details": details})


class Server:
    """Gives its answers in order, then LEASE; `requests` are the method, target, token and body of each."""

    def __init__(self, token: Path) -> None:
        self.access = ApiAccess("", "ml", token)
        self.answers: list[Answer | Callable[[BaseHTTPRequestHandler], None]] = []
        self.requests: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        self.bodies: list[Any] = []
        self.contents: list[str] = []
        self.paused: list[float] = []
        self.ended = threading.Event()

    @property
    def client(self) -> ApiClient:
        # A machine that stops this process for some seconds must not look like a server that hangs.
        return ApiClient(self.access, seconds=100.0, pause=self.paused.append)

    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]


def build_handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            server.bodies.append(json.loads(self.rfile.read(length)) if length else None)
            server.requests.append((self.command, self.path))
            server.tokens.append(self.headers["Authorization"])
            server.contents.append(self.headers.get("Content-Type", ""))
            answer = server.answers.pop(0) if server.answers else Answer()
            if not isinstance(answer, Answer):
                answer(self)
                return
            if answer.status == DROP:
                return
            body = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names of the standard library

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    return Handler


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    token = tmp_path / "token"
    token.write_text("first\n")
    known = Server(token)
    with ThreadingHTTPServer(("127.0.0.1", 0), build_handler(known)) as listening:
        known.access = replace(known.access, url=f"http://127.0.0.1:{listening.server_address[1]}")
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield known
        known.ended.set()
        listening.shutdown()
        thread.join()


def get(server: Server) -> Any:
    return server.client.get(LEASES, "a", namespace="ml")


def create(server: Server) -> Any:
    return server.client.create(LEASES, {"metadata": {"name": "a", "namespace": "ml"}})


def put(server: Server) -> Any:
    return server.client.replace(LEASES, LEASE)


def patch(server: Server) -> Any:
    return server.client.patch(LEASES, "a", {"spec": {}}, namespace="ml")


def delete(server: Server) -> Any:
    return server.client.delete(LEASES, "a", namespace="ml")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (status(400, "BadRequest"), RefusedError),
        (status(401, "Unauthorized"), UnauthorizedError),
        (status(403, "Forbidden"), ForbiddenError),
        (status(404, "NotFound"), NotFoundError),
        (status(409, "AlreadyExists"), AlreadyExistsError),
        (status(409, "Conflict"), ConflictError),
        (status(410, "Expired"), ExpiredError),
        (status(422, "Invalid"), RefusedError),
        (Answer(404, "<html>no such page</html>"), UnreachableError),
        (Answer(200, "<html>Please log in.</html>"), UnreachableError),
        (Answer(200, ["no object"]), UnreachableError),
        (Answer(302, "", {"Location": "http://127.0.0.1:1/elsewhere"}), RefusedError),
    ],
    ids=lambda value: getattr(value, "__name__", f"{getattr(value, 'status', '')}"),
)
def test_every_answer_has_its_error(server: Server, answer: Answer, kind: type[ApiError]) -> None:
    server.answers = [answer] * 3
    with pytest.raises(ApiError) as caught:
        get(server)
    assert type(caught.value) is kind
    assert caught.value.request == f"GET {PATH}"
    assert len(server.requests) == (3 if kind is UnreachableError else 1)


@pytest.mark.parametrize("ask", [get, patch, delete])
@pytest.mark.parametrize("failed", [status(500), status(503), status(429), Answer(DROP)])
def test_what_may_be_done_twice_is_asked_again(
    server: Server, ask: Callable[[Server], Any], failed: Answer
) -> None:
    server.answers = [failed, failed]
    ask(server)
    assert len(server.requests) == 3
    assert server.paused == [BACKOFF.pause(1), BACKOFF.pause(2)]


@pytest.mark.parametrize("ask", [create, put])
@pytest.mark.parametrize(("failed", "kind"), [(status(500), ServerError), (Answer(DROP), UnreachableError)])
def test_what_may_have_been_done_is_never_done_twice(
    server: Server, ask: Callable[[Server], Any], failed: Answer, kind: type[ApiError]
) -> None:
    server.answers = [failed]
    with pytest.raises(kind):
        ask(server)
    assert len(server.requests) == 1


@pytest.mark.parametrize("ask", [create, put])
def test_what_the_server_certainly_has_not_done_is_asked_again(
    server: Server, ask: Callable[[Server], Any]
) -> None:
    server.answers = [status(429)]
    assert ask(server) == LEASE
    assert len(server.requests) == 2


@pytest.mark.parametrize("ask", [create, get])
def test_a_server_that_is_not_there_is_tried_again(server: Server, ask: Callable[[Server], Any]) -> None:
    server.access = replace(server.access, url="http://127.0.0.1:1")
    with pytest.raises(UnreachableError) as caught:
        ask(server)
    assert not caught.value.was_sent
    assert server.paused == [BACKOFF.pause(1), BACKOFF.pause(2)]


def test_a_busy_server_says_when_to_come_back(server: Server) -> None:
    server.answers = [Answer(429, status(429).body, {"Retry-After": "4"}), status(503, retryAfterSeconds=3)]
    get(server)
    assert server.paused == [4.0, 3.0]
    server.answers = [Answer(429, status(429).body, {"Retry-After": "60"})]
    with pytest.raises(ThrottledError) as caught:
        get(server)
    assert caught.value.retry_after_seconds == 60.0
    assert server.paused == [4.0, 3.0], "who must wait for a minute learns it"


def test_the_token_of_the_moment_is_shown(server: Server) -> None:
    get(server)
    server.access.token_file.write_text("second")
    get(server)
    assert server.tokens == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("token", [b"s3cret\ntoken", "s3cret\N{EM DASH}".encode(), b"", None])
def test_a_token_that_cannot_be_sent_is_never_told(server: Server, token: bytes | None) -> None:
    if token is None:
        server.access.token_file.unlink()
    else:
        server.access.token_file.write_bytes(token)
    with pytest.raises(UnauthorizedError) as caught:
        get(server)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    assert server.requests == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:port", "http://", "http://256.0.0.1.invalid"])
def test_an_address_that_is_none_is_unreachable(server: Server, url: str) -> None:
    server.access = replace(server.access, url=url)
    with pytest.raises(UnreachableError):
        get(server)


def test_a_patch_is_merged_and_may_be_of_the_scale(server: Server) -> None:
    server.client.patch(FRAYJOBS, "a", {"spec": {"replicas": 3}}, namespace="ml", subresource="scale")
    server.client.get(FRAYJOBS, "a", namespace="ml", subresource="scale")
    scale = "/apis/fray.dev/v1alpha1/namespaces/ml/frayjobs/a/scale"
    assert server.requests == [("PATCH", f"{scale}?fieldValidation=Strict"), ("GET", scale)]
    assert server.contents[0] == "application/merge-patch+json"
    assert server.bodies[0] == {"spec": {"replicas": 3}}


def stream(
    *lines: str, then: Callable[[], object] = lambda: None
) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answer a watch by these lines, one chunk each, then wait and end the connection."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for line in lines:
            handler.wfile.write(f"{len(line):x}\r\n{line}\r\n".encode())
        then()
        handler.wfile.write(b"0\r\n\r\n")

    return answer


def line(change: str, version: str, **more: Any) -> str:
    return json.dumps({"type": change, "object": {"metadata": {"resourceVersion": version}, **more}}) + "\n"


def test_a_watch_yields_what_comes_and_ends_with_the_stream(server: Server) -> None:
    server.answers = [stream(line("ADDED", "8"), line("BOOKMARK", "9"))]
    events = list(server.client.watch(PODS, resource_version="7", namespace="ml", labels="x=y", seconds=2.5))
    assert [(event.type, event.object["metadata"]["resourceVersion"]) for event in events] == [
        ("ADDED", "8"),
        ("BOOKMARK", "9"),
    ]
    asked = "watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=3&labelSelector=x%3Dy"
    assert server.requests == [("GET", f"/api/v1/namespaces/ml/pods?{asked}")]


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (line("ERROR", "", kind="Status", code=410, reason="Expired"), ExpiredError),
        (line("ERROR", "", kind="Status", code=500), ServerError),
        ('{"type": "ADDED", "object": {"metada', UnreachableError),
        ('{"type": "ADDED"}\n', UnreachableError),
        ("[]\n", UnreachableError),
    ],
)
def test_a_watch_that_ends_badly_is_told(server: Server, last: str, kind: type[ApiError]) -> None:
    server.answers = [stream(line("ADDED", "8"), last)]
    events: list[WatchEvent] = []
    with pytest.raises(ApiError) as caught:
        events.extend(server.client.watch(PODS, resource_version="7"))
    assert type(caught.value) is kind


def test_a_version_that_is_forgotten_has_expired(server: Server) -> None:
    server.answers = [status(410, "Expired")]
    with pytest.raises(ExpiredError):
        list(server.client.watch(PODS, resource_version="1"))


def test_a_silent_watch_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_SILENCE_SECONDS", 0.2)
    server.answers = [stream(line("ADDED", "8"), then=lambda: server.ended.wait(60))]
    events = server.client.watch(PODS, resource_version="7")
    assert next(events).type == "ADDED"
    with pytest.raises(UnreachableError, match="TimeoutError"):
        next(events)


def test_a_watch_that_the_server_never_ends_is_ended(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answers = [stream(line("ADDED", "8"), line("ADDED", "9"), line("ADDED", "10"))]
    events = server.client.watch(PODS, resource_version="7", seconds=60.0)
    assert next(events).type == "ADDED"
    later = time.monotonic() + 60.0 + module.WATCH_GRACE_SECONDS
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: later))
    with pytest.raises(UnreachableError, match="doesn't end the watch"):
        next(events)


def test_a_pod_knows_its_api_server(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert ApiAccess.in_pod(environ, tmp_path) is None
    (tmp_path / "namespace").write_text("ml")
    assert ApiAccess.in_pod(environ, tmp_path) is None
    (tmp_path / "token").write_text("secret\n")
    assert ApiAccess.in_pod({}, tmp_path) is None
    expected = ApiAccess("https://10.0.0.1:6443", "ml", tmp_path / "token", tmp_path / "ca.crt")
    assert ApiAccess.in_pod(environ, tmp_path) == expected
    ipv6 = ApiAccess.in_pod({"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path)
    assert ipv6 is not None
    assert ipv6.url == "https://[fd00::1]:443"
