"""`map` over items: how many tasks are under way, how many items each has, and in which order they come."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias

from fray.errors import InvalidOptionError
from fray.job.calls import Call, is_generator_function
from fray.job.checks import check_count
from fray.job.engine import Engine
from fray.job.options import TaskOptions
from fray.job.progress import MapWatch, Surveyed
from fray.job.progress_display import watching_map
from fray.job.refs import ObjectRef, read_ref, submit_call
from fray.job.waiting import ReadyRefs

__all__ = ["ChunkSize", "MapCall", "start_map"]

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
    """What is mapped, as it was asked for: see `JobContext.map`.

    `items` are tuples of arguments where it's `starred`; `total` is their number, None where nobody knows it.
    """

    function: Callable[..., Any]
    items: Iterator[Any]
    total: int | None
    starred: bool
    options: TaskOptions
    ahead: int
    ordered: bool
    chunksize: ChunkSize

    @property
    def packed(self) -> bool:
        """Whether a task gets several items. Generators and coroutines are read item by item."""
        function = self.function
        return self.chunksize != 1 and not (
            is_generator_function(function) or inspect.iscoroutinefunction(function)
        )


def start_map(engine: Engine, survey: Surveyed, call: MapCall) -> Iterator[Any]:
    """Return the results of all items, which begin to run with the first call of `next`.

    Raises:
        InvalidOptionError: `ahead` or `chunksize` is below 1.
    """
    check_count("ahead", call.ahead, 1)
    _check_chunksize(call.chunksize)
    if not call.options.name:
        call = replace(call, options=replace(call.options, name=Call(call.function, (), {}).name))
    return _watch_map(engine, survey, call)


def _watch_map(engine: Engine, survey: Surveyed, call: MapCall) -> Iterator[Any]:
    watch = MapWatch(survey, call.total)
    with watching_map(watch):
        yield from _map_items(engine, call, watch)


def _check_chunksize(value: object) -> None:
    if isinstance(value, str):
        if value != "auto":
            raise InvalidOptionError("chunksize", repr(value), "'auto', or whole numbers of 1 or more")
    else:
        check_count("chunksize", value, 1)


def _map_items(engine: Engine, call: MapCall, watch: MapWatch) -> Iterator[Any]:
    """Yield the result of each item, in their order or as they are ready."""
    results: Results = InOrder() if call.ordered else ReadyRefs(engine)
    options, items = call.options, call.items
    if not call.packed:
        for item in items:
            arguments = tuple(item) if call.starred else (item,)
            results.add(submit_call(engine, Call(call.function, arguments, {}), options))
            if len(results) == call.ahead:
                yield watch.hand_out(read_ref(results.next(), None, None))
                watch.resume()
        while len(results):
            yield watch.hand_out(read_ref(results.next(), None, None))
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
                results.add(submit_call(engine, Call(call_each, (chunk,), {}), options))
        if len(results):
            seconds, values = read_ref(results.next(), None, None)
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
