"""`fray wait`, `fray stop` and `fray delete`: until jobs have finished, and how they ended."""

from __future__ import annotations

from collections.abc import Sequence

from fray.cli.listing import print_lines
from fray.cli.story import describe_end
from fray.cli.streams import OutputStream
from fray.cluster.base import Cluster
from fray.errors import JobNotRunningError, WaitTimeoutError
from fray.plan.status import derive_exit_code, is_finished
from fray.types import JobId
from fray.wire.frayjob import FrayJob

__all__ = ["delete_jobs", "stop_jobs", "wait_for_jobs"]


def wait_for_jobs(
    names: Sequence[str], *, timeout: float | None, cluster: Cluster, notes: OutputStream
) -> int:
    """Wait for jobs, tell how each ended, and return the exit code of the first that didn't succeed.

    Raises:
        JobNotFoundError: There is no such job.
        WaitTimeoutError: Not all have finished within `timeout` seconds.
    """
    jobs = cluster.wait_finished([JobId(name) for name in names], timeout)
    unfinished = tuple(job.metadata.name for job in jobs if not is_finished(job.status))
    if unfinished and timeout is not None:
        raise WaitTimeoutError(unfinished, timeout)
    for job in jobs:
        print_lines(describe_end(job), notes)
    codes = (derive_exit_code(job.status) for job in jobs)
    return next((code for code in codes if code), 0)


def stop_jobs(jobs: Sequence[FrayJob], *, wait: bool, cluster: Cluster, notes: OutputStream) -> None:
    """Ask jobs to end, and tell how each stands; with `wait` once all have ended."""
    running = [job.metadata.name for job in jobs if not is_finished(job.status)]
    for job in jobs:
        if is_finished(job.status):
            # A job that has finished is what it is, and stopping it changes nothing.
            notes.write(f"{JobNotRunningError(job.metadata.name, job.status.phase or '')}\n")
    for name in running:
        cluster.terminate(JobId(name))
    ended = cluster.wait_finished([JobId(name) for name in running]) if wait and running else []
    phases = {job.metadata.name: (job.status.phase or "").lower() for job in ended}
    for name in running:
        notes.write(f"{name}: {phases.get(name, 'asked to stop')}\n")


def delete_jobs(jobs: Sequence[FrayJob], *, cluster: Cluster, output: OutputStream) -> None:
    """Remove jobs, and tell of each as kubectl does."""
    for job in jobs:
        cluster.delete(JobId(job.metadata.name))
        output.write(f"frayjob.fray.dev/{job.metadata.name} deleted\n")
