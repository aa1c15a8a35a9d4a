"""How a cluster spec leads to an API server: which configuration counts, and which namespace.

In a pod it is the pod's own account, else the kubeconfig's context. Where there is neither, the error says
what was tried. Connections are made by `fray.kube`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml

from fray.cluster.cluster_spec import KubernetesSpec
from fray.errors import ClusterConfigError
from fray.kube.client import KubernetesApi
from fray.kube.configuration import Configuration, load_account, load_configuration
from fray.kube.official_client import config

__all__ = ["Access", "OpenAccess", "open_access"]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""
DEFAULT_KUBECONFIG = "~/.kube/config"
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, eq=False)
class Access:
    """An API server that can be asked; `server` is its URL, `namespace` where jobs are."""

    api: KubernetesApi
    server: str
    namespace: str
    close: Callable[[], Awaitable[None]]


OpenAccess: TypeAlias = Callable[[], Awaitable[Access]]
"""Finds the cluster and its credentials anew."""


async def open_access(
    spec: KubernetesSpec, environ: Mapping[str, str], *, account: Path = ACCOUNT, brief: bool = False
) -> Access:
    """Return access to the cluster of a spec, for few requests where it is `brief`; nothing is sent yet.

    Raises:
        ClusterConfigError: Nothing tells how to reach it; the error says what was tried.
    """
    in_pod = spec.context is None and bool(environ.get("KUBERNETES_SERVICE_HOST"))
    tried = ["the service account of this pod: this is no pod"]
    if spec.context is not None:
        tried = []
    elif in_pod:
        try:
            configuration = load_account()
            namespace = spec.namespace or _read(account / "namespace") or DEFAULT_NAMESPACE
        except (config.ConfigException, OSError) as error:
            tried = [f"the service account of this pod: {error}"]
        else:
            return _access(configuration, namespace, brief=brief)
    path = environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    source = f"KUBECONFIG={path}" if environ.get("KUBECONFIG") else path
    if not _exists(path):
        raise ClusterConfigError(spec.context, (*tried, f"{source}: no such file"))
    try:
        configuration = await load_configuration(kubeconfig=path, context=spec.context)
        namespace = spec.namespace or _find_namespace(path, spec.context) or DEFAULT_NAMESPACE
        return _access(configuration, namespace, brief=brief)
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        raise ClusterConfigError(spec.context, (*tried, f"{source}: {error}")) from error
    except (ValueError, TypeError, AttributeError) as error:
        # A file of another shape raises what it likes.
        raise ClusterConfigError(spec.context, (*tried, f"{source}: it is no kubeconfig: {error}")) from error


def _access(configuration: Configuration, namespace: str, *, brief: bool) -> Access:
    # Every log that is followed keeps a connection: a limit would be one of the pods of a gang.
    api = KubernetesApi(configuration, brief=brief, connections=0)
    return Access(api, configuration.host, namespace, api.close)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _exists(path: str) -> bool:
    """Whether one of a list of files is there."""
    return any(Path(part).expanduser().exists() for part in path.split(":") if part)


def _find_namespace(path: str, context: str | None) -> str | None:
    contexts, current = config.list_kube_config_contexts(path)
    chosen = next((known for known in contexts if known["name"] == context), current)
    namespace: str | None = chosen["context"].get("namespace")
    return namespace
