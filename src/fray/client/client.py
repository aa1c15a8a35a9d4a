"""Submitting jobs, which living job of a name is taken for the one asked for, and the current client."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from fray.client.errors import JobAlreadyExists
from fray.client.handle import JobHandle
from fray.cluster.arguments import WhenTaken
from fray.cluster.base import Cluster
from fray.cluster.current import check_cluster, find_cluster
from fray.errors import JobExistsError
from fray.types import JobId, JobRequest
from fray.vocabulary import ENV_CLIENT_SPEC, ENV_CLUSTER_SPEC

if TYPE_CHECKING:
    from fray.job.actor_groups import ActorGroup
    from fray.job.actors import ActorHandle, HostedActor

__all__ = ["Client", "current_client", "set_current_client"]

A = TypeVar("A")


class Client:
    """Submits jobs to a cluster.

    Args:
        cluster: Where they run; when None, the one of `set_current_cluster`, else the one that
            FRAY_CLIENT_SPEC names, else FRAY_CLUSTER_SPEC, else this machine.
        adopt_existing: What `submit` does by default.

    Raises:
        ClusterSpecError: The variable can't be read.
        ClusterUnavailableError: There is no such backend.
        InvalidRequestError: `cluster` is no cluster.
    """

    def __init__(self, cluster: Cluster | None = None, *, adopt_existing: bool | None = None) -> None:
        if cluster is None:
            self._cluster = find_cluster(ENV_CLIENT_SPEC, ENV_CLUSTER_SPEC)
        else:
            self._cluster = check_cluster(cluster)
        self._adopt_existing = adopt_existing

    @property
    def cluster(self) -> Cluster:
        """Where its jobs run."""
        return self._cluster

    def submit(self, request: JobRequest, adopt_existing: bool | None = None) -> JobHandle:  # noqa: FBT001 - as earlier APIs have it
        """Start a job and return its handle, at once.

        Args:
            request: What to run.
            adopt_existing: Where a job of this name lives: True returns its handle, whatever launched it,
                and False raises. By default (None) only a launcher that is a job itself, and that was
                started anew, gets the handle of a job that it launched before; else the new job is another
                one, whose id has a number.

        Raises:
            RequestError: It can't be run as it is; nothing was started.
            JobAlreadyExists: A job of this name lives, and `adopt_existing` is False.
            SurroundingsError: The machine or the cluster doesn't let it; nothing is left behind.
        """
        asked = self._adopt_existing if adopt_existing is None else adopt_existing
        when_taken: WhenTaken = "resume" if asked is None else "adopt" if asked else "refuse"
        try:
            job_id = self._cluster.launch(request, when_taken=when_taken)
        except JobExistsError as taken:
            raise JobAlreadyExists(taken.name, JobHandle(self._cluster, JobId(taken.name))) from taken
        return JobHandle(self._cluster, job_id)

    def attach(self, job_id: JobId | str) -> JobHandle:
        """Return the handle of a job that is there, such as one that an earlier process launched.

        Raises:
            JobNotFoundError: There is no such job. It is a KeyError, too.
        """
        return JobHandle(self._cluster, self._cluster.poll(JobId(job_id)).job_id)

    def get_actor(self, name: str) -> ActorHandle[Any]:
        """Return the handle of an actor of the cluster; see `Cluster.get_actor`."""
        return self._cluster.get_actor(name)

    def create_actor(self, cls: Callable[..., A], /, *args: Any, name: str, **kwargs: Any) -> ActorHandle[A]:
        """Create an actor that lives until it is ended; see `Cluster.create_actor`, which has all options."""
        return self._cluster.create_actor(cls, *args, name=name, **kwargs)

    def create_actor_group(
        self, cls: Callable[..., A], /, *args: Any, name: str, count: int, **kwargs: Any
    ) -> ActorGroup[A]:
        """Create a group of actors; see `Cluster.create_actor_group`."""
        return self._cluster.create_actor_group(cls, *args, name=name, count=count, **kwargs)

    def host_actor(
        self, made_by: Callable[..., A] | A, /, *args: Any, name: str, **kwargs: Any
    ) -> HostedActor[A]:
        """Serve an object of this process as an actor; see `Cluster.host_actor`, which has all options."""
        return self._cluster.host_actor(made_by, *args, name=name, **kwargs)

    def shutdown(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002 - as the earlier API has it
        """Do nothing: jobs live on without the client; `JobHandle.terminate` ends one."""

    def __repr__(self) -> str:
        return f"Client({self._cluster!r})"


_current: ContextVar[Client | None] = ContextVar("fray_current_client", default=None)


def current_client() -> Client:
    """Return the client of `set_current_client`, else one of the current cluster; see `Client`.

    Inside a job that is the cluster of the job.

    Raises:
        ClusterSpecError: FRAY_CLIENT_SPEC or FRAY_CLUSTER_SPEC can't be read.
        ClusterUnavailableError: There is no such backend.
    """
    return _current.get() or Client()


@contextlib.contextmanager
def set_current_client(client: Client) -> Iterator[Client]:
    """Let `current_client` return this one within the block."""
    token = _current.set(client)
    try:
        yield client
    finally:
        _current.reset(token)
