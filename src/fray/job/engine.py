"""What an engine does for a context: the part that differs between threads, worker processes and others.

`JobContext`, refs and handles are written once, over this protocol. An engine gives and takes entries (what
stands behind a ref) and actors (what stands behind a handle); it knows no other part of the public API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol

from fray.errors import ObjectLostError, PoolClosedError
from fray.job.calls import Call, MethodCall
from fray.job.options import ActorOptions, TaskOptions
from fray.job.progress import FutureState
from fray.job.timeline import TaskRun
from fray.job.traits import Feature, refuse

__all__ = [
    "ANYWHERE",
    "END",
    "LATE",
    "Actor",
    "ContextStats",
    "Engine",
    "EngineBase",
    "Entry",
    "Ref",
    "deadline_after",
    "time_left",
]

LATE: Final = object()
"""Given in place of a value after the deadline; no exception, since a task's own may be a TimeoutError."""
END: Final = object()
"""Given in place of an item after the last one."""


ANYWHERE: Final = "anywhere"
"""The home of engines whose refs every context of their process reads: connections to named actors."""


def deadline_after(timeout: float | None) -> float | None:
    """Return the monotonic time at which `timeout` seconds from now have passed; None for never."""
    return None if timeout is None else time.monotonic() + timeout


def time_left(deadline: float | None) -> float | None:
    """Return the seconds until a time of `time.monotonic`, at least 0; None for no deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


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
        figures = [item.name for item in fields(self) if isinstance(getattr(self, item.name), int)]
        width = max(map(len, figures))
        rows = ((name.replace("_", " "), getattr(self, name)) for name in figures)
        return "\n".join(f"{name:<{width}}  {value:>15,}" for name, value in rows)


class Entry(Protocol):
    """A value, or the items of a generator, that an engine has or will have."""

    @property
    def id(self) -> str | int:
        """Its name, unique within the engine."""

    @property
    def ready(self) -> bool:
        """Whether taking the value, or the next item, would not block."""


class Ref(Protocol):
    """What an engine sees of a ref."""

    _entry: Any
    _name: str
    _actor: str


class Actor(Protocol):
    """What a handle needs of its actor."""

    @property
    def id(self) -> str:
        """Unique among all actors of this process."""

    @property
    def label(self) -> str:
        """The actor's name, or that of its class: for people."""

    @property
    def class_name(self) -> str:
        """The name of its class."""

    @property
    def entry(self) -> Any:
        """What `Engine.release` gets when a handle is gone."""

    def problem_of(self, method: str) -> str:
        """Return in words why there is no such method; empty if there is, or may be."""

    def streams(self, method: str) -> bool:
        """Return whether the method is a generator function, whose items are streamed."""


