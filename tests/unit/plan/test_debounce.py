"""Replica counts are written ever more rarely while a phase lasts; all other news at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.status import StatusWrite, derive_write_time, record_write
from fray.wire.status import AttemptStatus, Condition, FrayJobStatus, ReplicaCounts

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def status(running: int, **changes: Any) -> FrayJobStatus:
    told = Condition(
        type="Running",
        status="False",
        reason="HostsStarting",
        message=f"{8 - running} of 8 hosts are starting",
        last_transition_time="2026-01-31T12:00:00.000Z",
    )
    return FrayJobStatus(
        phase="Pending",
        attempt=1,
        conditions=[told],
        ready=f"{running}/8",
        replicas=ReplicaCounts(total=8, pending=8 - running, running=running),
        attempts=[AttemptStatus(number=1, job_set="train-a1")],
    ).model_copy(update=changes)


def test_counts_that_change_all_the_time_are_written_at_doubling_intervals_up_to_30_seconds() -> None:
    last = record_write(FrayJobStatus(), status(0), None, now=START)
    written = []
    for _ in range(8):
        due = derive_write_time(status(0), status(1), last, now=at(0.5))
        written.append((due - START).total_seconds())
        last = record_write(status(0), status(1), last, now=due)
    assert written == [1, 3, 7, 15, 31, 61, 91, 121]


def test_counts_of_thousands_of_hosts_are_written_rarely_from_the_start() -> None:
    before, after = (
        status(running, replicas=ReplicaCounts(total=2304, pending=2304 - running, running=running))
        for running in (0, 1)
    )
    last = record_write(FrayJobStatus(), before, None, now=START)
    first = derive_write_time(before, after, last, now=at(0.5))
    assert first == at(23.04)
    last = record_write(before, after, last, now=first)
    assert derive_write_time(before, after, last, now=at(24)) == at(53.04)


def test_counts_that_have_not_changed_for_long_are_written_at_once() -> None:
    due = derive_write_time(status(0), status(1), StatusWrite(START, START), now=at(600))
    assert due <= at(600)


def test_a_change_of_phase_makes_the_delays_short_again() -> None:
    last = StatusWrite(at(100), START)
    runs = status(8, phase="Running")
    assert derive_write_time(status(7), runs, last, now=at(101)) == at(101)
    last = record_write(status(7), runs, last, now=at(101))
    assert last == StatusWrite(at(101), at(101))
    assert derive_write_time(runs, status(7, phase="Running"), last, now=at(101.5)) == at(102)


def test_the_next_attempt_makes_the_delays_short_again() -> None:
    last = record_write(status(8), status(0, attempt=2), StatusWrite(at(100), START), now=at(101))
    assert last.phase_at == at(101)


def reason_of(reason: str) -> list[Condition]:
    return [status(0).conditions[0].model_copy(update={"reason": reason})]


@pytest.mark.parametrize(
    "news",
    [
        {"phase": "Running"},
        {"reason": "Unschedulable"},
        {"conditions": reason_of("Unschedulable")},
        {"attempts": [AttemptStatus(number=1, job_set="train-a1", reason="NonZeroExit")]},
        {"attempts": [AttemptStatus(number=1, job_set="train-a1", running_time="2026-01-31T12:00:00.000Z")]},
        {"observed_generation": 2},
    ],
)
def test_anything_but_counts_is_written_at_once(news: dict[str, Any]) -> None:
    last = StatusWrite(at(100), START)
    assert derive_write_time(status(0), status(1, **news), last, now=at(100.1)) == at(100.1)


def test_a_process_that_has_written_nothing_yet_writes_at_once() -> None:
    assert derive_write_time(status(0), status(1), None, now=at(5)) == at(5)
