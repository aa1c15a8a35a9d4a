"""What an administrator decides about the operator, read once from the environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

__all__ = ["OperatorSettings", "SettingsError"]


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
    """Pause before the first retry of a job (FRAY_BACKOFF_SECONDS)."""
    backoff_cap_seconds: float = 360.0
    """Longest pause before a retry of a job (FRAY_BACKOFF_CAP_SECONDS)."""
    avoid_seconds: float = 3600.0
    """For how long a job keeps off a node that is broken; 0 for not at all (FRAY_AVOID_SECONDS)."""
    settle_seconds: float = 5.0
    """How long after its first failure the cause of an attempt's end may still show (FRAY_SETTLE_SECONDS)."""
    unreachable_seconds: float = 60.0
    """How long hosts on a node that is silent are waited for (FRAY_UNREACHABLE_SECONDS)."""
    workers: int = 8
    """Jobs reconciled at the same time (FRAY_WORKERS)."""
    log_level: str = "INFO"
    """DEBUG, INFO, WARNING or ERROR (FRAY_LOG_LEVEL)."""
    kubeconfig: str | None = None
    """Kubeconfig to use outside a pod (KUBECONFIG)."""
    api_server: str | None = None
    """URL of the API server as the kubelet tells it to pods (KUBERNETES_SERVICE_HOST and _PORT)."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Return the settings of an environment.

        Raises `SettingsError` for a value that isn't legal.
        """
        default = cls()
        settings = cls(
            namespaces=tuple(n.strip() for n in environ.get("FRAY_NAMESPACES", "").split(",") if n.strip()),
            read_nodes=_boolean(environ, "FRAY_READ_NODES", default=default.read_nodes),
            runtime_image=environ.get("FRAY_RUNTIME_IMAGE") or default.runtime_image,
            injector_image=environ.get("FRAY_INJECTOR_IMAGE") or default.injector_image,
            service_account=environ.get("FRAY_SERVICE_ACCOUNT") or default.service_account,
            metadata_server=_boolean(environ, "FRAY_METADATA_SERVER", default=default.metadata_server),
            pod_name=environ.get("FRAY_POD_NAME") or default.pod_name,
            lease_namespace=environ.get("FRAY_LEASE_NAMESPACE") or default.lease_namespace,
            lease_name=environ.get("FRAY_LEASE_NAME") or default.lease_name,
            lease_seconds=_positive(environ, "FRAY_LEASE_SECONDS", default.lease_seconds),
            http_host=environ.get("FRAY_HTTP_HOST") or default.http_host,
            http_port=_whole(environ, "FRAY_HTTP_PORT", default.http_port, most=65535),
            backoff_seconds=_positive(environ, "FRAY_BACKOFF_SECONDS", default.backoff_seconds),
            backoff_cap_seconds=_positive(environ, "FRAY_BACKOFF_CAP_SECONDS", default.backoff_cap_seconds),
            avoid_seconds=_positive(environ, "FRAY_AVOID_SECONDS", default.avoid_seconds, zero=True),
            settle_seconds=_positive(environ, "FRAY_SETTLE_SECONDS", default.settle_seconds, zero=True),
            unreachable_seconds=_positive(environ, "FRAY_UNREACHABLE_SECONDS", default.unreachable_seconds),
            workers=_whole(environ, "FRAY_WORKERS", default.workers, most=1000),
            log_level=environ.get("FRAY_LOG_LEVEL", default.log_level).upper(),
            kubeconfig=environ.get("KUBECONFIG") or None,
            api_server=_server(
                environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
            ),
        )
        if settings.log_level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise SettingsError(f"FRAY_LOG_LEVEL={settings.log_level}: legal are DEBUG, INFO, WARNING, ERROR")
        return settings


def _server(host: str | None, port: str | None) -> str | None:
    if not host or not port:
        return None
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _boolean(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environ.get(name, "").lower()
    if text not in ("", "true", "false"):
        raise SettingsError(f"{name}={text}: legal are true and false")
    return default if text == "" else text == "true"


def _positive(environ: Mapping[str, str], name: str, default: float, *, zero: bool = False) -> float:
    text = environ.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf or (value == 0 and not zero):
        raise SettingsError(f"{name}={text}: must be a number {'of at least' if zero else 'above'} 0")
    return value


def _whole(environ: Mapping[str, str], name: str, default: int, *, most: int) -> int:
    text = environ.get(name, "")
    if text and not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise SettingsError(f"{name}={text}: must be a whole number from 1 to {most}")
    return int(text) if text else default
