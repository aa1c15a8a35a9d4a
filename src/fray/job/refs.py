"""Handles of values that a context holds or will hold: hashable, small and picklable.

What stands behind a ref belongs to its engine; how it is read is written here, once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar, final

from fray.errors import GetTimeoutError, ObjectLostError
from fray.job.calls import Call, is_generator_function
from fray.job.engine import ANYWHERE, END, LATE, Engine, Entry, deadline_after
from fray.job.futures import read_later
from fray.job.options import TaskOptions
from fray.payload.values.references import Reference

__all__ = ["GeneratorFuture", "ObjectRef", "check_owned", "make_ref", "read_ref", "reader_of", "submit_call"]


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ObjectRef(Reference, Generic[T_co]):
    """Stands for a value that a task makes, or that was put into a context. Two are equal if their ids are.

    `get` turns it into the value, as often as you like. As an argument of a task it arrives as its value;
    inside a list or another structure it stays a ref.
    """

    __slots__ = ("__weakref__", "_actor", "_engine", "_entry", "_name")

    def __init__(self, engine: Engine, entry: Entry, name: str = "", actor: str = "") -> None:
        self._engine = engine
        self._entry: Any = entry
        self._name = name
        self._actor = actor

    @property
    def id(self) -> str:
        """The name of the value within its context."""
        return str(self._entry.id)

    @property
    def name(self) -> str:
        """The name of the task that makes the value; for people."""
        return self._name or f"object {self.id}"

    @property
    def object_id(self) -> int:
        """The number of the value among pickled arguments."""
        return self._engine.wire_id(self._entry)

    def result(self, timeout: float | None = None) -> T_co:
        """Return the value, as `JobContext.get` does."""
        value: T_co = read_ref(self, timeout, deadline_after(timeout))
        return value

    def future(self) -> Future[T_co]:
        """Return a `concurrent.futures.Future` of the value. Cancelling it cancels the task.

        A task that calls this lends its place, as if it waited, until the future is done.
        """
        engine, entry = self._engine, self._entry
        cancel = partial(engine.cancel, entry, force=False)
        take_back = (lambda: None) if entry.ready else engine.lend()
        return read_later(partial(engine.subscribe, (entry,)), self.result, cancel, take_back)

    def __await__(self) -> Generator[Any, None, T_co]:
        import asyncio  # noqa: PLC0415 - it costs what few programs need

        return asyncio.wrap_future(self.future()).__await__()

    def _take(self, deadline: float | None) -> Any:
        """Return the value, or `LATE`; raise what its task raised."""
        return self._engine.take(self, deadline)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectRef):
            return NotImplemented
        return bool(self._entry.id == other._entry.id and self._engine.token == other._engine.token)

    def __hash__(self) -> int:
        return hash(self._entry.id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._entry.id})"

    def __del__(self) -> None:
        self._engine.release(self._entry)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._engine.reduce_ref(self)


@final
class GeneratorFuture(ObjectRef[list[T]], Iterator[ObjectRef[T] | T]):
    """Stands for the items of a generator that runs as a task.

    `next` gives the next item, for `get` to turn into a value (a context may give the value itself).
    `wait` takes it as ready whenever `next` wouldn't block. `get` gives the list of the items that `next`
    hasn't taken, and the same list again when asked again; no item is left for `next` then. An exception
    of the generator comes after the items before it, and again at each further call.
    """

    __slots__ = ("_complete", "_gathered", "_lock")

    def __init__(self, engine: Engine, entry: Entry, name: str = "", actor: str = "") -> None:
        super().__init__(engine, entry, name, actor)
        self._lock = threading.Lock()
        self._gathered: list[Any] = []
        self._complete = False

    def __next__(self) -> ObjectRef[T] | T:
        with self._engine.shielded():
            item = self._next_item()
        if item is END:
            raise StopIteration
        found: ObjectRef[T] | T = item
        return found

    def _next_item(self) -> Any:
        with self._lock:
            if self._complete:
                return END
            if self._gathered:  # by a `gather` that ran into its deadline
                return self._gathered.pop(0)
        return self._next(None)

    def gather(self, deadline: float | None) -> Any:
        """Return the list of all items that `next` hasn't taken, as `next` would give them, or `LATE`.

        The same list each time. Raises what the generator raises; what was taken until then stays.
        """
        with self._engine.shielded():
            patience = -1.0 if deadline is None else max(deadline - time.monotonic(), 0)
            if not self._lock.acquire(timeout=patience):
                return LATE
            try:
                while not self._complete:
                    item = self._next(deadline)
                    if item is LATE:
                        return LATE
                    if item is END:
                        self._complete = True
                    else:
                        self._gathered.append(item)
                return list(self._gathered)
            finally:
                self._lock.release()

    def _next(self, deadline: float | None) -> Any:
        engine = self._engine
        item = engine.next_item(self, deadline)
        if engine.items_are_refs and item is not END and item is not LATE:
            return ObjectRef(engine, item, self._name, self._actor)
        return item

    def _take(self, deadline: float | None) -> Any:
        items = self.gather(deadline)
        if items is LATE or not self._engine.items_are_refs:
            return items
        values = []
        for item in items:
            value = item._take(deadline)
            if value is LATE:
                return LATE
            values.append(value)
        return values


def make_ref(engine: Engine, entry: Entry, name: str, actor: str, *, streaming: bool) -> ObjectRef[Any]:
    """Return the ref of what a task makes."""
    return (GeneratorFuture if streaming else ObjectRef)(engine, entry, name, actor)


def submit_call(engine: Engine, call: Call, options: TaskOptions) -> ObjectRef[Any]:
    """Let a call run; return the ref of its result."""
    streaming = is_generator_function(call.function)
    entry = engine.submit(call, options, streaming=streaming)
    return make_ref(engine, entry, options.name or call.name, "", streaming=streaming)


def check_owned(ref: ObjectRef[T], engine: Engine) -> ObjectRef[T]:
    """Return the ref.

    Raises:
        ObjectLostError: the engine can't read it: it belongs to another.
    """
    if ref._engine is engine or ref._engine.home in (engine.home, ANYWHERE):
        return ref
    raise ObjectLostError(ref.id, "it belongs to another context")


def reader_of(ref: ObjectRef[Any], engine: Engine) -> Engine:
    """Return which engine knows a ref that `engine` can read: `engine` itself, or a named actor's."""
    return ref._engine if ref._engine.home is ANYWHERE else engine


def read_ref(ref: ObjectRef[Any], timeout: float | None, deadline: float | None) -> Any:
    """Return the value of a ref by the deadline, which is the end of the caller's `timeout`.

    Raises `GetTimeoutError`, and what its task raised.
    """
    value = ref._take(deadline)
    if value is LATE:
        raise GetTimeoutError(repr(ref), timeout or 0.0)
    return value
