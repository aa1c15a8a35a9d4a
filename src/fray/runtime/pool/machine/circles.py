"""Actors that nobody refers to but actors like them, or values that only these hold: found some time later.

Whatever a process holds, all of its actors may use, so a process counts as a whole. A search looks at all
that the processes of such actors hold. It is made a while after something was let go of, and the next one
waits the longer, the more there was to look at: searches take some 2 % of the head's time at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fray.runtime.pool.machine.records import ActorRecord, ObjectRecord
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.machine.transitions import ALIVE
from fray.runtime.pool.messages.commands import SetTimer
from fray.runtime.pool.messages.specs import DRIVER, ClientId, Inline, ObjectId, Stored

__all__ = ["doubt", "find_circle", "find_circles", "is_at_rest", "search_later"]

SEARCH_SECONDS = 1.0
"""Between two searches, at least."""
PAUSE_A_RECORD = 25e-6
"""Seconds that are added for each record that a search has looked at: some 50 times what that takes."""


def doubt(tables: Tables, actor: ActorRecord) -> None:
    """Search for circles with an actor in a while, and again when anything is let go of.

    Not while its name keeps it, or the driver, or a call: it is left to look at again at the end of these.
    """
    kept = actor.spec.name or actor.sent or actor.callers or actor.state is not ALIVE
    if kept or actor.spec.id in tables.doubtful or DRIVER in _holders(tables.objects[actor.spec.id]):
        return
    tables.doubtful[actor.spec.id] = actor
    search_later(tables)


def search_later(tables: Tables) -> None:
    """Let a search be made in a while, unless one is due."""
    if not tables.search_due:
        tables.search_due = True
        tables.commands.append(SetTimer(SEARCH_SECONDS + tables.search_pause, ("circles", 0)))


def find_circles(tables: Tables) -> list[ActorRecord]:
    """Return the doubtful actors that only refer to each other, be it by values: they may end."""
    tables.search_due = False
    looked = 0
    searched: set[ClientId] = set()
    found: dict[ObjectId, ActorRecord] = {}
    for actor in tuple(tables.doubtful.values()):
        looked += 1
        if DRIVER in _holders(tables.objects[actor.spec.id]):
            del tables.doubtful[actor.spec.id]
            continue
        # Actors of one process have the same circle.
        if actor.spec.id in found or actor.worker is None or actor.worker.id in searched:
            continue
        searched.add(actor.worker.id)
        circle, complete = find_circle(tables, actor)
        looked += len(circle)
        if complete:
            held, count = _count_holds(tables, circle)
            looked += count
            if _is_held_so(tables, circle, held):
                found |= circle
    tables.search_pause = looked * PAUSE_A_RECORD
    return list(found.values())


def find_circle(tables: Tables, actor: ActorRecord) -> tuple[dict[ObjectId, ActorRecord], bool]:
    """Look for those whose processes refer to an actor, and for those that refer to them, and so on.

    Returns whom it has found, and whether these are all, unnamed actors without a call.
    """
    circle: dict[ObjectId, ActorRecord] = {}
    processes: set[ClientId] = set()
    pending = [actor]
    while pending:
        each = pending.pop()
        clients = _holders(tables.objects[each.spec.id])
        if each.state is not ALIVE or each.worker is None or each.sent or each.spec.name or DRIVER in clients:
            return circle, False
        circle[each.spec.id] = each
        for client in {each.worker.id, *clients} - processes:
            worker = tables.workers.get(client)
            if worker is None or not worker.actors:
                return circle, False
            processes.add(client)
            pending += [mate for key, mate in worker.actors.items() if key not in circle]
    return circle, True


def is_at_rest(tables: Tables, circle: dict[ObjectId, ActorRecord]) -> bool:
    """Whether nothing holds the actors of a circle but what these were made with."""
    return _is_held_so(tables, circle, _constructed_with(circle))


def _is_held_so(tables: Tables, circle: dict[ObjectId, ActorRecord], held: Counter[ObjectId]) -> bool:
    return all(tables.objects[key].holds == held[key] for key in circle)


def _constructed_with(circle: dict[ObjectId, ActorRecord]) -> Counter[ObjectId]:
    return Counter(key for each in circle.values() for key in each.spec.holds)


def _count_holds(tables: Tables, circle: dict[ObjectId, ActorRecord]) -> tuple[Counter[ObjectId], int]:
    """Count how often records are held by the actors of a circle and by values that only these refer to.

    Returns also how many records were looked at.
    """
    held = _constructed_with(circle)
    processes = {each.worker.id for each in circle.values() if each.worker is not None}
    pending = [tables.objects[key] for key in _held_by(tables, processes, held)]
    looked = 0
    seen: set[ObjectId] = set()
    while pending:
        record = pending.pop()
        looked += 1
        outcome = record.outcome
        if not isinstance(outcome, Inline | Stored) or not outcome.contained:
            continue
        # One that other values hold too is looked at again after each of them.
        alone = record.holds == held[record.id] and processes.issuperset(_holders(record))
        if alone and record.id not in seen:
            seen.add(record.id)
            held.update(outcome.contained)
            pending += [tables.objects[key] for key in outcome.contained]
    return held, looked


def _held_by(tables: Tables, processes: set[ClientId], held: Counter[ObjectId]) -> Iterator[ObjectId]:
    yield from tuple(held)
    for process in processes:
        yield from tables.clients.get(process, ())  # it may be lost, and its actors not yet


def _holders(record: ObjectRecord) -> set[ClientId]:
    holders = record.holders
    return holders if isinstance(holders, set) else set() if holders is None else {holders}
