"""What only the queue in files must stand: death between any two of its calls, and odd file systems."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

import fray.queue.file
from fray.errors import LeaseLostError, QueueItemError, QueueStorageError
from fray.queue import FileQueue, Lease
from fray.queue.store import ABANDONED_SECONDS, FileStore, LocalStore, open_store
from tests.queue.clocks import Clock


class Killed(BaseException):
    """The process is dead from here on."""


class DyingStore:
    """A store whose user dies right before or right after its n-th change."""

    def __init__(self, store: FileStore, *, change: int, before: bool) -> None:
        self._store = store
        self._left = change
        self._before = before
        self.died = False

    def _do(self, act: Callable[[], Any]) -> Any:
        if self.died:
            raise Killed
        self._left -= 1
        self.died = self._left == 0
        if self.died and self._before:
            raise Killed
        result = act()
        if self.died:
            raise Killed
        return result

    def create(self, name: str, data: bytes) -> bool:
        return bool(self._do(lambda: self._store.create(name, data)))

    def delete(self, name: str) -> None:
        self._do(lambda: self._store.delete(name))

    def read(self, name: str) -> bytes | None:
        return self._store.read(name)

    def list(self, folder: str) -> list[str]:
        return self._store.list(folder)


@pytest.fixture(params=["local", "object"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "queue") if request.param == "local" else str(request.getfixturevalue("object_url"))


def left_behind(place: str) -> list[str]:
    store = open_store(place, {})
    return [name for folder in ("items", "claims", "unfinished", "probes") for name in store.list(folder)]


def before_next_claim(monkeypatch: pytest.MonkeyPatch, place: str, act: Callable[[], object]) -> None:
    """Let another process act once, right before the next claim is created."""
    kind = type(open_store(place, {}))
    create = kind.create
    acts = [act]

    def late(self: Any, name: str, data: bytes) -> bool:
        if acts and name.startswith("claims/"):
            acts.pop()()
        return bool(create(self, name, data))

    monkeypatch.setattr(kind, "create", late)


def drain(queue: FileQueue[Any]) -> Iterator[Any]:
    while (lease := queue.pop()) is not None:
        yield lease.item
        queue.done(lease)


def live(queue: FileQueue[str], pushed: set[str], ending: set[str], finished: set[str]) -> None:
    """A life that makes every kind of change; notes what it knows to have happened."""
    for item in ("a", "b", "c"):
        queue.push(item)
        pushed.add(item)
    first = queue.pop(5)
    assert first is not None
    queue.renew(first, 10)
    queue.release(first)
    for _ in range(2):
        lease = queue.pop(5)
        assert lease is not None
        queue.renew(lease, 10)
        ending.add(lease.item)
        queue.done(lease)
        finished.add(lease.item)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_death_at_any_change_loses_nothing_and_leaves_nothing(
    place: str, clock: Clock, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    for change in itertools.count(1):
        dying = DyingStore(open_store(place, {}), change=change, before=before)
        with monkeypatch.context() as patch:
            patch.setattr(fray.queue.file, "open_store", lambda *_, dying=dying: dying)
            pushed: set[str] = set()
            ending: set[str] = set()
            finished: set[str] = set()
            with contextlib.suppress(Killed):
                live(FileQueue(place, clock=clock), pushed, ending, finished)
        clock.advance(3600)
        came_back = list(drain(FileQueue(place, clock=clock)))
        assert len(came_back) == len(set(came_back))
        assert pushed <= ending | set(came_back)
        assert not finished & set(came_back)
        queue: FileQueue[str] = FileQueue(place, clock=clock)
        assert queue.pop() is None
        assert left_behind(place) == []
        if not dying.died:
            assert change > 15, "the life must have had many changes"
            return


def test_a_claim_of_an_item_that_is_gone_by_then_leads_to_the_next_item(
    place: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking and claiming, another process takes the item and is done with it."""
    queue: FileQueue[str] = FileQueue(place, clock=clock)
    queue.push("a")
    queue.push("b")
    before_next_claim(monkeypatch, place, lambda: list(drain_one(FileQueue(place, clock=clock))))
    lease = queue.pop()
    assert lease is not None
    assert lease.item == "b"
    queue.done(lease)
    assert queue.pop() is None
    assert left_behind(place) == []


def drain_one(queue: FileQueue[Any]) -> Iterator[Any]:
    lease = queue.pop()
    assert lease is not None
    queue.done(lease)
    yield lease.item


