"""A status that a newer version wrote: what is certain is done, nothing is guessed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from fray.plan.lifecycle import Decision, StartAttempt, decide
from fray.plan.observation import GangObservation
from fray.plan.recorded import UnknownWordError
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import make_job, with_status
from tests.unit.plan.gang_simulator import POLICY, START

ENDED = "2026-01-31T11:00:00.000Z"


def job(verdict: str | None, reason: str | None, **spec: Any) -> FrayJob:
    end = ENDED if verdict is not None else None
    attempt = AttemptStatus(
        number=3,
        job_set="train-a3",
        start_time=ENDED,
        end_time=end,
        verdict=verdict,
        reason=reason,
        message="so",
    )
    return with_status(make_job(**spec), FrayJobStatus(attempts=[attempt]))


def decided(job: FrayJob, observed: GangObservation | None = None) -> Decision:
    return decide(job, observed, now=START, policy=POLICY)


def test_an_attempt_that_ends_for_an_unknown_reason_is_left_alone() -> None:
    with pytest.raises(UnknownWordError) as refused:
        decided(job(None, "NodeMelted"))
    error = pickle.loads(pickle.dumps(refused.value))
    assert (error.attempt, error.field, error.word) == (3, "reason", "NodeMelted")
    assert str(error) == (
        "this version of Fray doesn't know the reason 'NodeMelted' of attempt 3\n"
        "Run the version that wrote this status, or a newer one; until then the job is left alone."
    )


def test_an_attempt_that_was_charged_to_something_unknown_is_left_alone() -> None:
    with pytest.raises(UnknownWordError, match="the verdict 'Maintenance' of attempt 3"):
        decided(job("Maintenance", "Completed"))


@pytest.mark.parametrize("verdict", ["Preemption", "Suspended"])
def test_after_an_unknown_reason_a_known_verdict_decides_that_the_next_attempt_starts(verdict: str) -> None:
    decision = decided(job(verdict, "NodeMelted"))
    assert decision.action == StartAttempt(4)
    assert [attempt.reason for attempt in decision.status.attempts] == ["NodeMelted", None]


@pytest.mark.parametrize(
    ("verdict", "phase", "message"),
    [
        ("Success", "Succeeded", "so in attempt 3"),
        ("Stopped", "Stopped", "so"),
    ],
)
def test_after_an_unknown_reason_a_known_verdict_decides_how_the_job_ends(
    verdict: str, phase: str, message: str
) -> None:
    status = decided(job(verdict, "NodeMelted")).status
    assert (status.phase, status.reason, status.attempts[-1].reason) == (phase, "Ended", "NodeMelted")
    assert status.conditions[-1].message == message
