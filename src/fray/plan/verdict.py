"""Why an attempt ended, and which budget pays for it.

The named cause is the first host that ended badly: its peers crash too when a collective loses a
member, and theirs is not the story. What happens next is `lifecycle`.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fray.plan.observation import (
    DEADLINE_EXCEEDED,
    EVICTED_FOR_USE,
    NEVER_RAN,
    OOM_KILLED,
    START_FAILED,
    GangObservation,
    HostObservation,
    HostPhase,
)
from fray.plan.reasons import REASONS, find_unrun, get_row
from fray.plan.remains import recall_disruption
from fray.plan.texts import flatten
from fray.plan.timestamps import CLOCK_SKEW
from fray.vocabulary import (
    EXIT_SIGNAL_BASE,
    Reason,
)
from fray.wire.status import AttemptStatus

__all__ = [
    "Cause",
    "derive_cause",
    "derive_settling",
    "describe_disruption",
    "find_first_end",
    "is_uncertain",
    "is_uncertain_end",
]

LOG_LINES = 5
LOG_LINE_LENGTH = 200
MESSAGE_LENGTH = 1000
LAST_SIGNAL = 64
"""Largest signal number of Linux; exit codes above are plain ones, such as the 255 of `sys.exit(-1)`."""
NO_PYTHON = 'exec: "python3": executable file not found'
"""A container runtime's words; python3 starts callables, and what has a workspace or packages."""
NO_PYTHON_REMEDY = "the image has no python3, which functions need: use one that has"
UNEXPLAINED = frozenset({HostPhase.DELETED, HostPhase.GONE})
"""Ends that don't tell whether the host would have failed by itself."""
NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Cause:
    """The first cause of an attempt's end.

    `message` is one sentence, `log_tail` what was written last. `at` is when it happened; `host` is None
    where no host is to blame (a timeout, a stop).
    """

    reason: Reason
    message: str
    at: datetime
    host: HostObservation | None = None
    log_tail: tuple[str, ...] = ()


def derive_cause(observed: GangObservation) -> Cause | None:
    """Return why the gang ended or is about to end by itself; None while all is well.

    One failed host is enough: a gang is atomic. So is one that JobSet is about to remove. Success needs all.
    """
    failed = [host for host in observed.hosts if host.failed]
    if failed:
        first = min(failed, key=_order)
        reason, sentence = _describe(first)
        if first.disruption is not None:
            reason, sentence = Reason.DISRUPTED, _disrupted(first)
        elif not REASONS[reason].own_doing and (disruption := describe_disruption(observed)) is not None:
            # The peers of a host that is taken away crash too, often before it has gone.
            reason, sentence = Reason.DISRUPTED, f"{sentence}; {disruption}"
        elif not REASONS[reason].own_doing and (misplaced := _find_misplaced(observed)) is not None:
            return _misplaced(misplaced)
        elif not REASONS[reason].certain and _is_taken(failed):
            reason, sentence = Reason.HOSTS_GONE, _deleted(first, sentence)
        return Cause(reason, sentence, first.ended_at or NEVER, first, _tail(first))
    if (misplaced := _find_misplaced(observed)) is not None:
        return _misplaced(misplaced)
    if observed.succeeded:
        ends = [host.ended_at for host in observed.hosts if host.ended_at is not None]
        hosts = f"all {len(observed.hosts)} hosts" if len(observed.hosts) > 1 else "the host"
        return Cause(Reason.COMPLETED, f"{hosts} exited with code 0", max(ends, default=NEVER))
    return None


def describe_disruption(observed: GangObservation) -> str | None:
    """Return which host is or was taken away from outside, None where there is no sign of that."""
    signs = [host for host in observed.hosts if host.disruption is not None]
    return _disrupted(min(signs, key=lambda host: host.rank)) if signs else None


def is_uncertain(attempt: AttemptStatus, observed: GangObservation) -> bool:
    """Return whether a host failed, and what is known so far doesn't tell whether it was at fault."""
    if describe_disruption(recall_disruption(attempt, observed)) is not None:
        return False
    if attempt.reason is not None:
        return not get_row(attempt.reason).certain
    cause = derive_cause(observed)
    return cause is not None and not REASONS[cause.reason].certain


def is_uncertain_end(host: HostObservation) -> bool:
    """Return whether what is known of a host that failed is its exit code at most."""
    return not REASONS[_describe(host)[0]].certain


def find_first_end(observed: GangObservation) -> datetime | None:
    """Return when the first host failed, None when none has or nothing tells when."""
    ends = (host.ended_at for host in observed.hosts if host.failed)
    return min((end for end in ends if end is not None), default=None)


