"""Hosts and workers coming and going, and what becomes of what they had."""

from __future__ import annotations

from fray.runtime.pool.machine.actors import end_circles, give_up, lose_actor, settle_process
from fray.runtime.pool.machine.cancelling import time_out
from fray.runtime.pool.machine.copies import try_again
from fray.runtime.pool.machine.crowding import tell_limit
from fray.runtime.pool.machine.devices import build_slots, split_needs
from fray.runtime.pool.machine.leaving import move_anew
from fray.runtime.pool.machine.objects import collect, drop_copy, drop_holder, lose
from fray.runtime.pool.machine.placement import MOST_FAILED_STARTS, may_start, start_process
from fray.runtime.pool.machine.records import Demand, HostRecord, TaskRecord, WorkerRecord
from fray.runtime.pool.machine.resources import (
    HOMELESS_SECONDS,
    build_unschedulable,
    give,
    give_devices,
    has_host,
)
from fray.runtime.pool.machine.slots import idle_seconds, leave_slot, refresh, retire
from fray.runtime.pool.machine.streams import run_on
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.machine.tasks import finish, lose_task
from fray.runtime.pool.machine.transitions import KEPT, READY, WAITING
from fray.runtime.pool.messages.commands import FreeObject, SetTimer
from fray.runtime.pool.messages.events import (
    ClientJoined,
    ClientLost,
    FilesFound,
    HostJoined,
    HostLost,
    HostStaying,
    NannyLost,
    ObjectSpilled,
    TimerFired,
    WorkerJoined,
    WorkerLost,
)
from fray.runtime.pool.messages.specs import CLIENT_BITS, DRIVER, PLAIN, ClientId, Failed, Profile, Stored

__all__ = [
    "fire",
    "free_unknown",
    "join_client",
    "join_host",
    "join_worker",
    "lose_client",
    "lose_host",
    "lose_nanny",
    "lose_worker",
    "note_spilled",
]

EARLY_SECONDS = 1.0
"""A worker that is lost within that time of its start makes the next start wait."""
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 5.0


# --- hosts -------------------------------------------------------------------------------------------------


def join_host(tables: Tables, _source: ClientId, event: HostJoined) -> None:
    """Take a host, and start its workers."""
    if event.host in tables.hosts:
        tables.ignore("HostJoined: it has joined")
        return
    total = dict(tables.needs_of(event.resources))
    host = HostRecord(event.host, event.name, total, event.workers, event.store_limit)
    host.devices = build_slots(total)
    tables.hosts[event.host] = host
    for needs in tuple(tables.homeless):
        if has_host(tables, needs):
            del tables.homeless[needs]
    if total.get("CPU", 0) > 0:
        tables.open_hosts[event.host] = host
    _start_missing(tables, host)
    tables.freed += 1
    tables.dirty = True


def keep_host(tables: Tables, _source: ClientId, event: HostStaying) -> None:
    """Let a host take tasks again that the head had asked to go, unless it goes in any case."""
    host = tables.leaving.get(event.host)
    if host is None or host.released or not host.recallable:
        tables.ignore("HostStaying: it doesn't leave, or goes in any case")
        return
    del tables.leaving[host.id]
    host.leaving, host.recallable = "", False
    host.unmovable.clear()
    if host.free.get("CPU", 0) > 0:
        tables.open_hosts[host.id] = host
    _start_missing(tables, host)
    tables.freed += 1
    tables.dirty = True


def lose_host(tables: Tables, source: ClientId, event: HostLost) -> None:
    """Take the loss of a host: of its workers, and of the objects in its store."""
    host = tables.hosts.pop(event.host, None)
    if host is None:
        tables.ignore("HostLost: not known")
        return
    tables.leaving.pop(host.id, None)
    move_anew(tables)
    tables.open_hosts.pop(event.host, None)
    if tables.reserved is not None and tables.reserved[1] is host:
        tables.reserved = None
    reason = f"was lost with its host: {event.reason}"
    for object_id in tuple(tables.copies):
        drop_copy(tables, object_id, event.host)
    for record in tuple(tables.objects.values()):
        if type(record.outcome) is Stored and record.outcome.host == event.host:
            lose(tables, record, f"host {host.name} was lost ({event.reason})")
            try_again(tables, record.id)  # who asked the owner about it gets no answer any more
    _lose_team(tables, source, host, reason)
    for demand in tables.active:
        demand.scarce = False  # the host that had the CPUs it waits for may be this one
    tables.freed += 1
    tables.dirty = True


def lose_nanny(tables: Tables, source: ClientId, event: NannyLost) -> None:
    """Take the loss of all workers of a host at once, so that none gets what another has lost."""
    host = tables.hosts.get(event.host)
    if host is None:
        tables.ignore("NannyLost: its host isn't known")
        return
    _lose_team(tables, source, host, f"was lost with its nanny: {event.reason}")
    move_anew(tables)
    for object_id in tuple(tables.doubts):
        outcome = tables.objects[object_id].outcome
        if type(outcome) is Stored and outcome.host == event.host:
            try_again(tables, object_id)  # the nanny was asked about it, and can't answer any more
    _start_missing(tables, host)
    tables.freed += 1
    tables.dirty = True


