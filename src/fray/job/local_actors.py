"""Actors that live in this process: the instance, what runs its calls, and its name."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, cast

from fray.errors import ActorExistsError, ActorNotFoundError, ActorUnavailableError
from fray.job.calls import Call, is_generator_function
from fray.job.cells import Cell
from fray.job.options import ActorOptions
from fray.job.workers import ThreadWorkers
from fray.runtime.actor_life import ActorLife, find_method

if TYPE_CHECKING:
    from fray.runtime.loop_thread import LoopThread, RunningCoroutine

__all__ = ["ActorNames", "LocalActor"]


class LocalActor:
    """An instance and its way to run calls: its own threads, or the caller's under a lock.

    `construct` makes the instance, and a new one where the actor has failed and may be started again.
    """

    def __init__(self, actor_id: str, call: Call, options: ActorOptions, *, own_threads: bool) -> None:
        self.id = actor_id
        self.call = call
        self.max_restarts = options.max_restarts or 0
        self.restarts = 0
        self.class_name = call.name
        self.label = options.name or self.class_name
        self._named = options.name is not None
        self.call_lock = threading.RLock()
        slots = options.max_concurrency or 1
        self.workers = ThreadWorkers(slots, name=f"actor {self.label}", lends=False) if own_threads else None
        self._loop: LoopThread | None = None
        self._loop_lock = threading.Lock()
        self._instance: Any = None
        self._constructor: int | None = None
        """The thread that constructs it."""
        self._constructed = threading.Event()
        self._early_end: tuple[BaseException | None] | None = None
        """With what it was ended by the code of its constructor."""
        self.life: ActorLife | None = None
        self.died_of = ""
        """Why it has ended; empty while it lives."""

    entry = None
    """Handles of it aren't counted: it lives as long as its context, or as long as there is one."""

    @property
    def dead(self) -> bool:
        """Whether it has ended."""
        return bool(self.died_of)

    @property
    def instance(self) -> Any:
        """The instance; waits for its constructor. Raises `ActorUnavailableError` within that."""
        if self._constructor is not None:
            if self._constructor == threading.get_ident():
                raise ActorUnavailableError(self.label, "its constructor calls it, and has yet to return")
            self._constructed.wait()
        return self._instance

    def construct(self, life: ActorLife, make: Callable[[], Any]) -> tuple[BaseException | None] | None:
        """Make the instance of a new life; return with what its constructor has ended it, if it has.

        Raises what `make` raises.
        """
        self._early_end = None
        self._constructed.clear()
        self._constructor = threading.get_ident()
        self.life = life
        try:
            self._instance = make()
        finally:
            self._constructor = None
            self._constructed.set()
        self.class_name = type(self._instance).__name__
        if not self._named:
            self.label = self.class_name
        return self._early_end

    def leave(self, life: ActorLife, error: BaseException | None) -> bool:
        """Let a life end that is this actor's present one: return True to the caller that is to see to it.

        If its constructor runs, `construct` tells its caller.
        """
        with self._loop_lock:
            if self.dead or self.life is not life:
                return False
            if self._constructor is not None:
                self._early_end = self._early_end or (error,)
                return False
            self.life = None
            return True

    def problem_of(self, method: str) -> str:
        """Return in words why there is no such method; raise AttributeError for no attribute at all."""
        if callable(find_method(self.instance, method)):
            return ""
        return f"{method!r} of {self.class_name} is no method: read it in one"

    def streams(self, method: str) -> bool:
        """Return whether the method is a generator function."""
        return is_generator_function(find_method(self.instance, method))

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

    def end(self, reason: str = "its context was shut down") -> None:
        """Let no call start any more."""
        if self.workers is not None:
            self.workers.close()
        with self._loop_lock:
            self.died_of = self.died_of or reason
            if self._loop is not None:
                self._loop.close(wait=False)
        if self.life is not None:
            self.life.ask_to_end()


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
