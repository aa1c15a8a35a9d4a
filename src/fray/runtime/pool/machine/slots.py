"""Tasks at workers: taking a slot, waiting for one, leaving it; what that holds and gives back.

Which task gets which slot is decided in `scheduling`, how tasks end in `tasks`.
"""

from __future__ import annotations

from collections.abc import Iterable

from fray.runtime.pool.machine.functions import send_function
from fray.runtime.pool.machine.queues import enqueue
from fray.runtime.pool.machine.records import ActorRecord, TaskRecord, WorkerRecord, without_cpus
from fray.runtime.pool.machine.resources import give, take
from fray.runtime.pool.machine.tables import DEFAULT_NEEDS, Tables
from fray.runtime.pool.machine.transitions import (
    BLOCKED,
    RETURNED,
    RUNNING,
    SENT,
    SENT_AHEAD,
    STARTED,
)
from fray.runtime.pool.messages.commands import ResumeGenerator, RunTask, SetTimer, StopWorker
from fray.runtime.pool.messages.specs import PLAIN, ClientId, ObjectId, Value

__all__ = [
    "IDLE_SECONDS",
    "THREADS_IDLE_SECONDS",
    "actor_at",
    "begin",
    "idle_seconds",
    "leave_slot",
    "lend",
    "limit_time",
    "refresh",
    "retake",
    "retire",
    "send_ahead",
    "settle_actor",
    "start",
    "take_back",
]

IDLE_SECONDS = 1.0
"""How long a process with a profile of its own stays without work."""
THREADS_IDLE_SECONDS = 60.0
"""How long one does that differs in its threads only: such are few, and what they have loaded is costly."""


def refresh(tables: Tables, worker: WorkerRecord) -> None:
    """Settle what follows from a worker's tasks: the slot it will open by itself, and whether it's idle."""
    running = worker.running
    expecting = bool(worker.ahead) and not running
    if expecting is not worker.expecting:
        worker.expecting = expecting
        if expecting:
            take(tables, worker.host, DEFAULT_NEEDS)
        else:
            give(tables, worker.host, DEFAULT_NEEDS)
    idle = not (running or worker.ahead or worker.actors or worker.closing) and worker.joined
    if idle is not worker.idle:
        worker.idle = idle
        if idle:
            worker.team.idle[worker.id] = worker
            worker.since = tables.now
            tables.freed += 1
            tables.dirty = True
            if worker.profile is not PLAIN and not worker.timed:
                worker.timed = True
                tables.commands.append(SetTimer(idle_seconds(worker), ("idle", worker.id)))
        else:
            worker.team.idle.pop(worker.id, None)


def idle_seconds(worker: WorkerRecord) -> float:
    """Return how long a process stays that has no work, and a profile of its own."""
    return THREADS_IDLE_SECONDS if worker.profile._replace(threads=0) == PLAIN else IDLE_SECONDS


def leave_ahead(tables: Tables, worker: WorkerRecord, task: TaskRecord) -> None:
    spec = task.spec
    del worker.ahead[spec.id]
    tables.sent_ahead -= 1
    key = (task.client, spec.parent)
    left = worker.ahead_of[key] - 1
    if left:
        worker.ahead_of[key] = left
    else:
        del worker.ahead_of[key]
    tables.touched[worker.id] = worker
    tables.dirty = True


def leave_slot(tables: Tables, task: TaskRecord) -> WorkerRecord:
    """Take a task away from its worker, and what it held; the caller refreshes the worker."""
    worker: WorkerRecord = task.worker  # type: ignore[assignment]
    task.worker = None
    spec = task.spec
    if task.state is RUNNING:
        del worker.running[spec.id]
        give(tables, worker.host, task.demand.taken)  # type: ignore[union-attr]
    elif task.state is SENT:
        leave_ahead(tables, worker, task)
    elif task.state is BLOCKED:
        del worker.blocked[spec.id]
        give(tables, worker.host, task.demand.kept)  # type: ignore[union-attr]
    return worker


def retire(tables: Tables, worker: WorkerRecord, reason: str) -> None:
    """End a process that runs nothing."""
    worker.closing = True
    worker.end_reason = reason
    refresh(tables, worker)
    tables.commands.append(StopWorker(worker.id, False, reason))


