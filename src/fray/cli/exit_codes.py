"""Which exit code tells a shell how a job ended, or what went wrong before it could run."""

from __future__ import annotations

from fray.errors import FrayError, JobError, RequestError, WaitTimeoutError
from fray.plan.status import find_condition
from fray.vocabulary import (
    EXIT_FAILURE,
    EXIT_SIGNAL_BASE,
    EXIT_TIMEOUT,
    EXIT_USAGE,
    ConditionType,
    Reason,
)
from fray.wire.status import FrayJobStatus

__all__ = ["EXIT_STOPPED", "derive_error_exit_code", "derive_exit_code"]

SIGTERM = 15
EXIT_STOPPED = EXIT_SIGNAL_BASE + SIGTERM
"""Another shell stopped the job."""
TIMEOUTS = (Reason.PENDING_TIMEOUT, Reason.ACTIVE_TIMEOUT, Reason.TOTAL_TIMEOUT)


def derive_exit_code(status: FrayJobStatus, *, signal_number: int | None = None) -> int:
    """Return the exit code for a finished job; `signal_number` is the signal that stopped it, if one did.

    0 for success, the first cause's own code for a failure, 124 for a timeout, 128 + N for a signal.
    """
    if _holds(status, ConditionType.SUCCEEDED):
        return 0
    if _holds(status, ConditionType.STOPPED):
        return EXIT_STOPPED if signal_number is None else EXIT_SIGNAL_BASE + signal_number
    if status.reason in TIMEOUTS:
        return EXIT_TIMEOUT
    code = status.attempts[-1].exit_code if status.attempts else None
    # A host can't have failed with 0; a file that says so must not turn a failure into a success.
    return code or EXIT_FAILURE


def derive_error_exit_code(error: FrayError) -> int:
    """Return the exit code for an error that ended the command: 2 where the request must be changed.

    124 where jobs were not waited for to their end.
    """
    if isinstance(error, JobError):
        return error.exit_code
    if isinstance(error, WaitTimeoutError):
        return EXIT_TIMEOUT
    return EXIT_USAGE if isinstance(error, RequestError) else EXIT_FAILURE


def _holds(status: FrayJobStatus, kind: ConditionType) -> bool:
    condition = find_condition(status, kind)
    return condition is not None and condition.status == "True"
