"""How many hosts of workers there is work for, and which of those that are here have none. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fray.runtime.pool.machine.devices import UNITS
from fray.runtime.pool.machine.leaving import is_at_work
from fray.runtime.pool.machine.placement import MOST_BESIDE
from fray.runtime.pool.machine.records import HostRecord, Needs
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.messages.specs import HostId

__all__ = [
    "count_hosts",
    "count_missing",
    "count_waiting",
    "count_wanted",
    "list_idle",
    "list_movable",
    "list_recallable",
]

ONE_CPU: Needs = (("CPU", UNITS),)


def count_hosts(tables: Tables) -> int:
    """Return how many hosts take tasks; those of clients and those that leave don't."""
    return sum(1 for _ in _workers(tables))


def count_wanted(tables: Tables, offered: Needs = ()) -> int:
    """Return how many hosts there is work for: those at work, and those that what waits would fill.

    `offered` is what each host has (empty: as the largest that is here, or one CPU). What such a host can't
    ever hold counts for nothing.
    """
    hosts = tuple(_workers(tables))
    busy = sum(_is_busy(host) for host in hosts)
    if not offered:
        largest = max((host.total for host in hosts), key=lambda total: total.get("CPU", 0), default=None)
        offered = ONE_CPU if largest is None else tuple(largest.items())
    return busy + count_missing(offered, count_waiting(tables).items())


def count_waiting(tables: Tables) -> Counter[Needs]:
    """Return what waits for room, tasks and actors: how many of each kind of needs."""
    waiting: Counter[Needs] = Counter()
    for demand in tables.active:
        waiting[demand.needs] += demand.queued
    for needs, queue in tables.actor_queues.items():
        waiting[needs] += len(queue)
    return waiting


def count_missing(
    offered: Sequence[tuple[str, float]], waiting: Iterable[tuple[Sequence[tuple[str, float]], int]]
) -> int:
    """Return how many hosts that offer so much each are filled by what waits: amounts by name, and a count.

    What such a host can't ever hold counts for nothing.
    """
    # A share of a host each: what waits of different kinds may share hosts.
    missing = sum(count / room for needs, count in waiting if (room := _count_room(offered, needs)))
    return math.ceil(round(missing, 6))


def list_idle(tables: Tables) -> tuple[HostId, ...]:
    """Return the hosts that run nothing and have no actor, those first that keep least."""
    idle = [host for host in _workers(tables) if not _is_busy(host)]
    return tuple(host.id for host in sorted(idle, key=lambda host: (host.memory, -host.id)))


def list_movable(tables: Tables) -> tuple[HostId, ...]:
    """Return the hosts at work that have no actor, those first whose tasks and calls are fewest."""
    busy = [host for host in _workers(tables) if is_at_work(host) and not _has_actors(host)]
    return tuple(host.id for host in sorted(busy, key=lambda host: (_count_tasks(host), -host.id)))


def list_recallable(tables: Tables) -> tuple[HostId, ...]:
    """Return the hosts that were asked to go, and stay if they are wanted again."""
    return tuple(host.id for host in tables.leaving.values() if host.recallable and not host.released)


def _workers(tables: Tables) -> Iterator[HostRecord]:
    return (host for host in tables.hosts.values() if host.wanted and not host.leaving)


def _is_busy(host: HostRecord) -> bool:
    """Whether a host can't go without loss: an actor keeps it, at work or not."""
    return _has_actors(host) or is_at_work(host)


def _has_actors(host: HostRecord) -> bool:
    return any(worker.actors for team in host.teams.values() for worker in team.workers.values())


def _count_tasks(host: HostRecord) -> int:
    processes = [worker for team in host.teams.values() for worker in team.workers.values()]
    return sum(len(one.running) + len(one.blocked) + len(one.ahead) for one in processes)


def _count_room(offered: Sequence[tuple[str, float]], needs: Sequence[tuple[str, float]]) -> int:
    """Return how many of one kind fit on an empty host."""
    there = dict(offered)
    rooms = [int(there.get(name, 0) // amount) for name, amount in needs]
    return min(rooms, default=MOST_BESIDE)
