"""The limits of spec.timeouts as moments, and times as they stand in a resource."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.plan.limits import Deadline, derive_attempt_deadline, derive_total_deadline
from fray.plan.timestamps import format_time, parse_time
from fray.vocabulary import Reason
from fray.wire.frayjob import Timeouts
from fray.wire.status import AttemptStatus, FrayJobStatus

START = "2026-01-31T12:00:00.000Z"
RUNNING = "2026-01-31T12:05:00.500Z"
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=8))])
ALL = Timeouts(pending_seconds=3600, active_seconds=86400, total_seconds=5405)
PENDING = AttemptStatus(number=1, start_time=START)
ACTIVE = AttemptStatus(number=1, start_time=START, running_time=RUNNING)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("timeouts", "attempt", "expected"),
    [
        (
            ALL,
            PENDING,
            Deadline(
                moment("2026-01-31T13:00:00Z"),
                Reason.PENDING_TIMEOUT,
                "not all hosts ran within spec.timeouts.pendingSeconds (3600)",
            ),
        ),
        (
            ALL,
            ACTIVE,
            Deadline(
                moment("2026-02-01T12:05:00.500Z"),
                Reason.ACTIVE_TIMEOUT,
                "the hosts ran longer than spec.timeouts.activeSeconds (86400)",
            ),
        ),
        (Timeouts(active_seconds=1), PENDING, None),
        (Timeouts(pending_seconds=1), ACTIVE, None),
        (Timeouts(total_seconds=1), PENDING, None),
        (Timeouts(), ACTIVE, None),
        (ALL, AttemptStatus(number=1), None),
    ],
)
def test_limits_of_an_attempt(timeouts: Timeouts, attempt: AttemptStatus, expected: Deadline | None) -> None:
    assert derive_attempt_deadline(timeouts, attempt, None) == expected


@pytest.mark.parametrize(
    ("timeouts", "status", "expected"),
    [
        (
            ALL,
            FrayJobStatus(start_time=START),
            Deadline(
                moment("2026-01-31T13:30:05Z"),
                Reason.TOTAL_TIMEOUT,
                "the job took longer than spec.timeouts.totalSeconds (5405)",
            ),
        ),
        (ALL, FrayJobStatus(), None),
        (Timeouts(active_seconds=1, pending_seconds=1), FrayJobStatus(start_time=START), None),
    ],
)
def test_limit_of_a_job(timeouts: Timeouts, status: FrayJobStatus, expected: Deadline | None) -> None:
    assert derive_total_deadline(timeouts, status) == expected


def test_the_longest_legal_limit_is_still_a_moment() -> None:
    longest = Timeouts(total_seconds=2**31 - 1)
    deadline = derive_total_deadline(longest, FrayJobStatus(start_time=START))
    assert deadline is not None
    assert deadline.at.year == 2094


# --- times in a resource -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00.000Z"),
        (datetime(2026, 1, 31, 12, 0, 0, 999, tzinfo=UTC), "2026-01-31T12:00:00.000Z"),
        (datetime(2026, 1, 31, 12, 0, 0, 999999, tzinfo=UTC), "2026-01-31T12:00:00.999Z"),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2025-12-31T23:00:00.000Z"),
    ],
)
def test_times_are_utc_to_the_millisecond(time: datetime, text: str) -> None:
    assert format_time(time) == text
    assert parse_time(text) == parse_time(text.replace("Z", "+00:00"))


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z", "2026-01-31T14:00:00+02:00"]
)
def test_times_of_other_writers_are_read_too(text: str) -> None:
    assert parse_time(text) == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31", "yesterday", ""])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the standard library's own text for most
        parse_time(text)


@settings(max_examples=200, derandomize=True)
@given(time=st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9990, 1, 1), timezones=ZONES))
def test_a_time_survives_to_the_millisecond_and_never_moves_into_the_future(time: datetime) -> None:
    read = parse_time(format_time(time))
    assert timedelta(0) <= time - read < timedelta(milliseconds=1)
