"""Copies of stored objects on the hosts of readers, and what becomes of an object that a reader can't have.

A reader's trouble is its own: the object's owner is asked before it counts as lost. If it's there, the reader
gets another copy, or one that is made on the driver's host for it; if even that fails, the reader alone does.
"""

from __future__ import annotations

from fray.runtime.pool.machine.leaving import note_kept, note_moved
from fray.runtime.pool.machine.lineage import deliver
from fray.runtime.pool.machine.objects import discard, drop_copy, lose
from fray.runtime.pool.machine.records import Doubt, ObjectRecord
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.messages.commands import CheckObject, CopyObject, Deliver, SetTimer
from fray.runtime.pool.messages.events import FetchFailed, ObjectChecked, ObjectCopied, ObjectRelayed
from fray.runtime.pool.messages.specs import DRIVER, ClientId, Failed, ObjectId, Stored

__all__ = ["note_checked", "note_copied", "note_relayed", "refetch", "try_again"]

ROUNDS = 3
"""How often, at least, readers are sent to an object that they can't read and that is there."""
ROUNDS_SECONDS = 20.0
"""For how long they are, at least. A way to a host that is refused at once may be back soon; a round of one
that nobody answers takes 9 s, and one of a server that is too busy for a handshake 21 s.
"""
PAUSE_SECONDS = 1.0
"""Between two rounds."""
FORGET_SECONDS = 60.0
"""Readers that had no trouble for that long can read: trouble after it is another."""


def note_copied(tables: Tables, source: ClientId, event: ObjectCopied) -> None:
    """Note where an object can be read, too, or can't any more."""
    worker = tables.workers.get(source)
    if worker is not None and worker.host.id != event.host:
        tables.ignore("ObjectCopied: not its own host")
        return
    if event.size:
        _add(tables, event)
    else:
        drop_copy(tables, event.id, event.host)


def _add(tables: Tables, event: ObjectCopied | ObjectRelayed) -> None:
    record = tables.objects.get(event.id)
    if record is None or type(record.outcome) is not Stored:
        discard(tables, event.id, Stored(event.host, event.size))
    elif record.outcome.host != event.host and event.host in tables.hosts:
        tables.copies.setdefault(event.id, {})[event.host] = event.size


def refetch(tables: Tables, source: ClientId, event: FetchFailed) -> None:
    """Ask the owner of an object that a reader can't read, or send the reader elsewhere."""
    record = tables.objects.get(event.id)
    if record is None or type(record.outcome) is not Stored:
        deliver(tables, source, event.id)
    elif record.outcome.host != event.host:
        drop_copy(tables, event.id, event.host)
        deliver(tables, source, event.id)
    else:
        doubt = tables.doubts.get(event.id)
        if doubt is None or (not doubt.pending and tables.now >= doubt.answered + FORGET_SECONDS):
            doubt = tables.doubts[event.id] = Doubt(tables.now)
        doubt.clients[source] = event.reason
        if not doubt.pending:
            doubt.pending = True
            tables.commands.append(CheckObject(event.host, event.id))


def note_checked(tables: Tables, _source: ClientId, event: ObjectChecked) -> None:
    """Take an owner's word: the object is lost, or it's there and readers try another way."""
    record = tables.objects.get(event.id)
    doubt = tables.doubts.get(event.id)
    stored = record is not None and type(record.outcome) is Stored and record.outcome.host == event.host
    if event.id in tables.keeping and not stored:
        note_kept(tables, event)
    elif stored and not event.there:
        reason = next(reversed(doubt.clients.values()), "") if doubt is not None else "its copy had gone"
        lose(tables, record, f"it couldn't be read: {reason}")  # type: ignore[arg-type]
    if doubt is None:
        return
    if not stored or not event.there or event.id in tables.copies:
        _answer(tables, event.id, doubt)
    else:
        tables.commands.append(CopyObject(event.host, event.id))


def note_relayed(tables: Tables, _source: ClientId, event: ObjectRelayed) -> None:
    """Send readers to the copy on the driver's host, or let them try again some time later."""
    if event.size:
        _add(tables, event)
    note_moved(tables, event.id, moved=event.size > 0)
    doubt = tables.doubts.get(event.id)
    if doubt is None:
        return
    if event.size:
        _answer(tables, event.id, doubt)
        return
    doubt.rounds += 1
    if doubt.rounds < ROUNDS or tables.now < doubt.since + ROUNDS_SECONDS:
        tables.commands.append(SetTimer(PAUSE_SECONDS, ("refetch", event.id)))
        return
    del tables.doubts[event.id]
    record = tables.objects.get(event.id)
    for client, reason in doubt.clients.items():
        if record is not None and type(record.outcome) is Stored:
            tables.commands.append(Deliver(client, event.id, _unreachable(tables, record, reason)))
        else:
            _deliver_if_there(tables, client, event.id)


def try_again(tables: Tables, object_id: ObjectId) -> None:
    """Send readers once more to an object that they couldn't read."""
    doubt = tables.doubts.get(object_id)
    if doubt is not None:
        _answer(tables, object_id, doubt)


def _answer(tables: Tables, object_id: ObjectId, doubt: Doubt) -> None:
    clients, doubt.clients = doubt.clients, {}
    doubt.pending, doubt.answered = False, tables.now
    if object_id not in tables.objects:
        del tables.doubts[object_id]
    for client in clients:
        _deliver_if_there(tables, client, object_id)


def _deliver_if_there(tables: Tables, client: ClientId, object_id: ObjectId) -> None:
    if client == DRIVER or client in tables.clients:
        deliver(tables, client, object_id)


def _unreachable(tables: Tables, record: ObjectRecord, reason: str) -> Failed:
    host: Stored = record.outcome  # type: ignore[assignment]
    details = (("host", tables.hosts[host.host].name), ("reason", reason))
    return Failed(b"", "ObjectUnreachableError", f"{record.id:x}", (), details)
