"""The life of actors, and the calls of their methods: placed, ready, restarted, dead; who waits for whom.

Calls of one caller reach an actor in order: one whose arguments aren't there holds back those behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from fray.runtime.pool.machine.circles import doubt, find_circle, find_circles, is_at_rest
from fray.runtime.pool.machine.functions import drop_function, send_function, use_function
from fray.runtime.pool.machine.lineage import request
from fray.runtime.pool.machine.objects import add_holder, build_lost, collect, free_later, hold, release_holds
from fray.runtime.pool.machine.placement import MOST_FAILED_STARTS, free_devices, may_start, start_process
from fray.runtime.pool.machine.queues import gather
from fray.runtime.pool.machine.records import (
    ActorRecord,
    CallerKey,
    HostRecord,
    Needs,
    ObjectRecord,
    TaskRecord,
    WorkerRecord,
)
from fray.runtime.pool.machine.resources import (
    build_needs,
    build_unschedulable,
    fits,
    is_possible,
    note_homeless,
)
from fray.runtime.pool.machine.slots import actor_at, limit_time, refresh
from fray.runtime.pool.machine.tables import STORY_LINES, Tables
from fray.runtime.pool.machine.tasks import MOST_PREEMPTIONS, accept, finish, wake
from fray.runtime.pool.machine.transitions import (
    ALIVE,
    DEAD,
    ENDED,
    LOST,
    PENDING,
    PLACED,
    READY,
    RESTARTING,
    STARTED,
    STARTING,
    UNREADY,
    WAITING,
)
from fray.runtime.pool.messages.commands import (
    AnswerActor,
    CreateActor,
    EndActor,
    ResumeGenerator,
    RunTask,
    StopWorker,
)
from fray.runtime.pool.messages.events import ActorEnded, ActorReady, ActorSubmitted, KillActor, TaskSubmitted
from fray.runtime.pool.messages.specs import DRIVER, ActorSpec, ClientId, Failed, ObjectId, Profile, TaskSpec

__all__ = [
    "answer_end",
    "answer_ready",
    "call",
    "create",
    "drop_unreferenced",
    "end_circles",
    "give_up",
    "kill",
    "limit_of",
    "lose_actor",
    "place_actors",
    "pump_all",
    "settle_process",
    "wake_actor",
]

# --- created -----------------------------------------------------------------------------------------------


def create(tables: Tables, client: ClientId, event: ActorSubmitted) -> None:
    """Take a new actor, or answer with the living one that has its name.

    Without a class it is none to create: a client looks for the one that has the name.
    """
    spec = event.spec
    if spec.id in tables.objects:
        tables.ignore("ActorSubmitted: its identity is taken")
        return
    if spec.name and (living := tables.actor_names.get(spec.name)) is not None:
        if spec.get_if_exists:
            add_holder(tables, tables.objects[living], client)
            methods = tables.actors[living].spec.methods
            tables.commands.append(AnswerActor(client, spec.id, living, methods=methods))
        else:
            exists = Failed(b"", "ActorExistsError", spec.name)
            tables.commands.append(AnswerActor(client, spec.id, spec.id, exists))
        return
    if spec.name and not spec.function:
        known = tuple(sorted(tables.actor_names)[:STORY_LINES])
        absent = Failed(b"", "ActorNotFoundError", spec.name, known)
        tables.commands.append(AnswerActor(client, spec.id, spec.id, absent))
        return
    needs = build_needs(tables, spec.shape)
    failure: Failed | None = None
    if not use_function(tables, spec.function, event.blob):
        failure = build_lost(spec.id, "its class was never sent to the head")
    elif not is_possible(tables, needs):
        drop_function(tables, spec.function)
        failure = build_unschedulable(tables, spec.name or spec.class_name, spec.shape)
    if failure is not None and spec.name:
        tables.commands.append(AnswerActor(client, spec.id, spec.id, failure))
        return
    actor = tables.actors[spec.id] = ActorRecord(spec, client, needs)
    record = tables.objects[spec.id] = ObjectRecord(spec.id, None)
    record.maker = actor
    add_holder(tables, record, client)
    if failure is not None:
        # Nobody waits for the answer of an unnamed one: its calls tell.
        actor.failure = failure
        actor.state = DEAD
    else:
        if spec.name:
            tables.actor_names[spec.name] = spec.id
        hold(tables, spec.holds)
        tables.woken.append(actor)
    tables.commands.append(AnswerActor(client, spec.id, spec.id, failure))


def wake_actor(tables: Tables, actor: ActorRecord) -> None:
    """Look at an actor anew: its arguments if it has no place yet, its calls if it's alive."""
    if actor.state is ALIVE:
        pump_all(tables, actor)
        return
    if actor.state not in (PENDING, RESTARTING) or actor.missing > 0 or actor.worker is not None:
        return
    for object_id in dict.fromkeys(actor.spec.deps):
        needed = tables.objects[object_id]
        if needed.outcome is None:
            request(tables, needed)
        if needed.outcome is None:
            actor.missing += 1
            needed.dependents = [*(needed.dependents or ()), actor]
        elif type(needed.outcome) is Failed:
            _die(tables, actor, needed.outcome)
            return
    if not actor.missing:
        queue = tables.actor_queues.setdefault(actor.needs, deque())
        if actor not in queue:
            queue.append(actor)
        tables.dirty = True


