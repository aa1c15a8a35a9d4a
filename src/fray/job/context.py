"""What every context can do: the interface that code inside a job is written against.

Contexts differ in where tasks run, not in what these methods mean; the few differences stand in
docs/contexts.md and are tested. Nothing here runs anything.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fray.errors import InvalidOptionError
from fray.job.actors import ActorHandle
from fray.job.calls import Call, actor_options, read_call, takes_keyword
from fray.job.options import ActorOptions, Lifetime, TaskOptions
from fray.job.progress import FutureState, MapWatch, total_of
from fray.job.progress_board import watching_map
from fray.job.refs import ObjectRef

if TYPE_CHECKING:
    from fray.job.timeline import TaskRun

__all__ = ["ContextStats", "JobContext"]

T = TypeVar("T")

_DEFAULT = TaskOptions()
"""Shared, since making and checking options costs as much as encoding a small call."""


@dataclass(frozen=True)
class ContextStats:
    """What a context has at this moment, and what became of its tasks and actor calls so far.

    `waiting` tasks have not started; `succeeded`, `failed` and `cancelled` have ended. `actors` live.
    """

    workers: int
    waiting: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    actors: int

    def __str__(self) -> str:
        """One line for each figure, with its name."""
        width = max(len(item.name) for item in fields(self))
        rows = ((item.name.replace("_", " "), getattr(self, item.name)) for item in fields(self))
        return "\n".join(f"{name:<{width}}  {value:>15,}" for name, value in rows)


class JobContext(ABC):
    """Runs tasks and actors, and holds the values they make.

    Pickled, a context comes back as the same object in its own process, and as that process's current
    context elsewhere. As a context manager it is shut down at the end.
    """

    @abstractmethod
    def put(self, obj: Any) -> ObjectRef:
        """Keep a value; return its ref."""

    @abstractmethod
    def get(self, ref: Any, *, timeout: float | None = None) -> Any:
        """Return the value of a ref, or of each ref in a list that holds at least one, in their order.

        Anything else comes back as the same object. Blocks up to `timeout` seconds (None: forever). An
        exception of the task is raised with its own type, again at each call.

        Raises:
            GetTimeoutError: the value isn't there in time. Its task goes on.
            TaskError: the task gave no value: it was cancelled, lost, or took too long.
        """

    @abstractmethod
    def wait(
        self, futures: Sequence[T], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[T], list[T]]:
        """Block until `num_returns` futures are ready (all, if there are fewer), or `timeout` seconds.

        Returns the ready ones, never more than `num_returns`, and the others: the same objects in their
        order. A future that failed is ready, and so is a generator whose next item is there or that has
        ended. Never raises what a task raised.

        Raises:
            InvalidOptionError: `num_returns` is below 1.
        """

    @abstractmethod
    def submit(self, call: Call, options: TaskOptions) -> ObjectRef:
        """Start a task; `run` and `create_task` end here."""

    @abstractmethod
    def start_actor(self, call: Call, options: ActorOptions) -> ActorHandle:
        """Start an actor, or find it by its name; `create_actor` ends here."""

    @abstractmethod
    def cancel(self, ref: ObjectRef, *, force: bool = False) -> None:
        """Let a task that hasn't ended yield `TaskCancelledError`; one that hasn't started never runs.

        A task that runs is left alone with `force=False` where it can't be interrupted; its result is
        `TaskCancelledError` all the same. Does nothing to a value that is there.
        """

    @abstractmethod
    def stats(self) -> ContextStats:
        """Return what the context has and did."""

    @abstractmethod
    def runs(self) -> list[TaskRun]:
        """Return the last runs of tasks and actors' calls, as many as are remembered, for a timeline."""

    @abstractmethod
    def state_of(self, future: Any, *, whole: bool) -> FutureState:
        """Return how far a future is; `whole`: a generator counts once it has ended. Never blocks."""

    @abstractmethod
    def count_running(self) -> int:
        """Return how many tasks and actors' calls run now."""

    @abstractmethod
    def shutdown(self) -> None:
        """End the context: tasks that have not ended are cancelled, actors die. May be called twice."""

    def run(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        options: TaskOptions | None = None,
        **kwargs: Any,
    ) -> ObjectRef:
        """Start `fn(*args, **kwargs)` as a task; return the ref of its result, at once.

        Refs among the arguments arrive as their values, after which the task starts; if one of them
        failed, the task fails with the same exception. Refs inside structures stay refs. A generator
        function gives a `GeneratorFuture`. The task sees a copy of the caller's context variables.
        `name` is for people; it wins over the name in `options`.
        """
        chosen = options or _DEFAULT
        return self.submit(Call(fn, args, kwargs), replace(chosen, name=name) if name else chosen)

    def create_task(
        self, fn: Callable[..., Any], /, *args: Any, options: TaskOptions | None = None, **kwargs: Any
    ) -> ObjectRef:
        """Start a task, as `run` does; `args=` (a tuple) and `kwargs=` (a dict) are an older spelling."""
        return self.submit(read_call(fn, args, kwargs), options or _DEFAULT)

    def create_actor(  # noqa: PLR0913 - the union of two APIs, all but the class by keyword
        self,
        cls: type,
        /,
        *args: Any,
        name: str | None = None,
        get_if_exists: bool = False,
        lifetime: Lifetime | str | None = None,
        preemptible: bool = True,
        num_cpus: float | None = None,
        options: Any = None,
        **kwargs: Any,
    ) -> ActorHandle:
        """Make an instance of `cls` that lives in the context; return the handle to call its methods.

        Calls of one actor run in the order of their submission, `ActorOptions.max_concurrency` at once. An
        exception of a method leaves the actor alive. With `get_if_exists`, the actor that has the name is
        returned and the arguments are ignored; of several creators at once, one creates. `args=`,
        `kwargs=` and `options=` are an older spelling, as in `create_task`; `options` that is no
        `ActorOptions`, or that the class has a parameter for, is an argument of the class.

        Raises:
            ActorExistsError: an actor has the name, and `get_if_exists` is false.
        """
        base = options if isinstance(options, ActorOptions) and not takes_keyword(cls, "options") else None
        if options is not None and base is None:
            kwargs["options"] = options
        chosen = actor_options(
            base,
            name=name,
            get_if_exists=get_if_exists,
            lifetime=lifetime,
            preemptible=preemptible,
            num_cpus=num_cpus,
        )
        return self.start_actor(read_call(cls, args, kwargs), chosen)

    def map(
        self,
        fn: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        options: TaskOptions | None = None,
        ahead: int = 256,
    ) -> Iterator[Any]:
        """Yield `fn` of each item (of several iterables side by side), in their order.

        At most `ahead` tasks are submitted whose result wasn't taken, so that an endless input is fine.

        Raises:
            InvalidOptionError: `ahead` is below 1.
        """
        if ahead < 1:
            raise InvalidOptionError("ahead", repr(ahead), "1 or more")
        return self._map(fn, iterables, options, ahead)

    def save_timeline(self, path: str | os.PathLike[str]) -> None:
        """Write what ran when and where as a Chrome trace, which ui.perfetto.dev and chrome://tracing show.

        One row a worker; at most the last 10,000 runs that have ended.

        Raises:
            OSError: the file can't be written.
        """
        from fray.job.timeline import to_json  # noqa: PLC0415 - most programs never ask for it

        Path(path).write_text(to_json(self.runs()), encoding="utf-8")

    def _map(
        self,
        fn: Callable[..., Any],
        iterables: tuple[Iterable[Any], ...],
        options: TaskOptions | None,
        ahead: int,
    ) -> Iterator[Any]:
        submitted: deque[ObjectRef] = deque()
        watch = MapWatch(self, total_of(iterables))
        with watching_map(watch):
            for args in zip(*iterables, strict=False):
                if len(submitted) == ahead:
                    yield watch.hand_out(self.get(submitted.popleft()))
                    watch.resume()
                submitted.append(self.run(fn, *args, options=options))
            while submitted:
                yield watch.hand_out(self.get(submitted.popleft()))
                watch.resume()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
