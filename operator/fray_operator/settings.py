"""What an administrator decides about the operator, read once from the environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from fray.plan.settings import PlanSettings, RetryPolicy

__all__ = ["OperatorSettings", "SettingsError"]

MOST = {"FRAY_HTTP_PORT": 65535, "FRAY_MAX_POOLS": 1000, "FRAY_WORKERS": 1000}
MAY_BE_ZERO = ("FRAY_AVOID_SECONDS", "FRAY_SETTLE_SECONDS")


class SettingsError(ValueError):
    """A variable of the environment that can't be understood; the message names it and what is legal."""


@dataclass(frozen=True)
class OperatorSettings:
    """Settings of one operator process; the chart sets each from a value."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; all when empty (FRAY_NAMESPACES, separated by commas)."""
    read_nodes: bool = True
    """Whether nodes may be read, to say why a job waits and why one has ended (FRAY_READ_NODES)."""
    runtime_image: str = "fray-runtime:0.1.0"
    """Image of jobs that name none (FRAY_RUNTIME_IMAGE)."""
    injector_image: str = "fray-operator:0.1.0"
    """Image that Fray's runtime is brought from into jobs' pods (FRAY_INJECTOR_IMAGE)."""
    service_account: str = "fray-job"
    """ServiceAccount of jobs that name none (FRAY_SERVICE_ACCOUNT)."""
    metadata_server: bool = True
    """Whether nodes have Google's metadata server (FRAY_METADATA_SERVER)."""
    kueue_elastic_jobs: bool = False
    """Whether Kueue lets the Job of workers change its size (FRAY_KUEUE_ELASTIC_JOBS)."""
    pod_name: str = "fray-operator"
    """Identity in the Lease (FRAY_POD_NAME)."""
    lease_namespace: str = "fray-system"
    """Where the Lease is (FRAY_LEASE_NAMESPACE)."""
    lease_name: str = "fray-operator"
    """Name of the Lease (FRAY_LEASE_NAME)."""
    lease_seconds: float = 15.0
    """Seconds after which a silent leader is replaced (FRAY_LEASE_SECONDS)."""
    http_host: str = "0.0.0.0"
    """Address of /healthz, /readyz and /metrics (FRAY_HTTP_HOST)."""
    http_port: int = 8080
    """Port of /healthz, /readyz and /metrics (FRAY_HTTP_PORT)."""
    backoff_seconds: float = 10.0
    """Pause before the first retry of a job, or of an actor's slice (FRAY_BACKOFF_SECONDS)."""
    backoff_cap_seconds: float = 360.0
    """Longest pause before a retry (FRAY_BACKOFF_CAP_SECONDS)."""
    avoid_seconds: float = 3600.0
    """For how long a job keeps off a node that is broken; 0 for not at all (FRAY_AVOID_SECONDS)."""
    settle_seconds: float = 5.0
    """How long after its first failure the cause of an attempt's end may still show (FRAY_SETTLE_SECONDS)."""
    unreachable_seconds: float = 60.0
    """How long hosts on a node that is silent are waited for (FRAY_UNREACHABLE_SECONDS)."""
    node_pools: str = "none"
    """Who provides node pools: none, or gke (FRAY_NODE_POOLS)."""
    gke_cluster: str | None = None
    """Path of the GKE cluster, `projects/P/locations/L/clusters/C` (FRAY_GKE_CLUSTER)."""
    max_pools: int = 8
    """Node pools that the operator may have at once (FRAY_MAX_POOLS)."""
    max_chips: tuple[str, ...] = ()
    """Chips that they may have, as `tpu-v5p-slice=64`; no pool of any other type (FRAY_MAX_CHIPS)."""
    pool_idle_seconds: float = 600.0
    """How long a node pool is idle before it is deleted (FRAY_POOL_IDLE_SECONDS)."""
    pool_zones: tuple[str, ...] = ()
    """Zones of node pools where a job names none; the cluster's when empty (FRAY_POOL_ZONES)."""
    pool_spot: bool = False
    """Whether node pools are spot where the job allows both (FRAY_POOL_SPOT)."""
    pool_service_account: str | None = None
    """Google account of the nodes; GKE's choice when unset (FRAY_POOL_SERVICE_ACCOUNT)."""
    workers: int = 8
    """Jobs reconciled at the same time (FRAY_WORKERS)."""
    log_level: str = "INFO"
    """DEBUG, INFO, WARNING or ERROR (FRAY_LOG_LEVEL)."""
    kubeconfig: str | None = None
    """Kubeconfig to use outside a pod (KUBECONFIG)."""
    api_server: str | None = None
    """URL of the API server as the kubelet tells it to pods (KUBERNETES_SERVICE_HOST and _PORT)."""

    @property
    def plan(self) -> PlanSettings:
        """What the plan of jobs and actors needs of them."""
        return PlanSettings(
            image=self.runtime_image,
            injector_image=self.injector_image,
            service_account=self.service_account,
            metadata_server=self.metadata_server,
            kueue_elastic_jobs=self.kueue_elastic_jobs,
        )

    @property
    def policy(self) -> RetryPolicy:
        """When jobs and actors start again."""
        return RetryPolicy(
            self.backoff_seconds,
            self.backoff_cap_seconds,
            self.avoid_seconds,
            settle_seconds=self.settle_seconds,
            unreachable_seconds=self.unreachable_seconds,
        )

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Return the settings of an environment.

        Raises `SettingsError` for a value that isn't legal.
        """
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
        chosen: dict[str, Any] = {
            "kubeconfig": environ.get("KUBECONFIG") or None,
            "api_server": f"https://{f'[{host}]' if ':' in host else host}:{port}" if host and port else None,
        }
        for field in fields(cls):
            variable = f"FRAY_{field.name.upper()}"
            if field.name not in chosen and (text := environ.get(variable, "")):
                chosen[field.name] = _read(variable, text, field.default)
        settings = cls(**chosen)
        if settings.log_level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise SettingsError(f"FRAY_LOG_LEVEL={settings.log_level}: legal are DEBUG, INFO, WARNING, ERROR")
        return settings


def _read(variable: str, text: str, default: object) -> object:
    """Return the value that a text stands for, of the type that the default has."""
    match default:
        case bool():
            if text.lower() not in ("true", "false"):
                raise SettingsError(f"{variable}={text}: legal are true and false")
            return text.lower() == "true"
        case int():
            most = MOST[variable]
            if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
                raise SettingsError(f"{variable}={text}: must be a whole number from 1 to {most}")
            return int(text)
        case float():
            zero = variable in MAY_BE_ZERO
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if not 0 <= value < math.inf or (value == 0 and not zero):
                raise SettingsError(
                    f"{variable}={text}: must be a number {'of at least' if zero else 'above'} 0"
                )
            return value
        case tuple():
            return tuple(name.strip() for name in text.split(",") if name.strip())
        case _:
            return text.upper() if variable == "FRAY_LOG_LEVEL" else text
