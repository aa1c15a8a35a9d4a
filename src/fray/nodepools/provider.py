"""Who provides node pools to an operator: nobody, or GKE. One pass reads, decides and acts.

Calls block: an operator makes them in a thread, and only while it leads. A pass may end anywhere, also
between a request and its answer: the next one finds at GKE what was begun.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fray.errors import GkeCredentialsError, NodePoolError, PackageMissingError
from fray.nodepools.answers import Retry
from fray.nodepools.bodies import build_body
from fray.nodepools.decisions import (
    FIRST_SECONDS,
    MOST_SECONDS,
    REMEMBERED_SECONDS,
    Creation,
    Decision,
    Failure,
    Limits,
    Observation,
    PendingGang,
    build_refusal,
    decide,
    find_backoff,
    tell_refusal,
)
from fray.nodepools.gke import Gke
from fray.nodepools.usage import ClusterObjects, PoolUse, derive_usage
from fray.plan.observation import Waiting

__all__ = ["GkeNodePools", "NodePoolProvider"]

logger = logging.getLogger(__name__)

Unreachable = (NodePoolError, GkeCredentialsError, PackageMissingError)
"""Why GKE can't be asked at all."""


class NodePoolProvider(Protocol):
    """What an operator asks for in each pass. One that provides nothing isn't asked at all."""

    def provide(
        self,
        gangs: Sequence[PendingGang],
        objects: ClusterObjects,
        *,
        now: float,
        require: Callable[[], None] = lambda: None,
    ) -> Decision:
        """Create pools for gangs that wait, delete idle ones, and return what was decided.

        `require` is called before each change, and raises where this process may make none any more.
        """
        ...


@dataclass
class GkeNodePools:
    """Pools of one GKE cluster. `made_by` is the operator's name for itself; no other's pools are deleted.

    `connect` is called when GKE is asked first, and again after each time that it raised. What is remembered
    only spares requests: since when pools are idle, and which calls were refused. A successor without it
    waits `idle_seconds` anew, and asks once more.
    """

    connect: Callable[[], Gke]
    limits: Limits
    made_by: str
    _gke: Gke | None = None
    _idle_since: dict[str, float] = field(default_factory=dict)
    _failures: list[Failure] = field(default_factory=list)
    _silences: int = 0
    _silence: Waiting | None = None
    _silent_until: float = 0.0

    def provide(
        self,
        gangs: Sequence[PendingGang],
        objects: ClusterObjects,
        *,
        now: float,
        require: Callable[[], None] = lambda: None,
    ) -> Decision:
        """Make one pass. What GKE refuses becomes waits of the jobs concerned; nothing is raised for it."""
        if self._silence is not None and now < self._silent_until:
            return Decision(waits={gang.job: self._silence for gang in gangs}, again=self._silent_until - now)
        try:
            gke = self._gke = self._gke or self.connect()
            seen = self._observe(gke, gangs, objects, now)
        except Unreachable as error:
            return self._wait_for_gke(gangs, error, now)
        self._silences, self._silence = 0, None
        decision = decide(seen, self.limits, made_by=self.made_by)
        for name in decision.delete:
            require()
            self._delete(gke, name, now)
        waits = dict(decision.waits)
        for creation in decision.create:
            require()
            waits[creation.job] = self._create(gke, creation, now) or waits[creation.job]
        return replace(decision, waits=waits)

    def _observe(
        self, gke: Gke, gangs: Sequence[PendingGang], objects: ClusterObjects, now: float
    ) -> Observation:
        cluster = gke.read_cluster()
        # Operations first: one that ends in between has its pool in the list.
        operations = gke.list_operations()
        pools = gke.list_pools()
        uses = derive_usage(pools, objects)
        self._note_idle(uses, now)
        self._failures = [each for each in self._failures if each.at > now - REMEMBERED_SECONDS]
        zones = cluster.zones
        placed = [
            replace(gang, choices=replace(gang.choices, zones=gang.choices.zones or zones)) for gang in gangs
        ]
        return Observation(now, cluster, pools, operations, uses, placed, self._idle_since, self._failures)

    def _note_idle(self, uses: dict[str, PoolUse], now: float) -> None:
        idle = {name for name, use in uses.items() if use.is_idle}
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}

    def _create(self, gke: Gke, creation: Creation, now: float) -> Waiting | None:
        """Ask for a pool; return the refusal for its job, if there is one."""
        try:
            operation = gke.create(build_body(creation.pool, made_by=self.made_by))
        except NodePoolError as error:
            failure = Failure(creation.pool.shape, now, error)
            self._failures.append(failure)
            logger.warning("no node pool for job %s: %s", creation.job, error.message)
            return tell_refusal(error, until=find_backoff(failure.shape, self._failures, now)[1])
        except GkeCredentialsError as error:
            logger.warning("no node pool for job %s: %s", creation.job, error.message)
            return build_refusal("NoCredentials", f"{error.message}. {error.next_step}")
        message = "node pool %s is being made for job %s (%s)"
        logger.info(message, creation.pool.name, creation.job, operation.name)
        return None

    def _delete(self, gke: Gke, name: str, now: float) -> None:
        try:
            gke.delete(name)
        except NodePoolError as error:
            self._failures.append(Failure(name, now, error))
            logger.warning("node pool %s isn't deleted: %s", name, error.message)
        except GkeCredentialsError as error:
            logger.warning("node pool %s isn't deleted: %s", name, error.message)
        else:
            logger.info("node pool %s is being deleted: it failed, or was idle for long enough", name)

    def _wait_for_gke(
        self,
        gangs: Sequence[PendingGang],
        error: NodePoolError | GkeCredentialsError | PackageMissingError,
        now: float,
    ) -> Decision:
        """Return that nothing is known, and when to ask again: later each time."""
        self._silences += 1
        # The metadata server of a new pod gives no credentials in its first seconds.
        retry = Retry(error.retry) if isinstance(error, NodePoolError) else Retry.LATER
        again = min(FIRST_SECONDS[retry] * 2.0 ** (self._silences - 1), MOST_SECONDS)
        reason = error.reason if isinstance(error, NodePoolError) else "NoCredentials"
        self._silence = build_refusal(reason, f"{error.message}. {error.next_step}")
        self._silent_until = now + again
        logger.warning("GKE can't be asked for node pools; trying again in %.0f s: %s", again, error.message)
        return Decision(waits={gang.job: self._silence for gang in gangs}, again=again)
