"""Hosts that are to go: nothing new begins there, what runs may end, and what only lies there moves away.

What is lost with such a host all the same charges no retry: it wasn't the task's doing. When to go at the
latest is the host's own business, since it may be taken away.
"""

from __future__ import annotations

from itertools import chain

from fray.runtime.pool.machine.objects import drop_copy, lose
from fray.runtime.pool.machine.records import HostRecord
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.messages.commands import CheckObject, CopyObject, ReclaimTasks, ReleaseHost
from fray.runtime.pool.messages.events import HostLeaving, ObjectChecked
from fray.runtime.pool.messages.specs import ClientId, ObjectId, Stored

__all__ = ["advance", "is_at_work", "leave", "move_anew", "note_kept", "note_moved"]

MOST_MOVING = 4
"""Objects that are copied at once: each takes memory where it goes to, and a thread."""


def leave(tables: Tables, _source: ClientId, event: HostLeaving) -> None:
    """Let nothing new begin on a host, and take back what waits there."""
    host = tables.hosts.get(event.host)
    if host is None or host.leaving:
        tables.ignore("HostLeaving: not known, or it leaves already")
        if host is not None:
            host.recallable = host.recallable and event.recallable
        return
    host.leaving = f"its host leaves: {event.reason}"
    host.recallable = event.recallable
    tables.leaving[host.id] = host
    tables.open_hosts.pop(host.id, None)
    if tables.reserved is not None and tables.reserved[1] is host:
        tables.reserved = None
    for team in host.teams.values():
        for worker in team.workers.values():
            if worker.ahead:
                tables.commands.append(ReclaimTasks(worker.id, len(worker.ahead)))
    tables.freed += 1
    tables.dirty = True


def advance(tables: Tables) -> None:
    """Move what can be moved away from hosts that leave, and release those that are done."""
    for host in tuple(tables.leaving.values()):
        _move(tables, host)
        moving = host.id in tables.moving.values() or host.id in tables.keeping.values()
        if not (host.released or moving or is_at_work(host)):
            host.released = True
            tables.commands.append(ReleaseHost(host.id))


def is_at_work(host: HostRecord) -> bool:
    """Whether tasks or calls run on a host, or are on their way there."""
    return any(
        worker.running
        or worker.blocked
        or worker.ahead
        or any(actor.sent for actor in worker.actors.values())
        for team in host.teams.values()
        for worker in team.workers.values()
    )


def note_moved(tables: Tables, object_id: ObjectId, *, moved: bool) -> None:
    """Take the end of a copy that was to save an object."""
    host = tables.leaving.get(tables.moving.pop(object_id, 0))
    if host is not None:
        if not moved:
            host.unmovable.add(object_id)
        tables.dirty = True


def note_kept(tables: Tables, event: ObjectChecked) -> None:
    """Take a host's word about a copy that is to take the place of an object on a host that leaves."""
    host = tables.leaving.get(tables.keeping.pop(event.id, 0))
    tables.dirty = True
    copies, record = tables.copies.get(event.id, {}), tables.objects.get(event.id)
    if not event.there:
        drop_copy(tables, event.id, event.host)
    elif host is not None and record is not None and event.host in copies:
        # The first one takes its place.
        tables.copies[event.id] = {event.host: copies[event.host], **copies}
        lose(tables, record, host.leaving)


def move_anew(tables: Tables) -> None:
    """Begin again with all that is on its way: a host or client that is gone may have had to do with it."""
    if tables.moving or tables.keeping:
        tables.moving.clear()
        tables.keeping.clear()
        tables.dirty = True


def _move(tables: Tables, host: HostRecord) -> None:
    for object_id in tuple(chain(host.objects, host.spilling, host.stuck)):
        if object_id in tables.moving or object_id in tables.keeping or object_id in host.unmovable:
            continue
        record = tables.objects.get(object_id)
        if record is None or type(record.outcome) is not Stored or record.outcome.host != host.id:
            continue
        copies = tables.copies.get(object_id, {})
        staying = [other for other in copies if not tables.hosts[other].leaving]
        if staying:
            # It may have gone for lack of room; the answer is that it stays from now on.
            tables.keeping[object_id] = host.id
            tables.commands.append(CheckObject(staying[0], object_id))
        elif len(tables.moving) < MOST_MOVING:
            tables.moving[object_id] = host.id
            tables.commands.append(CopyObject(host.id, object_id))
        else:
            return
