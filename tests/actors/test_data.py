"""What calls of a named actor carry: where large values go, who may pass them, and who is refused."""

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from ssl import SSLError
from typing import Any, NamedTuple

import numpy as np
import pytest

from fray.errors import HandshakeError
from fray.job import ActorHandle, JobContext, create_job_ctx, named_actors
from fray.job.options import TaskOptions
from fray.runtime.actors.joining import join_member
from fray.runtime.api.client import ApiAccess
from fray.runtime.pool.host.processes import children
from fray.runtime.pool.objects.values import INLINE_LIMIT
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.handshake import MESSAGE_SIZE, Role
from fray.runtime.pool.transport.keys import TransportKey
from tests.actors import programs
from tests.actors.cluster import Cluster, Pod, hosting
from tests.fake_pods import access_of_pod
from tests.pool.hosts.pools import PATIENCE, on, several_hosts, wait_until
from tests.pool.pods.test_canary import Canary, unpickled_by
from tests.pool.transport.certificates import write_key

SIZE = 20_000_000
PIDFD_GETFD = 438
"""The number of this system call of Linux, which Python has no function for."""
BYTES, BYTES_AT = struct.Struct("=QQ"), 120
"""linux/tcp.h: `tcpi_bytes_acked` and `tcpi_bytes_received` of `struct tcp_info`."""


class Place(NamedTuple):
    """Where an array's bytes are in memory."""

    writeable: bool
    permissions: str
    inode: str
    path: str


def find_place(array: Any) -> Place:
    """Return where an array's bytes are in this process."""
    at: int = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        extent, permissions, _, _, inode, *path = line.split(maxsplit=5)
        first, last = (int(end, 16) for end in extent.split("-"))
        if first <= at < last:
            return Place(array.flags.writeable, permissions, inode, "".join(path))
    raise AssertionError("it is nowhere")


class Library:
    """Keeps arrays, and says where they are."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def make(self, size: int) -> Any:
        return np.arange(size, dtype=np.uint8)

    def keep(self, array: Any) -> tuple[Place, int]:
        self.kept.append(array)
        return find_place(array), int(array[-1])


def find_head(pod: Pod) -> int:
    """The pid of the server in an actor's pod."""
    (head,) = [
        child
        for child in children(pod.process.pid)
        if b"--owner" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    return head


def bytes_of(process: int) -> int:
    """What all TCP connections of another process have carried that are open."""
    libc, pidfd, total = ctypes.CDLL(None, use_errno=True), os.pidfd_open(process), 0
    with ExitStack() as cleanup:
        cleanup.callback(os.close, pidfd)
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            if not str(descriptor.readlink()).startswith("socket:"):
                continue
            own = libc.syscall(PIDFD_GETFD, pidfd, int(descriptor.name), 0)
            assert own >= 0, os.strerror(ctypes.get_errno())
            with socket.socket(fileno=own) as connection:
                if connection.family == socket.AF_INET:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 200)
                    total += sum(BYTES.unpack_from(info, BYTES_AT))
    return total


