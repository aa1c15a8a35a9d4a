"""What a call of the public API means: which function, with which arguments and options.

Several generations of spellings end here in one form, so that a context sees only that one. Pure: nothing
here runs a task or knows a context.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, NamedTuple

from fray.errors import ActorNotSharedError
from fray.job.options import ActorOptions, CallOptions, Lifetime
from fray.vocabulary import ENV_JOB_NAME, ENV_ROOT_JOB

__all__ = [
    "Call",
    "MethodCall",
    "actor_options",
    "check_shared",
    "class_of",
    "has_async_methods",
    "is_generator_function",
    "read_call",
    "takes_keyword",
]

NON_PREEMPTIBLE = {"head_node": 0.0001}
"""What an actor asks for that must stay where nothing is preempted (the older APIs' own spelling)."""


@dataclass(frozen=True)
class Call:
    """A function and what it is called with; refs among the arguments are not resolved yet."""

    function: Callable[..., Any] = field(repr=False)
    args: tuple[Any, ...] = field(repr=False)
    kwargs: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The function's name, for people."""
        inner = getattr(self.function, "func", self.function)  # functools.partial
        return getattr(inner, "__name__", None) or type(inner).__name__


class MethodCall(NamedTuple):
    """A method of an actor and what it is called with; refs among the arguments are not resolved yet."""

    method: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    options: CallOptions = CallOptions()


def read_call(function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Call:
    """Return what is to be called, from either spelling.

    Arguments follow the function as they would in a call, or come as `args=` (a tuple) and `kwargs=` (a
    dict). The second spelling is meant where the types fit and the function has no parameter of that name.
    """
    rest = dict(keywords)
    if not args and isinstance(rest.get("args"), tuple) and not takes_keyword(function, "args"):
        args = rest.pop("args")
    if isinstance(rest.get("kwargs"), dict) and not takes_keyword(function, "kwargs"):
        rest |= rest.pop("kwargs")
    return Call(function, args, rest)


def takes_keyword(function: Callable[..., Any], name: str) -> bool:
    """Return whether a parameter of `function` has this name (for a class: one of its `__init__`)."""
    try:
        parameter = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    return parameter is not None and parameter.kind in {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }


def actor_options(  # noqa: PLR0913 - the union of two APIs, all but the first by keyword
    base: ActorOptions | None,
    *,
    name: str | None,
    get_if_exists: bool,
    lifetime: Lifetime | str | None,
    preemptible: bool,
    num_cpus: float | None,
    max_task_retries: int | None = None,
    idle_timeout: float | None = None,
) -> ActorOptions:
    """Return the options that both spellings together ask for; a keyword that was given wins over `base`."""
    options = base or ActorOptions()
    resources = dict(options.resources or {})
    if num_cpus is not None:
        resources["CPU"] = num_cpus
    if not preemptible:
        resources |= NON_PREEMPTIBLE
    return replace(
        options,
        name=name if name is not None else options.name,
        get_if_exists=get_if_exists or options.get_if_exists,
        lifetime=Lifetime(lifetime) if lifetime is not None else options.lifetime,
        resources=resources or options.resources,
        max_task_retries=options.max_task_retries if max_task_retries is None else max_task_retries,
        idle_timeout=options.idle_timeout if idle_timeout is None else idle_timeout,
    )


def check_shared(options: ActorOptions, *, own: bool, environ: Mapping[str, str]) -> None:
    """Refuse an actor that other jobs were to share: names are known in one process and its pool.

    `own`: the caller has said that it is this job's alone.

    Raises:
        ActorNotSharedError: it is to outlive this process's job, or may be one that the job's parent has.
    """
    job, root = environ.get(ENV_JOB_NAME), environ.get(ENV_ROOT_JOB)
    if options.name is None or not job:
        return
    if options.lifetime is Lifetime.DETACHED:
        raise ActorNotSharedError(options.name, job, "actors end with the job that made them")
    if options.get_if_exists and root and root != job and not own:
        reason = f"an actor of this name in job {root!r} or its other jobs can't be found from here"
        raise ActorNotSharedError(options.name, job, reason)


def class_of(made_by: Callable[..., Any]) -> type | None:
    """Return the class of which `made_by`, or what it is a `functools.partial` of, makes instances."""
    inner = getattr(made_by, "func", made_by)
    return inner if isinstance(inner, type) else None


def has_async_methods(made_by: Callable[..., Any]) -> bool:
    """Return whether a class has methods that are coroutine functions or async generators."""
    kind = class_of(made_by)
    return kind is not None and any(
        inspect.iscoroutinefunction(part) or inspect.isasyncgenfunction(part)
        for base in kind.__mro__
        for part in vars(base).values()
    )


def is_generator_function(function: Callable[..., Any]) -> bool:
    """Return whether calling `function` makes a generator, async or not, whose items are then streamed."""
    if type(function) is FunctionType:  # nearly all are, and `inspect` takes ten times as long to tell
        return bool(function.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR))
    called = getattr(function, "__call__", None)  # noqa: B004 - an object's own
    return any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in (function, called)
    )
