"""The life of tasks: submitted, woken, done, blocked, returned, cancelled, timed out, lost.

Calls of methods share what this module says about arguments and ends; their order and their actor are in
`calls` and `actors`.
"""

from __future__ import annotations

from collections import deque

from fray.runtime.pool.machine.functions import drop_function, measure, note_run, use_function
from fray.runtime.pool.machine.lineage import keep_lineage, request
from fray.runtime.pool.machine.message_checks import check_message
from fray.runtime.pool.machine.objects import (
    build_lost,
    collect,
    discard,
    free_later,
    hold,
    release_holds,
    settle,
)
from fray.runtime.pool.machine.queues import demand_of, enqueue, withdraw
from fray.runtime.pool.machine.records import (
    ActorRecord,
    ObjectRecord,
    StreamProgress,
    TaskRecord,
    WorkerRecord,
)
from fray.runtime.pool.machine.resources import build_unschedulable, is_possible
from fray.runtime.pool.machine.slots import (
    actor_at,
    begin,
    leave_slot,
    lend,
    refresh,
    retake,
    retire,
    settle_actor,
    take_back,
)
from fray.runtime.pool.machine.tables import STORY_LINES, Tables
from fray.runtime.pool.machine.transitions import (
    BLOCKED,
    DEAD,
    DONE,
    FAILED,
    KEPT,
    LOST,
    READY,
    RETRIED,
    RUNNING,
    SENT,
    UNBLOCKED,
    WAITING,
)
from fray.runtime.pool.messages.commands import DropTimer
from fray.runtime.pool.messages.events import (
    TaskBegun,
    TaskBlocked,
    TaskDone,
    TasksReturned,
    TaskSubmitted,
    TaskUnblocked,
)
from fray.runtime.pool.messages.specs import DRIVER, ClientId, Failed, Outcome, Stored

__all__ = [
    "MOST_PREEMPTIONS",
    "accept",
    "block",
    "build_died",
    "build_timed_out",
    "complete",
    "finish",
    "lose_task",
    "return_tasks",
    "submit",
    "unblock",
    "wake",
]


MOST_PREEMPTIONS = 100
"""How often a task or an actor may be lost with hosts that are taken away: that charges no retry."""


# --- beginning ---------------------------------------------------------------------------------------------


def accept(tables: Tables, client: ClientId, event: TaskSubmitted) -> TaskRecord:
    """Make the records of a new task: its result, which the client holds, and what it needs."""
    spec = event.spec
    demand = None if spec.actor else demand_of(tables, spec.profile, spec.shape)
    task = TaskRecord(spec, client, demand, tables.now)
    record = tables.objects[spec.id] = ObjectRecord(spec.id, client)
    record.maker = task
    if event.wanted:
        record.wanted = client
    if client:
        tables.clients[client].add(spec.id)
    if spec.streaming:
        task.stream = StreamProgress()
    if spec.holds:
        hold(tables, spec.holds)
    tables.counters["submitted"] += 1
    tables.inline_bytes += len(spec.args)
    return task


def submit(tables: Tables, client: ClientId, event: TaskSubmitted) -> None:
    """Take a new task, and queue it unless an argument is missing."""
    spec = event.spec
    if spec.id in tables.objects:
        tables.ignore("TaskSubmitted: its identity is taken")
        return
    task = accept(tables, client, event)
    if not use_function(tables, spec.function, event.blob):
        lost = build_lost(spec.id, "its function was never sent to the head")
        finish(tables, task, lost)
    elif not is_possible(tables, task.demand.needs):  # type: ignore[union-attr]
        finish(tables, task, build_unschedulable(tables, spec.name, spec.shape))
    elif spec.deps:
        wake(tables, task)
    else:
        tables.move(task, READY)
        enqueue(tables, task)


def wake(tables: Tables, task: TaskRecord) -> bool:
    """Look at a waiting task's arguments anew; queue it, or end it if one failed. Return whether it's READY.

    Calls of methods aren't queued here.
    """
    if task.state is not WAITING:
        return False
    missing = 0
    for object_id in dict.fromkeys(task.spec.deps):
        needed = tables.objects[object_id]
        if needed.outcome is None:
            request(tables, needed)
        outcome = needed.outcome
        if outcome is None:
            missing += 1
            if needed.dependents is None:
                needed.dependents = [task]
            else:
                needed.dependents.append(task)
        elif type(outcome) is Failed:
            finish(tables, task, outcome)
            return False
    task.missing = missing
    if missing:
        return False
    tables.move(task, READY)
    if task.demand is not None:
        enqueue(tables, task, first=task.attempt > 1)
    return True


# --- ending ------------------------------------------------------------------------------------------------


