"""Actors that live in this process: the instance, what runs its calls, and its name."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, cast

from fray.errors import ActorExistsError, ActorNotFoundError
from fray.job.calls import is_generator_function
from fray.job.cells import Cell
from fray.job.options import ActorOptions
from fray.job.workers import ThreadWorkers

if TYPE_CHECKING:
    from fray.runtime.loop_thread import LoopThread, RunningCoroutine

__all__ = ["ActorNames", "LocalActor"]


class LocalActor:
    """An instance and its way to run calls: its own threads, or the caller's under a lock."""

    def __init__(self, actor_id: str, instance: Any, options: ActorOptions, *, own_threads: bool) -> None:
        self.id = actor_id
        self.instance = instance
        self.class_name = type(instance).__name__
        self.label = options.name or self.class_name
        self.call_lock = threading.RLock()
        slots = options.max_concurrency or 1
        self.workers = ThreadWorkers(slots, name=f"actor {self.label}", lends=False) if own_threads else None
        self._loop: LoopThread | None = None
        self._loop_lock = threading.Lock()
        self.dead = False
        self.killed = False

    entry = None
    """Handles of it aren't counted: it lives as long as its context, or as long as there is one."""

    def problem_of(self, method: str) -> str:
        """Return in words why there is no such method; raise AttributeError for no attribute at all."""
        if callable(getattr(self.instance, method)):
            return ""
        return f"{method!r} of {self.class_name} is no method: read it in one"

    def streams(self, method: str) -> bool:
        """Return whether the method is a generator function."""
        return is_generator_function(getattr(self.instance, method))

    def start_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> RunningCoroutine[Any]:
        """Start an async method, beside others of this actor in the actor's own event loop."""
        with self._loop_lock:
            if self.dead:  # nobody waits for the result: the call was ended with the actor
                coroutine.close()
                raise CancelledError
            if self._loop is None:
                from fray.runtime.loop_thread import LoopThread  # noqa: PLC0415 - asyncio costs what few actors need

                self._loop = LoopThread(f"actor {self.label} event loop")
                weakref.finalize(self, self._loop.close, wait=False).atexit = False
            return self._loop.start(coroutine)

    def end(self) -> None:
        """Let no call start any more."""
        if self.workers is not None:
            self.workers.close()
        with self._loop_lock:
            self.dead = True
            if self._loop is not None:
                self._loop.close(wait=False)


class ActorNames:
    """Which actor has which name. Of several creators of one name at once, one creates."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[str, tuple[Cell, int]] = {}

    def claim(self, name: str, create: Callable[[], LocalActor], *, share: bool) -> LocalActor:
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
            actor = found.take(None)
            if actor is not None:
                return cast("LocalActor", actor)
            # Its constructor failed, which its creator hears: the name is free again.

    def find(self, name: str) -> LocalActor:
        """Return the actor of this name, once its constructor has ended.

        Raises:
            ActorNotFoundError: there is none, or this thread is creating it.
        """
        with self._lock:
            cell, creator = self._taken.get(name, (None, 0))
            known = tuple(sorted(self._taken))
        mine = creator == threading.get_ident()
        actor = cell.take(None) if cell is not None and (cell.ready or not mine) else None
        if actor is None:
            raise ActorNotFoundError(name, known)
        return cast("LocalActor", actor)

    def _create(self, name: str, cell: Cell, create: Callable[[], LocalActor]) -> LocalActor:
        actor = None
        try:
            actor = create()
        finally:
            if actor is None:
                with self._lock:
                    del self._taken[name]
            cell.succeed(actor)
        return actor

    def forget(self, actor: LocalActor) -> None:
        """Let the actor's name be free, if it has one."""
        with self._lock:
            for name, (cell, _) in list(self._taken.items()):
                if cell.ready and cell.take(None) is actor:
                    del self._taken[name]

    def clear(self) -> None:
        """Forget all names."""
        with self._lock:
            self._taken.clear()
