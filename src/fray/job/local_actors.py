"""Actors that live in this process: the instance, what runs its calls, its handle and its name."""

from __future__ import annotations

import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Protocol, cast

from fray.errors import ActorExistsError, ActorNotFoundError
from fray.job.actors import ActorHandle, ActorMethod
from fray.job.cells import Cell
from fray.job.local_refs import find_pickled, remember_pickled
from fray.job.options import ActorOptions
from fray.job.refs import ObjectRef
from fray.job.workers import ThreadWorkers

if TYPE_CHECKING:
    from fray.job.loops import LoopThread
    from fray.runtime.coroutines import RunningCoroutine

__all__ = ["ActorNames", "LocalActor", "LocalHandle"]


class LocalActor:
    """An instance and its way to run calls: its own threads, or the caller's under a lock."""

    def __init__(self, actor_id: str, instance: Any, options: ActorOptions, *, own_threads: bool) -> None:
        self.id = actor_id
        self.instance = instance
        self.class_name = type(instance).__name__
        self.name = options.name or self.class_name
        self.call_lock = threading.RLock()
        slots = options.max_concurrency
        self.workers = ThreadWorkers(slots, name=f"actor {self.name}", lends=False) if own_threads else None
        self._loop: LoopThread | None = None
        self._loop_lock = threading.Lock()
        self.dead = False

    def start_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> RunningCoroutine:
        """Start an async method, beside others of this actor in the actor's own event loop."""
        with self._loop_lock:
            if self.dead:  # nobody waits for the result: the call was ended with the actor
                coroutine.close()
                raise CancelledError
            if self._loop is None:
                from fray.job.loops import LoopThread  # noqa: PLC0415 - asyncio costs what few actors need

                self._loop = LoopThread(f"actor {self.name}")
                weakref.finalize(self, self._loop.stop).atexit = False
            return self._loop.start(coroutine)

    def end(self) -> None:
        """Let no call start any more."""
        if self.workers is not None:
            self.workers.close()
        with self._loop_lock:
            self.dead = True
            if self._loop is not None:
                self._loop.stop()


class ActorCaller(Protocol):
    """The part of a context that a handle needs."""

    @abstractmethod
    def call_actor(
        self, actor: LocalActor, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> ObjectRef:
        """Call a method of the actor; return the ref of its result at once."""


class LocalHandle(ActorHandle):
    """The handle of an actor in this process."""

    __slots__ = ("_actor", "_context")

    def __init__(self, context: ActorCaller, actor: LocalActor) -> None:
        super().__init__(actor.id, actor.class_name)
        self._context = context
        self._actor = actor

    def _submit(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ObjectRef:
        return self._context.call_actor(self._actor, method, args, kwargs)

    def _method(self, name: str) -> ActorMethod:
        if callable(getattr(self._actor.instance, name)):
            return ActorMethod(self, name)
        class_name = self._actor.class_name
        raise AttributeError(f"{name!r} of {class_name} is no method: read it in one", name=name, obj=self)

    def __reduce__(self) -> tuple[Any, ...]:
        remember_pickled(self._actor_id, self)
        return _revive, (self._actor_id,)


def _revive(actor_id: str) -> ActorHandle:
    handle = find_pickled(actor_id)
    if handle is None:
        raise ActorNotFoundError(actor_id)
    return cast("ActorHandle", handle)


class ActorNames:
    """Which actor has which name. Of several creators of one name at once, one creates."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[str, tuple[Cell, int]] = {}

    def claim(self, name: str, create: Callable[[], ActorHandle], *, share: bool) -> ActorHandle:
        """Create the actor of this name, or return the one that has it.

        Raises:
            ActorExistsError: the name is taken and not to be shared, or this thread is creating it.
        """
        while True:
            with self._lock:
                taken = self._taken.get(name)
                mine = Cell()
                if taken is None:
                    self._taken[name] = (mine, threading.get_ident())
            if taken is None:
                return self._create(name, mine, create)
            found, creator = taken
            if not share or (not found.ready and creator == threading.get_ident()):
                raise ActorExistsError(name)
            handle = found.take(None)
            if handle is not None:
                return cast("ActorHandle", handle)
            # Its constructor failed, which its creator hears: the name is free again.

    def _create(self, name: str, cell: Cell, create: Callable[[], ActorHandle]) -> ActorHandle:
        handle = None
        try:
            handle = create()
        finally:
            if handle is None:
                with self._lock:
                    del self._taken[name]
            cell.succeed(handle)
        return handle

    def clear(self) -> None:
        """Forget all names."""
        with self._lock:
            self._taken.clear()
