"""A node pool as GKE's API takes it, and the same as a gcloud command and as Terraform; and its deletion.

Pure. The body is the JSON form of the API's message `NodePool`
(https://docs.cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from fray.errors import GkeClusterError
from fray.nodepools.requests import PoolRequest, WorkloadPolicy
from fray.vocabulary import LABEL_POOL_MADE_BY

__all__ = [
    "Form",
    "GkeCluster",
    "build_body",
    "build_policy",
    "format_deletion",
    "format_gcloud",
    "format_policy_gcloud",
    "format_terraform",
]

SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
"""Without any, nodes may not even pull images from Artifact Registry; roles of the account then decide."""
Form = Literal["request", "gcloud", "terraform"]
"""What a request is written as: the API's JSON, commands for gcloud, or Terraform's."""
RESERVATION_KEY: Final = "compute.googleapis.com/reservation-name"
TERRAFORM_NAMES: Final = {
    "locations": "node_locations",
    "config": "node_config",
    "accelerators": "guest_accelerator",
    "acceleratorType": "type",
    "acceleratorCount": "count",
}
"""What Terraform calls fields of the API, where it isn't the same in snake case."""
NUMBERS: Final = ("acceleratorCount", "maxPodsPerNode")
"""Fields that the API takes as texts, since they are of 64 bits."""


@dataclass(frozen=True)
class GkeCluster:
    """A cluster's place in Google Cloud; `location` is its region, or its zone."""

    project: str
    location: str
    name: str

    @classmethod
    def parse(cls, path: str) -> GkeCluster:
        """Read `projects/P/locations/L/clusters/C`, also with zones or regions; raises `GkeClusterError`."""
        parts = path.strip("/").split("/")
        if len(parts) == 6 and all(parts):
            first, project, second, location, third, name = parts
            if first == "projects" and second in ("locations", "zones", "regions") and third == "clusters":
                return cls(project, location, name)
        raise GkeClusterError(f"{path!r} is no path of a cluster")

    @property
    def path(self) -> str:
        """Its name in the API."""
        return f"projects/{self.project}/locations/{self.location}/clusters/{self.name}"

    @property
    def region(self) -> str:
        """Its region, also where it has one zone only."""
        parts = self.location.split("-")
        return "-".join(parts[:2])

    def pool_path(self, pool: str) -> str:
        """Return the name of one of its node pools in the API."""
        return f"{self.path}/nodePools/{pool}"


def build_body(pool: PoolRequest, *, made_by: str) -> dict[str, Any]:
    """Return the JSON form of a NodePool; fields that GKE fills in well are left out.

    `autoUpgrade` is always on: a cluster in a release channel refuses a pool without it.
    """
    body: dict[str, Any] = {
        "name": pool.name,
        "initialNodeCount": pool.nodes,
        "config": _build_config(pool, made_by),
    }
    if pool.zones:
        body["locations"] = list(pool.zones)
    if pool.max_nodes is not None:
        body["autoscaling"] = _build_autoscaling(pool)
    body["management"] = {"autoUpgrade": True, "autoRepair": not pool.flex_start}
    if pool.max_pods is not None:
        body["maxPodsConstraint"] = {"maxPodsPerNode": str(pool.max_pods)}
    if pool.topology is not None:
        body["placementPolicy"] = {"type": "COMPACT", "tpuTopology": pool.topology}
    elif pool.policy is not None:
        body["placementPolicy"] = {"policyName": pool.policy.name}
    if pool.queued:
        body["queuedProvisioning"] = {"enabled": True}
    return body


def _build_config(pool: PoolRequest, made_by: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "machineType": pool.machine_type,
        "oauthScopes": list(SCOPES),
        "labels": {LABEL_POOL_MADE_BY: made_by},
    }
    if pool.disk_type is not None:
        config["diskType"] = pool.disk_type
    if pool.service_account is not None:
        config["serviceAccount"] = pool.service_account
    if pool.gpu:
        config["accelerators"] = [
            {
                "acceleratorCount": str(pool.chips),
                "acceleratorType": pool.accelerator,
                "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
            }
        ]
    if pool.spot:
        config["spot"] = True
    if pool.flex_start:
        config["flexStart"] = True
        config["reservationAffinity"] = {"consumeReservationType": "NO_RESERVATION"}
    if pool.reservation is not None:
        config["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": RESERVATION_KEY,
            "values": [pool.reservation],
        }
    return config


def _build_autoscaling(pool: PoolRequest) -> dict[str, Any]:
    if pool.is_slice:
        # In its one zone, where it goes from nothing to all of it and back.
        return {"enabled": True, "maxNodeCount": pool.max_nodes, "locationPolicy": "ANY"}
    return {"enabled": True, "totalMaxNodeCount": pool.max_nodes, "locationPolicy": "ANY"}


