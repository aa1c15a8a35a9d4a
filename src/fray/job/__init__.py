"""What code inside a job calls: tasks, values and actors, the same on every engine.

    ctx = get_default_job_ctx()
    refs = [ctx.run(score, shard) for shard in shards]
    ready, rest = ctx.wait(refs, num_returns=10)
    stats = ctx.create_actor(Stats, name="stats", get_if_exists=True)
    ctx.get(stats.add(3))

docs/contexts.md says what the kinds of contexts have in common and where they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fray.job.actor_groups import ActorContext as ActorContext
from fray.job.actor_groups import ActorGroup as ActorGroup
from fray.job.actor_groups import MemberState as MemberState
from fray.job.actor_groups import current_actor as current_actor
from fray.job.actors import ActorHandle as ActorHandle
from fray.job.actors import ActorMethod as ActorMethod
from fray.job.actors import HostedActor as HostedActor
from fray.job.context import ContextStats as ContextStats
from fray.job.context import JobContext as JobContext
from fray.job.defaults import clear_job_context as clear_job_context
from fray.job.defaults import create_context as create_context
from fray.job.defaults import create_job_ctx as create_job_ctx
from fray.job.defaults import fray_default_job_ctx as fray_default_job_ctx
from fray.job.defaults import fray_job_ctx as fray_job_ctx
from fray.job.defaults import get_default_job_ctx as get_default_job_ctx
from fray.job.defaults import get_job_context as get_job_context
from fray.job.defaults import set_job_context as set_job_context
from fray.job.endpoints import Endpoint as Endpoint
from fray.job.endpoints import lookup_endpoint as lookup_endpoint
from fray.job.endpoints import register_endpoint as register_endpoint
from fray.job.hosting import host_actor as host_actor
from fray.job.inline import SyncContext as SyncContext
from fray.job.options import ActorOptions as ActorOptions
from fray.job.options import Lifetime as Lifetime
from fray.job.options import TaskOptions as TaskOptions
from fray.job.refs import GeneratorFuture as GeneratorFuture
from fray.job.refs import ObjectRef as ObjectRef
from fray.job.threads import ThreadContext as ThreadContext
from fray.offered_names import HOMES, offer_names

if TYPE_CHECKING:  # what an earlier API had here
    from fray.job.dask import DaskContext as DaskContext
    from fray.job.ray import RayContext as RayContext

__all__ = list(HOMES[__name__])
offer_names(__name__, ("fray.job.dask", "fray.job.ray"))
