"""What a node says of itself to the apiserver: whether it is Ready, and the chips it claims to have.

The same for every provider; the programs of a node are `node` and `kind`.
"""

from __future__ import annotations

from collections.abc import Callable

from e2e.cluster.api import Api
from e2e.cluster.command import await_condition
from e2e.cluster.layout import Host

__all__ = ["advertise_chips", "await_ready", "is_ready"]

_READY_SECONDS = 120.0


def is_ready(host: Host, api: Api) -> bool:
    """Whether the node is Ready and all its chips can be allocated."""
    answer = api.get(f"/api/v1/nodes/{host.name}")
    if not answer.ok:
        return False
    status = answer.body["status"]
    if any(status.get("allocatable", {}).get(name) != str(count) for name, count in host.chips.items()):
        return False
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))


def await_ready(host: Host, api: Api, *, details: Callable[[], str]) -> None:
    """Return once the node is Ready and its chips, which are advertised here, can be allocated.

    `details` explains a node that never was, in the NotReadyError.
    """

    def advertised_and_ready() -> bool:
        if is_ready(host, api):
            return True
        # Again and again: a kubelet that registers anew sets foreign resources to zero.
        advertise_chips(host, api)
        return False

    await_condition(
        f"node {host.name} is Ready", advertised_and_ready, timeout=_READY_SECONDS, details=details
    )


def advertise_chips(host: Host, api: Api) -> None:
    """Put the host's chips into its node's status, as a device plugin would."""
    if host.chips:
        chips = {name: str(count) for name, count in host.chips.items()}
        api.merge(f"/api/v1/nodes/{host.name}/status", {"status": {"capacity": chips, "allocatable": chips}})
