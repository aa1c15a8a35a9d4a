"""Processes share a store, and may be killed at any line of it: whole files or none, and a right count."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable

import pytest

from fray.errors import ObjectLostError
from fray.runtime.pool.objects.directories import OwnedStore
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.objects.values import decode
from tests.pool.store.stored import files, fork, in_three_processes, killed_at, real_memory, value

# The code that is forked takes no lock that another thread of pytest could hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def churn(store: HostStore, first: int, rounds: int) -> None:
    for identity in range(first, first + rounds):
        store.write(identity, value(1000 + identity % 50))
        if identity % 2:
            store.free(identity)
        if identity % 10 == 0:
            store.spill(identity)


@pytest.mark.parametrize("limit", [400_000, 10**9], ids=["full", "not full, so that nobody counts anew"])
def test_the_count_is_right_after_many_processes_and_threads(owned: OwnedStore, limit: int) -> None:
    def work(first: int) -> None:
        mine = HostStore(owned.store.directory, owned.store.spill_directory, limit)
        threads = [
            threading.Thread(target=churn, args=(mine, first + 1000 * index, 200)) for index in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    in_three_processes(work)
    usage = owned.store.usage()
    assert usage.memory == real_memory(owned.store) <= limit
    assert usage.disk > 0
    assert not any(name.endswith(".part") for name in files(owned.store.directory))


@pytest.mark.parametrize("what", ["write", "overwrite", "to disk", "spill", "free"])
def test_a_process_killed_between_any_two_lines_leaves_whole_objects_and_a_right_count(
    owned: OwnedStore, what: str
) -> None:
    store = HostStore(
        owned.store.directory, owned.store.spill_directory, 3000 if what == "to disk" else 100_000
    )
    step = 1
    killed = True
    while killed:
        store.write(1, value(1000))
        if what == "write":
            store.free(1)
        works: dict[str, Callable[[HostStore], object]] = {
            "write": lambda mine: mine.write(1, value(2000)),
            "overwrite": lambda mine: mine.write(1, value(2000)),
            "to disk": lambda mine: mine.write(1, value(5000)),
            "spill": lambda mine: mine.spill(1),
            "free": lambda mine: mine.free(1),
        }
        killed = killed_at(store, works[what], step)
        with contextlib.suppress(ObjectLostError):
            found = store.open(1)
            assert set(decode(found)) == {7}
            assert len(found) in {1000, 2000, 5000}
        if what not in {"write", "free"}:
            assert store.contains(1)
        # A lock file binds nobody once its holder is dead.
        left = files(store.directory) | files(store.spill_directory)
        assert left - {"spilling.lock"} <= {"1"}
        assert store.usage().memory == real_memory(store)
        step += 1
    assert step > 5
    store.close()


@pytest.mark.parametrize("disk", [False, True])
def test_parts_of_a_killed_writer_go_before_anybody_asked_for_its_exit_code(
    owned: OwnedStore, *, disk: bool
) -> None:
    store = HostStore(owned.store.directory, owned.store.spill_directory, 10_000)

    def die_while_writing() -> None:
        with store.receiving(5, 9000, disk=disk):
            os.kill(os.getpid(), signal.SIGKILL)

    with store.receiving(6, 100, disk=disk):
        child = fork.Process(target=die_while_writing)
        child.start()
        os.waitid(os.P_PID, child.pid or 0, os.WEXITED | os.WNOWAIT)
        store.discard_dead_parts()
        assert len(files(store.directory) | files(store.spill_directory)) == 1
    child.join()
    assert files(store.directory) | files(store.spill_directory) == {"6"}
    assert store.usage().memory == real_memory(store)
    store.close()


def test_parts_of_killed_writers_do_not_fill_the_memory(owned: OwnedStore) -> None:
    store = HostStore(owned.store.directory, owned.store.spill_directory, 10_000)

    def die_while_writing() -> None:
        with store.receiving(5, 9000, disk=False):
            os.kill(os.getpid(), signal.SIGKILL)

    child = fork.Process(target=die_while_writing)
    child.start()
    child.join()
    assert real_memory(store) == 9000
    store.write(1, value(8000))
    assert files(store.directory) == {"1"}
    assert store.usage() == (8000, 0)
    store.close()


def test_one_at_a_time_is_exclusive_between_processes(owned: OwnedStore) -> None:
    store = owned.store
    record = store.spill_directory / "record"

    def work() -> None:
        for _ in range(100):
            with store.exclusive(7):
                text = record.read_text() if record.exists() else "0"
                record.write_text(str(int(text) + 1))

    workers = [fork.Process(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert record.read_text() == "400"
    assert files(store.directory) == set()
