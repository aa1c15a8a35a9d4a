"""Readers that can't read an object where it is, and the copies on other hosts."""

from __future__ import annotations

from fray.runtime.pool.machine.copies import FORGET_SECONDS, PAUSE_SECONDS, ROUNDS, ROUNDS_SECONDS
from fray.runtime.pool.messages.commands import (
    CheckObject,
    CopyObject,
    Deliver,
    FreeObject,
    SetTimer,
    SpillObject,
)
from fray.runtime.pool.messages.events import (
    FetchFailed,
    HostLost,
    ObjectChecked,
    ObjectCopied,
    ObjectPut,
    ObjectRelayed,
    ObjectSpilled,
    ObjectsWanted,
    RefsReleased,
    TaskDone,
    TimerFired,
)
from fray.runtime.pool.messages.specs import DRIVER, Failed, Stored
from fray.runtime.pool.state import UNREADABLE_SECONDS
from tests.unit.pool.state_script import Script


def test_a_readers_trouble_makes_no_task_run_again() -> None:
    script = Script(1, 1)
    script.submit(1)
    script.tell(1, TaskDone(1, Stored(1, 40)))
    assert script.tell(2, FetchFailed(1, 1, "no route")) == [CheckObject(1, 1)]
    assert script.tell(DRIVER, FetchFailed(1, 1, "no route")) == []
    assert script.tell(DRIVER, ObjectChecked(1, 1, there=True)) == [CopyObject(1, 1)]
    assert script.tell(DRIVER, ObjectRelayed(1, 2, 40)) == [
        Deliver(2, 1, Stored(2, 40)),
        Deliver(DRIVER, 1, Stored(2, 40)),
    ]
    assert script.state.stats().counters["rebuilt"] == 0
    assert script.tell(DRIVER, RefsReleased((1,))) == [FreeObject(1, 1), FreeObject(2, 1)]


def fail_round(script: Script, seconds: float = 0.0) -> None:
    """Let a reader fail at an object that is there, and be sent there again; the attempt takes `seconds`."""
    assert script.tell(2, FetchFailed(1, 1, "no route")) == [CheckObject(1, 1)]
    assert script.tell(DRIVER, ObjectChecked(1, 1, there=True)) == [CopyObject(1, 1)]
    assert script.tell(DRIVER, ObjectRelayed(1, 2, 0)) == [SetTimer(PAUSE_SECONDS, ("refetch", 1))]
    script.now += PAUSE_SECONDS
    assert script.tell(DRIVER, TimerFired(("refetch", 1))) == [Deliver(2, 1, Stored(1, 40))]
    script.now += seconds


def test_a_reader_of_a_slow_host_is_sent_there_several_times() -> None:
    script = Script(1, 1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 40)))
    for _ in range(ROUNDS - 1):
        fail_round(script, ROUNDS_SECONDS)
    script.tell(2, FetchFailed(1, 1, "no route"))
    script.tell(DRIVER, ObjectChecked(1, 1, there=True))
    [told] = script.tell(DRIVER, ObjectRelayed(1, 2, 0))
    assert isinstance(told, Deliver)


def test_what_readers_failed_at_long_ago_does_not_count() -> None:
    script = Script(1, 1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 40)))
    for _ in range(2 * ROUNDS):
        fail_round(script, FORGET_SECONDS)


def test_who_can_not_read_an_object_is_told_once() -> None:
    script = Script(1, 1)
    script.submit(1)
    script.tell(1, TaskDone(1, Stored(1, 40)))
    fail_round(script)
    script.tell(DRIVER, FetchFailed(1, 1, "nobody answers"))
    assert script.state.find_unreadable(script.now) == ()
    script.now += UNREADABLE_SECONDS
    line = "the driver waits for task 1: object 1 on host host-1, and can't read it: nobody answers"
    assert script.state.find_unreadable(script.now) == script.state.stats().waits == (line,)
    assert script.state.find_unreadable(script.now) == ()
    script.tell(DRIVER, ObjectChecked(1, 1, there=True))
    script.tell(DRIVER, ObjectRelayed(1, 2, 40))
    assert script.state.stats().waits == ()


