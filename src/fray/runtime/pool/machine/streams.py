"""Generators: their items become objects of the submitter one by one, and it says how far it is."""

from __future__ import annotations

from fray.runtime.pool.machine.message_checks import check_message
from fray.runtime.pool.machine.objects import collect, discard, place
from fray.runtime.pool.machine.records import ObjectRecord, StreamProgress, TaskRecord
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.messages.commands import DeliverItems, ResumeGenerator
from fray.runtime.pool.messages.events import ItemsConsumed, ItemsProduced
from fray.runtime.pool.messages.specs import DRIVER, ClientId

__all__ = ["consume", "discard_items", "produce", "run_on"]


def produce(tables: Tables, source: ClientId, event: ItemsProduced) -> None:
    """Pass new items on to who submitted the generator. Those that came before are dropped."""
    if not _is_plain(event):
        check_message(event)
    record = tables.objects.get(event.task)
    task = record.maker if record is not None else None
    ours = type(task) is TaskRecord and task.worker is not None and task.worker.id == source
    stream = task.stream if ours else None  # type: ignore[union-attr]
    known = tables.objects
    ids = [object_id for object_id, _ in event.items]
    if stream is None or event.position != stream.produced or not known.keys().isdisjoint(ids):
        tables.ignore("ItemsProduced: not the next items of their generator")
        discard_items(tables, event)
        return
    stream.produced += len(event.items)
    tables.counters["items"] += len(event.items)
    client = task.client  # type: ignore[union-attr]
    lost = client and client not in tables.clients
    if client != DRIVER and not lost:
        tables.clients[client].update(ids)
    for object_id, outcome in event.items:
        item = known[object_id] = ObjectRecord(object_id, None if lost else client)
        place(tables, item, outcome)
        if lost:
            collect(tables, item)
    if not lost:
        tables.commands.append(DeliverItems(client, event.task, event.position, event.items))
    elif task.faults is None or task.faults.verdict is None:  # type: ignore[union-attr]
        run_on(tables, task)  # type: ignore[arg-type]


def _is_plain(event: ItemsProduced) -> bool:
    """Whether there is no need to look at each field: items are many, and mostly small."""
    if type(event.task) is not int or type(event.position) is not int or type(event.items) is not tuple:
        return False
    for item in event.items:
        if type(item) is not tuple or len(item) != _PAIR:
            return False
        if type(item[0]) is not int or type(item[1]) is not bytes:
            return False
    return True


_PAIR = 2


def discard_items(tables: Tables, event: ItemsProduced) -> None:
    """Free what was reported too late."""
    for object_id, outcome in event.items:
        discard(tables, object_id, outcome)


def run_on(tables: Tables, task: TaskRecord) -> None:
    """Let a generator run to its end without a reader, as a task does whose submitter has retired."""
    stream: StreamProgress = task.stream  # type: ignore[assignment]
    _go_on(tables, task, stream, stream.produced)


def consume(tables: Tables, source: ClientId, event: ItemsConsumed) -> None:
    """Let a generator go on, on any worker; what comes again after a retry is kept."""
    record = tables.objects.get(event.task)
    task = record.maker if record is not None else None
    if type(task) is not TaskRecord or task.stream is None or task.client != source:
        tables.ignore("ItemsConsumed: the generator has ended")
        return
    _go_on(tables, task, task.stream, event.taken)


def _go_on(tables: Tables, task: TaskRecord, stream: StreamProgress, taken: int) -> None:
    stream.consumed = max(stream.consumed, taken)
    if task.worker is not None:
        tables.commands.append(ResumeGenerator(task.worker.id, task.spec.id, stream.consumed))
