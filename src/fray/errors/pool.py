"""What goes wrong with tasks, actors and the values they make, in whichever context they run.

An exception that a task's own code raises is none of these: it reaches the caller as it is. A `story` is
what happened before, a short line an event, oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass

from fray.errors.base import FrayError
from fray.errors.request import RequestError
from fray.errors.surroundings import SurroundingsError

__all__ = [
    "ActorDiedError",
    "ActorExistsError",
    "ActorNotFoundError",
    "CodeNotFoundError",
    "ContextUnavailableError",
    "GetTimeoutError",
    "InvalidOptionError",
    "MalformedPayloadError",
    "ObjectLostError",
    "PoolClosedError",
    "RemoteTracebackError",
    "SerializationError",
    "StoreDirectoryError",
    "StoreFullError",
    "TaskCancelledError",
    "TaskError",
    "TaskTimeoutError",
    "UnknownContextError",
    "UnpicklableExceptionError",
    "UnschedulableError",
    "WorkerDiedError",
    "WorkerStartError",
]


@dataclass(eq=False)
class TaskError(FrayError):
    """A task or an actor's call that gave no value, for another reason than an exception of its own code."""


@dataclass(eq=False)
class TaskCancelledError(TaskError):
    """The task was cancelled before it had a result."""

    task: str

    @property
    def message(self) -> str:
        """The task."""
        return f"task {self.task!r} was cancelled"

    @property
    def next_step(self) -> str:
        """How to have it after all."""
        return "Submit it again if its result is wanted after all."


@dataclass(eq=False)
class TaskTimeoutError(TaskError, TimeoutError):
    """The task ran longer than its `TaskOptions.timeout`, in seconds."""

    task: str
    seconds: float
    story: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The task, its limit and what happened."""
        return f"task {self.task!r} ran longer than its limit of {self.seconds} s{_told(self.story)}"

    @property
    def next_step(self) -> str:
        """How to allow more."""
        return "Make the task smaller, or raise TaskOptions.timeout."


@dataclass(eq=False)
class WorkerDiedError(TaskError):
    """The worker died under the task, and under each of its retries.

    `attempts` counts all runs of the task, the first included.
    """

    task: str
    worker: str
    attempts: int
    story: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The task, the last worker and what happened."""
        return (
            f"task {self.task!r} was lost with {self.worker} (attempts: {self.attempts}){_told(self.story)}"
        )

    @property
    def next_step(self) -> str:
        """What the usual causes are."""
        return "Look for what ends the process: memory, a signal, os._exit. TaskOptions.retries allows more."


@dataclass(eq=False)
class WorkerStartError(TaskError):
    """The task never began: each worker that was started for it ended before it could run anything."""

    task: str
    reason: str

    @property
    def message(self) -> str:
        """The task, and what became of the last worker."""
        return f"task {self.task!r} can't begin, since no worker can be started; the last one {self.reason}"

    @property
    def next_step(self) -> str:
        """Where the cause shows."""
        return "Read what the workers wrote to standard error, and check TaskOptions.env, memory and limits."


@dataclass(eq=False)
class ObjectLostError(TaskError):
    """A value was lost with the process that held it, and can't be made again."""

    object: str
    reason: str
    story: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The value and why it is lost."""
        return f"object {self.object} is lost: {self.reason}{_told(self.story)}"

    @property
    def next_step(self) -> str:
        """How to have it again."""
        return "Submit its task again in this context, or put the value again."


@dataclass(eq=False)
class ActorDiedError(TaskError):
    """The actor has ended, so that its calls have no result."""

    actor: str
    reason: str
    story: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The actor and why it ended."""
        return f"actor {self.actor!r} has died: {self.reason}{_told(self.story)}"

    @property
    def next_step(self) -> str:
        """How to let it come back."""
        return "Create it again, or let it restart with ActorOptions.max_restarts."


@dataclass(eq=False)
class GetTimeoutError(TaskError, TimeoutError):
    """A value wasn't there within the seconds that `get` was given; its task goes on."""

    waiting_for: str
    seconds: float

    @property
    def message(self) -> str:
        """What was waited for and how long."""
        return f"{self.waiting_for} had no result within {self.seconds} s"

    @property
    def next_step(self) -> str:
        """What can still be done with the reference."""
        return "Its task goes on: call get again, or cancel it."


@dataclass(eq=False)
class UnpicklableExceptionError(TaskError):
    """The task raised an exception that can't cross processes; its text stands in for it."""

    task: str
    error_type: str
    error_text: str
    traceback: str

    @property
    def message(self) -> str:
        """The task, the exception and its traceback."""
        return f"task {self.task!r} raised {self.error_type}: {self.error_text}\n{self.traceback}"

    @property
    def next_step(self) -> str:
        """How to get the exception itself."""
        return "Let the exception's class survive pickle.loads(pickle.dumps(error)) to catch it by its type."


@dataclass(eq=False)
class RemoteTracebackError(TaskError):
    """Where an exception was raised in another process: the cause of that exception here."""

    worker: str
    traceback: str

    @property
    def message(self) -> str:
        """The process and the traceback as it printed it."""
        return f"raised in {self.worker}\n{self.traceback}"


