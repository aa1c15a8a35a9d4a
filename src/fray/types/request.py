"""A whole job as its author asks for it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from fray.errors import InvalidRequestError
from fray.types.checks import check_count, check_text, show_value
from fray.types.entrypoint import Entrypoint
from fray.types.environment import EnvironmentConfig, create_environment
from fray.types.resources import MOST_REPLICAS, ResourceConfig, warn_of_hosts

__all__ = ["CompleteRequest", "JobRequest"]

_UNUSED: Final = {
    "priority": "name a WorkloadPriorityClass of Kueue: queue='...', priority_class='...'",
    "max_task_failures": "one host that fails ends the attempt: write max_retries_failure=N",
}
"""Parts of an earlier API, and what to write instead."""
_MOST_RETRIES: Final = 1_000_000
_MOST_SECONDS: Final = 2**31 - 1


@dataclass(frozen=True, repr=False)
class JobRequest:
    """What to run, on what, and how often.

    Args:
        name: What to call it. Text without spaces; what a cluster can't have in a name is replaced, and
            the name kept beside it.
        entrypoint: An `Entrypoint`, a callable, or the name of a Python module to run as a script.
        resources: The hosts it runs on.
        environment: What it finds there; `create_environment()` at launch when None.
        entrypoint_args: Arguments of a module.
        replicas: Takes the place of `resources.replicas`.
        max_retries_failure: How often it is tried again after failures of its own.
        max_retries_preemption: How often after it lost its nodes.
        timeout: Limit for all its attempts together, in seconds or as a timedelta; rounded up to
            whole seconds.
        queue: Kueue LocalQueue that admits it; the cluster spec's when None.
        priority_class: Kueue WorkloadPriorityClass; needs a queue.
        service_account: ServiceAccount of its pods; the cluster spec's when None.
        processes_per_task: Only 1, as the command itself starts further processes of a host.
        priority: Of an earlier API and not used, with a warning; `priority_class` is.
        max_task_failures: Likewise; one host that fails ends the attempt.

    Raises:
        InvalidRequestError: A value means nothing; it says which and what to write.
    """

    name: str
    entrypoint: Entrypoint | Callable[..., Any] | str
    resources: ResourceConfig = field(default_factory=ResourceConfig)
    environment: EnvironmentConfig | None = None
    max_retries_failure: int = 0
    max_retries_preemption: int = 100
    _: KW_ONLY
    entrypoint_args: Sequence[str] = ()
    replicas: int | None = None
    timeout: float | timedelta | None = None
    queue: str | None = None
    priority_class: str | None = None
    service_account: str | None = None
    processes_per_task: int = 1
    priority: int = 0
    max_task_failures: int = 0

    if not TYPE_CHECKING:  # type checkers know `__init__`

        def __new__(cls, *args, **_kwargs):
            """Warn of a positional argument that meant something else in an earlier API."""
            if len(args) > 4:
                instead = f"write max_retries_failure={args[4]!r}, or replicas={args[4]!r}"
                meaning = "the fifth argument is max_retries_failure, and was replicas in an earlier API"
                warnings.warn(f"JobRequest: {meaning}; {instead}", stacklevel=2)
            return super().__new__(cls)

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.processes_per_task != 1:
            remedy = "Leave it out, and start them by the command: torchrun --nproc-per-node=8 train.py."
            _refuse("processes_per_task", f"is {show_value(self.processes_per_task)}", remedy)
        for name, instead in _UNUSED.items():
            if getattr(self, name):
                warnings.warn(f"JobRequest.{name} isn't used; {instead}", stacklevel=3)
        if not isinstance(self.resources, ResourceConfig):
            remedy = "Give a ResourceConfig, such as ResourceConfig.with_tpu('v5p-8')."
            _refuse("resources", f"is of type {type(self.resources).__name__}", remedy)
        if self.environment is not None and not isinstance(self.environment, EnvironmentConfig):
            remedy = "Give create_environment(...), or None."
            _refuse("environment", f"is of type {type(self.environment).__name__}", remedy)
        for name in ("max_retries_failure", "max_retries_preemption"):
            check_count(f"JobRequest.{name}", getattr(self, name), least=0, most=_MOST_RETRIES)
        if self.replicas is not None:
            check_count("JobRequest.replicas", self.replicas, least=1, most=MOST_REPLICAS)
            if type(self) is JobRequest:  # it was told of where it was written
                warn_of_hosts(self.resources.device, self.replicas, stacklevel=3)
        _check_timeout(self.timeout)
        for name in ("queue", "priority_class", "service_account"):
            if (value := getattr(self, name)) is not None:
                check_text(f"JobRequest.{name}", value, remedy="Name an object of the cluster, or None.")
        # Entrypoint.from_module judges the arguments themselves; a text alone would be split into letters.
        if isinstance(self.entrypoint_args, str | bytes) or not isinstance(self.entrypoint_args, Sequence):
            problem = f"is of type {type(self.entrypoint_args).__name__}, not a list of texts"
            _refuse("entrypoint_args", problem, "Give a list of texts: ['--steps', '10'].")
        object.__setattr__(self, "entrypoint_args", tuple(self.entrypoint_args))
        self.resolve_entrypoint()

    def resolve_entrypoint(self) -> Entrypoint:
        """Return the entrypoint, in whichever form it was given."""
        if isinstance(self.entrypoint, str):
            return Entrypoint.from_module(self.entrypoint, self.entrypoint_args)
        if self.entrypoint_args:
            remedy = "Give them to Entrypoint.from_callable(main, args=[...]) or from_command([...])."
            _refuse("entrypoint_args", "belong to the name of a module", remedy)
        if isinstance(self.entrypoint, Entrypoint):
            return self.entrypoint
        if not callable(self.entrypoint):
            remedy = "Give an Entrypoint, a callable, or the name of a Python module."
            _refuse("entrypoint", f"is of type {type(self.entrypoint).__name__}", remedy)
        return Entrypoint.from_callable(self.entrypoint)

    def with_environment(self) -> CompleteRequest:
        """Return the same request with `create_environment()` where it has none."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.environment is None:
            parts["environment"] = create_environment()
        return CompleteRequest(**parts)

    def __repr__(self) -> str:
        # The entrypoint as it was given may be a partial function, which shows its arguments.
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        shown = {**known, "entrypoint": self.resolve_entrypoint()}
        del shown["entrypoint_args"]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def gang_resources(self) -> ResourceConfig:
        """The resources, with the request's own `replicas` where it has some."""
        return self.resources if self.replicas is None else replace(self.resources, replicas=self.replicas)

    @property
    def timeout_seconds(self) -> int | None:
        """The limit in whole seconds, rounded up."""
        return None if self.timeout is None else math.ceil(_seconds(self.timeout))


