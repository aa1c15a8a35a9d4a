"""What a cluster has that keeps gangs together: the topology of a job's queue, and nodes that form slices.

Asked only about what a job can use. None of it need be there, nor readable: what isn't readable is reported,
and the gang is placed as without it. What it means is `fray.plan.gang_placement`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable

from fray.accelerators import GPU_RESOURCE, LABEL_TPU_ACCELERATOR, LABEL_TPU_CUBE, TPU_RESOURCE
from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ForbiddenError, NotFoundError
from fray.kube.resources import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NODES, TOPOLOGIES, Resource
from fray.plan.gang import Gang, derive_gang
from fray.plan.gang_placement import ClusterTopology, QueueFlavor
from fray.plan.kueue import derive_queue
from fray.wire.frayjob import FrayJob

__all__ = ["read_topology"]


async def read_topology(api: KubeApi, job: FrayJob) -> ClusterTopology:
    """Return what keeps the gang of a job together; a job on one host without a queue costs no question.

    Raises `ApiError` where the server fails to answer, rather than refuses: a JobSet can't be changed later.
    """
    gang, queue = derive_gang(job.spec), derive_queue(job).name
    flavors: tuple[QueueFlavor, ...] = ()
    cubes, unread = False, []
    if queue is not None and gang.hosts > 1:
        try:
            shared = await _find_cluster_queue(api, queue, namespace=job.metadata.namespace)
            names = _list_flavors(shared, gang)
            flavors = tuple([await _read_flavor(api, name) for name in names])
        except ForbiddenError as error:
            unread.append(f"whether queue {queue} has a topology can't be read: {error}")
    if gang.tpu is not None and gang.tpu.cubes:
        try:
            cubes = await _has_cubes(api, gang.tpu.accelerator_label)
        except ForbiddenError as error:
            unread.append(f"whether slices are formed on demand can't be read: {error}")
    return ClusterTopology(flavors, cubes, tuple(unread))


async def _find_cluster_queue(api: KubeApi, queue: str, *, namespace: str | None) -> Manifest:
    """Return the spec of the ClusterQueue of a queue; an empty one where either isn't there (yet)."""
    local = await _find(api, LOCAL_QUEUES, queue, namespace=namespace)
    shared = await _find(api, CLUSTER_QUEUES, (local or {}).get("spec", {}).get("clusterQueue"))
    spec: Manifest = (shared or {}).get("spec", {})
    return spec


def _list_flavors(cluster_queue: Manifest, gang: Gang) -> list[str]:
    """Return the flavors that Kueue may choose for a gang: those of its accelerator, if it has one."""
    resource = TPU_RESOURCE if gang.tpu is not None else GPU_RESOURCE if gang.gpu is not None else None
    groups = cluster_queue.get("resourceGroups") or []
    groups = [each for each in groups if resource is None or resource in each.get("coveredResources", [])]
    return list(dict.fromkeys(flavor["name"] for group in groups for flavor in group.get("flavors", [])))


async def _read_flavor(api: KubeApi, name: str) -> QueueFlavor:
    spec = ((await _find(api, FLAVORS, name)) or {}).get("spec", {})
    topology = await _find(api, TOPOLOGIES, spec.get("topologyName"))
    levels = (topology or {}).get("spec", {}).get("levels") or []
    return QueueFlavor(name, spec.get("nodeLabels") or {}, tuple(level["nodeLabel"] for level in levels))


async def _find(
    api: KubeApi, versions: Iterable[Resource], name: str | None, *, namespace: str | None = None
) -> Manifest | None:
    """Return an object of Kueue's in the newest version that the cluster serves; None where there is none."""
    for resource in versions if name else ():
        try:
            return await api.get(resource, name or "", namespace=namespace)
        except NotFoundError:
            continue
    return None


async def _has_cubes(api: KubeApi, accelerator: str) -> bool:
    labels = f"{LABEL_TPU_ACCELERATOR}={accelerator},{LABEL_TPU_CUBE}"
    async for page in api.list_pages(NODES, labels=labels, limit=1, metadata_only=True):
        return bool(page.items)
    return False