def test_large_arguments_and_results_go_from_host_to_host_and_not_through_the_members_head(
    cluster: Cluster, context: JobContext
) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    pod = cluster.start_pod("counter")
    small = bytes(INLINE_LIMIT // 2)
    assert context.get(counter.size.remote(small), timeout=PATIENCE) == len(small)
    head = find_head(pod)
    before = bytes_of(head)
    assert before > len(small), "what goes through it is seen"
    assert context.get(counter.size.remote(bytes(SIZE)), timeout=PATIENCE) == SIZE
    assert context.get(counter.give.remote(SIZE), timeout=PATIENCE) == bytes(SIZE)
    assert 0 < bytes_of(head) - before < INLINE_LIMIT


def test_an_array_that_is_read_twice_in_a_pod_is_one_piece_of_shared_memory_there(
    cluster: Cluster, context: JobContext
) -> None:
    library = context.create_actor(Library, name="library")
    cluster.start_pod("library")
    made = library.make.remote(SIZE)
    places = [context.get(library.keep.remote(made), timeout=PATIENCE) for _ in range(2)]
    arrays = [context.get(made, timeout=PATIENCE) for _ in range(2)]
    own = [(find_place(array), int(array[-1])) for array in arrays]
    for (first, last), (second, same) in (places, own):
        assert first == second
        assert (first.writeable, first.permissions) == (False, "r--s")
        assert last == same == (SIZE - 1) % 256
    assert places[0][0].path != own[0][0].path, "each of both pods has its own"


class Tasks(NamedTuple):
    """A context whose tasks run in workers of a pool, and where."""

    context: JobContext
    options: TaskOptions | None = None


@pytest.fixture(params=["a pool of this process", "another host of a pool"])
def tasks(request: pytest.FixtureRequest, cluster: Cluster, key: Path) -> Iterator[Tasks]:
    if request.param == "a pool of this process":
        with create_job_ctx("pool", max_workers=1) as context:
            yield Tasks(context)
        return
    with several_hosts(key, listen=Address(host="127.0.0.1")) as hosts:
        hosts.add("a")
        yield Tasks(hosts.context, on("a"))


def make(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.uint8)


def test_a_result_of_a_pools_task_is_an_argument_of_an_actor(
    tasks: Tasks, cluster: Cluster, context: JobContext
) -> None:
    library = context.create_actor(Library, name="library")
    cluster.start_pod("library")
    for size in (10, SIZE):
        made = tasks.context.run(make, size, options=tasks.options)
        place, last = context.get(library.keep.remote(made), timeout=PATIENCE)
        assert last == (size - 1) % 256
        assert (place.permissions == "r--s") is (size > INLINE_LIMIT)


def call_in_task(counter: ActorHandle[programs.Counter], api: str, token: Path) -> tuple[int, int, int]:
    """Call an actor, as code in a worker's pod does; return what it answers, and the own pid."""
    access = ApiAccess(api, "ml", token)
    ApiAccess.in_pod = classmethod(lambda *_: access)  # type: ignore[assignment,method-assign]
    counted = counter.add.remote(2).result(PATIENCE)
    return counted, counter.size.remote(bytes(SIZE)).result(PATIENCE), os.getpid()


def test_a_handle_is_called_in_a_pools_task(tasks: Tasks, cluster: Cluster, context: JobContext) -> None:
    counter = context.create_actor(programs.Counter, 5, name="counter")
    cluster.start_pod("counter")
    known = access_of_pod(cluster.api)
    ref = tasks.context.run(call_in_task, counter, known.url, known.token_file, options=tasks.options)
    counted, size, worker = tasks.context.get(ref, timeout=PATIENCE)
    assert (counted, size) == (7, SIZE)
    assert worker != os.getpid()
    assert context.get(counter.add.remote(), timeout=PATIENCE) == 8, "it is the same actor"


@contextmanager
def pod_serving(cluster: Cluster, context: JobContext) -> Iterator[None]:
    context.create_actor(programs.Counter, name="counter")
    cluster.start_pod("counter").await_ready()
    yield


@contextmanager
def process_serving(cluster: Cluster, _: JobContext) -> Iterator[None]:
    with hosting(cluster):
        yield


def read_to_end(stream: socket.socket) -> None:
    with suppress(ConnectionError, SSLError):
        while stream.recv(65536):
            pass


@pytest.mark.parametrize("serving", [pod_serving, process_serving])
def test_who_has_not_the_namespaces_keys_is_refused_at_an_actors_port_and_nothing_is_unpickled(
    serving: Callable[[Cluster, JobContext], Any], cluster: Cluster, context: JobContext, tmp_path: Path
) -> None:
    canary = Canary(tmp_path / "notes")
    evil = pickle.dumps(canary)
    ours, theirs = TransportKey.load(cluster.key), TransportKey.load(write_key(tmp_path / "theirs"))
    mixed = replace(ours, secret=theirs.secret)
    with serving(cluster, context), ExitStack() as cleanup:
        handle: Any = context.get_actor("counter")
        reach = named_actors.find_pod_reach()
        assert reach is not None
        pool = join_member(reach, handle._actor.member)
        cleanup.callback(pool.stop)
        address = Address.parse(cluster.record("counter")["address"])
        assert not any(pool.refusals().values())

        def dial() -> socket.socket:
            return socket.create_connection((address.host, address.port), timeout=PATIENCE)

        with dial() as plain:
            plain.sendall(evil + bytes(500))
            read_to_end(plain)
        wait_until(lambda: pool.refusals()["malformed"] == 1)
        for number, wrong in enumerate((theirs, mixed), 1):
            with pytest.raises(HandshakeError) as refused:
                BlockingConnection.connect(address, wrong)
            assert refused.value.reason == "wrong_key"
            wait_until(lambda expected=number: pool.refusals()["wrong_key"] == expected)
        with dial() as plain, ours.tls_context(Role.DIALLER).wrap_socket(plain) as stream:
            assert len(stream.recv(MESSAGE_SIZE)) == MESSAGE_SIZE
            stream.sendall(evil.ljust(MESSAGE_SIZE, b"\0"))
            read_to_end(stream)
        wait_until(lambda: sum(pool.refusals().values()) == 4)
        assert not canary.notes.exists()

        # Who has the keys gets it unpickled, by the actor's process alone.
        context.get(handle.note.remote(canary), timeout=PATIENCE)
        assert unpickled_by(canary) == {context.get(handle.pid.remote(), timeout=PATIENCE)}
