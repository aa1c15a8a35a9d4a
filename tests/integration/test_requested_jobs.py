"""What becomes of JobRequests is taken by the real API server, and stored as it was meant."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.manifest import Uploads, build_manifest
from fray.cluster.progress import describe_frayjob
from fray.types import JobRequest, JobStatus
from fray.wire.frayjob import FrayJob, Parent
from tests.integration.frayjobs import FrayJobs
from tests.unit.cluster.requests import any_kubernetes, any_parent, any_request, any_uploads


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(request=any_request(), cluster=any_kubernetes(), parent=any_parent(), uploads=any_uploads())
def test_any_request_is_taken(
    frayjobs: FrayJobs, request: JobRequest, cluster: KubernetesSpec, parent: Parent | None, uploads: Uploads
) -> None:
    cluster = replace(cluster, namespace=frayjobs.namespace)
    built = build_manifest(request.with_environment(), cluster, parent=parent, uploads=uploads)
    stored = frayjobs.created(built.manifest)
    try:
        # The server fills in defaults, which the models have alike.
        job = FrayJob.from_manifest(stored)
        assert job.spec == built.job.spec
        info = describe_frayjob(job)
        assert (info.job_id, info.name) == (built.name, request.name)
        assert (info.status, len(info.tasks)) == (JobStatus.PENDING, request.gang_resources.replicas)
    finally:
        assert frayjobs.api.delete(frayjobs.path(built.name)).ok
