"""What the head remembers of objects, tasks, actors, workers and hosts: records without behaviour.

They are many and live long, hence slots, plain integers and fields that are None until they are needed.
Only the modules of the state machine write to them.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeAlias

from fray.runtime.pool.machine.transitions import PENDING, WAITING, StateName
from fray.runtime.pool.messages.specs import (
    ActorSpec,
    ClientId,
    Failed,
    FunctionId,
    HostId,
    ObjectId,
    Outcome,
    Profile,
    Shape,
    TaskSpec,
    WorkerId,
)

__all__ = [
    "ActorRecord",
    "CallerKey",
    "CallerQueue",
    "Demand",
    "Doubt",
    "Function",
    "HostRecord",
    "Needs",
    "ObjectRecord",
    "Run",
    "RunTotals",
    "StreamProgress",
    "TaskFaults",
    "TaskRecord",
    "Team",
    "WorkerRecord",
    "with_threads",
    "without_cpus",
]

Needs: TypeAlias = tuple[tuple[str, int], ...]
"""A shape in ten-thousandths, so that sums of fractions stay exact."""

CallerKey: TypeAlias = tuple[ClientId, ObjectId]
"""Who takes turns: client and the task in it that submits."""


def without_cpus(needs: Needs) -> Needs:
    """Return what stays held while a task or a call waits: all but its CPUs."""
    return tuple((name, amount) for name, amount in needs if name != "CPU")


def with_threads(profile: Profile, shape: Shape) -> Profile:
    """Return the profile of processes in which numerical libraries use all CPUs of what has that shape."""
    cpus = int(dict(shape).get("CPU", 0.0))
    return profile._replace(threads=cpus) if cpus > 1 else profile


class ObjectRecord:
    """One object, or the count of references to one actor.

    `holders`: clients that refer to it (none, one, or a set). `holds`: tasks, values and calls that need
    it. `lineage`: kept tasks that would need it again. `wanted`: clients that wait for it. `dependents`:
    tasks and actors that wait for it. `maker`: the task that will make it, or could make it again.
    """

    __slots__ = ("dependents", "holders", "holds", "id", "lineage", "maker", "outcome", "wanted")

    def __init__(self, object_id: ObjectId, holder: ClientId | None) -> None:
        self.id = object_id
        self.outcome: Outcome | None = None
        self.holders: int | set[int] | None = holder
        self.holds = 0
        self.lineage = 0
        self.wanted: int | list[int] | None = None
        self.dependents: list[TaskRecord | ActorRecord] | None = None
        self.maker: TaskRecord | ActorRecord | None = None


class TaskRecord:
    """One task or one call. `charged` counts the retries it has used up; `attempt` all its runs.

    `submitted`, and `sent` to its worker the last time: monotonic seconds.
    """

    __slots__ = (
        "attempt",
        "charged",
        "client",
        "demand",
        "faults",
        "missing",
        "sent",
        "spec",
        "state",
        "stream",
        "submitted",
        "worker",
    )

    def __init__(
        self, spec: TaskSpec, client: ClientId, demand: Demand | None, submitted: float = 0.0
    ) -> None:
        self.spec = spec
        self.submitted = self.sent = submitted
        self.client = client
        self.demand = demand
        self.state: StateName = WAITING
        self.worker: WorkerRecord | None = None
        self.missing = 0
        self.attempt = 1
        self.charged = 0
        self.stream: StreamProgress | None = None
        self.faults: TaskFaults | None = None


class Run(NamedTuple):
    """One run of a task or a call that its worker has reported; `TaskRecord` goes when nobody needs it."""

    name: str
    worker: WorkerId
    host: str
    began: float
    """Seconds since the epoch, by the worker's clock; so is `seconds`."""
    seconds: float
    attempt: int
    submitted: float
    """Seconds since the epoch, by the head's clock, like `sent` (to the worker) and `reported` (its end)."""
    sent: float
    reported: float
    outcome: str
    """"done", "failed" (an exception of its own), or what else ended it: the name of a `Failed`'s error."""
    is_call: bool