def _lose_team(tables: Tables, source: ClientId, host: HostRecord, reason: str) -> None:
    for team in tuple(host.teams.values()):
        for worker in tuple(team.workers.values()):
            if host.leaving:
                worker.end_reason = worker.end_reason or host.leaving
            _remove(tables, worker, reason)
            lose_client(tables, source, ClientLost(worker.id))


def _start_missing(tables: Tables, host: HostRecord) -> None:
    if not host.leaving and may_start(tables, host, PLAIN):
        team = host.teams.get(PLAIN)
        for _ in range(host.wanted - (len(team.workers) if team is not None else 0)):
            start_process(tables, host, PLAIN, ())


# --- workers -----------------------------------------------------------------------------------------------


def join_worker(tables: Tables, _source: ClientId, event: WorkerJoined) -> None:
    """Give work to a worker that has connected."""
    worker = tables.workers.get(event.worker)
    if worker is None or worker.joined:
        tables.ignore("WorkerJoined: not expected")
        return
    worker.joined = True
    if tables.crowded:
        tell_limit(tables, worker.id)
    worker.since = tables.now
    worker.team.starting -= 1
    worker.team.failed_starts = 0
    if worker.profile.actors:
        settle_process(tables, worker)
        refresh(tables, worker)
        return
    if worker.held:
        devices, rest = split_needs(worker.held)
        give(tables, worker.host, rest)
        worker.held = devices
        for demand in tuple(tables.active):
            if demand.profile == worker.profile:
                tables.active.remove(demand)
                tables.active.appendleft(demand)
    refresh(tables, worker)
    tables.freed += 1
    tables.dirty = True


def lose_worker(tables: Tables, _source: ClientId, event: WorkerLost) -> None:
    """Let what a worker ran be tried again or fail, and start another in its place."""
    worker = tables.workers.get(event.worker)
    if worker is None:
        tables.ignore("WorkerLost: not known")
        return
    if event.expected and not worker.end_reason:
        worker.end_reason = event.reason
    team = worker.team
    early = not worker.end_reason and (not worker.joined or tables.now - worker.since < EARLY_SECONDS)
    early = early and not worker.begun
    if early and team.retry_at <= tables.now:  # those started together count once
        team.failed_starts += not worker.joined
        team.backoff = min(LONGEST_BACKOFF, max(FIRST_BACKOFF, team.backoff * 2))
        team.retry_at = tables.now + team.backoff
        tables.commands.append(SetTimer(team.backoff, ("start", worker.host.id)))
    elif team.retry_at <= tables.now:
        team.backoff = 0.0
    _remove(tables, worker, (worker.end_reason and f"was stopped: {worker.end_reason}") or event.reason)
    if team.failed_starts >= MOST_FAILED_STARTS:
        _fail_waiting(tables, worker, event.reason)
    _forget_unused(tables, worker.host, worker.profile)
    _start_missing(tables, worker.host)


def _forget_unused(tables: Tables, host: HostRecord, profile: Profile) -> None:
    """Forget a team without processes: profiles come and go. Early ends are remembered, for tasks."""
    team = host.teams.get(profile)
    if team is None or team.workers or team.retry_at > tables.now:
        return
    if profile.actors or not (team.failed_starts or team.backoff):
        del host.teams[profile]


def _fail_waiting(tables: Tables, last: WorkerRecord, reason: str) -> None:
    """End the tasks that wait for such a worker, if none runs and none could be started anywhere.

    Those that came after `last` was started wait for a start of their own.
    """
    profile = last.profile
    teams = [host.teams[profile] for host in tables.hosts.values() if profile in host.teams]
    if any(team.failed_starts < MOST_FAILED_STARTS or len(team.workers) > team.starting for team in teams):
        return
    for demand in tuple(tables.active):
        if demand.profile == profile:
            for task in _queued(demand):
                if task.submitted <= last.since:
                    details = (("reason", reason),)
                    finish(tables, task, Failed(b"", "WorkerStartError", task.spec.name, (), details))


def _queued(demand: Demand) -> tuple[TaskRecord, ...]:
    return tuple(task for queue in demand.queues for task in queue.tasks if task.state is READY)


def _give_up_homeless(tables: Tables) -> None:
    """End what has needed a host for long that doesn't come."""
    for needs, since in tuple(tables.homeless.items()):
        if tables.now < since + HOMELESS_SECONDS - 0.001:
            continue
        del tables.homeless[needs]
        give_up(tables, needs)
        for demand in tuple(tables.active):
            if demand.needs == needs:
                for task in _queued(demand):
                    finish(tables, task, build_unschedulable(tables, task.spec.name, task.spec.shape))


