"""Identities, values and specs: the plain data that the pool's messages carry. No behaviour may stand here.

Identities are integers. A client is a process that holds references and submits tasks: the driver is 0,
workers count from 1 and are never reused. An object's identity is `client << 40 | count`, given by the client
that submits its task or puts it; a task has the identity of its result.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = [
    "CLIENT_BITS",
    "DEFAULT_SHAPE",
    "DIGEST_BYTES",
    "DRIVER",
    "PLAIN",
    "ActorId",
    "ActorSpec",
    "ClientId",
    "Failed",
    "FunctionId",
    "HostId",
    "Inline",
    "ObjectId",
    "Outcome",
    "Profile",
    "Shape",
    "Stored",
    "TaskSpec",
    "Value",
    "WorkerId",
    "inline_size",
]

ClientId: TypeAlias = int
WorkerId: TypeAlias = int
HostId: TypeAlias = int
ObjectId: TypeAlias = int
ActorId: TypeAlias = int
FunctionId: TypeAlias = bytes
DIGEST_BYTES = 16
"""Of the digest of an encoded function. A longer one says that it holds references. A process that has
decoded it keeps them alive, so it is forgotten with its last use."""

DRIVER: ClientId = 0
CLIENT_BITS = 40
"""Identities below `1 << 40` are the driver's; a client may give that many."""

Shape: TypeAlias = tuple[tuple[str, float], ...]
"""Resources that a task or actor holds while it runs, sorted by name, without zeros: `(("CPU", 1.0),)`."""


# --- values ----------------------------------------------------------------------------------------------


class Inline(NamedTuple):
    """A value with references inside, small enough to travel with messages and to be kept by the head.

    One without any is its bytes alone: those are many, and a tuple around each would have to be made and be
    looked at by the garbage collector.
    """

    data: bytes
    """As `objects.values` encodes it; opaque to the head."""
    contained: tuple[ObjectId, ...]
    """References inside the value, which must live as long as it does."""


class Stored(NamedTuple):
    """A value in the store of a host, as one file."""

    host: HostId
    size: int
    """Bytes."""
    contained: tuple[ObjectId, ...] = ()
    on_disk: bool = False
    """Whether its writer found no room in shared memory."""


class Failed(NamedTuple):
    """An exception instead of a value."""

    data: bytes
    """The exception as `payload.values.exceptions` encodes it; opaque to the head. Empty when the head itself
    is its author: then `kind` and `story` say what the client raises, whose cause this may be."""
    kind: str = ""
    """Name of a class in `fray.errors.pool`: WorkerDiedError, ObjectLostError, ActorDiedError,
    TaskCancelledError, TaskTimeoutError, UnschedulableError, PoolClosedError, ..."""
    name: str = ""
    """The task's or actor's name."""
    story: tuple[str, ...] = ()
    """What happened to it, oldest first: one short line each, at most 20."""
    details: tuple[tuple[str, str | int | float], ...] = ()
    """Other fields of that class, by their names: `(("worker", "worker 3"), ("attempts", 4))`."""


Value: TypeAlias = bytes | Inline | Stored
"""Bytes: as `Inline.data`, without references."""

Outcome: TypeAlias = Value | Failed


def inline_size(value: bytes | Inline) -> int:
    """Return how many bytes of a value travel with messages."""
    return len(value if type(value) is bytes else value.data)  # type: ignore[union-attr]


# --- what is asked for -----------------------------------------------------------------------------------


class Profile(NamedTuple):
    """What a worker process must be for a task: tasks of one profile share processes, others don't."""

    env: tuple[tuple[str, str], ...] = ()
    """Environment variables, set before the process begins."""
    max_calls: int = 0
    """The process ends after that many tasks; 0: it goes on."""
    actors: bytes = b""
    """The process is for actors alone: those of this class, or a single one; empty: it is for tasks."""
    devices: Shape = ()
    """What the process of tasks holds of accelerators from its start to its end; the head fills it in."""
    threads: int = 0
    """How many threads numerical libraries take there, which they read when they are loaded; 0: a thread for
    each CPU of the process's part of the host. The head fills it in, where two CPUs or more are held."""
    limited: bool = False
    """What runs there may take so much memory: one actor, or one task at a time, and none while one waits. So
    no other one pays for it. The head fills it in."""


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
    """A generator: items are objects of their own, sent one by one; the result is its end."""
    buffered: int = 16
    """Items that a generator may be ahead of its consumer."""
    actor: ActorId = 0
    method: str = ""
    max_task_retries: int | None = None
    """Of a call: how often it is tried again that was under way when the actor's worker died, -1: without
    end; None: as its actor says."""


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
