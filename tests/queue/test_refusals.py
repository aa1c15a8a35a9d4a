"""What a queue raises when its place, its file system or an item can't serve: typed, with a next step."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from fray.errors import (
    FrayError,
    QueueAccessError,
    QueueArgumentError,
    QueueStorageError,
    QueueUnreachableError,
    SurroundingsError,
)
from fray.queue import ClientLimits, FileQueue, HttpQueue, HttpQueueServer, Lease, Queue

TOKEN = "a-token-of-sixteen-and-more"
CALLS: dict[str, Callable[[Queue[Any], Lease[Any]], object]] = {
    "push": lambda queue, _: queue.push("b"),
    "peek": lambda queue, _: queue.peek(),
    "pop": lambda queue, _: queue.pop(),
    "renew": lambda queue, lease: queue.renew(lease),
    "done": lambda queue, lease: queue.done(lease),
    "release": lambda queue, lease: queue.release(lease),
    "size": lambda queue, _: queue.size(),
    "pending": lambda queue, _: queue.pending(),
}


def check(error: FrayError, cause: type[Exception]) -> None:
    assert error.next_step
    assert isinstance(error.__cause__, cause)


def leased(queue: Queue[Any]) -> Lease[Any]:
    queue.push("a")
    lease = queue.pop()
    assert lease is not None
    return lease


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("kind", ["file", "http"])
def test_a_place_that_has_vanished_is_told_by_every_call(
    tmp_path: Path, kind: str, call: Callable[[Queue[Any], Lease[Any]], object]
) -> None:
    """A queue in memory has none: it is there as long as anybody holds it."""
    queue: Queue[Any]
    if kind == "file":
        queue = FileQueue(tmp_path / "queue")
        lease = leased(queue)
        shutil.rmtree(tmp_path / "queue")
    else:
        with HttpQueueServer(port=0, token=TOKEN) as server:
            address = server.new_queue("q").address
            queue = HttpQueue(address, "q", token=TOKEN, limits=ClientLimits(retry_seconds=0))
            lease = leased(queue)
    with pytest.raises(SurroundingsError) as caught:
        call(queue, lease)
    assert type(caught.value) is (QueueAccessError if kind == "file" else QueueUnreachableError)
    check(caught.value, Exception)


def test_an_item_that_cant_be_pickled_is_refused(queue: Queue[Any], request: pytest.FixtureRequest) -> None:
    """The queue in memory keeps the object itself, so it takes any."""
    item = threading.Lock()
    if request.node.callspec.params["queue"] == "memory":
        queue.push(item)
        assert queue.peek() is item
        return
    with pytest.raises(QueueArgumentError, match=r"item can't be pickled \(TypeError") as caught:
        queue.push(item)
    assert isinstance(caught.value.__cause__, TypeError)
    assert queue.size() == 0


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_where_the_directory_should_be_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(QueueAccessError, match="file") as caught:
        FileQueue[str](tmp_path / place).push("a")
    check(caught.value, OSError)


def test_a_directory_that_becomes_a_file_is_refused(tmp_path: Path) -> None:
    queue: FileQueue[str] = FileQueue(tmp_path / "queue")
    queue.push("a")
    shutil.rmtree(tmp_path / "queue")
    (tmp_path / "queue").write_text("")
    for call in (queue.pop, lambda: queue.push("b")):
        with pytest.raises(QueueAccessError, match="NotADirectoryError") as caught:
            call()
        check(caught.value, NotADirectoryError)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EROFS, errno.ESTALE])
def test_what_the_system_refuses_names_the_queue_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    queue: FileQueue[str] = FileQueue(tmp_path / "queue")
    queue.push("a")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    for method, call in (("write_bytes", lambda: queue.push("b")), ("iterdir", queue.size)):
        with monkeypatch.context() as patch:
            patch.setattr(Path, method, refuse)
            with pytest.raises(QueueAccessError, match=os.strerror(number)) as caught:
                call()
        assert str(tmp_path / "queue") in caught.value.message
        check(caught.value, OSError)
    assert queue.peek() == "a"


def test_a_scheme_that_nobody_knows_is_refused() -> None:
    with pytest.raises(QueueStorageError, match="nosuch") as caught:
        FileQueue[str]("nosuch://bucket/queue").push("a")
    check(caught.value, ValueError)


@pytest.mark.parametrize(("scheme", "package"), [("gs", "gcsfs"), ("s3", "s3fs")])
def test_a_scheme_whose_package_is_not_installed_is_refused(
    monkeypatch: pytest.MonkeyPatch, scheme: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(QueueStorageError, match=f"(?i)install {package}") as caught:
        FileQueue[str](f"{scheme}://bucket/queue").push("a")
    assert package in caught.value.next_step
    check(caught.value, ImportError)


class CloudError(Exception):
    """What some libraries of object stores raise: no OSError."""


class FailingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """An object store that can't be asked any more once `failing` is set."""

    protocol = "failing"
    cachable = False
    failing = False

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        if FailingFileSystem.failing:
            raise CloudError("credentials have expired")
        return super().ls(path, detail=detail, **kwargs)


def test_an_error_of_an_object_stores_library_is_a_typed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("failing", FailingFileSystem, clobber=True)
    queue: FileQueue[str] = FileQueue("failing://refusals")
    queue.push("a")
    monkeypatch.setattr(FailingFileSystem, "failing", True)
    with pytest.raises(QueueAccessError, match="credentials have expired") as caught:
        queue.pop()
    check(caught.value, CloudError)


class ReadOnlyFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A file system that only reads, as that of http:// addresses."""

    protocol = "readonly"
    cachable = False

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        raise NotImplementedError

    def rm_file(self, path: str) -> None:
        raise NotImplementedError


def test_a_file_system_that_only_reads_is_refused() -> None:
    fsspec.register_implementation("readonly", ReadOnlyFileSystem, clobber=True)
    with pytest.raises(QueueStorageError, match="has no exclusive creation"):
        FileQueue[str]("readonly://queue").push("a")
