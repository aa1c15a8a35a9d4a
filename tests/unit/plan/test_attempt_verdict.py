"""Why an attempt ended, in whose name, and which budget pays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.plan.observation import OOM_KILLED, START_FAILED, GangObservation, HostObservation, HostPhase
from fray.plan.verdict import derive_cause
from fray.vocabulary import Reason

T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
WHO = "rank 5 (slice 1, host 2)"
NO_PROGRAM = 'runc create failed: exec: "trian": executable file not found in $PATH'
NO_PYTHON = NO_PROGRAM.replace("trian", "python3")
USE_PYTHON = "the image has no python3, which functions need: use one that has"


def host(
    rank: int, phase: HostPhase = HostPhase.RUNNING, *, at: float | None = None, **more: Any
) -> HostObservation:
    ended = None if at is None else T0 + timedelta(seconds=at)
    return HostObservation(0, rank, rank, f"pod-{rank}", phase, ended_at=ended, **more)


def failed(rank: int, at: float | None = 0, code: int | None = 1, **more: Any) -> HostObservation:
    return host(rank, HostPhase.FAILED, at=at, exit_code=code, **more)


def gang(*hosts: HostObservation) -> GangObservation:
    return GangObservation(hosts)


@pytest.mark.parametrize(
    ("code", "reason", "message", "expected", "sentence"),
    [
        (1, None, None, Reason.NON_ZERO_EXIT, f"{WHO} exited with code 1"),
        (2, "Error", "log", Reason.NON_ZERO_EXIT, f"{WHO} exited with code 2"),
        (126, None, None, Reason.NON_ZERO_EXIT, f"{WHO} exited with code 126"),
        (127, None, None, Reason.NON_ZERO_EXIT, f"{WHO} exited with code 127"),
        (128, None, None, Reason.NON_ZERO_EXIT, f"{WHO} exited with code 128"),
        (129, None, None, Reason.KILLED_BY_SIGNAL, f"{WHO} was killed by SIGHUP (exit code 129)"),
        (134, None, None, Reason.KILLED_BY_SIGNAL, f"{WHO} was killed by SIGABRT (exit code 134)"),
        (137, "Error", None, Reason.KILLED_BY_SIGNAL, f"{WHO} was killed by SIGKILL (exit code 137)"),
        (139, None, None, Reason.KILLED_BY_SIGNAL, f"{WHO} was killed by SIGSEGV (exit code 139)"),
        (143, None, None, Reason.KILLED_BY_SIGNAL, f"{WHO} was killed by SIGTERM (exit code 143)"),
        (160, None, None, Reason.KILLED_BY_SIGNAL, f"{WHO} was killed by signal 32 (exit code 160)"),
        (192, None, None, Reason.KILLED_BY_SIGNAL, f"{WHO} was killed by SIGRTMAX (exit code 192)"),
        # No signal has these numbers: sys.exit(-1) is 255.
        (193, None, None, Reason.NON_ZERO_EXIT, f"{WHO} exited with code 193"),
        (255, None, None, Reason.NON_ZERO_EXIT, f"{WHO} exited with code 255"),
        (137, OOM_KILLED, None, Reason.OUT_OF_MEMORY, f"{WHO} ran out of memory (exit code 137)"),
        (1, OOM_KILLED, None, Reason.OUT_OF_MEMORY, f"{WHO} ran out of memory (exit code 1)"),
        (127, START_FAILED, "no 'trian'", Reason.START_FAILED, f"{WHO} could not start: no 'trian'"),
        (None, START_FAILED, None, Reason.START_FAILED, f"{WHO} could not start: no reason was given"),
        (128, START_FAILED, "a\n  b\n", Reason.START_FAILED, f"{WHO} could not start: a b"),
        (128, START_FAILED, NO_PROGRAM, Reason.START_FAILED, f"{WHO} could not start: {NO_PROGRAM}"),
        (
            128,
            START_FAILED,
            NO_PYTHON,
            Reason.START_FAILED,
            f"{WHO} could not start: {NO_PYTHON}; {USE_PYTHON}",
        ),
        (None, None, "its pod is gone", Reason.NON_ZERO_EXIT, f"{WHO} failed: its pod is gone"),
        (None, "Evicted", None, Reason.NON_ZERO_EXIT, f"{WHO} failed: Evicted"),
        (None, None, None, Reason.NON_ZERO_EXIT, f"{WHO} failed: it left no exit code"),
        (0, "Evicted", None, Reason.NON_ZERO_EXIT, f"{WHO} failed: Evicted"),
        (0, None, None, Reason.NON_ZERO_EXIT, f"{WHO} failed: it left a zero exit code"),
    ],
)
def test_how_one_host_failed(
    code: int | None, reason: str | None, message: str | None, expected: Reason, sentence: str
) -> None:
    seen = HostObservation(
        1, 2, 5, "pod", HostPhase.FAILED, exit_code=code, reason=reason, message=message, ended_at=T0
    )
    cause = derive_cause(gang(seen))
    assert cause is not None
    assert (cause.reason, cause.message, cause.at, cause.host) == (expected, sentence, T0, seen)


@pytest.mark.parametrize(
    ("hosts", "rank"),
    [
        # the earliest is to blame
        ((failed(0, at=3), failed(1, at=2), failed(2, at=1)), 2),
        # at the same moment the lowest rank, in whatever order they are listed
        ((failed(2, at=1), failed(1, at=1)), 1),
        # one without a time comes last
        ((failed(0, at=None), failed(1, at=9)), 1),
        ((failed(1, at=None), failed(0, at=None)), 0),
        # success and life of others don't matter, whenever they ended
        ((host(0, HostPhase.SUCCEEDED, at=0), failed(1, at=9), host(2), host(3, HostPhase.PENDING)), 1),
    ],
)
def test_who_is_to_blame(hosts: tuple[HostObservation, ...], rank: int) -> None:
    cause = derive_cause(gang(*hosts))
    assert cause is not None
    assert cause.host is not None
    assert cause.host.rank == rank


@pytest.mark.parametrize(
    "hosts",
    [
        (host(0),),
        (host(0, HostPhase.PENDING),),
        (host(0, HostPhase.SUCCEEDED, at=1), host(1)),
        (host(0, HostPhase.SUCCEEDED, at=1), host(1, HostPhase.PENDING)),
    ],
)
def test_while_all_is_well_there_is_no_cause(hosts: tuple[HostObservation, ...]) -> None:
    assert derive_cause(gang(*hosts)) is None


def test_success_is_the_moment_of_the_last_host() -> None:
    cause = derive_cause(gang(host(0, HostPhase.SUCCEEDED, at=5), host(1, HostPhase.SUCCEEDED, at=7)))
    assert cause is not None
    assert (cause.reason, cause.host, cause.at) == (Reason.COMPLETED, None, T0 + timedelta(seconds=7))


def test_there_is_no_gang_without_hosts() -> None:
    with pytest.raises(ValueError, match="at least one host"):
        GangObservation(())


PHASES = st.builds(
    host, st.integers(0, 5), st.sampled_from(HostPhase), at=st.none() | st.integers(0, 3).map(float)
)


@settings(max_examples=300, derandomize=True)
@given(hosts=st.lists(PHASES, min_size=1, max_size=5, unique_by=lambda h: h.rank), data=st.data())
def test_the_order_in_which_hosts_are_listed_does_not_matter(
    hosts: list[HostObservation], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(hosts))
    assert derive_cause(gang(*hosts)) == derive_cause(gang(*shuffled))


# --- the end of the log --------------------------------------------------------------------------------


def test_five_lines_of_log_follow_each_cut_to_a_readable_length() -> None:
    tail = ("one", "", "two", "x" * 500, "   ", "four\t", "five", "six")
    cause = derive_cause(gang(failed(0, log_tail=tail)))
    assert cause is not None
    assert cause.message == "rank 0 (slice 0, host 0) exited with code 1"
    assert cause.log_tail == ("two", "x" * 197 + "...", "four", "five", "six")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("x" * 1000, "x" * 1000),
        ("x" * 1001, "x" * 997 + "..."),
        ("x\n" * 100_000, "x " * 498 + "x..."),
        (" \n ", "it left no exit code"),
    ],
)
def test_a_message_of_any_length_stays_a_sentence(message: str, told: str) -> None:
    cause = derive_cause(gang(failed(0, code=None, message=message)))
    assert cause is not None
    assert cause.message == f"rank 0 (slice 0, host 0) failed: {told}"


def test_a_line_of_log_is_cut_only_when_it_is_too_long() -> None:
    cause = derive_cause(gang(failed(0, log_tail=("x" * 200, "y" * 201))))
    assert cause is not None
    assert cause.log_tail == ("x" * 200, "y" * 197 + "...")
