"""What a task or an actor asks for besides its function. Data only: contexts decide what they can honour.

Names and defaults are those that users of the earlier APIs wrote; a context that can't honour an option
says so in docs/contexts.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fray.errors import InvalidOptionError
from fray.job.checks import (
    check_count,
    check_env,
    check_exceptions,
    check_name,
    check_resources,
    check_seconds,
)

__all__ = ["ActorOptions", "CallOptions", "Lifetime", "TaskOptions"]


class Lifetime(StrEnum):
    """How long an actor lives: with the job that made it, or until somebody ends it."""

    EPHEMERAL = "ephemeral"
    DETACHED = "detached"

    @classmethod
    def _missing_(cls, value: object) -> Lifetime:
        if value == "non_detached":  # the spelling of Ray, and of an earlier API
            return cls.EPHEMERAL
        legal = "'ephemeral', 'non_detached', 'detached'"
        raise InvalidOptionError("lifetime", repr(value), legal)


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """How a task runs.

    `resources` are slots by name: "CPU", "GPU", "TPU" (in any case), "memory" (bytes), or a name of your own;
    None is one CPU. In a pool, a process with GPUs or TPUs sees those that it holds, and a task that takes
    more than its "memory" ends its worker. `max_calls` ends the worker's process after that many calls.
    `retries` is how often a task is run again when its worker is lost, and when it raises one of
    `retry_exceptions` (True: any, False: none). `timeout` limits one run, in seconds. `env` and
    `runtime_env` describe the worker's process.
    """

    resources: Mapping[str, float] | None = None
    name: str | None = None
    max_calls: int | None = None
    env: Mapping[str, str] | None = field(default=None, repr=False)
    retries: int = 3
    retry_exceptions: bool | tuple[type[BaseException], ...] = False
    timeout: float | None = None
    runtime_env: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_name("name", self.name)
        object.__setattr__(self, "resources", check_resources(self.resources))
        check_env(self.env)
        check_count("retries", self.retries, 0)
        if self.max_calls is not None:
            check_count("max_calls", self.max_calls, 1)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout)
        exceptions = check_exceptions("retry_exceptions", self.retry_exceptions)
        object.__setattr__(self, "retry_exceptions", exceptions)


@dataclass(frozen=True, kw_only=True)
class ActorOptions:
    """How an actor lives.

    `name` is what others find it by; `get_if_exists` takes the one that has the name already. `resources`
    as in `TaskOptions`. `max_concurrency` calls run at once, in the order of their submission;
    None: one, or in a pool 1,000 of an actor with async methods, all in its event loop.
    `max_restarts` is how often it is constructed anew after its process was lost: 0 means never, -1 without
    limit, and None what is usual where it lives: without limit as a FrayActor, elsewhere never.
    `max_task_retries` is how often a call that was lost with it is made again (-1: without limit): only where
    a second run of any method does no harm. A FrayActor's constructor that raises is tried again as often.
    `idle_timeout` ends a FrayActor that wasn't called for so many seconds; others live with their context.
    `isolation`: "class" lets an actor without `resources` share a process with others of its class, "process"
    gives it one of its own; tasks never run in either.
    """

    name: str | None = None
    get_if_exists: bool = False
    resources: Mapping[str, float] | None = None
    lifetime: Lifetime = Lifetime.EPHEMERAL
    max_concurrency: int | None = None
    max_restarts: int | None = None
    max_task_retries: int = 0
    env: Mapping[str, str] | None = field(default=None, repr=False)
    isolation: str = "class"
    idle_timeout: float | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if self.idle_timeout is not None:
            check_seconds("idle_timeout", self.idle_timeout)
        object.__setattr__(self, "resources", check_resources(self.resources))
        check_env(self.env)
        if self.max_concurrency is not None:
            check_count("max_concurrency", self.max_concurrency, 1)
        if self.max_restarts is not None:
            check_count("max_restarts", self.max_restarts, -1)
        check_count("max_task_retries", self.max_task_retries, -1)
        if self.isolation not in ("class", "process"):
            raise InvalidOptionError("isolation", repr(self.isolation), "'class', 'process'")
        object.__setattr__(self, "lifetime", Lifetime(self.lifetime))


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """How one call of an actor's method runs.

    `timeout` limits it, in seconds, the wait for its turn included. `max_task_retries` is how often it is
    made again when it was lost with the actor's process (-1: without limit); None: as the actor's say.
    """

    timeout: float | None = None
    max_task_retries: int | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None:
            check_seconds("timeout", self.timeout)
        if self.max_task_retries is not None:
            check_count("max_task_retries", self.max_task_retries, -1)
