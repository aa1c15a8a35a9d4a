"""How far generators go ahead: the window, without processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fray.runtime.pool.messages.events import ItemsProduced
from fray.runtime.pool.messages.specs import Stored, TaskSpec, Value
from fray.runtime.pool.worker.generators import RESUME_SHARE, SMALL_BYTES, SMALL_ITEMS, Window, stream

SPEC = TaskSpec(1, b"", b"", "numbers", streaming=True)


class Sink:
    def __init__(self, *, small: bool = False) -> None:
        self.items: list[ItemsProduced] = []
        self.small = small
        self.flushed = 0

    def new_id(self) -> int:
        return 100 + len(self.items)

    def keep(self, _id: int, value: Any, _limit: int) -> Value:
        return str(value).encode() if self.small else Stored(1, value)

    def tell(self, item: ItemsProduced) -> None:
        self.items.append(item)

    def flush(self) -> None:
        self.flushed = len(self.items)


class Consumer:
    """Takes all items that were told whenever the generator waits."""

    def __init__(self, window: Window, sink: Sink) -> None:
        self.window = window
        self.sink = sink
        self.waits: list[int] = []

    @contextmanager
    def waiting(self, _wake: Callable[[], None]) -> Iterator[None]:
        assert self.sink.flushed == len(self.sink.items)
        self.waits.append(len(self.sink.items))
        self.window.consume(self.sink.items[-1].position + 1)
        yield


@pytest.mark.parametrize(("buffered", "skip", "waits"), [(3, 0, [3, 6, 9]), (3, 4, [3, 6]), (0, 8, [1, 2])])
def test_it_waits_whenever_its_buffer_is_full(buffered: int, skip: int, waits: list[int]) -> None:
    window, sink = Window(buffered, skip), Sink()
    consumer = Consumer(window, sink)
    made = stream(range(10), SPEC, skip=skip, window=window, sink=sink, waiting=consumer.waiting)
    assert made == 10
    assert [item.position for item in sink.items] == list(range(skip, 10))
    assert [item.items[0][1] for item in sink.items] == [Stored(1, n) for n in range(skip, 10)]
    assert consumer.waits == waits


def test_it_goes_further_with_small_items_until_they_take_much_together() -> None:
    window, sink = Window(2, 0), Sink(small=True)
    consumer = Consumer(window, sink)
    stream(range(1000), SPEC, skip=0, window=window, sink=sink, waiting=consumer.waiting)
    assert consumer.waits == list(range(2 * SMALL_ITEMS, 1000, 2 * SMALL_ITEMS))
    window, sink = Window(2, 0), Sink(small=True)
    consumer = Consumer(window, sink)
    stream(["x" * (SMALL_BYTES // 4)] * 10, SPEC, skip=0, window=window, sink=sink, waiting=consumer.waiting)
    assert consumer.waits == [4, 8]


def test_one_that_waits_goes_on_when_much_of_the_window_is_free_again() -> None:
    window = Window(2, 0)
    ahead = 2 * SMALL_ITEMS
    for _ in range(ahead):
        window.note(1)
    enough = ahead - ahead // RESUME_SHARE + 1
    waiting = threading.Event()

    @contextmanager
    def wait(_wake: Callable[[], None]) -> Iterator[None]:
        waiting.set()
        yield

    generator = threading.Thread(target=window.wait, args=(ahead, wait))
    generator.start()
    waiting.wait()
    for taken in range(1, enough):
        window.consume(taken)
    assert generator.is_alive()
    window.consume(enough)
    generator.join()
    window.wait(ahead, wait)


def test_news_of_the_past_change_nothing() -> None:
    window = Window(2, 0)
    window.consume(5)
    window.consume(1)
    window.note(SMALL_BYTES)

    @contextmanager
    def never(wake: Callable[[], None]) -> Iterator[None]:
        raise AssertionError("it waits")
        yield

    window.wait(6, never)
    with pytest.raises(AssertionError, match="it waits"):
        window.wait(7, never)


def test_a_released_window_is_open() -> None:
    window = Window(1, 0)
    window.note(SMALL_BYTES)

    @contextmanager
    def interrupted(wake: Callable[[], None]) -> Iterator[None]:
        threading.Thread(target=wake).start()
        yield

    window.wait(50, interrupted)
