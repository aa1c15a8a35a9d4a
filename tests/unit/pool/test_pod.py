"""What a pod's variables say about its pool, and what a worker's readiness server answers."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable

import pytest

from fray.errors import AddressError, HeadUnknownError, SettingError
from fray.runtime.pool import worker_pod
from fray.runtime.pool.host.readiness import MOST_CLIENTS, ReadinessServer
from fray.runtime.pool.pod import HeadPlace, PodPool, read_offer
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.sockets import listening_socket
from fray.runtime.pool.worker_pod import build_resources

POD = {
    "FRAY_POOL_HEAD": "rank-0:7077",
    "FRAY_POOL_KEY": "/keys",
    "FRAY_POOL_OBJECTS": "tcp:10.0.0.5:7078-7095",
    "FRAY_JOB_UID": "u",
    "FRAY_ATTEMPT": "1",
}
RANK = {
    "FRAY_JOB_NAME": "train",
    "FRAY_SLICE": "0",
    "FRAY_NUM_SLICES": "2",
    "FRAY_HOST": "0",
    "FRAY_HOSTS_PER_SLICE": "2",
    "FRAY_COORDINATOR_ADDRESS": "train-slice-0-0.train:8476",
}


@pytest.mark.parametrize(
    ("more", "listen", "found"),
    [
        (RANK, "tcp:0.0.0.0:7077", "tcp:127.0.0.1:7077"),
        ({**RANK, "FRAY_POOL_OBJECTS": "tcp:[fd00::5]:7078-7095"}, "tcp:[::]:7077", "tcp:[::1]:7077"),
        ({"FRAY_POOL_HEAD": "tcp:10.0.0.1:9"}, "tcp:10.0.0.1:9", "tcp:10.0.0.1:9"),
    ],
)
def test_the_head_is_where_the_variables_say(more: dict[str, str], listen: str, found: str) -> None:
    pool = PodPool.from_env({**POD, **more})
    assert str(pool.listen) == listen
    assert pool.find_head(seconds=1.0) == HeadPlace(Address.parse(found))


@pytest.mark.parametrize(
    ("more", "found"),
    [
        (RANK, Address(path="/head/socket", of_pod=True)),
        ({**RANK, "FRAY_POOL_SOCKET": ""}, None),
        ({**RANK, "FRAY_HOST": "1"}, None),
        ({**RANK, "FRAY_POOL_HEAD": "tcp:10.0.0.1:9"}, None),
        ({}, None),
    ],
)
def test_only_rank_0_has_a_socket_of_the_head(more: dict[str, str], found: Address | None) -> None:
    pool = PodPool.from_env({**POD, "FRAY_POOL_SOCKET": "pod:/head/socket", **more})
    assert pool.socket == found


@pytest.mark.parametrize("more", [{}, {**RANK, "FRAY_HOST": "1"}, {**RANK, "FRAY_SLICE": "1"}])
def test_other_pods_ask_the_api_server(more: dict[str, str]) -> None:
    with pytest.raises(HeadUnknownError, match="no token"):
        PodPool.from_env({**POD, **more}).find_head(seconds=1.0)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"FRAY_POOL_HEAD": "rank-0"}, AddressError),
        ({"FRAY_POOL_HEAD": "rank-0:x"}, AddressError),
        ({"FRAY_POOL_HEAD": "tcp:10.0.0.1:7077-7078"}, AddressError),
        ({**RANK, "FRAY_POOL_SOCKET": "/head/socket"}, AddressError),
        ({"FRAY_POOL_OBJECTS": "tcp:10.0.0.1:9-8"}, AddressError),
        ({"FRAY_POOL_OBJECTS": "tcp:10.0.0.1:0-8"}, AddressError),
        ({"FRAY_POOL_OBJECTS": "tcp:10.0.0.1:1-"}, AddressError),
        ({"FRAY_POOL_KEY": ""}, SettingError),
        ({"FRAY_JOB_UID": ""}, SettingError),
        ({"FRAY_ATTEMPT": "one"}, SettingError),
    ],
)
def test_wrong_variables_are_refused(more: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        PodPool.from_env({**POD, **more}).find_head(seconds=1.0)


def test_a_worker_offers_what_its_job_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pod, "available_cpus", lambda: 8)
    monkeypatch.setattr(worker_pod, "available_memory", lambda: 1000)
    monkeypatch.setattr(worker_pod, "available_accelerators", lambda: {"GPU": 2.0})
    assert build_resources({}) == {"CPU": 8.0, "memory": 1000.0, "GPU": 2.0}
    assert build_resources({"CPU": 2.0, "memory": 500.0}) == {"CPU": 2.0, "memory": 500.0, "GPU": 2.0}
    assert build_resources({"memory": 5000.0, "GPU": 1.0}) == {"CPU": 8.0, "memory": 1000.0, "GPU": 1.0}
    assert read_offer({"FRAY_WORKERS_SHAPE": "memory=1024,CPU=2"}) == (("CPU", 2.0), ("memory", 1024.0))
    assert read_offer({"FRAY_WORKERS_SHAPE": "CPU=2,gpu=1"}) == (("CPU", 2.0), ("GPU", 1.0))
    assert read_offer({}) == ()


def test_who_listens_takes_the_first_free_port_of_a_range() -> None:
    assert str(Address.parse("tcp:[fd00::5]:7078-7095")) == "tcp:[fd00::5]:7078-7095"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted = Address(host="127.0.0.1", port=port, last=min(port + 50, 65535))
        with listening_socket(wanted) as listener:
            assert port < listener.getsockname()[1] <= wanted.last
        with pytest.raises(AddressError, match="in use"):
            listening_socket(Address(host="127.0.0.1", port=port, last=port))


def ask(server: ReadinessServer, request: bytes) -> bytes:
    """Return the first line of the answer to a request; empty: it was cut off."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request)
        await_true(server, lambda: is_readable(client))
        return client.recv(4096).partition(b"\r\n")[0]


def is_readable(client: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        return bool(selector.select(0))


def await_true(server: ReadinessServer, happened: Callable[[], bool]) -> None:
    while not happened():
        with selectors.DefaultSelector() as selector:
            for each in server.sockets:
                selector.register(each, selectors.EVENT_READ)
            selector.select(0.01)
        server.serve()


def test_readiness_is_told_and_silent_clients_take_no_place_for_ever() -> None:
    server = ReadinessServer(Address(host="127.0.0.1", port=0))
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MOST_CLIENTS + 3)]
    try:
        assert ask(server, b"GET /ready HTTP/1.1\r\n\r\n") == b"HTTP/1.1 503 Service Unavailable"
        server.ready = True
        assert ask(server, b"GET /ready?x=1 HTTP/1.1\r\n\r\n") == b"HTTP/1.1 200 OK"
        assert ask(server, b"POST /ready HTTP/1.1\r\n\r\n") == b"HTTP/1.1 404 Not Found"
        assert ask(server, b"GET / HTTP/1.1\r\n\r\n") == b"HTTP/1.1 404 Not Found"
        await_true(server, lambda: is_readable(silent[0]))
        assert silent[0].recv(1) == b""
        assert len(server.sockets) <= MOST_CLIENTS + 1
    finally:
        for each in silent:
            each.close()
        server.close()
