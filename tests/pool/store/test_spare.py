"""The pages of a freed object are written over by the next one, unless anybody might still read them."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fray.errors import ObjectLostError
from fray.runtime.pool.objects import files as files_module
from fray.runtime.pool.objects import store as store_module
from fray.runtime.pool.objects.directories import create_store
from fray.runtime.pool.objects.files import is_unused, opened
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.objects.values import decode, encode
from tests.pool.store.stored import files, fork, in_three_processes, killed_at, real_memory, value

# The code that is forked takes no lock that another thread of pytest could hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
LIMIT = 1_000_000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostStore]:
    """In real shared memory: other file systems needn't tell who has a file mapped."""
    monkeypatch.setattr(store_module, "_SPARE_LEAST", 1000)
    (tmp_path / "disk").mkdir()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        made = create_store(limit=LIMIT, spill=tmp_path / "disk", shared_memory=Path(shared))
        yield made.store
        made.close()


def numbers(identity: int, size: int = 50_000) -> np.ndarray:
    return np.full(size // 8, identity)


def inode(store: HostStore, identity: int) -> int:
    return (store.directory / f"{identity:x}").stat().st_ino


def free_a_first_one(store: HostStore) -> int:
    """Write an object of which the spare is made; return its inode."""
    store.write(1, encode(numbers(1)))
    first = inode(store, 1)
    assert store.free(1, spare=True)
    assert not store.contains(1)
    assert store.identities() == ()
    return first


@pytest.mark.parametrize("size", [8000, 50_000, 300_000])
def test_the_next_object_is_written_over_the_pages_of_a_freed_one(store: HostStore, size: int) -> None:
    first = free_a_first_one(store)
    assert store.usage().memory == real_memory(store) > 50_000
    store.write(2, encode(numbers(2, size)))
    assert inode(store, 2) == first
    assert files(store.directory) == {"2"}
    assert np.array_equal(decode(store.open(2)), numbers(2, size))
    store._mappings.forget(2)
    assert store._used() == store.usage().memory == real_memory(store)


def test_the_file_of_a_copy_is_written_over_too(store: HostStore) -> None:
    with store.receiving(1, 5000, disk=False, copy=True) as file:
        os.write(file, bytes(5000))
    first = inode(store, 1)
    assert store.free(1, spare=True)
    with contextlib.closing(store.places()) as places:
        assert list(places) == [False, True] * 2
    assert store.usage().memory == 5000  # it is no copy any more: those have gone for want of room
    store.write(2, value(5000))
    assert inode(store, 2) == first
    assert (store.directory / "2").stat().st_mode & 0o777 == 0o600


def test_what_a_reader_has_is_not_written_over(store: HostStore) -> None:
    store.write(1, encode(numbers(1)))
    array, first = decode(store.open(1)), inode(store, 1)
    assert store.free(1, spare=True)
    store.write(2, encode(numbers(2)))
    assert inode(store, 2) != first
    assert np.array_equal(array, numbers(1))
    assert not (store.directory / "spare").exists()


def test_what_a_forked_child_of_a_reader_has_is_not_written_over(store: HostStore) -> None:
    store.write(1, encode(numbers(1)))
    arrays, first = [decode(store.open(1))], inode(store, 1)
    reading, writing = os.pipe()

    def look() -> None:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0 if np.array_equal(arrays[0], numbers(1)) else 1)

    child = fork.Process(target=look)
    child.start()
    os.close(reading)
    arrays.clear()
    gc.collect()
    assert store.free(1, spare=True)
    # The link went with the parent's mapping, so that nothing but the kernel knows of the child's.
    assert (store.directory / "spare").stat().st_nlink == 1
    store.write(2, encode(numbers(2)))
    assert inode(store, 2) != first
    os.close(writing)
    child.join()
    assert child.exitcode == 0


def test_what_somebody_has_open_is_not_written_over(store: HostStore) -> None:
    store.write(1, value(5000))
    with opened(f"{store.directory}/1") as file:
        assert store.free(1, spare=True)
        store.write(2, value(5000))
        assert os.fstat(file).st_ino != inode(store, 2)


def test_a_mapping_that_is_kept_for_later_readers_ends_for_the_next_object(store: HostStore) -> None:
    store.write(1, encode(numbers(1)))
    store.open(1)
    first = inode(store, 1)
    other = HostStore(store.directory, store.spill_directory, store.limit)
    assert other.free(1, spare=True)
    other.close()
    store.write(2, encode(numbers(2)))
    assert inode(store, 2) == first


