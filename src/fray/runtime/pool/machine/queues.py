"""The queues of ready tasks: a demand for each profile and shape, in it a queue for each caller.

What is taken from a queue, and when, is decided in `scheduling`.
"""

from __future__ import annotations

from collections.abc import Iterable

from fray.runtime.pool.machine.devices import UNITS, split_needs
from fray.runtime.pool.machine.objects import readable
from fray.runtime.pool.machine.records import (
    CallerQueue,
    Demand,
    TaskRecord,
    with_threads,
)
from fray.runtime.pool.machine.resources import build_needs
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.machine.transitions import (
    READY,
    UNREADY,
)
from fray.runtime.pool.messages.specs import DEFAULT_SHAPE, PLAIN, Failed, Profile, Value

__all__ = ["demand_of", "enqueue", "front", "gather", "pop", "touch_all", "values_of", "withdraw"]


def demand_of(tables: Tables, profile: Profile, shape: tuple[tuple[str, float], ...]) -> Demand:
    """Return the demand of a profile and shape."""
    key = (profile, shape)
    demand = tables.demands.get(key)
    if demand is None:
        plain = profile == PLAIN and shape == DEFAULT_SHAPE
        needs = build_needs(tables, shape)
        devices = split_needs(needs)[0]
        profile = with_threads(profile, shape)._replace(limited="memory" in dict(needs))
        if devices:
            profile = profile._replace(devices=tuple((name, amount / UNITS) for name, amount in devices))
        demand = tables.demands[key] = Demand(profile, shape, needs, devices, plain=plain)
        if plain:
            tables.plain = demand
    return demand


def enqueue(tables: Tables, task: TaskRecord, *, first: bool = False) -> None:
    """Queue a task that is READY: behind its caller's others, or before them if it had left the queue."""
    demand: Demand = task.demand  # type: ignore[assignment]
    key = (task.client, task.spec.parent)
    queue = demand.callers.get(key)
    if queue is None:
        queue = demand.callers[key] = CallerQueue(key)
        demand.queues.append(queue)
        tables.dirty = True
        if demand.plain and not tables.open_hosts:
            touch_all(tables)
    elif first:
        tables.dirty = True
    if first:
        queue.tasks.appendleft(task)
    else:
        queue.tasks.append(task)
    if not demand.queued:
        tables.active.append(demand)
        tables.dirty = True
        demand.refused = -1
    demand.queued += 1


def withdraw(tables: Tables, task: TaskRecord) -> None:
    """Take a READY task out of the queue; its place there is skipped later."""
    demand: Demand = task.demand  # type: ignore[assignment]
    demand.queued -= 1
    if not demand.queued:
        _empty(tables, demand)


def _empty(tables: Tables, demand: Demand) -> None:
    demand.callers.clear()
    demand.queues.clear()
    demand.scarce = False
    demand.passed = 0
    tables.active.remove(demand)
    if tables.reserved is not None and tables.reserved[0] is demand:
        tables.reserved = None
        tables.freed += 1
    if tables.active:
        # What this one's waiting held back may now be sent ahead.
        tables.dirty = True
        touch_all(tables)


def front(demand: Demand) -> TaskRecord | None:
    """Return the task whose turn it is; what has left the queue otherwise is dropped on the way."""
    queues = demand.queues
    while queues:
        queue = queues[0]
        tasks = queue.tasks
        while tasks:
            task = tasks[0]
            if task.state is READY:
                return task
            tasks.popleft()
        queues.popleft()
        del demand.callers[queue.key]
    return None


def pop(tables: Tables, demand: Demand) -> None:
    """Take away the task at the front: the next turn is another caller's."""
    queues = demand.queues
    queue = queues[0]
    queue.tasks.popleft()
    if not queue.tasks:
        queues.popleft()
        del demand.callers[queue.key]
    elif len(queues) > 1:
        queues.rotate(-1)
    demand.queued -= 1
    if not demand.queued:
        _empty(tables, demand)


def touch_all(tables: Tables) -> None:
    """Note that every plain worker might take tasks ahead that it couldn't before."""
    for host in tables.hosts.values():
        team = host.teams.get(PLAIN)
        if team is not None:
            tables.touched.update(team.workers)


def gather(tables: Tables, deps: Iterable[int]) -> tuple[Value, ...] | None:
    """Return the values of all dependencies, or None when one isn't there (or has failed) by now."""
    records = [tables.objects[object_id] for object_id in deps]
    if tables.copies:
        found = [readable(tables, record) for record in records]
    else:
        found = [record.outcome for record in records]
    return None if _MISSING.intersection(map(type, found)) else tuple(found)  # type: ignore[arg-type]


_MISSING = frozenset((type(None), Failed))


def values_of(tables: Tables, task: TaskRecord) -> tuple[Value, ...] | None:
    """Return the values that the front task needs; if one was lost since, the task waits again."""
    values = gather(tables, task.spec.deps)
    if values is None:
        tables.move(task, UNREADY)
        pop(tables, task.demand)  # type: ignore[arg-type]
        tables.woken.append(task)
    return values