class Engine(Protocol):
    """Runs tasks and actors and holds values. All methods may be called by any thread.

    Methods that start or change something raise `PoolClosedError` after `shutdown`. A `deadline` is a time of
    `time.monotonic`; None: never.
    """

    token: str
    """Its name, unique: pickled refs, handles and contexts say by it where they belong."""
    home: str
    """Engines with the same home can read each other's refs; those of `ANYWHERE` are read by all."""
    items_are_refs: bool
    """Whether `next_item` gives the entry of an item, not the item itself."""

    @property
    def closed(self) -> bool:
        """Whether it was shut down."""

    def __repr__(self) -> str: ...

    # --- values ---

    def put(self, value: Any) -> Entry:
        """Keep a value."""

    def take(self, ref: Ref, deadline: float | None) -> Any:
        """Return the value of a ref that is no generator, or `LATE`; raise the failure of its task."""

    def next_item(self, ref: Ref, deadline: float | None) -> Any:
        """Return the next item of a generator, `END` after the last, or `LATE`; raise its failure.

        Called within `shielded`.
        """

    def prefetch(self, entries: Sequence[Entry], deadline: float | None) -> None:
        """Wait for values that are taken next, where all at once costs less than one after the other."""

    def subscribe(self, entries: Sequence[Any], listener: Callable[[Any], None]) -> None:
        """Call `listener` with each entry once it is ready, in any thread: it must only take note."""

    def unsubscribe(self, entries: Iterable[Any], listener: Callable[[Any], None]) -> None:
        """Forget a subscription of each entry, if there is one. Called by finalizers: never blocks."""

    def blocking(
        self, wake: Callable[[], None], deadline: float | None = None
    ) -> AbstractContextManager[object]:
        """Surround what blocks a task, so that it lends what it holds; `wake` is called to end it.

        An engine may itself wait, until the deadline, for what this thread has subscribed to.
        """

    def lend(self) -> Callable[[], None]:
        """Lend what the running task holds, for a wait that nobody sees; return what takes it back, once.

        Any thread may do so.
        """

    def state_of(self, entry: Entry, *, whole: bool) -> FutureState:
        """Return how far an entry is; `whole`: a generator counts once it has ended. Never blocks."""

    def release(self, entry: Any) -> None:
        """Take note that one ref or handle of the entry is gone. Called by finalizers: never blocks."""

    # --- tasks and actors ---

    def submit(self, call: Call, options: TaskOptions, *, streaming: bool) -> Entry:
        """Start a task; `streaming`: it is a generator, and its entry is that of its items."""

    def cancel(self, entry: Entry, *, force: bool) -> None:
        """Let a task that hasn't ended yield `TaskCancelledError`."""

    def create_actor(self, call: Call, options: ActorOptions) -> Actor:
        """Start an actor, or find it by its name."""

    def find_actor(self, name: str) -> Actor:
        """Return the actor that has a name. Raises `ActorNotFoundError`."""

    def call_actor(self, actor: Any, call: MethodCall, *, streaming: bool) -> Entry:
        """Call a method of one of its actors."""

    def kill(self, actor: Any) -> None:
        """End one of its actors for good: calls that have not ended fail, and its name is free."""

    # --- pickling, and interrupts of the thread that calls ---

    def wire_id(self, entry: Entry) -> int:
        """Return the number that stands for an entry among pickled arguments.

        Raises `ObjectLostError` where it has none, or where another engine encodes the arguments.
        """

    def reduce_ref(self, ref: Any) -> tuple[Any, ...]:
        """Return what pickle needs to make the ref again."""

    def reduce_handle(self, handle: Any) -> tuple[Any, ...]:
        """Return what pickle needs to make an actor's handle again."""

    def shielded(self) -> AbstractContextManager[None]:
        """Keep interrupts of the running task out of a block that must not be left half done."""

    # --- the engine itself ---

    @property
    def metrics_address(self) -> str:
        """The path of the unix socket that serves its counts, as Prometheus text over HTTP."""

    def stats(self) -> ContextStats:
        """Return what it has and did."""

    def runs(self) -> list[TaskRun]:
        """Return the last runs of tasks and actors' calls, as many as are remembered."""

    def count_running(self) -> int | None:
        """Return how many tasks and actors' calls run now, None if that can't be known; cheap."""

    def shutdown(self) -> None:
        """End all tasks and actors. May be called twice."""


class EngineBase:
    """What engines answer alike that have no pool of Fray's behind them; see `Engine`."""

    kind: str
    """That of its contexts."""
    token: str
    _closed = False

    @property
    def closed(self) -> bool:
        """Whether it was shut down."""
        return self._closed

    def _check_open(self) -> None:
        if self.closed:
            raise PoolClosedError(self.token)

    def wire_id(self, entry: Any) -> int:
        """Raise `ObjectLostError`: its values have no number elsewhere."""
        raise ObjectLostError(str(entry.id), "it belongs to another context")

    def shielded(self) -> AbstractContextManager[None]:
        """Do nothing: nobody interrupts its tasks, or somebody does wherever Python code runs."""
        return nullcontext()

    @property
    def metrics_address(self) -> str:
        """Raise `UnsupportedFeatureError`: only a pool serves its counts."""
        raise refuse(self.kind, Feature.METRICS)

    def __repr__(self) -> str:
        return self.token
