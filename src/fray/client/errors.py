"""What handles raise, under the names of an earlier API; they are the errors of every cluster."""

from __future__ import annotations

from fray.client.handle import JobHandle
from fray.errors import JobError, JobExistsError

__all__ = ["JobAlreadyExists", "JobFailed"]

JobFailed = JobError
"""A job that failed or was stopped: `job_id`, `status`, and as its cause what its callable raised."""


class JobAlreadyExists(JobExistsError, RuntimeError):  # noqa: N818 - name and base of an earlier API
    """A job of this name lives, and `submit` was asked not to adopt it; `handle` is that job's."""

    handle: JobHandle | None = None
