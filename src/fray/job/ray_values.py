"""Values and actors of a context on Ray, as one process sees them."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any, NamedTuple

import ray
from ray import exceptions as ray_errors

from fray.errors import ActorDiedError, FrayError, TaskCancelledError
from fray.job.actor_methods import ActorMethods, KnownActor
from fray.job.ray_failures import TaskFailureError
from fray.job.ray_tasks import CONTROL

__all__ = ["ActorCall", "RayActor", "RayEntry", "RaySession", "RayStream", "is_there"]


class RaySession(NamedTuple):
    """A context on a Ray, as all of its processes know it."""

    token: str
    cluster: str
    """The address of the Ray's control store: its refs can be read wherever that is the same."""
    namespace: str
    """Of the names of its actors."""
    cpus: float
    """Of the placement group that bounds its tasks and has the token as its name; 0: it has none."""
    fixed: bool
    """Whether the Ray never gets more nodes, so that what fits on none of them never will."""


class RayEntry:
    """A value on Ray, by its ref; without one, `ended` says why there is no value."""

    def __init__(self, ref: Any, name: str = "", actor: str = "") -> None:
        self.id: str = uuid.uuid4().hex if ref is None else ref.hex()
        self.ref = ref
        self.name = name
        self.actor = actor
        """The name of the actor whose call makes it."""
        self.is_task = False
        self.cancelled = False
        """Whether this process has asked Ray to cancel the task."""
        self.call: ActorCall | None = None
        self.ended: FrayError | None = None
        """What ended it for this process alone: a call of an actor, which itself may go on."""
        self._there = False

    @property
    def awaited(self) -> Any:
        """What Ray waits for."""
        return self.ref

    @property
    def expires(self) -> float | None:
        """When a call's time is up, as monotonic time."""
        return None if self.call is None else self.call.expires

    @property
    def late(self) -> bool:
        """Whether a call's time is up."""
        return self.expires is not None and time.monotonic() >= self.expires

    @property
    def cut_off(self) -> FrayError:
        """What it fails with once its context is shut down."""
        if self.actor:
            return ActorDiedError(self.actor, "its context was shut down")
        return TaskCancelledError(self.name or f"object {self.id}")

    @property
    def ready(self) -> bool:
        """Whether taking it would not block."""
        self._there = self._there or self.ended is not None or is_there(self.awaited)
        return self._there or self.late


class RayStream(RayEntry):
    """The items of a generator on Ray."""

    def __init__(self, source: Any, name: str, actor: str = "") -> None:
        super().__init__(source.completed(), name, actor)
        self.source = source
        self.lock = threading.Lock()
        """Held to take an item and to look for one: Ray forgets the ref of an item once that is taken."""
        self.over = False
        self.failure: TaskFailureError | None = None

    @property
    def awaited(self) -> Any:
        """What Ray waits for: the next item."""
        return self.source

    @property
    def ready(self) -> bool:
        """Whether the next item, or the end, is there."""
        with self.lock:
            return self.over or self.ended is not None or is_there(self.source) or self.late


class ActorCall(NamedTuple):
    """How a call of an actor can be ended: its name there, and when its time is up."""

    handle: Any
    id: str
    limit: float | None
    expires: float | None

    def end(self) -> None:
        """Let it not start, or end where it awaits."""
        self.handle.cancel.options(concurrency_group=CONTROL).remote(self.id)


class RayActor(KnownActor):
    """An actor on Ray, as one handle sees it. `methods` are asked for where it was found by its name."""

    entry = None
    """Ray counts handles itself."""

    def __init__(self, session: RaySession, handle: Any, label: str, methods: ActorMethods | None) -> None:
        self.id = f"{session.cluster}-{handle._actor_id.hex()}"
        self.handle = handle
        self.label = label
        self._methods = methods

    @property
    def methods(self) -> ActorMethods:
        """What is known of the actor; waits until its constructor has ended if nothing is."""
        if self._methods is None:
            try:
                self._methods = ray.get(self.handle.methods.options(concurrency_group=CONTROL).remote())
            except ray_errors.RayError:  # it has died, which the call will say: any name may be a method
                return ActorMethods(self.label, self.label, None, frozenset())
        return self._methods


def is_there(awaited: Any, timeout: float | None = 0) -> bool:
    """Return whether it is ready within so many seconds; after Ray's end, all are."""
    if not ray.is_initialized():
        return True
    ready, _ = ray.wait([awaited], timeout=timeout, fetch_local=False)
    return bool(ready)
