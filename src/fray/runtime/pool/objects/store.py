"""The objects of one host as files that its processes share: written once, then mapped read-only.

One directory a pool and host, in shared memory where there is enough of it, and one on disk for what
doesn't fit. A file becomes visible whole, by a rename; what a killed writer leaves behind is a `.part`,
which is counted until it is removed.

New pages of memory cost a quarter of what it takes to receive a large object. So the file of a freed one may
stay, as the `spare`, and the next one is written over it: at most one, of a part of the limit, counted as
used, the first to go when room is needed. Wrong bytes are never read:

- It becomes the spare by the rename that takes its name away, and a part by one more, of which one process
  only has success. Who dies before or after one of these leaves an object, a spare or a part: each of them is
  counted, and goes in its own way.
- It is written over only if the kernel says that nobody has it open or mapped (`is_unused`).
- Who opens it too late, by a name that it looked up before, sees that it hasn't got that name (`held`).

Nothing may stand here about what the bytes mean, about other hosts, or who makes the directories.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import math
import os
import re
import struct
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from fray.errors import ObjectLostError, StoreDirectoryError, StoreFullError
from fray.runtime.container import is_in_memory
from fray.runtime.file_locks import is_locked, lock_within
from fray.runtime.pool.messages.specs import ObjectId
from fray.runtime.pool.objects.disk_warnings import share_warnings
from fray.runtime.pool.objects.files import (
    COPY_MODE,
    PART,
    SPARE,
    USAGE,
    check_directory,
    claim_directory,
    copy,
    evict,
    is_dead,
    is_open,
    is_unused,
    list_names,
    lock_file,
    no_store,
    opened,
    scan,
    status_of,
    unlink,
    write_all,
)
from fray.runtime.pool.objects.flat_format import Encoded
from fray.runtime.pool.objects.mappings import Mappings

__all__ = ["HostStore", "Usage", "Written"]

_LOCK = ".lock"
_SPILLING = f"spilling{_LOCK}"
_COUNT = struct.Struct("<q")
_IDENTITY = re.compile("[0-9a-f]+")
T = TypeVar("T")
_LOCK_SECONDS = 1.0
"""How long `spill` waits for writers at most: its caller has more to do, and they may stand still."""
_FILES_A_WRITE = 32
"""That a write into full memory looks at on average. One looks at all; for the others the count decides."""
_MAPPED_SHARE = 0.125
"""Of the limit, for objects that one process has mapped while it may not be using them."""
_SPARE_LEAST = 4 * 1024**2
"""Bytes of an object for which it is worth the calls."""
_SPARE_SHARE = 0.25
"""Of the limit, for the spare."""


class Usage(NamedTuple):
    """Bytes that a host's objects take, freed ones that are mapped too; those being written count whole."""

    memory: int
    disk: int


class Written(NamedTuple):
    """What a value takes in a store, in bytes, and whether on disk: in memory there was no room."""

    size: int
    on_disk: bool


# One for all stores of a process: a POSIX lock excludes other processes, but not other threads, and is
# dropped when any descriptor of its file is closed.
_threads = threading.Lock()
_counter = itertools.count()


