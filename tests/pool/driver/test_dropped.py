"""A pool whose context nobody has any more ends, and says that it was forgotten."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable

import pytest

from fray.job import JobContext, fray_default_job_ctx, get_job_context
from fray.job.context import context_of
from fray.job.pool import start_pool
from tests.pool.driver.processes import await_end, descendants, pool_directories, pool_threads, workers_of


def join_ends() -> None:
    for thread in threading.enumerate():
        if thread.name == "fray-pool-end":
            thread.join()


def test_a_dropped_context_ends_its_pool_and_warns() -> None:
    threads = pool_threads()
    ctx = start_pool(2)
    workers_of(ctx, 2)
    processes, directories = descendants(os.getpid()), pool_directories(os.getpid())
    assert len(processes) == 3
    with pytest.warns(ResourceWarning, match=r"Call shutdown\(\)"):
        del ctx
    await_end(processes)
    join_ends()
    assert pool_threads() == threads
    assert [path for path in directories if path.exists()] == []


def test_the_last_reference_may_go_in_the_pools_own_thread() -> None:
    threads = pool_threads()
    kept = [start_pool(1)]
    workers_of(kept[0], 1)
    processes = descendants(os.getpid())
    pool = kept[0]._engine._owner._pool  # type: ignore[attr-defined]
    with pytest.warns(ResourceWarning):
        pool._head.call(lambda _: kept.clear())
    await_end(processes)
    join_ends()
    assert pool_threads() == threads
    # Had that thread waited for the nanny, which waits for it, the nanny would have been killed in the end.
    assert pool._nanny.returncode == 0


def test_whatever_leads_to_a_context_keeps_it() -> None:
    ctx = start_pool(1)
    processes = descendants(os.getpid())
    with fray_default_job_ctx(ctx):
        ref = ctx.put(1)
        assert copy.copy(ctx) is copy.deepcopy(ctx) is pickle.loads(pickle.dumps(ctx)) is ctx
        del ctx
        gc.collect()
        assert get_job_context().get(ref) == 1
    gc.collect()
    assert context_of(ref._engine).get(ref) == 1
    with pytest.warns(ResourceWarning):
        del ref
    await_end(processes)
    join_ends()


def test_one_that_was_shut_down_is_dropped_in_silence() -> None:
    threads = pool_threads()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ctx = start_pool(1)
        ctx.shutdown()
        del ctx
        gc.collect()
    assert pool_threads() == threads


def test_a_fork_that_drops_it_ends_nothing(make_pool: Callable[[int], JobContext]) -> None:
    ctx = make_pool(1)
    assert ctx.get(ctx.run(abs, -1)) == 1
    child = os.fork()
    if not child:
        code = 1
        try:
            ctx._engine._owner.abandon()  # type: ignore[attr-defined]
            code = int("fray-pool-end" in pool_threads())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ctx.get(ctx.run(abs, -2)) == 2


@pytest.mark.parametrize("end", ["", "del ctx; import gc; gc.collect()"], ids=["ends", "drops it first"])
def test_a_program_that_ends_with_its_pool_is_told_only_what_it_dropped(end: str) -> None:
    program = f"from fray.job.pool import start_pool; ctx = start_pool(1); ctx.get(ctx.run(abs, -1)); {end}"
    command = [sys.executable, "-W", "always", "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (ran.stdout, ran.returncode) == ("", 0)
    assert ran.stderr.count("ResourceWarning: a pool was dropped") == bool(end)
    assert ran.stderr.count("Warning") == bool(end)