class TaskFaults:
    """What only few tasks need: how often they raised, how they were lost, and the end decided for them.

    `verdict`: the outcome whatever the worker says (cancelled, timed out). `deadline`: monotonic seconds
    at which its timer is due; timers of earlier runs come before it. `preempted`: how often it was lost with
    a host that was taken away.
    """

    __slots__ = ("deadline", "preempted", "raised", "story", "verdict")

    def __init__(self) -> None:
        self.preempted = 0
        self.raised = 0
        self.story: list[str] = []
        self.verdict: Failed | None = None
        self.deadline = 0.0


class StreamProgress:
    """How far a generator is: items that were produced, and items that its consumer has taken."""

    __slots__ = ("consumed", "produced")

    def __init__(self) -> None:
        self.produced = 0
        self.consumed = 0


class Doubt:
    """Readers that couldn't read a stored object where it is said to be, and why.

    `pending`: an answer about it is on its way. `rounds`: how often they were sent there without success.
    `since`: when the first one said so. `answered`: when they were last sent somewhere. `reported`: it was.
    """

    __slots__ = ("answered", "clients", "pending", "reported", "rounds", "since")

    def __init__(self, now: float) -> None:
        self.clients: dict[ClientId, str] = {}
        self.pending = False
        self.rounds = 0
        self.since = now
        self.answered = now
        self.reported = False


class ActorRecord:
    """One actor. `callers` hold the calls that wait at the head, `sent` those at its worker, in order.

    `waiting`: calls of those at its worker that wait for objects; others use its CPUs until then. `blocked`:
    its constructor waits, or a thread that none of its calls runs.
    `process`: the profile of processes that it may live in. `alone`: there it is the only one. `preempted`:
    how often it was lost with a host that was taken away.
    """

    __slots__ = (
        "alone",
        "blocked",
        "callers",
        "client",
        "failure",
        "incarnation",
        "missing",
        "needs",
        "preempted",
        "process",
        "restarts",
        "sent",
        "spec",
        "state",
        "story",
        "waiting",
        "worker",
    )

    def __init__(self, spec: ActorSpec, client: ClientId, needs: Needs) -> None:
        self.spec = spec
        self.client = client
        self.needs = needs
        self.alone = bool(needs) or spec.isolated
        mates = spec.id.to_bytes(8, "big") if self.alone else spec.function
        self.process = with_threads(spec.profile, spec.shape)._replace(
            actors=mates, limited="memory" in dict(spec.shape)
        )
        self.state: StateName = PENDING
        self.worker: WorkerRecord | None = None
        self.incarnation = 1
        self.restarts = 0
        self.preempted = 0
        self.missing = 0
        self.callers: dict[CallerKey, deque[TaskRecord]] = {}
        self.sent: dict[ObjectId, TaskRecord] = {}
        self.waiting: set[ObjectId] = set()
        self.blocked = False
        self.failure: Failed | None = None
        self.story: list[str] = []


class Function:
    """One function or class in use. `depth`: how many of its tasks may be sent ahead to one worker."""

    __slots__ = ("blob", "depth", "seconds", "uses")

    def __init__(self, blob: bytes) -> None:
        self.blob = blob
        self.uses = 0
        self.seconds = -1.0
        self.depth = 0


class RunTotals:
    """The runs of one function or method that have ended. `longest` and `seconds`, their sum, in seconds."""

    __slots__ = ("done", "failed", "longest", "seconds")

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0
        self.seconds = 0.0
        self.longest = 0.0


class CallerQueue:
    """One caller's tasks of one demand, in order."""

    __slots__ = ("key", "tasks")

    def __init__(self, key: CallerKey) -> None:
        self.key = key
        self.tasks: deque[TaskRecord] = deque()


class Demand:
    """All ready tasks of one profile and shape. `queued` counts them; `queues` may hold ended ones too.

    `taken`: what of its needs each task takes; the rest, its `devices`, is held by their process. `kept`:
    what its tasks hold even while they wait. `refused`: the count of freed resources at which nothing was
    found for it. `scarce`: it waits for CPUs, which others could take from under it. `passed`: tasks of
    others that began since then.
    """

    __slots__ = (
        "__weakref__",
        "callers",
        "cpu",
        "devices",
        "kept",
        "needs",
        "passed",
        "plain",
        "profile",
        "queued",
        "queues",
        "refused",
        "scarce",
        "shape",
        "taken",
    )

    def __init__(
        self, profile: Profile, shape: Shape, needs: Needs, devices: Needs = (), *, plain: bool
    ) -> None:
        self.profile = profile
        self.shape = shape
        self.needs = needs
        self.devices = devices
        self.taken = tuple(each for each in needs if each not in devices) if devices else needs
        self.plain = plain
        self.cpu = dict(needs).get("CPU", 0)
        self.kept = without_cpus(self.taken)
        self.callers: dict[CallerKey, CallerQueue] = {}
        self.queues: deque[CallerQueue] = deque()
        self.queued = 0
        self.refused = -1
        self.scarce = False
        self.passed = 0


