"""A peer that sends what no client sends gets an error or is cut off; the others are served on."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fray.queue import HttpQueueServer, ServerLimits
from fray.queue.protocol import Verb, digest_of, sign_request
from fray.queue.service import REMEMBERED, QueueService, Request

IMPATIENT = ServerLimits(idle_seconds=0.3, request_seconds=0.3, max_connections=8)
"""Only for those who send too little: on a machine that stands still, it cuts off others as well."""
ID = "0" * 32


@pytest.fixture(scope="module")
def impatient() -> Iterator[HttpQueueServer]:
    with HttpQueueServer(port=0, limits=IMPATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def patient() -> Iterator[HttpQueueServer]:
    with HttpQueueServer(port=0, limits=ServerLimits(idle_seconds=60, request_seconds=60)) as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_unforeseen_happens_in_the_server(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    errors = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert errors == []


@contextmanager
def connection(server: HttpQueueServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port)) as opened:
        yield opened


def read_all(opened: socket.socket) -> bytes:
    """All that the server sends until it closes the connection, as it must."""
    received = bytearray()
    try:
        while chunk := opened.recv(65536):
            received += chunk
    except ConnectionError:
        pass
    return bytes(received)


def send(opened: socket.socket, data: bytes) -> None:
    try:
        opened.sendall(data)
    except ConnectionError:
        # Cut off before it had sent all of it.
        return


def exchange(server: HttpQueueServer, data: bytes) -> bytes:
    with connection(server) as opened:
        send(opened, data)
        return read_all(opened)


def head(server: HttpQueueServer, path: str, *, length: int, body: bytes = b"", extra: str = "") -> bytes:
    """A head with the proof of somebody who has the token."""
    digest = digest_of(body)
    signature = sign_request(server.token, path=path, nonce="n", length=length, digest=digest)
    return (
        f"POST {path} HTTP/1.1\r\nHost: q\r\n{extra or f'Content-Length: {length}'}\r\nConnection: close\r\n"
        f"Fray-Nonce: n\r\nFray-Digest: {digest}\r\nFray-Signature: {signature}\r\n\r\n"
    ).encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def works(server: HttpQueueServer) -> bool:
    queue = server.new_queue("works")
    queue.push("a")
    lease = queue.pop()
    assert lease is not None
    queue.done(lease)
    return bool(lease.item == "a")


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n\r\n",
        b"\0" * 100,
        b"GET\r\n\r\n",
        b"POST /queues/q/pop HTTP/9.9\r\n\r\n",
        b"POST /queues/q/pop HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /queues/q/pop HTTP/1.1\r\nContent-Length: ten\r\n\r\n",
        b"POST /queues/q/pop HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /queues/q/pop HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /queues/q/pop HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /queues/q/pop HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 200,
    ],
)
def test_what_isnt_http_is_refused(impatient: HttpQueueServer, data: bytes) -> None:
    answer = exchange(impatient, data)
    assert answer == b"" or status(answer) in (400, 401)
    assert works(impatient)


@pytest.mark.parametrize(
    "line", ["GET /queues/q", "POST /", "DELETE /queues/q/pop", "POST /queues/q/push?request=1", "OPTIONS *"]
)
@pytest.mark.parametrize(
    "proof", ["", "Fray-Signature: 0\r\n", "Fray-Signature: \xff\xfe\r\nFray-Nonce: \xff\r\n"]
)
def test_without_a_proof_nothing_is_told(patient: HttpQueueServer, line: str, proof: str) -> None:
    answer = exchange(patient, f"{line} HTTP/1.1\r\nHost: q\r\n{proof}\r\n".encode("latin-1"))
    assert status(answer) in (400, 401)
    assert b"Fray-Answer-Signature" not in answer
    assert works(patient)


def test_a_body_without_a_proof_isnt_waited_for(patient: HttpQueueServer) -> None:
    answer = exchange(
        patient, b"POST /queues/q/push HTTP/1.1\r\nHost: q\r\nContent-Length: 1000000000000\r\n\r\n"
    )
    assert status(answer) == 401


def test_a_huge_body_is_refused_before_it_comes(patient: HttpQueueServer) -> None:
    patient.new_queue("q")
    path = f"/queues/q/push?request={ID}"
    assert status(exchange(patient, head(patient, path, length=10**12))) == 413


def test_a_body_of_unknown_length_is_refused(patient: HttpQueueServer) -> None:
    path = f"/queues/q/push?request={ID}"
    data = head(patient, path, length=0, extra="Transfer-Encoding: chunked")
    assert status(exchange(patient, data + b"1\r\na\r\n0\r\n\r\n")) == 411


def test_another_body_than_the_proven_one_is_refused(patient: HttpQueueServer) -> None:
    queue = patient.new_queue("changed")
    path = f"/queues/changed/push?request={ID}"
    answer = exchange(patient, head(patient, path, length=3, body=b"abc") + b"abd")
    assert status(answer) == 400
    assert queue.size() == 0


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", 404),
        ("/queues/q", 404),
        ("/queues/q/pop/more", 404),
        ("/queues/q/explode", 404),
        ("/queues/../q/pop", 404),
        ("/queues/q/pop", 400),
        (f"/queues/q/pop?lease={ID}", 400),
        (f"/queues/q/pop?lease={ID}&seconds=nan", 400),
        (f"/queues/q/pop?lease={ID}&seconds=-1", 400),
        (f"/queues/q/pop?lease={ID}&seconds=1e999", 400),
        ("/queues/q/pop?lease=short&seconds=1", 400),
        (f"/queues/q/done?lease={ID}", 400),
        (f"/queues/q/done?lease={ID}&request={ID}", 409),
        (f"/queues/q/renew?lease={ID}&seconds=1", 409),
        ("/queues/q/push?request=", 400),
    ],
)
def test_a_proven_request_that_makes_no_sense_is_refused(
    patient: HttpQueueServer, path: str, expected: int
) -> None:
    patient.new_queue("q")
    assert status(exchange(patient, head(patient, path, length=0))) == expected


@pytest.mark.parametrize(
    "begun", [b"", b"POST /queues/q/pop HTTP/1.1\r\n", b"POST /queues/q/pop HTTP/1.1\r\nHost: q\r\nX"]
)
def test_who_doesnt_finish_a_head_is_cut_off(impatient: HttpQueueServer, begun: bytes) -> None:
    with connection(impatient) as opened:
        opened.sendall(begun)
        answer = read_all(opened)
    assert answer == b"" or status(answer) >= 400


def test_who_doesnt_finish_a_body_is_cut_off_and_its_room_freed() -> None:
    limits = ServerLimits(request_seconds=0.3, max_bytes=1000)
    with HttpQueueServer(port=0, limits=limits) as server:
        queue = server.new_queue("q")
        path = f"/queues/q/push?request={ID}"
        with connection(server) as opened:
            opened.sendall(head(server, path, length=900) + b"only this")
            answer = read_all(opened)
        assert answer == b"" or status(answer) == 408
        queue.push(b"x" * 800)


def test_who_goes_away_in_a_body_frees_its_room() -> None:
    with HttpQueueServer(port=0, limits=ServerLimits(max_bytes=1000)) as server:
        queue = server.new_queue("q")
        path = f"/queues/q/push?request={ID}"
        with connection(server) as opened:
            opened.sendall(head(server, path, length=900) + b"only this")
            opened.shutdown(socket.SHUT_WR)
            read_all(opened)
        queue.push(b"x" * 800)
        assert queue.size() == 1


def test_who_doesnt_read_an_answer_is_cut_off() -> None:
    size = 32 * 2**20
    with HttpQueueServer(port=0) as server:
        queue = server.new_queue("q")
        queue.push(b"x" * size)
        server._limits = ServerLimits(request_seconds=0.5)  # from here on: the item may take longer
        with connection(server) as opened:
            opened.sendall(head(server, "/queues/q/peek", length=0))
            while is_established(server, opened):
                time.sleep(0.01)
            assert len(read_all(opened)) < size
        assert queue.size() == 1


def is_established(server: HttpQueueServer, client: socket.socket) -> bool:
    """Whether the server has its end of a connection still open: 01 in /proc/net/tcp of Linux."""
    ends = (f":{server.port:04X}", f":{client.getsockname()[1]:04X}", "01")
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any((row[1][-5:], row[2][-5:], row[3]) == ends for row in rows)


def test_one_connection_too_many_is_cut_off_and_the_others_are_served() -> None:
    with HttpQueueServer(port=0, limits=ServerLimits(max_connections=3)) as server:
        open_ones = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        assert exchange(server, b"") == b""
        open_ones[0].sendall(b"POST / HTTP/1.1\r\nHost: q\r\nConnection: close\r\n\r\n")
        assert status(read_all(open_ones[0])) == 401
        for opened in open_ones:
            opened.close()
        assert works(server)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=300) | st.from_regex(rb"(GET|POST) /[ -~]{0,40} HTTP/1\.[01]\r\n", fullmatch=True)
)
def test_no_bytes_stop_the_server(impatient: HttpQueueServer, data: bytes) -> None:
    with connection(impatient) as opened:
        send(opened, data + b"\r\n\r\n")
        opened.shutdown(socket.SHUT_WR)
        read_all(opened)
    assert works(impatient)


def ask(service: QueueService, verb: str, body: bytes = b"", **query: str) -> int:
    return service.answer(Request("q", verb, query, body, 0.0)).status


@given(
    verb=st.sampled_from([*Verb, "", "x"]),
    query=st.dictionaries(
        st.sampled_from(["lease", "request", "seconds", "x"]), st.text() | st.just(ID) | st.just("1")
    ),
    body=st.binary(max_size=5),
)
def test_any_question_has_an_answer(verb: str, query: dict[str, str], body: bytes) -> None:
    service = QueueService(max_items=1, max_bytes=3)
    service.add("q")
    assert ask(service, verb, body, **query) in (200, 204, 400, 404, 409, 507)


def test_the_memory_of_requests_is_bounded() -> None:
    service = QueueService(max_items=REMEMBERED * 3, max_bytes=10**9)
    service.add("q")
    for number in range(REMEMBERED + 10):
        assert ask(service, "push", request=f"{number:032x}") == 204
    assert len(service._queues["q"]._applied) == REMEMBERED


def test_a_late_repetition_of_a_pop_takes_no_item() -> None:
    service = QueueService(max_items=10, max_bytes=100)
    service.add("q")
    for number in range(2):
        assert ask(service, "push", b"item", request=f"{number:032x}") == 204
    assert ask(service, "pop", lease=ID, seconds="60") == 200
    assert ask(service, "done", lease=ID, request="f" * 32) == 204
    assert ask(service, "pop", lease=ID, seconds="60") == 409
    assert ask(service, "done", lease=ID, request="e" * 32) == 409
    assert ask(service, "done", lease=ID, request="f" * 32) == 204
