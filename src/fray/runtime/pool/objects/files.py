"""What the store does to single files and directories: counts, copies, maps, claims; refuses those of others.

Which file holds which object, and who may write when, is the store's.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import itertools
import math
import mmap
import os
import shutil
import signal
import stat
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fray.errors import StoreDirectoryError, StoreFullError
from fray.runtime.pool.objects.disk_warnings import NO_ROOM, allow_warning, warn_once
from fray.runtime.pool.objects.flat_format import BytesLike

__all__ = [
    "COPY_MODE",
    "HELD",
    "PART",
    "SPARE",
    "STAYS",
    "USAGE",
    "check_directory",
    "claim_directory",
    "copy",
    "evict",
    "held",
    "is_dead",
    "is_open",
    "is_unused",
    "list_names",
    "lock_file",
    "mapped",
    "no_store",
    "open_directory",
    "opened",
    "scan",
    "status_of",
    "unlink",
    "write_all",
]

PART = ".part"
HELD = ".held"
"""A link to a file that a process has mapped: it keeps the file counted when its object was freed."""
SPARE = "spare"
"""A freed file, whose pages the next large object is written over."""
USAGE = "usage"
COPY_MODE = 0o400
"""Of the file of a copy: what lies on another host too, so that it may go when room is needed."""
_LOCK_PAUSE = 0.002
_LINK_TRIES = 100
_COPY_BYTES = 4 * 1024**2
_MAX_PARTS = 1000
"""Of one writev; POSIX systems allow 1024 (IOV_MAX)."""
STAYS = "files that nobody needs stay there"


def check_directory(path: Path) -> None:
    """Raise `StoreDirectoryError` unless a directory belongs to this user and is closed to others."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise StoreDirectoryError(str(path), "it isn't a directory that belongs to this user alone")


def open_directory(path: Path) -> int:
    """Return a descriptor of a directory, to lock it by. Raises `OSError` for anything else."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def is_open(path: Path | str, file: int) -> bool:
    """Whether a descriptor is that of what has this path now."""
    now = status_of(str(path))
    return now is not None and os.path.samestat(now, os.fstat(file))


def is_unused(file: int) -> bool:
    """Whether no other descriptor and no mapping of a file is left in any process; False: nobody can say.

    For files in shared memory that are open for writing. Links don't tell: a forked child keeps the mapping
    of a parent that has removed its link. The kernel gives a lease for writing only where nothing else has
    the file open (fcntl(2)), and a mapping keeps it open; with overlayfs it keeps another file open instead.
    """
    try:
        # Who opens the file at this moment makes the kernel send a signal; the default one ends the process.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


def claim_directory(path: Path) -> int:
    """Keep a directory from being swept, and make it for this user alone where there is none.

    Returns a descriptor with a shared lock on it; who closes the last copy of it gives the lock up. Waits
    for nobody but a process that is sweeping this directory.

    Raises `StoreDirectoryError` if it, or what it is to be made in, isn't of this user alone, or `OSError`.
    """
    while True:
        try:
            check_directory(path)
            lock = open_directory(path)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            check_directory(path.parent)
            path.mkdir(mode=0o700, exist_ok=True)
            continue
        fcntl.flock(lock, fcntl.LOCK_SH)
        if is_open(path, lock):
            return lock
        os.close(lock)  # it was swept before it was locked


def no_store(error: OSError, size: int, folder: str) -> StoreFullError | StoreDirectoryError:
    """Return what it means that an object of `size` bytes couldn't be written."""
    if error.errno in NO_ROOM:
        return StoreFullError(size, (folder,))
    return StoreDirectoryError(folder, f"it can't be written to: {error}")


def is_dead(pid: int) -> bool:
    """Whether a process has ended, even if nobody has asked for its exit code yet."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", "rb") as status:  # noqa: PTH123 - no Path on the fast way
            # proc_pid_stat(5): the state follows the name, which is in parentheses and may hold some.
            return status.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
    except ProcessLookupError:
        return True
    except FileNotFoundError:
        return os.path.exists("/proc/self")  # noqa: PTH110 - it has just ended, unless there is no /proc
    except PermissionError:
        return False


def list_names(folder: str) -> list[str]:
    """Return the names of all files in a directory; none if it has vanished or can't be read."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []


def lock_file(file: int, seconds: float) -> None:
    """Lock an open file for this process alone. Raises `TimeoutError` after so many seconds; inf: never."""
    if seconds == math.inf:
        fcntl.lockf(file, fcntl.LOCK_EX)
        return
    give_up_at = time.monotonic() + seconds
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            if time.monotonic() > give_up_at:
                raise TimeoutError("another process holds the lock") from error
            time.sleep(_LOCK_PAUSE)
        else:
            return


