"""The nanny: it forks workers, tells how they ended, and leaves nothing behind however the pool ends."""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fray.runtime.pool.messages.commands import (
    CheckObject,
    FreeObject,
    SpillObject,
    StartWorker,
    StopWorker,
)
from fray.runtime.pool.messages.events import ObjectChecked, ObjectSpilled, TaskDone, WorkerLost
from fray.runtime.pool.messages.specs import Profile
from fray.runtime.pool.objects.values import encode
from fray.runtime.pool.transport.keys import TransportKey
from fray.vocabulary import EXIT_FAILURE, EXIT_WORKER_ENDED
from tests.pool.worker.gates import Gate, arrive
from tests.pool.worker.scripted_head import HOST, MARK, PATIENCE, Pool, make_pool

LOST_HEAD = "exited with code 87: it couldn't connect to the head, or lost it"


def crash() -> None:
    ctypes.string_at(0)


def test_the_nanny_says_what_its_host_has(pool: Pool) -> None:
    assert pool.hello == (HOST, "here", (("CPU", 2.0),), 2, 1 << 30, "")


@pytest.mark.parametrize(
    ("function", "args", "reason"),
    [
        (os._exit, (3,), "exited with code 3"),
        (os._exit, (0,), "exited with code 0"),
        (crash, (), "killed by signal 11 (SIGSEGV)"),
        (os.abort, (), "killed by signal 6 (SIGABRT)"),
    ],
)
def test_a_worker_that_dies_is_told_with_the_reason(pool: Pool, function, args, reason) -> None:  # type: ignore[no-untyped-def]
    worker, other = pool.start_worker(), pool.start_worker()
    pool.tell(worker, pool.task(worker, function, *args))
    assert pool.head.take(WorkerLost) == (worker, reason, False, False)
    assert pool.run(other, abs, -1) == 1


def test_a_killed_worker_is_told_and_its_children_die(pool: Pool) -> None:
    worker = pool.start_worker()
    child = os.pidfd_open(pool.run(worker, start_child))
    os.kill(pool.run(worker, os.getpid), signal.SIGKILL)
    assert pool.head.take(WorkerLost) == (worker, "killed by signal 9 (SIGKILL)", False, False)
    wait_for_end(child)


def start_child() -> int:
    return subprocess.Popen(["sleep", "1000"]).pid


def test_a_worker_is_stopped_by_force_or_after_what_it_runs(pool: Pool) -> None:
    forced, drained = pool.start_worker(), pool.start_worker()
    gates = [Gate(pool.folder, name) for name in "ab"]
    commands = [
        pool.task(worker, arrive, gate.path) for worker, gate in zip((forced, drained), gates, strict=True)
    ]
    pool.tell(forced, commands[0])
    # On the worker's own connection: through the nanny, it could overtake the task.
    pool.tell(drained, commands[1], StopWorker(drained, False, "idle"))
    pool.head.tell_nanny(StopWorker(forced, True, "it took too long"))
    assert pool.head.take(WorkerLost) == (
        forced,
        "killed by signal 9 (SIGKILL): it took too long",
        True,
        False,
    )
    gates[1].open()
    assert pool.value_of(commands[1]) == "b"
    lost = pool.head.take(WorkerLost)
    assert (lost.worker, lost.expected) == (drained, True)


def test_an_idle_worker_is_stopped(pool: Pool) -> None:
    worker = pool.start_worker()
    pool.head.tell_nanny(StopWorker(worker, False, "idle"))
    assert pool.head.take(WorkerLost, worker=worker).expected
    pool.head.tell_nanny(StopWorker(worker, True, "late"))
    pool.start_worker()


def test_a_stop_that_comes_too_late_does_not_hide_how_a_worker_ended(pool: Pool) -> None:
    worker = pool.start_worker()
    handle = os.pidfd_open(pool.run(worker, os.getpid))
    pool.nanny.send_signal(signal.SIGSTOP)
    pool.tell(worker, pool.task(worker, os._exit, 3))
    wait_for_end(handle)
    pool.head.tell_nanny(StopWorker(worker, True, "late"))
    for _ in range(3):
        pool.head.turn()  # it has left by then
    pool.nanny.send_signal(signal.SIGCONT)
    assert pool.head.take(WorkerLost) == (worker, "exited with code 3", False, False)


def test_profiles_set_the_environment_and_count_calls(pool: Pool) -> None:
    worker = pool.start_worker(Profile(env=(("FRAY_TEST_COLOUR", "blue"),), max_calls=2))
    assert pool.run(worker, os.getenv, "FRAY_TEST_COLOUR") == "blue"
    assert pool.run(worker, os.getenv, MARK) == pool.token
    lost = pool.head.take(WorkerLost, worker=worker)
    assert lost.expected
    assert pool.run(pool.start_worker(), os.getenv, "FRAY_TEST_COLOUR") is None


