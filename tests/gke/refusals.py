"""What GKE says when it refuses: texts with their sources, and the reason that Fray makes of each.

`made` says how sure the words are: `seen` are quoted from reports of users, `page` from Google's pages or a
client's source, `ours` were written here, since no source has them.
"""

# ruff: noqa: E501 - texts as they come

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Refusal:
    """One answer: gRPC's code, the words, where they come in, and what must be made of them."""

    name: str
    code: str
    text: str
    source: str
    made: Literal["seen", "page", "ours"]
    reason: str
    retry: str
    comes: Literal["call", "operation"] = "call"
    """Whether the call is refused, or its operation ends so."""
    told: str = ""
    """A part of what Fray says about it."""


REFUSALS = (
    Refusal(
        "regional quota",
        "PERMISSION_DENIED",
        "Insufficient regional quota to satisfy request: resource \"TPUV5P\": request requires '16.0' and is short "
        "'8.0'. project has a quota of '32.0' with '8.0' available. View and manage quotas at "
        "https://console.cloud.google.com/iam-admin/quotas?usage=USED&project=p.",
        "GKE's page on troubleshooting quota; HTTP 403",
        "page",
        "QuotaExceeded",
        "later",
        told="the project's quota TPUV5P is short of 8.0: 16.0 are needed",
    ),
    Refusal(
        "quota of the request",
        "RESOURCE_EXHAUSTED",
        "Insufficient quota to satisfy the request: resource(s) are short of what the node pool asks for.",
        "reference/gke.md 10; gcloud reports",
        "seen",
        "QuotaExceeded",
        "later",
    ),
    Refusal(
        "quota while nodes are made",
        "RESOURCE_EXHAUSTED",
        "Google Compute Engine: [QUOTA_EXCEEDED] Instance 'gke-c-pool-0' creation failed: Quota "
        "'TPU-V5P-preemptible' exceeded.  Limit: 8.0 in region us-east5.",
        "Compute Engine's page on quota errors; kubernetes/autoscaler's GCE error codes",
        "seen",
        "QuotaExceeded",
        "later",
        comes="operation",
        told="the project's quota TPU-V5P-preemptible is used up (limit 8.0) in us-east5",
    ),
    Refusal(
        "stock-out",
        "RESOURCE_EXHAUSTED",
        "Google Compute Engine: [ZONE_RESOURCE_POOL_EXHAUSTED] Instance 'gke-c-pool-0' creation failed: The zone "
        "'projects/p/zones/us-east5-a' does not have enough resources available to fulfill the request.  Try a "
        "different zone, or try again later.",
        "Compute Engine's page on resource availability errors",
        "page",
        "StockOut",
        "later",
        comes="operation",
        told="Google Cloud has no such machines free in the zone now",
    ),
    Refusal(
        "stock-out with other zones",
        "RESOURCE_EXHAUSTED",
        "Google Compute Engine: [ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS] Instance 'gke-c-pool-0' creation failed: "
        "A ct6e-standard-4t VM instance is currently unavailable in the us-east5-a zone. Consider trying your request "
        "in the us-east5-b, us-east5-c zone(s), which currently has capacity to accommodate your request. "
        'errorInfo: {"zonesAvailable": "us-east5-b,us-east5-c", "zone": "us-east5-a"}',
        "kubernetes/k8s.io#9834",
        "seen",
        "StockOut",
        "later",
        comes="operation",
        told="us-east5-b or us-east5-c",
    ),
    Refusal(
        "incompatible operation",
        "FAILED_PRECONDITION",
        "Cluster is running incompatible operation operation-1700000000000-0f3c.",
        "ai-on-gke tpu-provisioner, cloud/gke.go",
        "seen",
        "OperationInProgress",
        "soon",
        told="another operation operation-1700000000000-0f3c runs",
    ),
    Refusal(
        "operation on the cluster",
        "FAILED_PRECONDITION",
        "Operation operation-1700000000000-0f3d is currently upgrading cluster c. Please wait and try again once it "
        "is done.",
        "gcloud reports; reference/gke.md 10",
        "seen",
        "OperationInProgress",
        "soon",
        told="another operation operation-1700000000000-0f3d runs",
    ),
    Refusal(
        "pool in repair",
        "FAILED_PRECONDITION",
        "Node pool v5p is currently being created, deleted, updated or repaired and cannot be updated.",
        "reference/gke.md 10",
        "seen",
        "OperationInProgress",
        "soon",
    ),
    Refusal(
        "permission",
        "PERMISSION_DENIED",
        'Required "container.clusters.update" permission(s) for "projects/p/locations/us-east5/clusters/c".',
        "GKE's page on troubleshooting 403",
        "page",
        "PermissionDenied",
        "never",
        told="the account lacks the permission container.clusters.update",
    ),
    Refusal(
        "permission of Compute Engine",
        "PERMISSION_DENIED",
        "Required 'compute.resourcePolicies.create' permission for "
        "'projects/p/regions/us-east5/resourcePolicies/tpu7x-2x2x2'",
        "Compute Engine's words for a missing permission; HTTP 403",
        "seen",
        "PermissionDenied",
        "never",
        told="Grant it roles/compute.instanceAdmin.v1",
    ),
    Refusal(
        "service account of nodes",
        "PERMISSION_DENIED",
        'The user does not have access to service account "nodes@p.iam.gserviceaccount.com". Ask a project owner '
        "to grant you the iam.serviceAccountUser role on the service account.",
        "GKE's page on node service accounts",
        "page",
        "ServiceAccountDenied",
        "never",
        told="the nodes' service account nodes@p.iam.gserviceaccount.com",
    ),
    Refusal(
        "API off",
        "PERMISSION_DENIED",
        "Kubernetes Engine API has not been used in project 123 before or it is disabled. Enable it by visiting "
        "https://console.developers.google.com/apis/api/container.googleapis.com/overview?project=123 then retry.",
        "Google's common error SERVICE_DISABLED",
        "seen",
        "ApiDisabled",
        "never",
        told="`gcloud services enable container.googleapis.com`",
    ),
    Refusal(
        "another API off",
        "PERMISSION_DENIED",
        "Cloud Quotas API has not been used in project 123 before or it is disabled. Enable it by visiting "
        "https://console.developers.google.com/apis/api/cloudquotas.googleapis.com/overview?project=123 then retry.",
        "Google's common error SERVICE_DISABLED",
        "seen",
        "ApiDisabled",
        "never",
        told="`gcloud services enable cloudquotas.googleapis.com`",
    ),
    Refusal(
        "release channel",
        "INVALID_ARGUMENT",
        "Auto_upgrade must be true when release_channel REGULAR is set.",
        "axlearn cloud/gcp/node_pool.py; hashicorp/terraform-provider-google reports",
        "seen",
        "AutoUpgradeRequired",
        "never",
    ),
    Refusal(
        "topology",
        "INVALID_ARGUMENT",
        "TPU topology 2x2x3 is not supported by machine type ct5p-hightpu-4t.",
        "none: GKE's own words aren't known",
        "ours",
        "TopologyRefused",
        "never",
    ),
    Refusal(
        "topology and policy",
        "INVALID_ARGUMENT",
        "tpu_topology and policy_name in placement_policy are mutually exclusive.",
        "none; the rule: xpk core/nodepool.py",
        "ours",
        "TopologyRefused",
        "never",
    ),
    Refusal(
        "policy not found",
        "INVALID_ARGUMENT",
        "Resource policy projects/p/regions/us-central1/resourcePolicies/cube was not found.",
        "the API's page: a policy that isn't found is an InvalidArgument",
        "ours",
        "PolicyRefused",
        "never",
    ),
    Refusal(
        "reservation too small",
        "FAILED_PRECONDITION",
        "Google Compute Engine: Specified reservation 'pod' does not have available resources for the request.",
        "Compute Engine's page on reservations",
        "seen",
        "ReservationTooSmall",
        "later",
        comes="operation",
    ),
    Refusal(
        "no such reservation",
        "INVALID_ARGUMENT",
        "The reservation projects/p/zones/us-east5-a/reservations/pod could not be found.",
        "Compute Engine's page on reservations",
        "ours",
        "ReservationNotFound",
        "never",
    ),
    Refusal(
        "Autopilot",
        "INVALID_ARGUMENT",
        "Autopilot clusters do not support mutating node pools.",
        "gcloud reports",
        "seen",
        "AutopilotCluster",
        "never",
    ),
    Refusal(
        "machine type",
        "INVALID_ARGUMENT",
        "Machine type with name 'ct5p-hightpu-4t' does not exist in zone 'us-east5-c'.",
        "Compute Engine's words for an unknown machine type",
        "seen",
        "MachineTypeUnavailable",
        "never",
    ),
    Refusal(
        "name taken",
        "ALREADY_EXISTS",
        "Already exists: projects/p/locations/us-east5/clusters/c/nodePools/fray-v5p-16-0.",
        "gcloud reports; HTTP 409",
        "seen",
        "AlreadyExists",
        "never",
    ),
    Refusal(
        "server busy",
        "UNAVAILABLE",
        "The service is currently unavailable.",
        "gRPC",
        "page",
        "Unavailable",
        "soon",
    ),
    Refusal("internal error", "INTERNAL", "Internal error.", "gRPC", "page", "Unavailable", "soon"),
    Refusal(
        "unknown words", "INVALID_ARGUMENT", "Bad thing {0} %s happened.", "none", "ours", "Refused", "never"
    ),
)

BY_NAME = {refusal.name: refusal for refusal in REFUSALS}
