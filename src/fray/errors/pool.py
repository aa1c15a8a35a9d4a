"""What goes wrong with tasks, actors and the values they make, in whichever context they run.

An exception that a task's own code raises is none of these: it reaches the caller as it is. A `story` is
what happened before, a short line an event, oldest first.
"""

from __future__ import annotations

from fray.errors.base import FrayError
from fray.errors.request import RequestError
from fray.errors.surroundings import SurroundingsError

__all__ = [
    "ActorCallFailedError",
    "ActorDiedError",
    "ActorExistsError",
    "ActorNotFoundError",
    "ActorNotSharedError",
    "ActorReplacedError",
    "ActorUnavailableError",
    "AmbiguousActorError",
    "AttemptOverError",
    "CodeNotFoundError",
    "ContextUnavailableError",
    "EndpointNotFoundError",
    "GetTimeoutError",
    "HeadUnknownError",
    "InvalidOptionError",
    "MalformedPayloadError",
    "NotInActorError",
    "ObjectLostError",
    "ObjectUnreachableError",
    "OtherPoolError",
    "PoolClosedError",
    "PoolVersionError",
    "RemoteTracebackError",
    "SerializationError",
    "StoreDirectoryError",
    "StoreFullError",
    "TaskCancelledError",
    "TaskError",
    "TaskRaisedError",
    "TaskTimeoutError",
    "ThreadStartError",
    "UnknownContextError",
    "UnpicklableExceptionError",
    "UnschedulableError",
    "ValueExitError",
    "WorkerDiedError",
    "WorkerStartError",
]


class TaskError(FrayError):
    """A task or an actor's call that gave no value, for another reason than an exception of its own code."""


class TaskCancelledError(TaskError):
    """The task was cancelled before it had a result."""

    message = "task {task!r} was cancelled"
    next_step = "Submit it again if its result is wanted after all."

    task: str


class TaskTimeoutError(TaskError, TimeoutError):
    """The task, or an actor's call, ran longer than its `timeout`, in seconds."""

    message = "task {task!r} ran longer than its limit of {seconds} s{story:lines}"
    next_step = (
        "Do less in one call, or raise its limit: TaskOptions.timeout of a task, "
        "handle.method.options(timeout=...) of an actor's call."
    )

    task: str
    seconds: float
    story: tuple[str, ...] = ()


class WorkerDiedError(TaskError):
    """The worker died under the task, and under each of its retries.

    `attempts` counts all runs of the task, the first included.
    """

    message = "task {task!r} was lost with {worker} (attempts: {attempts}){story:lines}"
    next_step = "Look for what ends the process: memory, a signal, os._exit. TaskOptions.retries allows more."

    task: str
    worker: str
    attempts: int
    story: tuple[str, ...] = ()


class WorkerStartError(TaskError):
    """The task never began: each worker that was started for it ended before it could run anything."""

    message = "task {task!r} can't begin, since no worker can be started; the last one {reason}"
    next_step = "Read what the workers wrote to standard error, and check TaskOptions.env, memory and limits."

    task: str
    reason: str


class ThreadStartError(TaskError):
    """The task or actor never began: its worker could start no thread for it."""

    message = "{task!r} can't begin, since its worker can start no thread: {reason}"
    next_step = (
        "Nest tasks less deeply, since each that waits for another keeps a thread; or raise the limits of "
        "threads (ulimit -u, pids.max) and memory."
    )

    task: str
    reason: str


class ObjectLostError(TaskError):
    """A value was lost with the process that held it, and can't be made again."""

    message = "object {object} is lost: {reason}{story:lines}"
    next_step = "Submit its task again in this context, or put the value again."

    object: str
    reason: str
    story: tuple[str, ...] = ()


class ObjectUnreachableError(TaskError):
    """A value is where it was made, but this reader couldn't get it, by whichever way."""

    message = "object {object} is on host {host} and can't be read from here: {reason}"
    next_step = "Let the hosts reach each other (network policies, firewalls), or read it on another host."

    object: str
    host: str
    reason: str


class ActorDiedError(TaskError):
    """The actor has ended, so that its calls have no result."""

    message = "actor {actor!r} has died: {reason}{story:lines}"
    next_step = (
        "Where it was started again, call it again, one that jobs share by a new handle of get_actor(NAME); "
        "else create it, if it is still needed. How often it is started again by itself, "
        "ActorOptions.max_restarts says."
    )

    actor: str
    reason: str
    story: tuple[str, ...] = ()


