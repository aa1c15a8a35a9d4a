"""A job on the screen: output and status as they come, to the last line."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fray.cli.follow import MOST_WAITING, Following, JobSource
from fray.cli.screen import LiveScreen, Screen, build_status_line
from fray.cli.story import Line, describe_waiting
from fray.errors import AccessDeniedError, JobDeletedError
from fray.plan.lifecycle import decide
from fray.plan.observation import GangObservation, HostPhase, Waiting
from fray.plan.settings import RetryPolicy
from fray.types import JobId, LogLine
from fray.vocabulary import Reason
from fray.wire.frayjob import FrayJob
from tests.unit.cli.test_screen import Recorder
from tests.unit.cli.test_words import at, gang
from tests.unit.cluster.local_jobs import frayjob

LIMIT = 60


def seen(job: FrayJob, observed: GangObservation | None, seconds: float) -> FrayJob:
    status = decide(job, observed, now=at(seconds), policy=RetryPolicy()).status
    return job.model_copy(update={"status": status})


def line(text: str, rank: int = 0) -> LogLine:
    return LogLine(JobId("job"), 1, rank, 0, rank, text, datetime.now(UTC))


class Source:
    """A job whose changes and lines are known beforehand."""

    def __init__(self, jobs: Iterable[FrayJob | Exception], lines: Iterable[LogLine | Exception]) -> None:
        self._jobs, self._lines = list(jobs), list(lines)

    def watch(self, job_id: JobId) -> Iterator[FrayJob]:
        assert job_id == "job"
        for job in self._jobs:
            if isinstance(job, Exception):
                raise job
            yield job

    def logs(self, job_id: JobId, *, follow: bool = False, unfinished: bool = False) -> Iterator[LogLine]:
        assert (job_id, follow, unfinished) == ("job", True, True)
        for each in self._lines:
            if isinstance(each, Exception):
                raise each
            yield each


def follow_job(source: JobSource, screen: Screen, *, terminal: bool, color: bool) -> FrayJob | None:
    return Following(source, JobId("job"), screen, terminal=terminal, color=color).run()


class Paper:
    """A screen that keeps what is shown."""

    def __init__(self) -> None:
        self.output, self.told, self.closed = "", list[str](), 0

    def print_output(self, text: str) -> None:
        self.output += text

    def print_lines(self, lines: Iterable[Line]) -> None:
        self.told += [each.text for each in lines]

    def show_progress(self, job: FrayJob) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def ended(code: int = 0) -> list[FrayJob]:
    phase = HostPhase.FAILED if code else HostPhase.SUCCEEDED
    started = seen(frayjob(), None, 0)
    running = seen(started, gang(HostPhase.RUNNING), 2)
    return [started, running, seen(running, gang(phase, code=code), 6)]


def test_everything_is_shown_and_the_end_comes_last() -> None:
    paper = Paper()
    text = [line(f"line {number}") for number in range(3 * MOST_WAITING)]
    job = follow_job(Source(ended(3), text), paper, terminal=False, color=False)
    assert job is not None
    assert job.status.phase == "Failed"
    assert paper.output.splitlines() == [f"[0/0] {each.text}" for each in text]
    assert "job: attempt 1: 1/1 hosts running" in paper.told
    assert [each for each in paper.told if "Failed after" in each]
    assert paper.told[-1].startswith("  next: fray logs job")
    assert paper.closed == 1


def test_a_terminal_is_not_harmed() -> None:
    paper = Paper()
    follow_job(Source(ended(), [line("\x1b[2Ja", 1)]), paper, terminal=True, color=True)
    assert paper.output == "\x1b[33m[0/1]\x1b[0m a\n"


def test_a_terminal_has_a_live_line_that_goes_away() -> None:
    drawn = threading.Event()

    class Watched(LiveScreen):
        def show_progress(self, job: FrayJob) -> None:
            super().show_progress(job)
            if job.status.phase == "Running":
                drawn.set()

    class Slow(Source):
        def watch(self, job_id: JobId) -> Iterator[FrayJob]:
            *before, last = super().watch(job_id)
            yield from before
            assert drawn.wait(LIMIT)
            yield last

    terminal = Recorder(terminal=True, color=False)
    follow_job(Slow(ended(), [line("shown")]), Watched(terminal), terminal=True, color=False)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.written.getvalue())
    assert "job  Running  attempt 1" in text
    assert "1/1 host running" in text
    assert text.rstrip().splitlines()[-1].startswith("job: Succeeded in ")


def test_output_that_may_not_be_read_is_told_and_the_end_is_waited_for() -> None:
    paper = Paper()
    denied = AccessDeniedError("me", "get", "pods/log", "ml", "https://x")
    job = follow_job(Source(ended(), [denied]), paper, terminal=False, color=False)
    assert job is not None
    assert job.status.phase == "Succeeded"
    assert any("may not get pods/log" in each for each in paper.told)


def test_a_job_that_is_deleted_ends_it() -> None:
    gone = JobDeletedError("job", "namespace ml")
    with pytest.raises(JobDeletedError):
        follow_job(Source([*ended()[:2], gone], []), Paper(), terminal=False, color=False)


def test_a_reader_who_leaves_ends_it_and_its_threads() -> None:
    class Closed(Paper):
        def print_output(self, text: str) -> None:  # noqa: ARG002
            raise BrokenPipeError

    before = set(threading.enumerate())
    endless = [line("x")] * (10 * MOST_WAITING)
    with pytest.raises(BrokenPipeError):
        follow_job(Source(ended()[:2], endless), Closed(), terminal=False, color=False)
    for thread in set(threading.enumerate()) - before:
        thread.join(LIMIT)
        assert not thread.is_alive()


def test_why_it_waits_is_told_once() -> None:
    started = seen(frayjob(), None, 0)
    refused = replace(gang(HostPhase.PENDING), waiting=Waiting(Reason.UNSCHEDULABLE, "no node fits"))
    first = seen(started, refused, 2)
    again = first.model_copy(deep=True)
    for before in (None, started):
        assert [each.text for each in describe_waiting(before, first)] == ["job: waiting: no node fits"]
    assert describe_waiting(first, again) == []
    assert describe_waiting(first, ended()[1]) == []


def test_hosts_that_start_are_told_once() -> None:
    paper = Paper()
    follow_job(Source(ended(), []), paper, terminal=False, color=False)
    assert [each for each in paper.told if "starting" in each] == ["job: attempt 1: starting 1 host"]
    waits = replace(gang(HostPhase.PENDING), waiting=Waiting(Reason.UNSCHEDULABLE, "no node fits"))
    waiting = seen(seen(frayjob(), None, 0), waits, 2)
    going_on = seen(waiting, gang(HostPhase.PENDING), 4)
    assert [each.text for each in describe_waiting(waiting, going_on)] == [
        "job: waiting: 1 of 1 hosts are starting"
    ]


def test_the_live_line_tells_hosts_without_an_observation() -> None:
    started = seen(frayjob(replicas=2), None, 0)
    text = build_status_line(started, now=at(0) + timedelta(seconds=5), unicode=True).plain
    assert "0/2 hosts running" in text


def test_what_was_printed_comes_before_what_happened_then() -> None:
    """An attempt's last lines explain its end, and may come a moment later than the status."""

    class Mixed(Paper):
        def print_output(self, text: str) -> None:
            super().print_output(text)
            self.told += text.splitlines()

    told_of_the_end = threading.Event()

    class Late(Source):
        def watch(self, job_id: JobId) -> Iterator[FrayJob]:
            yield from super().watch(job_id)
            told_of_the_end.set()

        def logs(self, job_id: JobId, *, follow: bool = False, unfinished: bool = False) -> Iterator[LogLine]:
            assert told_of_the_end.wait(LIMIT)
            yield from super().logs(job_id, follow=follow, unfinished=unfinished)

    paper = Mixed()
    follow_job(Late(ended(3), [line("the cause")]), paper, terminal=False, color=False)
    failed = next(index for index, each in enumerate(paper.told) if "Failed after" in each)
    assert paper.told.index("[0/0] the cause") < failed


def test_what_is_said_beside_it_is_shown_and_who_leaves_is_obeyed() -> None:
    paper = Paper()

    class Endless(Source):
        def watch(self, job_id: JobId) -> Iterator[FrayJob]:
            yield from super().watch(job_id)
            following.say([Line("said")])
            following.abandon()

    source = Endless(ended()[:2], [])
    following = Following(source, JobId("job"), paper, terminal=False, color=False)
    assert following.run() is None
    assert paper.told[-1] == "said"
    assert paper.closed == 1
