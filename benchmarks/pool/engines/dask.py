"""Dask: a LocalCluster of single-threaded worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.pool.engines.base import Engine, Ref

__all__ = ["DaskEngine"]


class DaskEngine(Engine):
    """dask.distributed without its dashboard; the scheduler runs in this process."""

    distributions = ("distributed",)
    # Seen with distributed 2026.8: of 500 calls begun at once, some overtook others.
    keeps_call_order = False

    def __init__(self) -> None:
        from distributed import (  # noqa: PLC0415 - the import is measured
            BaseActorFuture,
            Client,
            LocalCluster,
            wait,
        )

        self._wait = wait
        self._client_class, self._cluster_class = Client, LocalCluster
        self._actor_future = BaseActorFuture

    def start(self, workers: int) -> None:
        """Start the cluster and a client of it."""
        self._cluster = self._cluster_class(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        )
        self._client = self._client_class(self._cluster)

    def stop(self) -> None:
        """Close both."""
        self._client.close()
        self._cluster.close()

    def submit_each(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Ref]:
        """`client.map`: one message for all, much faster than a `submit` for each."""
        columns = list(zip(*arguments, strict=True))
        refs: list[Ref] = self._client.map(function, *columns, pure=False)
        return refs

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """`client.gather` of the list; calls of actors have futures of their own."""
        if refs and isinstance(refs[0], self._actor_future):
            return [ref.result() for ref in refs]
        values: list[Any] = self._client.gather(list(refs))
        return values

    def put(self, value: Any) -> Ref:
        """`client.scatter`, without a look at the value to name it."""
        return self._client.scatter(value, hash=False)

    def wait_one(self, refs: Sequence[Ref]) -> Sequence[Ref]:
        """`wait` for the first; it gives sets."""
        found = self._wait(list(refs), return_when="FIRST_COMPLETED")
        done: list[Ref] = list(found.done)
        return [*done[1:], *found.not_done]

    def create_actor(self, cls: type[Any], *, options: bool = False) -> Callable[[], Ref]:  # noqa: ARG002
        """An actor in one of the workers; many share one process. Its calls have no options."""
        begin: Callable[[], Ref] = self._client.submit(cls, actor=True, pure=False).result().increment
        return begin
