"""Handles of actors: what users call methods on. Where the actor runs is its engine's business."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, final

from fray.errors import ObjectLostError
from fray.job.calls import MethodCall
from fray.job.engine import Actor, Engine
from fray.job.options import CallOptions
from fray.job.refs import ObjectRef, make_ref

__all__ = ["ActorHandle", "ActorMethod", "HostedActor"]


A_co = TypeVar("A_co", covariant=True)
_AS_THE_ACTOR: Final = CallOptions()


@final
class ActorMethod:
    """One method of an actor: calling it, or its `remote`, gives the ref of what the method returns."""

    __slots__ = ("_handle", "_name", "_options")

    def __init__(self, handle: ActorHandle[Any], name: str, options: CallOptions = _AS_THE_ACTOR) -> None:
        self._handle = handle
        self._name = name
        self._options = options

    def options(self, *, timeout: float | None = None, max_task_retries: int | None = None) -> ActorMethod:
        """Return the same method, whose calls run with these options.

        Args:
            timeout: They raise `TaskTimeoutError` if they take more seconds than that, the wait for the
                actor's earlier calls included. The actor lives on, busy until the call has ended.
            max_task_retries: How often a call that was lost with the actor's process is made again, where it
                is restarted; -1: without limit, None: as the actor was created. Above 0 only for methods
                that may run twice.

        Raises:
            InvalidOptionError: `timeout` isn't above 0, or `max_task_retries` is below -1.
        """
        options = CallOptions(timeout=timeout, max_task_retries=max_task_retries)
        return ActorMethod(self._handle, self._name, options)

    def __call__(self, /, *args: Any, **kwargs: Any) -> ObjectRef[Any]:
        """Call the method, as `remote` does."""
        return self._handle._submit(MethodCall(self._name, args, kwargs, self._options))

    def remote(self, /, *args: Any, **kwargs: Any) -> ObjectRef[Any]:
        """Call the method; return the ref of its result at once."""
        return self._handle._submit(MethodCall(self._name, args, kwargs, self._options))

    submit = remote
    """What an earlier API calls a call that takes long: here each may take as long as it likes."""

    def __repr__(self) -> str:
        return f"{self._handle!r}.{self._name}"


class ActorHandle(Generic[A_co]):
    """Stands for an actor; small, hashable, picklable, to be passed to tasks and other actors.

    Its attributes are the actor's public methods. Its own names begin with "_", so that they hide none.
    """

    __slots__ = ("__weakref__", "_actor", "_engine")

    def __init__(self, engine: Engine, actor: Actor) -> None:
        self._engine = engine
        self._actor = actor

    def _submit(self, call: MethodCall) -> ObjectRef[Any]:
        """Call a method of the actor; return the ref of its result at once."""
        actor = self._actor
        streaming = actor.streams(call.method)
        entry = self._engine.call_actor(actor, call, streaming=streaming)
        return make_ref(self._engine, entry, f"{actor.label}.{call.method}", actor.label, streaming=streaming)

    def _kill(self, engine: Engine) -> None:
        """End the actor, for a context of `engine`. Raises `ObjectLostError` if it is another context's."""
        if self._engine is not engine and self._engine.home != engine.home:
            raise ObjectLostError(repr(self), "it belongs to another context")
        self._engine.kill(self._actor)

    def __getattr__(self, name: str) -> ActorMethod:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        problem = self._actor.problem_of(name)
        if problem:
            raise AttributeError(problem, name=name, obj=self)
        return ActorMethod(self, name)

    def __eq__(self, other: object) -> bool:
        return self._actor.id == other._actor.id if isinstance(other, ActorHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._actor.id)

    def __repr__(self) -> str:
        return f"ActorHandle({self._actor.class_name}, {self._actor.id})"

    def __del__(self) -> None:
        self._engine.release(self._actor.entry)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._engine.reduce_handle(self)


class HostedActor(Generic[A_co]):
    """An object of this process that others call by its name; `host_actor` makes one.

    Parameters: its `handle`; the `endpoint`; `end` takes it from the others.
    """

    def __init__(self, handle: ActorHandle[A_co], endpoint: str, end: Callable[[], object]) -> None:
        self.handle = handle
        """Calls it from anywhere, as the handle of a named actor does; small, can be pickled."""
        self.endpoint = endpoint
        """Where its server listens, for people: `tcp:10.0.0.7:40123`, on one machine `unix:/path`."""
        self._end = end

    def shutdown(self) -> None:
        """Let nobody call it any more: calls raise `ActorDiedError`, and its name is free. May be repeated.

        The object itself lives on.
        """
        self._end()

    def __repr__(self) -> str:
        return f"HostedActor({self.handle!r}, {self.endpoint!r})"
