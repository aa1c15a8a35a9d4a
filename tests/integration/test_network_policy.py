"""A job's NetworkPolicy is one that a real API server takes, and keeps as it was written."""

from __future__ import annotations

from fray.plan.network_policy import build_network_policy
from fray.wire.frayjob import FrayJob
from tests.integration.frayjobs import FrayJobs


def test_the_server_keeps_the_policy_as_it_was_written(frayjobs: FrayJobs) -> None:
    spec = {"entrypoint": {"command": ["train"]}}
    metadata = {"name": "x" * 63, "namespace": frayjobs.namespace, "uid": "u"}
    job = FrayJob.from_manifest({"metadata": metadata, "spec": spec})
    for number, guarded in enumerate((((7077, 7096),), ((1, 10), (65000, 65535)), ((1, 65535),))):
        policy = build_network_policy(job, guarded=guarded)
        policy["metadata"]["name"] += f"-{number}"
        collection = f"/apis/networking.k8s.io/v1/namespaces/{frayjobs.namespace}/networkpolicies"
        created = frayjobs.api.post(collection, policy)
        assert created.status == 201, created.body
        assert created.body["spec"] == policy["spec"]
