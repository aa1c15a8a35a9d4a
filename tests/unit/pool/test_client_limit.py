"""Back-pressure: who submits too much waits until enough has ended, and nobody waits for himself."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from fray.errors import PoolClosedError
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.messages.events import Event, RefsAdded
from fray.runtime.pool.messages.specs import TaskSpec


class Bounded:
    """A client with a limit; `waits` is released when a thread begins to wait."""

    def __init__(self, **limits: int) -> None:
        self.limit = SubmitLimit(**limits)
        self.on_post: Callable[[Event], None] = lambda _: None
        self.client = PoolClient(0, self.post, limit=self.limit)
        self.waits = threading.Semaphore(0)
        self.limit.on_wait = self.waits.release

    def post(self, event: Event) -> None:
        self.on_post(event)

    def submit(self, size: int = 100) -> None:
        self.client.submit(TaskSpec(self.client.new_id(), b"f", bytes(size), "task"), b"")

    def submit_in_thread(self, size: int = 100) -> tuple[threading.Thread, list[object]]:
        result: list[object] = []

        def run() -> None:
            try:
                self.submit(size)
                result.append("submitted")
            except PoolClosedError as error:
                result.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread, result


@pytest.mark.parametrize("limits", [{"max_bytes": 300}, {"max_tasks": 3}], ids=["bytes", "tasks"])
def test_the_one_too_many_waits_until_some_have_ended(limits: dict[str, int]) -> None:
    bounded = Bounded(**limits)
    for _ in range(3):
        assert not bounded.limit.full
        bounded.submit()
    thread, result = bounded.submit_in_thread()
    bounded.waits.acquire()
    assert bounded.limit.has_waiters
    bounded.limit.note_ended(0, 0)
    assert not result
    bounded.limit.note_ended(1, 100)
    thread.join()
    assert result == ["submitted"]
    assert bounded.limit.full
    assert not bounded.limit.has_waiters


def test_one_task_above_the_limit_may_go_alone() -> None:
    bounded = Bounded(max_bytes=300)
    bounded.submit(1000)
    thread, result = bounded.submit_in_thread()
    bounded.waits.acquire()
    assert not result
    bounded.limit.note_ended(1, 1000)
    thread.join()
    assert result == ["submitted"]


def test_the_end_of_the_pool_lets_them_go_with_an_error() -> None:
    bounded = Bounded(max_tasks=1)
    bounded.submit()
    thread, result = bounded.submit_in_thread()
    bounded.waits.acquire()
    bounded.client.close()
    thread.join()
    assert isinstance(result[0], PoolClosedError)
    with pytest.raises(PoolClosedError):
        bounded.submit()


def test_the_heads_own_thread_never_waits() -> None:
    bounded = Bounded(max_tasks=1)
    bounded.submit()
    bounded.limit.exempt = threading.current_thread()
    bounded.submit()
    assert bounded.limit.full


def test_a_finalizer_within_the_client_never_waits() -> None:
    bounded = Bounded(max_tasks=1)
    bounded.submit()

    def finalize(event: Event) -> None:
        if type(event) is RefsAdded:
            bounded.submit()

    bounded.on_post = finalize
    bounded.client.refer(77)
    assert not bounded.waits.acquire(blocking=False)


def test_workers_have_no_limit() -> None:
    client = PoolClient(1, lambda _: None)
    for _ in range(3):
        client.submit(TaskSpec(client.new_id(), b"f", bytes(10**6), "task"), b"")


def test_the_default_has_room_for_two_million_small_tasks() -> None:
    limit = SubmitLimit()
    for _ in range(2_000_000):
        limit.count(100)
    assert not limit.full
