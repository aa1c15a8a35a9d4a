"""However a run ends, its processes end with it, and nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fray.cluster.local.host import SUPERVISOR
from tests.local.harness import LAUNCHER, Fray, Result, job_manifest, running_job, wait_for

POLITE = 'trap "echo got TERM; exit 0" TERM; echo ready; while :; do sleep 0.02; done'
DEAF = 'trap "" TERM INT HUP; echo ready; while :; do sleep 0.02; done'
FAMILY = "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.02; done' & sleep 300 & echo ready; wait"


def manifest(script: str, *, grace: int | None = None, replicas: int = 2) -> dict[str, object]:
    template = {} if grace is None else {"podTemplate": {"spec": {"terminationGracePeriodSeconds": grace}}}
    return job_manifest(script, replicas=replicas, **template)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_all_processes_with_grace(fray: Fray, number: int, code: int) -> None:
    process = running_job(fray, manifest(POLITE), until="ready")
    process.send_signal(number)
    result = fray.finish(process)
    assert result.code == code
    assert "[0/0] got TERM" in result.out
    assert "[0/1] got TERM" in result.out
    assert "job: Stopped after" in result.err
    assert fray.status("job")["status"]["phase"] == "Stopped"
    assert not fray.processes()


SIGNALLED = """
import os, sys
from fray.cli.__main__ import main
from fray.cluster import LocalCluster

number, when = int(sys.argv[1]), sys.argv[2]
create = LocalCluster.create

def create_and_be_signalled(cluster, *args, **options):
    if when == "before":
        os.kill(os.getpid(), number)
    name = create(cluster, *args, **options)
    next(cluster.logs(name, follow=True))
    os.kill(os.getpid(), number)
    return name

LocalCluster.create = create_and_be_signalled
sys.argv[1:] = sys.argv[3:]
main()
"""


def run_signalled(fray: Fray, number: int, when: str) -> Result:
    """Run a job whose command gets a signal before its launch, or when a host runs and it hasn't returned."""
    path = fray.write_job(manifest(POLITE, replicas=1))
    command = [sys.executable, "-c", SIGNALLED, str(int(number)), when, "run", "-f", path]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, *command], env=fray.environ(), cwd=fray.folder, **pipes
    )
    fray.started.append(process)
    return fray.finish(process)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_comes_while_the_launch_returns_ends_the_job_in_order(
    fray: Fray, number: int, code: int
) -> None:
    result = run_signalled(fray, number, "launched")
    assert (result.code, "[0/0] got TERM" in result.out) == (code, True), result
    assert fray.status("job")["status"]["phase"] == "Stopped"
    assert not fray.processes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_before_the_launch_ends_the_command_alone(fray: Fray, number: int, code: int) -> None:
    assert run_signalled(fray, number, "before").code == code
    assert fray.status("job") == {}


def test_a_process_that_ignores_the_request_is_killed_after_its_grace(fray: Fray) -> None:
    process = running_job(fray, manifest(DEAF, grace=1), until="ready")
    process.send_signal(signal.SIGINT)
    assert fray.finish(process).code == 130
    assert not fray.processes()


def test_a_second_ctrl_c_kills_at_once(fray: Fray) -> None:
    process = running_job(fray, manifest(DEAF, grace=600), until="ready")
    process.send_signal(signal.SIGINT)
    wait_for(lambda: fray.phase("job") == "Stopping", "the first request")
    process.send_signal(signal.SIGINT)
    assert fray.finish(process).code == 130
    assert not fray.processes()


def test_a_killed_run_leaves_no_process_behind_and_is_found_failed(fray: Fray) -> None:
    process = running_job(fray, manifest(FAMILY), until="ready")
    wait_for(lambda: len(fray.processes()) > 7, "both hosts and their children")
    process.kill()
    process.wait()
    fray.wait_gone()
    resource = fray.status("job")["status"]
    assert (resource["phase"], resource["reason"]) == ("Failed", "RunnerLost")
    assert resource["attempts"][-1]["verdict"] == "Failure"
    assert "RunnerLost" in fray.run("list").out


