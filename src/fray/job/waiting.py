"""Which refs are ready: what `wait` finds and returns, and refs in the order in which they become ready.

How a thread learns of it is the engine's business.
"""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from fray.errors import GetTimeoutError
from fray.job.engine import Engine, Entry, deadline_after, time_left
from fray.job.refs import ObjectRef, check_owned, reader_of

__all__ = ["Awaited", "ReadyRefs", "Rest", "Snapshot", "claim"]

T = TypeVar("T")

_GONE: Final = object()
"""In the place of a future that was returned as ready."""


class _Value:
    """Stands for a value among futures: it is there."""

    id = 0
    ready = True


_VALUE = _Value()


class Awaited(Generic[T]):
    """The futures from which one `wait` after the other takes those that are ready.

    Each is looked at once, and the engine tells of it when it is ready. So a call costs as much as it takes
    out, however many stay. One call at a time uses it: `claim` gives it away, `take` gives it back.
    """

    def __init__(self, engine: Engine, futures: list[T]) -> None:
        self.engine = engine
        self.lock = threading.Lock()
        self.futures: list[Any] = futures
        self.newest = -1
        """How many the last call left; -1 while a call is at work, and after one that was broken off."""
        self._seen = 0
        """Those before it were looked at."""
        self._ready: list[int] = []
        """Where those stand that are ready: a heap."""
        self._places: dict[Entry, int] = {}
        """Those that the engine is to tell of."""
        self._further: dict[Entry, list[int]] = {}
        """Further places of the same."""
        self._news: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._listener: Callable[[Entry], None] = self._news.put

    def __del__(self) -> None:
        if not self._places:
            return
        for engine, entries in self._by_reader(self._places.items()).items():
            engine.unsubscribe(entries, self._listener)

    def find(self, count: int) -> list[int]:
        """Return where the first `count` ready ones stand, or all that are: in their order."""
        while not self._news.empty():
            self._hear(self._news.get())
        found: list[int] = []
        unready: list[int] = []
        while self._ready and len(found) < count:
            position = heapq.heappop(self._ready)
            # Another reader may have taken the item that made a generator ready.
            (found if self._entry(position).ready else unready).append(position)
        position = self._seen
        while position < len(self.futures) and len(found) < count:
            (found if self._entry(position).ready else unready).append(position)
            position += 1
        self._seen = position
        if unready:
            self._subscribe(unready)
        return found

    def await_more(self, found: list[int], count: int, deadline: float | None) -> list[int]:
        """Block until `count` are ready or the deadline has passed. Takes and returns what `find` does."""
        in_time = True
        while len(found) < count and in_time:
            self._ready = found  # it ascends, and so is a heap
            in_time = self._hear_of(count - len(found), deadline)
            found = self.find(count)
        return found

    def _hear_of(self, missing: int, deadline: float | None) -> bool:
        with self.engine.blocking(partial(self._news.put, None), deadline):
            while missing > 0:
                try:
                    entry = self._news.get(timeout=time_left(deadline))
                except queue.Empty:
                    return False
                if entry is None:  # this thread was asked to end its wait
                    return True
                missing -= self._hear(entry)
        return True

    def _hear(self, entry: Entry | None) -> int:
        position = None if entry is None else self._places.pop(entry, None)
        if entry is None or position is None:
            return 0
        positions = [position, *self._further.pop(entry, ())]
        for place in positions:
            heapq.heappush(self._ready, place)
        return len(positions)

    def _subscribe(self, positions: Iterable[int]) -> None:
        new: list[tuple[Entry, int]] = []
        for position in positions:
            entry = self._entry(position)
            if self._places.setdefault(entry, position) == position:
                new.append((entry, position))
            else:
                self._further.setdefault(entry, []).append(position)
        for engine, entries in self._by_reader(new).items():
            engine.subscribe(entries, self._listener)

    def _by_reader(self, places: Iterable[tuple[Entry, int]]) -> dict[Engine, list[Entry]]:
        """Return entries by the engine that knows them: named actors have engines of their own."""
        found: dict[Engine, list[Entry]] = {}
        for entry, position in places:
            found.setdefault(reader_of(self.futures[position], self.engine), []).append(entry)
        return found

    def _entry(self, position: int) -> Entry:
        future = self.futures[position]
        if type(future) is ObjectRef and future._engine is self.engine:
            entry: Entry = future._entry
            return entry
        return check_owned(future, self.engine)._entry if isinstance(future, ObjectRef) else _VALUE


