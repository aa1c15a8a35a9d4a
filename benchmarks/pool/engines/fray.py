"""Fray, through its public API."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.pool.engines.base import Engine, Ref

__all__ = ["FrayEngine", "FrayThreadsEngine"]


class FrayEngine(Engine):
    """A pool of worker processes on this machine."""

    distributions = ("fray", "cloudpickle")
    has_generators = has_map = has_hosts = True
    context_type: ClassVar[str] = "pool"

    def __init__(self) -> None:
        from fray.job import TaskOptions, create_job_ctx  # noqa: PLC0415 - the import belongs to what is measured

        self._create, self._options = create_job_ctx, TaskOptions
        self._stack = contextlib.ExitStack()

    def start(self, workers: int) -> None:
        """Create the context."""
        self._context = self._create(self.context_type, max_workers=workers)

    def stop(self) -> None:
        """Shut the context down."""
        self._stack.close()
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

    def create_actor(self, cls: type[Any], *, options: bool = False) -> Callable[[], Ref]:
        """An actor that asks for no processor, as many on few workers must."""
        method = self._context.create_actor(cls, num_cpus=0).increment
        begin: Callable[[], Ref] = method.remote
        return (lambda: method.options(timeout=3600).remote()) if options else begin

    def submit_generators(
        self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]
    ) -> list[Iterator[Ref]]:
        """`ctx.run` of a generator function."""
        return [self._context.run(function, *each) for each in arguments]

    def wait_one(self, refs: Sequence[Ref]) -> tuple[Ref, Sequence[Ref]]:
        """`ctx.wait`."""
        (ready,), rest = self._context.wait(refs)
        return ready, rest

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """`ctx.map` that chooses itself how many items go into a task."""
        return self._context.map(function, items, chunksize="auto")

    def add_hosts(self, count: int) -> None:
        """Hosts that join a pool which listens on TCP, with TLS; it takes the place of the one before."""
        from fray.runtime.pool.transport.addresses import Address  # noqa: PLC0415
        from tests.pool.hosts.pools import several_hosts  # noqa: PLC0415 - what contexts offer has one host
        from tests.pool.transport.certificates import write_key  # noqa: PLC0415

        self._context.shutdown()
        key = write_key(Path(tempfile.mkdtemp()))
        hosts = self._stack.enter_context(several_hosts(key, listen=Address(host="127.0.0.1")))
        for number in range(count):
            hosts.start(f"host{number}")
        for number in range(count):
            hosts.await_host(f"host{number}")
        self._context = hosts.context

    def submit_on(self, host: int, function: Callable[..., Any], *arguments: Any) -> Ref:
        """A task that needs the host's own resource."""
        return self._context.run(function, *arguments, options=self._options(resources={f"host{host}": 1}))


class FrayThreadsEngine(FrayEngine):
    """Threads of this process: tries the measurements where no pool is to be had, and is no peer."""

    context_type = "threadpool"
    has_hosts = False
