"""Hosts that are to go: what runs there ends, what lies there moves, and nothing is charged for it."""

from __future__ import annotations

from fray.runtime.pool.machine.leaving import MOST_MOVING
from fray.runtime.pool.machine.tasks import MOST_PREEMPTIONS
from fray.runtime.pool.messages.commands import (
    CheckObject,
    CopyObject,
    Deliver,
    ReclaimTasks,
    ReleaseHost,
    RunTask,
    StartWorker,
)
from fray.runtime.pool.messages.events import (
    ActorReady,
    ActorSubmitted,
    ClientJoined,
    ClientLost,
    HostLeaving,
    HostLost,
    HostStaying,
    ObjectChecked,
    ObjectCopied,
    ObjectPut,
    ObjectRelayed,
    ObjectsWanted,
    TaskBlocked,
    TaskDone,
    TasksReturned,
    WorkerJoined,
)
from fray.runtime.pool.messages.specs import DRIVER, Failed, Stored
from tests.unit.pool.state_script import FAST, ONE, Script, make_actor

LEAVES = HostLeaving(1, "a spot node is taken")


def test_a_host_without_anything_goes_at_once_and_gets_nothing_more() -> None:
    script = Script(1, 1)
    assert script.tell(DRIVER, LEAVES) == [ReleaseHost(1)]
    assert script.tell(DRIVER, LEAVES) == []
    [run] = script.submit(1)
    assert isinstance(run, RunTask)
    assert run.worker == 2
    assert script.submit(2) == []
    assert script.tell(DRIVER, HostLost(1, "gone")) == []
    assert script.tell(DRIVER, HostLeaving(1, "again")) == []


def test_what_runs_may_end_and_what_waits_there_is_taken_back() -> None:
    script = Script(1)
    script.submit(1)
    script.tell(1, TaskDone(1, ONE, 0, 0.0, FAST))
    script.submit(2)
    [ahead] = script.submit(3)
    assert isinstance(ahead, RunTask)
    assert ahead.waits
    assert script.tell(DRIVER, LEAVES) == [ReclaimTasks(1, 1)]
    assert script.tell(1, TasksReturned((3,))) == []
    assert script.tell(1, TaskDone(2, ONE)) == [ReleaseHost(1)]
    script.tell(DRIVER, HostLost(1, "gone"))
    assert script.state.stats().counters["preempted"] == 0
    script.join_host_with_work(2)


WANTED_NO_MORE = HostLeaving(1, "there are more workers than asked for", recallable=True)


def test_a_host_that_the_head_wants_again_takes_tasks_as_before() -> None:
    script = Script(1, 1)
    for number in (1, 2):
        script.submit(number)
    script.tell(DRIVER, WANTED_NO_MORE)
    assert script.state.list_recallable_hosts() == (1,)
    assert script.submit(3) == []
    assert script.state.count_worker_hosts() == 1
    script.tell(DRIVER, HostStaying(1))
    assert (script.state.count_worker_hosts(), script.state.list_recallable_hosts()) == (2, ())
    [run] = script.tell(1, TaskDone(1, ONE))[-1:]
    assert isinstance(run, RunTask)
    assert (run.worker, run.spec.id) == (1, 3)


def test_the_child_of_a_task_that_is_left_alone_runs_on_its_own_host_once_that_is_wanted_again() -> None:
    script = Script(1)
    script.submit(1)
    script.tell(DRIVER, WANTED_NO_MORE)
    script.tell(1, TaskBlocked(1))
    assert not [each for each in script.submit(2, 1) if isinstance(each, RunTask)]
    [run] = script.tell(DRIVER, HostStaying(1))
    assert isinstance(run, RunTask)
    assert (run.worker, run.spec.id) == (1, 2)


def test_who_is_taken_away_or_has_been_let_go_is_not_kept() -> None:
    script = Script(1, 1)
    script.submit(1)
    for event in (WANTED_NO_MORE, LEAVES):
        script.tell(DRIVER, event)
    assert script.state.list_recallable_hosts() == ()
    script.tell(DRIVER, HostStaying(1))
    assert script.tell(1, TaskDone(1, ONE))[-1:] == [ReleaseHost(1)]
    assert script.tell(DRIVER, HostLeaving(2, "", recallable=True)) == [ReleaseHost(2)]
    assert script.tell(DRIVER, HostStaying(2)) == []
    assert script.state.count_worker_hosts() == 0


