"""Jobs as the first API had them: a shell command or a function of a context, by an id that is a text."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fray.cluster.base import Cluster
from fray.cluster.cluster_spec import LocalSpec
from fray.cluster.current import current_cluster
from fray.cluster.local.requests import is_installed
from fray.cluster.local_cluster import LocalCluster
from fray.cluster.ray import RayCluster
from fray.errors import InvalidRequestError
from fray.job import JobContext
from fray.legacy.gang_calls import call_on_slices
from fray.legacy.job_body import call_with_context
from fray.legacy.runtime_env import RuntimeEnv
from fray.legacy.tpu_topology import TpuRunConfig
from fray.types import Entrypoint, JobId, JobInfo, JobRequest

__all__ = ["ClusterContext", "ContextJob", "LocalClusterContext", "RayClusterContext"]


@dataclass(frozen=True)
class ContextJob:
    """How a job stands: attributes, and the same by key. Times are seconds since the epoch.

    `status` is PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED. `submission_time` is None for jobs that
    another object launched and that haven't started.
    """

    id: str
    status: str
    submission_time: float | None
    start_time: float | None = None
    end_time: float | None = None

    def __getitem__(self, key: str) -> Any:
        if key not in self.__dataclass_fields__:
            raise KeyError(key)
        return getattr(self, key)


class ClusterContext:
    """Jobs of a cluster, the current one where none is given."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._cluster = current_cluster() if cluster is None else cluster
        self._submitted: dict[str, float] = {}

    @property
    def cluster(self) -> Cluster:
        """The cluster, which can do more with the same ids: wait, logs."""
        return self._cluster

    def create_job(self, entrypoint: str | Callable[[JobContext], Any], env: RuntimeEnv | None = None) -> str:
        """Start a job and return its id, at once.

        Args:
            entrypoint: A command for `sh`, or a callable, which gets the context of its process.
            env: What it finds there.

        Raises:
            RequestError: It can't be run as it is; nothing was started.
            SurroundingsError: The machine or the cluster doesn't let it; nothing is left behind.
        """
        asked = RuntimeEnv() if env is None else env
        if isinstance(entrypoint, str) and entrypoint.strip():
            name, what = "job", Entrypoint.from_command(["sh", "-c", entrypoint])
        elif callable(entrypoint):
            name = getattr(entrypoint, "__name__", "job").strip("<>")
            what = Entrypoint.from_callable(call_with_context, [entrypoint])
        else:
            remedy = "Give a shell command, such as 'python train.py', or a function of a context."
            raise InvalidRequestError("entrypoint", "is no text and can't be called", remedy)
        request = JobRequest(name, what, asked.to_resources(), asked.to_environment())
        submitted = time.time()
        job_id = self._choose_cluster(asked).launch(request)
        self._submitted[job_id] = submitted
        return job_id

    def run_on_tpu(
        self, fn: Callable[[JobContext], Any], config: TpuRunConfig, runtime_env: RuntimeEnv | None = None
    ) -> list[Any]:
        """Call a function with the context of its process on every host of TPU slices; see `run_on_pod`."""
        return call_on_slices(self._cluster, fn, config, runtime_env, with_context=True)

    def list_jobs(self) -> list[ContextJob]:
        """Return all jobs of the cluster, those that have finished included, sorted by id."""
        return [self._describe(info) for info in self._cluster.list_jobs()]

    def delete_job(self, job_id: str) -> None:
        """End a job, and return once it has ended; it is still listed. One that has ended doesn't mind.

        Raises:
            JobNotFoundError: There is no such job. It is a KeyError, too.
        """
        self._cluster.terminate(JobId(job_id))
        self._cluster.wait(JobId(job_id))

    def _choose_cluster(self, env: RuntimeEnv) -> Cluster:
        del env
        return self._cluster

    def _describe(self, info: JobInfo) -> ContextJob:
        submitted = self._submitted.get(info.job_id, info.start_time)
        return ContextJob(info.job_id, info.status.upper(), submitted, info.start_time, info.end_time)


class LocalClusterContext(ClusterContext):
    """Jobs of this machine, each a process. Where packages are missing, in an environment of its own."""

    def __init__(self) -> None:
        super().__init__(LocalCluster())
        self._isolating: Cluster | None = None

    def _choose_cluster(self, env: RuntimeEnv) -> Cluster:
        if all(map(is_installed, env.package_requirements)):
            return self._cluster
        if self._isolating is None:
            self._isolating = LocalCluster(LocalSpec(use_isolated_env=True))
        return self._isolating


class RayClusterContext(ClusterContext):
    """Jobs of a Ray cluster: `dashboard_address` counts before `address`; see `RayCluster`."""

    def __init__(self, address: str | None = None, dashboard_address: str | None = None) -> None:
        super().__init__(RayCluster(address, dashboard_address))
