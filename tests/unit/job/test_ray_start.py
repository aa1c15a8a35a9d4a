"""Ray is started again where it gives up, and nothing of a start that failed stays."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