def test_only_copies_move_away_a_few_at_once() -> None:
    script = Script(1, 1)
    count = MOST_MOVING + 1
    for number in range(1, count + 1):
        script.tell(DRIVER, ObjectPut(number, Stored(1, 40)))
    script.tell(2, ObjectCopied(1, 2, 40))
    moving = [2, 3, 4, 5]
    assert script.tell(DRIVER, LEAVES) == [CheckObject(2, 1), *(CopyObject(1, each) for each in moving)]
    # It is kept from now on, and asked for as any that has become the only one.
    assert script.tell(DRIVER, ObjectChecked(1, 2, there=True)) == [CheckObject(2, 1)]
    for number in moving[:-1]:
        assert script.tell(DRIVER, ObjectRelayed(number, 2, 40)) == [CheckObject(2, number)]
        script.tell(DRIVER, ObjectChecked(number, 2, there=True))
    assert script.tell(DRIVER, ObjectRelayed(5, 2, 0)) == [ReleaseHost(1)], "it can't be helped"
    script.tell(DRIVER, HostLost(1, "gone"))
    assert script.tell(DRIVER, ObjectsWanted((1, 4))) == [
        Deliver(DRIVER, 1, Stored(2, 40)),
        Deliver(DRIVER, 4, Stored(2, 40)),
    ]
    [lost] = script.tell(DRIVER, ObjectsWanted((5,)))
    assert isinstance(lost, Deliver)
    assert isinstance(lost.outcome, Failed)


def test_a_copy_that_has_gone_takes_no_place() -> None:
    script = Script(1, 1, 1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 40)))
    script.tell(2, ObjectCopied(1, 2, 40))
    script.tell(3, ObjectCopied(1, 3, 40))
    assert script.tell(DRIVER, LEAVES) == [CheckObject(2, 1)]
    assert script.tell(DRIVER, ObjectChecked(1, 2, there=False)) == [CheckObject(3, 1)]
    # Its host says by itself that it has gone, before it is asked.
    assert script.tell(3, ObjectCopied(1, 3, 0)) == []
    assert script.tell(DRIVER, ObjectChecked(1, 3, there=False)) == [CopyObject(1, 1)]
    script.tell(DRIVER, ObjectRelayed(1, 2, 40))
    assert ReleaseHost(1) in script.tell(DRIVER, ObjectChecked(1, 2, there=True))
    script.tell(DRIVER, HostLost(1, "gone"))
    assert script.tell(DRIVER, ObjectsWanted((1,))) == [Deliver(DRIVER, 1, Stored(2, 40))]


def test_a_host_that_is_lost_before_it_answers_is_asked_no_more() -> None:
    script = Script(1, 1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 40)))
    script.tell(2, ObjectCopied(1, 2, 40))
    assert script.tell(DRIVER, LEAVES) == [CheckObject(2, 1)]
    assert CopyObject(1, 1) in script.tell(DRIVER, HostLost(2, "gone"))


def test_what_a_client_was_to_copy_is_copied_by_another_when_it_goes() -> None:
    script = Script(1, 1)
    client = 1 << 22
    script.tell(DRIVER, ClientJoined(client))
    script.tell(DRIVER, ObjectPut(1, Stored(1, 40)))
    assert script.tell(DRIVER, LEAVES) == [CopyObject(1, 1)]
    assert script.tell(DRIVER, ClientLost(client)) == [CopyObject(1, 1)]


def test_a_task_that_was_preempted_runs_again_uncharged_so_often_and_no_more() -> None:
    script = Script(1)
    script.submit(1, retries=1)
    for host in range(1, MOST_PREEMPTIONS + 1):
        script.tell(DRIVER, HostLeaving(host, "a spot node is taken"))
        script.tell(DRIVER, HostLost(host, "gone"))
        assert script.join_host_with_work(host + 1).attempt == host + 1
    last = MOST_PREEMPTIONS + 1
    script.tell(DRIVER, ObjectsWanted((1,)))
    script.tell(DRIVER, HostLeaving(last, "a spot node is taken"))
    [told] = [each for each in script.tell(DRIVER, HostLost(last, "gone")) if isinstance(each, Deliver)]
    assert isinstance(told.outcome, Failed)
    assert told.outcome.kind == "WorkerDiedError"


def test_a_task_that_may_run_once_fails_with_its_host() -> None:
    script = Script(1)
    script.submit(1, retries=0)
    script.tell(DRIVER, ObjectsWanted((1,)))
    script.tell(DRIVER, LEAVES)
    [told] = [each for each in script.tell(DRIVER, HostLost(1, "gone")) if isinstance(each, Deliver)]
    assert isinstance(told.outcome, Failed)
    assert told.outcome.kind == "WorkerDiedError"


def test_an_actor_that_may_come_back_does_so_uncharged() -> None:
    script = Script(1)
    actor = make_actor(9, max_restarts=1)
    [start] = [
        each for each in script.tell(DRIVER, ActorSubmitted(actor, b"blob")) if isinstance(each, StartWorker)
    ]
    script.tell(DRIVER, WorkerJoined(start.worker))
    script.tell(start.worker, ActorReady(9, 1))
    for host in range(1, 4):
        assert ReleaseHost(host) in script.tell(DRIVER, HostLeaving(host, "a spot node is taken"))
        script.tell(DRIVER, HostLost(host, "gone"))
        worker = script.join_host_with_actor(host + 1)
        script.tell(worker, ActorReady(9, host + 1))
