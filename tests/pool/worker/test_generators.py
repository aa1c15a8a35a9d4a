"""Generators in a worker: items one by one, bounded ahead of their consumer, made again after a loss."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.errors import TaskCancelledError
from fray.runtime.pool.messages.commands import CancelTask, ResumeGenerator
from fray.runtime.pool.messages.events import ItemsProduced, TaskBlocked, TaskDone, TaskUnblocked
from fray.runtime.pool.messages.specs import Stored
from tests.pool.worker.scripted_head import Pool


def count(end: int, log: Path | None = None) -> Iterator[int]:
    for number in range(end):
        if log is not None:
            with log.open("a") as file:
                file.write(f"{number}\n")
        yield number


async def count_async(end: int) -> AsyncIterator[int]:
    for number in range(end):
        yield number


def items(pool: Pool, task: int, number: int) -> list[tuple[int, Any]]:
    taken: list[tuple[int, Any]] = []
    while len(taken) < number:
        told = pool.head.take(ItemsProduced, task=task)
        first = told.position
        taken += [(first + n, pool.value(*item)) for n, item in enumerate(told.items)]
    return taken


def count_large(end: int, log: Path | None = None) -> Iterator[bytes]:
    """As `count`, with items of which only few are made ahead."""
    for number in count(end, log):
        yield bytes(2000 + number)


def sizes(pool: Pool, task: int, number: int) -> list[tuple[int, int]]:
    return [(position, len(value) - 2000) for position, value in items(pool, task, number)]


@pytest.mark.parametrize("function", [count, count_async])
def test_items_are_told_and_their_number_is_the_result(pool: Pool, function) -> None:  # type: ignore[no-untyped-def]
    worker = pool.start_worker()
    command = pool.task(worker, function, 3, streaming=True)
    pool.tell(worker, command)
    assert items(pool, command.spec.id, 3) == [(0, 0), (1, 1), (2, 2)]
    assert pool.value_of(command) == 3


def test_a_generator_is_no_more_than_its_buffer_ahead(pool: Pool) -> None:
    worker = pool.start_worker()
    log = pool.folder / "log"
    command = pool.task(worker, count_large, 5, log, streaming=True, buffered=2)
    pool.tell(worker, command)
    assert len(items(pool, command.spec.id, 2)) == 2
    # It lends what it holds: its consumer may be a task that needs it.
    assert pool.head.take(TaskBlocked).id == command.spec.id
    assert log.read_text() == "0\n1\n"
    pool.tell(worker, ResumeGenerator(worker, command.spec.id, 1))
    assert pool.head.take(TaskUnblocked).id == command.spec.id
    assert sizes(pool, command.spec.id, 1) == [(2, 2)]
    assert pool.head.take(TaskBlocked).id == command.spec.id
    pool.tell(worker, ResumeGenerator(worker, command.spec.id, 3))
    assert sizes(pool, command.spec.id, 2) == [(3, 3), (4, 4)]
    pool.tell(worker, ResumeGenerator(worker, command.spec.id, 5))
    assert pool.value_of(command) == 5


def test_items_that_were_told_before_are_made_again_and_dropped(pool: Pool) -> None:
    worker = pool.start_worker()
    command = pool.task(worker, count_large, 6, streaming=True, buffered=2, skip=4, attempt=2)
    pool.tell(worker, command)
    assert sizes(pool, command.spec.id, 2) == [(4, 4), (5, 5)]
    pool.tell(worker, ResumeGenerator(worker, command.spec.id, 5))
    assert pool.value_of(command) == 6
    assert not [message for message in pool.head.seen() if isinstance(message, ItemsProduced)]


def test_small_items_go_in_messages_and_others_to_the_store(pool: Pool) -> None:
    def two() -> Iterator[bytes]:
        yield b"x"
        yield bytes(2000)

    worker = pool.start_worker()
    command = pool.task(worker, two, streaming=True)
    pool.tell(worker, command)
    kinds: list[type] = []
    while len(kinds) < 2:
        kinds += [type(outcome) for _, outcome in pool.head.take(ItemsProduced).items]
    assert kinds == [bytes, Stored]


def test_an_exception_comes_after_the_items_before_it(pool: Pool) -> None:
    def break_off() -> Iterator[int]:
        yield 1
        raise KeyError("off")

    worker = pool.start_worker()
    command = pool.task(worker, break_off, streaming=True)
    pool.tell(worker, command)
    assert items(pool, command.spec.id, 1) == [(0, 1)]
    with pytest.raises(KeyError, match="off"):
        pool.value_of(command)


def test_a_generator_that_waits_for_its_consumer_is_cancelled(pool: Pool) -> None:
    worker = pool.start_worker()
    command = pool.task(worker, count_large, 100, streaming=True, buffered=1)
    pool.tell(worker, command)
    pool.head.take(TaskBlocked)
    pool.tell(worker, CancelTask(worker, command.spec.id))
    with pytest.raises(TaskCancelledError):
        pool.value_of(command)
    assert len([message for message in pool.head.seen() if isinstance(message, TaskDone)]) == 0
    assert pool.run(worker, abs, -1) == 1
