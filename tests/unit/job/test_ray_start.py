"""Ray is started again where it gives up, and nothing of a start that failed stays."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fray.errors import ContextUnavailableError
from fray.job import create_job_ctx
from fray.job.ray_start import TRIES, try_to_start

PROGRAM = """
import psutil
from ray._private.node import Node
from fray.errors import ContextUnavailableError
from fray.job import create_job_ctx

begun = []
def give_up(node, **_):
    begun.extend(each.name() for each in psutil.Process().children())
    raise Exception("The current node timed out during startup.")
Node.start_api_server = give_up

try:
    create_job_ctx("ray", max_workers=1)
except ContextUnavailableError as error:
    print(error)
print(begun.count("gcs_server"), "begun,", [each.name() for each in psutil.Process().children()], "left")
"""
"""Stands for a machine on which the head's store starts in time, and all else doesn't."""

SILENT_AGENTS = """
import sys
if any(word.endswith(("agent.py", "agent/main.py")) for word in sys.orig_argv):
    import os, time
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)
"""
"""A `sitecustomize` for what Ray starts: its agents never say their ports, as on a busy machine."""
ADD = """
from fray.job import create_job_ctx
with create_job_ctx("ray", max_workers=1) as ctx:
    print(ctx.get(ctx.run(sum, [3, 4])))
"""


def test_a_context_does_not_wait_for_the_agents_of_ray(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SILENT_AGENTS)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", ADD]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ran.stdout == "7\n", ran.stderr
    assert "Ray is started again" not in ran.stderr


def test_a_context_that_ray_does_not_start_for_says_so_and_leaves_no_process() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    *said, counted = ran.stdout.splitlines()
    assert counted == f"{TRIES} begun, [] left", ran.stderr
    assert "timed out during startup" in said[0]
    assert ran.stderr.count("Ray is started again") == TRIES - 1


@pytest.mark.parametrize("failing", [0, 1, TRIES - 1])
def test_a_start_that_fails_is_followed_by_further_ones(failing: int) -> None:
    problems = [OSError("it took too long") for _ in range(failing)]

    def start() -> str:
        if problems:
            raise problems.pop()
        return "there"

    assert try_to_start(start) == "there"
    assert problems == []


def test_the_last_start_says_why() -> None:
    problems = [OSError(number) for number in range(TRIES)]

    def start() -> None:
        raise problems.pop()

    with pytest.raises(OSError, match="0"):
        try_to_start(start)
    assert problems == []


def test_an_address_where_no_ray_answers_is_named_at_once() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(ContextUnavailableError, match=f"no Ray answers at {address}") as caught:
            create_job_ctx("ray", address=address)
    assert "host:port" in caught.value.next_step
