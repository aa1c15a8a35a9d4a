"""Tasks that wait in a worker: slots that go on to them, turns, blocked tasks, and giving them back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fray.errors import TaskCancelledError
from fray.runtime.pool.messages.commands import CancelTask, Deliver, ReclaimTasks
from fray.runtime.pool.messages.events import (
    ObjectsWanted,
    RefsAdded,
    RefsReleased,
    TaskBegun,
    TaskBlocked,
    TaskDone,
    TasksReturned,
    TaskUnblocked,
)
from fray.runtime.pool.objects.values import encode
from tests.pool.worker.attached import ATTACH, get, read_and_change
from tests.pool.worker.gates import Gate, arrive
from tests.pool.worker.scripted_head import Pool, make_pool


@pytest.fixture
def pool() -> Iterator[Pool]:
    with make_pool(attach=ATTACH) as made:
        yield made


def test_a_lane_goes_on_to_what_waits_by_turns_of_callers(pool: Pool) -> None:
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    first = pool.task(worker, arrive, gate.path)
    crowd = [pool.task(worker, abs, -1, waits=True, parent=77) for _ in range(3)]
    other = pool.task(worker, abs, -2, waits=True, parent=88)
    pool.tell(worker, first, *crowd, other)
    gate.open()
    order = [pool.head.take(TaskDone) for _ in range(5)]
    ids = [command.spec.id for command in (first, crowd[0], other, crowd[1], crowd[2])]
    assert [done.id for done in order] == ids
    assert [done.started for done in order] == [*ids[1:], 0]


def test_a_waiting_task_begins_at_once_where_nothing_runs(pool: Pool) -> None:
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    pool.tell(worker, command := pool.task(worker, arrive, gate.path, waits=True))
    # Told while it runs: nobody ends here who could say that it has taken its place.
    assert pool.head.take(TaskBegun).id == command.spec.id
    gate.open()
    assert pool.value_of(command) == gate.path.name


def test_a_task_without_cpus_is_no_lane_for_those_with(pool: Pool) -> None:
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    pool.tell(worker, beside := pool.task(worker, arrive, gate.path, shape=()))
    assert pool.run(worker, abs, -3, waits=True) == 3
    gate.open()
    assert pool.head.take(TaskDone, id=beside.spec.id).started == 0


def test_tasks_run_beside_each_other(pool: Pool) -> None:
    worker = pool.start_worker()
    gates = [Gate(pool.folder, name) for name in "ab"]
    commands = [pool.task(worker, arrive, gate.path) for gate in gates]
    pool.tell(worker, *commands)
    for gate, command in reversed([*zip(gates, commands, strict=True)]):
        gate.open()
        assert pool.value_of(command) == gate.path.name


def test_waiting_tasks_are_given_back_the_last_first(pool: Pool) -> None:
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    first = pool.task(worker, arrive, gate.path)
    waiting = [pool.task(worker, abs, -1, waits=True) for _ in range(4)]
    pool.tell(worker, first, *waiting, ReclaimTasks(worker, 3))
    returned = pool.head.take(TasksReturned).ids
    assert returned == tuple(command.spec.id for command in (waiting[3], waiting[2], waiting[1]))
    gate.open()
    assert pool.head.take(TaskDone, id=first.spec.id).started == waiting[0].spec.id
    assert pool.head.take(TaskDone, id=waiting[0].spec.id).started == 0
    pool.tell(worker, ReclaimTasks(worker, 3))
    assert pool.head.take(TasksReturned).ids == ()


def test_a_waiting_task_that_is_cancelled_is_dropped(pool: Pool) -> None:
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    first = pool.task(worker, arrive, gate.path)
    waiting = pool.task(worker, abs, -1, waits=True)
    pool.tell(worker, first, waiting, CancelTask(worker, waiting.spec.id))
    with pytest.raises(TaskCancelledError):
        pool.value_of(waiting)
    gate.open()
    assert pool.head.take(TaskDone, id=first.spec.id).started == 0


def test_a_blocked_task_lends_its_lane(pool: Pool) -> None:
    worker = pool.start_worker()
    wanted = pool.new_id()
    asking = pool.task(worker, get, wanted)
    waiting = pool.task(worker, abs, -1, waits=True)
    pool.tell(worker, asking, waiting)
    assert pool.head.take(TaskBlocked) == (asking.spec.id, waiting.spec.id)
    assert pool.head.take(ObjectsWanted).ids == (wanted,)
    assert pool.head.take(TaskDone) == pool_done(waiting.spec.id)
    # Nothing runs now, so one that waits begins at once.
    assert pool.run(worker, abs, -2, waits=True) == 2
    pool.tell(worker, Deliver(worker, wanted, encode("there").to_bytes()))
    assert pool.head.take(TaskUnblocked).id == asking.spec.id
    assert pool.value_of(asking) == "there"


class pool_done:  # noqa: N801 - reads as a value
    """Equal to the end of a task, whatever its value and time."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, identity: int) -> None:
        self.identity = identity

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskDone) and other.id == self.identity and other.started == 0


def test_references_are_told_before_the_end_of_the_task_and_dropped_after_it(pool: Pool) -> None:
    worker = pool.start_worker()
    wanted = pool.new_id()
    asking = pool.task(worker, get, wanted)
    pool.tell(worker, asking)
    pool.head.take(ObjectsWanted)
    pool.tell(worker, Deliver(worker, wanted, encode(1).to_bytes()))
    pool.head.take(RefsReleased, ids=(wanted,))
    kinds = [type(message) for message in pool.head.seen()]
    assert kinds.index(RefsAdded) < kinds.index(TaskDone)


def test_a_task_that_waits_for_objects_is_cancelled(pool: Pool) -> None:
    worker = pool.start_worker()
    asking = pool.task(worker, get, pool.new_id())
    pool.tell(worker, asking)
    pool.head.take(TaskBlocked)
    pool.tell(worker, CancelTask(worker, asking.spec.id))
    with pytest.raises(TaskCancelledError):
        pool.value_of(asking)
    assert pool.run(worker, abs, -1) == 1


def test_tasks_see_what_was_attached_and_not_each_others_changes(pool: Pool) -> None:
    worker = pool.start_worker()
    assert [pool.run(worker, read_and_change) for _ in range(2)] == [pool.token] * 2
