"""What code inside a job calls: tasks, values and actors, the same on every engine.

    ctx = get_default_job_ctx()
    refs = [ctx.run(score, shard) for shard in shards]
    ready, rest = ctx.wait(refs, num_returns=10)
    stats = ctx.create_actor(Stats, name="stats", get_if_exists=True)
    ctx.get(stats.add(3))

docs/contexts.md says what the kinds of contexts have in common and where they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fray.job.actor_groups import ActorContext, ActorGroup, MemberState, current_actor
from fray.job.actors import ActorHandle, ActorMethod, HostedActor
from fray.job.context import ContextStats, JobContext
from fray.job.defaults import (
    clear_job_context,
    create_context,
    create_job_ctx,
    fray_default_job_ctx,
    fray_job_ctx,
    get_default_job_ctx,
    get_job_context,
    set_job_context,
)
from fray.job.endpoints import Endpoint, lookup_endpoint, register_endpoint
from fray.job.hosting import host_actor
from fray.job.inline import SyncContext
from fray.job.options import ActorOptions, Lifetime, TaskOptions
from fray.job.refs import GeneratorFuture, ObjectRef
from fray.job.threads import ThreadContext
from fray.offered_names import find_offered

__all__ = [
    "ActorContext",
    "ActorGroup",
    "ActorHandle",
    "ActorMethod",
    "ActorOptions",
    "ContextStats",
    "Endpoint",
    "GeneratorFuture",
    "HostedActor",
    "JobContext",
    "Lifetime",
    "MemberState",
    "ObjectRef",
    "SyncContext",
    "TaskOptions",
    "ThreadContext",
    "clear_job_context",
    "create_context",
    "create_job_ctx",
    "current_actor",
    "fray_default_job_ctx",
    "fray_job_ctx",
    "get_default_job_ctx",
    "get_job_context",
    "host_actor",
    "lookup_endpoint",
    "register_endpoint",
    "set_job_context",
]

if TYPE_CHECKING:  # what an earlier API had here
    from fray.job.ray import RayContext as RayContext
else:  # else mypy would find no misspelt name

    def __getattr__(name: str) -> Any:
        return find_offered(__name__, name, ("fray.job.ray",))
