"""The state directory: whole files whatever happens, and locks that tell who lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fray.cluster.local.claims import JobLocks, is_locked, read_holder
from fray.cluster.local.store import JobFolder, StateDirectory
from fray.errors import JobRunningError, StateDirectoryError
from fray.runtime import file_locks
from tests.unit.cluster.local_jobs import frayjob, held_locks


def folder_at(path: Path) -> JobFolder:
    folder = StateDirectory(path).job("job")
    folder.create()
    return folder


def test_a_resource_comes_back_as_it_was_written(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    assert folder.read() is None
    job = frayjob(tpu="v5p-16", retries={"failures": 3})
    folder.write(job)
    assert folder.read() == job
    assert not list(folder.path.glob("*.new"))


def test_a_write_that_fails_leaves_the_old_resource(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    job = frayjob()
    folder.write(job)
    (folder.path / "job.new").symlink_to("/dev/full")
    with pytest.raises(StateDirectoryError, match="No space left"):
        folder.write(frayjob(replicas=2))
    assert folder.read() == job


@pytest.mark.parametrize("content", ["", "{", "[]", '{"kind": "FrayJob"}', '"text"', "\xff"])
def test_a_resource_that_is_none_is_a_typed_error(tmp_path: Path, content: str) -> None:
    folder = folder_at(tmp_path)
    (folder.path / "job.json").write_text(content, encoding="latin-1")
    with pytest.raises(StateDirectoryError, match="holds no FrayJob"):
        folder.read()


def test_clearing_removes_an_earlier_run_but_not_the_locks(tmp_path: Path) -> None:
    locks = held_locks(tmp_path / "jobs" / "job")
    folder = folder_at(tmp_path)
    folder.write(frayjob())
    folder.request_stop()
    folder.attempt_logs(1).mkdir(parents=True)
    folder.clear()
    assert folder.read() is None
    assert not folder.stop_requested()
    assert not folder.logs.exists()
    assert is_locked(folder.runner_lock)
    locks.release()
    folder.clear()


def test_only_folders_are_jobs(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    assert state.job_names() == []
    folder_at(tmp_path)
    (tmp_path / "jobs" / "note.txt").write_text("")
    assert state.job_names() == ["job"]


def test_the_second_runner_of_a_job_is_refused_with_the_first_ones_id(tmp_path: Path) -> None:
    locks = held_locks(tmp_path)
    locks.publish()
    with pytest.raises(JobRunningError) as caught:
        JobLocks.acquire(JobFolder(tmp_path), name="job", waiting=lambda: None)
    assert (caught.value.name, caught.value.pid) == ("job", os.getpid())
    locks.release()
    held_locks(tmp_path).release()


def test_a_reader_that_holds_a_lock_for_long_is_not_taken_for_a_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = JobFolder(tmp_path)
    held_locks(tmp_path).release()
    reader = os.open(folder.runner_lock, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    now = 0.0

    def sleep(_: float) -> None:
        nonlocal now
        now += 2.0  # the machine stands still
        if now == 10.0:
            os.close(reader)

    monkeypatch.setattr(file_locks, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    JobLocks.acquire(folder, name="job", waiting=lambda: None).release()
    assert now == 10.0


def test_a_released_lock_is_free_and_looking_takes_nothing(tmp_path: Path) -> None:
    locks = held_locks(tmp_path)
    path = JobFolder(tmp_path).runner_lock
    assert is_locked(path)
    locks.release()
    assert not is_locked(path)
    assert not is_locked(path)


def test_a_lock_file_that_is_not_there_is_free(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "none")
    assert read_holder(tmp_path / "none") is None


@pytest.mark.parametrize("content", ["", "x", "-1", "12 13", "٣"])
def test_a_lock_file_that_names_nobody_is_read_as_that(tmp_path: Path, content: str) -> None:
    (tmp_path / "lock").write_text(content)
    assert read_holder(tmp_path / "lock") is None


def test_hosts_of_a_dead_runner_keep_the_next_one_waiting(tmp_path: Path) -> None:
    locks = held_locks(tmp_path)
    inherited = os.dup(locks.hosts)
    locks.release()
    told: list[str] = []

    def waiting() -> None:
        told.append("waiting")
        os.close(inherited)  # as the last host's supervisor does by its end

    again = JobLocks.acquire(JobFolder(tmp_path), name="job", waiting=waiting)
    assert told == ["waiting"]
    again.release()
