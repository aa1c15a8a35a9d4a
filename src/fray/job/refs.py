"""Handles of values that a context holds or will hold: opaque, hashable, small and picklable.

What stands behind a handle belongs to its context; nothing here knows how a value is made or kept.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

__all__ = ["GeneratorFuture", "ObjectRef"]


class ObjectRef:
    """Stands for a value that a task makes, or that was put into a context. Two are equal if their ids are.

    `get` turns it into the value, as often as you like. As an argument of a task it arrives as its value;
    inside a list or another structure it stays a ref.
    """

    __slots__ = ("__weakref__", "_id")

    def __init__(self, object_id: str | int) -> None:
        self._id = object_id

    @property
    def id(self) -> str:
        """The name of the value within its context."""
        return str(self._id)

    def __eq__(self, other: object) -> bool:
        return self._id == other._id if isinstance(other, ObjectRef) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._id})"


class GeneratorFuture(ObjectRef, Iterator[Any]):
    """Stands for the items of a generator that runs as a task.

    `next` gives the next item, for `get` to turn into a value (a context may give the value itself).
    `wait` takes it as ready whenever `next` wouldn't block. `get` gives the list of the items that `next`
    hasn't taken, and the same list again when asked again; no item is left for `next` then. An exception
    of the generator comes after the items before it, and again at each further call.
    """

    __slots__ = ()

    @abstractmethod
    def __next__(self) -> Any: ...
