"""What must be true of the tables after every event. Slow and complete: tests ask, the pool doesn't."""

from __future__ import annotations

from collections import Counter

from fray.runtime.pool.machine.actors import limit_of
from fray.runtime.pool.machine.devices import build_slots
from fray.runtime.pool.machine.records import ActorRecord, HostRecord, ObjectRecord, TaskRecord, WorkerRecord
from fray.runtime.pool.machine.resources import fits
from fray.runtime.pool.machine.tables import DEFAULT_NEEDS, Tables
from fray.runtime.pool.machine.transitions import (
    ALIVE,
    BLOCKED,
    DEAD,
    KEPT,
    READY,
    RUNNING,
    SENT,
    STARTING,
    WAITING,
)
from fray.runtime.pool.messages.specs import PLAIN, Inline, ObjectId, Stored, inline_size

__all__ = ["check_tables"]


def check_tables(tables: Tables) -> None:
    """Raise AssertionError with what doesn't fit together."""
    _expect(not tables.dirty, "work was left undone")
    _expect(not (tables.woken or tables.abandoned or tables.unreferenced), "consequences were left undone")
    _check_references(tables)
    _check_tasks(tables)
    _check_queues(tables)
    _check_workers(tables)
    _check_resources(tables)
    _check_actors(tables)
    _check_stores(tables)
    _check_liveness(tables)


def _expect(holds: object, what: str, *details: object) -> None:
    if not holds:
        raise AssertionError(f"{what}: {', '.join(map(repr, details))}" if details else what)


def _tasks(tables: Tables) -> list[TaskRecord]:
    return [record.maker for record in tables.objects.values() if type(record.maker) is TaskRecord]


def _holders(record: ObjectRecord) -> set[int]:
    if record.holders is None:
        return set()
    return {record.holders} if isinstance(record.holders, int) else record.holders


def _check_references(tables: Tables) -> None:
    holds: Counter[ObjectId] = Counter()
    lineage: Counter[ObjectId] = Counter()
    for task in _tasks(tables):
        (lineage if task.state is KEPT else holds).update(task.spec.holds)
        if task.demand is None:
            holds[task.spec.actor] += 1
    for actor in tables.actors.values():
        if actor.state is not DEAD:
            holds.update(actor.spec.holds)
    for record in tables.objects.values():
        if type(record.outcome) in (Inline, Stored):
            holds.update(record.outcome.contained)  # type: ignore[union-attr]
    held: dict[int, set[ObjectId]] = {client: set() for client in tables.clients}
    for key, record in tables.objects.items():
        _expect(record.id == key, "an object under another's identity", key)
        _expect(record.holds == holds[key], "holds", key, record.holds, holds[key])
        _expect(record.lineage == lineage[key], "lineage", key, record.lineage, lineage[key])
        holders = _holders(record)
        _expect(record.holders is None or holders, "an empty set of holders", key)
        for client in holders - {0}:
            _expect(client in held, "a lost client holds", client, key)
            held[client].add(key)
        pending = type(record.maker) is TaskRecord and record.maker.state is not KEPT
        actor_lives = type(record.maker) is ActorRecord and record.maker.state is not DEAD
        needed = holders or record.holds or record.lineage or pending or actor_lives
        _expect(needed, "an object that nobody needs", key)
        _check_waiting(record)
    _expect(held == tables.clients, "what clients hold", held, tables.clients)
    _expect(not set(holds) - set(tables.objects), "something that isn't there is held")


def _check_waiting(record: ObjectRecord) -> None:
    key = record.id
    if record.outcome is not None:
        _expect(record.wanted is None, "wanted although it's there", key)
        _expect(record.dependents is None, "waited for although it's there", key)
    elif record.wanted is not None or record.dependents:
        coming = type(record.maker) is TaskRecord and record.maker.state is not KEPT
        _expect(coming or type(record.maker) is ActorRecord, "waited for, but nothing makes it", key)
    if type(record.maker) is TaskRecord and record.maker.state is not KEPT:
        _expect(record.outcome is None, "there before its task has ended", key)


