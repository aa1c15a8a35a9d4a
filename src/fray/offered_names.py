"""The names that packages offer and import when they are first used (PEP 562), each listed once.

An attribute that isn't offered must import nothing: pickle and cloudpickle ask every module for theirs.
Errors are listed by `fray.errors` itself, which needs the standard library only. Nothing is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Final

__all__ = ["HOMES", "find_offered", "import_home", "list_offered", "list_users_names", "offer_names"]

ERRORS: Final = "fray.errors"
HOMES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "fray.actor": ("ActorFuture",),
        "fray.client.client": ("Client", "current_client", "set_current_client"),
        "fray.client.errors": ("JobAlreadyExists", "JobFailed"),
        "fray.client.handle": ("JobHandle", "wait_all"),
        "fray.cluster.base": ("Cluster",),
        "fray.cluster.current": ("create_cluster", "current_cluster", "set_current_cluster"),
        "fray.cluster.kubernetes": ("KubernetesCluster",),
        "fray.cluster.local_cluster": ("LocalCluster", "LocalClusterConfig"),
        "fray.cluster.ray": ("RayCluster",),
        "fray.device_flops": ("FlopDtype",),
        "fray.job": (
            "ActorContext",
            "ActorGroup",
            "ActorHandle",
            "ActorMethod",
            "ActorOptions",
            "ContextStats",
            "Endpoint",
            "GeneratorFuture",
            "HostedActor",
            "JobContext",
            "Lifetime",
            "MemberState",
            "ObjectRef",
            "SyncContext",
            "TaskOptions",
            "ThreadContext",
            "clear_job_context",
            "create_context",
            "create_job_ctx",
            "current_actor",
            "fray_default_job_ctx",
            "fray_job_ctx",
            "get_default_job_ctx",
            "get_job_context",
            "host_actor",
            "lookup_endpoint",
            "register_endpoint",
            "set_job_context",
        ),
        "fray.job.dask": ("DaskContext",),
        "fray.job.options": ("ActorOptions", "Lifetime", "TaskOptions"),
        "fray.job.ray": ("RayContext",),
        "fray.job_context": ("ExecutionContext", "LocalJobContext"),
        "fray.legacy.actor_config": ("ActorConfig",),
        "fray.legacy.cluster_context": ("ClusterContext", "LocalClusterContext", "RayClusterContext"),
        "fray.legacy.gang_calls": ("run_on_pod",),
        "fray.legacy.runtime_env": ("Resource", "RuntimeEnv"),
        "fray.legacy.tpu_topology": (
            "ANY_REGION",
            "GpuType",
            "TPU_TOPOLOGIES",
            "TpuRunConfig",
            "TpuTopologyInfo",
            "TpuType",
            "get_tpu_topology",
        ),
        "fray.local_backend": (
            "LocalActorGroup",
            "LocalActorHandle",
            "LocalActorMethod",
            "LocalClient",
            "LocalJobHandle",
        ),
        "fray.queue.base": ("Lease", "MemoryQueue", "Queue"),
        "fray.queue.client": ("ClientLimits", "HttpQueue"),
        "fray.queue.file": ("FileQueue",),
        "fray.queue.server": ("HttpQueueServer", "ServerLimits"),
        "fray.ray_backend": ("RayClient",),
        "fray.runtime.identity": ("Identity", "IdentityError", "current_identity"),
        "fray.types": (
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
        ),
    }
)
"""Where each public name stands that is no error."""
ROOT_HOMES: Final = (*(home for home in HOMES if not home.startswith("fray.queue.")), ERRORS)
"""Those of which `fray` itself offers the names."""
EARLIER_HOMES: Final = (
    "fray.actor",
    "fray.client.errors",
    "fray.cluster.ray",
    "fray.device_flops",
    "fray.job.dask",
    "fray.job.ray",
    "fray.job_context",
    "fray.legacy.",
    "fray.local_backend",
    "fray.ray_backend",
)
EARLIER_NAMES: Final = frozenset({"HostedActor", "create_context", "fray_job_ctx"})
"""Of earlier APIs: they can be imported, but new programs have others for them."""

_ON_KUBERNETES: Final = "Write create_cluster('k8s?namespace=...') and Client(cluster), which run it there."
WITHDRAWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ContextConfig": "Give its options to create_job_ctx: create_job_ctx('threadpool', max_workers=4).",
        "DEFAULT_TPU_HOST_FRACTION": "Write cpu= and ram= in ResourceConfig.with_tpu(...).",
        "EntryPoint": "Write Entrypoint.from_callable(f), or Entrypoint.from_command([...]).",
        **dict.fromkeys(
            (
                *("FrayIrisClient", "IrisActorGroup", "IrisActorHandle", "IrisJobHandle", "OperationFuture"),
                *("convert_constraints", "convert_container_profile", "convert_entrypoint"),
                *("convert_environment", "convert_resources", "map_iris_job_state", "resolve_coscheduling"),
                *("NSYS_TASKS_ENV", "wrap_multiprocess", "wrap_nsys"),
            ),
            _ON_KUBERNETES,
        ),
        "SimpleActor": "Write a class of your own: create_actor takes any.",
        **dict.fromkeys(
            ("TPU_HBM_BYTES_PER_CHIP", "tpu_hbm_bytes_per_chip", "tpu_hbm_capacity_bytes"),
            "Ask the device, in its job: jax.devices()[0].memory_stats()['bytes_limit'].",
        ),
        **dict.fromkeys(
            ("TPU_HOST_RESOURCES", "TpuHostResources"),
            "Write fray.accelerators.lookup_tpu('v5p-8').size: the CPU and memory of a host, where known.",
        ),
        "TemporaryVenv": "Write create_environment(pip_packages=[...]), which makes one for the job.",
        **dict.fromkeys(
            ("TpuFamily", "tpu_family"),
            "Write fray.accelerators.lookup_tpu('v5p-8').generation, which is a text.",
        ),
        "ThreadActorHandle": "Write ActorHandle, which the handles of every engine are.",
        "ThreadActorMethod": "Write ActorMethod, which the methods of every engine's handles are.",
        **dict.fromkeys(
            ("normalize_device_type", "normalize_dtype"),
            "Give the name to device_flops(...) as it is: it takes all spellings.",
        ),
    }
)
"""Names of earlier APIs that nothing here stands for, and what to write instead."""


def offer_names(package: str, homes: tuple[str, ...] = ()) -> None:
    """Let a module offer names of its `homes` beside its own, and keep what was found; see `find_offered`.

    Type checkers don't see it, so that they find misspelt names.
    """
    space = vars(sys.modules[package])

    def find(name: str) -> Any:
        value = space[name] = find_offered(package, name, homes)
        return value

    space.update(__getattr__=find, __dir__=lambda: space.get("__all__") or list_offered(homes))


def find_offered(package: str, name: str, homes: tuple[str, ...]) -> Any:
    """Return what a package offers under a name, for its `__getattr__`.

    `homes` are the modules that it offers the names of.

    Raises `AttributeError`, `PackageMissingError` where the name needs a package that isn't here, and
    `NameWithdrawnError` for one of an earlier API.
    """
    for home in homes:
        if name in HOMES.get(home, ()) or (home == ERRORS and _may_be_error(name)):
            return getattr(import_home(home, f"{package}.{name}"), name)
    if name == "__all__":
        return list_offered(homes)
    if name in WITHDRAWN:
        from fray.errors import NameWithdrawnError  # noqa: PLC0415 - takes longer than all the rest

        raise NameWithdrawnError(f"{package}.{name}", WITHDRAWN[name])
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def list_offered(homes: tuple[str, ...]) -> list[str]:
    """Return the names that a package with these homes offers, sorted."""
    names = {name for home in homes for name in HOMES.get(home, ())}
    if ERRORS in homes:
        names |= set(import_module(ERRORS).__all__)
    return sorted(names)


def list_users_names() -> list[str]:
    """Return the names that completion of `fray` shows, sorted: no errors, none of earlier APIs."""
    homes = (home for home in ROOT_HOMES if not home.startswith(EARLIER_HOMES))
    names = {name for home in homes for name in HOMES.get(home, ())}
    return sorted(name for name in names - EARLIER_NAMES if not _may_be_error(name))


def import_home(home: str, part: str) -> ModuleType:
    """Return the module that has a part of Fray.

    Raises `PackageMissingError` where a package that it needs isn't installed.
    """
    try:
        return import_module(home)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] == "fray":
            raise
        from fray.errors import PackageMissingError  # noqa: PLC0415 - takes longer than all the rest

        raise PackageMissingError(part, missing) from error


def _may_be_error(name: str) -> bool:
    return name.endswith("Error") or name == "RefusalReason"
