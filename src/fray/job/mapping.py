"""`map` over items: how many tasks are under way, how many items each has, and in which order they come.

What runs a task and how its result is read is the context's business.
"""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias

from fray.errors import InvalidOptionError
from fray.job.calls import is_generator_function
from fray.job.checks import check_count
from fray.job.options import TaskOptions
from fray.job.progress import MapWatch
from fray.job.refs import ObjectRef

__all__ = ["ChunkSize", "MapCall", "Results", "check_chunksize", "map_items"]

ChunkSize: TypeAlias = int | Literal["auto"]
MOST_ITEMS = 16_384
"""Of one chunk, so that arguments and results of tiny items stay small enough to travel with the message."""
CHUNK_SECONDS = 0.02
"""How long a chunk of "auto" should run: much longer than it takes to send, and short for its reader."""
MOST_CHUNKS = 64
"""Chunks under way, so that little is read ahead of the results."""
GROWTH = 8
"""How many times as large as the last one measured a chunk may be."""


class Results(Protocol):
    """Refs under way, from their submission until they are given back for their values to be read."""

    def add(self, ref: ObjectRef[Any]) -> None:
        """Add a ref."""

    def next(self) -> ObjectRef[Any]:
        """Take out the next ref; the first one added, or the first one that is ready."""

    def __len__(self) -> int: ...


class InOrder:
    """Gives refs back in the order in which they were added."""

    def __init__(self) -> None:
        self._refs: deque[ObjectRef[Any]] = deque()

    def add(self, ref: ObjectRef[Any]) -> None:
        """Add a ref."""
        self._refs.append(ref)

    def next(self) -> ObjectRef[Any]:
        """Take out the first ref."""
        return self._refs.popleft()

    def __len__(self) -> int:
        return len(self._refs)


@dataclass(frozen=True)
class MapCall:
    """What is mapped: `function` of each of the `items`, which are tuples of arguments if it's `starred`."""

    function: Callable[..., Any]
    items: Iterator[Any]
    starred: bool
    options: TaskOptions
    ahead: int
    chunksize: ChunkSize
    submit: Callable[[Callable[..., Any], Sequence[Any], TaskOptions], ObjectRef[Any]] = field(repr=False)
    read: Callable[[ObjectRef[Any]], Any] = field(repr=False)

    @property
    def packed(self) -> bool:
        """Whether a task gets several items. Generators and coroutines are read item by item."""
        function = self.function
        return self.chunksize != 1 and not (
            is_generator_function(function) or inspect.iscoroutinefunction(function)
        )


def check_chunksize(value: object) -> ChunkSize:
    """Return it. Raises `InvalidOptionError`."""
    if value == "auto":
        return "auto"
    if isinstance(value, str):
        raise InvalidOptionError("chunksize", repr(value), "'auto', or whole numbers of 1 or more")
    return check_count("chunksize", value, 1)


def map_items(call: MapCall, results: Results | None, watch: MapWatch) -> Iterator[Any]:
    """Yield the result of each item, in the order of `results` (None: that of the items)."""
    results = InOrder() if results is None else results
    read, submit, options, items = call.read, call.submit, call.options, call.items
    if not call.packed:
        for item in items:
            results.add(submit(call.function, item if call.starred else (item,), options))
            if len(results) == call.ahead:
                yield watch.hand_out(read(results.next()))
                watch.resume()
        while len(results):
            yield watch.hand_out(read(results.next()))
            watch.resume()
        return
    call_each, sizer = pack(call.function, starred=call.starred), ChunkSizer(call.chunksize)
    limit = min(call.ahead, MOST_CHUNKS)
    more = True
    while more or len(results):
        while more and len(results) < limit:
            chunk = list(islice(items, sizer.size))
            more = bool(chunk)
            if more:
                results.add(submit(call_each, (chunk,), options))
        if len(results):
            seconds, values = read(results.next())
            sizer.note(len(values), seconds)
            watch.hand_out_many(len(values))
            yield from values
            watch.resume()


class ChunkSizer:
    """How many items a chunk gets: a fixed number, or as many as take `CHUNK_SECONDS`."""

    def __init__(self, chunksize: ChunkSize) -> None:
        self._fixed = chunksize != "auto"
        self.size = 1 if chunksize == "auto" else chunksize

    def note(self, items: int, seconds: float) -> None:
        """Take note of how long a chunk of so many items took."""
        if self._fixed:
            return
        fitting = CHUNK_SECONDS * items / max(seconds, 1e-9)
        self.size = int(max(1, min(fitting, items * GROWTH, MOST_ITEMS)))


def pack(function: Callable[..., Any], *, starred: bool) -> Callable[..., Any]:
    """Return a function of a list of items that gives its seconds and the list of their results."""

    # A plain function, which an engine encodes once, however many chunks there are.
    def call_each(items: list[Any]) -> tuple[float, list[Any]]:
        began = time.perf_counter()
        # Not by `map`, whose end a StopIteration of the function would be.
        values = [function(*item) for item in items] if starred else [function(item) for item in items]
        return time.perf_counter() - began, values

    return call_each
