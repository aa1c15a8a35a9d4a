"""Which cluster this process uses, and how a cluster spec becomes a cluster.

A cluster that was set counts for the context that set it (threads of a pool, tasks of asyncio); the one
that FRAY_CLUSTER_SPEC names is made once and shared by the whole process. What specs mean is
`cluster_spec`; backends are imported only when they are asked for.
"""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from fray.cluster.base import Cluster
from fray.cluster.cluster_spec import (
    ClusterSpec,
    KubernetesSpec,
    LocalSpec,
    RaySpec,
    check_available,
    parse_cluster_spec,
)
from fray.errors import ClusterUnavailableError, InvalidRequestError
from fray.types.checks import show_value
from fray.vocabulary import ENV_CLIENT_SPEC, ENV_CLUSTER_SPEC

__all__ = ["create_cluster", "current_cluster", "set_current_cluster"]

_HOMES: Final[Mapping[type[ClusterSpec], tuple[str, str]]] = MappingProxyType(
    {
        LocalSpec: ("fray.cluster.local_cluster", "LocalCluster"),
        KubernetesSpec: ("fray.cluster.kubernetes", "KubernetesCluster"),
        RaySpec: ("fray.cluster.ray", "RayCluster"),
    }
)
"""Where each backend's class is; its `from_spec` takes the spec."""

_EARLIER: Final = "FRAY_BACKEND"
"""What an earlier API read."""
_CLIENT_THREADS: Final = re.compile(r"local\?threads=[0-9]+")

_current: ContextVar[Cluster | None] = ContextVar("fray_current_cluster", default=None)
_lock = threading.Lock()
_shared: dict[tuple[int, str], Cluster] = {}
"""The clusters of the environment, by process (a fork must not use its parent's threads) and spec."""


def create_cluster(spec: str | ClusterSpec) -> Cluster:
    """Return a new object for the cluster that a spec names, such as `local` or `k8s?namespace=ml`.

    Raises:
        ClusterSpecError: The spec can't be read. It is a ValueError, too.
        ClusterUnavailableError: This version of Fray, or this installation, has no such backend.
    """
    parsed = spec if isinstance(spec, ClusterSpec) else parse_cluster_spec(spec)
    check_available(parsed)
    module, name = _HOMES[type(parsed)]
    try:
        home = import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        alternative = "Use FRAY_CLUSTER_SPEC=local, or `kubectl apply` a FrayJob."
        raise ClusterUnavailableError(
            "k8s", "this version has no Python client for it", alternative
        ) from None
    cluster: Cluster = getattr(home, name).from_spec(parsed)
    return cluster


def current_cluster() -> Cluster:
    """Return the cluster that jobs of this process go to.

    That is the one of `set_current_cluster`, else the one that FRAY_CLUSTER_SPEC names, else this machine.
    Inside a job it is the cluster of the job.

    Raises:
        ClusterSpecError: FRAY_CLUSTER_SPEC can't be read.
        ClusterUnavailableError: There is no such backend.
    """
    return find_cluster(ENV_CLUSTER_SPEC)


def find_cluster(*variables: str) -> Cluster:
    """Return the current cluster for a reader of these variables, the first that is set; see above."""
    chosen = _current.get()
    if chosen is not None:
        return chosen
    own = os.environ  # noqa: TID251 - the only reader of these variables
    variable = next((each for each in variables if own.get(each)), None)
    spec = "local" if variable is None else own[variable]
    if variable is None and own.get(_EARLIER) not in (None, "", "local"):
        _warn_of_earlier(own[_EARLIER])
    if variable == ENV_CLIENT_SPEC:
        spec = _without_threads(spec)
    key = (os.getpid(), spec)
    with _lock:
        if key not in _shared:
            _shared[key] = create_cluster(spec)
        return _shared[key]


def _warn_of_earlier(backend: str) -> None:
    advice = f"it isn't read, so jobs run on this machine; write {ENV_CLUSTER_SPEC}={backend}"
    warnings.warn(f"{_EARLIER}={backend}: {advice}", stacklevel=4)


def _without_threads(spec: str) -> str:
    """Return what an earlier API's spec of local jobs means here, with a warning."""
    if _CLIENT_THREADS.fullmatch(spec) is None:
        return spec
    advice = f"threads isn't used, since jobs are processes; write {ENV_CLUSTER_SPEC}=local"
    warnings.warn(f"{ENV_CLIENT_SPEC}={spec}: {advice}", stacklevel=4)
    return "local"


def set_current_cluster(cluster: Cluster | None) -> None:
    """Let `current_cluster` return this one in this context from now on; None undoes that.

    Raises:
        InvalidRequestError: It is no cluster.
    """
    _current.set(None if cluster is None else check_cluster(cluster))


def check_cluster(cluster: Any) -> Cluster:
    """Return what is a cluster.

    Raises:
        InvalidRequestError: It is none, such as a spec.
    """
    if not isinstance(cluster, Cluster):
        remedy = "Give a cluster, such as create_cluster('local'), or None."
        raise InvalidRequestError("cluster", f"is {show_value(cluster)}", remedy)
    return cluster