@pytest.mark.parametrize("rebuilt", [False, True])
def test_who_opens_a_file_that_is_another_object_by_then_does_not_read_it(
    store: HostStore, monkeypatch: pytest.MonkeyPatch, *, rebuilt: bool
) -> None:
    store.write(1, encode(numbers(1)))
    link, first = files_module._link, inode(store, 1)

    def late(path: str) -> str:
        """Look the name up, and link once the file is that of another object."""
        monkeypatch.setattr(files_module, "_link", link)
        store.free(1, spare=True)
        store.write(2, encode(numbers(2)))
        assert inode(store, 2) == first
        if rebuilt:
            store.write(1, encode(numbers(1)))
        return link(f"{store.directory}/2")

    monkeypatch.setattr(files_module, "_link", late)
    if rebuilt:
        assert np.array_equal(decode(store.open(1)), numbers(1))
    else:
        with pytest.raises(ObjectLostError):
            store.open(1)
    store._mappings.forget(1)
    gc.collect()
    assert not list(store.directory.glob("*.held"))


def test_who_opens_a_file_at_the_moment_when_it_is_asked_for_does_not_find_it(tmp_path: Path) -> None:
    path = tmp_path / "1"
    path.write_bytes(b"x")
    with path.open("r+b") as file:
        assert is_unused(file.fileno())
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(FileNotFoundError), opened(str(path)):
            pass


def test_it_is_the_first_to_go_when_room_is_needed(store: HostStore) -> None:
    small = HostStore(store.directory, store.spill_directory, 60_000)
    small.write(1, value(7000))
    assert small.free(1, spare=True)
    for identity in range(2, 60):
        assert not small.write(identity, value(999)).on_disk
    assert small.usage().memory == real_memory(small) == 58 * 999
    small.close()


def test_it_is_given_back(store: HostStore) -> None:
    for discard in (store.discard_spare, store.discard_dead_parts):
        free_a_first_one(store)
        discard()
        assert store.usage() == (0, 0)


@pytest.mark.parametrize("size", [999, LIMIT // 4 + 1])
def test_small_files_and_large_parts_of_the_memory_are_not_kept(store: HostStore, size: int) -> None:
    store.write(1, value(size))
    assert not store.free(1, spare=True)
    assert not store.free(1, spare=True)
    assert store.usage() == (0, 0)


def test_files_on_a_disk_are_not_kept(store: HostStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "is_in_memory", lambda _: False)
    store.write(1, value(5000))
    assert not store.free(1, spare=True)
    assert store.usage() == (0, 0)


def test_a_process_killed_between_any_two_lines_leaves_whole_objects_and_no_bytes_uncounted(
    store: HostStore,
) -> None:
    works: list[Callable[[HostStore], object]] = [
        lambda mine: mine.free(1, spare=True),
        lambda mine: mine.write(2, encode(numbers(2))),
    ]
    for number, work in enumerate(works):
        step, killed = 1, True
        while killed:
            store.discard_dead_parts()
            store.free(2)
            store.write(1, encode(numbers(1)))
            if number:
                store.free(1, spare=True)
            killed = killed_at(store, work, step)
            for identity in (1, 2):
                with contextlib.suppress(ObjectLostError):
                    assert np.array_equal(decode(store.open(identity)), numbers(identity))
                    store._mappings.forget(identity)
            gc.collect()
            assert files(store.directory) <= {"1", "2"}
            assert store.usage().memory == real_memory(store) <= store._used()
            step += 1
        assert step > 5


def test_nobody_reads_wrong_bytes_while_many_write_and_free(store: HostStore) -> None:
    def churn(mine: HostStore, first: int) -> None:
        read = [numbers(0)] * 3
        for identity in range(first, first + 100):
            mine.write(identity, encode(numbers(identity, 8000 + identity % 7 * 4000)))
            read[identity % 3] = decode(mine.open(identity))
            mine.free(identity, spare=True)
            for array in read:
                assert (array == array[0]).all()
            assert read[identity % 3][0] == identity

    def work(first: int) -> None:
        mine = HostStore(store.directory, store.spill_directory, store.limit)
        threads = [threading.Thread(target=churn, args=(mine, first + 1000 * index)) for index in range(2)]
        failed: list[object] = []
        threading.excepthook = failed.append
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(len(failed))

    in_three_processes(work)
    store.discard_dead_parts()
    assert store.usage() == (0, 0)
