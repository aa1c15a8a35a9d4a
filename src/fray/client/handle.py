"""A job in one's hand, and waiting for several of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from fray.cluster.base import Cluster
from fray.errors import InvalidRequestError
from fray.types import JobId, JobInfo, JobStatus
from fray.types.checks import is_whole_number, show_value

__all__ = ["JobHandle", "wait_all"]


class JobHandle:
    """A job of a cluster. It lives on when nobody has its handle; `Client.attach` makes another one.

    Handles of the same job are equal. A handle can be pickled where its cluster can.
    """

    def __init__(self, cluster: Cluster, job_id: JobId) -> None:
        self._cluster = cluster
        self._job_id = job_id

    @property
    def job_id(self) -> JobId:
        """What the cluster calls the job: the name of its request, with a number where that was taken."""
        return self._job_id

    @property
    def cluster(self) -> Cluster:
        """Where it runs; its `logs` follow the job as it runs, and its `outcome` has what was returned."""
        return self._cluster

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        """Return how the job ended, once it has.

        Args:
            timeout: Seconds to wait at most; None waits for as long as it takes.
            raise_on_failure: Raise where it ended in anything but success.

        Raises:
            JobFailed: It failed or was stopped; what its callable raised is the error's cause.
            WaitTimeoutError: It hasn't ended in time, and runs on. It is a TimeoutError, too.
            JobNotFoundError: It was deleted.
        """
        return self._cluster.wait(self._job_id, raise_on_failure=raise_on_failure, timeout=timeout).status

    def status(self) -> JobStatus:
        """Return how the job stands now; raises `JobNotFoundError` where it was deleted."""
        return self.info().status

    def info(self) -> JobInfo:
        """Return how the job stands now, and why; raises `JobNotFoundError` where it was deleted."""
        return self._cluster.poll(self._job_id)

    def result(self, timeout: float | None = None) -> Any:
        """Return what the job's callable returned on rank 0, once it has; None for a program.

        Raises as `wait` does, and:
            OutcomeUnreadableError: The value couldn't be kept or can't be had.
        """
        self.wait(timeout)
        outcome = self._cluster.outcome(self._job_id)
        return None if outcome is None else outcome.result()

    def logs(self, max_lines: int = 0) -> tuple[str, ...]:
        """Return what its hosts printed so far, each line with where it is from: `[slice/host attempt]`.

        Args:
            max_lines: Only the last lines, so many; 0 for all.

        Raises:
            JobNotFoundError: It was deleted.
            InvalidRequestError: `max_lines` is no number from 0.
        """
        if not is_whole_number(max_lines) or max_lines < 0:
            problem = f"is {show_value(max_lines)}"
            raise InvalidRequestError("max_lines", problem, "Give a number from 1, or 0 for all.")
        lines = self._cluster.logs(self._job_id)
        return tuple(str(line) for line in deque(lines, maxlen=max_lines or None))

    def terminate(self) -> None:
        """Ask the job to end; `wait` tells when it has. One that has ended doesn't mind.

        Raises:
            JobNotFoundError: It was deleted.
        """
        self._cluster.terminate(self._job_id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JobHandle):
            return NotImplemented
        return (str(self._cluster.spec), self._job_id) == (str(other._cluster.spec), other._job_id)

    def __hash__(self) -> int:
        return hash(self._job_id)

    def __repr__(self) -> str:
        return f"JobHandle({self._job_id!r})"


def wait_all(
    jobs: Iterable[JobHandle], *, timeout: float | None = None, raise_on_failure: bool = True
) -> list[JobStatus]:
    """Return how jobs ended, once all have, in their order; raise as soon as one didn't succeed.

    Args:
        jobs: Handles of one cluster.
        timeout: Seconds to wait at most; None waits for as long as it takes.
        raise_on_failure: Raise for the first that ends in anything but success, at once; the others run on.

    Raises:
        JobFailed: One failed or was stopped; what its callable raised is the error's cause.
        WaitTimeoutError: Not all have ended in time; they run on. It is a TimeoutError, too.
        JobNotFoundError: One was deleted.
        InvalidRequestError: They are no handles, or of several clusters.
    """
    handles = _list_handles(jobs)
    if not handles:
        return []
    cluster = handles[0].cluster
    if any(handle.cluster is not cluster for handle in handles):
        remedy = "Wait for those of each cluster on their own; jobs of one client are of one cluster."
        raise InvalidRequestError("jobs", "are of several clusters", remedy)
    ids = [handle.job_id for handle in handles]
    return [info.status for info in cluster.wait(ids, fail_fast=raise_on_failure, timeout=timeout)]


def _list_handles(jobs: Any) -> list[JobHandle]:
    remedy = "Give a list of handles, as submit() and attach() return them; Cluster.wait takes ids."
    if not isinstance(jobs, Iterable):
        raise InvalidRequestError("jobs", f"is {show_value(jobs)}, no list", remedy)
    handles = list(jobs)
    for each in handles:
        if not isinstance(each, JobHandle):
            raise InvalidRequestError("jobs", f"holds {show_value(each)}, no handle", remedy)
    return handles
