"""The life of objects at the head: who refers to them, who waits for them, where they are, when they go.

An object lives while a client refers to it, or a task, a value or a call needs it. How a lost one is made
again is in `lineage`; what ends, wakes or starts because of that is left to the other parts (`tables`).
"""

from __future__ import annotations

from collections.abc import Iterable

from fray.runtime.pool.machine.circles import search_later
from fray.runtime.pool.machine.functions import drop_function
from fray.runtime.pool.machine.records import ActorRecord, HostRecord, ObjectRecord, TaskRecord
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.machine.transitions import FORGOTTEN, KEPT
from fray.runtime.pool.messages.commands import CheckObject, Deliver, FreeObject, SpillObject
from fray.runtime.pool.messages.specs import (
    DRIVER,
    ClientId,
    Failed,
    HostId,
    ObjectId,
    Outcome,
    Stored,
    inline_size,
)

__all__ = [
    "add_holder",
    "build_lost",
    "collect",
    "discard",
    "drop_copy",
    "drop_holder",
    "drop_lineage",
    "free_later",
    "hold",
    "lineage_cost",
    "lose",
    "place",
    "readable",
    "release_holds",
    "settle",
]

LINEAGE_OVERHEAD = 512
"""Bytes that a kept task costs beside its arguments."""


# --- references --------------------------------------------------------------------------------------------


def add_holder(tables: Tables, record: ObjectRecord, client: ClientId) -> None:
    """Note that a client refers to an object."""
    holders = record.holders
    if holders is None:
        record.holders = client
    elif isinstance(holders, set):
        holders.add(client)
    elif holders != client:
        record.holders = {holders, client}
    if client != DRIVER:
        tables.clients[client].add(record.id)


def drop_holder(tables: Tables, record: ObjectRecord, client: ClientId) -> bool:
    """Note that a client refers to it no more; return whether it did. The caller then collects."""
    holders = record.holders
    if holders == client:
        record.holders = None
    elif isinstance(holders, set) and client in holders:
        holders.discard(client)
        if len(holders) == 1:
            record.holders = holders.pop()
    else:
        return False
    if client != DRIVER and (held := tables.clients.get(client)) is not None:
        held.discard(record.id)
    if type(record.maker) is ActorRecord:
        if record.holders is not None or record.holds:
            tables.unreferenced.append(record.maker)  # by all but itself, perhaps
    elif tables.doubtful:
        search_later(tables)
    return True


def hold(tables: Tables, ids: Iterable[ObjectId]) -> None:
    """Keep objects for a task, a value or an actor that needs them."""
    for object_id in ids:
        record = tables.objects.get(object_id)
        if record is None:
            # A task that depends on it fails; one that merely carries it will find it lost.
            record = tables.objects[object_id] = ObjectRecord(object_id, None)
            record.outcome = build_lost(object_id, "nobody referred to it any more when it was passed on")
        record.holds += 1


def release_holds(tables: Tables, ids: Iterable[ObjectId]) -> None:
    """Undo `hold`."""
    if tables.doubtful:
        search_later(tables)
    for record in _unhold(tables, ids):
        if not record.holds and (record.holders is None or type(record.maker) is ActorRecord):
            collect(tables, record)


def _unhold(tables: Tables, ids: Iterable[ObjectId]) -> list[ObjectRecord]:
    records = [tables.objects[object_id] for object_id in ids]
    for record in records:
        record.holds -= 1
    return records


def collect(tables: Tables, record: ObjectRecord) -> None:
    """Free an object that nobody needs, and what only it needed."""
    pending = [record]
    while pending:
        record = pending.pop()
        if record.holds or tables.objects.get(record.id) is not record:
            continue
        maker = record.maker
        if type(maker) is ActorRecord:
            tables.unreferenced.append(maker)  # its own process may hold it still
        elif record.holders is not None:
            continue
        elif type(maker) is TaskRecord and maker.state is not KEPT:
            if maker.stream is not None:
                tables.abandoned.append(maker)
            # It's collected when its task ends.
        elif record.lineage:
            pending += _free_data(tables, record)
        else:
            pending += _remove(tables, record)


