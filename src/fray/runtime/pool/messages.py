"""What head, hosts and workers tell each other: the events and commands of the pool's state machine.

An event is something that happened; `PoolState.handle(source, event, now)` takes it and returns commands,
which the head carries out. Events of workers arrive over the wire as they stand here, so that what is
sent is what is decided upon. No behaviour may stand here: tuples of plain data only, which pickle fast.

Identities are integers. A client is whoever holds references and submits tasks: the driver is 0, workers
count from 1 and are never reused. An object's identity is `client << 40 | count`, given by the client that
submits its task or puts it; a task has the identity of its result.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = [
    "CLIENT_BITS",
    "DEFAULT_SHAPE",
    "DIGEST_BYTES",
    "DRIVER",
    "PLAIN",
    "ActorEnded",
    "ActorId",
    "ActorReady",
    "ActorSpec",
    "ActorSubmitted",
    "AnswerActor",
    "CancelTask",
    "CheckObject",
    "ClientId",
    "ClientLost",
    "Command",
    "CopyObject",
    "CreateActor",
    "Deliver",
    "DeliverItems",
    "DropTimer",
    "EndActor",
    "Event",
    "Failed",
    "FetchFailed",
    "FilesFound",
    "ForgetFunctions",
    "FreeObject",
    "FunctionId",
    "HostId",
    "HostJoined",
    "HostLost",
    "HostTable",
    "HostWelcome",
    "Inline",
    "ItemsConsumed",
    "ItemsProduced",
    "KillActor",
    "NannyHello",
    "NannyLost",
    "ObjectChecked",
    "ObjectCopied",
    "ObjectId",
    "ObjectPut",
    "ObjectRelayed",
    "ObjectSpilled",
    "ObjectsWanted",
    "Outcome",
    "Profile",
    "ReclaimTasks",
    "RefsAdded",
    "RefsReleased",
    "ResumeGenerator",
    "RunTask",
    "SetTimer",
    "Shape",
    "SpillObject",
    "StartWorker",
    "StopWorker",
    "Stored",
    "TaskBegun",
    "TaskBlocked",
    "TaskCancelled",
    "TaskDone",
    "TaskSpec",
    "TaskSubmitted",
    "TaskUnblocked",
    "TasksReturned",
    "TimerFired",
    "WorkerHello",
    "WorkerId",
    "WorkerJoined",
    "WorkerLost",
]

ClientId: TypeAlias = int
WorkerId: TypeAlias = int
HostId: TypeAlias = int
ObjectId: TypeAlias = int
ActorId: TypeAlias = int
FunctionId: TypeAlias = bytes
DIGEST_BYTES = 16
"""Of the digest of an encoded function. A longer one says that it holds references, which whoever has decoded
it keeps alive: it is forgotten with its last use."""

DRIVER: ClientId = 0
CLIENT_BITS = 40
"""Identities below `1 << 40` are the driver's; a client may give that many."""

Shape: TypeAlias = tuple[tuple[str, float], ...]
"""Resources that a task or actor holds while it runs, sorted by name, without zeros: `(("CPU", 1.0),)`."""


# --- values ----------------------------------------------------------------------------------------------


class Inline(NamedTuple):
    """A value small enough to travel with messages and to be kept by the head."""

    data: bytes
    """As `objects.values` encodes it; opaque to the head."""
    contained: tuple[ObjectId, ...] = ()
    """References inside the value, which must live as long as it does."""


class Stored(NamedTuple):
    """A value in the store of a host, as one file of shared memory."""

    host: HostId
    size: int
    """Bytes."""
    contained: tuple[ObjectId, ...] = ()


class Failed(NamedTuple):
    """An exception instead of a value."""

    data: bytes
    """The exception as `payload.values.exceptions` encodes it; opaque to the head. Empty when the head itself
    is its author: then `kind` and `story` say what the client raises."""
    kind: str = ""
    """Name of a class in `fray.errors.pool`: WorkerDiedError, ObjectLostError, ActorDiedError,
    TaskCancelledError, TaskTimeoutError, UnschedulableError, PoolClosedError, ..."""
    name: str = ""
    """The task's or actor's name."""
    story: tuple[str, ...] = ()
    """What happened to it, oldest first: one short line each, at most 20."""
    details: tuple[tuple[str, str | int | float], ...] = ()
    """Other fields of that class, by their names: `(("worker", "worker 3"), ("attempts", 4))`."""


Outcome: TypeAlias = Inline | Stored | Failed


# --- what is asked for -----------------------------------------------------------------------------------


class Profile(NamedTuple):
    """What a worker process must be for a task: tasks of one profile share processes, others don't."""

    env: tuple[tuple[str, str], ...] = ()
    """Environment variables, set before the process begins."""
    max_calls: int = 0
    """The process ends after that many tasks; 0: it goes on."""
    actors: bytes = b""
    """The process is for actors alone: those of this class, or a single one; empty: it is for tasks."""