def _remove(tables: Tables, worker: WorkerRecord, reason: str) -> None:
    tables.counters["workers_lost"] += 1
    del tables.workers[worker.id]
    del worker.team.workers[worker.id]
    worker.team.idle.pop(worker.id, None)
    worker.idle = False
    worker.closing = True
    if not worker.joined:
        worker.team.starting -= 1
    lost: list[TaskRecord] = [*worker.running.values(), *worker.blocked.values(), *worker.ahead.values()]
    for task in lost:
        leave_slot(tables, task)
    refresh(tables, worker)
    if worker.held:
        give_devices(worker)
        give(tables, worker.host, worker.held)
        worker.held = ()
    tables.touched.pop(worker.id, None)
    if tables.reclaiming is worker:
        tables.reclaiming = None
        tables.dirty = True
    # The last first: each goes to the front of its caller's queue.
    for task in reversed(lost):
        lose_task(tables, task, worker, reason)
    for actor in tuple(worker.actors.values()):
        lose_actor(tables, actor, worker, reason)


def join_client(tables: Tables, _source: ClientId, event: ClientJoined) -> None:
    """Take a client that is no worker."""
    tables.clients[event.client] = set()
    tables.ended[event.client] = (0, 0)
    tell_limit(tables, event.client)


def lose_client(tables: Tables, _source: ClientId, event: ClientLost) -> None:
    """Drop all references of a client.

    Tasks that haven't begun and that nobody else wants are cancelled, and generators, unless the client has
    retired.
    """
    held = tables.clients.pop(event.client, None)
    tables.ended.pop(event.client, None)
    if held is None:
        tables.ignore("ClientLost: not known")
        return
    move_anew(tables)
    for object_id in held:
        record = tables.objects.get(object_id)
        if record is None or not drop_holder(tables, record, event.client) or record.holders is not None:
            continue
        _forget_waiting(record.wanted, event.client)
        task = record.maker
        unwanted = not event.retired and not record.holds
        if type(task) is TaskRecord and unwanted and task.state in (WAITING, READY):
            finish(tables, task, Failed(b"", "TaskCancelledError", task.spec.name))
        elif (
            event.retired and type(task) is TaskRecord and task.stream is not None and task.state is not KEPT
        ):
            run_on(tables, task)
        else:
            collect(tables, record)


def _forget_waiting(wanted: int | list[int] | None, client: ClientId) -> None:
    if type(wanted) is list and client in wanted:
        wanted.remove(client)


# --- the rest ----------------------------------------------------------------------------------------------


def note_spilled(tables: Tables, _source: ClientId, event: ObjectSpilled) -> None:
    """Note that an object doesn't take memory any more, or that it does still."""
    host = tables.hosts.get(event.host)
    if host is None:
        return
    if not event.done:
        if event.id in host.spilling:
            host.stuck[event.id] = host.spilling.pop(event.id)
        return
    size = host.objects.pop(event.id, None)
    if size is not None:  # the host did it unasked
        host.memory -= size
        host.spilling[event.id] = size


def free_unknown(tables: Tables, _source: ClientId, event: FilesFound) -> None:
    """Free what lost workers had written and nobody has reported; what they still report counts no more."""
    for object_id in event.ids:
        client = object_id >> CLIENT_BITS
        if client != DRIVER and client not in tables.clients and object_id not in tables.objects:
            tables.commands.append(FreeObject(event.host, object_id))


def fire(tables: Tables, _source: ClientId, event: TimerFired) -> None:
    """Take a timer."""
    kind, number = event.key
    if kind in ("timeout", "kill"):
        time_out(tables, kind, number)
    elif kind == "refetch":
        try_again(tables, number)
    elif kind == "idle":
        _end_idle(tables, number)
    elif kind == "start":
        _start_again(tables, number)
    elif kind == "homeless":
        _give_up_homeless(tables)
    elif kind == "circles":
        end_circles(tables)
    else:
        tables.ignore("TimerFired: unknown")


def _start_again(tables: Tables, host_id: int) -> None:
    """Let processes be started whose time has come, of whichever profile."""
    host = tables.hosts.get(host_id)
    if host is None:
        return
    for profile, team in tuple(host.teams.items()):
        if team.retry_at <= tables.now + 0.001:
            team.retry_at = 0.0
            if not team.failed_starts:
                _forget_unused(tables, host, profile)
    _start_missing(tables, host)
    tables.freed += 1
    tables.dirty = True


def _end_idle(tables: Tables, number: int) -> None:
    worker = tables.workers.get(number)
    if worker is None:
        return
    worker.timed = False
    if not worker.idle:
        return
    left = worker.since + idle_seconds(worker) - tables.now
    if left > 0.001:
        worker.timed = True
        tables.commands.append(SetTimer(left, ("idle", number)))
        return
    retire(tables, worker, "it had no work")
