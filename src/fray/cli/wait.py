"""`fray wait`: until jobs have finished; how they ended, and the first bad ending's exit code."""

from __future__ import annotations

from collections.abc import Sequence

from fray.cli.backend import Backend
from fray.cli.exit_codes import derive_exit_code
from fray.cli.listing import print_lines
from fray.cli.story import describe_end
from fray.cli.streams import Stream

__all__ = ["wait_for_jobs"]


def wait_for_jobs(names: Sequence[str], *, timeout: float | None, backend: Backend, notes: Stream) -> int:
    """Wait for jobs, tell how each ended, and return the exit code of the first that didn't succeed.

    Raises:
        JobNotFoundError: There is no such job.
        WaitTimeoutError: Not all have finished within `timeout` seconds.
    """
    jobs = backend.wait_finished(names, timeout)
    for job in jobs:
        print_lines(describe_end(job), notes)
    codes = (derive_exit_code(job.status) for job in jobs)
    return next((code for code in codes if code), 0)
