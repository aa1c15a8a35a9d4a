"""What a handle knows of an actor in another process; the engines that have such handles share it."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from fray.job.calls import class_of, is_generator_function
from fray.runtime.actor_life import PROBE

__all__ = ["ActorMethods", "KnownActor", "RemoteActor"]


class ActorMethods(NamedTuple):
    """What a handle knows of its actor: it travels with the handle."""

    label: str
    """The actor's name, or that of its class: for people."""
    class_name: str
    known: frozenset[str] | None
    """The names of its methods; None: any name may be one."""
    generators: frozenset[str]
    """Those whose items are streamed."""

    @classmethod
    def of(cls, made_by: Any, class_name: str, name: str | None) -> ActorMethods:
        """Read them from the class. A factory, or a class with `__getattr__`, tells nothing of them."""
        label = name or class_name
        kind = class_of(made_by)
        if kind is None:
            return cls(label, class_name, None, frozenset())
        methods: dict[str, Any] = {
            name: getattr(kind, name, None) for name in dir(kind) if not name.startswith("_")
        }
        known = frozenset(name for name, method in methods.items() if callable(method))
        generators = frozenset(name for name in known if is_generator_function(methods[name]))
        return cls(label, class_name, None if hasattr(kind, "__getattr__") else known, generators)

    def encode(self) -> bytes:
        """Return it as bytes, for who finds the actor by its name."""
        return pickle.dumps(tuple(self), 5)

    @classmethod
    def decode(cls, data: bytes) -> ActorMethods:
        """Read what `encode` gave."""
        return cls(*pickle.loads(data))

    def problem_of(self, method: str) -> str:
        """Return in words why there is no such method; empty if there may be one."""
        if self.known is None or method in self.known or method == PROBE:
            return ""
        return f"{self.class_name} has no method {method!r}"

    def streams(self, method: str) -> bool:
        """Return whether the method is a generator function."""
        return method in self.generators


class KnownActor(ABC):
    """What handles ask of an actor. Each kind of actor has its own way to `methods`."""

    __slots__ = ()

    @property
    @abstractmethod
    def methods(self) -> ActorMethods:
        """What its class says of them."""

    @property
    def class_name(self) -> str:
        """The name of its class."""
        return self.methods.class_name

    def problem_of(self, method: str) -> str:
        """Return in words why there is no such method; empty if there may be one."""
        return self.methods.problem_of(method)

    def streams(self, method: str) -> bool:
        """Return whether the method is a generator function."""
        return self.methods.streams(method)


class RemoteActor(KnownActor):
    """An actor, as one handle sees it. An unnamed one ends when no process has a handle of it."""

    __slots__ = ("_methods", "entry", "id")

    def __init__(self, token: str, entry: Any, methods: ActorMethods) -> None:
        self.id = f"{token}-{entry.id}"
        self.entry = entry
        self._methods = methods

    @property
    def methods(self) -> ActorMethods:
        """What its class says of them."""
        return self._methods

    @property
    def label(self) -> str:
        """The actor's name, or that of its class."""
        return self.methods.label