class ActorUnavailableError(TaskError):
    """The actor can't be reached, and may live: whether it has run the call isn't known."""

    message = "actor {actor!r} can't be reached: {reason}{story:lines}"
    next_step = (
        "Call it again where a second run does no harm: the handle connects anew. `kubectl get fa` and the "
        "actor's pod show what hinders it."
    )

    actor: str
    reason: str
    story: tuple[str, ...] = ()


class GetTimeoutError(TaskError, TimeoutError):
    """A value wasn't there within the seconds that `get` was given; its task goes on."""

    message = "{waiting_for} had no result within {seconds} s"
    next_step = "Its task goes on: call get again, or cancel it."

    waiting_for: str
    seconds: float


class UnpicklableExceptionError(TaskError):
    """The task raised an exception that can't cross processes; its text stands in for it."""

    message = "task {task!r} raised {error_type}: {error_text}\n{traceback}"
    next_step = "Let the exception's class survive pickle.loads(pickle.dumps(error)) to catch it by its type."

    task: str
    error_type: str
    error_text: str
    traceback: str


class TaskRaisedError(TaskError):
    """The task raised what would end the caller's own loop or process; the exception itself is its cause.

    So `sys.exit(0)` or a bare `next` in a task is an error of the task, and nothing else.
    """

    message = "task {task!r} raised {error_type}({error_text})"
    next_step = "Return a value from the task, or raise an exception of your own."

    task: str
    error_type: str
    error_text: str


class ValueExitError(TaskError):
    """Unpickling a value raised what would end the reader's own loop or process; that is the cause.

    So `sys.exit` in a `__setstate__`, or in a module that the value imports, ends nobody.
    """

    message = "unpickling {what} raised {error_type}({error_text})"
    next_step = "The traceback of the cause shows the code: of its class, or of a module that it needs."

    what: str
    error_type: str
    error_text: str


class RemoteTracebackError(TaskError):
    """Where an exception was raised in another process: the cause of that exception here."""

    message = "raised in {worker}\n{traceback}"

    worker: str
    traceback: str


class SerializationError(RequestError):
    """Something that must reach another process can't be pickled.

    `path` leads to the part that can't, such as `args[0].callback`; empty where that isn't known.
    """

    message = "{what} can't be pickled{path:? at }: {problem}"
    next_step = "Open files, locks and connections where they are used instead of passing or returning them."

    what: str
    path: str
    problem: str


class InvalidOptionError(RequestError, ValueError):
    """An option of a task, an actor or a call has a value that means nothing."""

    message = "{option} is {value}"
    next_step = "Correct it; legal: {legal}."

    option: str
    value: str
    legal: str


class PoolClosedError(RequestError, RuntimeError):
    """A context was used after its shutdown."""

    message = "{what} is shut down"
    next_step = "Make a new context, and shut it down after its last use."

    what: str


class UnknownContextError(RequestError, ValueError):
    """A kind of context that doesn't exist was asked for."""

    message = "Unknown context type {kind!r}"
    next_step = "Use one that exists; legal: {legal:list}."

    kind: str
    legal: tuple[str, ...]


class ActorExistsError(RequestError, ValueError):
    """An actor was to be created under a name that a living actor has."""

    message = "Actor {name!r} already exists"
    next_step = "Choose another name, or use the one that exists: get_actor({name!r}) finds it."

    name: str


class ActorCallFailedError(TaskError):
    """A method that was called from a shell has raised; `story` is the end of its traceback."""

    message = "{method} of actor {actor!r} raised {type}: {text}{story:lines}"
    next_step = "The actor lives on; `fray actors logs {actor}` shows what it printed."

    actor: str
    method: str
    type: str
    text: str
    story: tuple[str, ...] = ()


class ActorNotFoundError(RequestError, LookupError):
    """No actor has this name."""

    message = "no actor {name!r}"

    name: str
    known: tuple[str, ...] | None = None
    """None where nobody has looked which there are."""

    @property
    def next_step(self) -> str:
        """The names that do exist."""
        if self.known is None:
            return "Look again once it has been created; `fray actors` lists those of a namespace."
        return f"Known actors: {', '.join(self.known)}." if self.known else "There are no named actors."