def _free_data(tables: Tables, record: ObjectRecord) -> list[ObjectRecord]:
    """Free the file of an object that only a kept task might need again; return what it contained."""
    outcome = record.outcome
    if type(outcome) is not Stored:
        return []
    _free_file(tables, record.id, outcome.host)
    made_by_task = record.maker is not None
    record.outcome = None if made_by_task else build_lost(record.id, "no task made it, and it had been freed")
    return _unhold(tables, outcome.contained)


def _remove(tables: Tables, record: ObjectRecord) -> list[ObjectRecord]:
    """Forget an object; return what was held for it alone or with others."""
    del tables.objects[record.id]
    outcome = record.outcome
    freed: list[ObjectRecord] = []
    if type(outcome) is bytes:
        tables.inline_bytes -= len(outcome)
    elif outcome is not None and type(outcome) is not Failed:
        if type(outcome) is Stored:
            _free_file(tables, record.id, outcome.host)
        else:
            tables.inline_bytes -= inline_size(outcome)  # type: ignore[arg-type]
        freed = _unhold(tables, outcome.contained)  # type: ignore[union-attr]
    if tables.doubts:
        tables.doubts.pop(record.id, None)
    if tables.stale:
        for host in tables.stale.pop(record.id, ()):
            if host in tables.hosts:
                tables.commands.append(FreeObject(host, record.id))
    if type(record.maker) is TaskRecord:
        freed += drop_lineage(tables, record.maker)
    return freed


def _free_file(tables: Tables, object_id: ObjectId, host_id: HostId) -> None:
    host = tables.hosts.get(host_id)
    if host is not None:
        tables.commands.append(FreeObject(host_id, object_id))
        _take_from(host, object_id)
    if (stale := tables.stale.get(object_id)) is not None:
        stale.discard(host_id)
    for copied in tables.copies.pop(object_id, ()):
        tables.commands.append(FreeObject(copied, object_id))


def free_later(tables: Tables, object_id: ObjectId, host: HostId) -> None:
    """Note that a file of an object may lie on a host; it goes when the object does."""
    tables.stale.setdefault(object_id, set()).add(host)


def discard(tables: Tables, object_id: ObjectId, outcome: Outcome | None) -> None:
    """Free a file that was reported too late: now, or with the object that has its identity."""
    if type(outcome) is not Stored or outcome.host not in tables.hosts:
        return
    record = tables.objects.get(object_id)
    if record is None:
        tables.commands.append(FreeObject(outcome.host, object_id))
    elif type(record.outcome) is not Stored or record.outcome.host != outcome.host:
        free_later(tables, object_id, outcome.host)


def drop_lineage(tables: Tables, task: TaskRecord) -> list[ObjectRecord]:
    """Forget a kept task; return the objects that only it might have needed again."""
    tables.move(task, FORGOTTEN)
    del tables.lineage[task.spec.id]
    tables.lineage_bytes -= lineage_cost(task)
    drop_function(tables, task.spec.function)
    needed = [tables.objects[object_id] for object_id in task.spec.holds]
    for record in needed:
        record.lineage -= 1
    return [record for record in needed if not record.lineage]


def lineage_cost(task: TaskRecord) -> int:
    """Return the bytes that a kept task counts for."""
    return len(task.spec.args) + LINEAGE_OVERHEAD


# --- values ------------------------------------------------------------------------------------------------


def place(tables: Tables, record: ObjectRecord, outcome: Outcome) -> None:
    """Note what an object is and where."""
    record.outcome = outcome
    if type(outcome) is bytes:
        tables.inline_bytes += len(outcome)
        return
    if type(outcome) is Failed:
        return
    if outcome.contained:  # type: ignore[union-attr]
        hold(tables, outcome.contained)  # type: ignore[union-attr]
    if type(outcome) is not Stored:
        tables.inline_bytes += len(outcome.data)  # type: ignore[union-attr]
    else:
        host = tables.hosts.get(outcome.host)
        if host is None:
            lose(tables, record, "its host was lost before it was reported")
            return
        if outcome.on_disk:
            host.spilling[record.id] = outcome.size
        else:
            _keep_on(tables, host, record.id, outcome.size)