def finish(tables: Tables, task: TaskRecord, outcome: Stored | Failed | object) -> None:
    """End a task that has no worker (any more), and give its result to those who wait."""
    spec = task.spec
    record = tables.objects[spec.id]
    kind = type(outcome)
    if task.demand is None:
        if task.state in (WAITING, READY) and spec.actor in tables.actors:
            tables.woken.append(tables.actors[spec.actor])  # those behind it may go
    elif task.state is READY:
        withdraw(tables, task)
    keeps = (
        kind is Stored
        and task.demand is not None
        and task.stream is None
        and spec.retries > 0
        and outcome.host in tables.hosts  # type: ignore[union-attr]
    )
    if keeps:
        tables.move(task, KEPT)
        keep_lineage(tables, task)
    else:
        tables.move(task, FAILED if kind is Failed else DONE)
        record.maker = None
        if task.demand is not None:
            drop_function(tables, spec.function)
        else:
            _leave_actor(tables, task)
        if spec.holds:
            release_holds(tables, spec.holds)
    if spec.timeout > 0:
        tables.commands.append(DropTimer(("timeout", spec.id)))
    tables.count_ended(task, 1)
    if kind is not Failed:
        tables.counters["done"] += 1
    else:
        tables.counters["cancelled" if outcome.kind == "TaskCancelledError" else "failed"] += 1  # type: ignore[union-attr]
    settle(tables, record, outcome)  # type: ignore[arg-type]
    if record.holders is None and not record.holds:
        collect(tables, record)


def _leave_actor(tables: Tables, task: TaskRecord) -> None:
    record = tables.objects.get(task.spec.actor)
    if record is not None:
        record.holds -= 1
        if type(record.maker) is not ActorRecord:
            collect(tables, record)  # it never was
        elif record.holders != DRIVER and (not record.maker.spec.name or record.maker.state is DEAD):
            tables.unreferenced.append(record.maker)


def complete(tables: Tables, source: ClientId, event: TaskDone) -> None:
    """Take the end of a task from the worker that ran it; another's word about it doesn't count."""
    record = tables.objects.get(event.id)
    task = record.maker if record is not None else None
    if type(task) is not TaskRecord or task.worker is None or task.worker.id != source:
        tables.ignore("TaskDone: not its worker's task")
        discard(tables, event.id, event.outcome)
        return
    worker = task.worker
    spec = task.spec
    # Read as a whole before anything is changed: it may be malformed. Nobody else has looked at it.
    _, outcome, started, began, seconds, retry = event
    if type(outcome) is not bytes or type(started) is not int:
        check_message(event)
    if seconds > spec.timeout > 0 and type(outcome) is not Failed:
        # Its worker's word counts, not whether the timer or the result was taken first.
        discard(tables, event.id, outcome)
        outcome = build_timed_out(task)
    failed = type(outcome) is Failed
    measured = seconds >= 0 and not failed
    if task.demand is None:
        _leave_sent(tables, task)
    else:
        leave_slot(tables, task)
        if measured:
            measure(tables, spec.function, seconds)
    if started:
        _note_started(tables, worker, started)
    if task.demand is not None or tables.leaving:  # else no others can begin now that a call has ended
        refresh(tables, worker)
        tables.touched[worker.id] = worker
        tables.dirty = True
    note_run(tables, spec.name, seconds, failed=failed)
    # A plain tuple: making a `Run` costs several times as much, and few are ever looked at.
    tables.finished.append(
        (
            spec.name,
            source,
            worker.host.name,
            began,
            seconds,
            task.attempt,
            task.submitted,
            task.sent,
            tables.now,
            _end_of(task, outcome) if failed else "done",  # type: ignore[arg-type]
            task.demand is None,
        )
    )
    faults = task.faults
    if faults is not None and faults.verdict is not None and failed:
        finish(tables, task, faults.verdict)
    elif retry and failed and _may_raise_again(tables, task):
        _requeue(tables, task, RETRIED)
    else:
        finish(tables, task, outcome)
    if (worker.closing or failed) and not (worker.running or worker.blocked or worker.end_reason):
        _end_worker(tables, worker, outcome)


def _leave_sent(tables: Tables, call: TaskRecord) -> None:
    """Take a call away from its actor's worker."""
    call.worker = None
    actor = tables.actors[call.spec.actor]
    actor.sent.pop(call.spec.id, None)
    if actor.waiting:
        actor.waiting.discard(call.spec.id)
        settle_actor(tables, actor)


def _end_worker(tables: Tables, worker: WorkerRecord, last: Outcome) -> None:
    """Have a worker end whose last task, for now, has ended, if it is to run no other."""
    if worker.closing:
        retire(tables, worker, "it has done its number of tasks")
    elif type(last) is Failed and last.kind == "ThreadStartError" and not (worker.ahead or worker.actors):
        # Nothing is left there that may end and make room, so whatever came next would fail, too.
        retire(tables, worker, "it could start no thread")


def _end_of(task: TaskRecord, failed: Failed) -> str:
    verdict = task.faults.verdict if task.faults is not None else None
    return (verdict or failed).kind or "failed"


def _note_started(tables: Tables, worker: WorkerRecord, started: int) -> None:
    task = worker.ahead.get(started)
    if task is None:
        tables.ignore("started: not waiting there")
    else:
        begin(tables, worker, task)


