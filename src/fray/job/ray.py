"""Contexts on Ray: on one that is started here, or on one that runs already.

The engine itself is in `ray_engine`. Nothing here imports Ray before a context on it is asked for.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from fray.errors import ContextUnavailableError, InvalidOptionError
from fray.job.checks import check_count, check_resources
from fray.job.context import JobContext
from fray.job.engine_pods import describe_packages
from fray.job.ray_node import answers
from fray.job.ray_start import start_here
from fray.runtime.pool.transport.addresses import Address
from fray.vocabulary import ENV_RAY_ADDRESS

if TYPE_CHECKING:
    from fray.job.ray_values import RaySession

__all__ = ["RayContext", "check_installed", "is_joined", "join", "join_pool", "start"]

EXTRA: Final = "Install it: pip install 'fray[ray]'."
LATER: Final = "Try again when the machine is less busy; Ray's logs are in /tmp/ray/session_latest/logs."
WHERE: Final = "Give the address of its head, host:port, from a machine of its network; or 'auto' beside it."
IN_PODS: Final = describe_packages("ray")
_started: str | None = None
"""The address of the Ray that a context of this process has started."""


def start(
    max_workers: int | None = None,
    *,
    resources: Mapping[str, float] | None = None,
    memory: int | None = None,
    address: str | None = None,
    namespace: str | None = None,
    **options: Any,
) -> JobContext:
    """Return a context on the Ray of this process; else on that at `address`; else on a new one.

    A new one is on this machine, has `max_workers` CPUs (None: as many as there are), further `resources`
    and `memory` for objects, in bytes, and ends with the context. On one that runs already, `max_workers`
    bounds the CPUs of the context's tasks. Actors' names are known in `namespace` (None: in this context
    alone). Further `options` are those of `ray.init`.

    Raises `ContextUnavailableError` without Ray, where it gives up to start and where nobody answers at the
    address, `InvalidOptionError` for a Ray Client's address.
    """
    check_installed()
    import ray  # noqa: PLC0415 - an extra, and a second to import

    if max_workers is not None:
        check_count("max_workers", max_workers, 1)
    resources = check_resources(resources)
    if ray.is_initialized():
        return join(max_workers, namespace=namespace)
    if address is not None and address.startswith("ray://"):
        legal = "the address of Ray's head, host:port, from a machine of its network; or 'auto'"
        raise InvalidOptionError("address", repr(address), legal)
    if address is not None:
        host, _, port = address.rpartition(":")
        # Ray itself would ask for minutes.
        if port.isdigit() and not answers(Address(host=host.strip("[]"), port=int(port))):
            raise ContextUnavailableError("ray", f"no Ray answers at {address}", WHERE)
        try:
            ray.init(address=address, namespace=namespace, **options)
        except ConnectionError as error:
            reason = f"no Ray answers at {address} ({error})"
            raise ContextUnavailableError("ray", reason, WHERE) from error
        return join(max_workers, namespace=namespace, stop=True)
    global _started  # noqa: PLW0603 - a process has one Ray
    others = dict(resources or {})
    new: dict[str, Any] = {
        "num_cpus": max_workers,
        "object_store_memory": memory,
        "include_dashboard": False,
    }
    if "GPU" in others:
        new["num_gpus"] = others.pop("GPU")  # Ray refuses it among the others
    try:
        start_here(namespace=namespace, resources=others or None, **(new | options))
    except OSError as error:
        raise ContextUnavailableError("ray", str(error), LATER) from error
    _started = ray.get_runtime_context().gcs_address
    return join(namespace=namespace, stop=True)


def join_pool(environ: Mapping[str, str]) -> JobContext:
    """Return a context on the Ray of the job that `environ` names; its workers are the job's.

    Raises `ContextUnavailableError` without Ray, and what `ray.init` raises.
    """
    check_installed(IN_PODS)
    return start(address=environ.get(ENV_RAY_ADDRESS) or "auto")


def check_installed(fix: str = EXTRA) -> None:
    """Raise `ContextUnavailableError`, with what to do, where Ray can't be imported."""
    try:
        import ray  # noqa: F401, PLC0415 - see `start`
    except ImportError as error:
        raise ContextUnavailableError("ray", f"Ray can't be imported ({error})", fix) from error


def is_joined() -> bool:
    """Return whether this process has a Ray already, without importing it."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(getattr(ray, "is_initialized", bool)())


def join(max_workers: int | None = None, *, namespace: str | None = None, stop: bool = False) -> JobContext:
    """Return a context on the Ray that this process has; in a task of another context on it, that context.

    With `stop`, the Ray ends with the context, or is left by this process where others have started it.
    """
    import ray  # noqa: PLC0415 - see `start`

    from fray.job.ray_engine import RayEngine, latest_context  # noqa: PLC0415 - which needs Ray

    latest = latest_context()
    if latest is not None:
        return latest
    session = _make_session(max_workers, namespace)
    return JobContext(RayEngine(session, driver=True, stop=ray.shutdown if stop else None))


def _make_session(max_workers: int | None, namespace: str | None) -> RaySession:
    import ray  # noqa: PLC0415 - see `start`
    from ray.util import placement_group  # noqa: PLC0415 - see `start`

    from fray.job.ray_values import RaySession  # noqa: PLC0415 - which needs Ray

    token = f"ray-{uuid.uuid4().hex[:8]}"
    cluster = ray.get_runtime_context().gcs_address
    cpus = 0
    if max_workers is not None and max_workers < ray.cluster_resources().get("CPU", 0):
        cpus = max_workers
        # Tasks wait for the group, as they wait for free CPUs.
        placement_group([{"CPU": 1}] * cpus, name=token)
    return RaySession(token, cluster, namespace or token, cpus, fixed=cluster == _started)


def RayContext(max_workers: int | None = None, **options: Any) -> JobContext:  # noqa: N802 - it was a class
    """Return a context on Ray; see `start`."""
    return start(max_workers, **options)
