"""The head's own thread: it can't start, it stops while others wait, its state machine fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.errors import AddressError, PoolClosedError
from fray.job import JobContext
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.head.head import Head
from fray.runtime.pool.messages.commands import Command
from fray.runtime.pool.messages.events import Event
from fray.runtime.pool.messages.specs import TaskSpec
from fray.runtime.pool.objects.directories import create_store
from fray.runtime.pool.state import PoolState
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from tests.pool.driver.processes import pool_threads


class Failing(PoolState):
    """A state machine that fails at the first task."""

    def handle(self, source: int, event: Event, now: float) -> list[Command]:
        if type(event).__name__ == "TaskSubmitted":
            raise KeyError("a bug")
        return super().handle(source, event, now)


@pytest.fixture
def make_head(tmp_path: Path) -> Iterator[Callable[..., Head]]:
    owned = create_store(limit=1_000_000)
    made: list[Head] = []
    tmp_path.chmod(0o700)

    def make(state: PoolState | None = None) -> Head:
        key = TransportKey.generate()
        address = Address(path=str(tmp_path / "head"))
        made.append(
            Head(address, key, state=state or PoolState(), host=1, store=owned.store, limit=SubmitLimit())
        )
        return made[-1]

    yield make
    for head in made:
        if head._thread.ident is not None:
            head.stop()
    owned.close()
    assert pool_threads() == set()


def waiting_threads(head: Head) -> list[tuple[threading.Thread, list[Any]]]:
    """Start a thread in each call that waits for the head; return them when all wait."""
    client = head.client
    entry = client.submit(TaskSpec(client.new_id(), b"f", b"", "task"), b"f")
    begun = threading.Semaphore(0)
    original = client._blocking

    def blocking(wake: Callable[[], None]) -> Any:
        begun.release()
        return original(wake)

    client._blocking = blocking
    calls = (
        lambda: client.await_outcome(entry, None, "it"),
        lambda: client.wait([entry], 1),
    )
    started = []
    for call in calls:
        result: list[Any] = []
        thread = threading.Thread(target=_note, args=(call, result))
        thread.start()
        started.append((thread, result))
        begun.acquire()
    return started


def _note(call: Callable[[], Any], result: list[Any]) -> None:
    try:
        result.append(call())
    except PoolClosedError as error:
        result.append(error)


def test_an_address_that_is_taken_is_told_and_leaves_no_thread(make_head: Callable[..., Head]) -> None:
    first = make_head()
    first.start()
    second = make_head()
    with pytest.raises(AddressError, match="in use"):
        second.start()
    assert second.client.end is not None
    second.stop()
    with pytest.raises(PoolClosedError):
        second.call(lambda state: state.stats())
    assert first.call(lambda state: state.stats()).objects == 0


def test_a_thread_that_waits_gets_the_end(make_head: Callable[..., Head]) -> None:
    head = make_head()
    head.start()
    threads = waiting_threads(head)
    head.stop()
    for thread, _ in threads:
        thread.join()
    assert [result for _, result in threads] == [[head.client.end], [True]]
    with pytest.raises(PoolClosedError):
        head.call(lambda state: state.stats())
    head.stop()


def test_threads_in_get_wait_and_stats_hear_of_a_stop_from_below(
    make_pool: Callable[[int], JobContext], gate: Any
) -> None:
    ctx = make_pool(1)
    ref = ctx.run(gate.pass_through)
    results: list[Any] = []
    threads = [
        threading.Thread(target=_note, args=(call, results))
        for call in (lambda: ctx.get(ref), lambda: ctx.get([ref, ref]), lambda: ctx.wait([ref]))
    ]
    for thread in threads:
        thread.start()
    client = ctx._engine.client
    while len(client._waiters) < 2 or not client._listeners:
        pass
    ctx._engine._owner._pool._head.stop()  # type: ignore[attr-defined]
    for thread in threads:
        thread.join()
    assert sorted(type(result).__name__ for result in results) == [
        "PoolClosedError",
        "PoolClosedError",
        "tuple",
    ]
    with pytest.raises(PoolClosedError):
        ctx.stats()


def test_a_bug_ends_the_pool_and_is_told_to_all(
    make_head: Callable[..., Head], caplog: pytest.LogCaptureFixture
) -> None:
    head = make_head(Failing())
    head.start()
    entry = head.client.submit(TaskSpec(head.client.new_id(), b"f", b"", "task"), b"f")
    outcome = head.client.await_outcome(entry, None, "it")
    assert outcome is head.client.end
    head.stop()
    with pytest.raises(PoolClosedError, match=r"KeyError: 'a bug'"):
        head.client.submit(TaskSpec(head.client.new_id(), b"f", b"", "task"), b"f")
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert told
    assert "in handle" in caplog.text  # the traceback


def test_a_question_that_fails_is_no_bug_of_the_head(make_head: Callable[..., Head]) -> None:
    head = make_head()
    head.start()
    with pytest.raises(ZeroDivisionError):
        head.call(lambda _: 1 // 0)
    assert head.call(lambda state: state.stats()).objects == 0


def test_every_context_can_be_closed_twice_and_says_that_it_is(
    make_pool: Callable[[int], JobContext],
) -> None:
    ctx = make_pool(1)
    ctx.shutdown()
    ctx.shutdown()
    assert getattr(ctx, "closed", False)
    with pytest.raises(PoolClosedError):
        ctx.stats()
