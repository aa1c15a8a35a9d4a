"""Ray: a local instance with as many processors as workers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.pool.engines.base import Engine, Ref

__all__ = ["RayEngine"]

OBJECT_STORE_BYTES = 2_000_000_000


class RayEngine(Engine):
    """Ray without its dashboard, which would only take processor time from what is measured."""

    distributions = ("ray",)

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

    def create_actor(self, cls: type[Any]) -> Callable[[], Ref]:
        """An actor that asks for no processor, as many on few processors must."""
        begin: Callable[[], Ref] = self._ray.remote(cls).options(num_cpus=0).remote().increment.remote
        return begin
