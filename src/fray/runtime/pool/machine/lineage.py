"""Making lost results again: which ended tasks are kept for it, and how one is brought back to life."""

from __future__ import annotations

from fray.runtime.pool.machine.objects import (
    build_lost,
    collect,
    drop_lineage,
    lineage_cost,
    readable,
    settle,
)
from fray.runtime.pool.machine.records import ObjectRecord, TaskRecord
from fray.runtime.pool.machine.tables import STORY_LINES, Tables
from fray.runtime.pool.machine.transitions import KEPT, REBUILT
from fray.runtime.pool.messages.commands import Deliver
from fray.runtime.pool.messages.specs import ClientId, ObjectId

__all__ = ["LINEAGE_LIMIT", "deliver", "keep_lineage", "request"]

LINEAGE_LIMIT = 256 * 1024 * 1024
"""Bytes of arguments that are kept so that lost results can be made again."""


def deliver(tables: Tables, client: ClientId, object_id: ObjectId) -> None:
    """Answer a client that waits for an object, now or when it's there."""
    record = tables.objects.get(object_id)
    if record is None:
        failed = build_lost(object_id, "nobody referred to it any more")
        tables.commands.append(Deliver(client, object_id, failed))
        return
    if record.outcome is None:
        request(tables, record)
    wanted = record.wanted
    if record.outcome is not None:
        tables.commands.append(Deliver(client, object_id, readable(tables, record)))  # type: ignore[arg-type]
    elif wanted is None:
        record.wanted = client
    elif isinstance(wanted, list):
        if client not in wanted:
            wanted.append(client)
    elif wanted != client:
        record.wanted = [wanted, client]


def request(tables: Tables, record: ObjectRecord) -> None:
    """Have an object made again that was lost or freed, if its task has ended and may run again."""
    task = record.maker
    if type(task) is not TaskRecord or task.state is not KEPT:
        return
    if task.charged >= task.spec.retries:
        story = tuple(task.faults.story if task.faults else ())[-STORY_LINES:]
        _forget(tables, record.id, task)
        settle(tables, record, build_lost(record.id, "its task has no retries left to make it again", story))
        return
    task.charged += 1
    task.attempt += 1
    tables.tell(task, f"its result was lost: run again (retry {task.charged} of {task.spec.retries})")
    tables.counters["rebuilt"] += 1
    tables.count_ended(task, -1)
    del tables.lineage[record.id]
    tables.lineage_bytes -= lineage_cost(task)
    tables.move(task, REBUILT)
    for object_id in task.spec.holds:
        needed = tables.objects[object_id]
        needed.lineage -= 1
        needed.holds += 1
    tables.woken.append(task)


def keep_lineage(tables: Tables, task: TaskRecord) -> None:
    """Keep an ended task, whose state is KEPT, as the way to make its result again."""
    tables.lineage[task.spec.id] = task
    tables.lineage_bytes += lineage_cost(task)
    for object_id in task.spec.holds:
        needed = tables.objects[object_id]
        needed.lineage += 1
        needed.holds -= 1
        if not needed.holds and needed.holders is None:
            collect(tables, needed)
    while tables.lineage_bytes > LINEAGE_LIMIT:
        _forget(tables, *next(iter(tables.lineage.items())))


def _forget(tables: Tables, object_id: ObjectId, task: TaskRecord) -> None:
    record = tables.objects[object_id]
    record.maker = None
    if record.outcome is None:
        record.outcome = build_lost(
            object_id, "its task was forgotten: too many are kept to make values again"
        )
    for freed in drop_lineage(tables, task):
        collect(tables, freed)
