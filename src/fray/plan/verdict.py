"""Why an attempt ended, and which budget pays for it.

The named cause is the first host that ended badly: its peers crash too when a collective loses a
member, and theirs is not the story. What happens next is `lifecycle`.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from datetime import UTC, datetime

from fray.plan.observation import OOM_KILLED, START_FAILED, GangObservation, HostObservation, HostPhase
from fray.vocabulary import EXIT_SIGNAL_BASE, Reason, VerdictKind

__all__ = ["Cause", "derive_cause", "derive_charge"]

LOG_LINES = 5
LOG_LINE_LENGTH = 200
MESSAGE_LENGTH = 1000
LAST_SIGNAL = 64
"""Largest signal number of Linux; exit codes above are plain ones, such as the 255 of `sys.exit(-1)`."""
NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Cause:
    """The first cause of an attempt's end.

    `at` is when it happened; `host` is None where no host is to blame (a timeout, a stop).
    """

    reason: Reason
    message: str
    at: datetime
    host: HostObservation | None = None


def derive_cause(observed: GangObservation) -> Cause | None:
    """Return why the gang ended or is about to end by itself; None while all is well.

    One failed host is enough: a gang is atomic. Success needs all.
    """
    failed = [host for host in observed.hosts if host.phase is HostPhase.FAILED]
    if failed:
        # The rank breaks ties, so that the same observation always names the same host.
        first = min(failed, key=lambda host: (host.ended_at or NEVER, host.rank))
        reason, sentence = _describe(first)
        return Cause(reason, "\n".join([sentence, *_tail(first)]), first.ended_at or NEVER, first)
    if observed.succeeded:
        ends = [host.ended_at for host in observed.hosts if host.ended_at is not None]
        hosts = f"all {len(observed.hosts)} hosts" if len(observed.hosts) > 1 else "the host"
        return Cause(Reason.COMPLETED, f"{hosts} exited with code 0", max(ends, default=NEVER))
    return None


def derive_charge(reason: Reason) -> VerdictKind:
    """Return what an attempt that ended for this reason is charged to."""
    return {
        Reason.COMPLETED: VerdictKind.SUCCESS,
        Reason.STOP_REQUESTED: VerdictKind.STOPPED,
        Reason.SUSPENDED: VerdictKind.SUSPENDED,
        Reason.HOSTS_GONE: VerdictKind.PREEMPTION,
    }.get(reason, VerdictKind.FAILURE)


def _describe(host: HostObservation) -> tuple[Reason, str]:
    who = f"rank {host.rank} (slice {host.slice_index}, host {host.host})"
    code = host.exit_code
    if host.reason == START_FAILED:
        return Reason.START_FAILED, f"{who} could not start: {_flat(host.message) or 'no reason was given'}"
    if host.reason == OOM_KILLED:
        return Reason.OUT_OF_MEMORY, f"{who} ran out of memory (exit code {code})"
    if code is not None and EXIT_SIGNAL_BASE < code <= EXIT_SIGNAL_BASE + LAST_SIGNAL:
        name = _signal_name(code - EXIT_SIGNAL_BASE)
        return Reason.KILLED_BY_SIGNAL, f"{who} was killed by {name} (exit code {code})"
    if not code:
        # A pod can fail although its container exited with 0, as one that is evicted at that moment.
        why = _flat(host.message) or host.reason or f"it left {'no' if code is None else 'a zero'} exit code"
        return Reason.NON_ZERO_EXIT, f"{who} failed: {why}"
    return Reason.NON_ZERO_EXIT, f"{who} exited with code {code}"


def _flat(message: str | None) -> str:
    """Return a message as one line: a sentence holds it, and a termination message may be a whole log."""
    text = " ".join((message or "").split())
    return text if len(text) <= MESSAGE_LENGTH else text[: MESSAGE_LENGTH - 3] + "..."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail(host: HostObservation) -> list[str]:
    lines = [line.rstrip() for line in host.log_tail if line.strip()][-LOG_LINES:]
    return [line if len(line) <= LOG_LINE_LENGTH else line[: LOG_LINE_LENGTH - 3] + "..." for line in lines]
