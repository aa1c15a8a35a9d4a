"""What a node says of itself to the apiserver: whether it is Ready, its chips and its disk.

The same for every provider; the programs of a node are `node` and `kind`.
"""

from __future__ import annotations

from collections.abc import Callable

from e2e.cluster.api import Api
from e2e.cluster.command import await_condition
from e2e.cluster.layout import Host

__all__ = ["DISK", "DISK_SIZE", "advertise_resources", "await_ready", "is_ready"]

DISK = "ephemeral-storage"
DISK_SIZE = "100Gi"
"""What hosts of GKE have by default. Kubelets that share one machine's disk can't tell of their own."""
_READY_SECONDS = 120.0


def is_ready(host: Host, api: Api) -> bool:
    """Whether the node is Ready, and its disk and all its chips can be allocated."""
    answer = api.get(f"/api/v1/nodes/{host.name}")
    if not answer.ok:
        return False
    status = answer.body["status"]
    allocatable = status.get("allocatable", {})
    if DISK not in allocatable or any(allocatable.get(name) != count for name, count in _chips(host).items()):
        return False
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))


def await_ready(host: Host, api: Api, *, details: Callable[[], str]) -> None:
    """Return once the node is Ready, and its chips and disk, which are advertised here, can be allocated.

    `details` explains a node that never was, in the NotReadyError.
    """

    def advertised_and_ready() -> bool:
        if is_ready(host, api):
            return True
        # Again and again: a kubelet that registers anew sets foreign resources to zero.
        advertise_resources(host, api)
        return False

    await_condition(
        f"node {host.name} is Ready", advertised_and_ready, timeout=_READY_SECONDS, details=details
    )


def advertise_resources(host: Host, api: Api) -> None:
    """Put the host's chips into its node's status, as a device plugin would, and a disk if there is none."""
    path = f"/api/v1/nodes/{host.name}"
    resources = _chips(host)
    node = api.get(path)
    if node.ok and DISK not in node.body["status"].get("allocatable", {}):
        resources |= {DISK: DISK_SIZE}
    if resources:
        api.merge(f"{path}/status", {"status": {"capacity": resources, "allocatable": resources}})


def _chips(host: Host) -> dict[str, str]:
    return {name: str(count) for name, count in host.chips.items()}
