"""Where a task can run: locality, resources, the least loaded worker, or a process that must be started."""

from __future__ import annotations

from fray.runtime.pool.machine.devices import UNITS, split_needs
from fray.runtime.pool.machine.records import (
    Demand,
    HostRecord,
    Needs,
    TaskRecord,
    Team,
    WorkerRecord,
)
from fray.runtime.pool.machine.resources import fits, take, take_devices
from fray.runtime.pool.machine.slots import retire
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.messages.commands import StartWorker
from fray.runtime.pool.messages.specs import PLAIN, Profile, Stored

__all__ = [
    "MOST_FAILED_STARTS",
    "choose_worker",
    "free_devices",
    "may_start",
    "start_process",
    "start_process_for",
]

MOST_BESIDE = 128
"""Tasks without CPUs that run in one worker at once; blocked ones don't count."""
MOST_FAILED_STARTS = 8
"""Starts in succession, with growing pauses, of which no worker joins, until those who wait get an error."""


def choose_worker(tables: Tables, demand: Demand, task: TaskRecord) -> WorkerRecord | None:
    """Return a worker for a task: on the host with most of what it reads, where it fits."""
    hosts = tables.open_hosts if demand.cpu else tables.hosts
    if not hosts:
        return None
    if task.spec.deps and len(tables.hosts) > 1:
        for host in _hosts_by_bytes(tables, task):
            worker = _worker_on(tables, host, demand, task)
            if worker is not None:
                return worker
    if demand.cpu:
        for host in hosts.values():
            worker = _worker_on(tables, host, demand, task)
            if worker is not None:
                return worker
        return None
    found = [_worker_on(tables, host, demand, task) for host in hosts.values()]
    return min((worker for worker in found if worker is not None), key=_load, default=None)


def _hosts_by_bytes(tables: Tables, task: TaskRecord) -> list[HostRecord]:
    sizes: dict[int, int] = {}
    for object_id in task.spec.deps:
        outcome = tables.objects[object_id].outcome
        if type(outcome) is Stored and outcome.host in tables.hosts:
            for host in (outcome.host, *tables.copies.get(object_id, ())):
                sizes[host] = sizes.get(host, 0) + outcome.size
    return [tables.hosts[host] for host in sorted(sizes, key=lambda host: -sizes[host])]


def _load(worker: WorkerRecord) -> int:
    return len(worker.running) + worker.expecting


def _has_room(worker: WorkerRecord, cpu: int) -> bool:
    """Whether a task may run beside others in one process: not where it would wait for their GIL.

    It may where all of them together need no more than the process's part of the host, as those do that need
    less than one CPU, and where the task needs more than any process's part.
    """
    host = worker.host
    part = max(UNITS, host.total.get("CPU", 0) // max(host.wanted, 1))
    used = sum(other.demand.cpu for other in worker.running.values() if other.demand is not None)
    used += UNITS if worker.expecting else 0
    return used + cpu <= part or cpu > part


def _may_share(worker: WorkerRecord, task: TaskRecord) -> bool:
    """Whether a task may run beside what runs there: one that was lost before may not, nor beside one.

    If it's what ended its worker, the others would be charged for it again.
    """
    return not any(
        other.demand is not None and other.demand.cpu and (task.attempt > 1 or other.attempt > 1)
        for other in worker.running.values()
    )


def _worker_on(tables: Tables, host: HostRecord, demand: Demand, task: TaskRecord) -> WorkerRecord | None:
    reserved = tables.reserved
    if demand.cpu and reserved is not None and reserved[1] is host and reserved[0] is not demand:
        return None
    if not fits(host, demand.taken):
        return None
    team = host.teams.get(demand.profile)
    if team is None:
        return None
    if demand.devices or demand.profile.limited:  # a task that waits keeps those of its process
        return next((worker for worker in team.idle.values() if not worker.blocked), None)
    if team.idle:
        return next(iter(team.idle.values()))
    if demand.cpu and demand.profile != PLAIN:
        return None
    usable = [worker for worker in team.workers.values() if worker.joined and not worker.closing]
    if demand.cpu:
        usable = [worker for worker in usable if _may_share(worker, task)]
        usable = [worker for worker in usable if _has_room(worker, demand.cpu)]
    worker = min(usable, key=_load, default=None)
    if worker is None or (not demand.cpu and len(worker.running) >= MOST_BESIDE):
        return None
    return worker


def may_start(tables: Tables, host: HostRecord, profile: Profile) -> bool:
    """Whether a process of a profile may be started on a host now, or the last ones ended too soon."""
    team = host.teams.get(profile)
    return team is None or team.retry_at <= tables.now


def start_process(tables: Tables, host: HostRecord, profile: Profile, held: Needs) -> WorkerRecord:
    """Start a worker on a host, holding resources for it until it has joined."""
    team = host.teams.get(profile)
    if team is None:
        team = host.teams[profile] = Team()
    worker = WorkerRecord(tables.next_worker, host, team, profile, tables.now)
    tables.next_worker += 1
    tables.workers[worker.id] = worker
    tables.clients[worker.id] = set()
    team.workers[worker.id] = worker
    team.starting += 1
    worker.held = held
    if held:
        take(tables, host, held)
        take_devices(worker)
    devices = tuple((name, tuple(claims)) for name, claims in worker.devices.items())
    tables.commands.append(StartWorker(host.id, worker.id, profile, devices))
    return worker


def start_process_for(tables: Tables, demand: Demand) -> bool:
    """Start a process for a demand with a profile of its own, unless enough are on their way."""
    starting = 0
    place: HostRecord | None = None
    for host in tables.hosts.values():
        team = host.teams.get(demand.profile)
        starting += team.starting if team is not None else 0
        reserved = tables.reserved
        kept = reserved is not None and reserved[1] is host and reserved[0] is not demand
        if (
            place is None
            and not kept
            and fits(host, demand.needs)
            and may_start(tables, host, demand.profile)
        ):
            place = host
    if place is None:
        free_devices(tables, demand.needs)
    if place is None or starting >= (demand.queued if demand.cpu or demand.devices else 1):
        return False
    start_process(tables, place, demand.profile, demand.needs)
    return True


def free_devices(tables: Tables, needs: Needs) -> None:
    """Let a process without work end that holds accelerators of such a kind, unless one ends already."""
    names = [name for name, _ in split_needs(needs)[0]]
    if not names:
        return
    holders = [worker for worker in tables.workers.values() if any(name in worker.devices for name in names)]
    unused = [worker for worker in holders if worker.idle and not worker.blocked]
    if unused and not any(worker.closing for worker in holders):
        retire(tables, unused[0], "others need its accelerators")