def _may_raise_again(tables: Tables, task: TaskRecord) -> bool:
    faults = tables.tell(task, "")
    if faults.raised >= task.spec.retry_exceptions:
        return False
    faults.raised += 1
    tables.tell(task, f"attempt {task.attempt} raised an exception that is tried again")
    return True


def _requeue(tables: Tables, task: TaskRecord, cause: str) -> None:
    task.attempt += 1
    tables.counters["retried"] += 1
    tables.move(task, cause)
    if task.demand is not None:
        enqueue(tables, task, first=True)
    else:
        actor = tables.actors[task.spec.actor]
        key = (task.client, task.spec.parent)
        actor.callers.setdefault(key, deque()).appendleft(task)
        tables.woken.append(actor)


# --- while tasks run ---------------------------------------------------------------------------------------


def note_begun(tables: Tables, source: ClientId, event: TaskBegun) -> None:
    """Count as running what was sent ahead; as long as it waited there, an idle worker would ask for it."""
    worker = tables.workers.get(source)
    if worker is None:
        tables.ignore("TaskBegun: no such worker")
        return
    _note_started(tables, worker, event.id)
    refresh(tables, worker)


def block(tables: Tables, source: ClientId, event: TaskBlocked) -> None:
    """Let others use the CPUs of a task or an actor that waits."""
    if (actor := actor_at(tables, source, event.id)) is not None:
        actor.blocked = True
        settle_actor(tables, actor)
        return
    task = _task_of(tables, source, event.id)
    if task is None or task.state not in (RUNNING, SENT):
        tables.ignore("TaskBlocked: not running there")
        return
    worker: WorkerRecord = task.worker  # type: ignore[assignment]
    if task.demand is not None:
        lend(tables, task)
    else:
        actor = tables.actors[task.spec.actor]
        actor.waiting.add(event.id)
        settle_actor(tables, actor)
    tables.move(task, BLOCKED)
    if event.started:
        _note_started(tables, worker, event.started)
    refresh(tables, worker)
    tables.touched[source] = worker


def unblock(tables: Tables, source: ClientId, event: TaskUnblocked) -> None:
    """Give a task or an actor that goes on its CPUs back, at once."""
    if (actor := actor_at(tables, source, event.id)) is not None:
        actor.blocked = False
        settle_actor(tables, actor)
        return
    task = _task_of(tables, source, event.id)
    if task is None or task.state is not BLOCKED:
        tables.ignore("TaskUnblocked: not blocked there")
        return
    tables.move(task, UNBLOCKED)
    if task.demand is not None:
        retake(tables, task)
    else:
        actor = tables.actors[task.spec.actor]
        actor.waiting.discard(event.id)
        settle_actor(tables, actor)


def _task_of(tables: Tables, source: ClientId, object_id: int) -> TaskRecord | None:
    record = tables.objects.get(object_id)
    task = record.maker if record is not None else None
    if type(task) is TaskRecord and task.worker is not None and task.worker.id == source:
        return task
    return None


def return_tasks(tables: Tables, source: ClientId, event: TasksReturned) -> None:
    """Queue again what a worker gave back; what has been cancelled ends here."""
    worker = tables.workers.get(source)
    if worker is None:
        tables.ignore("TasksReturned: no such worker")
        return
    take_back(tables, worker, event.ids)
    for object_id in event.ids:
        record = tables.objects.get(object_id)
        task = record.maker if record is not None else None
        if type(task) is TaskRecord and task.state is READY and task.faults and task.faults.verdict:
            finish(tables, task, task.faults.verdict)


# --- lost --------------------------------------------------------------------------------------------------


def lose_task(tables: Tables, task: TaskRecord, worker: WorkerRecord, reason: str) -> None:
    """Let a task that was lost with its worker be tried again, or end it. Its worker is forgotten."""
    if worker.host.id in tables.hosts:
        free_later(tables, task.spec.id, worker.host.id)
    faults = tables.tell(
        task, f"attempt {task.attempt} was lost: worker {worker.id} on {worker.host.name} {reason}"
    )
    if faults.verdict is not None:
        finish(tables, task, faults.verdict)
        return
    if worker.host.leaving:
        faults.preempted += 1
        tables.counters["preempted"] += 1
        if not task.spec.retries or faults.preempted > MOST_PREEMPTIONS:
            finish(tables, task, build_died(task, worker))
            return
    elif not worker.end_reason:
        if task.charged >= task.spec.retries:
            finish(tables, task, build_died(task, worker))
            return
        task.charged += 1
    _requeue(tables, task, LOST)


def build_timed_out(task: TaskRecord) -> Failed:
    """Return what becomes of a task that ran longer than its limit."""
    story = tuple(task.faults.story if task.faults else ())
    return Failed(b"", "TaskTimeoutError", task.spec.name, story, (("seconds", task.spec.timeout),))


def build_died(task: TaskRecord, worker: WorkerRecord) -> Failed:
    """Return what becomes of a task that was lost with its worker once too often."""
    story = tuple(task.faults.story if task.faults else ())[-STORY_LINES:]
    details = (("worker", f"worker {worker.id}"), ("attempts", task.attempt))
    return Failed(b"", "WorkerDiedError", task.spec.name, story, details)
