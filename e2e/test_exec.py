"""`fray exec` and `fray shell` on a real cluster: streams, terminal and exit code of a command in a pod."""

from __future__ import annotations

import os
import pty
import select
import subprocess

from e2e.job_namespace import JobNamespace, build_shell, until_told

PATIENCE = 60.0


def test_a_command_runs_in_the_host_of_a_rank(jobs: JobNamespace) -> None:
    jobs.submit(build_shell("train", until_told(), replicas=2))
    jobs.await_job("train", "condition=Running")
    script = 'cat; echo "rank $FRAY_RANK" >&2; exit 7'
    words, environ = jobs.fray("exec", "train", "--rank", "1", "--", "sh", "-c", script)
    data = bytes(range(256)) * 4096
    ran = subprocess.run(words, env=environ, input=data, capture_output=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stderr) == (7, b"rank 1\n")
    assert ran.stdout == data
    words, environ = jobs.fray("exec", "train", "--", "no-such-program")
    missing = subprocess.run(
        words, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
    )
    assert missing.returncode == 2
    assert b"can't run 'no-such-program'" in missing.stderr
    jobs.tell("train")


def test_a_shell_has_a_terminal(jobs: JobNamespace) -> None:
    jobs.submit(build_shell("train", until_told()))
    jobs.await_job("train", "condition=Running")
    words, environ = jobs.fray("shell", "train")
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(words, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, b"test -t 0 && echo on a ter''minal; exit 3\n")
    shown = b""
    while True:
        ready, _, _ = select.select([ours], [], [], PATIENCE)
        assert ready, f"the shell says nothing after {shown!r}"
        try:
            piece = os.read(ours, 4096)
        except OSError:
            break  # Linux: the other end was closed
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert shell.wait(PATIENCE) == 3
    assert b"on a terminal" in shown
    jobs.tell("train")
