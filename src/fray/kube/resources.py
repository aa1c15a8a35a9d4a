"""Where the kinds that Fray uses live in the API: group, version, plural."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from fray.vocabulary import FRAYACTOR_PLURAL, FRAYJOB_PLURAL, GROUP, VERSION

__all__ = [
    "ACCESS_REVIEWS",
    "CLUSTER_QUEUES",
    "CONFIG_MAPS",
    "CRDS",
    "DEPLOYMENTS",
    "EVENTS",
    "FLAVORS",
    "FRAYACTORS",
    "FRAYJOBS",
    "JOBS",
    "JOBSETS",
    "LEASES",
    "LOCAL_QUEUES",
    "NAMESPACES",
    "NETWORK_POLICIES",
    "NODES",
    "PODS",
    "SECRETS",
    "SELF_REVIEWS",
    "SERVICE_ACCOUNTS",
    "STATEFUL_SETS",
    "TOPOLOGIES",
    "WORKLOADS",
    "Resource",
]


@dataclass(frozen=True)
class Resource:
    """One kind of object: `group` is empty for the core API."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """Return the URL path of a collection, an object or its subresource; without a plural, of the API.

        Without a namespace, the collection of a namespaced kind is that of all namespaces.
        """
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace is not None:
            path += f"/namespaces/{quote(namespace, safe='')}"
        object_path = [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join([path, self.plural, *object_path])

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


FRAYJOBS: Final = Resource(GROUP, VERSION, FRAYJOB_PLURAL)
FRAYACTORS: Final = Resource(GROUP, VERSION, FRAYACTOR_PLURAL)
JOBSETS: Final = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets")
JOBS: Final = Resource("batch", "v1", "jobs")
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies")
_KUEUE = "kueue.x-k8s.io"
WORKLOADS: Final = tuple(Resource(_KUEUE, version, "workloads") for version in ("v1beta2", "v1beta1"))
"""Kueue's, in the versions of its API that tell what Fray reads; older Kueues know the last only."""
LOCAL_QUEUES: Final = tuple(replace(each, plural="localqueues") for each in WORKLOADS)
CLUSTER_QUEUES: Final = tuple(replace(each, plural="clusterqueues", namespaced=False) for each in WORKLOADS)
FLAVORS: Final = tuple(replace(each, plural="resourceflavors") for each in CLUSTER_QUEUES)
TOPOLOGIES: Final = tuple(replace(each, plural="topologies") for each in CLUSTER_QUEUES)
PODS: Final = Resource("", "v1", "pods")
SECRETS: Final = Resource("", "v1", "secrets")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps")
EVENTS: Final = Resource("", "v1", "events")
NODES: Final = Resource("", "v1", "nodes", namespaced=False)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
CRDS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", namespaced=False)
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")
ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)
"""Asks the server whether the caller may do something."""
SELF_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", namespaced=False)
"""Asks the server who the caller is."""
