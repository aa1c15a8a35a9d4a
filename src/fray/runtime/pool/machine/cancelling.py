"""Ending tasks before they end by themselves: cancelled, abandoned by their consumer, or too long."""

from __future__ import annotations

from fray.runtime.pool.machine.records import TaskRecord, WorkerRecord
from fray.runtime.pool.machine.slots import refresh, settle_actor
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.machine.tasks import build_timed_out, finish
from fray.runtime.pool.machine.transitions import (
    ENDED,
    KEPT,
    SENT,
)
from fray.runtime.pool.messages.commands import CancelTask, SetTimer, StopWorker
from fray.runtime.pool.messages.events import TaskCancelled
from fray.runtime.pool.messages.specs import ClientId, Failed

__all__ = ["abandon", "cancel", "time_out"]

CANCEL_SECONDS = 5.0
"""How long a task may take to end after it was asked to, before its worker is killed."""


def cancel(tables: Tables, _source: ClientId, event: TaskCancelled) -> None:
    """Take a client's wish that a task shall not go on."""
    record = tables.objects.get(event.id)
    task = record.maker if record is not None else None
    if type(task) is not TaskRecord or task.state in (KEPT, ENDED):
        tables.ignore("TaskCancelled: it has ended")
        return
    cancel_task(tables, task, force=event.force)


def cancel_task(tables: Tables, task: TaskRecord, *, force: bool) -> None:
    """End a task that waits, or tell its worker to interrupt it; with force, end the worker."""
    verdict = Failed(b"", "TaskCancelledError", task.spec.name)
    _decide(tables, task, verdict, force=force)


def abandon(tables: Tables, task: TaskRecord) -> None:
    """End a generator whose consumer has gone: it would wait for ever to be asked for more."""
    if task.state in (KEPT, ENDED) or (task.faults is not None and task.faults.verdict is not None):
        return
    cancel_task(tables, task, force=False)


def _decide(tables: Tables, task: TaskRecord, verdict: Failed, *, force: bool) -> None:
    worker = task.worker
    if worker is None:
        finish(tables, task, verdict)
        return
    faults = tables.tell(task, "")
    cancelled_before = faults.verdict is not None
    faults.verdict = faults.verdict or verdict
    if task.demand is None:
        # Its worker has an actor that lives on, so nobody could end a call that doesn't end by itself.
        tables.commands.append(CancelTask(worker.id, task.spec.id))
        task.worker = None
        actor = tables.actors[task.spec.actor]
        actor.sent.pop(task.spec.id, None)
        actor.waiting.discard(task.spec.id)
        settle_actor(tables, actor)
        finish(tables, task, verdict)
    elif force and task.state is not SENT:
        stop_by_force(tables, worker, f"{task.spec.name} was cancelled by force")
    elif not cancelled_before:
        faults.deadline = tables.now + CANCEL_SECONDS
        tables.commands.append(CancelTask(worker.id, task.spec.id))
        tables.commands.append(SetTimer(CANCEL_SECONDS, ("kill", task.spec.id)))


def stop_by_force(tables: Tables, worker: WorkerRecord, reason: str) -> None:
    """Kill a worker; what else it runs is tried again uncharged."""
    if worker.end_reason and worker.closing:
        return
    worker.end_reason = reason
    worker.closing = True
    tables.commands.append(StopWorker(worker.id, True, reason))
    refresh(tables, worker)


def time_out(tables: Tables, kind: str, object_id: int) -> None:
    """Take a task's timer: its time is over, or it hasn't ended although it was asked to."""
    record = tables.objects.get(object_id)
    task = record.maker if record is not None else None
    if type(task) is not TaskRecord or task.worker is None or task.faults is None:
        return
    faults = task.faults
    if tables.now < faults.deadline - 0.001:
        return  # the timer of an earlier run
    if kind == "kill":
        if faults.verdict is not None and task.state is not SENT:
            stop_by_force(
                tables, task.worker, f"{task.spec.name} didn't end {CANCEL_SECONDS:g} s after it had to"
            )
        return
    if faults.verdict is None:
        _decide(tables, task, build_timed_out(task), force=False)