def test_a_reader_that_finds_no_way_fails_alone() -> None:
    script = Script(1, 1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 40)))
    for _ in range(int(ROUNDS_SECONDS / PAUSE_SECONDS)):
        fail_round(script)
    script.tell(2, FetchFailed(1, 1, "no route"))
    script.tell(DRIVER, ObjectChecked(1, 1, there=True))
    details = (("host", "host-1"), ("reason", "no route"))
    alone = Failed(b"", "ObjectUnreachableError", "1", (), details)
    assert script.tell(DRIVER, ObjectRelayed(1, 2, 0)) == [Deliver(2, 1, alone)]
    assert script.tell(DRIVER, ObjectsWanted((1,))) == [Deliver(DRIVER, 1, Stored(1, 40))]


def test_readers_take_turns_at_copies_and_one_that_has_gone_is_passed_over() -> None:
    script = Script(1, 1, 1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 40)))
    assert script.tell(2, ObjectCopied(1, 2, 40)) == []
    assert script.tell(3, ObjectCopied(1, 3, 40)) == []
    assert script.tell(3, ObjectCopied(1, 1, 40)) == []  # not its own host
    assert [script.tell(DRIVER, ObjectsWanted((1,))) for _ in range(3)] == [
        [Deliver(DRIVER, 1, Stored(2, 40))],
        [Deliver(DRIVER, 1, Stored(3, 40))],
        [Deliver(DRIVER, 1, Stored(2, 40))],
    ]
    assert {host.copies for host in script.state.stats().hosts.values()} == {0, 40}
    assert script.tell(DRIVER, FetchFailed(1, 2, "gone")) == [Deliver(DRIVER, 1, Stored(3, 40))]
    assert script.tell(DRIVER, FetchFailed(1, 3, "gone")) == [Deliver(DRIVER, 1, Stored(1, 40))]


def test_a_copy_takes_the_place_of_what_was_lost_with_its_host() -> None:
    script = Script(1, 1, 1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 40)))
    script.tell(2, ObjectCopied(1, 2, 40))
    script.tell(3, ObjectCopied(1, 3, 40))
    assert CheckObject(2, 1) in script.tell(DRIVER, HostLost(1, "unplugged"))
    assert script.tell(DRIVER, ObjectChecked(1, 2, there=False)) == [CheckObject(3, 1)]
    assert script.tell(DRIVER, ObjectChecked(1, 3, there=True)) == []
    assert script.tell(DRIVER, ObjectsWanted((1,))) == [Deliver(DRIVER, 1, Stored(3, 40))]


def test_what_cannot_be_spilled_is_not_called_spilled() -> None:
    script = Script(1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 800)))
    assert script.tell(DRIVER, ObjectPut(2, Stored(1, 800))) == [SpillObject(1, 1)]
    assert script.tell(DRIVER, ObjectSpilled(1, 1, done=False)) == []
    host = script.state.stats().hosts[1]
    assert (host.memory, host.spilled) == (1600, 0)
    script.tell(DRIVER, RefsReleased((1, 2)))
    host = script.state.stats().hosts[1]
    assert (host.memory, host.spilled) == (0, 0)


def test_readers_hear_of_an_object_whose_owner_is_lost_before_it_answers() -> None:
    script = Script(1, 1)
    script.tell(DRIVER, ObjectPut(1, Stored(2, 40)))
    assert script.tell(DRIVER, FetchFailed(1, 2, "no route")) == [CheckObject(2, 1)]
    told = script.tell(DRIVER, HostLost(2, "silent"))
    lost = Failed(b"", "ObjectLostError", "1", (), (("reason", "host host-2 was lost (silent)"),))
    assert Deliver(DRIVER, 1, lost) in told


def test_readers_go_to_the_copy_when_the_owner_is_lost_before_it_answers() -> None:
    script = Script(1, 1, 1)
    script.tell(DRIVER, ObjectPut(1, Stored(2, 40)))
    assert script.tell(DRIVER, FetchFailed(1, 2, "no route")) == [CheckObject(2, 1)]
    assert script.tell(3, ObjectCopied(1, 3, 40)) == []
    assert Deliver(DRIVER, 1, Stored(3, 40)) in script.tell(DRIVER, HostLost(2, "silent"))