PLAIN = Profile()
"""Of tasks that may share a worker's process with any other."""
DEFAULT_SHAPE: Shape = (("CPU", 1.0),)
"""What a task holds that doesn't say otherwise."""


class TaskSpec(NamedTuple):
    """One task, or one call of an actor's method."""

    id: ObjectId
    function: FunctionId
    """Digest of the encoded function; for a call of a method: empty."""
    args: bytes
    """Encoded (args, kwargs); references at the top level are placeholders into `deps`."""
    name: str
    parent: ObjectId = 0
    """Task that submitted it; 0: the driver's own code. `(client, parent)` is what takes turns."""
    deps: tuple[ObjectId, ...] = ()
    """Objects that must be there before it starts, in the order of their placeholders."""
    holds: tuple[ObjectId, ...] = ()
    """All references in its arguments, `deps` included: they live until it has ended."""
    shape: Shape = DEFAULT_SHAPE
    profile: Profile = PLAIN
    retries: int = 3
    """How often it is tried again after it was lost with its worker."""
    retry_exceptions: int = 0
    """How often it is tried again after its own exception, if the worker says that it is of that kind."""
    retry_on: bytes = b""
    """The encoded tuple of those kinds; empty: any `Exception`."""
    timeout: float = 0.0
    """Seconds that it may run; 0: for ever."""
    streaming: bool = False
    """A generator: items are objects of their own, told one by one; the result is its end."""
    buffered: int = 16
    """Items that a generator may be ahead of its consumer."""
    actor: ActorId = 0
    method: str = ""


class ActorSpec(NamedTuple):
    """One actor. Its identity is an object's: unless named, it ends when nobody refers to it any more."""

    id: ActorId
    function: FunctionId
    """Digest of the encoded class."""
    args: bytes
    name: str
    """Within the job; empty: unnamed."""
    class_name: str
    deps: tuple[ObjectId, ...] = ()
    holds: tuple[ObjectId, ...] = ()
    shape: Shape = ()
    """What it holds as long as it lives; with any, it has a process to itself."""
    profile: Profile = Profile()
    on_loop: bool = False
    """Its constructor and its methods, but generators, run in its event loop, async or not."""
    isolated: bool = False
    """It has a process to itself; else it may share one with actors of its class."""
    max_concurrency: int = 1
    max_restarts: int = 0
    """-1: without end."""
    max_task_retries: int = 0
    """How often a call is tried again that was under way when the actor's worker died."""
    get_if_exists: bool = False
    methods: bytes = b""
    """What handles know of it, for clients to read: for those who find it by its name."""


# --- events: from clients (the driver's own calls, and workers over the wire) ----------------------------


class TaskSubmitted(NamedTuple):
    """A client asks for a task. It holds one reference to the result from now on."""

    spec: TaskSpec
    blob: bytes = b""
    """The encoded function; the head keeps one copy for each digest that is in use."""
    wanted: bool = False
    """The client waits for the result, as after ObjectsWanted."""


class ActorSubmitted(NamedTuple):
    """A client asks for an actor, and holds one reference to it from now on; answered by AnswerActor."""

    spec: ActorSpec
    blob: bytes


class KillActor(NamedTuple):
    """A client ends an actor for good; calls that haven't ended fail."""

    actor: ActorId


class ObjectPut(NamedTuple):
    """A client has put a value, and holds one reference to it."""

    id: ObjectId
    outcome: Inline | Stored


class ObjectsWanted(NamedTuple):
    """A client waits for these; each is answered by one Deliver, at once or when it is there.

    The client holds a reference to each.
    """

    ids: tuple[ObjectId, ...]


class RefsAdded(NamedTuple):
    """A client has got references that it had none to: they were in a value or in arguments it has read.

    It tells so before whatever kept them until now is released by it.
    """

    ids: tuple[ObjectId, ...]


class RefsReleased(NamedTuple):
    """A client has no reference to these any more."""

    ids: tuple[ObjectId, ...]


class ItemsConsumed(NamedTuple):
    """The consumer has taken items of a generator: `taken` of them in all."""

    task: ObjectId
    taken: int


class TaskCancelled(NamedTuple):
    """A client doesn't want the result any more; `force` ends the worker if the task doesn't end."""

    id: ObjectId
    force: bool = False


class ObjectCopied(NamedTuple):
    """A client has read an object of another host; a copy lies on its own from now on."""

    id: ObjectId
    host: HostId
    size: int


class FetchFailed(NamedTuple):
    """A client couldn't read an object where Deliver said that it is; it wants it still."""

    id: ObjectId
    host: HostId
    reason: str


# --- events: from workers --------------------------------------------------------------------------------


