"""Files that are created whole or not at all, and by one only: what FileQueue needs of a file system.

Local directories use a hard link, which fails when its name exists, unlike a rename, and which shows
the file with all its bytes, unlike an exclusive open. Everything else goes through fsspec's exclusive
creation (`mode="create"`), which object stores do by a condition on the request. Nothing here knows
what the files mean.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import fsspec  # type: ignore[import-untyped]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from fray.errors.base import FrayError
from fray.errors.queue import QueueAccessError, QueueStorageError

__all__ = ["FileStore", "LocalStore", "ObjectStore", "open_store"]

# A writer that has needed longer for one file is dead; its name is then free for deletion.
ABANDONED_SECONDS = 24 * 3600.0

# fsspec's file system in memory looks and then writes: not atomic between threads, and it can't be seen
# by other processes.
_memory_lock = threading.RLock()


class FileStore(Protocol):
    """Names are `folder/file`. Every method may be called by any thread and process.

    What `open_store` returns raises `QueueAccessError` from each for what the file system refuses.
    """

    def create(self, name: str, data: bytes) -> bool:
        """Make a file that nobody can see a part of; False when the name exists."""
        ...

    def read(self, name: str) -> bytes | None:
        """A file's content; None when there is none."""
        ...

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        ...

    def list(self, folder: str) -> list[str]:
        """The names of the files in a folder, in no order, without the folder's."""
        ...


def open_store(path: str, fs_args: dict[str, Any]) -> FileStore:
    """Return the store at a path or fsspec URL; makes what is missing of a local directory.

    Raises:
        QueueStorageError: the file system has no exclusive creation, or fsspec doesn't have it here.
        QueueAccessError: it can't be reached, or doesn't let this process in.
    """
    with _reported(path):
        try:
            fs, root = fsspec.core.url_to_fs(path, **fs_args)
        except (ImportError, ValueError) as error:  # its package isn't installed; it isn't known
            raise QueueStorageError(path, str(error)) from error
        local = isinstance(fs, LocalFileSystem)
        return ReportingStore(path, LocalStore(Path(root)) if local else ObjectStore(fs, root))


class ReportingStore:
    """A store whose failures are Fray's errors, with the queue's path."""

    def __init__(self, path: str, store: FileStore) -> None:
        self._path = path
        self._store = store

    def create(self, name: str, data: bytes) -> bool:
        """Make a file, as the store does."""
        with _reported(self._path):
            return self._store.create(name, data)

    def read(self, name: str) -> bytes | None:
        """A file's content; None when there is none."""
        with _reported(self._path):
            return self._store.read(name)

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        with _reported(self._path):
            self._store.delete(name)

    def list(self, folder: str) -> list[str]:
        """The names of the files in a folder."""
        with _reported(self._path):
            return self._store.list(folder)


@contextlib.contextmanager
def _reported(path: str) -> Iterator[None]:
    try:
        yield
    except FrayError:
        raise
    except Exception as error:  # a file system of fsspec raises what the libraries below it raise
        raise QueueAccessError(path, f"{type(error).__name__}: {error}") from error


class LocalStore:
    """A directory of this machine, or one that it has mounted."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # Who can write into it can make readers run code: unpickling does.
        (root / "unfinished").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()

    def create(self, name: str, data: bytes) -> bool:
        """Make a file by a hard link to a finished one."""
        unfinished = self._root / "unfinished" / uuid.uuid4().hex
        try:
            unfinished.write_bytes(data)
            return self._link(unfinished, self._root / name)
        finally:
            unfinished.unlink(missing_ok=True)

    def read(self, name: str) -> bytes | None:
        """A file's content; None when there is none."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        (self._root / name).unlink(missing_ok=True)

    def list(self, folder: str) -> list[str]:
        """The names of the files in a folder."""
        try:
            return [path.name for path in (self._root / folder).iterdir()]
        except FileNotFoundError:
            # Folders are made when something is put into them; their home was made at the start.
            if not self._root.is_dir():
                raise
            return []

    def _link(self, source: Path, target: Path) -> bool:
        try:
            try:
                os.link(source, target)
            except FileNotFoundError:
                target.parent.mkdir(mode=0o700, exist_ok=True)
                os.link(source, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise QueueStorageError(str(self._root), f"has no hard links ({error.strerror})") from error
            raise
        return True

    def _sweep(self) -> None:
        for path in (self._root / "unfinished").iterdir():
            try:
                abandoned = path.stat().st_mtime < time.time() - ABANDONED_SECONDS
            except FileNotFoundError:
                continue
            if abandoned:
                path.unlink(missing_ok=True)


class ObjectStore:
    """Any file system of fsspec whose exclusive creation is one; asked once, with two files."""

    def __init__(self, fs: Any, root: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self._lock = _memory_lock if isinstance(fs, MemoryFileSystem) else None
        self._prove_exclusive_creation()

    def create(self, name: str, data: bytes) -> bool:
        """Make a file on the condition that there is none."""
        path = f"{self._root}/{name}"
        with self._lock or _NO_LOCK:
            try:
                self._fs.pipe_file(path, data, mode="create")
            except FileExistsError:
                return False
            except FileNotFoundError:
                # A file system with real folders. They are made by nobody else's hand but all may try.
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                try:
                    self._fs.pipe_file(path, data, mode="create")
                except FileExistsError:
                    return False
        return True

    def read(self, name: str) -> bytes | None:
        """A file's content; None when there is none."""
        with self._lock or _NO_LOCK:
            try:
                return bytes(self._fs.cat_file(f"{self._root}/{name}"))
            except FileNotFoundError:
                return None

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        with self._lock or _NO_LOCK:
            try:
                self._fs.rm_file(f"{self._root}/{name}")
            except FileNotFoundError:
                return

    def list(self, folder: str) -> list[str]:
        """The names of the files in a folder."""
        path = f"{self._root}/{folder}"
        with self._lock or _NO_LOCK:
            # Implementations keep lists; another process may have changed what they hold.
            self._fs.invalidate_cache(path)
            try:
                found = self._fs.ls(path, detail=False)
            except FileNotFoundError:
                return []
        return [str(name).rstrip("/").rpartition("/")[2] for name in found]

    def _prove_exclusive_creation(self) -> None:
        name = f"probes/{uuid.uuid4().hex}"
        try:
            try:
                exclusive = (
                    self.create(name, b"1") and not self.create(name, b"2") and self.read(name) == b"1"
                )
            finally:
                self.delete(name)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise QueueStorageError(self._root, f"has no exclusive creation ({error})") from error
        if not exclusive:
            raise QueueStorageError(self._root, "has no exclusive creation: a second writer wins")


_NO_LOCK = contextlib.nullcontext()
