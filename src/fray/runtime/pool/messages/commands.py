"""The commands of the pool's state machine, which the head carries out or sends as they stand here.

No behaviour may stand here: tuples of plain data only, which pickle fast.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from fray.runtime.pool.messages.specs import (
    ActorId,
    ActorSpec,
    ClientId,
    Failed,
    FunctionId,
    HostId,
    ObjectId,
    Outcome,
    Profile,
    TaskSpec,
    Value,
    WorkerId,
)

__all__ = [
    "AnswerActor",
    "CancelTask",
    "CheckObject",
    "Command",
    "CopyObject",
    "CreateActor",
    "Deliver",
    "DeliverItems",
    "DropTimer",
    "EndActor",
    "ForgetFunctions",
    "FreeObject",
    "LimitInline",
    "ReclaimTasks",
    "ReleaseHost",
    "ResumeGenerator",
    "RunTask",
    "SetTimer",
    "SpillObject",
    "StartWorker",
    "StopWorker",
]


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
    deps: tuple[Value, ...]
    waits: bool
    attempt: int
    skip: int
    """Items of a generator that earlier tries have sent: they are made again and dropped."""
    client: ClientId
    """Who submitted it."""


class CreateActor(NamedTuple):
    """Construct an actor; answered by ActorReady or ActorEnded."""

    worker: WorkerId
    spec: ActorSpec
    blob: bytes
    deps: tuple[Value, ...]
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
    items: tuple[tuple[ObjectId, Value], ...]


class LimitInline(NamedTuple):
    """The head keeps too much (`crowded`), or not any more: that limits the size of values in messages."""

    client: ClientId
    crowded: bool


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


# --- to hosts, and to the head's own shell -----------------------------------------------------------------


class StartWorker(NamedTuple):
    """Start a process on a host; answered by WorkerJoined, or WorkerLost if it can't be started."""

    host: HostId
    worker: WorkerId
    profile: Profile
    devices: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Accelerators that it may use, by their places among the host's: `(("GPU", (0, 1)),)`."""


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


class ReleaseHost(NamedTuple):
    """Let a host go that is leaving: nothing runs there, and all that could be copied lies elsewhere, too."""

    host: HostId


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
    | ReleaseHost
    | ResumeGenerator
    | ForgetFunctions
    | Deliver
    | DeliverItems
    | AnswerActor
    | LimitInline
    | StartWorker
    | StopWorker
    | FreeObject
    | SpillObject
    | CheckObject
    | CopyObject
    | SetTimer
    | DropTimer
)
