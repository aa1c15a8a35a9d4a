"""Clusters of Dask for the suite: one for each number of workers, for as long as the tests run."""

from __future__ import annotations

import contextlib

from fray.job.checks import check_count

__all__ = ["start_dask_cluster"]


def start_dask_cluster(stack: contextlib.ExitStack, workers: int) -> str:
    """Start a cluster that ends with the stack; return its address."""
    from fray.job.dask_cluster import start_cluster  # noqa: PLC0415 - seconds, for those that need it

    check_count("max_workers", workers, 1)
    cluster = start_cluster(workers, {}, None)
    stack.callback(cluster.close)
    return str(cluster.scheduler_address)
