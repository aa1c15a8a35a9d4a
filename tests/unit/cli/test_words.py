"""What the command line says about a job, and the exit code that goes with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fray.cli.__main__ import derive_error_exit_code
from fray.cli.columns import format_age, format_columns, format_duration
from fray.cli.story import Tone, describe_change, describe_end, describe_job, format_job_table
from fray.cluster.local.jobs import derive_ended
from fray.errors import (
    JobDeletedError,
    JobFailedError,
    JobFileError,
    StateDirectoryError,
    WaitTimeoutError,
)
from fray.plan.lifecycle import decide
from fray.plan.observation import START_FAILED, GangObservation, HostObservation, HostPhase
from fray.plan.settings import RetryPolicy
from fray.plan.status import Ending, derive_exit_code
from fray.plan.timestamps import format_time
from fray.vocabulary import ConditionType, Reason, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, FrayJobStatus, RetryCounts
from tests.unit.cluster.local_jobs import frayjob

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def gang(*phases: HostPhase, code: int = 3, reason: str | None = None) -> GangObservation:
    """Return hosts in these phases that started after 1 s and ended, if they did, after 5 s."""
    hosts = []
    for rank, phase in enumerate(phases):
        failed, ended = phase is HostPhase.FAILED, phase in (HostPhase.FAILED, HostPhase.SUCCEEDED)
        hosts.append(
            HostObservation(
                slice_index=0,
                host=rank,
                rank=rank,
                name=f"host-{rank}",
                phase=phase,
                exit_code=code if failed else (0 if ended else None),
                reason=reason if failed else None,
                message="cannot start" if reason and failed else None,
                started_at=None if phase is HostPhase.PENDING else at(1),
                ended_at=at(5) if ended else None,
                log_tail=("line one", "line two") if failed else (),
            )
        )
    return GangObservation(tuple(hosts))


class Story:
    """A job that is decided upon step by step, with what is told about each."""

    def __init__(self, job: FrayJob) -> None:
        self.job = job
        self.told: list[str] = []

    def see(self, observed: GangObservation | None, seconds: float) -> FrayJobStatus:
        decision = decide(self.job, observed, now=at(seconds), policy=RetryPolicy(1, 1))
        before = self.job.status
        self.job = self.job.model_copy(update={"status": decision.status})
        lines = describe_change(before, decision.status, name="job", retries=self.job.spec.retries.failures)
        self.told += [line.text for line in lines]
        return decision.status


def finished(*, code: int = 3, reason: str | None = None, phase: HostPhase = HostPhase.FAILED) -> FrayJob:
    story = Story(frayjob())
    story.see(None, 0)
    story.see(gang(phase, code=code, reason=reason), 6)
    return story.job


def stopped() -> FrayJob:
    story = Story(frayjob(stopped=True))
    story.see(None, 0)
    return story.job


def test_each_change_is_told_once() -> None:
    story = Story(frayjob(replicas=2, retries={"failures": 1}))
    story.see(None, 0)
    story.see(gang(HostPhase.PENDING, HostPhase.PENDING), 0.5)
    story.see(gang(HostPhase.RUNNING, HostPhase.PENDING), 1)
    story.see(gang(HostPhase.RUNNING, HostPhase.RUNNING), 2)
    story.see(gang(HostPhase.RUNNING, HostPhase.RUNNING), 3)
    story.see(gang(HostPhase.RUNNING, HostPhase.FAILED), 5)
    story.see(gang(HostPhase.FAILED, HostPhase.FAILED), 6)
    story.see(None, 8)
    assert story.told == [
        "job: attempt 1: starting 2 hosts",
        "job: attempt 1: 2/2 hosts running",
        "job: attempt 1: rank 1 (slice 0, host 1) exited with code 3; ending 1 host",
        "job: attempt 2 follows (retry 1 of 1)",
        "job: attempt 2: starting 2 hosts",
    ]


def test_the_end_of_a_failure_names_cause_last_lines_and_next_step() -> None:
    lines = [line.text for line in describe_end(finished())]
    assert lines == [
        "job: Failed after 6.0 s: NonZeroExit",
        "  rank 0 (slice 0, host 0) exited with code 3 in attempt 1; spec.retries.failures allows no retry",
        "  its last lines:",
        "    line one",
        "    line two",
        "  next: fray logs job --attempt 1 --rank 0",
    ]


def test_what_never_started_has_no_logs_to_point_at() -> None:
    lines = [line.text for line in describe_end(finished(code=127, reason=START_FAILED))]
    assert lines[-1] == "  next: fray status job"


def test_success_and_stop_are_one_line() -> None:
    (line,) = describe_end(finished(phase=HostPhase.SUCCEEDED))
    assert (line.text, line.tone) == ("job: Succeeded in 6.0 s", Tone.GOOD)
    (line,) = describe_end(stopped())
    assert line.text.startswith("job: Stopped after ")


def test_a_running_job_is_told_with_what_one_can_do() -> None:
    story = Story(frayjob(replicas=2))
    story.see(None, 0)
    story.see(gang(HostPhase.RUNNING, HostPhase.RUNNING), 2)
    text = "\n".join(line.text for line in describe_job(story.job, now=at(62)))
    assert "job   Running   AllHostsRunning" in text
    assert "2/2 running" in text
    assert "1   running for 1 min 2 s" in text
    assert "next: fray logs -f job, or fray stop job" in text


def test_the_table_has_a_line_for_each_job() -> None:
    created = finished().model_copy(
        update={
            "metadata": finished().metadata.model_copy(update={"creation_timestamp": "2026-01-31T12:00:00Z"})
        }
    )
    lines = format_job_table([created, frayjob(name="new")], now=at(3600))
    assert lines[1].text.split() == ["job", "Failed", "1", "0/1", "NonZeroExit", "60m"]
    assert lines[2].text.split() == ["new", "0/0"]
    assert lines[1].tone is Tone.BAD


@pytest.mark.parametrize(
    ("job", "signal_number", "code"),
    [
        (finished(phase=HostPhase.SUCCEEDED), None, 0),
        (finished(phase=HostPhase.SUCCEEDED), 2, 0),
        (finished(code=3), None, 3),
        (finished(code=137), None, 137),
        (finished(code=127, reason=START_FAILED), None, 127),
        (stopped(), None, 143),
        (stopped(), 2, 130),
        (stopped(), 1, 129),
    ],
)
def test_the_exit_code_is_that_of_the_first_cause(job: FrayJob, signal_number: int | None, code: int) -> None:
    assert derive_exit_code(job.status, signal_number=signal_number) == code


@pytest.mark.parametrize(("limit", "seconds"), [("activeSeconds", 9), ("totalSeconds", 9)])
def test_timeouts_are_124(limit: str, seconds: float) -> None:
    story = Story(frayjob(timeouts={limit: 3}))
    story.see(None, 0)
    story.see(gang(HostPhase.RUNNING), 1)
    story.see(gang(HostPhase.RUNNING), seconds)
    story.see(gang(HostPhase.FAILED, code=143), seconds + 1)
    assert derive_exit_code(story.job.status) == 124


def test_a_failure_is_never_0_even_if_its_file_says_so() -> None:
    assert derive_exit_code(FrayJobStatus(phase="Failed")) == 1
    assert derive_exit_code(finished(code=0).status) == 1


def test_errors_have_the_code_of_who_must_act() -> None:
    assert derive_error_exit_code(JobFileError("f", "p")) == 2
    assert derive_error_exit_code(StateDirectoryError("f", "p")) == 1
    assert derive_error_exit_code(JobFailedError("j", "r", "e", 7)) == 7


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (42, "42 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (42, "42s"), (119, "119s"), (120, "2m"), (10800, "3h"), (172800, "2d")]
)
def test_ages_are_those_of_kubectl(seconds: float, text: str) -> None:
    assert format_age(seconds) == text


def test_columns_are_aligned_and_have_no_trailing_spaces() -> None:
    assert format_columns([]) == []
    assert format_columns([("a", "bb"), ("ccc", "")]) == ["a     bb", "ccc"]


def test_columns_that_are_too_wide_are_cut() -> None:
    rows = [("name", "reason"), ("n" * 30, "short")]
    assert format_columns(rows, width=30) == ["name".ljust(24) + "reason", "n" * 19 + "..   short"]
    assert all(len(row) <= 30 for row in format_columns(rows, width=30))
    assert format_columns(rows, width=5) == format_columns(rows, width=17), "nothing gets unreadable"


def test_the_failure_that_ends_a_job_is_no_retry() -> None:
    job = finished()
    counts = RetryCounts(failures_used=job.spec.retries.failures + 1, preemptions_used=0)
    told = describe_job(
        job.model_copy(update={"status": job.status.model_copy(update={"retries": counts})}), now=at(9)
    )
    assert any("0 of 0 for failures used" in line.text for line in told)


def test_how_long_is_not_told_where_nobody_saw_the_end() -> None:
    lost = derive_ended(frayjob(), Ending(ConditionType.FAILED, Reason.RUNNER_LOST, "killed"), at(3))
    attempt = AttemptStatus(
        number=1,
        start_time=format_time(at(0)),
        end_time=format_time(at(2)),
        verdict=VerdictKind.FAILURE,
        reason=Reason.RUNNER_LOST,
    )
    known = {"start_time": format_time(at(0)), "attempts": [attempt]}
    job = frayjob().model_copy(update={"status": lost.model_copy(update=known)})
    assert describe_end(job)[0].text == "job: Failed after at least 3.0 s: RunnerLost"
    assert any("took" in line.text and "at least 3.0 s" in line.text for line in describe_job(job, now=at(9)))
    assert any("1   Failure after at least 2.0 s" in line.text for line in describe_job(job, now=at(9)))
    assert describe_job(job, now=at(9))[-1].text == "next: fray logs job, or fray delete job"


def test_what_ends_a_job_is_told_for_the_command_line_too() -> None:
    assert "`fray stop train`, in Python terminate()" in WaitTimeoutError(("train",), 5).next_step
    assert "`fray stop NAME`" in WaitTimeoutError(("a", "b"), 5).next_step
    assert "`fray stop train`, in Python terminate()" in JobDeletedError("train", "ml").next_step
