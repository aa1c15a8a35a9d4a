"""The pool's state machine: events in, commands out. No clock, no sockets, no processes, no chance.

The head's shell feeds it and carries out what it says. The same events at the same times give the same
commands, so that any story can be played again in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fray.runtime.pool.machine import (
    actors,
    cancelling,
    copies,
    growth,
    leaving,
    lineage,
    objects,
    streams,
    tasks,
    workers,
)
from fray.runtime.pool.machine.crowding import note_inline
from fray.runtime.pool.machine.invariants import check_tables
from fray.runtime.pool.machine.message_checks import RefusedMessageError
from fray.runtime.pool.machine.records import ActorRecord, ObjectRecord, Run
from fray.runtime.pool.machine.resources import describe_needs
from fray.runtime.pool.machine.scheduling import schedule
from fray.runtime.pool.machine.snapshot import PoolStats, count_running, list_finished, take_snapshot
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.machine.transitions import ACTOR_TRANSITIONS, TASK_TRANSITIONS, Cause, StateName
from fray.runtime.pool.machine.waits import describe_doubt, describe_waits, is_at_work
from fray.runtime.pool.messages.commands import Command
from fray.runtime.pool.messages.events import (
    ActorEnded,
    ActorReady,
    ActorSubmitted,
    ClientJoined,
    ClientLost,
    Event,
    FetchFailed,
    FilesFound,
    HostJoined,
    HostLeaving,
    HostLost,
    HostStaying,
    ItemsConsumed,
    ItemsProduced,
    KillActor,
    NannyLost,
    ObjectChecked,
    ObjectCopied,
    ObjectPut,
    ObjectRelayed,
    ObjectSpilled,
    ObjectsWanted,
    RefsAdded,
    RefsReleased,
    TaskBegun,
    TaskBlocked,
    TaskCancelled,
    TaskDone,
    TasksReturned,
    TaskSubmitted,
    TaskUnblocked,
    TimerFired,
    WorkerJoined,
    WorkerLost,
)
from fray.runtime.pool.messages.specs import DRIVER, ClientId, HostId, Shape

__all__ = ["PoolState"]


STALL_SECONDS = 10.0
"""Without any event, and without anything that runs, until there is a warning."""
UNREADABLE_SECONDS = 3.0
"""From the first reader that couldn't read an object where it is, until there is a warning."""


