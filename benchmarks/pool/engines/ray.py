"""Ray: a local instance with as many processors as workers."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmarks.pool.engines.base import Engine, Ref

__all__ = ["RayEngine"]

OBJECT_STORE_BYTES = 2_000_000_000


class RayEngine(Engine):
    """Ray without its dashboard, which would only take processor time from what is measured."""

    distributions = ("ray",)
    has_generators = has_map = has_hosts = True

    def __init__(self) -> None:
        import ray  # noqa: PLC0415 - the import belongs to what is measured

        self._ray = ray
        self._remote: dict[Callable[..., Any], Any] = {}

    def start(self, workers: int) -> None:
        """`ray.init`."""
        self._ray.init(
            num_cpus=workers,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=OBJECT_STORE_BYTES,
            _temp_dir=tempfile.gettempdir(),
        )

    def stop(self) -> None:
        """`ray.shutdown`."""
        self._ray.shutdown()

    def submit_each(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Ref]:
        """`f.remote` for each, with one remote function for all."""
        if function not in self._remote:
            self._remote[function] = self._ray.remote(function)
        begin = self._remote[function].remote
        return [begin(*each) for each in arguments]

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """`ray.get` of the list."""
        values: list[Any] = self._ray.get(list(refs))
        return values

    def put(self, value: Any) -> Ref:
        """`ray.put`."""
        return self._ray.put(value)

    def create_actor(self, cls: type[Any], *, options: bool = False) -> Callable[[], Ref]:
        """An actor that asks for no processor, as many on few processors must."""
        method = self._ray.remote(cls).options(num_cpus=0).remote().increment
        begin: Callable[[], Ref] = method.remote
        return (lambda: method.options(name="increment").remote()) if options else begin

    def submit_generators(
        self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]
    ) -> list[Iterator[Ref]]:
        """`num_returns="streaming"`."""
        begin = self._ray.remote(function).options(num_returns="streaming").remote
        return [begin(*each) for each in arguments]

    def wait_one(self, refs: Sequence[Ref]) -> tuple[Ref, Sequence[Ref]]:
        """`ray.wait`."""
        (ready,), rest = self._ray.wait(refs, num_returns=1)
        return ready, rest

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """`ray.util.multiprocessing`, with chunks of 1,000."""
        from ray.util.multiprocessing import Pool  # noqa: PLC0415 - as above

        with Pool() as pool:
            return list(pool.imap(function, items, chunksize=1_000))

    def add_hosts(self, count: int) -> None:
        """`ray start` for each, with the address of the first."""
        address = self._ray.get_runtime_context().gcs_address
        for number in range(count):
            command = (
                *(sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={address}"),
                *("--num-cpus=1", f"--object-store-memory={OBJECT_STORE_BYTES // 4}"),
                f"--resources={json.dumps({f'host{number}': 100})}",
            )
            subprocess.run(command, check=True, stdout=sys.stderr)

    def submit_on(self, host: int, function: Callable[..., Any], *arguments: Any) -> Ref:
        """A task that needs the host's own resource."""
        return self._ray.remote(function).options(resources={f"host{host}": 1}).remote(*arguments)
