"""Which gangs the operator asks pools for, when, and what it tells their jobs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from fray.accelerators import LABEL_NODE_POOL
from fray.kube.api import Manifest
from fray.kube.errors import ApiError, ServerError
from fray.kube.resources import FRAYJOBS, PODS
from fray.nodepools.decisions import Decision, PendingGang
from fray.nodepools.provider import GkeNodePools
from fray.nodepools.requests import PoolChoices
from fray.nodepools.usage import ClusterObjects
from fray.plan.observation import Waiting
from fray.plan.scheduling import NodeSummary
from fray.testing.memory import MemoryApi, MemoryServer
from fray.vocabulary import Reason
from fray.wire.frayjob import FrayJob
from fray_operator import node_pools
from fray_operator.lease import Lease, LeaseLostError
from fray_operator.node_pools import RETRY_SECONDS, NodePools, build_provider, find_gang
from fray_operator.nodes import NodeInformer
from fray_operator.settings import OperatorSettings, SettingsError
from fray_operator.store import LARGE, Store

NOW = 1_800_000_000.0
TPU = {"tpu": {"type": "v5p-16"}}
GKE = {
    "node_pools": "gke",
    "gke_cluster": "projects/p/locations/us-east5/clusters/c",
    "max_chips": ("tpu-v5p-slice=64", "nvidia-l4=8"),
}
CREATING = Waiting(Reason.CREATING_NODE_POOLS, "GKE makes it")
REFUSED = Waiting(Reason.NODE_POOLS_REFUSED, "StockOut: none free")
LACKING = (
    ("NoMatchingNodePool", "no node has cloud.google.com/gke-tpu-accelerator=tpu-v5p-slice"),
    ("InsufficientCapacity", "1 node matches, but none has room"),
    ("UntoleratedTaint", "1 node matches, but the job doesn't tolerate its taint a=b:NoSchedule"),
    ("Unschedulable", "no node takes the pods: 0/3 nodes are available: 3 node(s) didn't match ..."),
)
OTHER = (
    ("PodsUnplaceable", "the pods can't be placed: 0/3 nodes are available: claim not found."),
    ("HostsStarting", "4 of 4 hosts are starting"),
    ("WaitingForQueue", "Kueue has not admitted it to queue ml"),
    ("ImagePullFailed", "image 'x' can't be pulled"),
    ("NodesAvoided", "2 nodes match, but none can be used: 2 avoided"),
)


def build_manifest(name: str, reason: str = "", message: str = "", **spec: Any) -> Manifest:
    """Return a FrayJob as a watch reports it; with a reason it isn't scheduled for that."""
    metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": "1"}
    scheduled = {"type": "Scheduled", "status": "False", "reason": reason, "message": message}
    scheduled["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    return {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {**metadata, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"entrypoint": {"command": ["train"]}, "resources": TPU, **spec},
        "status": {"conditions": [scheduled]} if reason else {},
    }


def build_job(reason: str = "", message: str = "", **spec: Any) -> FrayJob:
    return FrayJob.from_manifest(build_manifest("train", reason, message, **spec))


@dataclass
class ScriptedProvider:
    """Answers as told, and remembers what it was asked."""

    answer: Decision = field(default_factory=Decision)
    asked: list[tuple[list[str], ClusterObjects]] = field(default_factory=list)

    def provide(
        self,
        gangs: Sequence[PendingGang],
        objects: ClusterObjects,
        *,
        now: float,
        require: Callable[[], None] = lambda: None,
    ) -> Decision:
        assert now >= NOW
        require()
        self.asked.append(([gang.job for gang in gangs], objects))
        return self.answer


class Nodes:
    """A cache of nodes, or why they can't be read."""

    def __init__(self) -> None:
        self.answer: Sequence[NodeSummary] | ApiError = [
            NodeSummary("node-1", {LABEL_NODE_POOL: "tpu"}, (), ready=True)
        ]

    async def get(self) -> Sequence[NodeSummary] | ApiError:
        return self.answer


class Cluster:
    """A keeper with all that it looks at. `now` is the time."""

    def __init__(self) -> None:
        self.server, self.provider, self.nodes = MemoryServer(), ScriptedProvider(), Nodes()
        self.api = MemoryApi(self.server)
        self.store, self.changed, self.now = Store(), list[str](), NOW
        self.store.complete.set()
        self.lease = Lease(self.api, namespace="fray-system", name="x", identity="a", seconds=1e9)
        self.keeper = NodePools(
            self.api,
            self.lease,
            self.store,
            self.provider,
            nodes=cast("NodeInformer", self.nodes),
            choices=PoolChoices(),
            on_change=lambda key: self.changed.append("/".join(key)),
            clock=lambda: datetime.fromtimestamp(self.now, UTC),
        )

    @property
    def gangs(self) -> list[list[str]]:
        return [gangs for gangs, _ in self.provider.asked]


