"""The name of a backend that an earlier API had: it can be imported, and says why it can't be used."""

from __future__ import annotations

from fray.cluster.cluster_spec import RaySpec, check_available

__all__ = ["RayCluster"]


class RayCluster:
    """Jobs of a Ray cluster, which can't be launched yet: making one raises `ClusterUnavailableError`."""

    def __init__(self, *addresses: str | None, **options: object) -> None:
        del addresses, options
        check_available(RaySpec())
