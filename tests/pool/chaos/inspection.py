"""Looking into a pool from a test: what it thinks, and what it keeps although nobody refers to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from fray.job import JobContext
from fray.runtime.pool.local_pool import LocalPool
from fray.runtime.pool.machine.snapshot import PoolStats

__all__ = ["SETTLE_SECONDS", "leftovers", "nanny_of", "pool_of", "settles", "short", "state_problem"]

SETTLE_SECONDS = 60.0
"""Seconds after which something that should have happened never will."""


def pool_of(context: JobContext) -> LocalPool:
    """Return the processes behind a context."""
    engine: Any = context._engine
    pool: LocalPool = engine._owner._pool
    return pool


def nanny_of(pool: LocalPool) -> int:
    """Return the pid of the nanny that the pool has now."""
    assert pool._nanny is not None
    return pool._nanny.pid


def state_problem(pool: LocalPool) -> str:
    """Return in words what doesn't fit together in the state machine."""

    def check(state: Any) -> str:
        try:
            state.check()
        except AssertionError as error:
            return str(error)
        return ""

    problem: str = pool._head.call(check)
    return problem


def leftovers(pool: LocalPool) -> list[str]:
    """Return in words what a pool has that one without work and without references shouldn't."""
    stats = pool.stats()
    (host,) = stats.hosts.values()
    store = pool.objects._store
    files = [
        entry.name
        for folder in (store.directory, store.spill_directory)
        if folder.exists()
        for entry in os.scandir(folder)
        if entry.is_file() and entry.name != "usage"
    ]
    problems = {
        "objects": stats.objects,
        "bytes in memory": host.memory,
        "bytes on disk": host.spilled,
        "bytes that the store counts": store.usage().memory,
        "files": files,
        "actors": dict(stats.actors),
        "missing workers": pool._config.workers - host.workers,
        "tasks": dict(stats.tasks),
        "held resources": dict(host.free) != dict(host.offered) and (host.free, host.offered),
    }
    return [f"left: {what} {amount}" for what, amount in problems.items() if amount]


def settles(done: Callable[[], bool]) -> bool:
    """Return whether `done` becomes true: the head hears of dropped refs and lost workers with a delay."""
    give_up_at = time.monotonic() + SETTLE_SECONDS
    while not done():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.05)
    return True


def short(stats: PoolStats) -> str:
    """Return what matters of a pool's state in one line."""
    return (
        f"tasks {dict(stats.tasks)}, actors {dict(stats.actors)}, objects {stats.objects}, "
        f"hosts {list(stats.hosts.values())}, {dict(stats.counters)}, ignored {dict(stats.ignored)}"
    )