def play(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.lease.claim()
        await story(cluster)

    asyncio.run(main())


def test_gke_is_asked_when_gangs_begin_or_cease_to_wait_and_when_it_is_time() -> None:
    async def story(cluster: Cluster) -> None:
        keeper, provider = cluster.keeper, cluster.provider
        await keeper.look()
        await keeper.look()
        assert cluster.gangs == [[]]  # once, for pools of ours that may be idle
        cluster.store.put(build_manifest("a", *OTHER[0]))
        await keeper.look()
        assert cluster.gangs == [[]]
        cluster.store.put(build_manifest("b", *LACKING[0]))
        provider.answer = Decision(waits={"ml/b": CREATING}, again=60.0)
        for _ in range(3):
            await keeper.look()
        assert cluster.gangs == [[], ["ml/b"]]
        assert cluster.changed == ["ml/b"]
        cluster.now += 60.0
        await keeper.look()
        assert cluster.gangs[2:] == [["ml/b"]]
        assert cluster.changed == ["ml/b"]  # which knows already
        placed = build_manifest("b", "HostsStarting")
        placed["metadata"]["resourceVersion"] = "2"
        cluster.store.put(placed)
        provider.answer = Decision()
        await keeper.look()
        await keeper.look()
        assert cluster.gangs[3:] == [[]]

    play(story)


def test_gangs_come_by_age_and_others_jobs_and_pods_count_as_use() -> None:
    async def story(cluster: Cluster) -> None:
        for name, hour in (("young", 2), ("old", 1)):
            manifest = build_manifest(name, *LACKING[0])
            manifest["metadata"]["creationTimestamp"] = f"2026-01-01T0{hour}:00:00Z"
            cluster.store.put(manifest)
        cluster.store.put(build_manifest("running"))
        metadata = {"name": "p", "namespace": "ml", "labels": {"fray.dev/job": "running"}}
        cluster.server.create(PODS, {"metadata": metadata, "spec": {"nodeName": "node-1"}}, None)
        await cluster.keeper.look()
        ((gangs, objects),) = cluster.provider.asked
        assert gangs == ["ml/old", "ml/young"]
        assert sorted(job.metadata.name for job in objects.jobs) == ["old", "running", "young"]
        assert [pod["spec"] for pod in objects.pods] == [{"nodeName": "node-1"}]
        assert objects.nodes[0]["metadata"] == {"name": "node-1", "labels": {LABEL_NODE_POOL: "tpu"}}

    play(story)


def test_what_cannot_be_read_changes_no_pool() -> None:
    async def story(cluster: Cluster) -> None:
        good = cluster.nodes.answer
        cluster.nodes.answer = ServerError("LIST nodes", 500, "InternalError", "busy")
        cluster.store.put(build_manifest("b", *LACKING[0]))
        await cluster.keeper.look()
        cluster.nodes.answer = good
        await cluster.keeper.look()
        assert cluster.gangs == []
        cluster.now += RETRY_SECONDS
        await cluster.keeper.look()
        assert cluster.gangs == [["ml/b"]]

    play(story)


def test_a_large_job_is_read_once_for_each_generation() -> None:
    async def story(cluster: Cluster) -> None:
        environment = {"variables": {"TEXT": "x" * LARGE}}
        manifest = build_manifest("large", *LACKING[0], environment=environment)
        cluster.store.put({**cluster.server.create(FRAYJOBS, manifest, None), "status": manifest["status"]})
        cluster.provider.answer = Decision(again=0.0)
        for _ in range(3):
            await cluster.keeper.look()
        assert cluster.gangs == [["ml/large"]] * 3
        assert [call.method for call in cluster.server.calls if call.resource == FRAYJOBS].count("GET") == 1

    play(story)


def test_jobs_that_cannot_be_judged_hold_up_no_others() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.store.put(build_manifest("b", *LACKING[0]))
        cluster.store.put(build_manifest("bad", *LACKING[0], resources={"tpu": {"type": "v99-1"}}))
        going = build_manifest("going", *LACKING[0])
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        cluster.store.put(going)
        await cluster.keeper.look()
        assert cluster.gangs == [["ml/b"]]

    play(story)


def test_a_pass_that_fails_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        def provide(*_: object, **__: object) -> Decision:
            failed.append(cluster.now)
            raise KeyError("GKE")

        def tick() -> datetime:
            cluster.now += 1.0
            return datetime.fromtimestamp(cluster.now, UTC)

        failed: list[float] = []
        monkeypatch.setattr(node_pools, "LOOK_SECONDS", 0.0)
        monkeypatch.setattr(cluster.provider, "provide", provide)
        monkeypatch.setattr(cluster.keeper, "_clock", tick)
        running = asyncio.create_task(cluster.keeper.run())
        while len(failed) < 3:
            await asyncio.sleep(0)
            assert not running.done()
        running.cancel()
        assert all(later - earlier >= RETRY_SECONDS for earlier, later in itertools.pairwise(failed))

    play(story)


def test_a_process_that_leads_no_more_changes_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.lease.release()
        with pytest.raises(LeaseLostError):
            await cluster.keeper.run()
        assert cluster.gangs == []

    play(story)


@pytest.mark.parametrize(("reason", "message"), LACKING)
def test_a_job_is_told_what_is_done_about_nodes_that_it_lacks(reason: str, message: str) -> None:
    async def story(cluster: Cluster) -> None:
        waiting = Waiting(Reason(reason), message)
        cluster.store.put(build_manifest("train", reason, message))
        for told in (CREATING, Waiting(Reason.NODE_POOL_LIMIT, "8 more"), REFUSED):
            cluster.provider.answer = Decision(waits={"ml/train": told}, again=0.0)
            await cluster.keeper.look()
            assert cluster.keeper.explain(build_job(), waiting) == told
        cluster.provider.answer = Decision()
        await cluster.keeper.look()
        assert cluster.keeper.explain(build_job(), waiting) == waiting
        assert cluster.changed == ["ml/train"] * 4

    play(story)


@pytest.mark.parametrize(("reason", "message"), OTHER)
def test_what_more_nodes_cannot_help_is_told_as_it_is(reason: str, message: str) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.provider.answer = Decision(waits={"ml/train": REFUSED})
        await cluster.keeper.look()
        waiting = Waiting(Reason(reason), message)
        assert cluster.keeper.explain(build_job(), waiting) == waiting

    play(story)


def test_a_successor_tells_what_its_predecessor_told_until_it_knows_better() -> None:
    async def story(cluster: Cluster) -> None:
        told, waiting = ("NodePoolsRefused", "StockOut: none free"), Waiting(Reason(LACKING[0][0]), "none")
        assert cluster.keeper.explain(build_job(*told), waiting) == Waiting(Reason(told[0]), told[1])
        assert cluster.keeper.explain(build_job(*LACKING[0]), waiting) == waiting
        cluster.store.put(build_manifest("train", *told))
        await cluster.keeper.look()
        assert cluster.gangs == [["ml/train"]]
        assert cluster.changed == ["ml/train"]
        assert cluster.keeper.explain(build_job(*told), waiting) == waiting

    play(story)


@pytest.mark.parametrize(
    "spec",
    [{"resources": {}}, {"placement": {"nodePool": "mine"}}, {"placement": {"computeClass": "tpus"}}],
)
def test_jobs_whose_nodes_are_others_to_choose_get_no_pools(spec: dict[str, Any]) -> None:
    assert find_gang(build_job(**spec), PoolChoices()) is None


@pytest.mark.parametrize(
    ("placement", "spot", "flex_start"),
    [
        ({}, True, False),
        ({"preemptible": False}, False, False),
        ({"flexStart": "Required"}, False, True),
        ({"reservation": "ours"}, False, False),
    ],
)
def test_what_the_administrator_prefers_counts_where_the_job_leaves_it_open(
    placement: dict[str, Any], spot: bool, flex_start: bool
) -> None:
    choices = PoolChoices(spot=True, zones=("us-east5-a",), service_account="a@p.example")
    gang = find_gang(build_job(placement=placement), choices)
    assert gang is not None
    assert (gang.choices.spot, gang.choices.flex_start) == (spot, flex_start)
    assert (gang.choices.zones, gang.choices.service_account) == (("us-east5-a",), "a@p.example")


def test_a_gang_asks_for_cubes_where_slices_are_formed_of_them() -> None:
    wanted = {"type": "tpu7x-4x4x8"}
    for dynamic, pools in ((False, (1, 32, "4x4x8")), (True, (2, 16, "4x4x4"))):
        gang = find_gang(build_job(resources={"tpu": wanted}), PoolChoices(dynamic_slices=dynamic))
        assert gang is not None
        assert (gang.demand.slices, gang.demand.hosts, gang.demand.topology) == pools


def test_settings_become_a_provider() -> None:
    assert build_provider(OperatorSettings()) is None
    provider = build_provider(OperatorSettings(**GKE, lease_namespace="n" * 63))
    assert isinstance(provider, GkeNodePools)
    assert provider.limits.max_chips == {"tpu-v5p-slice": 64, "nvidia-l4": 8}
    assert len(provider.made_by) == 63


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"node_pools": "eks"}, "FRAY_NODE_POOLS=eks: legal are none and gke"),
        ({"read_nodes": False}, "FRAY_READ_NODES=true"),
        ({"gke_cluster": "c"}, "FRAY_GKE_CLUSTER=c: must be projects/"),
        ({"max_chips": ("tpu-v5p-slice",)}, "FRAY_MAX_CHIPS=tpu-v5p-slice: must be"),
        ({"max_chips": ("tpu-v5p-slice=-1",)}, "FRAY_MAX_CHIPS=tpu-v5p-slice=-1: must be"),
    ],
)
def test_settings_that_cannot_work_are_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        build_provider(OperatorSettings(**{**GKE, **changed}))
