"""How jobs stand as another shell sees them, also those whose runner is gone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fray.cluster.local.jobs import derive_ended, list_jobs, observe_job
from fray.cluster.local.store import StateDirectory
from fray.cluster.local_cluster import LocalCluster
from fray.errors import JobNotFoundError
from fray.plan.lifecycle import decide
from fray.plan.settings import RetryPolicy
from fray.plan.status import Ending, is_finished
from fray.types import JobId
from fray.vocabulary import ConditionType, Reason
from fray.wire.frayjob import FrayJob
from tests.unit.cluster.local_jobs import frayjob, held_locks

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def started(name: str = "job", *, stopped: bool = False) -> FrayJob:
    """Return a job whose first attempt has begun, or one that was stopped before it could."""
    job = frayjob(name=name, stopped=stopped)
    status = decide(job, None, now=NOW, policy=RetryPolicy()).status
    return job.model_copy(update={"status": status})


def store(root: Path, job: FrayJob) -> StateDirectory:
    state = StateDirectory(root)
    folder = state.job(job.metadata.name)
    folder.create()
    folder.write(job)
    return state


def test_a_job_with_a_living_runner_stands_as_it_was_written(tmp_path: Path) -> None:
    state = store(tmp_path, started())
    locks = held_locks(tmp_path / "jobs" / "job")
    assert observe_job(state, "job") == started()
    locks.release()


def test_a_job_without_runner_has_failed_and_so_has_its_attempt(tmp_path: Path) -> None:
    state = store(tmp_path, started())
    status = observe_job(state, "job").status
    assert (status.phase, status.reason) == ("Failed", "RunnerLost")
    assert is_finished(status)
    assert status.attempts[-1].verdict == "Failure"
    assert status.attempts[-1].end_time is not None
    assert state.job("job").read() == started(), "looking writes nothing"


def test_a_finished_job_stays_what_it_was(tmp_path: Path) -> None:
    job = started(stopped=True)
    state = store(tmp_path, job)
    assert observe_job(state, "job") == job


def test_all_jobs_are_listed_by_name_and_empty_folders_are_not(tmp_path: Path) -> None:
    for name in ("b", "a"):
        store(tmp_path, started(name, stopped=True))
    StateDirectory(tmp_path).job("starting").create()
    assert [job.metadata.name for job in list_jobs(StateDirectory(tmp_path))] == ["a", "b"]


@pytest.mark.parametrize("name", ["none", "..", "../jobs/job", "", "/etc"])
def test_what_is_no_job_is_not_found_and_the_known_ones_are_named(tmp_path: Path, name: str) -> None:
    state = store(tmp_path, started(stopped=True))
    with pytest.raises(JobNotFoundError) as caught:
        observe_job(state, name)
    assert caught.value.known == ("job",)


def test_a_job_of_another_process_is_asked_by_a_file_and_one_that_has_ended_is_not(tmp_path: Path) -> None:
    state = store(tmp_path, started())
    store(tmp_path, started("over", stopped=True))
    locks = held_locks(tmp_path / "jobs" / "job")
    with LocalCluster(environ={"FRAY_STATE_DIR": str(tmp_path)}) as cluster:
        cluster.terminate(JobId("job"))
        cluster.terminate(JobId("over"))
        assert state.job("job").stop_requested()
        assert not state.job("over").stop_requested()
        locks.release()  # its runner dies before it obeys
        (job,) = cluster.wait_finished([JobId("job")])
    assert (job.status.phase, job.status.reason) == ("Failed", "RunnerLost")


def test_a_job_is_removed_with_its_folder(tmp_path: Path) -> None:
    store(tmp_path, started("over", stopped=True))
    with LocalCluster(environ={"FRAY_STATE_DIR": str(tmp_path)}) as cluster:
        cluster.delete(JobId("over"))
        assert cluster.get_all() == []
        with pytest.raises(JobNotFoundError):
            cluster.delete(JobId("over"))


def test_a_failure_from_outside_keeps_what_the_attempts_were(tmp_path: Path) -> None:
    status = derive_ended(
        frayjob(), Ending(ConditionType.FAILED, Reason.START_FAILED, "no port is free"), NOW
    )
    assert (status.phase, status.reason, status.attempts) == ("Failed", "StartFailed", [])


def test_of_many_jobs_those_with_a_name_like_it_are_told_and_the_others_counted(tmp_path: Path) -> None:
    for number in range(20):
        state = store(tmp_path, started(f"job-{number:02}"))
    store(tmp_path, started("evaluation"))
    with pytest.raises(JobNotFoundError) as caught:
        observe_job(state, "evaluaton")
    assert caught.value.next_step == "Known jobs: evaluation, and 20 more (`fray list`)."
    with pytest.raises(JobNotFoundError) as caught:
        observe_job(state, "xyz")
    assert caught.value.known == ("evaluation", "job-00", "job-01", "job-02", "job-03")
    assert caught.value.others == 16


def test_where_not_all_jobs_were_read_none_are_counted() -> None:
    names = [f"job-{number:02}" for number in range(20)]
    error = JobNotFoundError.among("xyz", "ml", names, all_read=False)
    assert error.next_step == "Known jobs: job-00, job-01, job-02, job-03, job-04, and more (`fray list`)."
    assert JobNotFoundError.among("xyz", "ml", names[:2]).next_step == "Known jobs: job-00, job-01."
