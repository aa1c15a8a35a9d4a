"""An earlier API's name for the client of a Ray cluster."""

from __future__ import annotations

from fray.client.client import Client
from fray.cluster.cluster_spec import RaySpec, check_available
from fray.cluster.ray import RayCluster

__all__ = ["RayClient"]


class RayClient(Client):
    """Submits jobs to a Ray cluster.

    Args:
        address: Ray's head, `http://HEAD:8265`; `auto` for the one that runs here.
        namespace: Of an earlier API, where jobs shared actors by it; refused.

    Raises:
        ClusterUnavailableError: Ray isn't installed, or a namespace is named.
    """

    def __init__(self, address: str = "auto", namespace: str | None = None) -> None:
        check_available(RaySpec(namespace=namespace))
        super().__init__(RayCluster(address))