def readable(tables: Tables, record: ObjectRecord) -> Outcome | None:
    """Return an object's value, with a place to read it: one of its copies in turn, if there are any."""
    outcome = record.outcome
    copies = tables.copies.get(record.id) if tables.copies else None
    if not copies or type(outcome) is not Stored:
        return outcome
    host = next(iter(copies))
    copies[host] = copies.pop(host)
    return outcome._replace(host=host)


def drop_copy(tables: Tables, object_id: ObjectId, host: HostId) -> None:
    """Send no reader to a copy any more; a file that is there goes with the object."""
    copies = tables.copies.get(object_id)
    if copies is None or copies.pop(host, None) is None:
        return
    if not copies:
        del tables.copies[object_id]
    if host in tables.hosts:
        free_later(tables, object_id, host)


def settle(tables: Tables, record: ObjectRecord, outcome: Outcome) -> None:
    """Give an object its value: those who wait for it get it, tasks that need it wake."""
    place(tables, record, outcome)
    known = record.outcome
    if known is None:
        return
    wanted = record.wanted
    if wanted is not None:
        record.wanted = None
        for client in wanted if isinstance(wanted, list) else (wanted,):
            tables.commands.append(Deliver(client, record.id, known))
    dependents = record.dependents
    if dependents is not None:
        record.dependents = None
        failed = type(known) is Failed
        for dependent in dependents:
            dependent.missing -= 1
            if dependent.missing == 0 or failed:
                tables.woken.append(dependent)


def build_lost(object_id: ObjectId, reason: str, story: tuple[str, ...] = ()) -> Failed:
    """Return what a client gets for an object that is lost for good."""
    return Failed(b"", "ObjectLostError", f"{object_id:x}", story, (("reason", reason),))


def lose(tables: Tables, record: ObjectRecord, reason: str) -> None:
    """Note that an object's file is gone: a copy takes its place, or it's made again when it is needed."""
    outcome = record.outcome
    if type(outcome) is not Stored:
        return
    host = tables.hosts.get(outcome.host)
    if host is not None:
        _take_from(host, record.id)
        free_later(tables, record.id, host.id)
    for copied, size in tables.copies.pop(record.id, {}).items():
        if record.outcome is outcome:
            record.outcome = outcome._replace(host=copied, on_disk=False)
            tables.commands.append(CheckObject(copied, record.id))
            _keep_on(tables, tables.hosts[copied], record.id, outcome.size)
        else:
            tables.copies.setdefault(record.id, {})[copied] = size
    if record.outcome is not outcome:
        return
    record.outcome = None if record.maker is not None else build_lost(record.id, reason)
    for contained in _unhold(tables, outcome.contained):
        collect(tables, contained)


# --- memory of hosts ---------------------------------------------------------------------------------------


def _keep_on(tables: Tables, host: HostRecord, object_id: ObjectId, size: int) -> None:
    host.objects[object_id] = size
    host.memory += size
    if host.memory > host.store_limit:
        _spill(tables, host)


def _spill(tables: Tables, host: HostRecord) -> None:
    while host.memory > host.store_limit and host.objects:
        object_id = next(iter(host.objects))
        size = host.objects.pop(object_id)
        host.spilling[object_id] = size
        host.memory -= size
        tables.commands.append(SpillObject(host.id, object_id))


def _take_from(host: HostRecord, object_id: ObjectId) -> None:
    size = host.objects.pop(object_id, None)
    if size is not None:
        host.memory -= size
    else:
        host.spilling.pop(object_id, None)
        host.stuck.pop(object_id, None)
