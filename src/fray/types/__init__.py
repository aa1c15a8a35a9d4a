"""What a user asks for and what comes back: requests, hardware, environments, and how jobs stand.

Frozen data, checked where it is written, so that a mistake shows in the line that holds it and not at
launch. `request` puts the others together: `entrypoint`, `resources` (with `devices` and `sizes`) and
`environment`; `job_info` and `log_line` are what comes back. What a request means for a cluster is
`fray.cluster`; hardware facts are `fray.accelerators`. Nothing here imports pydantic, so `import fray`
stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fray.offered_names import find_offered
from fray.types.devices import CpuConfig, DeviceConfig, DeviceKind, GpuConfig, TpuConfig
from fray.types.entrypoint import BinaryEntrypoint, CallableEntrypoint, Entrypoint
from fray.types.environment import EnvironmentConfig, create_environment
from fray.types.job_info import JobId, JobInfo, JobStatus, LogLine, MonitoredJob, TaskStatus
from fray.types.request import JobRequest
from fray.types.resources import GangShape, ResourceConfig

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
    "LogLine",
    "MonitoredJob",
    "ResourceConfig",
    "TaskStatus",
    "TpuConfig",
    "create_environment",
]

if TYPE_CHECKING:  # what the first API had here
    from fray.job.options import ActorOptions as ActorOptions
    from fray.job.options import Lifetime as Lifetime
    from fray.job.options import TaskOptions as TaskOptions
    from fray.legacy.actor_config import ActorConfig as ActorConfig
    from fray.legacy.runtime_env import Resource as Resource
    from fray.legacy.runtime_env import RuntimeEnv as RuntimeEnv
    from fray.legacy.tpu_topology import *  # noqa: F403
else:  # else mypy would find no misspelt name

    def __getattr__(name: str) -> Any:
        homes = (
            "fray.job.options",
            "fray.legacy.actor_config",
            "fray.legacy.runtime_env",
            "fray.legacy.tpu_topology",
        )
        return find_offered(__name__, name, homes)