class Team:
    """The processes of one profile on one host.

    `failed_starts`: starts in succession of which none has joined. `retry_at`: monotonic seconds before
    which no other one is started, `backoff` after the last.
    """

    __slots__ = ("backoff", "failed_starts", "idle", "retry_at", "starting", "workers")

    def __init__(self) -> None:
        self.workers: dict[WorkerId, WorkerRecord] = {}
        self.idle: dict[WorkerId, WorkerRecord] = {}
        self.starting = 0
        self.failed_starts = 0
        self.backoff = 0.0
        self.retry_at = 0.0


class HostRecord:
    """One host. `free` may be below zero after tasks that were blocked went on.

    Its objects are in memory (`objects`, `memory` bytes), on disk or on their way there (`spilling`), or in
    memory since the disk had no room (`stuck`). `devices`: what is free of each accelerator.

    `leaving`: why it is to go; empty: it stays. `recallable`: it stays if the head wants it again before it
    is gone. `released`: it was allowed to go. `unmovable`: objects
    that couldn't be copied elsewhere.
    """

    __slots__ = (
        "devices",
        "free",
        "id",
        "leaving",
        "memory",
        "name",
        "objects",
        "recallable",
        "released",
        "spilling",
        "store_limit",
        "stuck",
        "teams",
        "total",
        "unmovable",
        "wanted",
    )

    def __init__(
        self, host: HostId, name: str, total: dict[str, int], workers: int, store_limit: int
    ) -> None:
        self.id = host
        self.name = name
        self.total = total
        self.free = dict(total)
        self.devices: dict[str, list[int]] = {}
        self.wanted = workers
        self.store_limit = store_limit
        self.teams: dict[Profile, Team] = {}
        self.objects: dict[ObjectId, int] = {}
        self.memory = 0
        self.spilling: dict[ObjectId, int] = {}
        self.stuck: dict[ObjectId, int] = {}
        self.leaving = ""
        self.recallable = False
        self.released = False
        self.unmovable: set[ObjectId] = set()


class WorkerRecord:
    """One process. `expecting`: it runs nothing that is known, but will begin the first task sent ahead.

    `held`: resources that the process itself holds: accelerators (`devices`: how much of which), what its
    actor needs, and what its first task needs, while it starts. `end_reason`: why the head has it end;
    tasks lost with it aren't charged. `closing`: it gets nothing new.
    `timed`: a timer will look whether it's idle.
    """

    __slots__ = (
        "actors",
        "ahead",
        "ahead_of",
        "begun",
        "blocked",
        "closing",
        "devices",
        "end_reason",
        "expecting",
        "functions",
        "held",
        "host",
        "id",
        "idle",
        "joined",
        "profile",
        "running",
        "since",
        "team",
        "timed",
    )

    def __init__(
        self, worker: WorkerId, host: HostRecord, team: Team, profile: Profile, since: float
    ) -> None:
        self.id = worker
        self.host = host
        self.team = team
        self.profile = profile
        self.since = since
        self.joined = False
        self.idle = False
        self.closing = False
        self.expecting = False
        self.timed = False
        self.end_reason = ""
        self.begun = 0
        self.held: Needs = ()
        self.devices: dict[str, dict[int, int]] = {}
        self.running: dict[ObjectId, TaskRecord] = {}
        self.blocked: dict[ObjectId, TaskRecord] = {}
        self.ahead: dict[ObjectId, TaskRecord] = {}
        self.ahead_of: dict[CallerKey, int] = {}
        self.functions: set[FunctionId] = set()
        self.actors: dict[ObjectId, ActorRecord] = {}
