"""Handles of what a pool holds: refs, generators and actors, and what becomes of them when they are pickled.

Each stands for one reference that the process's client counts. What is done with them is the context's
business; which context a process has for a pool is known here, so that unpickled handles find it.
"""

from __future__ import annotations

import pickle
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, cast

from fray.errors import ActorNotFoundError, GetTimeoutError, ObjectLostError
from fray.job.actors import ActorHandle, ActorMethod
from fray.job.calls import is_generator_function
from fray.job.cells import deadline_after
from fray.job.refs import GeneratorFuture, ObjectRef
from fray.payload.values.references import Reference, report_reference
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.client.waiting import Entry, StreamEntry
from fray.runtime.pool.current import uninterrupted
from fray.runtime.pool.messages import Failed

__all__ = [
    "ActorMethods",
    "PoolGenerator",
    "PoolHandle",
    "PoolRef",
    "PoolSide",
    "find_context",
    "only_of",
    "register_context",
    "time_left",
]


class ActorMethods(NamedTuple):
    """What a handle knows of its actor: so much goes wherever the handle goes."""

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
        if not isinstance(made_by, type):
            return cls(label, class_name, None, frozenset())
        methods: dict[str, Any] = {
            name: getattr(made_by, name, None) for name in dir(made_by) if not name.startswith("_")
        }
        known = frozenset(name for name, method in methods.items() if callable(method))
        generators = frozenset(name for name in known if is_generator_function(methods[name]))
        return cls(label, class_name, None if hasattr(made_by, "__getattr__") else known, generators)

    def encode(self) -> bytes:
        """Return it as bytes, for who finds the actor by its name."""
        return pickle.dumps(tuple(self), 5)

    @classmethod
    def decode(cls, data: bytes) -> ActorMethods:
        """Read what `encode` gave."""
        return cls(*pickle.loads(data))


class PoolSide(Protocol):
    """The part of a pool's context that its handles need."""

    token: str
    """The pool's name, unique: handles say by it which pool they are of."""
    client: PoolClient

    def call_method(
        self, handle: PoolHandle, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> ObjectRef:
        """Call a method of an actor; return the ref of its result."""

    def failure(self, ref: PoolRef, failed: Failed) -> BaseException:
        """Return what to raise for a ref whose outcome is `failed`."""


class PoolRef(ObjectRef, Reference):
    """A value of the pool; the pool keeps it as long as any process has such a ref."""

    __slots__ = ("_actor", "_context", "_entry", "_name")

    def __init__(self, context: PoolSide, entry: Entry, name: str, actor: str = "") -> None:
        super().__init__(entry.id)
        self._context = context
        self._entry = entry
        self._name = name
        self._actor = actor

    @property
    def object_id(self) -> int:
        """The value's identity on the wire."""
        _check_receiver(self._context, self.id)
        return self._entry.id

    @property
    def name(self) -> str:
        """The name of the task that makes the value; for people."""
        return self._name or f"object {self.id}"

    @property
    def actor(self) -> str:
        """The label of the actor whose method makes the value; empty: a task does."""
        return self._actor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PoolRef):
            return NotImplemented
        return self._entry.id == other._entry.id and self._context.token == other._context.token

    def __hash__(self) -> int:
        return self._entry.id

    def belongs_to(self, context: PoolSide) -> bool:
        """Whether this is a ref of that context's."""
        return self._context is context

    def __del__(self) -> None:
        self._context.client.drop(self._entry)

    def __reduce__(self) -> tuple[Any, ...]:
        report_reference(self.object_id)
        return _read_ref, (self._context.token, self._entry.id, self._name, self._actor)