def lend(tables: Tables, task: TaskRecord) -> None:
    """Let others use the CPUs of a task that waits; what else it holds stays its own."""
    worker = leave_slot(tables, task)
    task.worker = worker
    worker.blocked[task.spec.id] = task
    take(tables, worker.host, task.demand.kept)  # type: ignore[union-attr]


def retake(tables: Tables, task: TaskRecord) -> None:
    """Give a task that goes on its CPUs back, at once."""
    worker: WorkerRecord = task.worker  # type: ignore[assignment]
    del worker.blocked[task.spec.id]
    worker.running[task.spec.id] = task
    take(tables, worker.host, (("CPU", task.demand.cpu),))  # type: ignore[union-attr]
    refresh(tables, worker)


def actor_at(tables: Tables, source: ClientId, actor_id: ObjectId) -> ActorRecord | None:
    """Return an actor that lives at this worker; None where there is no such actor there."""
    actor = tables.actors.get(actor_id)
    return actor if actor is not None and actor.worker is not None and actor.worker.id == source else None


def settle_actor(tables: Tables, actor: ActorRecord) -> None:
    """Let others use the CPUs of an actor that waits, or give them back to one that goes on, at once."""
    worker = actor.worker
    if worker is None:
        return
    cpus, kept = (("CPU", dict(actor.needs).get("CPU", 0)),), without_cpus(actor.needs)
    waits = bool(actor.waiting) or actor.blocked
    if waits and worker.held == actor.needs != kept:
        give(tables, worker.host, cpus)
        worker.held = kept
    elif not waits and worker.held != actor.needs:
        take(tables, worker.host, cpus)
        worker.held = actor.needs


def begin(tables: Tables, worker: WorkerRecord, task: TaskRecord) -> None:
    """Note that a task sent ahead has begun."""
    leave_ahead(tables, worker, task)
    tables.move(task, STARTED)
    worker.running[task.spec.id] = task
    take(tables, worker.host, task.demand.taken)  # type: ignore[union-attr]


def start(tables: Tables, task: TaskRecord, worker: WorkerRecord, values: tuple[Value, ...]) -> None:
    """Let a task that has left the queue begin at a worker."""
    spec = task.spec
    tables.move(task, STARTED)
    task.worker = worker
    worker.running[spec.id] = task
    worker.begun += 1
    take(tables, worker.host, task.demand.taken)  # type: ignore[union-attr]
    limit = worker.profile.max_calls
    if limit and worker.begun >= limit:
        worker.closing = True
    stream = task.stream
    skip = stream.produced if stream is not None else 0
    blob = send_function(tables, worker, spec.function)
    task.sent = tables.now
    tables.commands.append(RunTask(worker.id, spec, blob, values, False, task.attempt, skip, task.client))
    if stream is not None and stream.consumed:
        tables.commands.append(ResumeGenerator(worker.id, spec.id, stream.consumed))
    if spec.timeout > 0:
        limit_time(tables, task)
    refresh(tables, worker)


def limit_time(tables: Tables, task: TaskRecord) -> None:
    """Let the time begin of a task that has just been sent and has a limit."""
    limit = task.spec.timeout
    tables.tell(task, "").deadline = tables.now + limit
    tables.commands.append(SetTimer(limit, ("timeout", task.spec.id)))


def send_ahead(tables: Tables, task: TaskRecord, worker: WorkerRecord, values: tuple[Value, ...]) -> None:
    """Send a task that has left the queue to a busy worker, where it waits."""
    spec = task.spec
    tables.move(task, SENT_AHEAD)
    task.worker = worker
    worker.ahead[spec.id] = task
    key = (task.client, spec.parent)
    worker.ahead_of[key] = worker.ahead_of.get(key, 0) + 1
    tables.sent_ahead += 1
    blob = send_function(tables, worker, spec.function)
    task.sent = tables.now
    tables.commands.append(RunTask(worker.id, spec, blob, values, True, task.attempt, 0, task.client))


def take_back(tables: Tables, worker: WorkerRecord, ids: Iterable[int]) -> None:
    """Queue again what a worker has given back, before what its callers submitted later."""
    if tables.reclaiming is worker:
        tables.reclaiming = None
    for object_id in reversed(tuple(ids)):
        task = worker.ahead.get(object_id)
        if task is None:
            tables.ignore("TasksReturned: not waiting there")
            continue
        leave_ahead(tables, worker, task)
        task.worker = None
        tables.move(task, RETURNED)
        enqueue(tables, task, first=True)
    refresh(tables, worker)
    tables.dirty = True