class Snapshot(Generic[T]):
    """What was left after one call: what its `Awaited` has now, and what was taken from it since.

    What was taken is kept by the older one of two, so that it goes with the last who can see it.
    """

    __slots__ = ("awaited", "length", "successor", "taken")

    def __init__(self, awaited: Awaited[T], length: int) -> None:
        self.awaited = awaited
        self.length = length
        self.taken: dict[int, T] = {}
        self.successor: Snapshot[T] | None = None

    def take(self, positions: Sequence[int]) -> tuple[list[T], list[T]]:
        """Return what stands at the positions, and the rest. Of the newest one, by who has claimed it."""
        awaited = self.awaited
        left = self
        if positions:
            left = Snapshot(awaited, self.length - len(positions))
            taken = {position: awaited.futures[position] for position in positions}
            with awaited.lock:
                self.taken, self.successor = taken, left
                for position in positions:
                    awaited.futures[position] = _GONE
        awaited.newest = left.length
        return list(self.taken.values()), Rest(left)

    def list(self) -> list[T]:
        """Return the futures in their order."""
        with self.awaited.lock:
            futures = self.awaited.futures.copy()
            node: Snapshot[T] | None = self
            while node is not None:
                for position, future in node.taken.items():
                    futures[position] = future
                node = node.successor
        return [future for future in futures if future is not _GONE]


class Rest(list[T]):
    """The futures that weren't returned as ready: a list, which is made when somebody looks into it.

    `len` and `wait` don't need it. So a loop over 100,000 refs that takes one at a time copies none of them.
    """

    __slots__ = ("snapshot",)

    def __init__(self, snapshot: Snapshot[T]) -> None:
        super().__init__()
        self.snapshot: Snapshot[T] | None = snapshot
        """None: it was changed, and is a list like any other."""

    def __len__(self) -> int:
        return super().__len__() if self.snapshot is None else self.snapshot.length

    def __iter__(self) -> Iterator[T]:
        return super(Rest, _made(self)).__iter__()

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return list, (list(self),)

    def __copy__(self) -> list[T]:
        return list(self)

    copy = __copy__

    def __add__(self, other: Any) -> Any:
        return list(self) + other

    def __radd__(self, other: Any) -> Any:
        return [*other, *self] if isinstance(other, list) else NotImplemented


def _made(rest: Rest[T]) -> Rest[T]:
    if rest.snapshot is not None and not list.__len__(rest):
        # At once, and not by `extend`: another thread may do the same.
        list.__setitem__(rest, slice(None), rest.snapshot.list())
    return rest


def _reading(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def read(self: Rest[Any], *args: Any) -> Any:
        return method(_made(self), *(_made(part) if type(part) is Rest else part for part in args))

    return read


def _changing(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def change(self: Rest[Any], *args: Any, **kwargs: Any) -> Any:
        _made(self).snapshot = None
        return method(self, *args, **kwargs)

    return change


_READING = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __getitem__ __contains__ __reversed__ __mul__ __rmul__"
_CHANGING = "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse sort"
for _name in (*_READING.split(), "__repr__", "count", "index"):
    setattr(Rest, _name, _reading(_name))
for _name in _CHANGING.split():
    setattr(Rest, _name, _changing(_name))


def claim(engine: Engine, futures: Iterable[T]) -> Snapshot[T]:
    """Return what a call of `wait` takes from: what the call before it left, if these are its rest.

    Else, as for the rest of a call that isn't the last one or of one that was broken off, all of them are
    looked at anew.
    """
    left = futures.snapshot if type(futures) is Rest else None
    if left is not None and left.awaited.engine is engine and not engine.closed:
        with left.awaited.lock:
            if left.awaited.newest == left.length:
                left.awaited.newest = -1
                return left
    awaited = Awaited(engine, list(futures))
    return Snapshot(awaited, len(awaited.futures))


class ReadyRefs:
    """Gives back the refs that were added, each when it is ready."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ready: queue.SimpleQueue[ObjectRef[Any] | None] = queue.SimpleQueue()
        self._left = 0

    def add(self, ref: ObjectRef[Any]) -> None:
        """Add a ref of the engine."""
        self._left += 1
        reader_of(ref, self._engine).subscribe((ref._entry,), lambda _: self._ready.put(ref))

    def next(self, timeout: float | None = None) -> ObjectRef[Any]:
        """Take out a ref that is ready, blocking until there is one. Raises `GetTimeoutError`."""
        deadline = deadline_after(timeout)
        while True:
            try:
                ref = self._ready.get_nowait()
            except queue.Empty:
                try:
                    with self._engine.blocking(partial(self._ready.put, None), deadline):
                        ref = self._ready.get(timeout=time_left(deadline))
                except queue.Empty:
                    raise GetTimeoutError(f"one of {self._left} refs", timeout or 0.0) from None
            if ref is not None:  # else this thread was told to end its wait
                self._left -= 1
                return ref

    def __len__(self) -> int:
        return self._left
