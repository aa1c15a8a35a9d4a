"""Mappings kept for the next reader: of what is read again, never stale, bounded, and not for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fray.errors import ObjectLostError
from fray.runtime.pool.objects.directories import create_store
from fray.runtime.pool.objects.mappings import Mappings
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.objects.values import decode, encode

SIZE = 100_000
NEVER = 3600.0


@pytest.fixture
def mappings() -> Iterator[Mappings]:
    made = Mappings(3 * SIZE, seconds=NEVER)
    yield made
    made.close()


def file_of(folder: Path, identity: int, size: int = SIZE) -> str:
    path = folder / f"{identity:x}"
    path.write_bytes(bytes([identity]) * size)
    return str(path)


def mapped_files(folder: Path) -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted(Path(line.split(maxsplit=5)[5]).name.partition(".")[0]
                  for line in lines if str(folder) in line)  # fmt: skip


def read(mappings: Mappings, identity: int, path: str, times: int) -> None:
    for _ in range(times):
        assert mappings.open(identity, path)[-1] == identity


def test_of_what_is_read_once_only_the_last_is_kept(mappings: Mappings, tmp_path: Path) -> None:
    for identity in (1, 2, 3):
        read(mappings, identity, file_of(tmp_path, identity), times=1)
    assert mapped_files(tmp_path) == ["3"]


def test_what_is_read_in_turns_is_kept(mappings: Mappings, tmp_path: Path) -> None:
    paths = [file_of(tmp_path, identity) for identity in (1, 2, 3)]
    for _ in range(2):
        for identity, path in enumerate(paths, 1):
            read(mappings, identity, path, times=1)
    assert mapped_files(tmp_path) == ["1", "2", "3"]


def test_what_is_read_again_is_mapped_once_for_all_that_follow(mappings: Mappings, tmp_path: Path) -> None:
    path = file_of(tmp_path, 1)
    read(mappings, 1, path, times=2)
    views = [mappings.open(1, path) for _ in range(100)]
    assert mapped_files(tmp_path) == ["1"]
    assert all(view.readonly for view in views)


def test_it_is_dropped_when_nobody_has_read_it_for_a_while(mappings: Mappings, tmp_path: Path) -> None:
    path = file_of(tmp_path, 1)
    read(mappings, 1, path, times=2)
    mappings.sweep()
    read(mappings, 1, path, times=1)
    mappings.sweep()
    assert mapped_files(tmp_path) == ["1"]
    mappings.sweep()
    assert mapped_files(tmp_path) == []


def test_it_is_dropped_without_anybody_asking(tmp_path: Path) -> None:
    mappings = Mappings(SIZE, seconds=0.001)
    path = file_of(tmp_path, 1)
    while not (sweeps := [thread for thread in threading.enumerate() if thread.name == "fray-mappings"]):
        read(mappings, 1, path, times=1)
    while sweeps:
        sweeps.pop().join()
        sweeps = [thread for thread in threading.enumerate() if thread.name == "fray-mappings"]
    assert mapped_files(tmp_path) == []


def test_a_dropped_mapping_stays_for_who_reads_in_it(mappings: Mappings, tmp_path: Path) -> None:
    path = file_of(tmp_path, 1)
    views = [mappings.open(1, path) for _ in range(3)]
    mappings.forget(1)
    assert {bytes(view[:2]) for view in views} == {b"\x01\x01"}
    del views
    assert mapped_files(tmp_path) == []


def test_a_file_in_the_place_of_another_is_the_one_that_is_read(mappings: Mappings, tmp_path: Path) -> None:
    path = file_of(tmp_path, 1)
    read(mappings, 1, path, times=3)
    Path(file_of(tmp_path, 2)).replace(path)
    for _ in range(3):
        assert mappings.open(1, path)[0] == 2
    assert len(mapped_files(tmp_path)) == 1


def test_a_file_that_is_gone_is_not_there(mappings: Mappings, tmp_path: Path) -> None:
    path = file_of(tmp_path, 1)
    read(mappings, 1, path, times=3)
    Path(path).unlink()
    with pytest.raises(FileNotFoundError):
        mappings.open(1, path)


def test_no_more_than_the_limit_is_kept_and_the_oldest_go(mappings: Mappings, tmp_path: Path) -> None:
    for identity in range(1, 6):
        read(mappings, identity, file_of(tmp_path, identity), times=2)
    assert mapped_files(tmp_path) == ["3", "4", "5"]
    read(mappings, 6, file_of(tmp_path, 6, size=2 * SIZE), times=2)
    assert mapped_files(tmp_path) == ["5", "6"]
    read(mappings, 7, file_of(tmp_path, 7, size=4 * SIZE), times=3)
    assert mapped_files(tmp_path) == ["5", "6"]


def test_what_was_dropped_makes_room(mappings: Mappings, tmp_path: Path) -> None:
    for identity in (1, 2, 3):
        read(mappings, identity, file_of(tmp_path, identity), times=2)
    mappings.forget(2)
    mappings.sweep()
    read(mappings, 3, str(tmp_path / "3"), times=1)
    mappings.sweep()
    for identity in (4, 5):
        read(mappings, identity, file_of(tmp_path, identity), times=2)
    assert mapped_files(tmp_path) == ["3", "4", "5"]


def test_closing_ends_the_thread_and_keeps_nothing(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # some of which may end
    mappings = Mappings(SIZE, seconds=NEVER)
    path = file_of(tmp_path, 1)
    read(mappings, 1, path, times=2)
    assert len(set(threading.enumerate()) - before) == 1
    mappings.close()
    assert set(threading.enumerate()) <= before
    read(mappings, 1, path, times=3)
    assert mapped_files(tmp_path) == []
    assert set(threading.enumerate()) <= before


def test_an_object_that_is_freed_spilled_or_written_again_is_not_read_from_before(store: HostStore) -> None:
    for version in range(3):
        store.write(1, encode(np.full(10_000, version)))
        for _ in range(3):
            assert decode(store.open(1))[0] == version
    assert store.spill(1)
    assert mapped_files(store.directory) == []
    for _ in range(3):
        assert decode(store.open(1))[0] == 2
    store.free(1)
    assert mapped_files(store.spill_directory) == []
    with pytest.raises(ObjectLostError):
        store.open(1)


def test_what_another_process_frees_is_lost_at_once(store: HostStore) -> None:
    store.write(1, encode(np.full(10_000, 1)))
    for _ in range(3):
        store.open(1)
    other = HostStore(store.directory, store.spill_directory, store.limit)
    other.free(1)
    other.close()
    with pytest.raises(ObjectLostError):
        store.open(1)


def test_a_closed_store_keeps_nothing(tmp_path: Path) -> None:
    owned = create_store(limit=10_000_000, spill=tmp_path, shared_memory=tmp_path)
    owned.store.write(1, encode(np.full(10_000, 1)))
    for _ in range(3):
        owned.store.open(1)
    owned.close()
    assert mapped_files(tmp_path) == []


def test_readers_in_threads_never_see_less_than_was_written_before(store: HostStore) -> None:
    written, failures = 0, list[str]()
    store.write(1, encode(np.full(10_000, 0)))

    def read_all() -> None:
        while (least := written) < 300 and not failures:
            got = int(decode(store.open(1))[0])
            if got < least:
                failures.append(f"{got} after {least}")

    readers = [threading.Thread(target=read_all) for _ in range(3)]
    for reader in readers:
        reader.start()
    for version in range(1, 301):
        store.write(1, encode(np.full(10_000, version)))
        written = version
    for reader in readers:
        reader.join()
    assert failures == []
