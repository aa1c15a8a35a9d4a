"""The backend `kubernetes`: a namespace of the test cluster, with this checkout's operator and images.

It is made or found as the scenarios of `e2e` do, and stays for the next run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

from e2e.cluster import provider
from e2e.cluster.kubeconfig import CONTEXT
from e2e.cluster.paths import KUBECONFIG
from e2e.installation import install_release
from e2e.job_namespace import JobNamespace, open_job_namespace
from fray.cluster import JobId, JobRequest, JobStatus, ResourceConfig
from fray.cluster.arguments import WhenTaken
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import persistently
from fray.kube.resources import CONFIG_MAPS, FRAYJOBS, JOBS, JOBSETS, PODS, SECRETS, Resource
from tests.conformance.backends import Backend, waits_for_hardware
from tests.conformance.jobs import SMALL

__all__ = ["open_backend"]

KINDS = (FRAYJOBS, JOBSETS, JOBS, PODS, SECRETS, CONFIG_MAPS, Resource("", "v1", "services"))
"""Of which jobs are made, and what stays of them."""


class SmallJobsCluster(KubernetesCluster):
    """A cluster on which every job is small: all pods share the two cores of one machine.

    What a request asks for is checked elsewhere, without running it.
    """

    def launch(self, request: JobRequest, *, when_taken: WhenTaken = "rename") -> JobId:
        """Launch the request with little to compute with."""
        if not isinstance(request, JobRequest):
            return super().launch(request, when_taken=when_taken)
        wanted = request.resources
        parts = {each.name: getattr(wanted, each.name) for each in fields(wanted)} | SMALL
        small = replace(request, resources=ResourceConfig(**parts))
        return super().launch(small, when_taken=when_taken)


def say(line: str) -> None:
    print(line, file=sys.__stderr__, flush=True)


@contextmanager
def open_backend(folder: Path) -> Iterator[Backend]:
    """The cluster with a new namespace for the length of a `with` block. Raises ClusterError."""
    release = install_release(folder, say)
    with open_job_namespace(release.kubectl, release) as space:
        spec = KubernetesSpec(namespace=space.name, context=CONTEXT)
        access = {"KUBECONFIG": str(KUBECONFIG)}
        with SmallJobsCluster(spec, environ=access) as cluster:
            yield Backend(
                cluster,
                "python3",
                {**access, "FRAY_CLUSTER_SPEC": str(spec)},
                own_processes=True,
                launches_jobs=True,
                outlives_launcher=True,
                make_pending=waits_for_hardware,
                find_left=lambda: find_left(cluster, space),
                list_all=lambda: cluster.session.ask(list_all),
                restart_server=restart_server,
                describe=space.describe,
            )


def restart_server() -> None:
    """Restart the API server, where this kind of cluster lets anybody do it."""
    if "restart-apiserver" in provider.supported_faults():
        provider.restart_apiserver()


def find_left(cluster: KubernetesCluster, space: JobNamespace) -> list[str]:
    """Return the jobs that go on, and the pods that still run."""
    jobs = [f"job {info.job_id}" for info in cluster.list_jobs() if not JobStatus.finished(info.status)]
    pods = [pod for pod in space.kubectl.items("pods") if pod["status"]["phase"] in ("Pending", "Running")]
    return [*jobs, *(f"pod {pod['metadata']['name']}" for pod in pods)]


async def list_all(access: Access) -> set[str]:
    """Return the objects of the namespace that are made of jobs."""

    async def read() -> set[str]:
        return {
            f"{kind} {each['metadata']['name']}"
            for kind in KINDS
            async for page in access.api.list_pages(kind, namespace=access.namespace)
            for each in page.items
        }

    return await persistently(read)
