"""What a connection promises, over a unix socket and over TLS, between the blocking and the asyncio shell."""

from __future__ import annotations

import asyncio
import contextlib
import select
import threading
from collections.abc import Iterator

import pytest

from fray.errors import ConnectionLostError, FrameTooLargeError
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.endpoints import Connection, connect
from fray.runtime.pool.transport.frames import Frame, FrameLimits
from fray.runtime.pool.transport.settings import TransportSettings
from tests.pool.transport.heads import PATIENCE, Head, Link, running_head

MEGABYTE = 1024 * 1024


@pytest.fixture
def worker(head: Head, link: Link) -> Iterator[BlockingConnection]:
    with contextlib.closing(BlockingConnection.connect(head.address, link.key)) as connection:
        yield connection


def test_frames_come_back_in_order_with_all_their_parts(worker: BlockingConnection) -> None:
    sent = [(n % 65536, n % 7, b"%d" % n * (n % 300), [b"u" * (n % 50)] * (n % 3)) for n in range(3000)]
    sender = threading.Thread(
        target=lambda: [worker.send(k, body, buffers, flags=f) for k, f, body, buffers in sent]
    )
    sender.start()
    received = [worker.receive(PATIENCE) for _ in sent]
    sender.join(PATIENCE)
    assert [(f.kind, f.flags, f.body, [bytes(b) for b in f.buffers]) for f in received] == sent
    assert [frame.sequence for frame in received] == list(range(3000))


def test_large_bodies_and_buffers_travel_whole(worker: BlockingConnection) -> None:
    pattern = bytes(range(256)) * 4096
    buffers = [pattern * 12, b"small", pattern * 3]
    sender = threading.Thread(target=worker.send, args=(1, pattern * 5, buffers))
    sender.start()
    frame = worker.receive(PATIENCE)
    sender.join(PATIENCE)
    assert frame.body == pattern * 5
    assert [bytes(buffer) for buffer in frame.buffers] == buffers
    assert not any(buffer.readonly for buffer in frame.buffers)


def test_more_buffers_than_one_system_call_takes(worker: BlockingConnection) -> None:
    buffers = [b"%d" % n for n in range(3000)]
    sender = threading.Thread(target=worker.send, args=(1, b"", buffers))
    sender.start()
    assert [bytes(buffer) for buffer in worker.receive(PATIENCE).buffers] == buffers
    sender.join(PATIENCE)


def test_threads_may_send_at_once(worker: BlockingConnection) -> None:
    def send(name: int) -> None:
        for number in range(200):
            worker.send(name, b"%d" % number, [b"x" * 3000])

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    received = [worker.receive(PATIENCE) for _ in range(800)]
    for thread in threads:
        thread.join(PATIENCE)
    for name in range(4):
        assert [f.body for f in received if f.kind == name] == [b"%d" % n for n in range(200)]


def test_a_head_that_sends_more_than_is_read_is_asked_to_pause(
    head: Head, worker: BlockingConnection
) -> None:
    connection = head.connections.get(timeout=PATIENCE)
    count = 0

    def send_until_paused() -> None:
        nonlocal count
        while head.pauses.empty():
            connection.send(1, b"b" * 1000, [b"u" * 100_000])
            count += 1

    head.call(send_until_paused)
    assert head.pauses.get(timeout=PATIENCE)
    drained = asyncio.run_coroutine_threadsafe(connection.drain(), head.loop)
    assert all(len(worker.receive(PATIENCE).buffers[0]) == 100_000 for _ in range(count))
    assert not head.pauses.get(timeout=PATIENCE)
    drained.result(PATIENCE)


def test_what_a_head_sent_before_it_closed_arrives(head: Head, worker: BlockingConnection) -> None:
    connection = head.connections.get(timeout=PATIENCE)

    def send_and_close() -> None:
        for _ in range(20):
            connection.send(1, b"", [bytes(MEGABYTE)])
        connection.close()

    head.call(send_and_close)
    assert sum(len(worker.receive(PATIENCE).buffers[0]) for _ in range(20)) == 20 * MEGABYTE
    with pytest.raises(ConnectionLostError, match="the peer closed it"):
        worker.receive(PATIENCE)
    worker.close()
    assert isinstance(head.losses.get(timeout=PATIENCE), ConnectionLostError)
    with pytest.raises(ConnectionLostError):
        head.call(lambda: connection.send(1, b""))


@pytest.mark.parametrize("kibibytes", range(256, 1024, 64))
def test_a_head_ends_once_however_much_was_left_to_send(
    head: Head, worker: BlockingConnection, kibibytes: int
) -> None:
    connection = head.connections.get(timeout=PATIENCE)

    def send_and_close() -> None:
        connection.send(1, b"", [bytes(kibibytes * 1024)])
        connection.close()

    head.call(send_and_close)
    worker.receive(PATIENCE)
    worker.close()
    assert isinstance(head.losses.get(timeout=PATIENCE), ConnectionLostError)
    head.call(connection.abort)
    assert head.losses.empty()