@dataclass(frozen=True, repr=False)
class CompleteRequest(JobRequest):
    """A request that has an environment; only such a one becomes a job, so that none lacks the defaults.

    `JobRequest.with_environment` makes it, at launch: where the request was written, the directory and the
    variables may have been others.
    """

    environment: EnvironmentConfig = field(default_factory=create_environment)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.environment, EnvironmentConfig):
            _refuse("environment", "is missing", "Use JobRequest.with_environment(), which fills it in.")

    def with_environment(self) -> CompleteRequest:
        """Return this request."""
        return self


def _refuse(field: str, problem: str, remedy: str) -> None:
    raise InvalidRequestError(f"JobRequest.{field}", problem, remedy)


def _check_name(name: Any) -> None:
    remedy = "Give it a name, such as 'train-7b'."
    if isinstance(name, str) and " " in name:
        better = "-".join(name.split()) or "train-7b"
        raise InvalidRequestError("JobRequest.name", "Job name must not contain spaces", f"Use {better!r}.")
    check_text("JobRequest.name", name, remedy=remedy)
    if not name.isprintable():
        raise InvalidRequestError("JobRequest.name", f"is {name!r}, which can't be printed", remedy)
    if len(name) > 253:
        raise InvalidRequestError("JobRequest.name", f"has {len(name)} characters", "Use at most 253.")


def _check_timeout(timeout: Any) -> None:
    if timeout is None:
        return
    known = isinstance(timeout, int | float | timedelta) and not isinstance(timeout, bool)
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if not known or not 0 < seconds <= _MOST_SECONDS:
        remedy = "Give seconds above 0, or a timedelta of at most 68 years, or None."
        raise InvalidRequestError("JobRequest.timeout", f"is {show_value(timeout)}", remedy)


def _seconds(timeout: float | timedelta) -> float:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
