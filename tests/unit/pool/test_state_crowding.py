"""What the head keeps of values in messages is bounded: beyond that, clients are told to use stores."""

from __future__ import annotations

from fray.runtime.pool.messages.commands import LimitInline
from fray.runtime.pool.messages.events import (
    HostJoined,
    ObjectPut,
    RefsReleased,
    TaskDone,
    TaskSubmitted,
    WorkerJoined,
)
from fray.runtime.pool.messages.specs import DRIVER
from fray.runtime.pool.state import PoolState
from tests.unit.pool.state_script import Script, make_task

LIMIT = 100


def limits(commands: list[object]) -> list[LimitInline]:
    return [command for command in commands if isinstance(command, LimitInline)]


def crowded_script() -> Script:
    script = Script()
    script.state = PoolState(inline_limit=LIMIT)
    script.join_host(1, 1)
    return script


def test_all_clients_are_told_when_values_are_many_and_when_half_of_them_are_gone() -> None:
    script = crowded_script()
    for number in (1, 2):
        assert script.tell(DRIVER, ObjectPut(number, b"x" * 50)) == []
    told = script.tell(1, ObjectPut(1 << 40, b"x"))
    assert told == [LimitInline(DRIVER, True), LimitInline(1, True)]
    assert script.tell(DRIVER, ObjectPut(3, b"x" * 9)) == []
    assert limits(script.tell(DRIVER, RefsReleased((1,)))) == []
    assert script.tell(DRIVER, RefsReleased((3,))) == []
    told = script.tell(1, RefsReleased((1 << 40,)))
    assert told == [LimitInline(DRIVER, False), LimitInline(1, False)]


def test_arguments_count_until_their_task_has_ended_and_results_after_it() -> None:
    script = crowded_script()
    spec = make_task(1)._replace(args=b"x" * 101)
    assert len(limits(script.tell(DRIVER, TaskSubmitted(spec, b"blob")))) == 2
    assert limits(script.tell(1, TaskDone(1, b"x" * 60))) == []
    assert len(limits(script.tell(DRIVER, RefsReleased((1,))))) == 2


def test_a_worker_that_joins_is_told_before_it_gets_any_task() -> None:
    script = crowded_script()
    script.tell(DRIVER, ObjectPut(1, b"x" * 101))
    script.tell(DRIVER, HostJoined(2, "host-2", (("CPU", 1.0),), 1, 1000))
    assert script.tell(DRIVER, WorkerJoined(2))[0] == LimitInline(2, True)
