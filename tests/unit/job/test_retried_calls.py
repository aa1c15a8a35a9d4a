"""Calls that are made again when they were lost: to which incarnation, in which order, and how often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from fray.errors import ActorDiedError, TaskCancelledError, TaskTimeoutError
from fray.job import retried_calls
from fray.job.calls import MethodCall
from fray.job.options import CallOptions
from fray.job.retried_calls import RetriedCalls
from fray.runtime.actors.identity import Member
from fray.runtime.pool.messages.specs import Failed
from tests.pool.hosts.pools import PATIENCE, wait_until

MEMBER = Member("counter", "counter", "u1")
LOST = Failed(b"", "ActorDiedError", "counter", (), (("reason", "its worker died"),))


class Incarnation:
    """The connection to one incarnation: it has what it was called with, and says what became of it."""

    closed = False
    deleted = False

    def __init__(self, number: int) -> None:
        self.token = f"i{number}"
        self.member = SimpleNamespace(incarnation=self.token)
        self.actor = None
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.cancelled: list[int] = []
        self._entries: list[Any] = []
        self._listeners: dict[int, Callable[[Any], None]] = {}

    def call_actor(self, _: None, call: MethodCall, *, streaming: bool) -> Any:
        del streaming
        self.calls.append((call.method, call.args))
        self._entries.append(SimpleNamespace(id=len(self._entries), outcome=None, ready=False))
        return self._entries[-1]

    def subscribe(self, entries: Sequence[Any], listener: Callable[[Any], None]) -> None:
        (entry,) = entries
        self._listeners[entry.id] = listener

    def end(self, number: int, outcome: Any) -> None:
        """Let the call of a number end with a failure or a value."""
        wait_until(lambda: number in self._listeners)
        entry = self._entries[number]
        entry.outcome, entry.ready = outcome, True
        self._listeners[number](entry)

    def take(self, ref: Any, deadline: float | None) -> Any:
        del deadline
        if ref._entry.outcome is LOST:
            raise ActorDiedError("counter", "its worker died")
        return ref._entry.outcome

    def cancel(self, entry: Any, *, force: bool) -> None:
        del force
        self.cancelled.append(entry.id)

    def release(self, entry: Any) -> None: ...


class World:
    """Incarnations, of which the next one is there once it is let."""

    def __init__(self) -> None:
        self.met: list[Incarnation] = []
        self.over: list[str] = []
        self.there = threading.Semaphore(1)

    def connect(self, member: Member, reach: object, *, over: str, deadline: float | None) -> Incarnation:
        del reach, deadline
        assert member.incarnation == ""
        self.over.append(over)
        assert self.there.acquire(timeout=PATIENCE)
        self.met.append(Incarnation(len(self.met) + 1))
        return self.met[-1]

    def meet(self, number: int) -> Incarnation:
        """Let the incarnation of a number be there, and return it once it was met."""
        self.there.release()
        wait_until(lambda: len(self.met) == number)
        return self.met[-1]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    monkeypatch.setattr(retried_calls, "connect", made.connect)
    yield made
    made.there.release()


@pytest.fixture
def calls(world: World) -> RetriedCalls:  # the patch comes first
    return RetriedCalls(MEMBER, SimpleNamespace())  # type: ignore[arg-type]


def request(method: str, *args: Any, retries: int = 1) -> tuple[MethodCall, int]:
    return MethodCall(method, args), retries


def test_lost_calls_go_to_the_next_incarnation_in_their_order_and_new_ones_behind_them(
    world: World, calls: RetriedCalls
) -> None:
    first, second = calls.submit(*request("first")), calls.submit(*request("second"))
    world.met[0].end(1, LOST)
    world.met[0].end(0, LOST)
    third = calls.submit(*request("third"))
    later = world.meet(2)
    for number, value in enumerate("abc"):
        later.end(number, value)
    assert [ref.result(PATIENCE) for ref in (first, second, third)] == ["a", "b", "c"]
    assert [method for method, _ in later.calls] == ["first", "second", "third"]
    assert world.over == ["", "i1"]
    calls.submit(*request("fourth"))
    assert len(world.met) == 2


def test_a_call_is_made_again_as_often_as_it_may_and_not_once_it_was_cancelled(
    world: World, calls: RetriedCalls
) -> None:
    once, cancelled = (
        calls.submit(*request("once", retries=1)),
        calls.submit(*request("cancelled", retries=-1)),
    )
    calls.cancel(cancelled._entry, force=False)
    world.met[0].end(0, LOST)
    world.met[0].end(1, LOST)
    later = world.meet(2)
    later.end(0, LOST)
    with pytest.raises(ActorDiedError):
        once.result(PATIENCE)
    with pytest.raises(TaskCancelledError):
        cancelled.result(PATIENCE)
    assert world.met[0].cancelled == [1]
    assert [method for method, _ in later.calls] == ["once"]


def test_a_call_that_needs_the_result_of_one_that_is_being_made_again_does_not_hold_it_up(
    world: World, calls: RetriedCalls
) -> None:
    needed = calls.submit(*request("needed", retries=2))
    world.met[0].end(0, LOST)
    needing: list[Any] = []
    caller = threading.Thread(
        target=lambda: needing.append(calls.submit(*request("needing", needed))), daemon=True
    )
    caller.start()
    world.meet(2).end(0, LOST)
    third = world.meet(3)
    third.end(0, 5)
    third.end(1, 6)
    caller.join(PATIENCE)
    assert needing[0].result(PATIENCE) == 6
    assert third.calls == [("needed", ()), ("needing", (5,))]


def test_so_many_calls_wait_for_a_member_that_is_away_and_further_ones_wait_for_room(
    world: World, calls: RetriedCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retried_calls, "MAX_WAITING", 2)
    calls.submit(*request("lost"))
    world.met[0].end(0, LOST)
    calls.submit(*request("second"))
    hasty = MethodCall("hasty", (), options=CallOptions(timeout=0.01))
    with pytest.raises(TaskTimeoutError, match=r"counter\.hasty"):
        calls.submit(hasty, 1)
    begins, wait_for = threading.Event(), calls._room.wait_for
    # The lock is held from here until the thread waits.
    monkeypatch.setattr(calls._room, "wait_for", lambda *given: begins.set() or wait_for(*given))
    made: list[Any] = []
    caller = threading.Thread(target=lambda: made.append(calls.submit(*request("third"))), daemon=True)
    caller.start()
    assert begins.wait(PATIENCE)
    later = world.meet(2)
    for number, value in enumerate("abc"):
        later.end(number, value)
    caller.join(PATIENCE)
    assert made[0].result(PATIENCE) == "c"
    assert [method for method, _ in later.calls] == ["lost", "second", "third"]
