"""What a user asks for and what comes back: requests, hardware, environments, and how jobs stand.

Frozen data, checked where it is written, so that a mistake shows in the line that holds it and not at
launch. `request` puts the others together: `entrypoint`, `resources` (with `devices` and `sizes`) and
`environment`; `job_info` and `log_line` are what comes back. What a request means for a cluster is
`fray.cluster`; hardware facts are `fray.accelerators`. Nothing here imports pydantic, so `import fray`
stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fray.offered_names import HOMES, offer_names
from fray.types.devices import CpuConfig as CpuConfig
from fray.types.devices import DeviceConfig as DeviceConfig
from fray.types.devices import DeviceKind as DeviceKind
from fray.types.devices import GpuConfig as GpuConfig
from fray.types.devices import TpuConfig as TpuConfig
from fray.types.entrypoint import BinaryEntrypoint as BinaryEntrypoint
from fray.types.entrypoint import CallableEntrypoint as CallableEntrypoint
from fray.types.entrypoint import Entrypoint as Entrypoint
from fray.types.environment import EnvironmentConfig as EnvironmentConfig
from fray.types.environment import create_environment as create_environment
from fray.types.job_info import JobId as JobId
from fray.types.job_info import JobInfo as JobInfo
from fray.types.job_info import JobStatus as JobStatus
from fray.types.job_info import LogLine as LogLine
from fray.types.job_info import MonitoredJob as MonitoredJob
from fray.types.job_info import TaskStatus as TaskStatus
from fray.types.request import JobRequest as JobRequest
from fray.types.resources import GangShape as GangShape
from fray.types.resources import ResourceConfig as ResourceConfig

if TYPE_CHECKING:  # what the first API had here
    from fray.job.options import ActorOptions as ActorOptions
    from fray.job.options import Lifetime as Lifetime
    from fray.job.options import TaskOptions as TaskOptions
    from fray.legacy.actor_config import ActorConfig as ActorConfig
    from fray.legacy.runtime_env import Resource as Resource
    from fray.legacy.runtime_env import RuntimeEnv as RuntimeEnv
    from fray.legacy.tpu_topology import *  # noqa: F403

__all__ = list(HOMES[__name__])
offer_names(
    __name__,
    ("fray.job.options", "fray.legacy.actor_config", "fray.legacy.runtime_env", "fray.legacy.tpu_topology"),
)
