"""An earlier API's module of actors: what there is now under its names."""

from __future__ import annotations

from fray.errors import ActorUnavailableError
from fray.job.actor_groups import ActorContext, ActorGroup, current_actor
from fray.job.actors import ActorHandle, ActorMethod, HostedActor
from fray.job.refs import ObjectRef as ActorFuture

__all__ = [
    "ActorContext",
    "ActorFuture",
    "ActorGroup",
    "ActorHandle",
    "ActorMethod",
    "ActorUnavailableError",
    "HostedActor",
    "current_actor",
]
