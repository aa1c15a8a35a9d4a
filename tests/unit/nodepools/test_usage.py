"""Which pools are idle: nothing that counts runs there, and no job that lives may want them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fray.nodepools.existing import Pool
from fray.nodepools.usage import ClusterObjects, derive_usage
from fray.wire.frayjob import FrayJob
from tests.unit.nodepools.golden import build_job

CREATED = "2026-11-01T10:00:00Z"


def build_pool(name: str, **more: Any) -> Pool:
    given = {
        "machine_type": "ct5p-hightpu-4t",
        "status": "RUNNING",
        "nodes": 2,
        "most_nodes": 2,
        "topology": "2x2x2",
    }
    return Pool(name, **{**given, "accelerator": "tpu-v5p-slice", "chips": 4, **more})


def build_node(pool: str, index: int = 0) -> dict[str, Any]:
    labels = {"cloud.google.com/gke-nodepool": pool}
    return {"metadata": {"name": f"{pool}-{index}", "labels": labels, "creationTimestamp": CREATED}}


def build_pod(node: str, *, job: str | None = None, phase: str = "Running", **more: Any) -> dict[str, Any]:
    labels = {} if job is None else {"fray.dev/job": job}
    metadata = {"name": "p", "namespace": "ml", "labels": labels, **more}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}


def build_live_job(name: str, *, replicas: int = 1, finished: bool = False, **spec: Any) -> FrayJob:
    job = build_job({"replicas": replicas, "resources": {"tpu": {"type": "v5p-16"}}, **spec})
    manifest = job.to_manifest()
    manifest["metadata"] = {"name": name, "namespace": "ml"}
    if finished:
        condition = {"type": "Finished", "status": "True", "reason": "x", "lastTransitionTime": CREATED}
        manifest["status"] = {"conditions": [condition]}
    return FrayJob.from_manifest(manifest)


def look(pools: list[Pool], pods: list[dict[str, Any]], jobs: list[FrayJob] | None = None) -> dict[str, Any]:
    nodes = [build_node(pool.name, index) for pool in pools for index in range(2)]
    return derive_usage(pools, ClusterObjects(nodes, pods, jobs or []))


def test_pods_of_jobs_and_others_use_a_pool_and_those_of_the_node_do_not() -> None:
    daemon = {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    uses = look(
        [build_pool("a"), build_pool("b"), build_pool("c"), build_pool("d")],
        [
            build_pod("a-0", job="train"),
            build_pod("a-1", job="train"),
            build_pod("b-0", **daemon),
            build_pod("b-1", **mirror),
            build_pod("c-0"),
            build_pod("d-0", job="train", phase="Succeeded"),
            build_pod("elsewhere", job="train"),
            build_pod("", job="train", phase="Pending"),
        ],
    )
    assert (uses["a"].jobs, uses["a"].used_nodes, uses["a"].nodes) == ({"ml/train"}, 2, 2)
    assert [uses[name].is_idle for name in "abcd"] == [False, True, False, True]
    assert uses["c"].others == 1


def test_a_pool_is_idle_since_its_last_pod_ended_or_since_it_is_there() -> None:
    ended = build_pod("a-0", job="train", phase="Failed")
    ended["status"]["containerStatuses"] = [{"state": {"terminated": {"finishedAt": "2026-11-01T12:00:00Z"}}}]
    uses = look([build_pool("a"), build_pool("b"), build_pool("c")], [ended, build_pod("c-0", job="x")])
    assert uses["a"].idle_since == datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert uses["b"].idle_since == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert uses["c"].idle_since is None


def test_a_job_between_two_attempts_keeps_as_many_pools_as_it_lacks() -> None:
    pools = [build_pool(name) for name in "abcd"]
    uses = look(pools, [build_pod("b-0", job="train")], [build_live_job("train", replicas=3)])
    assert [uses[name].kept_for for name in "abcd"] == ["ml/train", None, "ml/train", None]
    assert [uses[name].is_idle for name in "abcd"] == [False, False, False, True]


def test_finished_jobs_and_jobs_of_another_kind_keep_nothing() -> None:
    pools = [build_pool("a"), build_pool("other", topology="2x2x4"), build_pool("lost", status="ERROR")]
    uses = look(pools, [], [build_live_job("done", finished=True)])
    assert all(use.is_idle for use in uses.values())
    uses = look(pools, [], [build_live_job("train", replicas=3)])
    assert [uses[pool.name].is_idle for pool in pools] == [False, True, True]


def test_suspended_and_stopped_jobs_keep_nothing() -> None:
    for spec in ({"suspend": True}, {"stopped": True}):
        assert look([build_pool("a")], [], [build_live_job("train", **spec)])["a"].is_idle


def test_a_live_job_keeps_all_pools_of_single_hosts_that_it_may_use() -> None:
    pools = [build_pool(name, topology=None, accelerator="nvidia-l4", chips=1) for name in "ab"]
    job = build_job({"resources": {"gpu": {"type": "nvidia-l4", "count": 1}}})
    uses = look(pools, [build_pod("a-0", job="train")], [job])
    assert [use.is_idle for use in uses.values()] == [False, False]


def test_a_job_of_dynamic_slices_keeps_a_pool_for_each_cube() -> None:
    pools = [build_pool(name, topology=None, policy="cube", accelerator="tpu7x") for name in "abc"]
    job = build_live_job("train", resources={"tpu": {"type": "tpu7x-4x4x8"}})
    nodes = [build_node(pool.name) for pool in pools]
    static = derive_usage(pools, ClusterObjects(nodes, [], [job]))
    assert [use.is_idle for use in static.values()] == [False, True, True]
    nodes[0]["metadata"]["labels"]["cloud.google.com/gke-tpu-partition-4x4x4-id"] = "x"
    dynamic = derive_usage(pools, ClusterObjects(nodes, [], [job]))
    assert [use.is_idle for use in dynamic.values()] == [False, False, True]
