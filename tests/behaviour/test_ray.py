"""What is Ray's alone: a Ray that the process has already, and one that ends a process."""

from __future__ import annotations

import subprocess
import sys

JOINS = """
import sys
import ray
from fray.job import create_job_ctx

ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
with create_job_ctx("auto") as ctx:
    assert "ray" in repr(ctx)
    assert ctx.run(len, "abc").result(120) == 3
assert ray.get(ray.put(1)) == 1
print("joined")
"""


def test_auto_takes_the_ray_that_the_process_has(made_ray: str) -> None:
    """It stays when the context ends."""
    command = [sys.executable, "-c", JOINS, made_ray]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert ran.stdout == "joined\n", ran.stderr


CANCELS = """
import random
import sys
from fray.errors import TaskCancelledError
from fray.job import create_job_ctx

with create_job_ctx("ray", address=sys.argv[1], log_to_driver=False, configure_logging=False) as ctx:
    cancelled = 0
    for _ in range(200):
        refs = [ctx.run(len, "abc") for _ in range(20)]
        ctx.wait(refs, num_returns=random.randrange(1, 20))
        for ref in refs:
            ctx.cancel(ref)
        for result in ctx.gather(*refs, return_exceptions=True, timeout=120):
            assert result == 3 or isinstance(result, TaskCancelledError), result
            cancelled += result != 3
assert cancelled
print("alive")
"""


def test_tasks_that_are_cancelled_as_they_end_leave_their_process_alive(made_ray: str) -> None:
    """By `ray.cancel` in the program's thread, this one ends within 200 to 2,600 tasks."""
    command = [sys.executable, "-c", CANCELS, made_ray]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert ran.stdout == "alive\n", ran.stderr
