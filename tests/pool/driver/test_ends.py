"""Nothing of a pool is left when its driver has ended, however it ends."""

from __future__ import annotations

import os
import signal as signals
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fray.job import JobContext
from tests.behaviour.gates import Gate
from tests.pool.driver.processes import (
    await_end,
    descendants,
    nanny_of,
    open_files,
    pool_directories,
    pool_threads,
    workers_of,
)

START = """
import os, sys, time
from fray.job.pool import start_pool

ctx = start_pool(2)
big = ctx.put(b"x" * 1_000_000)
assert ctx.get(ctx.run(len, big)) == 1_000_000
while ctx.stats().workers < 2:
    time.sleep(0.01)
"""
ENDLESS = """
def block(path):
    from pathlib import Path
    Path(path).write_bytes(b"!")
    while True:
        time.sleep(1)

refs = [ctx.run(block, sys.argv[1]), ctx.run(block, sys.argv[2])]
for path in sys.argv[1:3]:
    open(path, "rb").read()
"""


@contextmanager
def driver(program: str, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program whose pool is up once it has printed a line; `options` are those of `Popen`."""
    command = [sys.executable, "-c", program, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield process
        finally:
            process.kill()


def test_shutdown_leaves_no_process_thread_file_or_socket(make_pool: Callable[[int], JobContext]) -> None:
    with_first = make_pool(1)  # what a first pool leaves loaded for good is no leak
    with_first.shutdown()
    threads, files = pool_threads(), open_files(os.getpid())
    ctx = make_pool(2)
    workers_of(ctx, 2)
    kept = ctx.put(b"x" * 1_000_000)
    processes = descendants(os.getpid())
    directories = pool_directories(os.getpid())
    assert len(processes) == 3
    assert len(directories) == 2
    ctx.shutdown()
    assert descendants(os.getpid()) == []
    await_end(processes)
    assert [path for path in directories if path.exists()] == []
    assert pool_threads() == threads
    assert open_files(os.getpid()) == files
    del kept


@pytest.mark.parametrize("running", [False, True], ids=["idle", "with tasks that never end"])
def test_a_program_that_just_ends_is_clean(tmp_path: Path, running: bool) -> None:
    paths = [tmp_path / name for name in ("one", "two")]
    for path in paths:
        os.mkfifo(path)
    program = START + (ENDLESS if running else "") + 'print("up", flush=True); sys.stdin.read()'
    with driver(program, *map(str, paths)) as process:
        processes = descendants(process.pid)
        directories = pool_directories(process.pid)
        assert len(processes) == 3
        output, errors = process.communicate()
    assert (output, errors, process.returncode) == ("", "", 0)
    await_end(processes)
    assert [path for path in directories if path.exists()] == []


def test_a_program_that_ends_before_its_pool_is_up_is_clean() -> None:
    program = "from fray.job.pool import start_pool; ctx = start_pool(2)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "", 0)


@pytest.mark.parametrize("number", [signals.SIGKILL, signals.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_a_driver_that_is_killed_takes_its_pool_along(tmp_path: Path, number: signals.Signals) -> None:
    paths = [tmp_path / name for name in ("one", "two")]
    for path in paths:
        os.mkfifo(path)
    program = START + ENDLESS + 'print("up", flush=True); sys.stdin.read()'
    with driver(program, *map(str, paths)) as process:
        processes = descendants(process.pid)
        directories = pool_directories(process.pid)
        assert len(directories) == 2
        process.send_signal(number)
        process.wait()
        await_end(processes)
    assert [path for path in directories if path.exists()] == []


def test_a_driver_that_is_killed_takes_its_pool_along_whatever_it_has_forked() -> None:
    program = START + 'if os.fork():\n    print("up", flush=True)\nsys.stdin.read()\nos._exit(0)'
    with driver(program) as process:
        [nanny] = [pid for pid in descendants(process.pid) if descendants(pid)]
        processes = [nanny, *descendants(nanny)]
        directories = pool_directories(process.pid)
        process.kill()
        process.wait()
        await_end(processes)
    assert [path for path in directories if path.exists()] == []


def test_an_interrupt_of_the_whole_group_ends_the_program_only(tmp_path: Path) -> None:
    # As from a terminal: workers get it too, and must not print a traceback each.
    program = START + 'try:\n    print("up", flush=True)\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n'
    program += '    print(ctx.get(ctx.run(len, "abc")))'
    with driver(program) as process:
        nanny = nanny_of(process.pid)
        os.kill(nanny, signals.SIGINT)
        process.send_signal(signals.SIGINT)
        output, errors = process.communicate()
    assert (output, errors, process.returncode) == ("3\n", "", 0)


def test_an_interrupt_from_the_terminal_does_not_reach_a_pool_that_starts() -> None:
    program = """
from fray.job.pool import start_pool
import time

ctx = start_pool(1)
try:
    print("up", flush=True)
    time.sleep(1000)
except KeyboardInterrupt:
    print(ctx.get(ctx.run(len, "abc")))
"""
    with driver(program, start_new_session=True) as process:
        assert os.getpgid(nanny_of(process.pid)) != process.pid
        os.killpg(process.pid, signals.SIGINT)
        output, errors = process.communicate(timeout=100)
    assert (output, errors, process.returncode) == ("3\n", "", 0)


def test_tasks_under_way_do_not_hold_up_shutdown(make_pool: Callable[[int], JobContext], gate: Gate) -> None:
    ctx = make_pool(2)
    refs = [ctx.run(gate.pass_through) for _ in range(100)]
    processes = descendants(os.getpid())
    ctx.shutdown()
    await_end(processes)
    assert ctx.wait(refs, num_returns=100) == (refs, [])


@pytest.mark.parametrize("closed", [1, 2])
def test_a_program_without_output_has_a_pool_all_the_same(closed: int, tmp_path: Path) -> None:
    # As daemons are: the number may be anything's by now.
    result = tmp_path / "result"
    program = f"import os; os.close({closed})\n" + START
    program += f"import pathlib; pathlib.Path({str(result)!r}).write_text(str(ctx.get(ctx.run(pow, 2, 3))))"
    subprocess.run([sys.executable, "-c", program], timeout=100, check=True, stdin=subprocess.DEVNULL)
    assert result.read_text() == "8"