def test_a_head_hears_once_that_its_worker_has_closed(head: Head, worker: BlockingConnection) -> None:
    worker.send(1, b"last")
    worker.receive(PATIENCE)
    connection = head.connections.get(timeout=PATIENCE)
    worker.close()
    worker.close()
    assert isinstance(head.losses.get(timeout=PATIENCE), ConnectionLostError)
    head.wait(connection.lost())
    assert head.losses.empty()
    assert head.refusals.total() == 0
    with pytest.raises(ConnectionLostError):
        head.wait(connection.drain())
    with pytest.raises(ConnectionLostError):
        worker.send(1, b"")
    with pytest.raises(ConnectionLostError):
        worker.receive(PATIENCE)


def test_close_wakes_a_thread_that_waits_for_a_frame(worker: BlockingConnection) -> None:
    worker.send(1, b"")
    worker.receive(PATIENCE)
    problems: list[str] = []

    def wait() -> None:
        try:
            worker.receive()
        except ConnectionLostError as error:
            problems.append(error.problem)

    waiting = threading.Thread(target=wait)
    waiting.start()
    worker.close()
    waiting.join(PATIENCE)
    assert problems == ["this side closed it"]


def test_close_wakes_a_thread_that_cannot_send_on(head: Head, worker: BlockingConnection) -> None:
    blocked = threading.Event()
    released = threading.Event()

    def block(connection: Connection, frame: Frame) -> None:
        blocked.set()
        released.wait(PATIENCE)

    head.receive = block
    failures: list[ConnectionLostError] = []

    def send() -> None:
        try:
            while True:
                worker.send(1, b"", [bytes(MEGABYTE)])
        except ConnectionLostError as error:
            failures.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    assert blocked.wait(PATIENCE)
    worker.close()
    sending.join(PATIENCE)
    released.set()
    assert len(failures) == 1


def test_a_timeout_loses_nothing(head: Head, worker: BlockingConnection) -> None:
    connection = head.connections.get(timeout=PATIENCE)
    with pytest.raises(TimeoutError):
        worker.receive(0.01)
    head.call(lambda: connection.send(1, b"late", [b"u" * MEGABYTE]))
    frame = worker.receive(PATIENCE)
    assert (frame.body, len(frame.buffers[0])) == (b"late", MEGABYTE)


def test_a_selector_and_a_timeout_of_zero_find_every_frame(head: Head, worker: BlockingConnection) -> None:
    connection = head.connections.get(timeout=PATIENCE)
    head.call(lambda: [connection.send(number, b"") for number in range(100)])
    kinds: list[int] = []
    while len(kinds) < 100:
        assert select.select([worker], [], [], PATIENCE)[0]
        with contextlib.suppress(TimeoutError):
            while True:
                kinds.append(worker.receive(0).kind)
    assert kinds == list(range(100))


def test_a_frame_above_the_limits_is_refused_to_its_sender_only(link: Link) -> None:
    settings = TransportSettings(limits=FrameLimits(max_body=1000))
    with (
        running_head(link.address, link.key, settings) as head,
        contextlib.closing(
            BlockingConnection.connect(head.address, link.key, settings=settings)
        ) as connection,
    ):
        with pytest.raises(FrameTooLargeError):
            connection.send(1, b"b" * 1001)
        connection.send(1, b"b" * 1000)
        assert len(connection.receive(PATIENCE).body) == 1000
        sender = head.connections.get(timeout=PATIENCE)
        with pytest.raises(FrameTooLargeError):
            head.call(lambda: sender.send(1, b"b" * 1001))
        head.call(lambda: sender.send(2, b"b"))
        assert connection.receive(PATIENCE).kind == 2


@pytest.mark.parametrize("kind", [LookupError, FileNotFoundError])
def test_an_error_in_a_callback_ends_the_connection_loudly(
    head: Head, worker: BlockingConnection, kind: type[Exception]
) -> None:
    def fail(connection: Connection, frame: Frame) -> None:
        raise kind("a bug")

    head.receive = fail
    worker.send(1, b"")
    with pytest.raises(ConnectionLostError):
        worker.receive(PATIENCE)
    assert isinstance(head.errors.get(timeout=PATIENCE), kind)
    assert isinstance(head.losses.get(timeout=PATIENCE).__cause__, kind)


def test_two_asyncio_programs_connect(head: Head, link: Link) -> None:
    async def call() -> list[bytes]:
        replies: asyncio.Queue[bytes] = asyncio.Queue()

        def begin(connection: Connection) -> None:
            connection.on_frame = lambda frame: replies.put_nowait(frame.body)

        connection = await connect(head.address, link.key, begin)
        for number in range(10):
            connection.send(1, b"%d" % number)
        await connection.drain()
        received = [await asyncio.wait_for(replies.get(), PATIENCE) for _ in range(10)]
        connection.close()
        await asyncio.wait_for(connection.lost(), PATIENCE)
        return received

    assert asyncio.run(call()) == [b"%d" % number for number in range(10)]


def test_the_end_of_a_server_ends_its_connections(link: Link) -> None:
    with running_head(link.address, link.key) as head:
        workers = [BlockingConnection.connect(head.address, link.key) for _ in range(3)]
        for _ in workers:
            head.connections.get(timeout=PATIENCE)
    for worker in workers:
        with contextlib.closing(worker), pytest.raises(ConnectionLostError):
            worker.receive(PATIENCE)
    assert [head.losses.get(timeout=PATIENCE).problem for _ in workers] == ["this side closed it"] * 3
