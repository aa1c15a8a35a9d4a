"""Generators: their items become objects of the submitter one by one, and it says how far it is."""

from __future__ import annotations

from fray.runtime.pool.machine.objects import add_holder, collect, discard, place
from fray.runtime.pool.machine.records import ObjectRecord, TaskRecord
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.messages import (
    ClientId,
    DeliverItem,
    ItemProduced,
    ItemsConsumed,
    ResumeGenerator,
)

__all__ = ["consume", "produce"]


def produce(tables: Tables, source: ClientId, event: ItemProduced) -> None:
    """Pass a new item on to who submitted the generator. One that was told before is dropped."""
    record = tables.objects.get(event.task)
    task = record.maker if record is not None else None
    ours = type(task) is TaskRecord and task.worker is not None and task.worker.id == source
    if not ours or task.stream is None or event.position != task.stream.told or event.id in tables.objects:  # type: ignore[union-attr]
        tables.ignore("ItemProduced: not the next item of its generator")
        discard(tables, event.id, event.outcome)
        return
    task.stream.told += 1  # type: ignore[union-attr]
    tables.counters["items"] += 1
    client = task.client  # type: ignore[union-attr]
    item = tables.objects[event.id] = ObjectRecord(event.id, None)
    place(tables, item, event.outcome)
    if client and client not in tables.clients:
        collect(tables, item)
        return
    add_holder(tables, item, client)
    tables.commands.append(DeliverItem(client, event.task, event.position, event.id, event.outcome))


def consume(tables: Tables, source: ClientId, event: ItemsConsumed) -> None:
    """Let a generator go on, wherever it runs; what it is told again after a retry is kept."""
    record = tables.objects.get(event.task)
    task = record.maker if record is not None else None
    if type(task) is not TaskRecord or task.stream is None or task.client != source:
        tables.ignore("ItemsConsumed: the generator has ended")
        return
    task.stream.consumed = max(task.stream.consumed, event.taken)
    if task.worker is not None:
        tables.commands.append(ResumeGenerator(task.worker.id, event.task, task.stream.consumed))
