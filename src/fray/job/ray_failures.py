"""How failures travel on Ray: raised in its workers, and turned back into errors where results are taken.

Ray carries one exception only, whose data is Fray's encoding of the user's. What Ray itself reports (a
cancelled task, a dead worker) becomes the error that other engines raise for it.
"""

from __future__ import annotations

import base64
import pickle
from typing import Final

from ray import exceptions as ray_errors

from fray.errors import (
    ActorDiedError,
    ObjectLostError,
    RemoteTracebackError,
    SerializationError,
    StoreFullError,
    TaskCancelledError,
    WorkerDiedError,
)
from fray.payload.values.exceptions import decode_error, encode_error, raisable

__all__ = [
    "ConstructorFailedError",
    "RetriedFailureError",
    "TaskFailureError",
    "TimeUp",
    "build_failure",
    "decode_failure",
]

OPEN: Final = "<fray-failure "
CLOSE: Final = ">"
SENT_BYTES: Final = 32 * 1024
"""Of a constructor's failure: Ray keeps the text alone, so the data goes along in it."""


class TaskFailureError(Exception):
    """What a task or a call raised, encoded. Travels through Ray in place of the user's exception."""

    def __init__(self, data: bytes, task: str) -> None:
        super().__init__(data, task)
        self.data = data
        self.task = task

    @classmethod
    def of(cls, error: BaseException, task: str) -> TaskFailureError:
        """Encode an exception."""
        return cls(encode_error(error, task=task), task)

    def __str__(self) -> str:
        return f"task {self.task!r} failed; the traceback above says where"


class RetriedFailureError(TaskFailureError):
    """The same, of a task that is to be run again."""


class ConstructorFailedError(TaskFailureError):
    """The same, of an actor's constructor. Its text holds the data, since Ray keeps nothing else."""

    def __str__(self) -> str:
        data = self.data if len(self.data) <= SENT_BYTES else b""
        return f"actor {self.task!r} was not made {OPEN}{base64.b64encode(data).decode()}{CLOSE}"


class TimeUp(KeyboardInterrupt):
    """Raised in a task whose time is up, past code that catches `Exception`.

    Ray takes it for a cancellation where it meets Ray's own code.
    """

    def __init__(self, task: str, seconds: float) -> None:
        super().__init__(task, seconds)
        self.task = task
        self.seconds = seconds


def decode_failure(failure: TaskFailureError) -> BaseException:
    """Return the exception that a failure stands for, made anew."""
    return raisable(decode_error(failure.data), failure.task)


def build_failure(error: BaseException, task: str, actor: str) -> BaseException:
    """Return what is raised for an error of Ray where the result of `task` is taken, anew each time.

    `actor` is the actor whose call it is; empty for a task.
    """
    if isinstance(error, ray_errors.RayTaskError):
        return _raised(error, task, actor)
    if isinstance(error, ray_errors.TaskCancelledError):
        return TaskCancelledError(task)
    if isinstance(error, ray_errors.RayActorError | ray_errors.ActorUnschedulableError):
        return _actor_ended(error, actor or task)
    if isinstance(error, ray_errors.ObjectLostError):
        return ObjectLostError(task, _first_line(error))
    if isinstance(error, ray_errors.ObjectStoreFullError | ray_errors.OutOfDiskError):
        return StoreFullError(0, (_first_line(error),))
    if isinstance(error, ray_errors.RayError):
        return WorkerDiedError(task, "its worker", 1, (f"{type(error).__name__}: {_first_line(error)}",))
    return error


def _raised(error: ray_errors.RayTaskError, task: str, actor: str) -> BaseException:
    cause = error.cause
    if isinstance(cause, TaskFailureError):
        return decode_failure(cause)
    if isinstance(cause, ray_errors.RayError) or not isinstance(cause, BaseException):
        return build_failure(cause, task, actor) if cause is not error else WorkerDiedError(task, "it", 1)
    if isinstance(cause, TypeError | pickle.PicklingError):
        # All that the task's own code raises is encoded: this is Ray's, which could not write the result.
        return SerializationError(f"the result of {task!r}", "", str(cause))
    cause.__cause__ = RemoteTracebackError("a worker of Ray", str(error))
    return cause


def _actor_ended(error: BaseException, actor: str) -> BaseException:
    text = str(error)
    data = base64.b64decode(text.rpartition(OPEN)[2].partition(CLOSE)[0]) if OPEN in text else b""
    if data:
        return raisable(decode_error(data), actor)
    reason = "it was killed" if "ray.kill" in text else _first_line(error)
    return ActorDiedError(actor, reason, tuple(text.splitlines()[1:]))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