class TaskDone(NamedTuple):
    """A task, or a call of a method, has ended in the worker that says so."""

    id: ObjectId
    outcome: Outcome
    started: ObjectId = 0
    """The waiting task that took its place there; 0: none was waiting."""
    began: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0
    retry: bool = False
    """It failed with an exception that its options say to try again."""


class TaskBegun(NamedTuple):
    """A task that was sent ahead has begun by itself: nothing ran there any more when it came."""

    id: ObjectId


class TaskBlocked(NamedTuple):
    """A running task waits for objects; what it holds is free meanwhile."""

    id: ObjectId
    started: ObjectId = 0
    """The waiting task that took its place there."""


class TaskUnblocked(NamedTuple):
    """A blocked task goes on."""

    id: ObjectId


class TasksReturned(NamedTuple):
    """The answer to ReclaimTasks: these hadn't begun, and won't here."""

    ids: tuple[ObjectId, ...]


class ItemsProduced(NamedTuple):
    """A generator has made items. `position`, that of the first, counts from 0 over all of its tries."""

    task: ObjectId
    position: int
    items: tuple[tuple[ObjectId, Inline | Stored], ...]


class ActorReady(NamedTuple):
    """An actor's constructor has returned."""

    actor: ActorId
    incarnation: int


class ActorEnded(NamedTuple):
    """An actor's constructor raised (`outcome`), or EndActor was carried out (None)."""

    actor: ActorId
    incarnation: int
    outcome: Failed | None = None


class ObjectSpilled(NamedTuple):
    """A host has moved an object from memory to disk; its place for readers is the same."""

    id: ObjectId
    host: HostId
    done: bool = True
    """False: it couldn't, and the object takes memory still."""


class ObjectChecked(NamedTuple):
    """The answer to CheckObject."""

    id: ObjectId
    host: HostId
    there: bool


class ObjectRelayed(NamedTuple):
    """The answer to CopyObject: a copy lies on the driver's `host`; no `size`: it couldn't be had."""

    id: ObjectId
    host: HostId
    size: int


class FilesFound(NamedTuple):
    """Objects that lie on a host after some of its workers were lost.

    What a worker had written and not told of before it was killed is known to nobody else.
    """

    host: HostId
    ids: tuple[ObjectId, ...]


# --- the first message on a connection to the head, and what the head tells its processes of the others -----


class NannyHello(NamedTuple):
    """A host's nanny has connected. The head makes HostJoined of it."""

    host: HostId
    """0: the head is to give it a number."""
    name: str
    resources: Shape
    workers: int
    store_limit: int
    objects: str
    """Where other hosts read this host's objects: an address; empty: they can't."""


class HostWelcome(NamedTuple):
    """The head's answer to a nanny that has no number: what it needs to know of the pool."""

    host: HostId
    """Its number, which no other host had before or gets later."""
    token: str
    """The pool's name, unique."""
    attach: str
    """`module:function`, called in each worker with token, client and objects before its first task."""


class WorkerHello(NamedTuple):
    """A worker has connected. The head makes WorkerJoined of it."""

    worker: WorkerId
    pid: int


class HostTable(NamedTuple):
    """Where objects of hosts are read; told to each nanny and worker, anew with each change."""

    addresses: tuple[tuple[HostId, str], ...]


# --- events: from the head's own shell -------------------------------------------------------------------


class HostJoined(NamedTuple):
    """A host offers resources. `workers` processes are started on it for tasks without a profile."""

    host: HostId
    name: str
    resources: Shape
    workers: int
    store_limit: int
    """Bytes of memory for objects; what is above is spilled to disk."""


class HostLost(NamedTuple):
    """A host is gone with its workers and its store."""

    host: HostId
    reason: str


class NannyLost(NamedTuple):
    """All workers of a host are gone with its nanny; its store is still there, and another nanny comes."""

    host: HostId
    reason: str


class WorkerJoined(NamedTuple):
    """A worker that StartWorker asked for has connected."""

    worker: WorkerId


class WorkerLost(NamedTuple):
    """A worker is gone, or couldn't be started. `reason` in words: "killed by signal 9 (SIGKILL)"."""

    worker: WorkerId
    reason: str
    expected: bool = False
    """StopWorker was the cause."""


class ClientLost(NamedTuple):
    """What a client referred to, it refers to no more. Follows WorkerLost for a worker."""

    client: ClientId


class TimerFired(NamedTuple):
    """The time of a SetTimer has come."""

    key: tuple[str, int]


