"""Fray, through its public API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from benchmarks.pool.engines.base import Engine, Ref

__all__ = ["FrayEngine", "FrayThreadsEngine"]


class FrayEngine(Engine):
    """A pool of worker processes on this machine."""

    distributions = ("fray", "cloudpickle")
    context_type: ClassVar[str] = "pool"

    def __init__(self) -> None:
        from fray.job import create_job_ctx  # noqa: PLC0415 - the import belongs to what is measured

        self._create = create_job_ctx

    def start(self, workers: int) -> None:
        """Create the context."""
        self._context = self._create(self.context_type, max_workers=workers)

    def stop(self) -> None:
        """Shut the context down."""
        self._context.shutdown()

    def submit_each(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Ref]:
        """`ctx.run` for each."""
        run = self._context.run
        return [run(function, *each) for each in arguments]

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """`ctx.get` of the list."""
        values: list[Any] = self._context.get(list(refs))
        return values

    def put(self, value: Any) -> Ref:
        """`ctx.put`."""
        return self._context.put(value)

    def create_actor(self, cls: type[Any]) -> Callable[[], Ref]:
        """An actor that asks for no processor, as many on few workers must."""
        begin: Callable[[], Ref] = self._context.create_actor(cls, num_cpus=0).increment.remote
        return begin


class FrayThreadsEngine(FrayEngine):
    """Threads of this process: tries the measurements where no pool is to be had, and is no peer."""

    context_type = "threadpool"