class AmbiguousActorError(RequestError, LookupError):
    """Several jobs have an actor that programs call so."""

    message = "several actors are called {name!r}: FrayActors {names:list}"
    next_step = "Pass the name of one of the FrayActors."

    name: str
    names: tuple[str, ...]


class EndpointNotFoundError(RequestError, LookupError):
    """No job and no actor that lives has registered an endpoint of this name."""

    message = "no endpoint {name!r}: {reason}"
    next_step = "A job or an actor registers it by register_endpoint(); look again once it has begun."

    name: str
    reason: str


class NotInActorError(RequestError, RuntimeError):
    """`current_actor` was called where no actor is being constructed."""

    message = "no actor is being constructed here"
    next_step = "Call current_actor() in the class's __init__, and keep what it returns."


class ActorNotSharedError(RequestError):
    """A named actor was to be shared with other jobs, and this version of Fray keeps it to its own job."""

    message = "actor {name!r} would be private to job {job!r}: {reason}"
    next_step = (
        "Pass lifetime='ephemeral' for an actor that this job alone uses; exchange data between jobs by "
        "fray.queue or files."
    )

    name: str
    job: str
    reason: str


class UnschedulableError(RequestError):
    """A task or actor asks for more than any worker has.

    `wants` and `offered` are resources as text, such as `GPU: 1` and `CPU: 2, memory: 4000000000`.
    """

    message = "{task!r} asks for {wants}, which no worker has (the largest has {offered})"
    next_step = "Ask for less, or start workers with more."

    task: str
    wants: str
    offered: str


class HeadUnknownError(SurroundingsError, TimeoutError):
    """A worker's pod doesn't learn where the head of its pool is."""

    message = "the head of job {job_uid}, attempt {attempt}, had no address after {seconds} s: {problem}"
    next_step = "See why rank 0's pod doesn't start: the job's conditions say so."

    job_uid: str
    attempt: int
    seconds: float
    problem: str


class AttemptOverError(SurroundingsError):
    """The pool of this process's job has ended for good: a job's pool lives as long as its attempt."""

    message = "the attempt of this process's job is over: {reason}"
    next_step = "See the job's status: it says how the attempt ended, and whether there is another."

    reason: str


class OtherPoolError(SurroundingsError):
    """At an address where the head of one pool was there is that of another now."""

    message = "{address} is the head of another pool"
    next_step = "Look for the pool anew: the one that was there has ended."

    address: str


class ActorReplacedError(SurroundingsError):
    """The pod of an actor's member runs although a later one has taken its place."""

    message = "member {index} of actor {actor} runs in pod {pod} by now"
    next_step = "Nothing is to be done: this pod's actor is ended, and no call reaches it."

    actor: str
    index: int
    pod: str


class ContextUnavailableError(SurroundingsError, ImportError):
    """A kind of context that exists can't be made here."""

    message = "context type {kind!r} is not available: {reason}"
    next_step = "{alternative}"

    kind: str
    reason: str
    alternative: str


class PoolVersionError(SurroundingsError):
    """A process can't be part of a pool whose others have other versions of Python or Fray."""

    message = "the pool's head refused this process"
    next_step = "{problem}"

    problem: str


class StoreFullError(SurroundingsError):
    """No directory that may hold an object of `size` bytes has room for it."""

    message = "no room for an object of {size} bytes in any of {directories:list}"
    next_step = "Drop references to large values, or set FRAY_SPILL_DIR to a directory with more room."

    size: int
    directories: tuple[str, ...]


class StoreDirectoryError(SurroundingsError):
    """A directory of objects, or a file in it, that can't be trusted or used."""

    message = "object store {path}: {problem}"
    next_step = (
        "See that it is this user's own, and that its disk has room; FRAY_SPILL_DIR names another place."
    )

    path: str
    problem: str


class MalformedPayloadError(SurroundingsError):
    """Bytes that aren't an encoded value, or are only a part of one."""

    message = "not an encoded value: {problem}"
    next_step = "See that all hosts have the same version of Fray, and that nothing else writes to its files."

    problem: str


class CodeNotFoundError(SurroundingsError, ImportError):
    """A module, or a function or class in it, that the sending process has and this one hasn't."""

    message = "{what} needs code that this process hasn't got: {problem}"
    next_step = "Install the same version in the image of the workers, or define it in the main script."

    what: str
    problem: str
