"""How long a queue is, a job can't help: the limit of being pending begins once its JobSet may go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.gang import derive_gang
from fray.plan.lifecycle import Decision, EndAttempt, decide
from fray.plan.limits import derive_attempt_deadline
from fray.plan.observation import GangObservation, HostObservation, HostPhase, Suspension
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.settings import RetryPolicy
from fray.testing import build_frayjob
from fray.vocabulary import LABEL_COMPLETION_INDEX, Reason
from fray.wire.frayjob import Timeouts
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
ATTEMPT = AttemptStatus(number=1, job_set="train-a1", start_time="2026-01-31T12:00:00.000Z")


def gang(phase: HostPhase, **rest: Any) -> GangObservation:
    return GangObservation((HostObservation(0, 0, 0, "pod", phase),), **rest)


def decided(observed: GangObservation) -> Decision:
    """Return what is decided two hours after the start about a job that may be pending for one."""
    status = FrayJobStatus(attempts=[ATTEMPT], start_time=ATTEMPT.start_time)
    job = with_status(build_frayjob(timeouts={"pendingSeconds": 3600}), status)
    return decide(job, observed, now=START + timedelta(hours=2), policy=RetryPolicy(10, 40))


@pytest.mark.parametrize(
    ("held", "released_at", "expected"),
    [
        (False, None, START + timedelta(hours=1)),
        (True, None, None),
        (False, START + timedelta(hours=5), START + timedelta(hours=6)),
    ],
)
def test_time_in_a_queue_counts_towards_no_limit_of_pending(
    held: bool, released_at: datetime | None, expected: datetime | None
) -> None:
    observed = gang(HostPhase.PENDING, held=held, released_at=released_at)
    deadline = derive_attempt_deadline(Timeouts(pending_seconds=3600), ATTEMPT, observed)
    assert (deadline.at if deadline is not None else None) == expected


def test_the_limit_of_an_attempt_that_runs_has_nothing_to_do_with_queues() -> None:
    running = ATTEMPT.model_copy(update={"running_time": "2026-01-31T12:00:30.000Z"})
    for observed in (None, gang(HostPhase.RUNNING, held=True), gang(HostPhase.RUNNING, released_at=START)):
        deadline = derive_attempt_deadline(
            Timeouts(active_seconds=3600, pending_seconds=1), running, observed
        )
        assert deadline is not None
        assert (deadline.at, deadline.reason) == (
            START + timedelta(hours=1, seconds=30),
            Reason.ACTIVE_TIMEOUT,
        )


def test_a_job_may_wait_in_its_queue_for_longer_than_it_may_be_pending() -> None:
    decision = decided(gang(HostPhase.PENDING, suspension=Suspension(), held=True))
    assert (decision.action, decision.wake_at) == (None, None)
    released = START + timedelta(minutes=90)
    decision = decided(gang(HostPhase.PENDING, released_at=released))
    assert (decision.action, decision.wake_at) == (None, released + timedelta(hours=1))
    assert decided(gang(HostPhase.PENDING)).action == EndAttempt(1, Reason.PENDING_TIMEOUT)


@pytest.mark.parametrize(
    ("suspend", "condition", "held", "released_at"),
    [
        (False, None, False, None),
        (True, None, True, None),
        (True, "True", True, None),
        (False, "True", True, None),  # JobSet has yet to see that it may go on
        (False, "False", False, START),
        (True, "False", True, None),  # suspended again, and JobSet has yet to see it
    ],
)
def test_a_jobset_tells_until_when_it_was_held(
    suspend: bool, condition: str | None, held: bool, released_at: datetime | None
) -> None:
    at = "2026-01-31T12:00:00Z"
    conditions = [{"type": "Suspended", "status": condition, "lastTransitionTime": at}] if condition else []
    metadata = {"name": "pod", "creationTimestamp": at, "labels": {LABEL_COMPLETION_INDEX: "0"}}
    jobset = {
        "metadata": {"name": "train-a1", "creationTimestamp": at},
        "spec": {"suspend": suspend},
        "status": {"conditions": conditions},
    }
    observed = derive_gang_observation(derive_gang(build_frayjob().spec), jobset, [{"metadata": metadata}])
    assert (observed.suspended, observed.held, observed.released_at) == (suspend, held, released_at)
    assert observed.created_at == START