def place_actors(tables: Tables) -> None:
    """Give a place to each actor that waits for one and finds it, in the order they came."""
    for needs, queue in tuple(tables.actor_queues.items()):
        later: list[ActorRecord] = []
        while queue:
            actor = queue[0]
            waits = actor.state in (PENDING, RESTARTING) and actor.worker is None
            if waits and not _place(tables, actor):
                if not _is_held_off(tables, actor):
                    note_homeless(tables, needs)
                    break
                later.append(actor)
            queue.popleft()
        queue.extendleft(reversed(later))
        if not queue:
            del tables.actor_queues[needs]
            tables.dirty = True


def give_up(tables: Tables, needs: Needs) -> None:
    """End the actors that need what no host has."""
    for actor in tuple(tables.actor_queues.get(needs, ())):
        if actor.state in (PENDING, RESTARTING) and actor.worker is None:
            name = actor.spec.name or actor.spec.class_name
            _die(tables, actor, build_unschedulable(tables, name, actor.spec.shape))
    tables.dirty = True


def _is_held_off(tables: Tables, actor: ActorRecord) -> bool:
    """Whether an actor would have room, but its last processes ended too soon: others needn't wait for it."""
    possible = _hosts_for(tables, actor)
    return bool(possible) and not any(may_start(tables, host, actor.process) for host in possible)


def _hosts_for(tables: Tables, actor: ActorRecord) -> list[HostRecord]:
    return [host for host in tables.hosts.values() if host.wanted and fits(host, actor.needs)]


def _place(tables: Tables, actor: ActorRecord) -> bool:
    """Find a process for an actor, or start one; return False when there can't be any now.

    Actors that hold nothing share those of their class, once that has as many on a host as it has workers.
    """
    hosts = _hosts_for(tables, actor)
    worker: WorkerRecord | None = None
    if not actor.alone:
        shared = [worker for host in hosts for worker in _processes(host, actor.process)]
        worker = min(shared, key=lambda worker: len(worker.actors), default=None)
    if worker is None or worker.actors:
        rooms = [host for host in hosts if may_start(tables, host, actor.process)]
        rooms = [host for host in rooms if len(_processes(host, actor.process)) < host.wanted]
        if not rooms:
            free_devices(tables, actor.needs)
        if rooms:
            host = max(
                rooms, key=lambda host: (-len(_processes(host, actor.process)), host.free.get("CPU", 0))
            )
            worker = start_process(tables, host, actor.process, actor.needs)
    if worker is None:
        return False
    actor.worker = worker
    worker.actors[actor.spec.id] = actor
    if worker.joined:
        refresh(tables, worker)
        _construct(tables, actor, worker)
    return True


