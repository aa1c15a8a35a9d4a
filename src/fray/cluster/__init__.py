"""Where jobs run: each backend is a package of its own and understands the same FrayJob.

What a FrayJob means is decided in `fray.plan`, for all of them; nothing here knows the command line.
`base` is what each backend promises, `current` which one a process uses. `cluster_spec` reads which is meant,
`manifest` turns a request into a FrayJob, and `progress` tells how it stands. Names are imported when they
are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fray.cluster.base import Cluster
    from fray.cluster.current import create_cluster, current_cluster, set_current_cluster
    from fray.types import (
        BinaryEntrypoint,
        CallableEntrypoint,
        CpuConfig,
        DeviceConfig,
        DeviceKind,
        Entrypoint,
        EnvironmentConfig,
        GangShape,
        GpuConfig,
        JobId,
        JobInfo,
        JobRequest,
        JobStatus,
        LogLine,
        MonitoredJob,
        ResourceConfig,
        TaskStatus,
        TpuConfig,
        create_environment,
    )

__all__ = [
    "BinaryEntrypoint",
    "CallableEntrypoint",
    "Cluster",
    "CpuConfig",
    "DeviceConfig",
    "DeviceKind",
    "Entrypoint",
    "EnvironmentConfig",
    "GangShape",
    "GpuConfig",
    "JobId",
    "JobInfo",
    "JobRequest",
    "JobStatus",
    "LogLine",
    "MonitoredJob",
    "ResourceConfig",
    "TaskStatus",
    "TpuConfig",
    "create_cluster",
    "create_environment",
    "current_cluster",
    "set_current_cluster",
]

_HOMES = {
    "Cluster": "fray.cluster.base",
    "create_cluster": "fray.cluster.current",
    "current_cluster": "fray.cluster.current",
    "set_current_cluster": "fray.cluster.current",
}
"""Where the names stand that aren't in `fray.types`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "fray.types")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