class PoolState:
    """All tasks, objects, actors, workers and hosts of one pool, and what is to be done about them.

    `allowed`: what each kind of host has that may join later; None: nobody knows. What none of them and no
    host that is here can have is refused. `inline_limit`: bytes of values and arguments in messages that the
    head keeps before clients put them into stores; None: a gigabyte.
    """

    transitions: Mapping[str, Mapping[tuple[StateName, Cause], StateName]] = MappingProxyType(
        {"task": TASK_TRANSITIONS, "actor": ACTOR_TRANSITIONS}
    )
    """The lives of tasks and actors: (state, cause) -> state."""

    def __init__(self, allowed: Sequence[Shape] | None = (), *, inline_limit: int | None = None) -> None:
        self._tables = Tables()
        if inline_limit is not None:
            self._tables.inline_limit = inline_limit
        self._warned_at = 0.0
        if allowed is None:
            self._tables.allowed = None
        else:
            self._tables.allowed = tuple(self._tables.needs_of(shape) for shape in allowed)

    def handle(self, source: ClientId, event: Event, now: float) -> list[Command]:
        """Take one event and return what is to be done now, in order.

        `source`: who tells it (0: the driver, or the head's own shell). `now`: monotonic seconds, never
        less than at the event before. What comes too late, from one who is lost or who has no say, is
        ignored and counted (see `stats`). Raises `RefusedMessageError` for what a worker has no business to
        say, and `InvalidTransition` for a defect of the state machine.
        """
        tables = self._tables
        tables.now = now
        commands: list[Command] = []
        tables.commands = commands
        kind = type(event)
        handler = _OF_CLIENTS.get(kind)
        if handler is None:
            if source != DRIVER:
                raise RefusedMessageError(kind.__name__, "isn't for a worker to say")
            handler = _OF_SHELL[kind]
        elif source != DRIVER and source not in tables.clients:
            tables.ignore(f"{kind.__name__}: its client is lost")
            if kind in _WITH_VALUES:
                objects.discard(tables, event.id, event.outcome)  # type: ignore[union-attr]
            elif kind is ItemsProduced:
                streams.discard_items(tables, event)  # type: ignore[arg-type]
            return commands
        handler(tables, source, event)
        if tables.dirty or tables.woken or tables.abandoned or tables.unreferenced:
            _follow_up(tables)
        if tables.crowded or tables.inline_bytes > tables.inline_limit:
            note_inline(tables)
        return commands

    def take_decided(self) -> list[Command]:
        """Return what was to be done by the time that `handle` raised: the state counts on it."""
        decided, self._tables.commands = self._tables.commands, []
        return decided

    @property
    def homeless(self) -> tuple[str, ...]:
        """What ready tasks or actors need that no host has any more, in words."""
        return tuple(describe_needs(needs) for needs in self._tables.homeless)

    def find_stall(self, now: float) -> tuple[str, ...]:
        """Return who waits for whom if nothing runs and nothing has happened for 10 s; once each time."""
        tables = self._tables
        if now < tables.now + STALL_SECONDS or self._warned_at == tables.now:
            return ()
        self._warned_at = tables.now
        return () if is_at_work(tables) else describe_waits(tables)

    def find_unreadable(self, now: float) -> tuple[str, ...]:
        """Return who has waited 3 s and more for what can't be read from there; once for each object."""
        found = []
        for key, doubt in self._tables.doubts.items():
            if doubt.clients and not doubt.reported and now >= doubt.since + UNREADABLE_SECONDS:
                doubt.reported = True
                found.append(describe_doubt(self._tables, key, doubt))
        return tuple(found)

    def find_warnings(self, now: float) -> Iterator[str]:
        """Give what people are to be told by now: what waits while nothing runs, and what can't be read."""
        if waits := self.find_stall(now):
            yield "\n  ".join(["nothing has run in the pool for a while:", *waits])
        if unreadable := self.find_unreadable(now):
            yield "\n  ".join(["values can't be read, which is tried again:", *unreadable])

    def ended(self, client: ClientId) -> tuple[int, int]:
        """Return how many tasks and calls of a client have ended, and the bytes of their arguments."""
        return self._tables.ended.get(client, (0, 0))

    def check(self) -> None:
        """Raise AssertionError unless all that is remembered fits together; slow, for tests."""
        check_tables(self._tables)

    def stats(self) -> PoolStats:
        """Return a frozen summary of the pool as it is now."""
        return take_snapshot(self._tables)

    @property
    def counters(self) -> Mapping[str, int]:
        """What has happened since the pool began, as `PoolStats.counters`; not to be kept: it changes."""
        return self._tables.counters

    def runs(self, epoch: float) -> tuple[Run, ...]:
        """Return the last runs that have ended, oldest first; bounded.

        `epoch`: when the head's monotonic clock was 0, in seconds since the epoch.
        """
        return list_finished(self._tables, epoch)

    def count_wanted_hosts(self, offered: Shape = ()) -> int:
        """Return how many hosts there is work for that offer so much each (empty: as those that are here)."""
        return growth.count_wanted(self._tables, self._tables.needs_of(offered))

    def count_worker_hosts(self) -> int:
        """Return how many hosts take tasks."""
        return growth.count_hosts(self._tables)

    def list_idle_hosts(self) -> tuple[HostId, ...]:
        """Return the hosts that could go without any loss of work, those first that keep fewest objects."""
        return growth.list_idle(self._tables)

    def list_movable_hosts(self) -> tuple[HostId, ...]:
        """Return the hosts that could go once their tasks have ended, those first that have fewest."""
        return growth.list_movable(self._tables)

    def list_recallable_hosts(self) -> tuple[HostId, ...]:
        """Return the hosts that were asked to go, and may still stay."""
        return growth.list_recallable(self._tables)

    def count_running(self) -> int:
        """Return how many tasks and calls workers have, those sent ahead apart; cheaper than `stats`."""
        return count_running(self._tables)


