"""Where jobs run: each backend is a package of its own and understands the same FrayJob.

What a FrayJob means is decided in `fray.plan`, for all of them; nothing here knows the command line.
`cluster_spec` reads which backend is meant, `manifest` turns a request into a FrayJob, and `progress`
tells how it stands. Names of requests are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        ResourceConfig,
        TaskStatus,
        TpuConfig,
        create_environment,
    )

__all__ = [
    "BinaryEntrypoint",
    "CallableEntrypoint",
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
    "ResourceConfig",
    "TaskStatus",
    "TpuConfig",
    "create_environment",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("fray.types"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