def _processes(host: HostRecord, profile: Profile) -> list[WorkerRecord]:
    team = host.teams.get(profile)
    return [worker for worker in team.workers.values() if not worker.closing] if team is not None else []


def settle_process(tables: Tables, worker: WorkerRecord) -> None:
    """Construct the actors for which a process has been started that has joined."""
    for actor in tuple(worker.actors.values()):
        _construct(tables, actor, worker)


def _construct(tables: Tables, actor: ActorRecord, worker: WorkerRecord) -> None:
    values = gather(tables, actor.spec.deps)
    if values is None:
        _leave(tables, actor)
        if actor.alone:
            worker.closing = True
            worker.end_reason = "its actor waits for its arguments again"
            tables.commands.append(StopWorker(worker.id, True, worker.end_reason))
        refresh(tables, worker)
        tables.woken.append(actor)
        return
    tables.move_actor(actor, PLACED)
    blob = send_function(tables, worker, actor.spec.function)
    tables.commands.append(CreateActor(worker.id, actor.spec, blob, values, actor.incarnation))


def _leave(tables: Tables, actor: ActorRecord) -> WorkerRecord | None:
    """Part an actor from its worker; its process keeps what it holds until that has ended."""
    worker = actor.worker
    if worker is None:
        return None
    actor.worker = None
    actor.waiting.clear()
    actor.blocked = False
    worker.actors.pop(actor.spec.id, None)
    if worker.host.id in tables.hosts:
        for task in actor.sent:  # their results may have been written, and never be reported
            free_later(tables, task, worker.host.id)
    return worker


def answer_ready(tables: Tables, source: ClientId, event: ActorReady) -> None:
    """Note that an actor lives; the calls that waited go to it."""
    actor = _actor_of(tables, source, event.actor, event.incarnation)
    if actor is None or actor.state is not STARTING:
        tables.ignore("ActorReady: not its worker's actor")
        return
    tables.move_actor(actor, READY)
    pump_all(tables, actor)
    if tables.objects[actor.spec.id].holders != DRIVER:
        tables.unreferenced.append(actor)  # by all but those that it made, perhaps


def answer_end(tables: Tables, source: ClientId, event: ActorEnded) -> None:
    """Note that an actor's constructor raised, or that it ended as it was asked to."""
    actor = _actor_of(tables, source, event.actor, event.incarnation)
    if actor is None:
        tables.ignore("ActorEnded: it had ended")
        return
    if event.why and event.outcome is not None:
        _fail(tables, actor, f"it failed: {event.why}", event.outcome.data)
        return
    _die(tables, actor, event.outcome or _build_died(actor, event.why or "it ended"))


def _fail(tables: Tables, actor: ActorRecord, reason: str, cause: bytes) -> None:
    """Restart an actor that has failed by what its own code says, if it may; its process lives."""
    worker = actor.worker
    assert worker is not None
    _leave(tables, actor)
    _restart(tables, actor, worker, f"incarnation {actor.incarnation}: {reason}", reason, cause)
    if worker.id in tables.workers:
        if actor.alone:
            worker.closing = True
            worker.end_reason = "its actor has failed"
            tables.commands.append(StopWorker(worker.id, True, worker.end_reason))
        refresh(tables, worker)


def _actor_of(tables: Tables, source: ClientId, actor_id: ObjectId, incarnation: int) -> ActorRecord | None:
    actor = actor_at(tables, source, actor_id)
    return actor if actor is not None and actor.incarnation == incarnation else None


# --- ended -------------------------------------------------------------------------------------------------


def kill(tables: Tables, _source: ClientId, event: KillActor) -> None:
    """End an actor for good; its calls fail."""
    actor = tables.actors.get(event.actor)
    if actor is None or actor.state is DEAD:
        tables.ignore("KillActor: it is dead")
        return
    _die(tables, actor, _build_died(actor, "it was killed"), drain=False)


