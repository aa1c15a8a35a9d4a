"""What handles raise, under the names of an earlier API; they are the errors of every cluster."""

from __future__ import annotations

from fray.errors import JobError, JobExistsError

__all__ = ["JobAlreadyExists", "JobFailed"]

JobFailed = JobError
"""A job that failed or was stopped: `job_id`, `status`, and as its cause what its callable raised."""
JobAlreadyExists = JobExistsError
"""A job of this name lives, and `submit` was told not to adopt it: `job_name`."""
