"""Actors that a process serves itself, such as the coordinator of jobs that it launches.

What serves them stands in `hosted_actors`, which few programs need.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fray.errors import UnsupportedFeatureError
from fray.job.actors import HostedActor

if TYPE_CHECKING:
    from fray.job.options import ActorOptions

__all__ = ["host_actor"]

A = TypeVar("A")


def host_actor(
    made_by: Callable[..., A] | A,
    /,
    *args: Any,
    name: str,
    options: ActorOptions | None = None,
    actor_config: ActorOptions | None = None,
    **kwargs: Any,
) -> HostedActor[A]:
    """Serve an object of this process as the actor `name`, which all jobs of this job's root find.

    They find it by `get_actor(name)`, or get its handle. It lives in this process and is never restarted:
    it ends with `HostedActor.shutdown`, with this process, and with the root job. Calls run here, one at a
    time, each in a copy of the present context.

    Args:
        made_by: A class or function, which is called with the arguments in the thread in which the actor's
            calls run; or the object itself.
        *args: Arguments of the constructor.
        name: What others find it by.
        options: `max_concurrency` is how many calls run at once. The rest means nothing here.
        actor_config: What an earlier API calls `options`.
        **kwargs: More arguments of the constructor.

    Returns:
        What ends it, with its handle.

    Raises:
        ActorExistsError: An actor that lives has the name.
        InvalidOptionError: There are arguments, and `made_by` is an object; or `name` is no text.
        UnsupportedFeatureError: This process is of no job, or of one whose pods can't be called.
        TransportError: The server can't be started.
        Exception: What the constructor raises.
    """
    from fray.job import hosted_actors  # noqa: PLC0415 - a server, and more that few need

    environ = os.environ  # noqa: TID251 - which job this is
    found = hosted_actors.find_hosting(environ)
    if found is None:
        raise UnsupportedFeatureError(
            f"hosting actor {name!r}",
            "this process is of no job whose others could call it",
            "Call host_actor in a job that has a callable or workers, or of a cluster on this machine: "
            "create_cluster('local').host_actor(...).",
        )
    hosted: HostedActor[A] = hosted_actors.serve(found, made_by, args, kwargs, name, options or actor_config)
    return hosted