Event: TypeAlias = (
    TaskSubmitted
    | ActorSubmitted
    | KillActor
    | ObjectPut
    | ObjectsWanted
    | RefsAdded
    | RefsReleased
    | ItemsConsumed
    | TaskCancelled
    | ObjectCopied
    | FetchFailed
    | TaskDone
    | TaskBegun
    | TaskBlocked
    | TaskUnblocked
    | TasksReturned
    | ItemsProduced
    | ActorReady
    | ActorEnded
    | ObjectSpilled
    | ObjectChecked
    | ObjectRelayed
    | FilesFound
    | HostJoined
    | HostLost
    | NannyLost
    | WorkerJoined
    | WorkerLost
    | ClientLost
    | TimerFired
)


# --- commands: to workers (sent as they stand) -----------------------------------------------------------


class RunTask(NamedTuple):
    """Run a task, or call a method of an actor that lives there.

    `waits`: it may begin only when a task that runs there ends or blocks, or at once when none runs;
    False: at once, beside what runs. Tasks that wait take turns by caller. Calls of methods go by the
    actor's own order and ignore it.
    """

    worker: WorkerId
    spec: TaskSpec
    blob: bytes
    """The function, when the worker hasn't got it; else empty."""
    deps: tuple[Inline | Stored, ...]
    waits: bool
    attempt: int
    skip: int
    """Items of a generator that earlier tries have told: they are made again and dropped."""
    client: ClientId
    """Who submitted it."""


class CreateActor(NamedTuple):
    """Construct an actor; answered by ActorReady or ActorEnded."""

    worker: WorkerId
    spec: ActorSpec
    blob: bytes
    deps: tuple[Inline | Stored, ...]
    incarnation: int


class EndActor(NamedTuple):
    """Drop an actor. `drain`: after the calls that were sent, else at once."""

    worker: WorkerId
    actor: ActorId
    incarnation: int
    drain: bool


class CancelTask(NamedTuple):
    """Take a task from what waits (then TaskDone with Failed), or interrupt it. Force is StopWorker."""

    worker: WorkerId
    id: ObjectId


class ReclaimTasks(NamedTuple):
    """Give back up to `most` tasks that haven't begun, the last that came first."""

    worker: WorkerId
    most: int


class ResumeGenerator(NamedTuple):
    """The consumer has taken `taken` items in all."""

    worker: WorkerId
    task: ObjectId
    taken: int


class ForgetFunctions(NamedTuple):
    """Drop these functions; they are sent again when needed."""

    worker: WorkerId
    functions: tuple[FunctionId, ...]


class Deliver(NamedTuple):
    """What a client waited for is there. Stored: the host may be another than the client's."""

    client: ClientId
    id: ObjectId
    outcome: Outcome


class DeliverItems(NamedTuple):
    """The next items, in order, of a generator that the client submitted. It holds a reference to each."""

    client: ClientId
    task: ObjectId
    position: int
    items: tuple[tuple[ObjectId, Inline | Stored], ...]


class AnswerActor(NamedTuple):
    """The answer to ActorSubmitted: `actor` is the identity to use (another's, with get_if_exists).

    The client then holds a reference to that one, and none to the one it asked for. `methods` are those of
    the actor that was found: its class may be another than was asked for.
    """

    client: ClientId
    asked: ActorId
    actor: ActorId
    error: Failed | None = None
    methods: bytes = b""


# --- commands: to hosts, and to the head's own shell -----------------------------------------------------


class StartWorker(NamedTuple):
    """Start a process on a host; answered by WorkerJoined, or WorkerLost if it can't be started."""

    host: HostId
    worker: WorkerId
    profile: Profile


class StopWorker(NamedTuple):
    """End a process: at once, whatever it does (`kill`), or when it has ended what it runs."""

    worker: WorkerId
    kill: bool
    reason: str


class FreeObject(NamedTuple):
    """Nobody refers to an object any more: its file goes. Readers that have it mapped keep what they see."""

    host: HostId
    id: ObjectId


class SpillObject(NamedTuple):
    """Move an object from memory to disk; answered by ObjectSpilled."""

    host: HostId
    id: ObjectId


class CheckObject(NamedTuple):
    """Say whether an object is there, which is no mere copy from now on; answered by ObjectChecked."""

    host: HostId
    id: ObjectId


class CopyObject(NamedTuple):
    """Copy an object of that host to the driver's, for others to read; answered by ObjectRelayed."""

    host: HostId
    id: ObjectId


class SetTimer(NamedTuple):
    """Send TimerFired(key) after that many seconds."""

    seconds: float
    key: tuple[str, int]


class DropTimer(NamedTuple):
    """Forget the timer of that key, if one is set: nobody waits for it any more."""

    key: tuple[str, int]


Command: TypeAlias = (
    RunTask
    | CreateActor
    | EndActor
    | CancelTask
    | ReclaimTasks
    | ResumeGenerator
    | ForgetFunctions
    | Deliver
    | DeliverItems
    | AnswerActor
    | StartWorker
    | StopWorker
    | FreeObject
    | SpillObject
    | CheckObject
    | CopyObject
    | SetTimer
    | DropTimer
)