def _check_tasks(tables: Tables) -> None:
    ahead = 0
    cost = 0
    uses: Counter[bytes] = Counter()
    for task in _tasks(tables):
        spec, state, worker = task.spec, task.state, task.worker
        limit = spec.retries
        if task.demand is None:
            actor = tables.actors.get(spec.actor)
            limit = limit_of(spec, actor.spec) if actor is not None else 0
        else:
            uses[spec.function] += 1
        _expect(limit < 0 or task.charged <= limit, "run past its retries", spec.id, task.charged)
        has_worker = state in (SENT, RUNNING, BLOCKED)
        _expect((worker is not None) == has_worker, "a state that doesn't go with its worker", spec.id, state)
        if worker is not None:
            _expect(tables.workers.get(worker.id) is worker, "at a lost worker", spec.id)
            if task.demand is not None:
                place = {SENT: worker.ahead, RUNNING: worker.running, BLOCKED: worker.blocked}[state]
                _expect(place.get(spec.id) is task, "not where its state says", spec.id, state)
        if state is SENT:
            ahead += 1
            _expect(spec.retries and task.attempt == 1 and not spec.timeout, "sent ahead", spec.id)
        if state is KEPT:
            _expect(tables.lineage.get(spec.id) is task, "kept, but not listed", spec.id)
            cost += len(spec.args)
        if state is WAITING:
            waits = [
                key for key in dict.fromkeys(spec.deps) if task in (tables.objects[key].dependents or ())
            ]
            _expect(len(waits) == task.missing > 0, "waits for nothing", spec.id, waits, task.missing)
    inline = sum(len(task.spec.args) for task in _tasks(tables) if task.state is not KEPT)
    for record in tables.objects.values():
        if isinstance(record.outcome, bytes | Inline):
            inline += inline_size(record.outcome)
    _expect(tables.inline_bytes == inline, "bytes in messages", tables.inline_bytes, inline)
    _expect(ahead == tables.sent_ahead, "tasks sent ahead", ahead, tables.sent_ahead)
    _expect(tables.lineage_bytes >= cost, "bytes of lineage", tables.lineage_bytes, cost)
    uses.update(actor.spec.function for actor in tables.actors.values() if actor.state is not DEAD)
    known = {key: function.uses for key, function in tables.functions.items() if function.uses}
    _expect(known == dict(uses), "uses of functions", known, uses)
    unused = sum(len(tables.functions[key].blob) for key in tables.unused_functions)
    _expect(tables.unused_bytes == unused, "bytes of unused functions", tables.unused_bytes, unused)


def _check_queues(tables: Tables) -> None:
    queued: Counter[ObjectId] = Counter()
    for demand in tables.demands.values():
        ready = [task for queue in demand.queues for task in queue.tasks if task.state is READY]
        _expect(len(ready) == demand.queued, "queued", len(ready), demand.queued)
        _expect((demand in tables.active) == bool(demand.queued), "active demands", demand.shape)
        _expect(set(demand.callers) == {queue.key for queue in demand.queues}, "queues of callers")
        queued.update(task.spec.id for task in ready)
    for actor in tables.actors.values():
        for key, queue in actor.callers.items():
            waiting = [call for call in queue if call.state in (READY, WAITING)]
            queued.update(call.spec.id for call in waiting if call.state is READY)
            _expect(actor.state is not DEAD, "calls wait for a dead actor", key)
            stuck = actor.state is ALIVE and waiting and waiting[0].state is READY
            _expect(not stuck, "a call that could go waits", key)
    for task in _tasks(tables):
        _expect(queued[task.spec.id] == (task.state is READY), "places in queues", task.spec.id, task.state)


def _check_workers(tables: Tables) -> None:
    for worker in tables.workers.values():
        host = worker.host
        _expect(tables.hosts.get(host.id) is host, "a worker of a lost host", worker.id)
        _expect(worker.team is host.teams[worker.profile], "in another's team", worker.id)
        _expect(worker.team.workers.get(worker.id) is worker, "not in its team", worker.id)
        expecting = bool(worker.ahead) and not worker.running
        _expect(worker.expecting == expecting, "expects a slot to open", worker.id)
        busy = worker.closing or worker.running or worker.ahead or worker.actors
        idle = worker.joined and not busy
        _expect(worker.idle == idle == (worker.id in worker.team.idle), "idle", worker.id)
        callers = Counter((task.client, task.spec.parent) for task in worker.ahead.values())
        _expect(worker.ahead_of == dict(callers), "tasks ahead by caller", worker.id)
        _expect(bool(worker.profile.actors) or not worker.actors, "an actor beside tasks", worker.id)
        shared = len(worker.actors) > 1
        tasks_here = len(worker.running) + len(worker.blocked) + len(worker.ahead)
        crowded = worker.profile.limited and not worker.profile.actors and tasks_here > 1
        _expect(not crowded, "a task that should be alone isn't", worker.id)
        _expect(not (shared and any(actor.alone for actor in worker.actors.values())), "not alone", worker.id)
        for state, tasks in ((RUNNING, worker.running), (BLOCKED, worker.blocked), (SENT, worker.ahead)):
            for key, task in tasks.items():
                _expect(task.state is state and task.worker is worker, "another state", key, task.state)
                _expect(tables.objects[key].maker is task, "at a worker, but forgotten", key)
    for host in tables.hosts.values():
        for team in host.teams.values():
            starting = sum(not worker.joined for worker in team.workers.values())
            _expect(team.starting == starting, "processes that start", team.starting, starting)


