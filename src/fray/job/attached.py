"""What each worker of a pool does before its first task."""

from __future__ import annotations

from fray.job.context import JobContext
from fray.job.current import use
from fray.job.defaults import attach_process
from fray.job.pool_engine import PoolEngine, PoolSession
from fray.job.progress_display import turn_off
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.objects.reader import ObjectReader

__all__ = ["attach"]


def attach(token: str, client: PoolClient, objects: ObjectReader) -> None:
    """Make the pool's context that of this process."""
    turn_off()
    engine = PoolEngine(PoolSession(token, client, objects))
    attach_process(JobContext(engine))
    use(engine)