def evict(folder: str, gone: list[str], needed: int = 0) -> int:
    """Remove copies, the oldest first, until they have freed `needed` bytes (0: all); return what they had.

    Adds their names to `gone`.

    Removes none where all of them are too little, nor what a process has mapped: that would free nothing.
    """
    copies = []
    for name in list_names(folder):
        status = status_of(f"{folder}/{name}")
        if status is None or status.st_mode & 0o777 != COPY_MODE:
            continue
        if status.st_nlink == 1 and not name.endswith((PART, HELD, SPARE)):
            copies.append((status.st_mtime_ns, status.st_size, name))
    freed = 0
    if sum(size for _, size, _ in copies) < needed:
        return freed
    for _, size, name in sorted(copies):
        if unlink(f"{folder}/{name}"):
            freed += size
            gone.append(name)
        if freed >= needed > 0:
            break
    return freed


def scan(folder: str, dead: Callable[[int], bool] | None = None) -> int:
    """Return the bytes of all files in a directory; parts and links of processes that are `dead` are removed.

    None are in a directory that has vanished or can't be read.
    """
    total = 0
    seen: set[int] = set()
    dead = None if dead is None else functools.cache(dead)
    try:
        found = os.scandir(folder)
    except OSError:
        return total
    with found as entries:
        for entry in entries:
            if dead is not None and entry.name.endswith((PART, HELD)):
                owner = entry.name.rpartition(".")[0].rpartition(".")[2]
                if dead(int(owner.partition("-")[0])):
                    unlink(entry.path)
                    continue
            if entry.name != USAGE:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_nlink == 1 or status.st_ino not in seen:
                        seen.add(status.st_ino)
                        total += status.st_size
    return total


def status_of(path: str) -> os.stat_result | None:
    """Return the status of a file, if it is there and its disk says so."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def unlink(path: str) -> bool:
    """Remove a file; False if it isn't there, or its disk doesn't let it go, which is warned about."""
    try:
        os.unlink(path)  # noqa: PTH108 - no Path on the fast way
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if status_of(path) is not None:  # a disk that is read-only says so of what isn't there, too
            warn_once(os.path.dirname(path), error, STAYS)  # noqa: PTH120 - as above
        return False
    allow_warning(path)
    return True


def write_all(file: int, parts: Sequence[BytesLike]) -> None:
    """Write parts one after the other, without joining them: faster than copying into a mapping."""
    rest = [memoryview(part).cast("B") for part in parts if len(part)]
    while rest:
        written = os.writev(file, rest[:_MAX_PARTS])
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if rest:
            rest[0] = rest[0][written:]


def copy(source: int, target: str) -> None:
    """Copy an open file into a new one."""
    with (
        open(source, "rb", closefd=False) as reader,
        open(target, "xb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as writer,
    ):
        shutil.copyfileobj(reader, writer, _COPY_BYTES)


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """Give a descriptor of a file that must be this user's own: no link, no pipe, nothing of others."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise
        if error.errno == errno.EWOULDBLOCK:  # `is_unused` has it: it was freed
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        raise StoreDirectoryError(path, f"it can't be opened: {error}") from error
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise StoreDirectoryError(path, "it isn't a file of this user")
        yield file
    finally:
        os.close(file)


_counter = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


@contextlib.contextmanager
def held(path: str) -> Iterator[tuple[int, str]]:
    """Give a descriptor of a file as `opened` does, and a further link to it, which the caller removes.

    The link is empty where there can't be one. Raises `FileNotFoundError`, and what `opened` raises.
    """
    while True:
        link = _link(path)
        try:
            with opened(link or path) as file:
                # A file may have lost its name before it was open, and be written over. If it has it now,
                # nobody does so until all of it is closed and unmapped.
                if is_open(path, file):
                    yield file, link
                    return
        except BaseException:
            if link:
                unlink(link)
            raise
        if link:
            unlink(link)


def _link(path: str) -> str:
    """Return a further link to a file; empty where there can't be one. Raises `FileNotFoundError`."""
    link = f"{path}.{os.getpid()}-{next(_counter)}{HELD}"
    for _ in range(_LINK_TRIES):
        try:
            os.link(path, link, follow_symlinks=False)
        except FileNotFoundError:
            # Linux says so too of a file that is replaced by another one between its two steps.
            if status_of(path) is None:
                raise
        except OSError:  # no more links or names, or not on this file system: then it isn't counted
            break
        else:
            return link
    return ""


def mapped(path: str, file: int, size: int, link: str = "") -> memoryview:
    """Map an open file of `size` bytes read-only; `link` is removed when nothing refers to it any more.

    Not by `mmap.mmap`, which keeps a descriptor for each mapping (until `trackfd` of Python 3.13).
    """
    if not size:
        raise StoreDirectoryError(path, "it is empty")
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    if address == ctypes.c_void_p(-1).value:
        raise StoreDirectoryError(path, f"it can't be mapped: {os.strerror(ctypes.get_errno())}")
    array = (ctypes.c_ubyte * size).from_address(address)
    # Views hold the array, so the mapping goes with the last of them. Not at exit, where some may be in use.
    weakref.finalize(array, _unmap, address, size, link, os.getpid()).atexit = False
    return memoryview(array).cast("B").toreadonly()


def _unmap(address: int, size: int, link: str, owner: int) -> None:
    _libc.munmap(address, size)
    if link and os.getpid() == owner:  # a forked child has the mapping too, but the link is its parent's
        unlink(link)
