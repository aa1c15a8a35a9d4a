"""Endpoints of jobs and actors: found by a name as long as the one lives that registered it."""

from __future__ import annotations

from typing import Any

import pytest

from fray.errors import EndpointNotFoundError, InvalidOptionError
from fray.job import Endpoint, JobContext, lookup_endpoint, register_endpoint
from fray.kube.resources import CONFIG_MAPS, FRAYACTORS, FRAYJOBS
from tests.actors import programs
from tests.actors.cluster import Cluster
from tests.pool.hosts.pools import PATIENCE


def test_an_endpoint_is_found_until_its_job_has_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EndpointNotFoundError, match="no job or actor of this root"):
        lookup_endpoint("metrics")
    for name, address, metadata in (
        ("", "a", {}),
        ("metrics", "", {}),
        (5, "a", {}),
        ("metrics", "a", {"k": 1}),
        ("metrics", "a", {1: "v"}),
        ("metrics", "a", {"k": None}),
    ):
        with pytest.raises(InvalidOptionError, match="of an endpoint"):
            register_endpoint(name, address, metadata)  # type: ignore[arg-type]
    register_endpoint("metrics", "10.0.0.7:9000")
    register_endpoint("metrics", "10.0.0.8:9000", {"version": "3"})
    assert lookup_endpoint("metrics") == Endpoint("metrics", "10.0.0.8:9000", {"version": "3"})

    cluster.api.set_status("train", conditions=[{"type": "Finished", "status": "True"}])
    with pytest.raises(EndpointNotFoundError, match="'train', which registered it, has ended"):
        lookup_endpoint("metrics")
    monkeypatch.delenv("FRAY_ROOT_JOB")
    with pytest.raises(EndpointNotFoundError, match="of no job"):
        register_endpoint("metrics", "10.0.0.8:9000")


def owners_of(cluster: Cluster) -> list[dict[str, Any]]:
    """Return who has the endpoints: records of members have other data."""
    return [
        found["metadata"]["ownerReferences"][0]
        for found in cluster.api.all(CONFIG_MAPS)
        if "metadata" in found["data"]
    ]


def test_what_an_actor_registers_is_its_own_and_found_by_the_jobs_of_its_root(
    cluster: Cluster, context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_endpoint("of the job", "10.0.0.7:9000")
    server = context.create_actor(programs.Server, "metrics", "10.0.0.9:1", name="server")
    cluster.start_pod("server", FRAY_ROOT_JOB="train")
    # By its constructor, then by a method, which finds what the job has registered.
    assert context.get(server.look_up.remote("of the job"), timeout=PATIENCE) == "10.0.0.7:9000"
    assert lookup_endpoint("metrics") == Endpoint("metrics", "10.0.0.9:1")
    context.get(server.register.remote("metrics", "10.0.0.9:2"), timeout=PATIENCE)
    assert lookup_endpoint("metrics").address == "10.0.0.9:2"
    made = cluster.actor("server")["metadata"]
    assert [(owner["kind"], owner["uid"]) for owner in owners_of(cluster)] == [
        ("FrayJob", cluster.root_uid),
        ("FrayActor", made["uid"]),
    ]

    # Jobs of another root have their own.
    cluster.api.store(FRAYJOBS, {"kind": "FrayJob", "metadata": {"name": "other"}, "spec": {}})
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("FRAY_ROOT_JOB", "other")
        with pytest.raises(EndpointNotFoundError):
            lookup_endpoint("metrics")

    context.kill(server)
    with pytest.raises(EndpointNotFoundError):
        lookup_endpoint("metrics")
    assert [owner["kind"] for owner in owners_of(cluster)] == ["FrayJob"]


def test_what_a_detached_actor_registers_is_found_by_all_jobs_behind_their_own(
    cluster: Cluster, context: JobContext
) -> None:
    server = context.create_actor(
        programs.Server, "metrics", "10.0.0.9:1", name="server", lifetime="detached"
    )
    cluster.start_pod("server")
    assert context.get(server.look_up.remote("metrics"), timeout=PATIENCE) == "10.0.0.9:1"
    assert lookup_endpoint("metrics").address == "10.0.0.9:1"
    register_endpoint("metrics", "10.0.0.7:9000")
    assert lookup_endpoint("metrics").address == "10.0.0.7:9000"
    assert context.get(server.look_up.remote("metrics"), timeout=PATIENCE) == "10.0.0.9:1"

    # What has ended stands in no other's way.
    cluster.api.set_status("train", conditions=[{"type": "Finished", "status": "True"}])
    assert lookup_endpoint("metrics").address == "10.0.0.9:1"
    actor = cluster.actor("server")
    actor["status"] = {"conditions": [{"type": "Finished", "status": "True"}]}
    cluster.api.store(FRAYACTORS, actor)
    with pytest.raises(EndpointNotFoundError, match=f"actor '{actor['metadata']['name']}', .* has ended"):
        lookup_endpoint("metrics")