def _follow_up(tables: Tables) -> None:
    """Do what follows from an event until nothing does any more."""
    while True:
        if tables.woken:
            _wake(tables)
        elif tables.abandoned:
            for task in _taken(tables.abandoned):
                cancelling.abandon(tables, task)
        elif tables.unreferenced:
            for actor in _taken(tables.unreferenced):
                actors.drop_unreferenced(tables, actor)
        elif tables.dirty:
            tables.dirty = False
            if tables.actor_queues:
                actors.place_actors(tables)
            schedule(tables)
            if tables.leaving:
                leaving.advance(tables)
        else:
            return


def _taken(items: list[Any]) -> list[Any]:
    taken = items[:]
    items.clear()
    return taken


def _wake(tables: Tables) -> None:
    woken = tables.woken.popleft()
    if type(woken) is ActorRecord:
        actors.wake_actor(tables, woken)
    elif tasks.wake(tables, woken) and woken.demand is None:  # type: ignore[arg-type,union-attr]
        actor = tables.actors.get(woken.spec.actor)  # type: ignore[union-attr]
        if actor is not None:
            actors.pump_all(tables, actor)


# --- what is said of single objects ------------------------------------------------------------------------


def _submit(tables: Tables, source: ClientId, event: TaskSubmitted) -> None:
    if event.spec.actor:
        actors.call(tables, source, event)
    else:
        tasks.submit(tables, source, event)


def _put(tables: Tables, source: ClientId, event: ObjectPut) -> None:
    if event.id in tables.objects:
        tables.ignore("ObjectPut: its identity is taken")
        return
    record = tables.objects[event.id] = ObjectRecord(event.id, None)
    objects.add_holder(tables, record, source)
    objects.place(tables, record, event.outcome)


def _want(tables: Tables, source: ClientId, event: ObjectsWanted) -> None:
    for object_id in event.ids:
        lineage.deliver(tables, source, object_id)


def _add(tables: Tables, source: ClientId, event: RefsAdded) -> None:
    for object_id in event.ids:
        record = tables.objects.get(object_id)
        if record is None:
            tables.ignore("RefsAdded: not known")
        else:
            objects.add_holder(tables, record, source)


def _release(tables: Tables, source: ClientId, event: RefsReleased) -> None:
    known = tables.objects
    for object_id in event.ids:
        record = known.get(object_id)
        if record is None or not objects.drop_holder(tables, record, source):
            tables.ignore("RefsReleased: not held")
        elif record.holders is None and not record.holds:
            objects.collect(tables, record)


_OF_CLIENTS: dict[type, Callable[[Tables, ClientId, Any], None]] = {
    TaskSubmitted: _submit,
    ActorSubmitted: actors.create,
    KillActor: actors.kill,
    ObjectPut: _put,
    ObjectsWanted: _want,
    RefsAdded: _add,
    RefsReleased: _release,
    ItemsConsumed: streams.consume,
    TaskCancelled: cancelling.cancel,
    FetchFailed: copies.refetch,
    ObjectCopied: copies.note_copied,
    TaskDone: tasks.complete,
    TaskBegun: tasks.note_begun,
    TaskBlocked: tasks.block,
    TaskUnblocked: tasks.unblock,
    TasksReturned: tasks.return_tasks,
    ItemsProduced: streams.produce,
    ActorReady: actors.answer_ready,
    ActorEnded: actors.answer_end,
}

_WITH_VALUES = frozenset((TaskDone, ObjectPut))

_OF_SHELL: dict[type, Callable[[Tables, ClientId, Any], None]] = {
    ObjectSpilled: workers.note_spilled,
    ObjectChecked: copies.note_checked,
    ObjectRelayed: copies.note_relayed,
    FilesFound: workers.free_unknown,
    HostJoined: workers.join_host,
    HostLeaving: leaving.leave,
    HostLost: workers.lose_host,
    HostStaying: workers.keep_host,
    NannyLost: workers.lose_nanny,
    WorkerJoined: workers.join_worker,
    WorkerLost: workers.lose_worker,
    ClientJoined: workers.join_client,
    ClientLost: workers.lose_client,
    TimerFired: workers.fire,
}
