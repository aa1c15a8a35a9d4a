"""Contexts on pools of worker processes: one that is started on this machine, or a job's that is joined."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from fray.errors import InvalidOptionError
from fray.job.checks import check_count, check_resources
from fray.job.context import JobContext
from fray.job.pool_engine import PoolEngine, PoolSession
from fray.job.pool_owner import LocalOwner
from fray.runtime.container import available_cpus
from fray.runtime.pool.host.devices import check_devices
from fray.runtime.pool.joined_pool import PATIENCE, ClientHost, JoinedPool, open_store, start_own_pool
from fray.runtime.pool.local_pool import LocalPool
from fray.runtime.pool.pod import PodPool
from fray.runtime.pool.transport.keys import TransportKey

__all__ = ["join_pool", "start_pool"]

ATTACH: Final = "fray.job.attached:attach"
"""What each worker calls before its first task."""
RANK_0_SECONDS: Final = 600.0
"""How long a process of a gang waits for the pod of rank 0, and then for the head there: they start together,
but each node pulls its images by itself."""


def start_pool(
    max_workers: int | None = None,
    *,
    resources: Mapping[str, float] | None = None,
    memory: int | None = None,
    head: str = "thread",
) -> JobContext:
    """Start a pool of processes on this machine; return its context, which ends it with `shutdown`.

    `max_workers` counts processes (None: one for each CPU); `resources` is what there is besides, by name;
    `memory` is for objects, in bytes (None: 30 % of the machine's); `head`, what drives the pool, is a thread
    or a "process", which goes on while this process holds the GIL.

    Raises `InvalidOptionError` for fewer than one worker, another kind of head, or more devices than this
    process may use, `StoreDirectoryError` where objects can't be kept.
    """
    if head not in ("thread", "process"):
        raise InvalidOptionError("head", repr(head), "'thread' or 'process'")
    workers = available_cpus() if max_workers is None else check_count("max_workers", max_workers, 1)
    resources = check_resources(resources)
    environ = os.environ  # noqa: TID251 - the entry of the pool
    check_devices(resources or {}, environ)
    pool: LocalPool | JoinedPool
    if head == "process":
        pool = start_own_pool(workers, resources=resources or {}, store_limit=memory, environ=environ)
    else:
        pool = LocalPool(workers, resources=resources, store_limit=memory, attach=ATTACH, environ=environ)
    session = PoolSession(pool.token, pool.client, pool.objects)
    return JobContext(PoolEngine(session, LocalOwner(pool)))


def join_pool(environ: Mapping[str, str]) -> JobContext:
    """Join the pool of this process's job, which `environ` names; return its context.

    `shutdown` leaves the pool, which goes on without this process.

    Raises `TransportError` if the head isn't reached, `HeadUnknownError` if nobody knows where it is,
    `PoolVersionError` if it refuses this process, `AttemptOverError` if the job's attempt is over.
    """
    place = PodPool.from_env(environ)
    key = TransportKey.load(place.key)
    head = place.find_head(seconds=RANK_0_SECONDS)
    offer = ClientHost(open_store(None, environ), place.objects)
    patience = RANK_0_SECONDS if place.head is None else PATIENCE
    pool = JoinedPool(head.address, key, offer, near=place.socket, patience=patience, environ=environ)
    session = PoolSession(pool.token, pool.client, pool.objects)
    return JobContext(PoolEngine(session, LocalOwner(pool)))
