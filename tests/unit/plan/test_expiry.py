"""When a finished job is deleted, whatever stands in the fields that tell it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fray.plan.raw_jobs import derive_expiry

MADE, ENDED = "2026-01-31T11:00:00Z", "2026-01-31T12:00:00.250Z"


def finished(*, ttl: int | None = 60, ended: Any = ENDED, condition: Any = None) -> dict[str, Any]:
    spec = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    conditions = [] if condition is None else [{"type": "Finished", "lastTransitionTime": condition}]
    status = {"conditions": [{"type": "Accepted", "lastTransitionTime": MADE}, *conditions]}
    told = {} if ended is None else {"completionTime": ended}
    return {"metadata": {"creationTimestamp": MADE}, "spec": spec, "status": status | told}


def at(hour: int, minute: int = 0, second: int = 0, milliseconds: int = 0) -> datetime:
    return datetime(2026, 1, 31, hour, minute, second, milliseconds * 1000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (finished(), at(12, 1, 0, 250)),
        (finished(ttl=0), at(12, 0, 0, 250)),
        (finished(ttl=None), None),
        # The clock that wrote the end was behind that of the API server.
        (finished(ended="2026-01-31T10:00:00Z"), at(11, 1)),
        # It was ahead: the job stays longer.
        (finished(ended="2026-01-31T18:00:00Z"), at(18, 1)),
        (finished(ended=None, condition="2026-01-31T12:30:00Z"), at(12, 31)),
        (finished(ended="yesterday", condition="2026-01-31T12:30:00Z"), at(12, 31)),
        (finished(ended="2026-01-31T12:00:00", condition="2026-01-31T12:30:00Z"), at(12, 31)),
        (finished(ended=7, condition="2026-01-31T12:30:00Z"), at(12, 31)),
        # What nobody can tell the age of is kept.
        (finished(ended="yesterday"), None),
        (finished(ended=None, condition="today"), None),
        (finished(ended="9999-12-31T23:59:59Z"), None),
    ],
)
def test_a_finished_job_expires_some_seconds_after_its_end(
    job: dict[str, Any], expected: datetime | None
) -> None:
    assert derive_expiry(job) == expected


def test_a_job_that_does_not_say_when_it_was_made_expires_too() -> None:
    job = finished()
    del job["metadata"]["creationTimestamp"]
    assert derive_expiry(job) == at(12, 1, 0, 250)
