"""Jobs of a Python program beside those of shells: who sees them, who ends them, and when they end."""

from __future__ import annotations

import gc
import json
import os
import pickle
import platform
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fray.cluster import (
    Entrypoint,
    JobId,
    JobRequest,
    LocalCluster,
    ResourceConfig,
    current_cluster,
)
from fray.cluster.cluster_spec import LocalSpec
from fray.cluster.local.claims import claim_job, remove_expired
from fray.cluster.local.store import StateDirectory
from fray.errors import (
    InvalidRequestError,
    JobFailedError,
    JobNotFoundError,
    MachineMismatchError,
    UnsupportedFeatureError,
)
from fray.types import create_environment
from tests.local.harness import Fray, job_manifest, running_job, wait_for

WAITING = "echo ready; exec sleep 300"
PATIENCE = 100.0


@pytest.fixture(autouse=True)
def no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed processes are waited for however slow the machine is."""
    monkeypatch.setattr("fray.cluster.local_cluster.CLOSE_SECONDS", PATIENCE)


@pytest.fixture
def cluster(fray: Fray) -> Iterator[LocalCluster]:
    with LocalCluster(environ=fray.environ()) as cluster:
        yield cluster


def shell(cluster: LocalCluster, name: str, script: str, **options: Any) -> JobId:
    return cluster.launch(JobRequest(name, Entrypoint.from_command(["sh", "-c", script]), **options))


def first_line(cluster: LocalCluster, job: JobId) -> str:
    return next(cluster.logs(job, follow=True)).text


def wait_running(cluster: LocalCluster, job: JobId) -> None:
    """Return once a job runs: what it prints may be there a moment before."""
    wait_for(lambda: cluster.poll(job).status == "running", f"{job} to run", seconds=PATIENCE)


def start_program(fray: Fray, body: str) -> subprocess.Popen[bytes]:
    """Start a program with a cluster; it goes on when it reads a line."""
    head = """
        import sys
        from fray.cluster import Entrypoint, JobRequest, current_cluster
        cluster = current_cluster()
        job = cluster.launch(JobRequest("train", Entrypoint.from_command(["sh", "-c", sys.argv[1]])))
        next(cluster.logs(job, follow=True))
        print("launched", flush=True)
        sys.stdin.readline()
    """
    program = textwrap.dedent(head) + textwrap.dedent(body)
    process = subprocess.Popen(
        [sys.executable, "-c", program, WAITING],
        env=fray.environ(),
        cwd=fray.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    fray.started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"launched\n", process.communicate()
    return process


def test_a_shell_sees_a_program_s_job_and_stops_it(fray: Fray, cluster: LocalCluster) -> None:
    job = shell(cluster, "train", WAITING)
    assert first_line(cluster, job) == "ready"
    assert fray.run("logs", "train").out == "[0/0] ready\n"
    assert fray.run("stop", "train").code == 0
    assert cluster.wait(job, timeout=PATIENCE).status == "stopped"
    refused = fray.run_job(job_manifest("true", name="train"))
    assert refused.code == 0, "a finished job's name is free for `fray run`"


def test_a_program_sees_a_shell_s_job_and_ends_it(fray: Fray, cluster: LocalCluster) -> None:
    process = running_job(fray, job_manifest(WAITING, name="shells"), until="ready")
    job = JobId("shells")
    wait_running(cluster, job)
    lines: list[str] = []
    reader = threading.Thread(
        target=lambda: lines.extend(line.text for line in cluster.logs(job, follow=True))
    )
    reader.start()
    assert [info.job_id for info in cluster.list_jobs()] == ["shells"]
    cluster.terminate(job)
    assert cluster.wait(job, timeout=PATIENCE).status == "stopped"
    reader.join(PATIENCE)
    assert lines == ["ready"]
    assert fray.finish(process).code == 143


def test_a_name_that_a_shell_uses_is_not_taken_away(fray: Fray, cluster: LocalCluster) -> None:
    process = running_job(fray, job_manifest(WAITING, name="train"), until="ready")
    job = shell(cluster, "train", "true")
    assert job == "train-2"
    assert cluster.launch(JobRequest("train", "json.tool"), when_taken="adopt") == "train"
    assert cluster.wait(job, timeout=PATIENCE).status == "succeeded"
    process.send_signal(signal.SIGINT)
    fray.finish(process)


def test_jobs_end_with_the_program_that_ends(fray: Fray, cluster: LocalCluster) -> None:
    process = start_program(fray, "")
    job = JobId("train")
    wait_running(cluster, job)
    assert fray.finish(process, stdin=b"\n").code == 0
    assert cluster.poll(job).status == "stopped"
    assert not fray.processes()


def test_jobs_end_with_the_program_that_fails(fray: Fray, cluster: LocalCluster) -> None:
    process = start_program(fray, "raise SystemExit(3)")
    assert fray.finish(process, stdin=b"\n").code == 3
    assert cluster.poll(JobId("train")).status == "stopped"


def test_jobs_end_with_the_program_that_is_killed(fray: Fray, cluster: LocalCluster) -> None:
    process = start_program(fray, "")
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(cluster.wait(JobId("train"), timeout=PATIENCE)))
    waiter.start()
    process.kill()
    waiter.join()
    assert (found[0].status, found[0].reason) == ("failed", "RunnerLost")
    fray.wait_gone()


def test_jobs_end_with_the_job_that_launched_them(fray: Fray, cluster: LocalCluster) -> None:
    def launch_and_wait() -> None:
        inner = current_cluster()
        child = inner.launch(JobRequest("child", Entrypoint.from_command(["sh", "-c", WAITING])))
        print(next(inner.logs(child, follow=True)).text, flush=True)
        inner.wait(child)

    parent = cluster.launch(JobRequest("parent", Entrypoint.from_callable(launch_and_wait)))
    assert first_line(cluster, parent) == "ready"
    child = JobId("child")
    wait_running(cluster, child)
    assert fray.stored("child")["spec"]["parent"] == {"name": "parent", "root": "parent"}
    cluster.terminate(parent)
    assert cluster.wait(parent, timeout=PATIENCE).status == "stopped"
    assert cluster.wait(child, timeout=PATIENCE).status == "stopped"
    assert not fray.processes()


def test_what_only_running_jobs_need_goes_with_their_end(fray: Fray, cluster: LocalCluster) -> None:
    class Held:
        pass

    held = Held()
    forgotten = weakref.ref(held)
    with LocalCluster(LocalSpec(mode="thread"), environ=fray.environ()) as threads:
        job = threads.launch(JobRequest("thread", Entrypoint.from_callable(id, args=[held])))
        assert threads.wait(job, timeout=PATIENCE).status == "succeeded"
        del held
        wait_for(lambda: gc.collect() >= 0 and forgotten() is None, "the end of what the job held")
    job = cluster.launch(JobRequest("process", Entrypoint.from_callable(print, args=["x" * 1_000_000])))
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    folder = fray.state / "jobs" / "process"
    assert {path.name for path in folder.iterdir()} == {"job.json", "logs", "runner.lock", "hosts.lock"}


def test_close_ends_the_jobs_and_may_be_called_again(fray: Fray, cluster: LocalCluster) -> None:
    jobs = [shell(cluster, f"train-{letter}", WAITING) for letter in "abc"]
    assert first_line(cluster, jobs[0]) == "ready"
    cluster.close()
    assert "fray-local-cluster" not in {thread.name for thread in threading.enumerate()}
    cluster.close()
    assert {info.status for info in cluster.wait(jobs)} == {"stopped"}
    assert not fray.processes()
    again = shell(cluster, "again", "true")
    assert cluster.wait(again, timeout=PATIENCE).status == "succeeded"


def test_close_kills_what_does_not_end(
    fray: Fray, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fray.cluster.local_cluster.CLOSE_GRACE_SECONDS", 0.0)
    job = shell(cluster, "stubborn", "trap '' TERM; echo ready; while :; do sleep 300; done")
    assert first_line(cluster, job) == "ready"
    cluster.close()
    assert cluster.poll(job).status == "stopped"
    assert not fray.processes()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_jobs_of_its_own(fray: Fray, cluster: LocalCluster) -> None:
    job = shell(cluster, "parents", WAITING)
    wait_running(cluster, job)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            mine = shell(cluster, "childs", "echo here")
            told = [cluster.wait(mine, timeout=PATIENCE).status, cluster.poll(job).status]
            cluster.close()
            os.write(write_end, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        assert json.loads(pipe.read()) == ["succeeded", "running"]
    os.waitpid(child, 0)
    cluster.terminate(job)
    assert cluster.wait(job, timeout=PATIENCE).status == "stopped"


def test_lines_of_every_attempt_and_of_one(cluster: LocalCluster) -> None:
    script = 'echo "attempt $FRAY_ATTEMPT"; [ $FRAY_ATTEMPT = 3 ]'
    job = shell(cluster, "flaky", script, max_retries_failure=5)
    assert [str(line) for line in cluster.logs(job, follow=True)] == [
        "[0/0 1] attempt 1",
        "[0/0 2] attempt 2",
        "[0/0 3] attempt 3",
    ]
    assert cluster.wait(job, timeout=PATIENCE).status == "succeeded"
    assert [line.text for line in cluster.logs(job, attempt=2)] == ["attempt 2"]


def test_lines_that_are_no_longer_kept_are_told(cluster: LocalCluster, fray: Fray) -> None:
    with LocalCluster(environ=fray.environ({"FRAY_BACKOFF_SECONDS": "0"})) as hasty:
        job = shell(hasty, "often", "exit 1", max_retries_failure=11)
        hasty.wait(job, timeout=PATIENCE)
        gap, *rest = hasty.logs(job)
        assert gap.gap
        assert gap.text == "the lines of attempts 1 to 2 are no longer kept"
        assert not rest


def test_slices_are_processes_too(cluster: LocalCluster) -> None:
    resources = ResourceConfig.with_tpu("v5litepod-16", slice_count=2)
    job = shell(cluster, "slices", 'echo "$FRAY_SLICE/$FRAY_HOST $TPU_WORKER_ID"', resources=resources)
    info = cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    assert len(info.tasks) == 2
    lines = {line.rank: line for line in cluster.logs(job)}
    assert len(lines) == 8
    assert all(line.text == f"{line.slice_index}/{line.host} {line.host}" for line in lines.values())
    assert [line.rank for line in cluster.logs(job, rank=5)] == [5]


def test_a_thread_that_does_not_listen_is_given_up(
    fray: Fray, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fray.cluster.local_cluster.CLOSE_GRACE_SECONDS", 0.0)
    monkeypatch.setattr("fray.cluster.local.host_thread.KILL_SECONDS", 0.0)
    started, over, ended = threading.Event(), threading.Event(), threading.Event()

    def wait_outside_of_python() -> None:
        started.set()
        try:
            over.wait()
        finally:
            ended.set()

    cluster = LocalCluster(LocalSpec(mode="thread"), environ=fray.environ())
    job = cluster.launch(JobRequest("deaf", Entrypoint.from_callable(wait_outside_of_python)))
    assert started.wait(PATIENCE)
    cluster.close()
    assert cluster.poll(job).status == "stopped"
    assert "runs on" in caplog.text
    over.set()
    assert ended.wait(PATIENCE)


def test_another_version_than_asked_for_is_a_warning(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    environment = create_environment(pip_packages=["pytest==1.0"])
    request = JobRequest("old", Entrypoint.from_callable(print), environment=environment)
    cluster.wait(cluster.launch(request))
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert warning.getMessage().endswith(f"the one that is installed here, {pytest.__version__}")


def test_the_outcome_is_that_of_the_last_attempt(cluster: LocalCluster) -> None:
    def succeed_later() -> int:
        attempt = int(os.environ["FRAY_ATTEMPT"])
        if attempt < 2:
            raise ValueError("too early")
        return attempt

    job = cluster.launch(JobRequest("later", Entrypoint.from_callable(succeed_later), max_retries_failure=1))
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    outcome = cluster.outcome(job)
    assert outcome is not None
    assert outcome.result() == 2


def test_many_launches_leave_no_thread_and_no_open_file(cluster: LocalCluster) -> None:
    first = shell(cluster, "many", "true")
    cluster.wait(first, timeout=PATIENCE)
    wait_for(lambda: "fray-expiry" not in {thread.name for thread in threading.enumerate()}, "the expiry")
    threads, files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        jobs = [shell(cluster, "many", "true") for _ in range(8)]
        assert {info.status for info in cluster.wait(jobs, timeout=PATIENCE)} == {"succeeded"}
    assert len({info.job_id for info in cluster.list_jobs()}) == 41
    # A thread of an earlier test may have been about to end.
    assert threading.active_count() <= threads
    assert len(list(Path("/proc/self/fd").iterdir())) <= files


def test_secrets_are_in_no_file(fray: Fray, cluster: LocalCluster) -> None:
    environment = create_environment(env_vars={"API_TOKEN": "s3cret-7"})
    job = shell(cluster, "secret", "[ ${#API_TOKEN} = 8 ]", environment=environment)
    assert cluster.wait(job, timeout=PATIENCE).status == "succeeded"
    files = [path for path in fray.state.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"s3cret-7" in path.read_bytes()]


def test_what_cannot_be_had_here_is_refused_and_leaves_nothing(fray: Fray, cluster: LocalCluster) -> None:
    for kind, options in (
        (UnsupportedFeatureError, {"pip_packages": ["no-such-package-of-fray"]}),
        (UnsupportedFeatureError, {"secrets": ["wandb"]}),
        (InvalidRequestError, {"workspace": "/nowhere/at/all"}),
    ):
        with pytest.raises(kind):
            shell(cluster, "never", "true", environment=create_environment(**options))  # type: ignore[arg-type]
    assert cluster.list_jobs() == []
    assert not (fray.state / "jobs").exists()
    installed = create_environment(pip_packages=["pydantic>=1", "pyyaml"])
    assert cluster.wait(shell(cluster, "fine", "true", environment=installed)).status == "succeeded"


def test_finished_jobs_go_after_their_time(fray: Fray, cluster: LocalCluster) -> None:
    fray.run_job(job_manifest("true", name="shells", ttlSecondsAfterFinished=3600))
    done = shell(cluster, "done", "true")
    cluster.wait(done, timeout=PATIENCE)
    living = shell(cluster, "living", WAITING)
    state = StateDirectory(fray.state)
    _, locks = claim_job(state, "killed-at-launch")
    locks.release()
    now = datetime.now(UTC)
    remove_expired(state, now + timedelta(minutes=30))
    assert set(state.job_names()) == {"done", "living", "killed-at-launch", "shells"}
    remove_expired(state, now + timedelta(hours=23))
    assert set(state.job_names()) == {"done", "living", "killed-at-launch"}
    remove_expired(state, now + timedelta(hours=25))
    assert set(state.job_names()) == {"living"}
    with pytest.raises(JobNotFoundError):
        LocalCluster(environ=fray.environ()).poll(done)
    cluster.terminate(living)


def test_a_failure_has_the_exit_code_of_its_first_cause(cluster: LocalCluster) -> None:
    job = shell(cluster, "train", "exit 9")
    assert cluster.wait(job, timeout=PATIENCE).exit_code == 9
    with pytest.raises(JobFailedError) as caught:
        cluster.wait(job, raise_on_failure=True)
    assert caught.value.exit_code == 9


def test_jobs_that_ended_long_ago_are_told_of_by_their_files(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fray.cluster.local_cluster.KEPT_FINISHED", 2)
    jobs = [shell(cluster, f"train-{number}", f"echo {number}; exit {number}") for number in range(5)]
    infos = cluster.wait(jobs, timeout=PATIENCE)
    wait_for(lambda: len(cluster._launched) == 2, "the others to be forgotten, a moment after their end")
    assert [info.exit_code for info in infos] == list(range(5))
    assert cluster.wait(jobs) == infos == cluster.list_jobs()
    assert [line.text for job in jobs for line in cluster.logs(job, follow=True)] == list("01234")


def test_it_can_be_pickled_for_other_processes_of_the_machine(cluster: LocalCluster) -> None:
    job = shell(cluster, "train", WAITING)
    assert first_line(cluster, job) == "ready"

    def end_it() -> str:
        cluster.terminate(job)
        return str(cluster.wait(job).status)

    child = cluster.launch(JobRequest("child", Entrypoint.from_callable(end_it)))
    cluster.wait(child, raise_on_failure=True, timeout=PATIENCE)
    outcome = cluster.outcome(child)
    assert outcome is not None
    assert outcome.result() == "stopped"
    assert cluster.wait(job, timeout=PATIENCE).status == "stopped"


def test_it_means_nothing_to_another_machine(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(cluster)
    here = platform.node()
    with pickle.loads(pickled) as again:
        assert again.list_jobs() == cluster.list_jobs()
    monkeypatch.setattr(platform, "node", lambda: "elsewhere")
    with pytest.raises(MachineMismatchError) as caught:
        pickle.loads(pickled)
    assert (caught.value.machine, caught.value.here) == (here, "elsewhere")


def test_a_job_is_seen_by_others_as_soon_as_it_has_an_id(
    fray: Fray, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(cluster._loop, "start", held.append)
        job = shell(cluster, "train", "true")
    with LocalCluster(environ=fray.environ()) as other:
        assert other.poll(job).status == "pending"
        cluster._loop.start(held.pop())
        assert other.wait(job, timeout=PATIENCE).status == "succeeded"
