"""A store is bounded in memory: what has no room there lies on disk, and a full disk is told."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from fray.errors import ObjectLostError, StoreDirectoryError, StoreFullError
from fray.runtime.pool.objects import files as files_module
from fray.runtime.pool.objects import store as store_module
from fray.runtime.pool.objects.directories import OwnedStore, create_store
from fray.runtime.pool.objects.flat_format import BytesLike
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.objects.values import decode, encode
from tests.pool.chaos.inspection import settles
from tests.pool.store.stored import files, real_memory, value


def test_what_is_above_the_limit_goes_to_disk(owned: OwnedStore) -> None:
    store = HostStore(owned.store.directory, owned.store.spill_directory, 10_000)
    assert [store.write(number, value(size)) for number, size in ((1, 6000), (2, 6000), (3, 4000))] == [
        (6000, False),
        (6000, True),
        (4000, False),
    ]
    assert files(store.directory) == {"1", "3"}
    assert files(store.spill_directory) == {"2"}
    assert len(store.open(2)) == 6000
    assert store.usage() == (10_000, 6000)
    store.free(2)
    store.free(1)
    store.write(4, value(6000))
    assert files(store.directory) == {"3", "4"}
    assert files(store.spill_directory) == set()
    store.close()


def test_writes_into_a_memory_full_of_many_objects_do_not_look_at_all_of_them_each(
    owned: OwnedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def scan(folder: str, dead: Callable[[int], bool] | None = None) -> int:
        looked.append(folder)
        return files_module.scan(folder, dead)

    monkeypatch.setattr(store_module, "scan", scan)
    store = HostStore(owned.store.directory, owned.store.spill_directory, 320 * 100)
    assert not any(store.write(number, value(100)).on_disk for number in range(320))
    assert not looked
    assert all(store.write(1000 + number, value(100)).on_disk for number in range(44))
    assert len(looked) == 4  # one write of 11
    store.free(1)
    assert [store.write(2000 + number, value(100)).on_disk for number in range(2)] == [False, True]
    store.close()


def test_where_the_disk_is_full_too_the_memory_is_counted_anew(
    owned: OwnedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HostStore(owned.store.directory, owned.store.spill_directory, 320 * 100)
    for number in range(321):
        store.write(number, value(100))
    store.free(1)
    monkeypatch.setattr(os, "writev", no_room(store.spill_directory))
    assert store.write(1000, value(100)) == (100, False)
    store.close()


def no_room(directory: Path) -> Callable[..., int]:
    """A writev as on a full file system, after a few bytes."""
    writev = os.writev

    def failing(file: int, parts: list[memoryview]) -> int:
        if Path(f"/proc/self/fd/{file}").readlink().is_relative_to(directory):
            writev(file, [parts[0][:5]])
            raise OSError(errno.ENOSPC, "No space left on device")
        return writev(file, parts)

    return failing


def test_a_full_memory_sends_to_disk_and_a_full_disk_is_told(
    store: HostStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", no_room(store.directory))
        store.write(1, value(5000))
        assert files(store.spill_directory) == {"1"}
        assert decode(store.open(1))
        assert store.usage() == (0, 5000)
    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", no_room(tmp_path))
        with pytest.raises(StoreFullError) as raised:
            store.write(2, value(5000))
        assert raised.value.size == 5000
        assert raised.value.directories == (str(store.directory), str(store.spill_directory))
    assert files(store.directory) == set()
    assert files(store.spill_directory) == {"1"}
    assert store.usage() == (0, 5000)


@contextlib.contextmanager
def mounted(place: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MiB."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting a file system needs root")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True, timeout=60)
    try:
        yield place
    finally:
        gc.collect()
        subprocess.run(["umount", place], check=True, timeout=60)


def test_a_full_tmpfs_sends_to_disk(tmp_path: Path) -> None:
    with mounted(tmp_path / "small") as small:
        made = create_store(limit=300_000, spill=tmp_path, shared_memory=small)
        store = HostStore(made.store.directory, made.store.spill_directory, 10**9)
        store.write(1, value(700_000))
        store.write(2, value(700_000))
        assert files(store.directory) == {"1"}
        assert files(store.spill_directory) == {"2"}
        assert store.usage() == (700_000, 700_000)
        assert decode(store.open(2)) == decode(store.open(1))
        store.close()
        made.close()


def test_a_disk_that_turns_read_only_is_told_once_and_its_objects_are_read_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mounted(tmp_path / "disk") as disk:
        made = create_store(limit=1_000_000, spill=disk, shared_memory=tmp_path)
        store = made.store
        for identity in (1, 2, 3):
            store.write(identity, value(1000))
            assert store.spill(identity)
        store.write(4, value(1000))
        store.write(5, value(1000))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True, timeout=60)
        store.free(1)
        store.free(2)
        store.free(4)
        assert len(store.open(3)) == 1000
        with pytest.raises(StoreDirectoryError, match="Read-only"):
            store.spill(5)
        store.discard_dead_parts()
        assert [record.message.count("Read-only") for record in caplog.records] == [1]
        assert "FRAY_SPILL_DIR" in caplog.records[0].message
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True, timeout=60)
        store.free(3)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True, timeout=60)
        made.close()
        assert [record.message.count("Read-only") for record in caplog.records] == [1, 1]
        assert not store.directory.exists()


def test_a_disk_that_is_read_only_is_not_blamed_for_what_was_never_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mounted(tmp_path / "disk") as disk:
        made = create_store(limit=1_000_000, spill=disk, shared_memory=tmp_path)
        made.store.write(1, value(1000))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True, timeout=60)
        made.store.free(1)
        assert caplog.records == []
        made.close()


def test_spilling_moves_an_object_that_readers_go_on_reading(store: HostStore) -> None:
    store.write(1, encode(np.arange(10_000)))
    size = store.usage().memory
    before = decode(store.open(1))
    assert store.spill(1)
    assert store.usage() == (size, size)
    assert np.array_equal(before, decode(store.open(1)))
    del before
    assert store.usage() == (0, size)
    assert not store.spill(1)
    assert not store.spill(2)
    store.free(1)
    assert store.usage() == (0, 0)


def test_what_a_reader_holds_takes_room_after_it_was_freed(owned: OwnedStore) -> None:
    """Else arrays that are kept while their refs go fill the memory of the machine, whatever the limit is."""
    store = HostStore(owned.store.directory, owned.store.spill_directory, 20_000)
    arrays = []
    for identity in range(1, 6):
        store.write(identity, value(8000))
        arrays.append(store.open(identity))
        store.free(identity)
    assert store.usage() == (16_000, 24_000)
    arrays.clear()
    store.write(6, value(8000))
    store.write(7, value(8000))
    assert files(store.directory) == {"6", "7"}
    assert not files(store.spill_directory)
    store.close()


def test_what_a_killed_reader_held_makes_room(owned: OwnedStore) -> None:
    store = HostStore(owned.store.directory, owned.store.spill_directory, 10_000)
    store.write(1, value(8000))
    reader = os.fork()
    if not reader:
        arrays = [HostStore(store.directory, store.spill_directory, 10_000).open(1)]
        os._exit(len(arrays))  # as a killed process, it unmaps nothing itself
    os.waitpid(reader, 0)
    store.free(1)
    assert store.usage().memory == 8000
    store.write(2, value(8000))
    assert files(store.directory) == {"2"}
    store.close()


def test_what_a_forked_child_lets_go_its_parent_still_holds(owned: OwnedStore) -> None:
    store = HostStore(owned.store.directory, owned.store.spill_directory, 10_000)
    store.write(1, value(8000))
    arrays = [store.open(1)]
    store.free(1)  # which keeps no mapping either
    child = os.fork()
    if not child:
        arrays.clear()
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert store.usage().memory == 8000
    arrays.clear()
    assert store.usage().memory == 0
    store.close()


def test_a_copy_that_is_mapped_is_not_removed_for_nothing(owned: OwnedStore) -> None:
    store = HostStore(owned.store.directory, owned.store.spill_directory, 10_000)
    with store.receiving(1, 8000, disk=False, copy=True):
        pass
    data = store.open(1)
    store.write(2, value(8000))
    assert store.contains(1)
    del data
    store._mappings.forget(1)
    store.write(3, value(8000))
    assert not store.contains(1)
    assert files(store.directory) == {"3"}
    store.close()


def test_an_object_is_read_where_a_file_may_have_no_further_name(
    store: HostStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMLINK, "Too many links")

    monkeypatch.setattr(os, "link", refuse)
    store.write(1, value(8000))
    assert len(store.open(1)) == 8000
    assert len(list(store.directory.iterdir())) == 2


def test_who_finds_no_room_waits_for_what_is_on_its_way_to_disk(
    owned: OwnedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HostStore(owned.store.directory, owned.store.spill_directory, 10_000)
    store.write(1, value(8000))
    copying, refused = threading.Event(), threading.Event()
    copy, write_all = store_module.copy, store_module.write_all

    def slowly(source: int, target: str) -> None:
        copying.set()
        assert refused.wait(60)
        copy(source, target)

    def full_disk(file: int, parts: Sequence[BytesLike]) -> None:
        if Path(f"/proc/self/fd/{file}").readlink().is_relative_to(store.spill_directory):
            refused.set()
            raise OSError(errno.ENOSPC, "full")
        write_all(file, parts)

    monkeypatch.setattr(store_module, "copy", slowly)
    monkeypatch.setattr(store_module, "write_all", full_disk)
    spilling = threading.Thread(target=store.spill, args=(1,))
    spilling.start()
    assert copying.wait(60)
    store.write(2, value(8000))
    spilling.join(60)
    assert files(store.directory) == {"2"}
    assert files(store.spill_directory) == {"1"}
    assert store.usage().memory == real_memory(store)
    store.close()


@pytest.mark.parametrize("again", [False, True])
def test_what_is_freed_while_it_is_spilled_stays_freed(
    store: HostStore, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    copy = store_module.copy

    def copy_and_free(source: int, target: str) -> None:
        copy(source, target)
        store.free(1)
        if again:
            store.write(1, value(2000))

    monkeypatch.setattr(store_module, "copy", copy_and_free)
    store.write(1, value(1000))
    assert not store.spill(1)
    assert files(store.spill_directory) == set()
    assert store.usage() == ((2000, 0) if again else (0, 0))


def test_an_object_is_not_spilled_while_another_process_makes_room_for_long(store: HostStore) -> None:
    """Its caller has workers to look after."""
    store.write(1, value(1000))
    lock = os.open(store.directory / "spilling.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(StoreFullError):
        store.spill(1)
    assert store.usage() == (1000, 0)
    os.close(lock)
    assert store.spill(1)


def test_a_full_disk_leaves_a_spilled_object_in_memory(
    store: HostStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: int, target: str) -> None:
        Path(target).write_bytes(b"some")
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(store_module, "copy", full)
    store.write(1, value(1000))
    with pytest.raises(StoreFullError):
        store.spill(1)
    assert len(store.open(1)) == 1000
    assert files(store.spill_directory) == set()


def test_readers_never_miss_an_object_that_is_spilled_and_written_again(store: HostStore) -> None:
    done = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not done.is_set():
                assert len(store.open(1)) == 4096
        except BaseException as error:  # noqa: BLE001 - reported below
            failures.append(error)

    store.write(1, value(4096))
    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(300):
        assert store.spill(1)
        store.write(1, value(4096))
    done.set()
    reader.join()
    assert failures == []
    # The reader may have mapped the last file on disk, which counts for as long as that is kept.
    assert settles(lambda: store.usage() == (4096, 0))


def test_a_store_that_is_gone_is_told(tmp_path: Path) -> None:
    made = create_store(limit=10_000, spill=tmp_path, shared_memory=tmp_path)
    store = HostStore(made.store.directory, made.store.spill_directory, 10_000)
    made.close()
    with pytest.raises(StoreDirectoryError):
        store.write(1, value(1000))
    with pytest.raises(StoreDirectoryError), store.exclusive(1):
        pass
    with pytest.raises(ObjectLostError):
        store.open(1)
    store.close()
