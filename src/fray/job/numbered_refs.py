"""What refs and handles become when they are pickled, in contexts of several processes with numbered values.

Each stands for one reference that is counted. Which engine a process has of a context is known here, so that
unpickled refs find it.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from fray.errors import ActorNotFoundError, ObjectLostError
from fray.job.actor_methods import ActorMethods, RemoteActor
from fray.job.actors import ActorHandle
from fray.job.engine import Engine
from fray.job.passing import refuse_generator
from fray.job.refs import ObjectRef
from fray.payload.values.references import report_reference

__all__ = ["NumberedEngine", "find_engine", "only_of", "register_engine", "serve_engines"]


class NumberedEngine(ABC):
    """The part of an engine whose values and actors have numbers, by which its other processes know them."""

    token: str

    @abstractmethod
    def refer(self, number: int) -> Any:
        """Return the entry of a value whose ref was read."""

    @abstractmethod
    def refer_actor(self, number: int, label: str) -> Any:
        """Return the entry of an actor whose handle was read; `label` is what it is called."""

    def wire_id(self, entry: Any) -> int:
        """Return the entry's number; see `Engine`."""
        _check_receiver(self, entry.id)
        return int(entry.id)

    def reduce_ref(self, ref: Any) -> tuple[Any, ...]:
        """Report the reference to the encoder of the value; return what pickle makes the ref again from."""
        refuse_generator(ref)
        number = ref.object_id
        report_reference(number)
        return _read_ref, (self.token, number, ref._name, ref._actor)

    def reduce_handle(self, handle: Any) -> tuple[Any, ...]:
        """Report the reference; return what pickle makes the handle again from."""
        actor = handle._actor
        _check_receiver(self, actor.id)
        number = int(actor.entry.id)
        report_reference(number)
        return _read_handle, (self.token, number, actor.methods)


_engines: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""The engines of this process, by their tokens."""
_makers: dict[str, Callable[[str], NumberedEngine]] = {}
"""What makes those that this process, a worker of others, hasn't seen: by how their tokens begin."""


def register_engine(engine: NumberedEngine) -> None:
    """Let refs of an engine that are read in this process belong to it, as long as it lives."""
    _engines[engine.token] = engine


def serve_engines(kind: str, make: Callable[[str], NumberedEngine]) -> None:
    """Let `make` give the engines that this process hasn't seen, whose tokens are `KIND-...`."""
    _makers[kind] = make


def find_engine(token: str) -> Any:
    """Return this process's engine of a context; None if this process isn't one of the context's."""
    found, make = _engines.get(token), _makers.get(token.partition("-")[0])
    return make(token) if found is None and make is not None else found


def _read_ref(token: str, number: int, name: str, actor: str) -> ObjectRef[Any]:
    engine = find_engine(token)
    if engine is None:
        raise ObjectLostError(name or str(number), "this process is not of the context that has it")
    return ObjectRef(engine, engine.refer(number), name, actor)


def _read_handle(token: str, number: int, methods: ActorMethods) -> ActorHandle[Any]:
    engine = find_engine(token)
    if engine is None:
        raise ActorNotFoundError(methods.label)
    return ActorHandle(engine, RemoteActor(token, engine.refer_actor(number, methods.label), methods))


class _Receiver(threading.local):
    engine: Engine | None = None


_receiver = _Receiver()


class only_of:  # noqa: N801 - used as a function; a generator would cost three times as much a task
    """Refuse handles of other contexts that are pickled in the block: their numbers mean others there.

    What pickles them raises `ObjectLostError`, or an error that has it as its cause.
    """

    __slots__ = ("_engine", "_outer")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        self._outer, _receiver.engine = _receiver.engine, self._engine

    def __exit__(self, *_: object) -> None:
        _receiver.engine = self._outer


def _check_receiver(engine: object, identity: object) -> None:
    """Raise `ObjectLostError` if another engine encodes what is being pickled in this thread."""
    receiver = _receiver.engine
    if receiver is not None and receiver is not engine:
        raise ObjectLostError(str(identity), "it belongs to another context")