class PoolGenerator(PoolRef, GeneratorFuture):
    """The items of a generator that runs in a worker; only the process that submitted it takes them."""

    __slots__ = ("_complete", "_gathered", "_lock")

    def __init__(self, context: PoolSide, entry: Entry, name: str, actor: str = "") -> None:
        super().__init__(context, entry, name, actor)
        self._lock = threading.Lock()
        self._gathered: list[PoolRef] = []
        self._complete = False

    @uninterrupted
    def __next__(self) -> PoolRef:
        with self._lock:
            if self._complete:
                raise StopIteration
            if self._gathered:  # by a `take_rest` that ran into its timeout
                return self._gathered.pop(0)
        item = self._take(None)
        if item is not None:
            return item
        if isinstance(self._entry.outcome, Failed):
            raise self._failure()
        raise StopIteration

    @uninterrupted
    def take_rest(self, timeout: float | None) -> list[PoolRef]:
        """Return the items that `next` hasn't taken, at the generator's end; the same ones each time.

        Raises what the generator raises, or `GetTimeoutError` after `timeout` seconds.
        """
        if not self.gather(timeout):
            raise self._failure()
        return list(self._gathered)

    @uninterrupted
    def gather(self, timeout: float | None) -> bool:
        """Take all items that are left, and keep them; return False if the generator has failed.

        Raises `GetTimeoutError` after `timeout` seconds; what was taken until then stays.
        """
        deadline = deadline_after(timeout)
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise GetTimeoutError(repr(self), timeout or 0.0)
        try:
            while not self._complete:
                item = self._take(time_left(deadline))
                if item is not None:
                    self._gathered.append(item)
                elif isinstance(self._entry.outcome, Failed):
                    return False
                else:
                    self._complete = True
            return True
        finally:
            self._lock.release()

    def _take(self, timeout: float | None) -> PoolRef | None:
        item = self._context.client.next_item(cast("StreamEntry", self._entry), timeout)
        return None if item is None else PoolRef(self._context, item, self._name, self._actor)

    def _failure(self) -> BaseException:
        return self._context.failure(self, cast("Failed", self._entry.outcome))

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a generator's items are taken where it was submitted: pass on the refs that `next` gives"
        )


class PoolHandle(ActorHandle):
    """An actor of the pool. An unnamed one ends when no process has such a handle any more."""

    __slots__ = ("_context", "_entry", "_methods")

    def __init__(self, context: PoolSide, entry: Entry, methods: ActorMethods) -> None:
        super().__init__(f"{context.token}-{entry.id}", methods.class_name)
        self._context = context
        self._entry = entry
        self._methods = methods

    def _submit(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ObjectRef:
        return self._context.call_method(self, method, args, kwargs)

    def _method(self, name: str) -> ActorMethod:
        known = self._methods.known
        if known is not None and name not in known:
            raise AttributeError(f"{self._class_name} has no method {name!r}", name=name, obj=self)
        return ActorMethod(self, name)

    def __del__(self) -> None:
        self._context.client.drop(self._entry)

    def __reduce__(self) -> tuple[Any, ...]:
        _check_receiver(self._context, self._actor_id)
        report_reference(self._entry.id)
        return _read_handle, (self._context.token, self._entry.id, self._methods)


_contexts: weakref.WeakValueDictionary[str, PoolSide] = weakref.WeakValueDictionary()
"""The contexts of this process, by the token of their pool."""


def register_context(context: PoolSide) -> None:
    """Let handles of the context's pool that are read in this process belong to it, as long as it lives."""
    _contexts[context.token] = context


def find_context(token: str) -> PoolSide | None:
    """Return this process's context of a pool; None if it has none."""
    return _contexts.get(token)


class _Receiver(threading.local):
    context: PoolSide | None = None


_receiver = _Receiver()


class only_of:  # noqa: N801 - used as a function; a generator would cost three times as much a task
    """Refuse handles of other pools that are pickled in the block: their numbers mean others there.

    What pickles them raises `ObjectLostError`, or an error that has it as its cause.
    """

    __slots__ = ("_context", "_outer")

    def __init__(self, context: PoolSide) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._outer, _receiver.context = _receiver.context, self._context

    def __exit__(self, *_: object) -> None:
        _receiver.context = self._outer


def _check_receiver(context: PoolSide, identity: str) -> None:
    receiver = _receiver.context
    if receiver is not None and receiver is not context:
        raise ObjectLostError(identity, "it belongs to another context")


def time_left(deadline: float | None) -> float | None:
    """Return the seconds until a time of `time.monotonic`, at least 0; None for no deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _read_ref(token: str, object_id: int, name: str, actor: str) -> PoolRef:
    context = find_context(token)
    if context is None:
        raise ObjectLostError(name or str(object_id), "this process is not of the pool that has it")
    return PoolRef(context, context.client.refer(object_id), name, actor)


def _read_handle(token: str, actor_id: int, methods: ActorMethods) -> PoolHandle:
    context = find_context(token)
    if context is None:
        raise ActorNotFoundError(methods.label)
    return PoolHandle(context, context.client.refer(actor_id), methods)
