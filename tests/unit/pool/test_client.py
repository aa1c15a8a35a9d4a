"""The client without processes: what it posts, in which order, and whom it wakes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest

from fray.errors import GetTimeoutError, PoolClosedError
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.client.waiting import Entry
from fray.runtime.pool.messages.commands import AnswerActor, Deliver
from fray.runtime.pool.messages.events import (
    Event,
    FetchFailed,
    ObjectPut,
    ObjectsWanted,
    RefsAdded,
    RefsReleased,
    TaskSubmitted,
)
from fray.runtime.pool.messages.specs import ActorSpec, Failed, Stored, TaskSpec

VALUE = b"value"


class World:
    """A client of the driver, and the head as a list of what it was told."""

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.on_post: Callable[[Event], None] = lambda _: None
        self.client = PoolClient(0, self.post, blocking=self.blocking)
        self.blocked = threading.Semaphore(0)

    def post(self, event: Event) -> None:
        self.posted.append(event)
        self.on_post(event)

    @contextmanager
    def blocking(self, _: Callable[[], None]) -> Any:
        self.blocked.release()
        yield

    def submit(self) -> Entry:
        return self.client.submit(TaskSpec(self.client.new_id(), b"f", b"", "task"), b"")

    def deliver(self, *entries: Entry, outcome: Any = VALUE) -> None:
        self.client.deliver([Deliver(0, entry.id, outcome) for entry in entries])

    def told(self, kind: type) -> list[Any]:
        return [event for event in self.posted if type(event) is kind]


@pytest.fixture
def world() -> World:
    return World()


def run_in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start a thread; the list gets what the function returns or raises."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(function())
        except Exception as error:  # noqa: BLE001 - handed to the test
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, result


# --- waiting -----------------------------------------------------------------------------------------------


def test_a_wait_ends_with_the_last_of_as_many_as_it_needs(world: World) -> None:
    entries = [world.submit() for _ in range(4)]
    thread, result = run_in_thread(lambda: world.client.wait(entries, 3))
    world.blocked.acquire()
    world.deliver(entries[3])
    world.deliver(entries[3])  # told twice: it counts once
    world.deliver(entries[0])
    assert not result
    world.deliver(entries[2])
    thread.join()
    assert result == [True]
    assert [entry.ready for entry in entries] == [True, False, True, True]


def test_the_same_object_twice_counts_once(world: World) -> None:
    entry, other = world.submit(), world.submit()
    thread, result = run_in_thread(lambda: world.client.wait([entry, entry, other], 2))
    world.blocked.acquire()
    world.deliver(entry)
    assert not result
    world.deliver(other)
    thread.join()
    assert result == [True]
    assert world.client.wait([entry, entry], 2)  # as many as there are


def test_what_is_told_first_stays(world: World) -> None:
    entry = world.submit()
    world.deliver(entry)
    world.deliver(entry, outcome=b"another")
    assert entry.outcome is VALUE


def test_each_object_is_asked_for_once_until_it_was_told(world: World) -> None:
    entries = [world.submit() for _ in range(3)]
    for _ in range(3):
        assert not world.client.wait(entries, 3, timeout=0)
    assert world.told(ObjectsWanted) == [ObjectsWanted(tuple(entry.id for entry in entries))]
    world.deliver(*entries)
    assert world.client.wait(entries, 3, timeout=0)
    assert len(world.told(ObjectsWanted)) == 1


def test_a_timeout_leaves_nothing_behind(world: World) -> None:
    entry = world.submit()
    assert not world.client.wait([entry], 1, timeout=0.001)
    assert not world.client._waiters
    with pytest.raises(GetTimeoutError, match="the value"):
        world.client.await_outcome(entry, 0.001, "the value")
    world.deliver(entry)
    assert world.client.await_outcome(entry, 0, "the value") is VALUE


def test_an_interrupted_wait_leaves_nothing_behind(world: World) -> None:
    @contextmanager
    def interrupted(_: Callable[[], None]) -> Any:
        raise KeyboardInterrupt
        yield

    world.client = PoolClient(0, world.post, blocking=interrupted)
    entry = world.submit()
    with pytest.raises(KeyboardInterrupt):
        world.client.wait([entry], 1)
    assert not world.client._waiters
    world.deliver(entry)
    assert world.client.wait([entry], 1)


def test_many_refs_take_one_pass_and_one_message(world: World) -> None:
    looked_at = 0

    class Counted(Entry):
        __slots__ = ()

        @property
        def ready(self) -> bool:  # type: ignore[override]
            nonlocal looked_at
            looked_at += 1
            return False

        @ready.setter
        def ready(self, value: bool) -> None:
            pass

    entries = [Counted(number) for number in range(1, 100_001)]
    assert not world.client.wait(entries, 1, timeout=0)
    assert looked_at == 100_000
    (wanted,) = world.posted
    assert isinstance(wanted, ObjectsWanted)
    assert len(wanted.ids) == 100_000


def test_threads_that_wait_for_the_same_are_all_woken(world: World) -> None:
    entry = world.submit()
    threads = [run_in_thread(lambda: world.client.await_outcome(entry, None, "it")) for _ in range(5)]
    for _ in threads:
        world.blocked.acquire()
    world.deliver(entry)
    for thread, result in threads:
        thread.join()
        assert result == [VALUE]
    assert len(world.told(ObjectsWanted)) == 1


# --- references --------------------------------------------------------------------------------------------


def test_a_reference_is_released_with_its_last_handle(world: World) -> None:
    entry = world.client.refer(77)
    assert world.client.refer(77) is entry
    world.client.drop(entry)
    world.client.flush()
    assert world.posted == [RefsAdded((77,))]
    world.client.drop(entry)
    world.client.flush()
    world.client.flush()
    assert world.posted == [RefsAdded((77,)), RefsReleased((77,))]
    assert world.client.refer(77) is not entry
    assert world.posted[2:] == [RefsAdded((77,))]


def test_a_handle_that_comes_back_before_the_release_is_told_keeps_the_reference(world: World) -> None:
    entry = world.client.refer(77)
    world.client.drop(entry)
    assert world.client.refer(77) is entry
    world.client.flush()
    assert world.posted == [RefsAdded((77,))]


def test_what_is_added_and_released_by_many_threads_never_changes_places(world: World) -> None:
    stop = time.monotonic() + 0.5
    barrier = threading.Barrier(5)

    def come_and_go() -> None:
        barrier.wait()
        while time.monotonic() < stop:
            entries = [world.client.refer(number) for number in (1, 2, 3)]
            for entry in entries:
                world.client.drop(entry)
            world.client.flush()

    def deliver() -> None:
        barrier.wait()
        while time.monotonic() < stop:
            world.client.deliver([Deliver(0, 2, VALUE), Deliver(0, 3, VALUE)])

    threads = [run_in_thread(come_and_go) for _ in range(4)] + [run_in_thread(deliver)]
    for thread, result in threads:
        thread.join()
        assert result == [None]
    world.client.flush()
    held = dict.fromkeys((1, 2, 3), 0)
    for event in world.posted:
        change = 1 if isinstance(event, RefsAdded) else -1
        for number in event.ids:  # type: ignore[union-attr]
            held[number] += change
            assert held[number] in (0, 1)
    assert set(held.values()) == {0}
    assert not world.client._entries


def test_a_finalizer_may_drop_and_submit_while_the_client_is_at_work(world: World) -> None:
    entry = world.client.refer(5)
    submitted: list[Entry] = []

    def finalize(event: Event) -> None:
        # Runs within `refer`, with the client's lock held by this very thread.
        if type(event) is RefsAdded and not submitted:
            world.client.drop(entry)
            submitted.append(world.submit())

    world.on_post = finalize
    world.client.refer(6)
    assert [type(event) for event in world.posted] == [RefsAdded, RefsAdded, TaskSubmitted]
    world.client.flush()
    assert world.posted[3:] == [RefsReleased((5,))]


def test_what_was_dropped_is_told_with_the_next_call(world: World) -> None:
    first = world.submit()
    world.client.drop(first)
    second = world.client.put(world.client.new_id(), VALUE)
    assert [type(event) for event in world.posted] == [TaskSubmitted, RefsReleased, ObjectPut]
    world.client.drop(second)
    third = world.submit()
    assert [type(event) for event in world.posted[3:]] == [RefsReleased, TaskSubmitted]
    world.client.drop(third)
    world.client.wait([Entry(77)], 1, timeout=0)
    assert world.told(RefsReleased) == [RefsReleased((each.id,)) for each in (first, second, third)]


def test_who_asks_as_it_submits_does_not_ask_again() -> None:
    posted: list[Event] = []
    client = PoolClient(0, posted.append, eager=True)
    entry = client.submit(TaskSpec(client.new_id(), b"f", b"", "task"), b"")
    assert not client.wait([entry], 1, timeout=0)
    assert [(type(event), event.wanted) for event in posted] == [(TaskSubmitted, True)]  # type: ignore[union-attr]


def test_what_was_dropped_may_wait_for_the_next_event() -> None:
    events: list[tuple[str, Event]] = []
    client = PoolClient(
        0, lambda event: events.append(("post", event)), defer=lambda event: events.append(("defer", event))
    )
    entry = client.submit(TaskSpec(1, b"f", b"", "task"), b"")
    client.drop(entry)
    client.flush()
    assert events[1:] == [("defer", RefsReleased((1,)))]


def test_a_delivery_for_what_was_dropped_is_for_nobody(world: World) -> None:
    entry = world.submit()
    world.client.drop(entry)
    world.client.flush()
    world.deliver(entry)
    assert entry.outcome is None


# --- objects that can't be read ----------------------------------------------------------------------------


def test_what_could_not_be_read_is_waited_for_anew(world: World) -> None:
    entry = world.submit()
    stored, again = Stored(1, 100), Stored(2, 100)
    world.deliver(entry, outcome=stored)
    world.client.reject(entry, stored, "gone")
    world.client.reject(entry, stored, "gone")  # a second reader of the same: the head is asked once
    assert world.told(FetchFailed) == [FetchFailed(entry.id, 1, "gone")]
    assert not entry.ready
    thread, result = run_in_thread(lambda: world.client.await_outcome(entry, None, "it"))
    world.blocked.acquire()
    world.deliver(entry, outcome=again)
    thread.join()
    assert result == [again]
    assert world.told(ObjectsWanted) == []
    world.client.reject(entry, stored, "late")
    assert entry.outcome is again


# --- named actors ------------------------------------------------------------------------------------------


def named(world: World) -> ActorSpec:
    return ActorSpec(world.client.new_id(), b"c", b"", "name", "Class", get_if_exists=True)


def test_a_named_actor_is_the_one_of_the_answer(world: World) -> None:
    spec = named(world)
    thread, result = run_in_thread(lambda: world.client.create_actor(spec, b""))
    world.blocked.acquire()
    world.client.deliver([AnswerActor(0, spec.id, 7_777, methods=b"those of the found one")])
    thread.join()
    entry, methods = result[0]
    assert (entry.id, methods) == (7_777, b"those of the found one")
    world.client.drop(entry)
    world.client.flush()
    assert world.posted[-2:] == [RefsAdded((7_777,)), RefsReleased((7_777,))]


def test_why_a_named_actor_is_not_there_is_returned(world: World) -> None:
    spec = named(world)
    why = Failed(b"", "ActorExistsError", "name")
    thread, result = run_in_thread(lambda: world.client.create_actor(spec, b""))
    world.blocked.acquire()
    world.client.deliver([AnswerActor(0, spec.id, 0, why)])
    thread.join()
    assert result == [why]


def test_a_release_by_another_thread_does_not_take_the_actor_of_an_answer_away(world: World) -> None:
    # The last other handle of the same actor dies between the answer and the thread that waits for it.
    other = world.client.refer(7_777)
    spec = named(world)
    thread, result = run_in_thread(lambda: world.client.create_actor(spec, b""))
    world.blocked.acquire()
    world.client.drop(other)
    world.client.deliver([AnswerActor(0, spec.id, 7_777)])
    world.client.flush()
    thread.join()
    assert result == [(other, b"")]
    assert world.told(RefsReleased) == []


def test_an_answer_that_nobody_waits_for_is_given_back(world: World) -> None:
    world.client.deliver([AnswerActor(0, 5, 7_777), AnswerActor(0, 6, 6, Failed(b"", "ActorExistsError"))])
    assert world.posted == [RefsReleased((7_777,))]


# --- the end -----------------------------------------------------------------------------------------------


def test_close_wakes_everybody(world: World) -> None:
    known, entry, late = world.submit(), world.submit(), world.submit()
    world.deliver(known)
    spec = named(world)
    waiting = run_in_thread(lambda: world.client.wait([entry, late], 2))
    getting = run_in_thread(lambda: world.client.await_outcome(entry, None, "it"))
    creating = run_in_thread(lambda: world.client.create_actor(spec, b""))
    for _ in range(3):
        world.blocked.acquire()
    world.client.close("the test's pool")
    world.client.close("again")
    for thread, _ in (waiting, getting, creating):
        thread.join()
    assert waiting[1] == [True]
    assert getting[1] == [world.client.end]
    assert isinstance(creating[1][0], PoolClosedError)
    assert "the test's pool is shut down" in str(creating[1][0])
    assert known.outcome is VALUE
    with pytest.raises(PoolClosedError, match="the test's pool"):
        world.submit()
    with pytest.raises(PoolClosedError):
        world.client.put(world.client.new_id(), VALUE)
    with pytest.raises(PoolClosedError):
        world.client.create_actor(spec, b"")


def test_what_comes_to_be_known_after_the_end_has_ended(world: World) -> None:
    entry = world.submit()
    stored = Stored(1, 100)
    world.deliver(entry, outcome=stored)
    world.client.close()
    world.client.reject(entry, stored, "its directory is gone")
    for each in (entry, world.client.refer(77)):
        assert world.client.await_outcome(each, None, "it") is world.client.end


def test_a_task_whose_submission_the_end_overtakes_has_ended(world: World) -> None:
    class Late(TaskSpec):
        @property
        def streaming(self) -> bool:  # type: ignore[override]
            if world.client.end is None:
                world.client.close()  # as another thread does, after `submit` has found the pool open
            return False

    entry = world.client.submit(Late(1, b"f", b"", "task"), b"")
    assert entry.outcome is world.client.end


def test_a_fork_does_not_wait_for_a_lock_that_its_parent_holds(world: World) -> None:
    entry = world.submit()
    with world.client._lock:
        world.client.close_in_fork()
    assert entry.outcome is world.client.end
    with pytest.raises(PoolClosedError, match="parent"):
        world.submit()
