"""A cluster in virtual time: jobs that run once the fake GKE has pools for them, and an operator's passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fray.nodepools.bodies import GkeCluster
from fray.nodepools.decisions import Decision, Limits, PendingGang
from fray.nodepools.existing import Operation
from fray.nodepools.gke import Gke
from fray.nodepools.provider import GkeNodePools
from fray.nodepools.usage import ClusterObjects
from fray.plan.placement import derive_demand
from fray.wire.frayjob import FrayJob
from tests.gke.server import FakeGke
from tests.unit.nodepools.golden import build_job

MADE_BY = "operator.fray-system"
TOPOLOGY = "2x2x2"


class Killed(BaseException):
    """The operator's process ends here."""


class FrailGke(Gke):
    """Ends the process after a call that GKE has accepted, before anybody hears of it."""

    def __init__(self, world: World) -> None:
        super().__init__(GkeCluster.parse(world.fake.path), world.fake.client())
        self._world = world

    def create(self, body: Mapping[str, Any]) -> Operation:
        operation = super().create(body)
        self._world.maybe_die()
        return operation

    def delete(self, name: str) -> Operation | None:
        operation = super().delete(name)
        self._world.maybe_die()
        return operation


@dataclass
class SimulatedJob:
    """A job of so many v5p-16 slices. `pools` is where it runs, `until` how long."""

    name: str
    slices: int
    seconds: float
    pools: tuple[str, ...] = ()
    until: float | None = None
    is_done: bool = False

    @property
    def manifest(self) -> FrayJob:
        job = build_job({"replicas": self.slices, "resources": {"tpu": {"type": "v5p-16"}}}).to_manifest()
        job["metadata"] = {"name": self.name, "namespace": "ml"}
        return FrayJob.from_manifest(job)


@dataclass
class World:
    """The fake's clock is the only one. `deaths` says after how many accepted calls the operator dies."""

    fake: FakeGke
    limits: Limits = field(default_factory=lambda: Limits(8, {"tpu-v5p-slice": 64}, 600.0))
    jobs: list[SimulatedJob] = field(default_factory=list)
    deaths: list[int] = field(default_factory=list)
    died: int = 0
    decision: Decision = field(default_factory=Decision)

    def __post_init__(self) -> None:
        self.fake.clock.now = 1_800_000_000.0
        self._restart()

    def _restart(self) -> None:
        self.provider = GkeNodePools(lambda: FrailGke(self), self.limits, MADE_BY)

    def maybe_die(self) -> None:
        if self.deaths:
            self.deaths[0] -= 1
            if self.deaths[0] == 0:
                raise Killed

    def step(self) -> None:
        """Let the cluster do what it can now, make one pass, and wait for as long as that says."""
        self.fake.settle()
        self._schedule()
        try:
            self.decision = self.provider.provide(self._gangs(), self._objects(), now=self.fake.clock())
            pause = self.decision.again
        except Killed:
            self.deaths.pop(0)
            self.died += 1
            self._restart()
            pause = 5.0
        in_use = {pool for job in self.jobs if not job.is_done for pool in job.pools}
        gone = {name for name in in_use if self.fake.pools[name].status.name != "RUNNING"}
        assert not gone, f"pools in use were deleted: {gone}"
        self.fake.clock.sleep(min(pause or 60.0, 60.0))

    def run(self, *, seconds: float) -> None:
        until = self.fake.clock() + seconds
        while self.fake.clock() < until:
            self.step()

    def run_out(self, *, seconds: float) -> None:
        """Run until all jobs have ended and no pool is left, at most for so long."""
        until = self.fake.clock() + seconds
        while self.fake.clock() < until and (self.fake.pools or not all(job.is_done for job in self.jobs)):
            self.step()

    def job(self, name: str) -> SimulatedJob:
        return next(job for job in self.jobs if job.name == name)

    def _schedule(self) -> None:
        now = self.fake.clock()
        for job in self.jobs:
            if job.until is not None and now >= job.until:
                job.is_done, job.pools, job.until = True, (), None
        taken = {pool for job in self.jobs for pool in job.pools}
        free = [
            name
            for name, pool in self.fake.pools.items()
            if pool.status.name == "RUNNING"
            and pool.placement_policy.tpu_topology == TOPOLOGY
            and name not in taken
        ]
        for job in self.jobs:
            if not job.is_done and not job.pools and len(free) >= job.slices:
                job.pools, free = tuple(free[: job.slices]), free[job.slices :]
                job.until = now + job.seconds

    def _gangs(self) -> list[PendingGang]:
        waiting = [job for job in self.jobs if not job.is_done and not job.pools]
        return [PendingGang(f"ml/{job.name}", derive_demand(job.manifest)) for job in waiting]

    def _objects(self) -> ClusterObjects:
        running = [name for name, pool in self.fake.pools.items() if pool.status.name == "RUNNING"]
        nodes = [
            {"metadata": {"name": f"{pool}-{index}", "labels": {"cloud.google.com/gke-nodepool": pool}}}
            for pool in running
            for index in range(2)
        ]
        pods = [
            {
                "metadata": {"name": "p", "namespace": "ml", "labels": {"fray.dev/job": job.name}},
                "spec": {"nodeName": f"{pool}-{index}"},
                "status": {"phase": "Running"},
            }
            for job in self.jobs
            for pool in job.pools
            for index in range(2)
        ]
        return ClusterObjects(nodes, pods, [job.manifest for job in self.jobs if not job.is_done])
