"""An earlier API's names for the client of this machine and for its actors."""

from __future__ import annotations

from typing import Final

from fray.client.client import Client
from fray.client.handle import JobHandle as LocalJobHandle
from fray.cluster.local_cluster import LocalCluster
from fray.job.actor_groups import ActorGroup as LocalActorGroup
from fray.job.actors import ActorHandle as LocalActorHandle
from fray.job.actors import ActorMethod as LocalActorMethod

__all__ = ["LocalActorGroup", "LocalActorHandle", "LocalActorMethod", "LocalClient", "LocalJobHandle"]


class LocalClient(Client):
    """Submits jobs to this machine, where each is a process of its own.

    Args:
        max_threads: Of an earlier API, whose jobs were threads; not used.
    """

    def __init__(self, max_threads: int = 8) -> None:
        self.max_threads: Final = max_threads
        super().__init__(LocalCluster())