def drop_unreferenced(tables: Tables, actor: ActorRecord) -> None:
    """End an actor that nobody refers to but actors like it, unless it has a name; forget a dead one."""
    record = tables.objects.get(actor.spec.id)
    if record is None:
        return
    if actor.state is not DEAD:
        if record.holds or record.holders is not None:
            circle, complete = find_circle(tables, actor)
            if complete and is_at_rest(tables, circle):
                _end_unreferenced(tables, circle.values())
            else:
                doubt(tables, actor)
        elif not actor.spec.name:
            _end_unreferenced(tables, (actor,))
        return  # its death has left it here again
    if record.holds or record.holders is not None:
        return
    if record.lineage:
        return
    del tables.objects[actor.spec.id]
    del tables.actors[actor.spec.id]


def end_circles(tables: Tables) -> None:
    """End the actors that only refer to each other, be it by values."""
    _end_unreferenced(tables, find_circles(tables))


def _end_unreferenced(tables: Tables, actors: Iterable[ActorRecord]) -> None:
    for each in actors:
        _die(tables, each, _build_died(each, "nobody referred to it any more"), drain=True)


def _die(tables: Tables, actor: ActorRecord, failure: Failed, *, drain: bool | None = None) -> None:
    """End an actor: its calls fail with `failure`. `drain`: tell its worker so; None: the worker knows."""
    state = actor.state
    tables.move_actor(actor, ENDED)
    actor.failure = failure
    tables.doubtful.pop(actor.spec.id, None)
    if actor.spec.name and tables.actor_names.get(actor.spec.name) == actor.spec.id:
        del tables.actor_names[actor.spec.name]
    worker = _leave(tables, actor)
    if worker is not None and worker.id in tables.workers:
        if drain is not None and state in (STARTING, ALIVE):
            tables.commands.append(EndActor(worker.id, actor.spec.id, actor.incarnation, drain))
        # Whatever hangs there would stay for ever; but what others do there goes on.
        if actor.alone or (drain is False and not worker.actors):
            worker.closing = True
            worker.end_reason = "its actor has ended"
            tables.commands.append(StopWorker(worker.id, drain is not True, worker.end_reason))
        refresh(tables, worker)
        if worker.actors:
            tables.unreferenced.append(next(iter(worker.actors.values())))  # by this one alone, perhaps
    calls = [*actor.sent.values(), *(call for queue in actor.callers.values() for call in queue)]
    actor.sent = {}
    actor.callers = {}
    for waiting in calls:
        waiting.worker = None
        if waiting.state is not ENDED:
            finish(tables, waiting, failure)
    drop_function(tables, actor.spec.function)
    release_holds(tables, actor.spec.holds)
    collect(tables, tables.objects[actor.spec.id])
    tables.dirty = True


def lose_actor(tables: Tables, actor: ActorRecord, worker: WorkerRecord, reason: str) -> None:
    """Restart an actor whose worker was lost, if it may; calls under way are tried again or fail."""
    _leave(tables, actor)
    line = f"incarnation {actor.incarnation} was lost: worker {worker.id} on {worker.host.name} {reason}"
    if actor.state in (PENDING, RESTARTING) and worker.team.failed_starts < MOST_FAILED_STARTS:
        actor.story = [*actor.story, line][-STORY_LINES:]
        tables.move_actor(actor, LOST)  # nothing of it was there yet
        tables.woken.append(actor)
        return
    _restart(tables, actor, worker, line, f"its worker {reason}")