def test_workers_have_sessions_of_their_own_and_an_empty_stdin(pool: Pool) -> None:
    worker = pool.start_worker()
    assert pool.run(worker, os.getsid, 0) == pool.run(worker, os.getpid)
    assert pool.run(worker, read_stdin) == ""


def read_stdin() -> str:
    return sys.stdin.read()


def test_the_secret_is_in_no_argument_and_no_environment(pool: Pool) -> None:
    pool.start_worker()
    secret = pool.config.secret.hex().encode()
    for pid in pool.pids():
        for name in ("cmdline", "environ"):
            assert secret not in Path(f"/proc/{pid}/{name}").read_bytes()


def test_objects_are_freed_and_spilled(pool: Pool) -> None:
    for identity in (5, 6):
        pool.store.write(identity, encode(bytes(1000)))
    pool.head.tell_nanny(SpillObject(HOST, 5), SpillObject(HOST, 99), FreeObject(HOST, 6))
    assert pool.head.take(ObjectSpilled) == (5, HOST, True)
    pool.start_worker()  # what was said before has been heard then
    assert not pool.store.contains(6)
    assert (pool.folder / "spill" / "5").exists()


def test_a_nanny_that_can_open_no_file_answers_and_goes_on(pool: Pool) -> None:
    survivor, other = pool.start_worker(), pool.start_worker()
    for identity in (5, 6):
        pool.store.write(identity, encode(bytes(1000)))
    soft, hard = resource.prlimit(pool.nanny.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pool.nanny.pid, resource.RLIMIT_NOFILE, (4, hard))
    pool.head.tell_nanny(
        StartWorker(HOST, 99, Profile()),
        SpillObject(HOST, 5),
        CheckObject(HOST, 5),
        FreeObject(HOST, 6),
        StopWorker(other, True, "idle"),
    )
    assert "Too many open files" in pool.head.take(WorkerLost, worker=99).reason
    assert pool.head.take(ObjectSpilled) == (5, HOST, False)
    assert pool.head.take(ObjectChecked) == (5, HOST, True)
    assert pool.head.take(WorkerLost).worker == other
    assert pool.run(survivor, abs, -1) == 1
    resource.prlimit(pool.nanny.pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert pool.run(pool.start_worker(), abs, -2) == 2
    assert not pool.store.contains(6)


@pytest.mark.parametrize("lost", ["store", "spill"])
def test_a_nanny_whose_directory_became_a_file_answers_and_goes_on(pool: Pool, lost: str) -> None:
    survivor, other = pool.start_worker(), pool.start_worker()
    pool.store.write(5, encode(bytes(1000)))
    (pool.folder / lost).rename(pool.folder / "away")
    (pool.folder / lost).touch(mode=0o600)
    pool.head.tell_nanny(
        SpillObject(HOST, 5), CheckObject(HOST, 5), FreeObject(HOST, 5), StopWorker(other, True, "idle")
    )
    assert pool.head.take(ObjectSpilled) == (5, HOST, False)
    assert pool.head.take(ObjectChecked) == (5, HOST, lost == "spill")
    assert pool.head.take(WorkerLost).worker == other
    assert pool.run(survivor, abs, -1) == 1
    assert pool.run(pool.start_worker(), abs, -2) == 2


def test_a_worker_that_cannot_be_started_is_told() -> None:
    with make_pool(attach="tests.pool.worker.attached:nothing") as pool:
        pool.head.tell_nanny(StartWorker(HOST, 1, Profile()))
        assert pool.head.take(WorkerLost) == (1, "exited with code 1", False, False)
        assert "nothing" in pool.complained()


def test_a_worker_that_starts_while_its_pool_ends_does_so_in_silence(pool: Pool) -> None:
    Path(pool.config.head.removeprefix("unix:")).unlink()
    pool.head.tell_nanny(StartWorker(HOST, 1, Profile()))
    assert pool.head.take(WorkerLost) == (1, LOST_HEAD, False, False)
    assert pool.complained() == ""


def test_nothing_is_left_when_the_head_is_gone(pool: Pool) -> None:
    worker = pool.start_worker()
    pool.run(worker, start_child)
    pool.run(worker, start_daemon)
    gate = Gate(pool.folder)
    pool.tell(worker, pool.task(worker, ignore_sigterm, gate.path))
    gate.open()
    pool.head.close()
    assert pool.nanny.wait(PATIENCE) == 0
    assert not pool.pids()
    assert sorted(path.name for path in pool.folder.iterdir()) == ["gate", "stderr", "stdout"]


def start_daemon() -> None:
    """Start a process that belongs to nobody."""
    subprocess.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"], check=True)


def ignore_sigterm(path: Path) -> None:
    arrive(path)
    while True:
        time.sleep(1000)


def test_nothing_is_left_after_sigterm(pool: Pool) -> None:
    pool.start_worker()
    pool.nanny.terminate()
    assert pool.nanny.wait(PATIENCE) == 0
    assert not pool.pids()


def test_workers_die_with_a_killed_nanny(pool: Pool) -> None:
    workers = [pool.start_worker() for _ in range(2)]
    handles = [os.pidfd_open(pool.run(worker, os.getpid)) for worker in workers]
    pool.nanny.kill()
    for handle in handles:
        wait_for_end(handle)
    assert not pool.pids()


def wait_for_end(handle: int) -> None:
    assert select.select([handle], [], [], PATIENCE)[0]
    os.close(handle)


def test_a_worker_ends_at_once_when_the_head_is_gone_whatever_it_runs(pool: Pool) -> None:
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    pool.tell(worker, pool.task(worker, ignore_sigterm, gate.path))
    gate.open()
    pool.head.cut(pool.head.workers[worker])
    assert pool.head.take(WorkerLost) == (worker, LOST_HEAD, False, False)


def test_results_wait_for_a_head_that_does_not_read(pool: Pool) -> None:
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    connection = pool.head.workers[worker]
    transport = connection._transport
    assert transport is not None
    pool.head.loop.call_soon_threadsafe(transport.pause_reading)
    commands = [pool.task(worker, bytes, 60_000) for _ in range(100)]
    pool.tell(worker, *commands, last := pool.task(worker, arrive, gate.path))
    gate.open()
    pool.head.loop.call_soon_threadsafe(transport.resume_reading)
    assert [pool.value_of(command) for command in commands] == [bytes(60_000)] * 100
    assert pool.head.take(TaskDone, id=last.spec.id)


def test_a_forked_child_of_a_task_cannot_disturb_the_connection(pool: Pool) -> None:
    worker = pool.start_worker()
    assert pool.run(worker, count_sockets) == 1
    assert pool.run(worker, fork_and_count_sockets) == 0
    assert pool.run(worker, abs, -1) == 1


def count_sockets() -> int:
    return count_descriptors("socket:")


def count_descriptors(kind: str) -> int:
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(str(link).startswith(kind) for link in links)


def test_a_worker_holds_its_end_of_its_leash_and_nothing_of_the_nannys(pool: Pool) -> None:
    pool.start_worker()
    worker = pool.start_worker()
    # Else neither the nanny nor the head would be missed: the leash would never come to its end.
    assert pool.run(worker, count_descriptors, "pipe:") == 1
    assert pool.run(worker, count_descriptors, "socket:") == 1


def fork_and_count_sockets() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(count_sockets())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_stopped_worker_is_told_of_on_standard_error(pool: Pool) -> None:
    worker = pool.start_worker()
    pid = pool.run(worker, os.getpid)
    for number, text in ((signal.SIGSTOP, "was stopped by SIGSTOP"), (signal.SIGCONT, "goes on")):
        os.kill(pid, number)
        give_up_at = time.monotonic() + PATIENCE
        while f"worker {worker} (process {pid}) {text}" not in pool.complained():
            assert time.monotonic() < give_up_at
    assert pool.run(worker, abs, -1) == 1


@pytest.mark.parametrize(
    ("changes", "code", "complaint"),
    [
        ({"head": "unix:/nowhere/head"}, 0, ""),
        ({"secret": TransportKey.generate().secret}, EXIT_FAILURE, "fray: "),
    ],
)
def test_a_nanny_whose_head_has_ended_before_it_came_ends_in_silence(
    pool: Pool, changes: dict[str, Any], code: int, complaint: str
) -> None:
    config = replace(pool.config, **changes)
    command = [sys.executable, "-m", "fray.runtime.pool.host.nanny"]
    ended = subprocess.run(
        command, input=config.to_json(), capture_output=True, check=False, text=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stderr[:6]) == (code, complaint)


def close_output() -> None:
    sys.stdout.close()


def break_output() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    sys.stdout = os.fdopen(write_end, "w")
    sys.stdout.write("for nobody, and flushed at the end")


def drop_output() -> None:
    sys.stdout = None  # type: ignore[assignment]


@pytest.mark.parametrize("spoil", [close_output, break_output, drop_output])
def test_a_worker_whose_output_nobody_takes_ends_in_silence(pool: Pool, spoil: Callable[[], None]) -> None:
    worker = pool.start_worker()
    pool.run(worker, spoil)
    pool.tell(worker, StopWorker(worker, False, "idle"))
    assert pool.head.take(WorkerLost) == (worker, f"exited with code {EXIT_WORKER_ENDED}", True, True)
    assert pool.complained() == ""
