"""The events of the pool's state machine: what clients, workers, hosts and the head's own shell report.

`PoolState.handle(source, event, now)` takes an event and returns commands. Events of workers arrive over the
wire as they stand here, so that what is sent is what is decided upon. No behaviour may stand here: tuples of
plain data only, which pickle fast.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from fray.runtime.pool.messages.specs import (
    ActorId,
    ActorSpec,
    ClientId,
    Failed,
    HostId,
    ObjectId,
    Outcome,
    Shape,
    TaskSpec,
    Value,
    WorkerId,
)

__all__ = [
    "ActorEnded",
    "ActorReady",
    "ActorSubmitted",
    "ClientJoined",
    "ClientLost",
    "Event",
    "FetchFailed",
    "FilesFound",
    "HostJoined",
    "HostLeaving",
    "HostLost",
    "HostStaying",
    "ItemsConsumed",
    "ItemsProduced",
    "KillActor",
    "NannyLost",
    "ObjectChecked",
    "ObjectCopied",
    "ObjectPut",
    "ObjectRelayed",
    "ObjectSpilled",
    "ObjectsWanted",
    "RefsAdded",
    "RefsReleased",
    "TaskBegun",
    "TaskBlocked",
    "TaskCancelled",
    "TaskDone",
    "TaskSubmitted",
    "TaskUnblocked",
    "TasksReturned",
    "TimerFired",
    "WorkerJoined",
    "WorkerLost",
]


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
    outcome: Value


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
    """A client has read an object of another host; a copy lies on its own from now on.

    Of size 0: it had to go, for want of room.
    """

    id: ObjectId
    host: HostId
    size: int


class FetchFailed(NamedTuple):
    """A client couldn't read an object where Deliver said that it is; it wants it still."""

    id: ObjectId
    host: HostId
    reason: str


# --- from workers ------------------------------------------------------------------------------------------


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
    """A running task waits for objects; others may use what it holds until it goes on.

    With the identity of an actor: its constructor waits, or a thread of its own.
    """

    id: ObjectId
    started: ObjectId = 0
    """The waiting task that took its place there."""


class TaskUnblocked(NamedTuple):
    """A blocked task, or actor, goes on."""

    id: ObjectId


class TasksReturned(NamedTuple):
    """The answer to ReclaimTasks: these hadn't begun, and won't here."""

    ids: tuple[ObjectId, ...]


class ItemsProduced(NamedTuple):
    """A generator has made items. `position`, that of the first, counts from 0 over all of its tries."""

    task: ObjectId
    position: int
    items: tuple[tuple[ObjectId, Value], ...]


class ActorReady(NamedTuple):
    """An actor's constructor has returned."""

    actor: ActorId
    incarnation: int


class ActorEnded(NamedTuple):
    """An actor's constructor raised (`outcome`), or it has ended as EndActor or its own code said (None)."""

    actor: ActorId
    incarnation: int
    outcome: Failed | None = None
    why: str = ""
    """In words, where its own code has ended it: with an `outcome` it has failed, and may be restarted."""


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

    What a worker had written and not reported before it was killed is known to nobody else.
    """

    host: HostId
    ids: tuple[ObjectId, ...]


# --- from the head's own shell -----------------------------------------------------------------------------


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


class HostLeaving(NamedTuple):
    """A host is asked to go, and its nanny tells so or the head asks it: nothing new begins there.

    What runs there may end, and what only lies there is copied; then the host is released. It goes some time
    later in any case, unless it's `recallable`: then the head alone decides, and may want it back before.
    """

    host: HostId
    reason: str
    recallable: bool = False


class HostStaying(NamedTuple):
    """A host that the head has asked to go is wanted again."""

    host: HostId


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
    """StopWorker was the cause, or it has retired."""
    retired: bool = False
    """It ended by itself, after all that it ran: as it was asked to, or after `max_calls`."""


class ClientJoined(NamedTuple):
    """A process has connected that submits tasks and runs none."""

    client: ClientId


class ClientLost(NamedTuple):
    """What a client referred to, it refers to no more. Follows WorkerLost for a worker."""

    client: ClientId
    retired: bool = False
    """As in WorkerLost: then the tasks that it submitted go on, as with any reference that is dropped."""


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
    | HostLeaving
    | HostLost
    | HostStaying
    | NannyLost
    | WorkerJoined
    | WorkerLost
    | ClientJoined
    | ClientLost
    | TimerFired
)