def _check_resources(tables: Tables) -> None:
    for host in tables.hosts.values():
        used: Counter[str] = Counter()
        for worker in tables.workers.values():
            if worker.host is host:
                _add_used(used, worker)
        for name in host.free.keys() | used.keys():
            total = host.total.get(name, 0)
            _expect(host.free.get(name, 0) == total - used[name], "resources", name, host.free, dict(used))
            _expect(name == "CPU" or used[name] <= total, "more is used than there is", name, host.id)
        _check_devices(tables, host)
        takes = host.free.get("CPU", 0) > 0 and not host.leaving
        _expect((host.id in tables.open_hosts) == takes, "open hosts", host.id)
        _expect((tables.leaving.get(host.id) is host) == bool(host.leaving), "leaving hosts", host.id)


def _check_devices(tables: Tables, host: HostRecord) -> None:
    slots = build_slots(host.total)
    for worker in tables.workers.values():
        if worker.host is host:
            for name, claims in worker.devices.items():
                held = sum(claims.values())
                _expect(held == dict(worker.held)[name], "devices of a worker", worker.id, claims)
                for index, part in claims.items():
                    slots[name][index] -= part
    _expect(host.devices == slots, "free devices", host.id, host.devices, slots)
    _expect(all(part >= 0 for free in slots.values() for part in free), "a device held twice", slots)


def _add_used(used: Counter[str], worker: WorkerRecord) -> None:
    used.update(dict(worker.held))
    if worker.expecting:
        used.update(dict(DEFAULT_NEEDS))
    for task in worker.running.values():
        used.update(dict(task.demand.taken))  # type: ignore[union-attr]
    for task in worker.blocked.values():
        used.update(dict(task.demand.kept))  # type: ignore[union-attr]


def _check_actors(tables: Tables) -> None:
    names = {
        actor.spec.name: key
        for key, actor in tables.actors.items()
        if actor.spec.name and actor.state is not DEAD
    }
    _expect(names == tables.actor_names, "names of actors", names, tables.actor_names)
    for key, actor in tables.actors.items():
        _expect(tables.objects[key].maker is actor, "an actor nobody can refer to", key)
        worker = actor.worker
        if actor.state in (STARTING, ALIVE):
            _expect(worker is not None and worker.actors.get(key) is actor, "lives nowhere", key)
        if actor.state is DEAD:
            _expect(worker is None and not actor.sent and not actor.callers, "dead, but not alone", key)
        limit = actor.spec.max_restarts
        _expect(limit < 0 or actor.restarts <= limit, "restarted too often", key, actor.restarts)
        waiting = {key for key, call in actor.sent.items() if call.state is BLOCKED}
        _expect(actor.waiting == waiting, "calls that wait", key, actor.waiting, waiting)
        for call in actor.sent.values():
            _expect(call.worker is worker and call.state in (RUNNING, BLOCKED), "a call elsewhere", key)


def _check_stores(tables: Tables) -> None:
    for host in tables.hosts.values():
        stored = {
            key: record.outcome.size
            for key, record in tables.objects.items()
            if type(record.outcome) is Stored and record.outcome.host == host.id
        }
        _expect(
            {**host.objects, **host.spilling, **host.stuck} == stored, "objects of a store", host.id, stored
        )
        _expect(host.memory == sum(host.objects.values()), "bytes of a store", host.id)
        _expect(host.memory <= host.store_limit, "more in memory than may be", host.id)
    for record in tables.objects.values():
        if type(record.outcome) is Stored:
            _expect(record.outcome.host in tables.hosts, "stored on a lost host", record.id)
    for key, copies in tables.copies.items():
        copied = tables.objects[key].outcome if key in tables.objects else None
        _expect(type(copied) is Stored and copies, "copies of what isn't stored", key)
        _expect(copied.host not in copies, "a copy where the object is", key)  # type: ignore[union-attr]
        _expect(not set(copies) - set(tables.hosts), "copies on lost hosts", key)
    _expect(not set(tables.doubts) - set(tables.objects), "doubts about freed objects")
    _expect(not set(tables.stale) - set(tables.objects), "files of freed objects are remembered")


def _check_liveness(tables: Tables) -> None:
    for demand in tables.active:
        for host in tables.hosts.values():
            team = host.teams.get(PLAIN)
            if demand.profile != PLAIN or team is None or not team.idle or not fits(host, demand.needs):
                continue
            kept = tables.reserved is not None and tables.reserved[1] is host
            _expect(kept, "a task waits beside an idle worker", demand.shape, host.id)
    plain = tables.plain
    if tables.sent_ahead and (plain is None or not plain.queued):
        for host in tables.open_hosts.values():
            team = host.teams.get(PLAIN)
            if team is not None and team.idle and fits(host, DEFAULT_NEEDS):
                _expect(
                    tables.reclaiming, "an idle worker doesn't ask for tasks that wait elsewhere", host.id
                )
