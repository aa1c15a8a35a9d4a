"""What refs and handles of a pool become when they are pickled, and what a handle knows of its actor.

Each stands for one reference that the process's client counts. Which engine a process has for a pool is known
here, so that unpickled refs find it.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Protocol

from fray.errors import ActorNotFoundError, ObjectLostError
from fray.job.actor_methods import ActorMethods, RemoteActor
from fray.job.actors import ActorHandle
from fray.job.engine import Engine
from fray.job.passing import refuse_generator
from fray.job.refs import ObjectRef
from fray.payload.values.references import report_reference
from fray.runtime.pool.client.client import PoolClient

__all__ = [
    "PoolSide",
    "check_receiver",
    "number_of",
    "only_of",
    "reduce_handle",
    "reduce_ref",
    "register_engine",
]


class PoolSide(Engine, Protocol):
    """The part of a pool's engine that its refs and handles need."""

    client: PoolClient


_engines: weakref.WeakValueDictionary[str, PoolSide] = weakref.WeakValueDictionary()
"""The engines of this process, by the token of their pool."""


def register_engine(engine: PoolSide) -> None:
    """Let refs of the engine's pool that are read in this process belong to it, as long as it lives."""
    _engines[engine.token] = engine


def reduce_ref(engine: PoolSide, ref: ObjectRef[Any]) -> tuple[Any, ...]:
    """Report the reference to the encoder of the value; return what pickle makes the ref again from."""
    refuse_generator(ref)
    report_reference(ref.object_id)
    return _read_ref, (engine.token, ref._entry.id, ref._name, ref._actor)


def reduce_handle(engine: PoolSide, actor: RemoteActor) -> tuple[Any, ...]:
    """Report the reference; return what pickle makes the handle again from."""
    check_receiver(engine, actor.id)
    report_reference(actor.entry.id)
    return _read_handle, (engine.token, actor.entry.id, actor.methods)


def _read_ref(token: str, object_id: int, name: str, actor: str) -> ObjectRef[Any]:
    engine = _engines.get(token)
    if engine is None:
        raise ObjectLostError(name or str(object_id), "this process is not of the pool that has it")
    return ObjectRef(engine, engine.client.refer(object_id), name, actor)


def _read_handle(token: str, actor_id: int, methods: ActorMethods) -> ActorHandle[Any]:
    engine = _engines.get(token)
    if engine is None:
        raise ActorNotFoundError(methods.label)
    return ActorHandle(engine, RemoteActor(token, engine.client.refer(actor_id), methods))


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


def check_receiver(engine: Engine, identity: object) -> None:
    """Raise `ObjectLostError` if another engine encodes what is being pickled in this thread."""
    receiver = _receiver.engine
    if receiver is not None and receiver is not engine:
        raise ObjectLostError(str(identity), "it belongs to another context")


def number_of(engine: Engine, entry: Any) -> int:
    """Return the number that stands for an entry among pickled arguments.

    Raises `ObjectLostError` if another engine encodes them.
    """
    check_receiver(engine, entry.id)
    return int(entry.id)
