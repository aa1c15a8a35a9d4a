"""An outcome reaches an API server that is silent or busy for a moment, and never goes over another one."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fray.errors import OutcomeUploadError
from fray.runtime.api.client import BACKOFF, ApiAccess, ApiClient
from fray.runtime.outcome_upload import OutcomePlace, upload_outcome

PLACE = OutcomePlace("fray-outcome-u-1-0", job="train", job_uid="u", attempt=1)
DROP = 0
REASONS = {409: "AlreadyExists"}


@dataclass
class Server:
    """Answers POSTs with the given statuses, then 201; keeps what was created as kube-apiserver does."""

    access: ApiAccess
    answers: list[int] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    created: dict[str, Any] = field(default_factory=dict)
    token: str = ""


def build_handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append(f"POST {self.path}")
            server.token = self.headers["Authorization"]
            status = server.answers.pop(0) if server.answers else 201
            if status == DROP:
                return
            name = body["metadata"]["name"]
            if status == 201 and name in server.created:
                status = 409
            elif status == 201:
                server.created[name] = body
            self.answer(
                status, {"kind": "Status", "message": f"story of {status}", "reason": REASONS.get(status)}
            )

        def do_GET(self) -> None:
            server.requests.append(f"GET {self.path}")
            self.answer(200, server.created[self.path.rpartition("/")[2]])

        def answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    return Handler


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    token = tmp_path / "token"
    token.write_text("secret\n")
    known = Server(ApiAccess("", "ml", token))
    with ThreadingHTTPServer(("127.0.0.1", 0), build_handler(known)) as listening:
        known.access = replace(known.access, url=f"http://127.0.0.1:{listening.server_address[1]}")
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield known
        listening.shutdown()
        thread.join()


def upload(server: Server, outcome: bytes = b"outcome", paused: list[float] | None = None) -> None:
    # A machine that stops this process for some seconds must not look like a server that hangs.
    pause = (paused if paused is not None else []).append
    upload_outcome(ApiClient(server.access, seconds=100.0, pause=pause), PLACE, outcome)


def test_it_is_a_config_map_that_goes_with_its_job(server: Server) -> None:
    upload(server, b"\x00outcome")
    assert server.requests == ["POST /api/v1/namespaces/ml/configmaps?fieldValidation=Strict"]
    assert server.token == "Bearer secret"
    made = server.created[PLACE.name]
    assert base64.b64decode(made["binaryData"]["outcome"]) == b"\x00outcome"
    assert made["immutable"] is True
    owner = {"apiVersion": "fray.dev/v1alpha1", "kind": "FrayJob", "name": "train", "uid": "u"}
    assert made["metadata"]["ownerReferences"] == [owner]
    assert made["metadata"]["labels"]["fray.dev/attempt"] == "1"


@pytest.mark.parametrize("answers", [[500, 429], [DROP, 503], [DROP]])
def test_a_server_that_is_busy_or_silent_is_asked_again(server: Server, answers: list[int]) -> None:
    server.answers = list(answers)
    paused: list[float] = []
    upload(server, paused=paused)
    assert list(server.created) == [PLACE.name]
    assert paused == [BACKOFF.pause(failures) for failures in range(1, len(answers) + 1)]


def test_a_try_whose_answer_was_lost_counts(server: Server) -> None:
    upload(server)
    upload(server)
    assert server.requests[2:] == [f"GET /api/v1/namespaces/ml/configmaps/{PLACE.name}"]


def test_another_outcome_is_never_taken_for_this_one(server: Server) -> None:
    upload(server, b"first")
    with pytest.raises(OutcomeUploadError, match="another outcome is there"):
        upload(server, b"second")
    assert base64.b64decode(server.created[PLACE.name]["binaryData"]["outcome"]) == b"first"


@pytest.mark.parametrize(("answers", "tries"), [([403], 1), ([413], 1), ([500] * 3, 3), ([DROP] * 3, 3)])
def test_what_the_server_refuses_is_told(server: Server, answers: list[int], tries: int) -> None:
    server.answers = list(answers)
    with pytest.raises(OutcomeUploadError, match=PLACE.name) as caught:
        upload(server)
    assert (f"{answers[0]}: story of {answers[0]}" in str(caught.value)) == (answers[0] != DROP)
    assert len(server.requests) == tries
