"""Fray runs the same Python jobs on a laptop and on a Kubernetes cluster.

Every public name is here and is imported when it is first used (PEP 562), so that `import fray` costs next
to nothing. Completion and a star import give those that new programs use; errors and names of earlier APIs
can be imported as well. Nothing is defined here; `fray.offered_names` lists where names stand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fray.offered_names import ROOT_HOMES, find_offered, list_users_names

if TYPE_CHECKING:
    from fray.actor import ActorFuture as ActorFuture
    from fray.client import *  # noqa: F403 - its `__all__` is the list, as with the others
    from fray.cluster import *  # noqa: F403
    from fray.device_flops import FlopDtype as FlopDtype
    from fray.errors import *  # noqa: F403
    from fray.job import *  # noqa: F403
    from fray.job.dask import DaskContext as DaskContext
    from fray.job.ray import RayContext as RayContext
    from fray.job_context import ExecutionContext as ExecutionContext
    from fray.job_context import LocalJobContext as LocalJobContext
    from fray.legacy.gang_calls import *  # noqa: F403
    from fray.legacy.runtime_env import *  # noqa: F403
    from fray.legacy.tpu_topology import *  # noqa: F403
    from fray.local_backend import *  # noqa: F403
    from fray.ray_backend import RayClient as RayClient
    from fray.runtime.identity import Identity as Identity
    from fray.runtime.identity import IdentityError as IdentityError
    from fray.runtime.identity import current_identity as current_identity

    __version__: str

if not TYPE_CHECKING:  # else mypy would find no misspelt name

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            value: Any = __dir__()
        elif name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 - takes longer than all the rest

            value = version("fray")
        else:
            value = find_offered(__name__, name, ROOT_HOMES)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*list_users_names(), "__version__"])
