"""Processes that join a pool: several at once, stopped, killed, of another version, without a head."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fray.errors import ConnectionLostError, PeerUnreachableError, PoolClosedError, PoolVersionError
from fray.payload.stamp import Stamp
from fray.runtime.pool import joined_pool
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.host.processes import children
from fray.runtime.pool.joined_pool import ClientHost, JoinedPool, open_store
from fray.runtime.pool.message_codec import MESSAGES, STAMP, encode_messages
from fray.runtime.pool.messages.greetings import ClientHello
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.keys import TransportKey
from tests.free_ports import free_port
from tests.pool.clients import programs
from tests.pool.clients.pods import Pods, running_pods
from tests.pool.driver.processes import await_end, descendants
from tests.pool.hosts.pools import PATIENCE, ROOT, wait_until


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_client_submits_before_any_host_is_there_and_shares_large_values(pods: Pods) -> None:
    context = pods.join()
    value = bytes(range(256)) * 4096
    ref = context.put(value)
    assert pods.get(context, context.run(len, ref)) == len(value)
    assert pods.get(context, context.run(bytes, ref)) == value
    stats = context.stats()
    assert (stats.succeeded, stats.hosts) == (2, 2)


def test_two_clients_have_their_own_tasks_and_share_an_actor(pods: Pods) -> None:
    context = pods.join()
    counter = context.create_actor(programs.Counter, name="counter")
    assert pods.get(context, counter.add.remote(1)) == 1
    first, second = pods.start_client("square"), pods.start_client("count_up")
    assert said(first) == "144"
    assert said(second) == "6"
    assert (first.wait(PATIENCE), second.wait(PATIENCE)) == (0, 0)
    assert pods.get(context, counter.add.remote(1)) == 7


def test_a_client_that_stands_still_stops_no_worker(pods: Pods, tmp_path: Path) -> None:
    client = pods.start_client("leave_marks", str(tmp_path), "40")
    assert said(client) == "submitted"
    client.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 40)
    finally:
        client.send_signal(signal.SIGCONT)
        client.kill()


def test_a_client_that_is_killed_leaves_nothing(pods: Pods, tmp_path: Path) -> None:
    context = pods.join()
    client = pods.start_client("leave_marks", str(tmp_path), "100000")
    assert said(client) == "submitted"
    below = descendants(client.pid)
    assert below
    client.kill()
    await_end(below)

    def is_forgotten() -> bool:
        # Before the head has read what the client had sent there is nothing to cancel.
        stats = context.stats()
        return stats.cancelled > 0 and (stats.waiting, stats.running, stats.objects) == (0, 0, 0)

    wait_until(is_forgotten)
    assert context.stats().hosts == 2
    assert pods.get(context, context.run(abs, -1)) == 1


def test_what_a_client_had_put_goes_with_it(pods: Pods) -> None:
    context = pods.join()
    client = pods.start_client("put_and_stay")
    assert said(client) == "put"
    counter = context.get_actor("counter")
    assert pods.get(context, counter.add.remote(1)) == 1
    assert context.stats().memory_bytes > 0
    client.kill()
    wait_until(lambda: context.stats().memory_bytes == 0)
    # Somebody else refers to the actor: it lives.
    assert pods.get(context, counter.add.remote(1)) == 2


def test_a_context_that_is_shut_down_leaves_the_pool_to_others(pods: Pods) -> None:
    first, second = pods.join(), pods.join()
    assert pods.get(first, first.run(abs, -1)) == 1
    first.shutdown()
    with pytest.raises(PoolClosedError):
        first.run(abs, -1)
    wait_until(lambda: second.stats().hosts == 2)
    assert pods.get(second, second.run(abs, -2)) == 2


def test_a_lost_head_is_told_at_once_and_its_workers_end(pods: Pods) -> None:
    context = pods.join()
    assert pods.get(context, context.run(abs, -1)) == 1
    [host] = pods.processes
    workers = descendants(host.pid)[1:]
    [nanny] = [pid for pid in children(os.getpid()) if pid not in (host.pid, pods.head.pid)]
    waiting = context.run(signal.pause)
    pods.head.kill()
    with pytest.raises(PoolClosedError, match="whose head has ended"):
        context.get(waiting)
    with pytest.raises(PoolClosedError):
        context.stats()
    await_end([*workers, nanny])


@pytest.mark.parametrize("sent", [b"\0", b"FRY", bytes(200)])
def test_a_client_that_ends_within_a_message_is_dropped(pods: Pods, sent: bytes) -> None:
    context = pods.join()
    before = context.stats().hosts
    connection = BlockingConnection.connect(Address.parse(pods.address), TransportKey.load(pods.key))
    connection.send(STAMP, Stamp.here().to_json().encode())
    connection._stream.send([sent])
    connection.close()
    assert pods.get(context, context.run(abs, -1)) == 1
    assert context.stats().hosts >= before


@pytest.mark.parametrize(
    ("stamp", "told"),
    [
        (Stamp("3.99", "3", Stamp.here().fray), "this process has Python 3.99"),
        (Stamp(Stamp.here().python, "3", "0.0.1"), "this process has Fray 0.0.1"),
    ],
)
def test_other_versions_are_refused_with_what_to_do(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, stamp: Stamp, told: str
) -> None:
    context = pods.join()
    monkeypatch.setattr(Stamp, "here", lambda: stamp)
    with pytest.raises(PoolVersionError) as refused:
        pods.join()
    assert told in str(refused.value)
    assert "the same" in refused.value.next_step
    assert pods.get(context, context.run(abs, -1)) == 1


def test_a_host_of_another_version_ends_and_says_why(pods: Pods) -> None:
    context = pods.join()
    assert pods.get(context, context.run(abs, -1)) == 1
    program = (
        "import sys\nfrom fray.payload.stamp import Stamp\n"
        "Stamp.here = lambda: Stamp('3.99', '3', 'x')\n"
        "from fray.runtime.pool.host.worker_host import main\nsys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-c", program, "--head", pods.address, "--key", str(pods.key)),
            *("--objects", "tcp:127.0.0.1:0", "--workers", "1", "--patience", "3600"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 88
    assert "this process has Python 3.99" in done.stderr
    assert "Traceback" not in done.stderr


def test_who_does_not_tell_its_versions_is_cut_off(pods: Pods) -> None:
    connection = BlockingConnection.connect(Address.parse(pods.address), TransportKey.load(pods.key))
    connection.send(MESSAGES, encode_messages([ClientHello("silent", (), 0, 0)]))
    with pytest.raises(ConnectionLostError):
        connection.receive(PATIENCE)
    connection.close()


def test_a_head_has_room_for_more_peers_than_processes_may_open_files_at_first(key: Path) -> None:
    with running_pods(key, open_files=32) as pods, contextlib.ExitStack() as connections:
        address, its_key = Address.parse(pods.address), TransportKey.load(key)
        for _ in range(50):
            connections.enter_context(contextlib.closing(BlockingConnection.connect(address, its_key)))
        pods.start_host()
        context = pods.join()
        assert pods.get(context, context.run(abs, -1)) == 1


def test_a_client_waits_for_a_head_that_comes_last(key: Path) -> None:
    port = free_port()
    joined: list[JoinedPool] = []

    def join() -> None:
        address = Address(host="127.0.0.1", port=port)
        host = ClientHost(open_store(None, {}), Address(host="127.0.0.1"))
        joined.append(JoinedPool(address, TransportKey.load(key), host, environ={}))

    thread = threading.Thread(target=join)
    thread.start()
    with running_pods(key, port):
        thread.join(PATIENCE)
        [pool] = joined
        assert len(pool.stats().hosts) == 1
        pool.stop()


def test_an_address_where_nobody_listens_is_told(key: Path) -> None:
    with pytest.raises(PeerUnreachableError, match=r"tcp:127\.0\.0\.1:1"):
        JoinedPool(
            Address(host="127.0.0.1", port=1),
            TransportKey.load(key),
            ClientHost(open_store(1000, {}), None),
            patience=0,
            environ={},
        )


def test_a_client_that_submits_faster_than_the_pool_works_waits(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = SubmitLimit(max_tasks=4)
    monkeypatch.setattr(joined_pool, "SubmitLimit", lambda: limit)
    waits: list[None] = []
    wait_for_room = limit.wait_for_room
    monkeypatch.setattr(limit, "wait_for_room", lambda: (waits.append(None), wait_for_room()))
    context = pods.join()
    refs = [context.run(abs, -number) for number in range(200)]
    assert waits
    assert pods.get(context, refs) == list(range(200))
    # The head tells what has ended only to those who wait: whoever asks once more finds room.
    wait_for_room()
    assert limit.full is False


def test_a_fork_of_a_client_leaves_the_pool_to_its_parent(pods: Pods) -> None:
    context = pods.join()
    assert pods.get(context, context.run(abs, -1)) == 1
    child = os.fork()
    if not child:
        os._exit(0 if context.closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pods.get(context, context.run(abs, -2)) == 2
