"""Tasks in a worker process: values, errors, and what they may do to their process."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, NoReturn

import pytest

from fray.errors import (
    RemoteTracebackError,
    SerializationError,
    TaskRaisedError,
    UnpicklableExceptionError,
)
from fray.runtime.pool.messages.commands import ForgetFunctions
from fray.runtime.pool.messages.events import TaskDone
from fray.runtime.pool.messages.specs import Stored
from fray.runtime.pool.objects.values import encode
from tests.pool.worker.scripted_head import HOST, Pool


def add(one: int, other: int) -> int:
    return one + other


def test_a_task_runs_in_a_worker_of_its_own(pool: Pool) -> None:
    first, second = pool.start_worker(), pool.start_worker()
    pids = {pool.run(first, os.getpid), pool.run(second, os.getpid), pool.nanny.pid, os.getpid()}
    assert len(pids) == 4
    assert pool.run(first, add, 1, 2) == 3


def test_a_large_result_lies_in_the_store(pool: Pool) -> None:
    worker = pool.start_worker()
    command = pool.task(worker, bytes, 100_000)
    pool.tell(worker, command)
    done = pool.head.take(TaskDone, id=command.spec.id)
    assert isinstance(done.outcome, Stored)
    assert done.outcome.host == HOST
    assert pool.value(command.spec.id, done.outcome) == bytes(100_000)
    assert done.seconds >= 0
    assert done.began > 0


def test_arguments_come_inline_and_from_the_store(pool: Pool) -> None:
    worker = pool.start_worker()
    large = pool.new_id()
    size = pool.store.write(large, encode(b"x" * 100_000)).size
    command = pool.task(worker, lambda number, text: (number, len(text)), deps=())
    args = encode_two_places()
    deps = (encode(7).to_bytes(), Stored(HOST, size))
    spec = command.spec._replace(args=args, deps=(pool.new_id(), large))
    pool.tell(worker, command._replace(spec=spec, deps=deps))
    assert pool.value_of(command) == (7, 100_000)


def encode_two_places() -> bytes:
    return encode(([None, None], {}, [0, 1])).to_bytes()


class OddError(Exception):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{why} ({code})")
        self.code = code


def raise_odd() -> NoReturn:
    raise OddError(3, "odd")


def test_an_exception_keeps_its_type_and_shows_where_it_was_raised(pool: Pool) -> None:
    worker = pool.start_worker()
    with pytest.raises(OddError, match="odd") as caught:
        pool.run(worker, raise_odd)
    assert caught.value.code == 3
    assert isinstance(caught.value.__cause__, RemoteTracebackError)
    assert "raise_odd" in caught.value.__cause__.traceback


def test_system_exit_ends_the_task_and_not_the_worker(pool: Pool) -> None:
    worker = pool.start_worker()
    with pytest.raises(TaskRaisedError, match="SystemExit"):
        pool.run(worker, sys.exit, 3)
    assert pool.run(worker, add, 1, 1) == 2


def test_a_result_that_cannot_be_pickled_is_an_error_of_the_task(pool: Pool) -> None:
    worker = pool.start_worker()
    with pytest.raises(SerializationError):
        pool.run(worker, threading.Lock)
    assert pool.run(worker, add, 1, 1) == 2


def test_an_exception_that_cannot_be_pickled_becomes_text(pool: Pool) -> None:
    class LocalError(Exception):
        def __reduce__(self) -> Any:
            raise RuntimeError("never")

    def fail() -> NoReturn:
        raise LocalError("what happened")

    worker = pool.start_worker()
    with pytest.raises((UnpicklableExceptionError, LocalError), match="what happened"):
        pool.run(worker, fail)


def test_no_memory_is_an_error_of_the_task(pool: Pool) -> None:
    worker = pool.start_worker()
    with pytest.raises(MemoryError):
        pool.run(worker, bytearray, 1 << 60)
    assert pool.run(worker, add, 1, 1) == 2


def test_a_function_is_sent_once_and_again_after_it_was_forgotten(pool: Pool) -> None:
    worker = pool.start_worker()
    command = pool.task(worker, add, 1, 2)
    pool.tell(worker, command)
    assert pool.value_of(command) == 3
    again = pool.task(worker, add, 3, 4)._replace(blob=b"")
    pool.tell(worker, again)
    assert pool.value_of(again) == 7
    last = pool.task(worker, add, 5, 6)._replace(blob=b"")
    pool.tell(worker, ForgetFunctions(worker, (last.spec.function,)), last)
    with pytest.raises(SerializationError):
        pool.value_of(last)


def test_a_task_says_whether_it_is_to_be_tried_again(pool: Pool) -> None:
    worker = pool.start_worker()
    kinds = encode((KeyError, OddError)).to_bytes()
    for options, retry in (
        ({}, False),
        ({"retry_exceptions": 1}, True),
        ({"retry_exceptions": 1, "retry_on": kinds}, True),
        ({"retry_exceptions": 1, "retry_on": encode((KeyError,)).to_bytes()}, False),
    ):
        command = pool.task(worker, raise_odd, **options)
        pool.tell(worker, command)
        assert pool.head.take(TaskDone, id=command.spec.id).retry is retry
    command = pool.task(worker, sys.exit, retry_exceptions=1)
    pool.tell(worker, command)
    assert pool.head.take(TaskDone, id=command.spec.id).retry is False


def test_what_a_task_prints_is_there_when_it_ends(pool: Pool) -> None:
    worker = pool.start_worker()
    pool.run(worker, print, "hello from the worker")
    assert "hello from the worker\n" in pool.printed()


async def double(number: int) -> int:
    return 2 * number


def test_a_coroutine_function_gives_its_value(pool: Pool) -> None:
    assert pool.run(pool.start_worker(), double, 4) == 8


def test_the_main_thread_takes_part(pool: Pool) -> None:
    worker = pool.start_worker()
    assert pool.run(worker, lambda: threading.current_thread() is threading.main_thread())