class HostStore:
    """A host's objects, as any of its processes sees them. Threads may share one.

    `limit` is in bytes of `directory`, which exists; what doesn't fit goes to `spill_directory`, which is
    made when it is missing: a program that cleans up may remove it under a pool. Both belong to this user
    and are closed to others.

    Raises `StoreDirectoryError` if they don't.
    """

    def __init__(self, directory: Path, spill_directory: Path, limit: int) -> None:
        check_directory(directory)
        self.directory = directory
        self.spill_directory = spill_directory
        self.limit = limit
        self._memory = str(directory)
        self._disk = str(spill_directory)
        self._spare = f"{directory}/{SPARE}"
        share_warnings(self._disk, self._memory)
        self._mappings = Mappings(int(limit * _MAPPED_SHARE))
        self.on_evicted: Callable[[ObjectId], None] = lambda _: None
        """Called with each copy that this process removes for want of room."""
        self._blind_writes = 0
        """How many writes take memory for full by its count alone, before one counts anew."""
        self._disk_lock = -1
        """Keeps the directory on disk from being swept; none was claimed yet."""
        try:
            self._claim_disk()
        except OSError as error:
            raise no_store(error, 0, self._disk) from error
        self._count = os.open(directory / USAGE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        """Forget the directories; what somebody has mapped stays."""
        self._mappings.close()
        with _threads:
            os.close(self._count)
            os.close(self._disk_lock)

    def write(self, identity: ObjectId, encoded: Encoded) -> Written:
        """Keep a value under an identity, in place of an earlier one, and return what that takes.

        Raises `StoreFullError`, or `StoreDirectoryError` if the store is gone.
        """
        size, parts = encoded.size, encoded.parts()
        with contextlib.closing(self.places()) as places:
            for disk in places:
                try:
                    with self.receiving(identity, size, disk=disk) as file:
                        write_all(file, parts)
                except StoreFullError:
                    continue
                except StoreDirectoryError:
                    if not disk:
                        raise
                    continue
                return Written(size, disk)
        raise StoreFullError(size, (self._memory, self._disk))

    def places(self) -> Generator[bool, None, None]:
        """Give where to try to write an object, one place after the other: on `disk` or in memory.

        An object that is being spilled takes room in both. If neither has any, both are given again when
        nothing is on its way and copies are gone, and nothing begins to spill until this iterator is closed.
        """
        yield from (False, True)
        with self._held(_SPILLING):
            gone: list[str] = []
            evict(self._memory, gone)
            evict(self._disk, gone)
            self._tell_evicted(gone)
            self._blind_writes = 0
            yield from (False, True)

    @contextlib.contextmanager
    def receiving(self, identity: ObjectId, size: int, *, disk: bool, copy: bool = False) -> Iterator[int]:
        """Give a descriptor for the `size` bytes of an object, which is visible once the block has ended.

        The block does nothing but fill it. A `copy` of what lies on another host goes where room is needed.

        Raises `StoreFullError` if memory, or the disk, has no room, or `StoreDirectoryError`; nothing is left
        of it then.
        """
        folder = self._disk if disk else self._memory
        part = f"{folder}/{identity:x}.{os.getpid()}-{next(_counter)}{PART}"
        try:
            file = self._begin(part, size, disk=disk)
            try:
                yield file
                if copy:
                    os.fchmod(file, COPY_MODE)
                self._publish(part, identity, disk=disk)
            except BaseException:
                self._discard(part, size, disk=disk)
                raise
            finally:
                os.close(file)
        except OSError as error:
            raise no_store(error, size, folder) from error

    def open(self, identity: ObjectId) -> memoryview:
        """Return an object's bytes, mapped read-only for as long as anything refers to them.

        No descriptor stays open.

        Raises:
            ObjectLostError: there is none here.
            StoreDirectoryError: a file of its name isn't this user's, or can't be mapped.
        """

        def map_it(path: str) -> memoryview | None:
            with contextlib.suppress(FileNotFoundError):
                return self._mappings.open(identity, path)
            return None

        found = self._find(identity, map_it)
        if found is None:
            raise ObjectLostError(f"{identity:x}", f"it is neither in {self._memory} nor in {self._disk}")
        return found

    def _find(self, identity: ObjectId, look: Callable[[str], T | None]) -> T | None:
        """Return what `look` finds at the path that an object has by now; None if it isn't here."""
        with contextlib.ExitStack() as stack:
            for locked in (False, True):
                if locked:
                    # It was freed, or written again between both looks. Nothing moves under the lock, which
                    # isn't waited for without end: who holds it may be stopped, or be what a finalizer that
                    # reads has interrupted.
                    with contextlib.suppress(TimeoutError):
                        stack.enter_context(self._locked(_LOCK_SECONDS))
                for folder in (self._memory, self._disk):
                    if (found := look(f"{folder}/{identity:x}")) is not None:
                        return found
        return None

    def unmap(self, identity: ObjectId) -> None:
        """Keep no mapping of an object for later readers of this process: they are seldom, or far away.

        To unmap a large one takes a while, and longer once it is freed. What somebody still reads stays.
        """
        self._mappings.forget(identity)

    def contains(self, identity: ObjectId) -> bool:
        """Whether an object is here."""
        return bool(self._find(identity, lambda path: os.path.lexists(path) or None))

    def free(self, identity: ObjectId, *, spare: bool = False) -> bool:
        """Remove an object, if it is here; a process that has it mapped keeps it. Waits for nobody.

        With `spare` its file may become the spare, until `discard_spare`; returns whether it has.
        """
        # Memory first, so that what is being spilled is noticed as freed.
        self._mappings.forget(identity)
        path = f"{self._memory}/{identity:x}"
        kept = spare and self._keep_pages(path)
        if not kept:
            unlink(path)
        unlink(f"{self._disk}/{identity:x}")
        return kept

    def discard_spare(self) -> None:
        """Give back the pages of the spare, if there is one."""
        unlink(self._spare)

    def keep(self, identity: ObjectId) -> bool:
        """Let an object be no copy any more; return whether it is here. Waits for nobody."""
        for folder in (self._memory, self._disk) * 2:
            with contextlib.suppress(OSError):
                os.chmod(f"{folder}/{identity:x}", 0o600, follow_symlinks=True)  # noqa: PTH101 - no Path
                return True
        return self.contains(identity)

    def spill(self, identity: ObjectId) -> bool:
        """Move an object from memory to disk; False if it isn't in memory, or was freed first.

        Raises `StoreFullError` or `StoreDirectoryError`; then it stays in memory.
        """
        path = f"{self._memory}/{identity:x}"
        try:
            with self._held(_SPILLING, _LOCK_SECONDS), opened(path) as source:
                if not is_open(path, source):  # see `held`
                    return False
                seen = os.fstat(source)
                part = f"{self._disk}/{identity:x}.{os.getpid()}-{next(_counter)}{PART}"
                return self._spill_to(part, identity, source, seen)
        except FileNotFoundError:
            return False

    def _spill_to(self, part: str, identity: ObjectId, source: int, seen: os.stat_result) -> bool:
        try:
            self._claim_disk()
            copy(source, part)
            with self._locked(_LOCK_SECONDS):
                # Only if it is still the same file: it may have been freed, or written again.
                now = status_of(f"{self._memory}/{identity:x}")
                if now is None or now.st_ino != seen.st_ino:
                    return False
                os.rename(part, f"{self._disk}/{identity:x}")  # noqa: PTH104 - no Path on the fast way
                self._mappings.forget(identity)
                if self._unlink_from_memory(identity):
                    return True
                unlink(f"{self._disk}/{identity:x}")  # it was freed, which waits for no lock
                return False
        except OSError as error:
            raise no_store(error, seen.st_size, self._disk) from error
        finally:
            unlink(part)

    def usage(self) -> Usage:
        """Return what the objects take."""
        return Usage(scan(self._memory), scan(self._disk))

    def identities(self) -> tuple[ObjectId, ...]:
        """Return all objects that are here, in no order."""
        names = {name for folder in (self._memory, self._disk) for name in list_names(folder)}
        return tuple(int(name, 16) for name in names if _IDENTITY.fullmatch(name))

    def discard_dead_parts(self) -> None:
        """Remove the spare, and what processes that are dead by now left half-written. Waits for no writer.

        Raises `StoreDirectoryError` or `OSError` if the directory on disk is gone and can't be made again.
        """
        self.discard_spare()
        scan(self._disk, dead=is_dead)
        scan(self._memory, dead=is_dead)
        # One of them may have made the directory on disk again, whose claim has ended with it.
        self._claim_disk()

    @contextlib.contextmanager
    def exclusive(self, identity: ObjectId) -> Iterator[None]:
        """Let only one process and thread of the host at a time do what is in the block for an object.

        Ends with its holder, however that ends.

        Raises `StoreFullError` or `StoreDirectoryError` if there can't be a lock.
        """
        with self._held(f"{identity:x}{_LOCK}"):
            yield

    def is_locked(self, identity: ObjectId) -> bool:
        """Whether some process is within `exclusive` for an object."""
        with contextlib.suppress(OSError):  # it is none of ours
            return is_locked(f"{self._memory}/{identity:x}{_LOCK}")
        return False

    @contextlib.contextmanager
    def _held(self, lock: str, seconds: float | None = None) -> Iterator[None]:
        """Hold a lock of the host's processes; raises `StoreFullError` if it isn't free within `seconds`."""
        path = f"{self._memory}/{lock}"
        while True:
            try:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise no_store(error, 0, self._memory) from error
            try:
                if not lock_within(file, seconds):
                    raise StoreFullError(0, (self._disk,))
                # The holder before may have removed the file that this one waited for.
                now = status_of(path)
                if now is None or now.st_ino != os.fstat(file).st_ino:
                    continue
                try:
                    yield
                finally:
                    unlink(path)
                return
            finally:
                os.close(file)

    # Bytes are counted up before a file takes them, and not always down when it is gone: so the count may be
    # too high, and a process that finds memory full counts anew (not each time where there are many files).
    # So `free` needs no lock: the head and the nanny share it with processes of users, which may be stopped
    # while they hold it. What a process has mapped counts until it is unmapped: that process has a link to
    # the file, beside the object's own name.

    def _begin(self, part: str, size: int, *, disk: bool) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        if disk:
            self._claim_disk()
            return os.open(part, flags, 0o600)
        if size >= _SPARE_LEAST:
            self._mappings.forget_freed()
        gone: list[str] = []
        try:
            return self._make_room(part, size, gone, flags)
        finally:
            self._tell_evicted(gone)

    def _make_room(self, part: str, size: int, gone: list[str], flags: int) -> int:
        with self._locked():
            used = self._used()
            if used + size > self.limit:
                if self._blind_writes:
                    self._blind_writes -= 1
                    raise StoreFullError(size, (self._memory,))
                self.discard_spare()
                used = scan(self._memory, dead=is_dead)
                if used + size > self.limit:
                    used -= evict(self._memory, gone, used + size - self.limit)
                self._set_used(used)
            if used + size > self.limit:
                self._blind_writes = len(list_names(self._memory)) // _FILES_A_WRITE
                raise StoreFullError(size, (self._memory,))
            self._set_used(used + size)
            file = self._take_spare(part) if size >= _SPARE_LEAST else -1
            if file >= 0:
                self._set_used(used + size - os.fstat(file).st_size)
            else:
                file = os.open(part, flags, 0o600)
            try:
                # Within the lock, so that a process that counts anew counts it whole.
                os.ftruncate(file, size)
            except BaseException:
                os.close(file)
                unlink(part)
                raise
            return file

    def _keep_pages(self, path: str) -> bool:
        """Make a file the spare, in place of an earlier one; False if it isn't one for that."""
        status = status_of(path)
        if status is None or not _SPARE_LEAST <= status.st_size <= self.limit * _SPARE_SHARE:
            return False
        if not is_in_memory(self.directory):
            return False
        try:
            os.rename(path, self._spare)  # noqa: PTH104 - no Path on the fast way
        except OSError:
            return False
        return True

    def _take_spare(self, part: str) -> int:
        """Return a descriptor of the spare, which is the part of that name now; -1: there is none to use."""
        try:
            os.rename(self._spare, part)  # noqa: PTH104 - as above
        except OSError:
            return -1
        with contextlib.suppress(OSError):
            os.chmod(part, 0o600)  # noqa: PTH101 - as above
            file = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            if is_unused(file):
                return file
            os.close(file)
        unlink(part)
        return -1

    def _tell_evicted(self, names: list[str]) -> None:
        for name in names:
            self.on_evicted(int(name, 16))

    def _claim_disk(self) -> None:
        """Make the directory on disk where it is missing. Raises `StoreDirectoryError` or `OSError`."""
        with _threads:
            before = self._disk_lock
            if before >= 0 and is_open(self.spill_directory, before):
                return
            self.spill_directory.parent.parent.mkdir(parents=True, exist_ok=True)
            self._disk_lock = claim_directory(self.spill_directory)
            if before >= 0:
                os.close(before)

    def _publish(self, part: str, identity: ObjectId, *, disk: bool) -> None:
        path = f"{self._disk if disk else self._memory}/{identity:x}"
        with self._locked():
            before = None if disk else status_of(path)
            os.rename(part, path)  # noqa: PTH104 - no Path on the fast way
            if before is not None and before.st_nlink == 1:
                self._set_used(self._used() - before.st_size)
            if disk:
                self._unlink_from_memory(identity)
            else:
                unlink(f"{self._disk}/{identity:x}")

    def _discard(self, part: str, size: int, *, disk: bool) -> None:
        with self._locked():
            if unlink(part) and not disk:
                self._set_used(self._used() - size)

    def _unlink_from_memory(self, identity: ObjectId) -> bool:
        path = f"{self._memory}/{identity:x}"
        status = status_of(path)
        if status is None or not unlink(path):
            return False
        if status.st_nlink == 1:
            self._set_used(self._used() - status.st_size)
        return True

    @contextlib.contextmanager
    def _locked(self, seconds: float = math.inf) -> Iterator[None]:
        """Count alone within the block. Raises `TimeoutError` where that can't be had in so many seconds."""
        if not _threads.acquire(timeout=-1 if seconds == math.inf else seconds):
            raise TimeoutError("another thread holds the lock")
        try:
            lock_file(self._count, seconds)
            try:
                yield
            finally:
                fcntl.lockf(self._count, fcntl.LOCK_UN)
        finally:
            _threads.release()

    def _used(self) -> int:
        data = os.pread(self._count, _COUNT.size, 0)
        return int(_COUNT.unpack(data)[0]) if len(data) == _COUNT.size else 0

    def _set_used(self, used: int) -> None:
        os.pwrite(self._count, _COUNT.pack(used), 0)