def derive_settling(observed: GangObservation, *, now: datetime, seconds: float) -> datetime | None:
    """Return until when the end of a gang that failed for an uncertain reason isn't judged, None: it is.

    Evidence of the true cause may come `seconds` after the first failure. A host's clock that is ahead by
    more than clocks may differ isn't waited for.
    """
    first = find_first_end(observed)
    if first is None or first > now + CLOCK_SKEW:
        return None
    until = first + timedelta(seconds=seconds)
    return until if now < until else None


def _order(host: HostObservation) -> tuple[bool, datetime, bool, int]:
    """Return by what the first of those that failed is found.

    Peers are deleted when a host fails, often within the second that times in pods tell, so they come after
    it; and they crash in it, so that in the same second one whose end explains itself is the first. The rank
    breaks ties, so that the same observation always names the same host.
    """
    taken = host.disruption is not None
    follows = not taken and host.phase in UNEXPLAINED
    unexplained = not taken and is_uncertain_end(host)
    return follows, host.ended_at or NEVER, unexplained, host.rank


def _describe(host: HostObservation) -> tuple[Reason, str]:
    who = _who(host)
    code = host.exit_code
    if host.reason == START_FAILED:
        return Reason.START_FAILED, f"{who} could not start: {_describe_start_error(host.message)}"
    if host.reason == EVICTED_FOR_USE:
        return Reason.EVICTED, f"{who} was evicted for what it used itself: {_line(host.message)}"
    if host.reason == DEADLINE_EXCEEDED:
        what = "ran longer than activeDeadlineSeconds of its podTemplate allows, and was ended"
        return Reason.DEADLINE_EXCEEDED, f"{who} {what}"
    if host.reason == NEVER_RAN and (unrun := find_unrun(code)) is not None:
        return unrun, f"{who} {REASONS[unrun].unrun} (exit code {code})"
    if host.reason == OOM_KILLED:
        return Reason.OUT_OF_MEMORY, f"{who} ran out of memory (exit code {code})"
    if code is not None and EXIT_SIGNAL_BASE < code <= EXIT_SIGNAL_BASE + LAST_SIGNAL:
        name = _signal_name(code - EXIT_SIGNAL_BASE)
        return Reason.KILLED_BY_SIGNAL, f"{who} was killed by {name} (exit code {code})"
    if host.phase is HostPhase.GONE:
        return Reason.NON_ZERO_EXIT, f"{who} failed: its pod is gone, and nothing tells how it ended"
    if not code:
        # A pod can fail although its container exited with 0, as one that is evicted at that moment.
        why = _line(host.message) or host.reason or f"it left {'no' if code is None else 'a zero'} exit code"
        return Reason.NON_ZERO_EXIT, f"{who} failed: {why}"
    return Reason.NON_ZERO_EXIT, f"{who} exited with code {code}"


def _who(host: HostObservation) -> str:
    return f"rank {host.rank} (slice {host.slice_index}, host {host.host})"


def _disrupted(host: HostObservation) -> str:
    return f"{_who(host)} was taken away ({_line(host.disruption.text if host.disruption else None)})"


def _is_taken(failed: Sequence[HostObservation]) -> bool:
    """Return whether hosts failed because somebody deleted their pods.

    The peers of a host that failed are deleted too, so one that failed by itself is the cause, whenever it
    did: clocks of nodes differ. Of a host that is gone nothing is known.
    """
    phases = {host.phase for host in failed}
    return HostPhase.DELETED in phases and phases <= UNEXPLAINED


def _deleted(host: HostObservation, sentence: str) -> str:
    if host.exit_code is None and host.started_at is None:
        return f"{_who(host)} never ran: its pod was deleted from outside"
    return f"{sentence}: its pod was deleted from outside"


def _find_misplaced(observed: GangObservation) -> HostObservation | None:
    return min((host for host in observed.hosts if host.misplaced), key=lambda host: host.rank, default=None)


def _misplaced(host: HostObservation) -> Cause:
    where = f" on node {host.node}" if host.node else ""
    message = f"{_who(host)} was placed{where} outside its slice's node pool, and removed by JobSet"
    return Cause(Reason.EXCLUSIVE_PLACEMENT_VIOLATION, message, host.ended_at or NEVER, host)


def _line(text: str | None) -> str:
    return flatten(text or "", most=MESSAGE_LENGTH)


def _describe_start_error(message: str | None) -> str:
    """Return why a host could not start, and what to do where a runtime's words leave that to be guessed."""
    text = _line(message) or "no reason was given"
    return f"{text}; {NO_PYTHON_REMEDY}" if NO_PYTHON in (message or "") else text


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail(host: HostObservation) -> tuple[str, ...]:
    lines = [line.rstrip() for line in host.log_tail if line.strip()][-LOG_LINES:]
    return tuple(
        line if len(line) <= LOG_LINE_LENGTH else line[: LOG_LINE_LENGTH - 3] + "..." for line in lines
    )