def format_gcloud(pool: PoolRequest, cluster: GkeCluster, *, made_by: str) -> str:
    """Return the gcloud command that makes the pool."""
    flags = [
        f"--project={cluster.project}",
        f"--cluster={cluster.name}",
        f"--location={cluster.location}",
        *([f"--node-locations={','.join(pool.zones)}"] if pool.zones else []),
        f"--machine-type={pool.machine_type}",
        f"--num-nodes={pool.nodes}",
        f"--node-labels={LABEL_POOL_MADE_BY}={made_by}",
        f"--scopes={','.join(SCOPES)}",
        "--enable-autoupgrade",
        "--no-enable-autorepair" if pool.flex_start else "--enable-autorepair",
    ]
    if pool.max_nodes is not None:
        most = "max-nodes" if pool.is_slice else "total-max-nodes"
        least = "min-nodes" if pool.is_slice else "total-min-nodes"
        flags += [
            "--enable-autoscaling",
            f"--{least}=0",
            f"--{most}={pool.max_nodes}",
            "--location-policy=ANY",
        ]
    options = {
        "tpu-topology": pool.topology,
        "placement-policy": pool.policy.name if pool.policy is not None else None,
        "max-pods-per-node": pool.max_pods,
        "disk-type": pool.disk_type,
        "service-account": pool.service_account,
    }
    flags += [f"--{name}={value}" for name, value in options.items() if value is not None]
    if pool.gpu:
        flags.append(f"--accelerator=type={pool.accelerator},count={pool.chips},gpu-driver-version=default")
    if pool.spot:
        flags.append("--spot")
    if pool.flex_start:
        flags += ["--flex-start", "--reservation-affinity=none"]
    if pool.queued:
        flags.append("--enable-queued-provisioning")
    if pool.reservation is not None:
        flags += ["--reservation-affinity=specific", f"--reservation={pool.reservation}"]
    command = f"gcloud container node-pools create {pool.name}"
    return " \\\n  ".join([command, *map(shlex.quote, flags)])


def build_policy(policy: WorkloadPolicy) -> dict[str, Any]:
    """Return a workload policy as Compute Engine's `resourcePolicies.insert` takes it."""
    workload = {"type": "HIGH_THROUGHPUT", "acceleratorTopology": policy.topology}
    if policy.mode != "AUTO_CONNECT":
        workload["acceleratorTopologyMode"] = policy.mode
    return {"name": policy.name, "workloadPolicy": workload}


def format_policy_gcloud(policy: WorkloadPolicy, cluster: GkeCluster) -> str:
    """Return the gcloud command that makes a workload policy, which isn't GKE's but Compute Engine's."""
    flags = (
        f"--project={cluster.project}",
        f"--region={cluster.region}",
        "--type=HIGH_THROUGHPUT",
        f"--accelerator-topology={policy.topology}",
        *([f"--accelerator-topology-mode={policy.mode}"] if policy.mode != "AUTO_CONNECT" else []),
    )
    return shlex.join(
        ["gcloud", "compute", "resource-policies", "create", "workload-policy", policy.name, *flags]
    )


def format_terraform(pool: PoolRequest, cluster: GkeCluster, *, made_by: str) -> str:
    """Return a `google_container_node_pool` for Terraform's provider of Google Cloud."""
    body = build_body(pool, made_by=made_by)
    if (pods := body.pop("maxPodsConstraint", None)) is not None:
        body |= pods
    if (scaling := body.get("autoscaling")) is not None:
        del scaling["enabled"]
        body["autoscaling"] = {"minNodeCount" if pool.is_slice else "totalMinNodeCount": 0, **scaling}
    if (placement := body.get("placementPolicy")) is not None:
        body["placementPolicy"] = {"type": "COMPACT", **placement}
    place = {"name": pool.name, "project": cluster.project, "location": cluster.location}
    # A slice's size can't change, and the number of one that scales is the autoscaler's.
    lines = [
        *_format_fields({**place, "cluster": cluster.name, **body}),
        "lifecycle {",
        "  ignore_changes = [initial_node_count]",
        "}",
    ]
    resource = f'resource "google_container_node_pool" {_quote(pool.name)}'
    return "\n".join([f"{resource} {{", *(f"  {line}" for line in lines), "}"])


def format_deletion(pools: Sequence[str], cluster: GkeCluster, form: Form) -> str:
    """Return what deletes pools, in one of the three forms."""
    if form == "request":
        return json.dumps([{"name": cluster.pool_path(pool)} for pool in pools], indent=2)
    if form == "terraform":
        return "\n".join(f"terraform destroy -target=google_container_node_pool.{pool}" for pool in pools)
    place = [f"--project={cluster.project}", f"--cluster={cluster.name}", f"--location={cluster.location}"]
    command = ["gcloud", "container", "node-pools", "delete"]
    return "\n".join(shlex.join([*command, pool, *place]) for pool in pools)


def _format_fields(body: Mapping[str, Any]) -> list[str]:
    """Return fields of the API in Terraform's words: values first, then objects as blocks."""
    values: dict[str, str] = {}
    blocks: list[str] = []
    for field, value in body.items():
        name = TERRAFORM_NAMES.get(field) or re.sub("([A-Z])", r"_\1", field).lower()
        parts = value if isinstance(value, list) else [value]
        if isinstance(parts[0], dict) and field != "labels":
            for part in parts:
                blocks += [f"{name} {{", *(f"  {line}" for line in _format_fields(part)), "}"]
        else:
            values[name] = value if field in NUMBERS else _quote(value)
    widest = max(map(len, values), default=0)
    return [*(f"{name.ljust(widest)} = {value}" for name, value in values.items()), *blocks]


def _quote(value: Any) -> str:
    """Return a value as Terraform writes it: JSON, but for templates, and `=` in maps."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_quote(key)} = {_quote(each)}" for key, each in value.items()) + " }"
    return json.dumps(value).replace("${", "$${").replace("%{", "%%{")
