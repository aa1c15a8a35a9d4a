"""Who waits for whom, in words: for people whose pool stands still. Looks at everything; decides nothing."""

from __future__ import annotations

from fray.runtime.pool.machine.records import ActorRecord, ObjectRecord, TaskRecord
from fray.runtime.pool.machine.resources import describe_needs, fits, has_host
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.machine.transitions import ALIVE, BLOCKED, DEAD, READY, RUNNING, SENT, WAITING
from fray.runtime.pool.messages.specs import DRIVER, ClientId

__all__ = ["describe_waits", "is_at_work"]

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
        return True
    if any(_awaits_reader(call) for call in actor.sent.values()):
        return True
    # Those that were sent beyond the number that may run at once wait for their turn.
    return len(actor.waiting) < min(len(actor.sent), actor.spec.max_concurrency)


def _awaits_reader(task: TaskRecord) -> bool:
    stream = task.stream
    return stream is not None and stream.produced - stream.consumed >= task.spec.buffered


def describe_waits(tables: Tables) -> tuple[str, ...]:
    """Return a line for each object that is waited for and isn't there, the first ones only."""
    lines: list[str] = []
    for record in tables.objects.values():
        task = record.maker
        if record.outcome is not None or type(task) is not TaskRecord:
            continue
        if len(lines) == MOST_LINES:
            return (*lines, "and so do others")
        waiting = ", ".join(_describe_client(tables, client) for client in _wanted(record))
        lines.append(f"{waiting or 'nobody'} waits for {_describe(tables, task)}")
    return tuple(lines)


def _wanted(record: ObjectRecord) -> tuple[ClientId, ...]:
    wanted = record.wanted
    if wanted is None:
        return ()
    return (wanted,) if isinstance(wanted, int) else tuple(dict.fromkeys(wanted))


def _describe_client(tables: Tables, client: ClientId) -> str:
    if client == DRIVER:
        return "the driver"
    worker = tables.workers.get(client)
    names = [task.spec.name for task in worker.blocked.values()] if worker is not None else []
    if worker is not None:
        names += [actor.sent[key].spec.name for actor in worker.actors.values() for key in actor.waiting]
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
        return f"{name}, which needs {describe_needs(task.demand.needs)}: {_describe_lack(tables, task)}"
    if task.state is BLOCKED:
        return f"{name}, which waits itself in worker {worker}"
    return f"{name}, which is {'behind others in' if task.state is SENT else 'in'} worker {worker}"


def _describe_call(tables: Tables, call: TaskRecord) -> str:
    actor = tables.actors.get(call.spec.actor)
    if actor is None or actor.state is DEAD:
        return "whose actor is gone"
    if actor.state is not ALIVE:
        return f"whose actor is {actor.state} (it needs {describe_needs(actor.needs)})"
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


def _describe_lack(tables: Tables, task: TaskRecord) -> str:
    needs = task.demand.needs  # type: ignore[union-attr]
    if not has_host(tables, needs):
        return "no host has that; one that has it may still join"
    if not any(fits(host, needs) for host in tables.hosts.values()):
        return "no host has that much free"
    return "no worker is free"
