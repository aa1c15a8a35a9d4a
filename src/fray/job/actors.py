"""Handles of actors: what users call methods on. Where the actor lives is its context's business."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from fray.job.refs import ObjectRef

__all__ = ["ActorHandle", "ActorMethod"]


class ActorMethod:
    """One method of an actor: calling it, or its `remote`, gives the ref of what the method returns."""

    __slots__ = ("_handle", "_name")

    def __init__(self, handle: ActorHandle, name: str) -> None:
        self._handle = handle
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> ObjectRef:
        """Call the method, as `remote` does."""
        return self._handle._submit(self._name, args, kwargs)

    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef:
        """Call the method; return the ref of its result at once."""
        return self._handle._submit(self._name, args, kwargs)

    def __repr__(self) -> str:
        return f"{self._handle!r}.{self._name}"


class ActorHandle(ABC):
    """Stands for an actor; small, hashable, picklable, to be passed to tasks and other actors.

    Its attributes are the actor's public methods. Its own names begin with "_", so that they hide none.
    """

    __slots__ = ("__weakref__", "_actor_id", "_class_name")

    def __init__(self, actor_id: str, class_name: str) -> None:
        self._actor_id = actor_id
        self._class_name = class_name

    @abstractmethod
    def _submit(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ObjectRef:
        """Call a method of the actor; return the ref of its result at once."""

    def _method(self, name: str) -> ActorMethod:
        """Return a method of the actor; a context that knows the class refuses a name that is none."""
        return ActorMethod(self, name)

    def __getattr__(self, name: str) -> ActorMethod:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._method(name)

    def __eq__(self, other: object) -> bool:
        return self._actor_id == other._actor_id if isinstance(other, ActorHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._actor_id)

    def __repr__(self) -> str:
        return f"ActorHandle({self._class_name}, {self._actor_id})"
