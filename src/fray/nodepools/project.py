"""What a Google Cloud project allows: APIs that are on, permissions of an account, quota by family.

Asked over HTTP as `compute` does. Each is another of Google's services, and an account may use some and not
others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fray.nodepools.bodies import GkeCluster
from fray.nodepools.compute import CALL_SECONDS, explained, read_answer

if TYPE_CHECKING:
    from requests import Session

__all__ = ["APIS", "PERMISSIONS", "FamilyQuota", "Project"]

APIS: Final = {
    "container.googleapis.com": "clusters and node pools",
    "compute.googleapis.com": "machines, workload policies and quota",
    "artifactregistry.googleapis.com": "images",
}
"""The APIs that docs/gke.md uses, and for what."""
PERMISSIONS: Final = (
    "container.clusters.get",
    "container.clusters.update",
    "container.operations.get",
    "container.operations.list",
    "compute.resourcePolicies.create",
    "compute.resourcePolicies.get",
)
"""What `fray pools` needs of a project; the last two for tpu7x. On the nodes' service account it needs
`iam.serviceAccounts.actAs` besides, which is a permission on that account."""
FAMILIES: Final = ("tpu_family", "gpu_family")
"""Dimensions of the quotas of newer accelerators: Compute Engine's page on allocation quotas."""
PAGES: Final = 20


@dataclass(frozen=True)
class FamilyQuota:
    """The limit of a project for one family of accelerators in a region, such as `CT6E`; -1 is none."""

    family: str
    limit: int


class Project:
    """The project of a GKE cluster. Calls raise `NodePoolError` where Google refuses them."""

    def __init__(self, cluster: GkeCluster, session: Session) -> None:
        self._cluster, self._session = cluster, session
        self._path = f"projects/{cluster.project}"

    def list_enabled_apis(self) -> set[str]:
        """Return which of `APIS` are on.

        https://docs.cloud.google.com/service-usage/docs/reference/rest/v1/services/batchGet
        """
        url = f"https://serviceusage.googleapis.com/v1/{self._path}/services:batchGet"
        names = [("names", f"{self._path}/services/{api}") for api in APIS]
        services = _list(self._get("APIs", url, names), "services")
        on = (str(each.get("name", "")) for each in services if each.get("state") == "ENABLED")
        return {name.rpartition("/")[2] for name in on}

    def list_permissions(self) -> set[str]:
        """Return which of `PERMISSIONS` the account has.

        https://docs.cloud.google.com/resource-manager/reference/rest/v3/projects/testIamPermissions
        """
        url = f"https://cloudresourcemanager.googleapis.com/v3/{self._path}:testIamPermissions"
        with explained("permissions"):
            answer = self._session.post(url, json={"permissions": [*PERMISSIONS]}, timeout=CALL_SECONDS)
            body = read_answer("permissions", answer)
        held = body.get("permissions")
        return {str(each) for each in held} if isinstance(held, list) else set()

    def list_family_quotas(self) -> list[FamilyQuota]:
        """Return the limits of the cluster's region by family; what is used of them this API doesn't know.

        https://docs.cloud.google.com/docs/quotas/reference/rest/v1/projects.locations.services.quotaInfos
        """
        service = f"{self._path}/locations/global/services/compute.googleapis.com"
        url = f"https://cloudquotas.googleapis.com/v1/{service}/quotaInfos"
        return [
            quota
            for page in self._list_pages("quota by family", url)
            for info in _list(page, "quotaInfos")
            for quota in _read_limits(info, self._cluster.region)
        ]

    def _list_pages(self, subject: str, url: str) -> Iterator[dict[str, Any]]:
        token = ""
        for _ in range(PAGES):
            page = self._get(subject, url, [("pageSize", "500"), *([("pageToken", token)] if token else [])])
            yield page
            token = str(page.get("nextPageToken") or "")
            if not token:
                return

    def _get(self, subject: str, url: str, parameters: Sequence[tuple[str, str]]) -> dict[str, Any]:
        with explained(subject):
            return read_answer(subject, self._session.get(url, params=[*parameters], timeout=CALL_SECONDS))


def _read_limits(info: Mapping[str, Any], region: str) -> Iterator[FamilyQuota]:
    for each in _list(info, "dimensionsInfos"):
        dimensions = each.get("dimensions")
        value = str((each.get("details") or {}).get("value", ""))
        if not isinstance(dimensions, dict) or dimensions.get("region") != region:
            continue
        family = next((dimensions[key] for key in FAMILIES if key in dimensions), None)
        if family is not None and value.removeprefix("-").isdigit():
            yield FamilyQuota(str(family), int(value))


def _list(body: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the objects in a list of an answer; what isn't there is empty."""
    found = body.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
