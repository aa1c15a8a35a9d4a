"""Which exit code tells a shell how a job ended, or what went wrong before it could run."""

from __future__ import annotations

from fray.errors import FrayError, JobError, RequestError, WaitTimeoutError
from fray.plan.status import derive_exit_code
from fray.vocabulary import EXIT_FAILURE, EXIT_TIMEOUT, EXIT_USAGE

__all__ = ["derive_error_exit_code", "derive_exit_code"]


def derive_error_exit_code(error: FrayError) -> int:
    """Return the exit code for an error that ended the command: 2 where the request must be changed.

    124 where jobs were not waited for to their end.
    """
    if isinstance(error, JobError):
        return error.exit_code
    if isinstance(error, WaitTimeoutError):
        return EXIT_TIMEOUT
    return EXIT_USAGE if isinstance(error, RequestError) else EXIT_FAILURE
