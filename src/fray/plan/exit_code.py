"""Which exit code a finished job has: what a shell is told, and what its errors hold.

Pure. What a command says besides, for signals and errors of its own, is the command line's.
"""

from __future__ import annotations

from fray.plan.reasons import get_row
from fray.plan.status import find_condition
from fray.vocabulary import EXIT_FAILURE, EXIT_SIGNAL_BASE, EXIT_TIMEOUT, ConditionType
from fray.wire.status import FrayJobStatus

__all__ = ["derive_exit_code"]

SIGTERM = 15
"""What hosts get where another shell, or another program, stops a job."""


def derive_exit_code(status: FrayJobStatus, *, signal_number: int | None = None) -> int:
    """Return the exit code of a finished job; `signal_number` is the signal that stopped it, if one did.

    0 for success, the first cause's own code for a failure, 124 for a time limit, 128 + N for a signal.
    """
    if _holds(status, ConditionType.SUCCEEDED):
        return 0
    if _holds(status, ConditionType.STOPPED):
        return EXIT_SIGNAL_BASE + (SIGTERM if signal_number is None else signal_number)
    if get_row(status.reason).timeout:
        return EXIT_TIMEOUT
    code = status.attempts[-1].exit_code if status.attempts else None
    # A host can't have failed with 0; a file that says so must not turn a failure into a success.
    return code or EXIT_FAILURE


def _holds(status: FrayJobStatus, kind: ConditionType) -> bool:
    condition = find_condition(status, kind)
    return condition is not None and condition.status == "True"
