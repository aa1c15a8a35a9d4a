"""Generators as the client sees them: items in order, ends of each sort, and what is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fray.errors import GetTimeoutError
from fray.runtime.pool.client.client import ACKNOWLEDGED_TOGETHER, PoolClient
from fray.runtime.pool.client.waiting import StreamEntry
from fray.runtime.pool.messages.commands import Deliver, DeliverItems
from fray.runtime.pool.messages.events import Event, ItemsConsumed, RefsReleased, TaskCancelled, TaskSubmitted
from fray.runtime.pool.messages.specs import Failed, Outcome, Stored, TaskSpec, Value
from fray.runtime.pool.worker.generators import ITEM_INLINE_LIMIT, RESUME_SHARE, SMALL_BYTES, SMALL_ITEMS

VALUE = b"value"


class Stream:
    """A client with one generator task, whose items are numbered from 1000."""

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.client = PoolClient(0, self.posted.append)
        spec = TaskSpec(self.client.new_id(), b"f", b"", "stream", streaming=True)
        entry = self.client.submit(spec, b"")
        assert isinstance(entry, StreamEntry)
        self.entry = entry
        self.posted.clear()

    def produce(self, *indexes: int) -> None:
        items = tuple((1000 + index, VALUE) for index in indexes)
        self.client.deliver([DeliverItems(0, self.entry.id, indexes[0], items)])

    def end(self, outcome: Outcome = VALUE) -> None:
        self.client.deliver([Deliver(0, self.entry.id, outcome)])

    def next(self) -> int | None:
        item = self.client.next_item(self.entry, 0)
        return None if item is None else item.id

    def take(self, *values: Value) -> None:
        """Let items come, and take them."""
        first = self.entry.consumed
        items = tuple((1000 + first + index, value) for index, value in enumerate(values))
        self.client.deliver([DeliverItems(0, self.entry.id, first, items)])
        assert [self.next() for _ in values] == [identity for identity, _ in items]

    def told(self) -> list[int]:
        """Return how many items in all were told as taken, each time."""
        return [event.taken for event in self.posted if isinstance(event, ItemsConsumed)]


def test_a_stream_is_asked_for_with_its_task() -> None:
    posted: list[Event] = []
    client = PoolClient(0, posted.append)
    entry = client.submit(TaskSpec(1, b"f", b"", "stream", streaming=True), b"")
    assert [(type(event), event.wanted) for event in posted] == [(TaskSubmitted, True)]
    assert not client.wait([entry], 1, timeout=0)
    assert len(posted) == 1


def test_items_come_in_order() -> None:
    stream = Stream()
    with pytest.raises(GetTimeoutError):
        stream.next()
    stream.produce(0, 1)
    assert stream.entry.ready
    assert [stream.next(), stream.next()] == [1000, 1001]
    assert not stream.entry.ready
    stream.produce(2)
    stream.end()
    assert stream.next() == 1002
    assert stream.entry.ready  # ended is ready, too
    assert [stream.next(), stream.next()] == [None, None]
    assert not stream.posted  # few and small: no generator waits for that


def test_small_items_are_told_as_taken_together_and_large_ones_each() -> None:
    stream = Stream()
    stream.take(*[VALUE] * (ACKNOWLEDGED_TOGETHER + 2))
    assert stream.told() == [ACKNOWLEDGED_TOGETHER]
    stream.take(Stored(1, 10**6), Stored(1, 10**6), VALUE)
    assert stream.told() == [ACKNOWLEDGED_TOGETHER + more for more in (0, 3, 4)]


def test_nothing_is_told_of_items_whose_generator_has_ended() -> None:
    stream = Stream()
    stream.produce(*range(ACKNOWLEDGED_TOGETHER))
    stream.end()
    assert [stream.next() for _ in range(ACKNOWLEDGED_TOGETHER)]
    assert not stream.posted


def test_no_generator_waits_for_items_that_were_taken_and_not_told() -> None:
    # One that waits goes on once so few of its items are left.
    buffered = TaskSpec._field_defaults["buffered"]
    assert buffered * SMALL_ITEMS > ACKNOWLEDGED_TOGETHER * RESUME_SHARE
    assert SMALL_BYTES > ACKNOWLEDGED_TOGETHER * ITEM_INLINE_LIMIT * RESUME_SHARE


@pytest.mark.parametrize("taken", [15, 16, 20, 63, 64, 79, 80, 127, 143])
def test_the_head_knows_of_a_reader_that_has_taken_all_that_its_generator_does_not_wait_for_it(
    taken: int,
) -> None:
    stream = Stream()
    stream.take(*[VALUE] * taken)
    told = stream.told()
    # Else it would never say of such a pool that it stands still.
    assert taken - (told[-1] if told else 0) < TaskSpec._field_defaults["buffered"]
    assert len(told) <= taken // ACKNOWLEDGED_TOGETHER + 1


def test_two_items_of_one_stream_are_one_that_is_ready() -> None:
    stream = Stream()
    other = stream.client.submit(TaskSpec(stream.client.new_id(), b"f", b"", "task"), b"")
    waiting = threading.Semaphore(0)

    @contextmanager
    def blocking(_: Callable[[], None]) -> Iterator[None]:
        waiting.release()
        yield

    stream.client._blocking = blocking
    result: list[bool] = []
    thread = threading.Thread(target=lambda: result.append(stream.client.wait([stream.entry, other], 2)))
    thread.start()
    waiting.acquire()
    stream.produce(0, 1)
    (waiter,) = stream.client._waiters
    assert waiter.missing == 1
    stream.client.deliver([Deliver(0, other.id, VALUE)])
    thread.join()
    assert result == [True]


def test_an_item_that_was_taken_is_released_by_its_own_handle() -> None:
    stream = Stream()
    stream.produce(0)
    item = stream.client.next_item(stream.entry, 0)
    assert item is not None
    stream.client.drop(stream.entry)
    stream.client.flush()
    assert stream.posted == [TaskCancelled(stream.entry.id), RefsReleased((stream.entry.id,))]
    stream.client.drop(item)
    stream.client.flush()
    assert stream.posted[2:] == [RefsReleased((1000,))]


def test_a_stream_that_is_given_up_is_cancelled_and_its_items_released() -> None:
    stream = Stream()
    stream.produce(0, 1)
    stream.client.drop(stream.entry)
    stream.client.flush()
    assert stream.posted == [TaskCancelled(stream.entry.id), RefsReleased((stream.entry.id, 1000, 1001))]
    stream.produce(2)  # it was on its way
    assert stream.posted[2:] == [RefsReleased((1002,))]
    assert not stream.client._entries


def test_a_stream_that_has_ended_is_not_cancelled() -> None:
    stream = Stream()
    stream.produce(0)
    stream.end()
    stream.client.drop(stream.entry)
    stream.client.flush()
    assert stream.posted == [RefsReleased((stream.entry.id, 1000))]


def test_a_failure_comes_after_the_items_before_it() -> None:
    stream = Stream()
    stream.produce(0)
    failed = Failed(b"", "TaskCancelledError", "stream")
    stream.end(failed)
    assert [stream.next(), stream.next()] == [1000, None]
    assert stream.entry.outcome is failed


def test_the_end_of_the_pool_is_that_of_the_stream() -> None:
    stream = Stream()
    stream.produce(0)
    stream.client.close()
    assert [stream.next(), stream.next()] == [1000, None]
    assert stream.entry.outcome is stream.client.end
