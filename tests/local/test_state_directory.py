"""A state directory that can't be used is named, with the way out, and no process is left."""

from __future__ import annotations

import subprocess
import sys

from tests.local.harness import Fray, job_manifest


def test_a_file_in_place_of_the_directory_is_named(fray: Fray) -> None:
    fray.state.write_text("in the way")
    for result in (fray.run_job(job_manifest("true")), fray.run("list"), fray.run("status", "job")):
        assert result.code == 1
        assert f"state directory {fray.state}" in result.err
        assert "FRAY_STATE_DIR" in result.err
        assert "Traceback" not in result.err


def test_a_directory_that_cannot_be_written_is_named(fray: Fray) -> None:
    # /proc refuses new folders to everybody, root included.
    result = fray.run_job(job_manifest("true"), env={"FRAY_STATE_DIR": "/proc/fray"})
    assert result.code == 1
    assert "state directory /proc/fray" in result.err


def test_a_disk_that_fills_up_ends_the_job_and_says_so(fray: Fray) -> None:
    job = job_manifest("while :; do echo 0123456789; done", replicas=2, retries={"failures": 3})
    path = fray.write_job(job)
    limit = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)); "
        "os.execv(sys.executable, [sys.executable, '-m', 'fray.cli', 'run', '-f', sys.argv[1]])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", limit, path],
        env=fray.environ(),
        cwd=fray.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    fray.started.append(process)
    result = fray.finish(process)
    assert result.code == 1
    assert "File too large" in result.err
    assert "state directory" in result.err
    assert not fray.processes()
    assert fray.status("job")["status"]["phase"] == "Failed"


def test_a_state_file_that_holds_nonsense_is_named(fray: Fray) -> None:
    fray.run_job(job_manifest("true"))
    (fray.state / "jobs" / "job" / "job.json").write_text('{"half": ')
    result = fray.run("status", "job")
    assert result.code == 1
    assert "job.json" in result.err
    # A new run does not care what was there.
    assert fray.run_job(job_manifest("true")).code == 0


def test_a_job_folder_that_vanishes_ends_the_job(fray: Fray) -> None:
    gone = f"rm -r {fray.state}/jobs/job; exit 1"
    # What comes of the first host's end can't be written any more.
    job = job_manifest(f'if [ "$FRAY_HOST" = 0 ]; then {gone}; fi; exec sleep 300', replicas=2)
    result = fray.run_job(job)
    assert result.code == 1
    assert "state directory" in result.err
    assert not fray.processes()


def test_nobody_else_may_read_a_jobs_output(fray: Fray) -> None:
    fray.run_job(job_manifest("echo secret"))
    assert (fray.state / "jobs" / "job").stat().st_mode & 0o077 == 0


def test_a_setting_that_means_nothing_is_named(fray: Fray) -> None:
    result = fray.run_job(job_manifest("true"), env={"FRAY_BACKOFF_SECONDS": "soon"})
    assert result.code == 1
    assert "FRAY_BACKOFF_SECONDS is 'soon'" in result.err
    assert fray.run("--help", env={"FRAY_BACKOFF_SECONDS": "soon"}).code == 0
