"""What is Ray's alone: one that the process has already, and what it does with cancelled tasks."""

from __future__ import annotations

import subprocess
import sys


def run_program(text: str, address: str) -> None:
    """Run a program with a Ray's address as its argument, to its last line."""
    command = [sys.executable, "-c", text, address]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert ran.stdout == "done\n", ran.stderr


JOINS = """
import sys
import ray
from fray.job import create_job_ctx

ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
with create_job_ctx("auto") as ctx:
    assert "ray" in repr(ctx)
    assert ctx.run(len, "abc").result(120) == 3
assert ray.get(ray.put(1)) == 1
print("done")
"""


def test_auto_takes_the_ray_that_the_process_has(made_ray: str) -> None:
    """It stays when the context ends."""
    run_program(JOINS, made_ray)


OPEN = """
import sys
from fray.errors import TaskCancelledError
from fray.job import create_job_ctx

ctx = create_job_ctx("ray", address=sys.argv[1], log_to_driver=False, configure_logging=False)
"""


CANCELS = """
import random

with ctx:
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
print("done")
"""


def test_tasks_that_are_cancelled_as_they_end_leave_their_process_alive(made_ray: str) -> None:
    """By `ray.cancel` in the program's thread, this one ends within 200 to 2,600 tasks."""
    run_program(OPEN + CANCELS, made_ray)


RETURNS = """
import contextlib

def items():
    yield 0
    with contextlib.suppress(KeyboardInterrupt):
        while True:  # Ray interrupts Python code alone
            pass

with ctx:
    future = ctx.run(items)
    assert ctx.get(next(future)) == 0
    ctx.cancel(future)
    for _ in range(2):
        try:
            raise AssertionError(ctx.get(future))
        except TaskCancelledError:
            pass
print("done")
"""


def test_a_cancelled_generator_that_ray_ends_without_a_failure_says_so(made_ray: str) -> None:
    """Ray does that with 1 of 200 that it interrupts as they hand over an item."""
    run_program(OPEN + RETURNS, made_ray)


DROPS = """
import gc
import itertools
from ray._private.worker import global_worker
from fray.job import ray_engine

def items():
    yield from itertools.count()

ray_engine.ASKING_SECONDS = None
with ctx:
    future = ctx.run(items)
    assert ctx.get(next(future)) == 0
    with global_worker.function_actor_manager.lock:
        del future
        gc.collect()
print("done")
"""


def test_a_generator_may_be_dropped_where_ray_reads_a_value(made_ray: str) -> None:
    """Ray holds a lock there, which its own thread wants before it can be asked for anything."""
    run_program(OPEN + DROPS, made_ray)
