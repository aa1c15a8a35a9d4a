"""Programs that call the pool where Python allows few or no more calls within each other."""

from __future__ import annotations

import subprocess
import sys

from tests.pool.hosts.pools import PATIENCE, ROOT

DEEP = """
import sys
from fray.job import create_job_ctx
from tests.pool.clients import programs

ROOM = 150  # of which importing, encoding and waiting need less

def call_deep(calls, function):
    return function() if not calls else call_deep(calls - 1, function)

def call():
    refs.append(counter.add.remote(1))
    refs[-1].future().add_done_callback(lambda future: ended.append(future.result()))
    context.get(refs[-1], timeout=60)

refs, ended, failed = [], [], 0
with create_job_ctx("pool", max_workers=1, head="process") as context:
    counter = context.create_actor(programs.Counter)
    call()
    for calls in range(sys.getrecursionlimit() - ROOM, sys.getrecursionlimit()):
        try:
            call_deep(calls, call)
        except RecursionError:
            failed += 1
    assert 0 < failed < ROOM, failed
    assert context.get(refs, timeout=60) == sorted(context.get(refs))
    assert context.get(counter.add.remote(0), timeout=60) >= len(refs)
print("in order")
"""


def test_the_pool_goes_on_after_recursion_that_was_too_deep() -> None:
    command = [sys.executable, "-c", DEEP]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stdout) == (0, "in order\n"), ended.stderr
