"""Gang calls with several numbers of slices: which job is launched, and which is given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from fray.cluster.base import Cluster
from fray.errors import InvalidRequestError, JobStoppedError
from fray.legacy import gang_calls
from fray.legacy.gang_calls import call_on_slices
from fray.legacy.tpu_topology import TpuRunConfig
from fray.payload.outcome import Outcome
from fray.types import JobId, JobRequest, JobStatus
from fray.wire.frayjob import FrayJob
from tests.unit.cluster.local_jobs import frayjob

RAN = {"number": 1, "jobSet": "a1", "runningTime": "2026-11-01T12:00:00Z"}


class Clock:
    """Time that passes while a job is waited for."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class FewSlices:
    """A cluster with so many free slices. A job that needs more waits for ever, until it is stopped."""

    def __init__(self, clock: Clock, free: int, *, interrupt: bool = False, late: bool = False) -> None:
        self.clock, self.free, self.interrupt, self.late = clock, free, interrupt, late
        self.launched: list[int] = []
        self.stopped: list[int] = []

    def launch(self, request: JobRequest) -> JobId:
        count = request.gang_resources.replicas
        self.launched.append(count)
        return JobId(str(count))

    def wait_finished(self, job_ids: Sequence[JobId], timeout: float | None = None) -> list[FrayJob]:
        if self.interrupt:
            raise KeyboardInterrupt
        assert timeout is not None
        self.clock.now += timeout
        job = frayjob(tpu="v5p-16")
        attempts = [RAN] if self._starts(job_ids[0]) else []
        return [FrayJob.from_manifest({**job.to_manifest(), "status": {"attempts": attempts}})]

    def wait(self, job_id: JobId, *, raise_on_failure: bool = False) -> Any:
        if int(job_id) in self.stopped and not self.late:
            if raise_on_failure:
                raise JobStoppedError(job_id, "StopRequested", "somebody asked for its end", 143)
            return Ended(JobStatus.STOPPED)
        return Ended(JobStatus.SUCCEEDED)

    def terminate(self, job_id: JobId) -> None:
        self.stopped.append(int(job_id))

    def outcomes(self, job_id: JobId) -> list[Outcome]:
        return [Outcome(value=f"of {job_id}")]

    def _starts(self, job_id: JobId) -> bool:
        return int(job_id) <= self.free


class Ended:
    def __init__(self, status: JobStatus) -> None:
        self.status = status


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(gang_calls, "time", clock)
    return clock


def call(cluster: FewSlices, slices: int | Sequence[int]) -> list[Any]:
    return call_on_slices(cast("Cluster", cluster), print, TpuRunConfig("v5p-16", slices), None)


@pytest.mark.parametrize(
    ("free", "launched"), [(9, [8]), (4, [8, 4]), (2, [8, 4, 2]), (0, [8, 4, 2])], ids=str
)
def test_the_largest_number_that_starts_is_run_and_the_smallest_is_waited_for(
    clock: Clock, free: int, launched: list[int]
) -> None:
    cluster = FewSlices(clock, free)
    assert call(cluster, [2, 8, 4, 8]) == [f"of {launched[-1]}"]
    assert cluster.launched == launched
    assert cluster.stopped == launched[:-1]


def test_each_number_has_its_time_to_start(clock: Clock) -> None:
    call(FewSlices(clock, 0), [4, 2, 1])
    assert clock.now == 2 * gang_calls.START_SECONDS


def test_one_number_is_waited_for_without_a_limit(clock: Clock) -> None:
    cluster = FewSlices(clock, 0)
    assert call(cluster, 4) == ["of 4"]
    assert (cluster.stopped, clock.now) == ([], 0.0)


def test_a_gang_that_has_succeeded_before_its_stop_has_its_values(clock: Clock) -> None:
    cluster = FewSlices(clock, 0, late=True)
    assert call(cluster, [2, 1]) == ["of 2"]
    assert cluster.launched == [2]


def test_an_interrupt_stops_the_gang_that_waits_to_start(clock: Clock) -> None:
    cluster = FewSlices(clock, 0, interrupt=True)
    with pytest.raises(KeyboardInterrupt):
        call(cluster, [2, 1])
    assert (cluster.launched, cluster.stopped) == ([2], [2])


@pytest.mark.parametrize("slices", [0, [], [2, 0], [True], "2"], ids=str)
def test_what_is_no_number_of_slices_is_refused(slices: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"TpuRunConfig\.num_slices"):
        TpuRunConfig("v5p-16", slices)


def test_what_is_no_function_is_refused_before_anything_starts(clock: Clock) -> None:
    cluster = FewSlices(clock, free=1)
    with pytest.raises(InvalidRequestError, match="fn: is a str"):
        call_on_slices(cast("Cluster", cluster), cast("Any", "echo"), TpuRunConfig("v5p-16"), None)
    assert cluster.launched == []