@dataclass(eq=False)
class SerializationError(RequestError):
    """Something that must reach another process can't be pickled.

    `path` leads to the part that can't, such as `args[0].callback`; empty where that isn't known.
    """

    what: str
    path: str
    problem: str

    @property
    def message(self) -> str:
        """What was to be sent, which part of it can't be, and why."""
        place = f" at {self.path}" if self.path else ""
        return f"{self.what} can't be pickled{place}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to do about the part."""
        return "Open files, locks and connections inside the task instead of passing them to it."


@dataclass(eq=False)
class InvalidOptionError(RequestError, ValueError):
    """An option of a task, an actor or a call has a value that means nothing."""

    option: str
    value: str
    legal: str

    @property
    def message(self) -> str:
        """The option and its value."""
        return f"{self.option} is {self.value}"

    @property
    def next_step(self) -> str:
        """What is legal."""
        return f"Correct it; legal: {self.legal}."


@dataclass(eq=False)
class PoolClosedError(RequestError, RuntimeError):
    """A context was used after its shutdown."""

    what: str

    @property
    def message(self) -> str:
        """What is closed."""
        return f"{self.what} is shut down"

    @property
    def next_step(self) -> str:
        """How to get on."""
        return "Make a new context, and shut it down after its last use."


@dataclass(eq=False)
class UnknownContextError(RequestError, ValueError):
    """A kind of context that doesn't exist was asked for."""

    kind: str
    legal: tuple[str, ...]

    @property
    def message(self) -> str:
        """The kind."""
        return f"Unknown context type {self.kind!r}"

    @property
    def next_step(self) -> str:
        """The legal kinds."""
        return f"Use one that exists; legal: {', '.join(self.legal)}."


@dataclass(eq=False)
class ActorExistsError(RequestError, ValueError):
    """An actor was to be created under a name that a living actor has."""

    name: str

    @property
    def message(self) -> str:
        """The name."""
        return f"Actor {self.name!r} already exists"

    @property
    def next_step(self) -> str:
        """How to share it."""
        return "Choose another name, or pass get_if_exists=True to use the one that exists."


@dataclass(eq=False)
class ActorNotFoundError(RequestError, LookupError):
    """No actor has this name."""

    name: str
    known: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The name."""
        return f"no actor {self.name!r}"

    @property
    def next_step(self) -> str:
        """The names that do exist."""
        return f"Known actors: {', '.join(self.known)}." if self.known else "There are no named actors."


@dataclass(eq=False)
class UnschedulableError(RequestError):
    """A task or actor asks for more than any worker has.

    `wants` and `offered` are resources as text, such as `GPU: 1` and `CPU: 2, memory: 4000000000`.
    """

    task: str
    wants: str
    offered: str

    @property
    def message(self) -> str:
        """What was asked for and what there is."""
        return f"{self.task!r} asks for {self.wants}, which no worker has (the largest has {self.offered})"

    @property
    def next_step(self) -> str:
        """What to change."""
        return "Ask for less, or start workers with more."


@dataclass(eq=False)
class ContextUnavailableError(SurroundingsError, ImportError):
    """A kind of context that exists can't be made here."""

    kind: str
    reason: str
    alternative: str

    @property
    def message(self) -> str:
        """The kind and why it isn't there."""
        return f"context type {self.kind!r} is not available: {self.reason}"

    @property
    def next_step(self) -> str:
        """What to use instead."""
        return self.alternative


def _told(story: tuple[str, ...]) -> str:
    return "".join(f"\n  {line}" for line in story)


@dataclass(eq=False)
class StoreFullError(SurroundingsError):
    """No directory that may hold an object of `size` bytes has room for it."""

    size: int
    directories: tuple[str, ...]

    @property
    def message(self) -> str:
        """What was to be kept, and where."""
        return f"no room for an object of {self.size} bytes in {' or '.join(self.directories)}"

    @property
    def next_step(self) -> str:
        """How to make room."""
        return "Drop references to large values, or set FRAY_SPILL_DIR to a directory with more room."


@dataclass(eq=False)
class StoreDirectoryError(SurroundingsError):
    """A directory of objects, or a file in it, that can't be trusted or used."""

    path: str
    problem: str

    @property
    def message(self) -> str:
        """The path and what is wrong with it."""
        return f"object store {self.path}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to look at."""
        return (
            "See that it is this user's own, and that its disk has room; FRAY_SPILL_DIR names another place."
        )


@dataclass(eq=False)
class MalformedPayloadError(SurroundingsError):
    """Bytes that aren't an encoded value, or are only a part of one."""

    problem: str

    @property
    def message(self) -> str:
        """What is wrong with them."""
        return f"not an encoded value: {self.problem}"

    @property
    def next_step(self) -> str:
        """What the usual causes are."""
        return "See that all hosts have the same version of Fray, and that nothing else writes to its files."


@dataclass(eq=False)
class CodeNotFoundError(SurroundingsError, ImportError):
    """A module, or a function or class in it, that the sending process has and this one hasn't."""

    what: str
    problem: str

    @property
    def message(self) -> str:
        """What was read, and what of it is missing."""
        return f"{self.what} needs code that this process hasn't got: {self.problem}"

    @property
    def next_step(self) -> str:
        """Where the code has to be."""
        return "Install the same version in the image of the workers, or define it in the main script."
