"""A status that a newer version wrote: what is certain is done, nothing is guessed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from fray.plan.events import derive_events
from fray.plan.lifecycle import Decision, EndAttempt, StartAttempt, decide
from fray.plan.observation import GangObservation, HostObservation, HostPhase
from fray.plan.recorded import UnknownWordError
from fray.plan.status import find_condition
from fray.testing import build_frayjob
from fray.vocabulary import ConditionType, Reason
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status
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
    return with_status(build_frayjob(**spec), FrayJobStatus(attempts=[attempt]))


def gang(phase: HostPhase) -> GangObservation:
    return GangObservation((HostObservation(0, 0, 0, "train-a3-slice-0-0-x7x2p", phase),))


def decided(job: FrayJob, observed: GangObservation | None = None) -> Decision:
    return decide(job, observed, now=START, policy=POLICY)


REASON = (None, "NodeMelted"), "this version of Fray doesn't know the reason 'NodeMelted' of attempt 3"
VERDICT = (
    ("Maintenance", "Completed"),
    "this version of Fray doesn't know the verdict 'Maintenance' of attempt 3",
)
UNKNOWN = pytest.mark.parametrize(("words", "told"), [REASON, VERDICT], ids=["reason", "verdict"])
Words = tuple[str | None, str]
WAY_OUT = (
    "Run the version that wrote this status, or a newer one; until then the job is left alone, but for "
    "spec.stopped, spec.suspend and its deletion."
)


def check_readable(status: FrayJobStatus, told: str | None) -> None:
    """Check what the condition says of whether the status could be read, None: nothing at all."""
    condition = find_condition(status, ConditionType.STATUS_READABLE)
    if told is None:
        assert condition is None
        return
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", Reason.STATUS_UNREADABLE)
    assert condition.message == f"{told}. {WAY_OUT}"


@UNKNOWN
def test_an_unknown_word_is_named_with_the_way_out_and_nothing_is_touched(words: Words, told: str) -> None:
    before = job(*words)
    decision = decided(before, gang(HostPhase.FAILED))
    assert decision.action is None
    check_readable(decision.status, told)
    left = decision.status.model_copy(update={"conditions": []})
    assert left == before.status.model_copy(update={"conditions": []})
    assert decided(with_status(before, decision.status)).status == decision.status


def test_a_job_whose_attempt_ends_for_an_unknown_reason_is_stopped_with_its_hosts() -> None:
    words, told = REASON
    before = job(*words, stopped=True)
    first = decided(before, gang(HostPhase.RUNNING))
    assert first.action == EndAttempt(3, Reason.STOP_REQUESTED)
    assert first.status.phase == "Stopping"
    check_readable(first.status, told)
    last = decided(with_status(before, first.status), None)
    assert (last.status.phase, last.status.reason) == ("Stopped", "StopRequested")
    assert last.status.attempts == before.status.attempts
    assert last.finished


def test_a_job_whose_attempt_was_charged_to_something_unknown_is_stopped() -> None:
    words, told = VERDICT
    status = decided(job(*words, stopped=True)).status
    assert status.phase == "Stopped"
    check_readable(status, told)


@UNKNOWN
def test_it_is_suspended_and_starts_nothing_when_it_is_resumed(words: Words, told: str) -> None:
    before = job(*words, suspend=True)
    observed = gang(HostPhase.RUNNING) if words[0] is None else None
    first = decided(before, observed)
    assert first.action == (EndAttempt(3, Reason.SUSPENDED) if observed else None)
    second = decided(with_status(before, first.status), None)
    assert (second.status.phase, second.action) == ("Suspended", None)
    resumed = decided(with_status(job(*words), second.status), None)
    assert resumed.action is None
    check_readable(resumed.status, told)


def test_the_version_that_knows_the_word_goes_on_where_it_was() -> None:
    """To the version that knows it, the word means what `Suspended` means to this one."""
    left = decided(job("Maintenance", "Completed")).status
    known = left.attempts[-1].model_copy(update={"verdict": "Suspended"})
    newer = with_status(build_frayjob(), left.model_copy(update={"attempts": [known]}))
    decision = decided(newer)
    assert decision.action == StartAttempt(4)
    check_readable(decision.status, None)


def test_an_event_tells_of_it_once() -> None:
    before = job("Maintenance", "Completed")
    after = decided(before).status
    (draft,) = derive_events(before.status, after)
    assert (draft.warning, draft.reason) == (True, "StatusUnreadable")
    assert derive_events(after, after) == []


def test_the_error_of_an_unknown_word_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(UnknownWordError(3, "reason", "NodeMelted")))
    assert (error.attempt, error.field, error.word) == (3, "reason", "NodeMelted")


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
