"""The functions and classes that a worker has been sent, decoded when they are first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from fray.errors import SerializationError
from fray.runtime.pool.messages.specs import FunctionId
from fray.runtime.pool.objects.functions import decode_function

__all__ = ["Function", "Functions"]


class Function:
    """One function; decoding it may import modules, which is for the thread that calls it."""

    __slots__ = ("_blob", "_callable", "_lock")

    def __init__(self, blob: bytes) -> None:
        self._blob = blob
        self._callable: Callable[..., Any] | None = None
        self._lock = threading.Lock()

    def resolve(self) -> Callable[..., Any]:
        """Return what can be called: the same object each time.

        Raises `CodeNotFoundError`, or what importing its module raises; then the next call tries again.
        """
        if self._callable is None:
            with self._lock:
                if self._callable is None:
                    self._callable = decode_function(self._blob)
                    self._blob = b""
        return self._callable


class Functions:
    """The functions by their digest. Used only where messages are handled, by one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[FunctionId, Function] = {}

    def learn(self, id: FunctionId, blob: bytes) -> Function:  # noqa: A002
        """Return the function with this digest, which came with the message if `blob` isn't empty."""
        known = self._known.get(id)
        if known is None:
            known = Function(blob)
            if blob:
                self._known[id] = known
            else:
                known = _Missing(id)
        return known

    def forget(self, ids: Iterable[FunctionId]) -> None:
        """Drop functions; tasks that have arrived keep theirs."""
        for each in ids:
            self._known.pop(each, None)


class _Missing(Function):
    """Stands for a function that the head believes to be here."""

    __slots__ = ("_id",)

    def __init__(self, id: FunctionId) -> None:  # noqa: A002
        super().__init__(b"")
        self._id = id

    def resolve(self) -> Callable[..., Any]:
        raise SerializationError("the function", self._id.hex(), "this worker hasn't got it")
