"""Where jobs run: each backend is a package of its own and understands the same FrayJob.

What a FrayJob means is decided in `fray.plan`, for all of them; nothing here knows the command line.
`base` is what each backend promises, `current` which one a process uses. `cluster_spec` reads which is meant,
`manifest` turns a request into a FrayJob, and `progress` tells how it stands. Names are imported when they
are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fray.offered_names import HOMES, offer_names

if TYPE_CHECKING:
    from fray.cluster.base import Cluster as Cluster
    from fray.cluster.current import *  # noqa: F403 - its `__all__` is the list
    from fray.cluster.kubernetes import KubernetesCluster as KubernetesCluster
    from fray.cluster.local_cluster import LocalCluster as LocalCluster
    from fray.cluster.local_cluster import LocalClusterConfig as LocalClusterConfig
    from fray.cluster.ray import RayCluster as RayCluster
    from fray.device_flops import FlopDtype as FlopDtype
    from fray.legacy.cluster_context import ClusterContext as ClusterContext
    from fray.legacy.cluster_context import LocalClusterContext as LocalClusterContext
    from fray.legacy.cluster_context import RayClusterContext as RayClusterContext
    from fray.legacy.gang_calls import *  # noqa: F403
    from fray.legacy.tpu_topology import *  # noqa: F403
    from fray.types import *  # noqa: F403

_OF_ANOTHER_PLACE = (
    "fray.device_flops",
    "fray.legacy.cluster_context",
    "fray.legacy.gang_calls",
    "fray.legacy.tpu_topology",
    "fray.types",
)
offer_names(
    __name__, tuple(home for home in HOMES if home.startswith(f"{__name__}.") or home in _OF_ANOTHER_PLACE)
)