def _restart(
    tables: Tables, actor: ActorRecord, worker: WorkerRecord, line: str, reason: str, cause: bytes = b""
) -> None:
    """Let an actor that has left its worker be constructed anew, if it may. `cause`: an encoded exception."""
    spec = actor.spec
    actor.story = [*actor.story, line][-STORY_LINES:]
    preempted = worker.host.leaving and spec.max_restarts and actor.preempted < MOST_PREEMPTIONS
    if 0 <= spec.max_restarts <= actor.restarts and not preempted:
        _die(tables, actor, _build_died(actor, reason, cause))
        return
    tables.move_actor(actor, LOST)
    if preempted:
        actor.preempted += 1
    else:
        actor.restarts += 1
    actor.incarnation += 1
    calls = tuple(actor.sent.values())
    actor.sent = {}
    died = _build_died(actor, f"{reason}, and it was restarted", cause)
    for task in reversed(calls):
        task.worker = None
        faults = tables.tell(task, line)
        limit = limit_of(task.spec, spec)
        uncharged = preempted and limit and faults.preempted < MOST_PREEMPTIONS
        spent = task.charged >= limit >= 0 and not uncharged
        if faults.verdict is not None or spent:
            finish(tables, task, faults.verdict or died)
            continue
        if uncharged:
            faults.preempted += 1
        else:
            task.charged += 1
        task.attempt += 1
        tables.counters["retried"] += 1
        tables.move(task, LOST)
        key = (task.client, task.spec.parent)
        actor.callers.setdefault(key, deque()).appendleft(task)
    if actor.state is not DEAD:
        tables.woken.append(actor)


def limit_of(call: TaskSpec, actor: ActorSpec) -> int:
    """Return how often a call is tried again that was lost with its actor's worker; -1: without end."""
    return actor.max_task_retries if call.max_task_retries is None else call.max_task_retries


def _build_died(actor: ActorRecord, reason: str, cause: bytes = b"") -> Failed:
    name = actor.spec.name or actor.spec.class_name
    return Failed(cause, "ActorDiedError", name, tuple(actor.story[-STORY_LINES:]), (("reason", reason),))


# --- calls -------------------------------------------------------------------------------------------------


def call(tables: Tables, client: ClientId, event: TaskSubmitted) -> None:
    """Take a call of a method: it goes to the actor when it's its turn, or fails if the actor is dead."""
    spec = event.spec
    if spec.id in tables.objects:
        tables.ignore("TaskSubmitted: its identity is taken")
        return
    actor = tables.actors.get(spec.actor)
    task = accept(tables, client, event)
    hold(tables, (spec.actor,))
    if actor is None or actor.state is DEAD:
        failure = actor.failure if actor is not None else None
        details = (("reason", "it is not known here any more"),)
        finish(tables, task, failure or Failed(b"", "ActorDiedError", f"{spec.actor:x}", (), details))
        return
    key = (client, spec.parent)
    if actor.state is ALIVE and key not in actor.callers and not spec.deps:
        tables.move(task, READY)
        _send(tables, actor, task, ())  # nothing holds it back
        return
    actor.callers.setdefault(key, deque()).append(task)
    if wake(tables, task):
        _pump(tables, actor, key)


def pump_all(tables: Tables, actor: ActorRecord) -> None:
    """Send all calls that may go."""
    for key in tuple(actor.callers):
        _pump(tables, actor, key)


def _pump(tables: Tables, actor: ActorRecord, key: CallerKey) -> None:
    queue = actor.callers.get(key)
    while queue and actor.state is ALIVE:
        task: TaskRecord = queue[0]
        if task.state is WAITING:
            return
        if task.state is READY:
            values = gather(tables, task.spec.deps)
            if values is None:
                tables.move(task, UNREADY)
                tables.woken.append(task)
                return
            _send(tables, actor, task, values)
        queue.popleft()
    if queue is not None and not queue:
        del actor.callers[key]


def _send(tables: Tables, actor: ActorRecord, task: TaskRecord, values: tuple[object, ...]) -> None:
    worker: WorkerRecord = actor.worker  # type: ignore[assignment]
    spec = task.spec
    tables.move(task, STARTED)
    task.worker = worker
    actor.sent[spec.id] = task
    stream = task.stream
    skip = stream.produced if stream is not None else 0
    task.sent = tables.now
    run = RunTask(worker.id, spec, b"", values, False, task.attempt, skip, task.client)  # type: ignore[arg-type]
    tables.commands.append(run)
    if stream is not None and stream.consumed:
        tables.commands.append(ResumeGenerator(worker.id, spec.id, stream.consumed))
    if spec.timeout > 0:
        limit_time(tables, task)
