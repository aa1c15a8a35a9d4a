"""Who provides node pools to an operator: nobody, or GKE. One pass reads, decides and acts.

Calls block: an operator makes them in a thread, and only while it leads. A pass may end anywhere, also
between a request and its answer: the next one finds at GKE what was begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fray.errors import GkeCredentialsError, NodePoolError
from fray.nodepools.answers import Retry
from fray.nodepools.bodies import build_body
from fray.nodepools.decisions import (
    FIRST_SECONDS,
    MOST_SECONDS,
    REMEMBERED_SECONDS,
    Decision,
    Failure,
    Limits,
    Observation,
    PendingGang,
    Wait,
    decide,
)
from fray.nodepools.gke import Gke
from fray.nodepools.usage import ClusterObjects, PoolUse, derive_usage

__all__ = ["GkeNodePools", "NoNodePools", "NodePoolProvider"]


class NodePoolProvider(Protocol):
    """What an operator asks for in each pass."""

    def provide(self, gangs: Sequence[PendingGang], objects: ClusterObjects, *, now: float) -> Decision:
        """Create pools for gangs that wait, delete idle ones, and return what was decided."""
        ...


class NoNodePools:
    """The default: pools are made by people, by auto-provisioning or by Autopilot."""

    def provide(self, gangs: Sequence[PendingGang], objects: ClusterObjects, *, now: float) -> Decision:  # noqa: ARG002
        """Do nothing."""
        return Decision()


@dataclass
class GkeNodePools:
    """Pools of one GKE cluster. `made_by` is the operator's name for itself; no other's pools are deleted.

    What it remembers only spares requests: since when pools are idle, and which calls were refused. A
    successor without it waits `idle_seconds` anew, and asks once more.
    """

    gke: Gke
    limits: Limits
    made_by: str
    _idle_since: dict[str, float] = field(default_factory=dict)
    _failures: list[Failure] = field(default_factory=list)
    _silences: int = 0

    def provide(self, gangs: Sequence[PendingGang], objects: ClusterObjects, *, now: float) -> Decision:
        """Make one pass. What GKE refuses becomes waits of the jobs concerned; nothing is raised for it."""
        try:
            seen = self._observe(gangs, objects, now)
        except (NodePoolError, GkeCredentialsError) as error:
            return self._wait_for_gke(gangs, error)
        self._silences = 0
        decision = decide(seen, self.limits, made_by=self.made_by)
        waits = dict(decision.waits)
        for name in decision.delete:
            self._delete(name, now)
        for creation in decision.create:
            try:
                self.gke.create(build_body(creation.pool, made_by=self.made_by))
            except NodePoolError as error:
                self._failures.append(Failure(creation.pool.shape, now, error))
                waits[creation.job] = Wait(error.reason, f"{error.message}. {error.remedy}")
            except GkeCredentialsError as error:
                return self._wait_for_gke(gangs, error)
        return replace(decision, waits=waits)

    def _observe(self, gangs: Sequence[PendingGang], objects: ClusterObjects, now: float) -> Observation:
        cluster = self.gke.read_cluster()
        # Operations first: one that ends in between has its pool in the list.
        operations = self.gke.list_operations()
        pools = self.gke.list_pools()
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

    def _delete(self, name: str, now: float) -> None:
        try:
            self.gke.delete(name)
        except NodePoolError:
            self._idle_since[name] = now  # not before it has been idle as long again
        except GkeCredentialsError:
            return

    def _wait_for_gke(
        self, gangs: Sequence[PendingGang], error: NodePoolError | GkeCredentialsError
    ) -> Decision:
        """Return that nothing is known, and when to ask again: later each time."""
        self._silences += 1
        retry = Retry(error.retry) if isinstance(error, NodePoolError) else Retry.NEVER
        again = min(FIRST_SECONDS[retry] * 2.0 ** (self._silences - 1), MOST_SECONDS)
        reason = error.reason if isinstance(error, NodePoolError) else "NoCredentials"
        wait = Wait(reason, f"{error.message}. {error.next_step}")
        return Decision(waits={gang.job: wait for gang in gangs}, again=again)
