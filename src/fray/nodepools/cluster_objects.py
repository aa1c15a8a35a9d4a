"""Asks a cluster for the nodes, pods and jobs by which `usage` judges its node pools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.cluster.kubernetes.access import Access
from fray.kube.resources import FRAYJOBS, NODES, PODS, Resource
from fray.nodepools.usage import ClusterObjects, trim_pod
from fray.wire.frayjob import FrayJob

__all__ = ["ask_objects"]


def ask_objects(spec: KubernetesSpec, environ: Mapping[str, str]) -> ClusterObjects:
    """Return what the cluster of a spec has; raises `SurroundingsError` where it can't be asked."""
    with KubernetesCluster(spec, environ=environ) as cluster:
        return cluster.session.ask(_read)


async def _read(access: Access) -> ClusterObjects:
    """Return what a cluster has; raises `ApiError` where this account may not see all of it."""
    nodes = [each async for each in _list(access, NODES)]
    pods = [trim_pod(each) async for each in _list(access, PODS)]
    jobs = [FrayJob.from_manifest(each) async for each in _list(access, FRAYJOBS)]
    return ClusterObjects(nodes, pods, jobs, access.server)


async def _list(access: Access, resource: Resource) -> AsyncIterator[dict[str, Any]]:
    async for page in access.api.list_pages(resource):
        for item in page.items:
            yield item