@pytest.mark.parametrize("method", ["renew", "done", "release"])
def test_of_two_who_change_a_lease_at_once_one_wins(
    place: str, clock: Clock, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The holder is late; another process claims the item right before the holder's own change."""
    queue: FileQueue[str] = FileQueue(place, clock=clock)
    queue.push("a")
    lease = queue.pop(1)
    assert lease is not None
    clock.advance(1)
    others: list[Lease[Any] | None] = []
    before_next_claim(monkeypatch, place, lambda: others.append(FileQueue(place, clock=clock).pop()))
    with pytest.raises(LeaseLostError):
        getattr(queue, method)(lease)
    assert others[0] is not None
    queue.done(others[0])
    assert left_behind(place) == []


def test_a_late_renewal_of_what_another_was_done_with_is_refused(
    place: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right before the late holder's change, another takes the item, is done, and removes all of it."""
    queue: FileQueue[str] = FileQueue(place, clock=clock)
    queue.push("a")
    lease = queue.pop(1)
    assert lease is not None
    clock.advance(1)
    before_next_claim(monkeypatch, place, lambda: list(drain_one(FileQueue(place, clock=clock))))
    with pytest.raises(LeaseLostError):
        queue.renew(lease)
    assert left_behind(place) == []


def test_files_of_others_are_let_be(place: str, clock: Clock) -> None:
    queue: FileQueue[str] = FileQueue(place, clock=clock)
    queue.push("a")
    store = open_store(place, {})
    store.create("items/README", b"not an item")
    store.create("claims/README", b"not a claim")
    assert list(drain(queue)) == ["a"]
    assert sorted(left_behind(place)) == ["README", "README"]


def test_a_claim_that_no_queue_wrote_is_an_error(place: str, clock: Clock) -> None:
    queue: FileQueue[str] = FileQueue(place, clock=clock)
    queue.push("a")
    store = open_store(place, {})
    (item,) = store.list("items")
    store.create(f"claims/{item}.00000001", b"[1, 2]")
    with pytest.raises(QueueStorageError, match="wasn't written by a FileQueue"):
        queue.pop()


def test_an_item_that_cant_be_unpickled_stays_leased_and_can_be_dropped(place: str, clock: Clock) -> None:
    queue: FileQueue[Any] = FileQueue(place, clock=clock)
    queue.push("a")
    queue.push("b")
    store = open_store(place, {})
    name = sorted(store.list("items"))[0]
    store.delete(f"items/{name}")
    store.create(f"items/{name}", b"no pickle")
    with pytest.raises(QueueItemError) as caught:
        queue.pop()
    assert queue.pending() == 1
    queue.done(Lease(None, caught.value.lease_id, 0.0))
    assert list(drain(queue)) == ["b"]


def test_an_unfinished_file_is_swept_once_its_writer_must_be_dead(tmp_path: Path) -> None:
    LocalStore(tmp_path)
    old, young = tmp_path / "unfinished" / "old", tmp_path / "unfinished" / "young"
    for path in (old, young):
        path.write_bytes(b"half")
    past = young.stat().st_mtime - ABANDONED_SECONDS - 60
    os.utime(old, (past, past))
    LocalStore(tmp_path)
    assert [path.name for path in (tmp_path / "unfinished").iterdir()] == ["young"]


def test_a_file_is_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)

    def die(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr(os, "link", die)
    with pytest.raises(Killed):
        store.create("items/x", b"data")
    assert store.list("items") == []


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(QueueStorageError, match="has no hard links"):
        FileQueue[str](tmp_path / "queue").push("a")


class OverwritingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A file system that takes no notice of the wish to create exclusively."""

    protocol = "overwriting"
    cachable = False

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        super().pipe_file(path, value, mode="overwrite")


def test_a_file_system_without_exclusive_creation_is_refused(clock: Clock) -> None:
    fsspec.register_implementation("overwriting", OverwritingFileSystem, clobber=True)
    with pytest.raises(QueueStorageError, match="a second writer wins"):
        FileQueue[str]("overwriting://queue", clock=clock).push("a")


def test_a_relative_path_means_the_same_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    queue: FileQueue[str] = FileQueue("queue")
    queue.push("a")
    pickled = pickle.dumps(queue)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(pickled).peek() == "a"


def test_a_new_directory_is_its_owners_only(tmp_path: Path) -> None:
    FileQueue[str](tmp_path / "queue").push("a")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "queue").iterdir()}
    assert modes == {"unfinished": 0o700, "items": 0o700}


def test_pushes_of_one_process_keep_their_order_when_the_clock_stands_or_goes_back(
    place: str, clock: Clock
) -> None:
    queue: FileQueue[int] = FileQueue(place, clock=clock)
    for number in range(10):
        queue.push(number)
        clock.advance(-number)
    clock.advance(100)
    assert list(drain(queue)) == list(range(10))
