"""Contexts on Dask: on a cluster of this machine that ends with the context, or on one that runs already."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from fray.errors import ContextUnavailableError
from fray.job.checks import check_count, check_resources
from fray.job.context import JobContext
from fray.job.engine_pods import describe_packages
from fray.runtime.container import available_cpus
from fray.runtime.pool.pod import PodPool

if TYPE_CHECKING:
    from distributed import Client, SpecCluster

__all__ = ["DaskContext", "check_installed", "is_joined", "join", "join_pool", "start"]

HEAD_SECONDS: Final = 600.0
"""How long the scheduler of a job's workers may have no address: rank 0 may pull its image."""
EXTRA: Final = "Install it: pip install 'fray[dask]'"
IN_PODS: Final = describe_packages("distributed")


def start(
    max_workers: int | None = None,
    *,
    address: str | None = None,
    resources: Mapping[str, float] | None = None,
    memory: int | None = None,
    **options: Any,
) -> JobContext:
    """Return a context on the Dask cluster at an address, or on a new one of this machine.

    The new one has `max_workers` processes for tasks (None: one for each CPU) and one for actors; it ends
    with the context. `resources`, by name, are what its first process has besides; `memory` bytes are for
    all processes together. `options` of other engines mean nothing.

    Raises:
        ContextUnavailableError: `distributed` isn't installed, or there is no cluster at the address.
    """
    del options
    check_installed()
    if address is not None:
        return _context_on(_connect(address), None, own_client=True)
    workers = available_cpus() if max_workers is None else check_count("max_workers", max_workers, 1)
    resources = check_resources(resources)
    from fray.job.dask_cluster import start_cluster  # noqa: PLC0415 - which needs `distributed`

    cluster = start_cluster(workers, resources or {}, memory)
    try:
        return _context_on(_connect(cluster), cluster, own_client=True)
    except BaseException:
        cluster.close()
        raise


def join_pool(environ: Mapping[str, str]) -> JobContext:
    """Return a context on the scheduler of the job that `environ` names; its workers are the job's.

    Raises `ContextUnavailableError` without Dask or an answer, and what `PodPool.find_head` raises.
    """
    check_installed(IN_PODS)
    head = PodPool.from_env(environ).find_head(seconds=HEAD_SECONDS).address
    return start(address=f"tls://{head.authority}")


def is_joined() -> bool:
    """Return whether this process is a client or a worker of a Dask cluster; imports nothing."""
    return _find_client() is not None


def join() -> JobContext:
    """Return a context on the cluster that this process belongs to; its client outlives the context."""
    return _context_on(_find_client(), None, own_client=False)


def _find_client() -> Client | None:
    distributed = sys.modules.get("distributed")
    try:
        return distributed.get_client() if distributed is not None else None
    except ValueError:  # there is none
        return None


def check_installed(fix: str = EXTRA) -> None:
    """Raise `ContextUnavailableError`, with what to do, where `distributed` can't be imported."""
    try:
        import distributed  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise ContextUnavailableError("dask", f"{error.name} is not installed", fix) from error


def _connect(where: str | SpecCluster) -> Client:
    from distributed import Client  # noqa: PLC0415 - an extra

    from fray.job.dask_client import hurry  # noqa: PLC0415

    try:
        return hurry(Client(where, set_as_default=False, direct_to_workers=True, name="fray"))
    except (OSError, ValueError) as error:
        reason = f"no Dask scheduler answers at {where}: {error}"
        raise ContextUnavailableError("dask", reason, "Check the address, and that it runs.") from error


def _context_on(client: Any, cluster: SpecCluster | None, *, own_client: bool) -> JobContext:
    from fray.job.dask_actors import TASKS  # noqa: PLC0415
    from fray.job.dask_engine import DaskEngine  # noqa: PLC0415
    from fray.job.dask_host import WORK, Host  # noqa: PLC0415
    from fray.job.dask_plugin import FrayPlugin  # noqa: PLC0415 - which needs `distributed`

    token = f"dask-{uuid.uuid4().hex[:12]}"
    client.register_plugin(FrayPlugin())
    client.register_plugin(Host())
    client.sync(client.scheduler.fray_open, token=token, client=client.id)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    roles = any(TASKS in each["resources"] for each in workers)
    owner = _Owner(client, cluster, token, own_client=own_client)
    return JobContext(DaskEngine(client, token, WORK, roles=roles, owner=owner))


class _Owner:
    """What the maker of a context has: its client, and the cluster if it is its own."""

    def __init__(self, client: Any, cluster: SpecCluster | None, token: str, *, own_client: bool) -> None:
        self._client = client
        self._cluster = cluster
        self._token = token
        self._own_client = own_client

    def close(self) -> None:
        """End what the context has in the cluster, and what was started for it."""
        from fray.job.dask_host import forget_context  # noqa: PLC0415 - which needs `distributed`

        with contextlib.suppress(OSError):  # a cluster that has ended has nothing left
            self._client.sync(self._client.scheduler.fray_close_context, token=self._token)
            if self._cluster is None:
                self._client.run(forget_context, self._token, on_error="ignore")
        if self._own_client:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def DaskContext(max_workers: int | None = None, **options: Any) -> JobContext:  # noqa: N802 - as `RayContext`
    """Return a context on Dask; see `start`."""
    return start(max_workers, **options)