def test_a_run_after_a_killed_one_waits_for_the_last_process_and_takes_its_place(fray: Fray) -> None:
    process = running_job(fray, manifest(DEAF, grace=1, replicas=1), until="ready")
    (supervisor,) = [pid for pid, command in fray.processes().items() if "supervisor.py" in command]
    os.kill(supervisor, signal.SIGSTOP)  # so that it is still there when the next run starts
    process.kill()
    process.wait()
    again = fray.start("run", "-f", fray.write_job(job_manifest("echo again")))
    assert again.stderr is not None
    assert b"waiting for processes of an earlier run to end" in again.stderr.readline()
    os.kill(supervisor, signal.SIGCONT)
    result = fray.finish(again)
    assert (result.code, result.out) == (0, "[0/0] again\n")
    assert len(fray.processes()) == 0


def test_a_run_killed_before_it_heard_of_the_start_leaves_nothing(fray: Fray, tmp_path: Path) -> None:
    """The supervisor finds nobody to tell that the process has started, and ends it all the same."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-I", "-S", str(SUPERVISOR), str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=fray.environ())
        fray.started.append(process)
        os.kill(process.pid, signal.SIGSTOP)
        task = {"argv": ["sh", "-c", DEAF], "env": fray.environ(), "cwd": str(tmp_path), "grace": 0.2}
        ours.sendall(json.dumps(task).encode() + b"\n")
    os.kill(process.pid, signal.SIGCONT)
    process.wait(timeout=60)
    fray.wait_gone()


def test_a_killed_supervisor_fails_its_host_and_leaves_nothing(fray: Fray) -> None:
    process = running_job(fray, manifest("sleep 300 & echo ready; wait", replicas=1), until="ready")
    (supervisor,) = [pid for pid, command in fray.processes().items() if "supervisor.py" in command]
    os.kill(supervisor, signal.SIGKILL)
    result = fray.finish(process)
    assert result.code == 137
    assert "SIGKILL" in result.err
    fray.wait_gone()


def test_grandchildren_in_sessions_of_their_own_end_with_the_process(fray: Fray) -> None:
    script = "setsid sh -c 'setsid sleep 300 & setsid sleep 300 & wait' & sleep 0.2; echo done"
    assert fray.run_job(job_manifest(script)).code == 0
    assert not fray.processes()


def test_a_stopped_process_is_ended_too(fray: Fray) -> None:
    process = running_job(fray, manifest("echo ready; kill -STOP $$$$", replicas=1), until="ready")
    process.send_signal(signal.SIGTERM)
    assert fray.finish(process).code == 143
    assert not fray.processes()


def test_a_pause_between_attempts_is_ended_by_a_signal(fray: Fray) -> None:
    job = job_manifest("exit 1", retries={"failures": 5})
    process = fray.start("run", "-f", fray.write_job(job), env={"FRAY_BACKOFF_SECONDS": "600"})
    wait_for(lambda: fray.stored("job").get("status", {}).get("reason") == "BackOff", "the pause")
    process.send_signal(signal.SIGINT)
    assert fray.finish(process).code == 130
    assert fray.status("job")["status"]["attempt"] == 1


def test_a_hangup_that_the_caller_ignores_is_ignored(fray: Fray) -> None:
    path = fray.write_job(manifest(POLITE, replicas=1))
    command = f'trap "" HUP; exec {sys.executable} -m fray.cli run -f {path}'
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(["sh", "-c", command], env=fray.environ(), cwd=fray.folder, **pipes)
    fray.started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"[0/0] ready\n"
    process.send_signal(signal.SIGHUP)
    # Still running some work later: another shell can stop it, which it can't once it has ended.
    assert fray.run("stop", "job").code == 0
    assert fray.finish(process).code == 143


def test_processes_start_with_default_signal_handling(fray: Fray) -> None:
    prefix, name, ignored = fray.run_job(job_manifest("grep SigIgn /proc/self/status")).out.split()
    # Signals 32 and 33 belong to the C library: no program can set them, and some are started without.
    reserved = 1 << 31 | 1 << 32
    assert (prefix, name, int(ignored, 16) & ~reserved) == ("[0/0]", "SigIgn:", 0)


def test_hosts_that_obey_do_not_wait_for_the_end_of_their_grace(fray: Fray) -> None:
    script = 'if [ "$FRAY_HOST" = 11 ]; then exit 5; fi; exec sleep 3000'
    assert fray.run_job(manifest(script, grace=3000, replicas=12)).code == 5
