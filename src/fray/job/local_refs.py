"""Refs whose values lie in this process, and what in-process objects become when they are pickled.

Pickled and unpickled in the same process, a ref, a handle and a context come back as themselves as long
as they are alive. A value doesn't travel with its ref, so in another process they fail with an error.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, TypeVar, cast

from fray.errors import ObjectLostError
from fray.job.cells import LATE, Cell, Waitable
from fray.job.refs import GeneratorFuture, ObjectRef
from fray.job.streams import END, Stream

__all__ = ["LocalGenerator", "LocalRef", "find_pickled", "local", "remember_pickled"]

T = TypeVar("T")

_pickled: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def remember_pickled(identity: str, thing: object) -> None:
    """Let `find_pickled` return `thing` while it lives."""
    _pickled[identity] = thing


def find_pickled(identity: str) -> Any:
    """Return what was pickled under this identity; None if it is gone or of another process."""
    return _pickled.get(identity)


class LocalRef(ObjectRef):
    """The ref of one value."""

    __slots__ = ("waitable",)

    def __init__(self, object_id: str, cell: Cell) -> None:
        super().__init__(object_id)
        self.waitable: Waitable = cell

    def take(self, deadline: float | None) -> Any:
        """Return the value, or `LATE`; raise what its task raised."""
        return cast("Cell", self.waitable).take(deadline)

    def __reduce__(self) -> tuple[Any, ...]:
        remember_pickled(self.id, self)
        return _revive, (self.id,)


class LocalGenerator(GeneratorFuture):
    """The ref of a stream of items."""

    __slots__ = ("_complete", "_gathered", "_lock", "_stream", "waitable")

    def __init__(self, object_id: str, stream: Stream) -> None:
        super().__init__(object_id)
        self.waitable: Waitable = stream
        self._stream = stream
        self._lock = threading.Lock()
        self._gathered: list[Any] = []
        self._complete = False
        weakref.finalize(self, stream.abandon).atexit = False

    def __next__(self) -> Any:
        with self._lock:
            if self._complete:
                raise StopIteration
            if self._gathered:  # by a `take` that ran into its deadline
                return self._gathered.pop(0)
        item = self._stream.take(None)
        if item is END:
            raise StopIteration
        return item

    def take(self, deadline: float | None) -> Any:
        """Return the list of all items that `next` hasn't taken, or `LATE`; raise what the task raised."""
        patience = -1 if deadline is None else max(deadline - time.monotonic(), 0)
        if not self._lock.acquire(timeout=patience):
            return LATE
        try:
            while not self._complete:
                item = self._stream.take(deadline)
                if item is LATE:
                    return LATE
                if item is END:
                    self._complete = True
                else:
                    self._gathered.append(item)
            return list(self._gathered)
        finally:
            self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        remember_pickled(self.id, self)
        return _revive, (self.id,)


def local(ref: ObjectRef) -> LocalRef | LocalGenerator:
    """Return the ref as one of this process.

    Raises:
        ObjectLostError: it belongs to another kind of context.
    """
    if isinstance(ref, LocalRef | LocalGenerator):
        return ref
    raise ObjectLostError(ref.id, "it belongs to another context")


def _revive(object_id: str) -> ObjectRef:
    ref = find_pickled(object_id)
    if ref is None:
        reason = "its ref was pickled by another process, or nobody here holds it any more"
        raise ObjectLostError(object_id, reason)
    return cast("ObjectRef", ref)
