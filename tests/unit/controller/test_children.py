"""An attempt's children are created one by one, and adopted where they are its own already."""

from __future__ import annotations

import asyncio

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import JOBSETS
from fray.plan.children import Child, build_children
from fray.plan.gang_placement import ClusterTopology
from fray.plan.settings import PlanSettings
from fray.testing.memory import MemoryApi, MemoryServer
from fray.vocabulary import Role
from fray.wire.frayjob import FrayJob
from fray_operator.act import Actor
from fray_operator.lease import Lease

JOB = FrayJob.from_manifest(
    {
        "metadata": {"name": "train", "namespace": "default", "uid": "u-1"},
        "spec": {"entrypoint": {"command": ["train"]}},
    }
)


def two_children(
    job: FrayJob, *, attempt: int, settings: PlanSettings, topology: ClusterTopology
) -> tuple[Child, ...]:
    (hosts,) = build_children(job, attempt=attempt, settings=settings, topology=topology)
    metadata = {**hosts.manifest["metadata"], "name": "train-a1-more"}
    return hosts, Child(Role.HOST, {**hosts.manifest, "metadata": metadata})


def test_a_child_that_is_refused_is_told_and_the_others_are_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fray_operator.act.build_children", two_children)
    known: list[str] = []

    def remember(_: Role, body: Manifest) -> None:
        known.append(body["metadata"]["name"])

    async def main() -> None:
        server = MemoryServer()
        api = MemoryApi(server)
        lease = Lease(api, namespace="default", name="leader", identity="a", seconds=3600)
        await lease.acquire()
        actor = Actor(api, lease, settings=PlanSettings(), remember=remember)
        server.store(JOBSETS, {"metadata": {"name": "train-a1-more", "namespace": "default"}})
        refusal = await actor.create_attempt(JOB, 1)
        assert refusal is not None
        assert refusal.message.startswith("JobSet train-a1-more exists and is owned by nobody")
        assert known == ["train-a1"]
        await api.delete(JOBSETS, "train-a1-more", namespace="default")
        assert await actor.create_attempt(JOB, 1) is None
        assert known == ["train-a1", "train-a1", "train-a1-more"]
        assert len(server.all(JOBSETS)) == 2

    asyncio.run(main())
