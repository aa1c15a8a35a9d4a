"""Which ready task begins next: turns between demands, sending ahead, asking back.

Demands (a profile and a shape) take turns, callers take turns within a demand. A demand that is passed
over too often gets a host kept free for it.
"""

from __future__ import annotations

from collections.abc import Collection

from fray.runtime.pool.machine.devices import UNITS
from fray.runtime.pool.machine.functions import MOST_AHEAD
from fray.runtime.pool.machine.placement import choose_worker, start_process_for
from fray.runtime.pool.machine.queues import front, pop, values_of
from fray.runtime.pool.machine.records import Demand, HostRecord, WorkerRecord, without_cpus
from fray.runtime.pool.machine.resources import fits, note_homeless
from fray.runtime.pool.machine.slots import send_ahead, start
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.messages.commands import ReclaimTasks
from fray.runtime.pool.messages.specs import PLAIN

__all__ = ["schedule"]

PATIENCE = 16
"""Tasks of others that begin before a demand that is passed over gets a host kept free."""
CALLERS_TRIED = 16
"""Callers looked at to find one that may send another task ahead to a worker."""


def schedule(tables: Tables) -> None:
    """Begin all that can begin, send ahead what may be, and ask back what idle workers could run."""
    tables.dirty = False
    active = tables.active
    refused = 0
    while active and refused < len(active):
        demand = active[0]
        if demand.refused != tables.freed and _start_one(tables, demand):
            refused = 0
        else:
            demand.refused = tables.freed
            refused += 1
        if len(active) > 1 and active[0] is demand:
            active.rotate(-1)
    plain = tables.plain
    touched = tables.touched
    if touched:
        tables.touched = {}
        if plain is not None and plain.queued and not _is_held_back(tables, plain):
            _fill_all(tables, touched.values(), plain)
    if tables.sent_ahead and plain is not None and not plain.queued:
        _reclaim(tables)


def _start_one(tables: Tables, demand: Demand) -> bool:
    """Begin one task of a demand; return False when none can begin now."""
    while (task := front(demand)) is not None:
        worker = choose_worker(tables, demand, task)
        if worker is None:
            if demand.profile != PLAIN and start_process_for(tables, demand):
                return True
            _note_refusal(tables, demand)
            return False
        values = values_of(tables, task)
        if values is None:
            continue
        pop(tables, demand)
        start(tables, task, worker, values)
        demand.passed = 0
        if tables.reserved is not None and tables.reserved[0] is demand:
            tables.reserved = None
            tables.freed += 1
        if len(tables.active) > 1:
            _count_passed(tables, demand)
        return True
    return False


def _note_refusal(tables: Tables, demand: Demand) -> None:
    """Find out whether a demand waits for CPUs alone: then others mustn't take them ahead of it."""
    if demand.scarce and len(demand.needs) == 1:
        return
    demand.scarce = demand.cpu > 0 and any(
        _fits_but_for_cpus(host, demand) and host.total.get("CPU", 0) >= demand.cpu
        for host in tables.hosts.values()
    )
    if not demand.scarce:
        note_homeless(tables, demand.needs)


def _fits_but_for_cpus(host: HostRecord, demand: Demand) -> bool:
    team = host.teams.get(demand.profile)
    ready = demand.devices and team is not None and team.idle  # its process has the devices
    return fits(host, without_cpus(demand.taken if ready else demand.needs))


def _count_passed(tables: Tables, started: Demand) -> None:
    for demand in tables.active:
        if demand is started or not demand.scarce:
            continue
        demand.passed += 1
        if demand.passed > PATIENCE and tables.reserved is None:
            possible = [
                host
                for host in tables.hosts.values()
                if not host.leaving
                and all(host.total.get(name, 0) >= amount for name, amount in demand.needs)
            ]
            if possible:
                tables.reserved = (demand, max(possible, key=lambda host: host.free.get("CPU", 0)))


def _is_held_back(tables: Tables, plain: Demand) -> bool:
    if any(tables.actor_queues.values()):
        return True
    return any(demand.scarce and demand is not plain for demand in tables.active)


def _fill_all(tables: Tables, touched: Collection[WorkerRecord], plain: Demand) -> None:
    """Send tasks ahead to workers, those first that have least; one at a time, so that all get some."""
    if len(touched) == 1:
        for worker in touched:
            _fill(tables, worker, plain, MOST_AHEAD)
        return
    taking = sorted(touched, key=lambda worker: len(worker.ahead))
    while taking and plain.queued:
        taking = [worker for worker in taking if plain.queued and _fill(tables, worker, plain, 1)]


def _fill(tables: Tables, worker: WorkerRecord, demand: Demand, most: int) -> bool:
    """Send up to `most` tasks ahead to a busy worker, in turns, as deep as their functions are fast.

    Returns whether it might take more.
    """
    if not _takes_ahead(tables, worker, demand):
        return False
    full = 0
    sent = 0
    while sent < most and full < CALLERS_TRIED and (task := front(demand)) is not None:
        spec = task.spec
        depth = tables.functions[spec.function].depth
        if not depth or not spec.retries or spec.timeout or spec.streaming or task.attempt > 1:
            return False  # it begins when this worker is free: nothing may be put before it
        if worker.ahead_of.get((task.client, spec.parent), 0) >= depth:
            full += 1
            if full >= len(demand.queues):
                return False
            demand.queues.rotate(-1)
            continue
        values = values_of(tables, task) if spec.deps else ()
        if values is None:
            continue
        pop(tables, demand)
        send_ahead(tables, task, worker, values)
        full = 0
        sent += 1
    return sent == most


def _takes_ahead(tables: Tables, worker: WorkerRecord, demand: Demand) -> bool:
    """Whether a worker is busy with fast tasks of the demand, so that more of them may wait there."""
    running = worker.running
    if worker.closing or worker.host.leaving or worker.profile is not PLAIN:
        return False
    if not (running or worker.ahead):
        return False
    for other in running.values():
        # Nothing waits behind a task that was lost before: it would be charged for it the next time.
        if other.attempt > 1 or other.demand is not demand or not tables.functions[other.spec.function].depth:
            return False
    return True


def _reclaim(tables: Tables) -> None:
    """Ask the worker with most waiting tasks for half of them, if another could run them now."""
    if tables.reclaiming is not None:
        return
    idle = any(
        PLAIN in host.teams and host.teams[PLAIN].idle and host.free["CPU"] >= UNITS
        for host in tables.open_hosts.values()
    )
    if not idle:
        return
    victim = max(tables.workers.values(), key=lambda worker: len(worker.ahead))
    if victim.ahead:
        tables.reclaiming = victim
        count = (len(victim.ahead) + 1) // 2
        tables.commands.append(ReclaimTasks(victim.id, count))
