"""Messages to the head: one order, none lost, few frames."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import pytest

from fray.errors import ConnectionLostError, FrameTooLargeError
from fray.runtime.pool.message_codec import decode_messages
from fray.runtime.pool.messages.events import ItemsProduced, RefsAdded
from fray.runtime.pool.outbox import BATCH, Outbox

PATIENCE = 60
LIMIT = 1000


class Connection:
    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self.lost = False

    def send(self, _kind: int, body: bytes) -> None:
        if self.lost:
            raise ConnectionLostError("the head", "gone")
        if len(body) > LIMIT:
            raise FrameTooLargeError("body", len(body), LIMIT)
        self.frames.put(decode_messages(body))

    def next(self) -> list[Any]:
        return self.frames.get(timeout=PATIENCE)


@pytest.fixture
def connection() -> Connection:
    return Connection()


def never() -> None:
    raise AssertionError("the connection isn't lost")


def test_what_was_deferred_goes_first_and_along(connection: Connection) -> None:
    outbox = Outbox(connection, never)
    outbox.defer(1)
    outbox.flush()
    outbox.defer(2)
    outbox.send(3, 4)
    outbox.flush()
    assert connection.next() == [1]
    assert connection.next() == [2, 3, 4]
    assert connection.frames.empty()


def test_messages_that_may_wait_go_together_and_all_of_them_go(connection: Connection) -> None:
    outbox = Outbox(connection, never)
    for number in range(1000):
        outbox.send_soon(number)
    frames = []
    while sum(map(len, frames)) < 1000:
        frames.append(connection.next())
    assert [number for frame in frames for number in frame] == list(range(1000))
    assert max(map(len, frames)) > 1
    assert max(map(len, frames)) <= BATCH + 1


def test_a_message_that_nothing_follows_goes_too(connection: Connection) -> None:
    outbox = Outbox(connection, never)
    for number in range(1, 21):
        outbox.send(number)
        outbox.send_soon(-number)
        taken = connection.next()
        while taken[-1] != -number:
            taken += connection.next()
        assert taken == [number, -number]


def test_messages_that_are_too_many_for_a_frame_are_shared_out(connection: Connection) -> None:
    outbox = Outbox(connection, never)
    parts = [str(number) * 400 for number in range(5)]
    outbox.send(*parts)
    taken: list[str] = []
    while len(taken) < len(parts):
        taken += connection.next()
    assert taken == parts


def test_one_that_is_too_large_does_not_take_others_with_it(connection: Connection) -> None:
    outbox = Outbox(connection, never)
    outbox.defer("before")
    outbox.defer("x" * 2000)
    with pytest.raises(FrameTooLargeError):
        outbox.send("after")
    assert [connection.next(), connection.next()] == [["before"], ["after"]]


def test_items_of_a_generator_and_references_that_follow_each_other_are_one_message(
    connection: Connection,
) -> None:
    outbox = Outbox(connection, never)
    item, other = b"1", b"2"
    outbox.defer(RefsAdded((1,)))
    outbox.defer(RefsAdded((2, 3)))
    outbox.defer(ItemsProduced(7, 0, ((70, item),)))
    outbox.defer(ItemsProduced(7, 1, ((71, other),)))
    outbox.defer(ItemsProduced(8, 0, ((80, item),)))
    outbox.send(RefsAdded((4,)))
    assert connection.next() == [
        RefsAdded((1, 2, 3)),
        ItemsProduced(7, 0, ((70, item), (71, other))),
        ItemsProduced(8, 0, ((80, item),)),
        RefsAdded((4,)),
    ]


def test_the_end_of_the_connection_is_told(connection: Connection) -> None:
    told: list[bool] = []
    outbox = Outbox(connection, lambda: told.append(True))
    connection.lost = True
    outbox.send(1)
    assert told == [True]


def test_who_tells_a_head_that_reads_nothing_is_held_up(connection: Connection) -> None:
    """What threads have to tell is kept by them, not by a queue without an end."""
    reads = threading.Event()
    send = connection.send

    def send_later(kind: int, body: bytes) -> None:
        assert reads.wait(PATIENCE)
        send(kind, body)

    connection.send = send_later  # type: ignore[method-assign]
    outbox = Outbox(connection, never)

    def tell() -> None:
        for number in range(500):
            outbox.send_soon([number])

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    most = BATCH + len(threads)
    for _ in range(200):
        assert len(outbox._pending) <= most
        time.sleep(0.001)
    reads.set()
    for thread in threads:
        thread.join()
    outbox.flush()
    assert sum(len(connection.next()) for _ in range(connection.frames.qsize())) == 2000


def test_what_may_wait_goes_at_once_while_no_thread_can_be_started(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    outbox = Outbox(connection, never)
    outbox.send(0)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for message in range(1, 4):
            outbox.send_soon(message)
        assert [connection.next() for _ in range(4)] == [[0], [1], [2], [3]]
    outbox.send_soon(4)
    outbox.send_soon(5)
    found: list[Any] = []
    while len(found) < 2:
        found += connection.next()
    assert found == [4, 5]
