"""A laptop's pool whose head is a process: it goes on without its driver's GIL, and ends with its driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.errors import InvalidOptionError, PoolClosedError, UnschedulableError
from fray.job import ActorOptions, JobContext, TaskOptions, create_job_ctx
from fray.runtime.pool.host.processes import children
from fray.runtime.pool.host_config import HostConfig
from fray.runtime.pool.joined_pool import RUN_HEAD
from fray.runtime.pool.local_pool import start_nanny, start_process
from tests.pool.clients import programs
from tests.pool.driver.processes import await_end, descendants, pool_directories, pool_threads
from tests.pool.hosts.pools import PATIENCE, ROOT, wait_until


@pytest.fixture
def ctx() -> Iterator[JobContext]:
    with create_job_ctx("pool", max_workers=2, head="process") as made:
        assert isinstance(made, JobContext)
        yield made


def head_of(driver: int) -> int:
    """Return the pid of a driver's head."""
    [head] = [pid for pid in children(driver) if b"--owner" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return head


def test_it_is_a_pool_like_others(ctx: JobContext) -> None:
    value = bytes(1_000_000)
    assert ctx.get(ctx.run(len, ctx.put(value)), timeout=PATIENCE) == 1_000_000
    stats = ctx.stats()
    assert (stats.succeeded, stats.hosts) == (1, 1)
    assert ctx._engine.metrics_address  # type: ignore[attr-defined]
    with pytest.raises(UnschedulableError):
        ctx.get(ctx.run(abs, -1, options=TaskOptions(resources={"unheard": 1})), timeout=PATIENCE)


def test_processes_of_a_driver_that_has_ended_say_nothing_of_what_is_gone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    owner = "1"  # not the process that starts it here
    head = start_process(RUN_HEAD, "--listen", f"unix:{gone}/head", "--key", str(gone), "--owner", owner)
    nanny = start_nanny(
        HostConfig("token", f"unix:{gone}/head", bytes(32), 1, "here", (), 1, str(gone), str(gone), 1 << 20)
    )
    assert (head.wait(PATIENCE), nanny.wait(PATIENCE)) == (0, 0)
    assert capfd.readouterr() == ("", "")


def test_an_actor_with_a_process_to_itself_answers(ctx: JobContext) -> None:
    actor = ctx.create_actor(programs.Counter, options=ActorOptions(isolation="process"))
    assert ctx.get(actor.add.remote(1), timeout=PATIENCE) == 1


_STANDING = """
import sys
from fray.job import create_job_ctx
from tests.pool.clients import programs
programs.leave_marks(create_job_ctx("pool", max_workers=2, head="process"), sys.argv[1], "100")
"""


def test_workers_go_on_while_their_driver_does_nothing(tmp_path: Path) -> None:
    # Stopped, it does even less than while its main thread holds the GIL.
    command = [sys.executable, "-c", _STANDING, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline().strip() == "submitted"
        driver.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: len(list(tmp_path.iterdir())) == 100)
        finally:
            driver.kill()


def test_nothing_is_left_after_a_shutdown() -> None:
    before, threads = set(children(os.getpid())), pool_threads()
    context = create_job_ctx("pool", max_workers=1, head="process")
    assert context.get(context.run(abs, -1), timeout=PATIENCE) == 1
    below = [pid for pid in descendants(os.getpid()) if pid not in before]
    folders = pool_directories(os.getpid())
    assert len(folders) == 2
    context.shutdown()
    await_end(below)
    assert not any(folder.exists() for folder in folders)
    assert pool_threads() == threads


def test_a_killed_head_is_told_at_once_and_leaves_no_process(ctx: JobContext) -> None:
    assert ctx.get(ctx.run(abs, -1), timeout=PATIENCE) == 1
    below = descendants(os.getpid())
    waiting = ctx.run(signal.pause)
    os.kill(head_of(os.getpid()), signal.SIGKILL)
    with pytest.raises(PoolClosedError, match="whose head has ended"):
        ctx.get(waiting)
    ctx.shutdown()
    await_end(below)


_DRIVER = """
import os, sys, time
from fray.job import create_job_ctx
ctx = create_job_ctx("pool", max_workers=1, head="process")
ctx.get(ctx.run(abs, -1))
if os.fork() == 0:
    time.sleep(3600)  # keeps whatever the driver had open
print("ready", flush=True)
time.sleep(3600)
"""


def test_a_killed_driver_takes_the_pool_along_whatever_it_has_forked() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _DRIVER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline().strip() == "ready"
        folders = pool_directories(driver.pid)
        own = children(driver.pid)
        [fork] = [pid for pid in own if not descendants(pid) and pid != head_of(driver.pid)]
        below = [pid for pid in descendants(driver.pid) if pid != fork]
        driver.kill()
        await_end(below)
        os.kill(fork, signal.SIGKILL)
    wait_until(lambda: not any(folder.exists() for folder in folders))


def test_another_kind_of_head_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="head"):
        create_job_ctx("pool", head="pod")
