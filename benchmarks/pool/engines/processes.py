"""Pools of the standard library's: no stored objects, no actors, hardly any scheduler."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import cached_property
from multiprocessing.pool import Pool
from typing import Any

from benchmarks.pool.engines.base import Engine, Ref

__all__ = ["ProcessesEngine"]


class ProcessesEngine(Engine):
    """ProcessPoolExecutor, and for `map` multiprocessing.Pool: with Python's default start method here."""

    distributions = ()
    has_objects = False
    has_actors = False
    has_map = True

    def start(self, workers: int) -> None:
        """Create the pool; its processes start with the first tasks."""
        self._workers = workers
        self._pool = ProcessPoolExecutor(workers)

    @cached_property
    def _mapping(self) -> Pool:
        return multiprocessing.Pool(self._workers)

    def stop(self) -> None:
        """Shut the pools down."""
        self._pool.shutdown(cancel_futures=True)
        if "_mapping" in vars(self):
            self._mapping.terminate()

    def submit_each(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Ref]:
        """`submit` for each: `map` with chunks would send fewer tasks than it was given.

        It knows no refs: results that are arguments come to this process, and are sent to the next task.
        """
        return [
            self._pool.submit(
                function, *(part.result() if isinstance(part, Future) else part for part in each)
            )
            for each in arguments
        ]

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """`result` of each."""
        return [ref.result() for ref in refs]

    def wait_one(self, refs: Sequence[Ref]) -> Sequence[Ref]:
        """`wait` for the first; it gives sets."""
        found = wait(refs, return_when=FIRST_COMPLETED)
        done = list(found.done)
        return [*done[1:], *found.not_done]

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """`map` of multiprocessing.Pool, in its own chunks: faster than that of ProcessPoolExecutor."""
        return self._mapping.map(function, items)

    def put(self, value: Any) -> Ref:
        """The value itself: it is pickled for every task that reads it."""
        return value
