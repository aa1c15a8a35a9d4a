"""Who waits for whom, in words: for people whose pool stands still. Looks at everything; decides nothing."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from fray.runtime.pool.machine.records import ActorRecord, Doubt, Needs, ObjectRecord, TaskRecord
from fray.runtime.pool.machine.resources import describe_needs, fits, has_host
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.machine.transitions import ALIVE, BLOCKED, DEAD, READY, RUNNING, SENT, WAITING
from fray.runtime.pool.messages.specs import DRIVER, ClientId, ObjectId, Stored

__all__ = ["describe_doubt", "describe_waits", "is_at_work"]

MOST_LINES = 10


def is_at_work(tables: Tables) -> bool:
    """Whether some code of users runs, or is about to: then a wait may come to an end by itself."""
    for worker in tables.workers.values():
        if worker.running or worker.expecting or not worker.joined:
            return True
        if any(_is_at_work(actor) for actor in worker.actors.values()):
            return True
        if any(_awaits_reader(task) for task in worker.blocked.values()):
            return True
    return False


def _is_at_work(actor: ActorRecord) -> bool:
    if actor.state is not ALIVE:
        return not actor.blocked
    if any(_awaits_reader(call) for call in actor.sent.values()):
        return True
    # Those that were sent beyond the number that may run at once wait for their turn.
    return len(actor.waiting) < min(len(actor.sent), actor.spec.max_concurrency)


def _awaits_reader(task: TaskRecord) -> bool:
    stream = task.stream
    return stream is not None and stream.produced - stream.consumed >= task.spec.buffered


def describe_waits(tables: Tables) -> tuple[str, ...]:
    """Return a line for each object that is waited for and can't be had, the first ones only."""
    lines = [
        describe_doubt(tables, key, doubt)
        for key, doubt in islice(tables.doubts.items(), MOST_LINES)
        if doubt.clients
    ]
    for record in tables.objects.values():
        task = record.maker
        if record.outcome is not None or type(task) is not TaskRecord:
            continue
        if len(lines) == MOST_LINES:
            return (*lines, "and so do others")
        waiting = ", ".join(_describe_client(tables, client) for client in _wanted(record))
        lines.append(f"{waiting or 'nobody'} waits for {_describe(tables, task)}")
    return tuple(lines)


def describe_doubt(tables: Tables, object_id: ObjectId, doubt: Doubt) -> str:
    """Return who can't read a stored object, where it is, and why."""
    record = tables.objects[object_id]
    readers = ", ".join(_describe_client(tables, client) for client in doubt.clients)
    maker = f"{record.maker.spec.name}: " if type(record.maker) is TaskRecord else ""
    host = tables.hosts.get(record.outcome.host) if type(record.outcome) is Stored else None
    where = f" on host {host.name}" if host is not None else ""
    reason = next(reversed(doubt.clients.values()))
    return f"{readers} waits for {maker}object {object_id:x}{where}, and can't read it: {reason}"


def _wanted(record: ObjectRecord) -> tuple[ClientId, ...]:
    wanted = record.wanted
    if wanted is None:
        return ()
    return (wanted,) if isinstance(wanted, int) else tuple(dict.fromkeys(wanted))


def _describe_client(tables: Tables, client: ClientId) -> str:
    if client == DRIVER:
        return "the driver"
    worker = tables.workers.get(client)
    names: list[str] = []
    if worker is not None:
        # Those that run may be reading their arguments.
        names += [task.spec.name for task in (worker.blocked or worker.running).values()]
        for actor in worker.actors.values():
            names += [actor.sent[key].spec.name for key in actor.waiting]
            names += [actor.spec.name or actor.spec.class_name] * actor.blocked
    return f"worker {client} ({', '.join(names[:MOST_LINES])})"


def _describe(tables: Tables, task: TaskRecord) -> str:
    name = task.spec.name
    worker = task.worker.id if task.worker is not None else 0
    if task.state is WAITING:
        missing = [
            needed.maker.spec.name or "an actor"
            for key in dict.fromkeys(task.spec.deps)
            if (needed := tables.objects.get(key)) is not None and needed.outcome is None and needed.maker
        ]
        return f"{name}, whose arguments aren't there: {', '.join(missing[:MOST_LINES])}"
    if task.demand is None:
        return f"{name}, {_describe_call(tables, task)}"
    if task.state is READY:
        needs = task.demand.needs
        return f"{name}, which needs {describe_needs(needs)}: {_describe_lack(tables, needs)}"
    if task.state is BLOCKED:
        return f"{name}, which waits itself in worker {worker}"
    return f"{name}, which is {'behind others in' if task.state is SENT else 'in'} worker {worker}"


def _describe_call(tables: Tables, call: TaskRecord) -> str:
    actor = tables.actors.get(call.spec.actor)
    if actor is None or actor.state is DEAD:
        return "whose actor is gone"
    if actor.state is not ALIVE:
        lack = f": {_describe_lack(tables, actor.needs)}" if actor.worker is None and actor.needs else ""
        return f"whose actor is {actor.state} (it needs {describe_needs(actor.needs)}{lack})"
    if call.state is BLOCKED:
        return "which waits itself"
    if circle := _find_circle(tables, call, actor):
        return (
            f"which is behind a call that led to it and waits: {' > '.join(circle)}."
            " Let it return without waiting, or give the actor a larger max_concurrency"
        )
    return (
        "which is behind other calls of its actor"
        if call.state is RUNNING
        else "which is behind one that waits"
    )


def _find_circle(tables: Tables, call: TaskRecord, actor: ActorRecord) -> tuple[str, ...]:
    """Return the calls and tasks from one that fills the actor to the one behind it that it led to."""
    if len(actor.waiting) < actor.spec.max_concurrency:
        return ()
    names = [call.spec.name]
    record = tables.objects.get(call.spec.parent)
    while record is not None and type(caller := record.maker) is TaskRecord:
        names.append(caller.spec.name)
        if caller.spec.id in actor.waiting:
            return tuple(reversed(names))
        record = tables.objects.get(caller.spec.parent)
    return ()


def _describe_lack(tables: Tables, needs: Needs) -> str:
    if not has_host(tables, needs):
        return "no host has that; one that has it may still join"
    if not any(fits(host, needs) for host in tables.hosts.values()):
        return f"no host has that much free{_describe_keepers(tables, needs)}"
    return "no worker is free"


def _describe_keepers(tables: Tables, needs: Needs) -> str:
    """Return which actors keep something of what is needed for as long as they live, and what helps."""
    wanted = {name for name, _ in needs}
    kept = {
        actor.spec.id: tuple(each for each in actor.needs if each[0] in wanted)
        for actor in tables.actors.values()
        if actor.worker is not None
    }
    keepers = Counter(
        f"{tables.actors[key].spec.name or tables.actors[key].spec.class_name} ({describe_needs(parts)})"
        for key, parts in kept.items()
        if parts
    )
    if not keepers:
        return ""
    named = [f"{count} x {name}" if count > 1 else name for name, count in keepers.items()]
    return (
        f"; actors keep theirs while they live: {', '.join(named[:MOST_LINES])}."
        " Create them with less (num_cpus=0), end them, or give the pool more workers"
    )
