"""A host's store: whole files, mapped where they lie, and kept for who reads them."""

from __future__ import annotations

import gc
import os
import resource
import stat
from pathlib import Path

import numpy as np
import pytest

from fray.errors import ObjectLostError
from fray.runtime.pool.objects import store as module
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.objects.values import decode, encode
from tests.pool.store.stored import value


def test_a_value_is_mapped_where_it_was_written(store: HostStore) -> None:
    array = np.arange(100_000)
    assert store.write(0xABC, encode(array)) == ((store.directory / "abc").stat().st_size, False)
    assert store.open(0xABC).readonly
    back = decode(store.open(0xABC))
    assert np.array_equal(back, array)
    assert not back.flags.writeable
    assert back.ctypes.data % 64 == 0
    assert stat.S_IMODE((store.directory / "abc").stat().st_mode) == 0o600
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700


def test_many_buffers_are_written_in_several_calls(store: HostStore) -> None:
    arrays = [np.full(5000, index % 251, dtype=np.uint8) for index in range(1500)]
    store.write(1, encode(arrays))
    assert all(np.array_equal(*pair) for pair in zip(arrays, decode(store.open(1)), strict=True))


def test_partial_writes_go_on(store: HostStore, monkeypatch: pytest.MonkeyPatch) -> None:
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda file, parts: writev(file, [parts[0][:999]]))
    array = np.arange(50_000)
    store.write(1, encode(array))
    assert np.array_equal(decode(store.open(1)), array)


def test_a_reader_keeps_what_is_freed(store: HostStore) -> None:
    store.write(1, encode(np.arange(10_000)))
    array = decode(store.open(1))
    store.free(1)
    store.free(1)
    assert array[-1] == 9999
    assert not store.contains(1)
    assert store.usage().memory > 80_000
    del array
    assert store.usage() == (0, 0)
    with pytest.raises(ObjectLostError):
        store.open(1)


def test_mappings_end_with_their_last_reader_and_need_no_descriptor(store: HostStore) -> None:
    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count(str(store.directory))

    for identity in range(1000):
        store.write(identity, encode(np.arange(1_000)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 20, hard))
    try:
        views = [store.open(identity) for identity in range(1000)]
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        assert mappings() == 1000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    kept = decode(views[0])
    del views
    store.free(999)  # else it is kept for a while, as the last one that was read
    gc.collect()
    assert mappings() == 1
    assert kept[5] == 5
    del kept
    gc.collect()
    assert mappings() == 0


def test_an_object_written_again_takes_the_place_of_the_first(store: HostStore) -> None:
    store.write(1, value(1000))
    old = store.open(1)
    store.write(1, value(3000))
    assert len(store.open(1)) == 3000
    assert len(old) == 1000
    assert store.usage() == (4000, 0)
    del old
    assert store.usage() == (3000, 0)


def test_an_object_is_found_however_often_it_moves(store: HostStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is spilled or written again just before each look, which misses it; nothing moves under the lock."""
    store.write(1, value(1000))
    look = os.path.lexists

    def move_and_look(path: str) -> bool:
        if not module._threads.locked():
            moved = store.spill(1) if path.startswith(str(store.directory)) else store.write(1, value(1000))
            assert moved
            assert not look(path)
        return look(path)

    monkeypatch.setattr("os.path.lexists", move_and_look)
    assert store.contains(1)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_LOCK_SECONDS", 0.01)
        with module._threads:  # as a thread has it that a finalizer has interrupted
            assert not store.contains(2)
