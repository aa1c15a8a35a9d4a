"""A frozen summary of a pool for logs, tests and people who watch it. It changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fray.runtime.pool.machine.devices import UNITS
from fray.runtime.pool.machine.growth import count_waiting
from fray.runtime.pool.machine.records import HostRecord, Run, RunTotals, TaskRecord
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.machine.waits import describe_waits
from fray.runtime.pool.messages.specs import HostId, Shape

__all__ = ["FunctionStats", "HostStats", "PoolStats", "count_running", "list_finished", "take_snapshot"]

MOST_SHAPES: Final = 50
"""Of what waits."""


@dataclass(frozen=True, slots=True)
class HostStats:
    """One host: what it offers and has free, and its store in bytes."""

    name: str
    offered: Shape
    free: Shape
    workers: int
    """Processes that have joined."""
    starting: int
    memory: int
    spilled: int
    copies: int = 0
    """Bytes of objects of other hosts that were read here; some may have gone for lack of room."""


@dataclass(frozen=True, slots=True)
class FunctionStats:
    """The runs of one function, or of an actor's method, that have ended; retried ones count each time."""

    name: str
    done: int
    failed: int
    seconds: float
    """Of all of them together, by the clocks of their workers."""
    longest: float


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The pool at one moment."""

    tasks: Mapping[str, int]
    """State -> tasks and calls in it; those that have ended and aren't kept are in `counters`."""
    actors: Mapping[str, int]
    hosts: Mapping[HostId, HostStats]
    objects: int
    counters: Mapping[str, int]
    """Since the pool began: submitted, done, failed, cancelled, retried, rebuilt, preempted, workers_lost,
    items."""
    ignored: Mapping[str, int]
    """What was reported and didn't count, by kind and reason."""
    lineage_bytes: int
    waits: tuple[str, ...]
    """Who waits for whom, and why, in words: the first ones."""
    functions: tuple[FunctionStats, ...]
    """Those that took most time first; bounded."""
    demand: tuple[tuple[Shape, int], ...] = ()
    """What waits for room, tasks and actors: how many of each shape, those first that are most; bounded."""


def take_snapshot(tables: Tables) -> PoolStats:
    """Return a summary; takes time in proportion to what the pool remembers."""
    makers = [record.maker for record in tables.objects.values()]
    return PoolStats(
        tasks=_count(task.state for task in makers if type(task) is TaskRecord),
        actors=_count(actor.state for actor in tables.actors.values()),
        hosts=MappingProxyType({host.id: _describe(tables, host) for host in tables.hosts.values()}),
        objects=len(tables.objects),
        counters=MappingProxyType(dict(tables.counters)),
        ignored=MappingProxyType(dict(tables.ignored)),
        lineage_bytes=tables.lineage_bytes,
        waits=describe_waits(tables),
        functions=_list_functions(tables.totals),
        demand=_list_demand(tables),
    )


def list_finished(tables: Tables, epoch: float) -> tuple[Run, ...]:
    """Return the last runs that have ended, oldest first; bounded. `epoch`: when monotonic time was 0."""
    runs = (Run(*run) for run in tables.finished)
    return tuple(
        run._replace(submitted=run.submitted + epoch, sent=run.sent + epoch, reported=run.reported + epoch)
        for run in runs
    )


def count_running(tables: Tables) -> int:
    """Return how many tasks and calls workers have, those sent ahead apart; takes time per worker, actor."""
    return sum(
        len(worker.running) + len(worker.blocked) + sum(len(actor.sent) for actor in worker.actors.values())
        for worker in tables.workers.values()
    )


def _count(states: Iterable[str]) -> Mapping[str, int]:
    return MappingProxyType(dict(Counter(states)))


def _describe(tables: Tables, host: HostRecord) -> HostStats:
    processes = [worker for team in host.teams.values() for worker in team.workers.values()]
    return HostStats(
        name=host.name,
        offered=_shape(host.total),
        free=_shape(host.free),
        workers=sum(worker.joined for worker in processes),
        starting=sum(not worker.joined for worker in processes),
        memory=host.memory + sum(host.stuck.values()),
        spilled=sum(host.spilling.values()),
        copies=sum(copies.get(host.id, 0) for copies in tables.copies.values()),
    )


def _list_functions(totals: Mapping[str, RunTotals]) -> tuple[FunctionStats, ...]:
    found = (
        FunctionStats(name, each.done, each.failed, each.seconds, each.longest)
        for name, each in totals.items()
    )
    return tuple(sorted(found, key=lambda function: (-function.seconds, function.name)))


def _list_demand(tables: Tables) -> tuple[tuple[Shape, int], ...]:
    return tuple(
        (_shape(dict(needs)), count) for needs, count in count_waiting(tables).most_common(MOST_SHAPES)
    )


def _shape(amounts: Mapping[str, int]) -> Shape:
    return tuple((name, amount / UNITS) for name, amount in sorted(amounts.items()))
