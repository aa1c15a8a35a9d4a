"""The directories of a host's store: made, locked while their owner lives, and swept when it is dead.

What lies in them is the store's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from fray.errors import StoreDirectoryError
from fray.runtime.container import available_memory
from fray.runtime.pool.objects.files import check_directory
from fray.runtime.pool.objects.store import HostStore

__all__ = ["OwnedStore", "create_store", "list_directories", "sweep_stale"]

SHARED_MEMORY = Path("/dev/shm")
MINIMUM = 256 * 1024**2
"""Bytes that must be free in shared memory for it to be used; containers have 64 MiB by default."""
MEMORY_SHARE = 0.3
"""Of the machine's memory, for objects by default: the rest is for those who work on them."""


class OwnedStore:
    """The store of a pool on this host, of the process that made it: it ends with `close`, or is swept later.

    Processes that are forked from the owner keep it from being swept as long as they live.
    """

    def __init__(self, store: HostStore, locks: Sequence[int]) -> None:
        self.store = store
        self._locks = tuple(locks)

    def close(self) -> None:
        """Remove both directories with all objects.

        Raises `StoreDirectoryError` if something can't be removed.
        """
        self.store.close()
        for directory, lock in zip(
            (self.store.directory, self.store.spill_directory), self._locks, strict=True
        ):
            try:
                shutil.rmtree(directory)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise StoreDirectoryError(str(directory), f"can't be removed: {error}") from error
            finally:
                os.close(lock)


def create_store(
    *, limit: int | None = None, spill: Path | None = None, shared_memory: Path = SHARED_MEMORY
) -> OwnedStore:
    """Make the directories of a pool on this host, and remove those of pools whose owners are dead.

    `limit`, in bytes, is 30 % of the machine's memory by default, and no more than what is free; `spill` is
    the directory on disk, by default the one for temporary files. Where shared memory is missing or too
    small, files for temporary use take its place.

    Raises `StoreDirectoryError` if no directory can be used.
    """
    temporary = Path(tempfile.gettempdir())
    wanted = int(available_memory() * MEMORY_SHARE) if limit is None else limit
    place = shared_memory if _free(shared_memory) >= min(MINIMUM, wanted) else temporary
    try:
        directory, lock = _claim(place)
    except StoreDirectoryError:
        if place == temporary:
            raise
        place = temporary
        directory, lock = _claim(place)
    try:
        spill_directory, spill_lock = _claim(spill or temporary)
    except BaseException:
        shutil.rmtree(directory)
        os.close(lock)
        raise
    store = HostStore(directory, spill_directory, min(wanted, _free(place)))
    return OwnedStore(store, (lock, spill_lock))


def sweep_stale(place: Path) -> list[Path]:
    """Remove the directories of this user's pools in `place` whose owners are dead, and return them."""
    home = place / f"fray-{os.geteuid()}"
    try:
        check_directory(home)
        with _directory_lock(home):
            return _sweep(home)
    except FileNotFoundError:
        return []


def list_directories(places: Sequence[Path] = ()) -> list[Path]:
    """Return the directories of this user's pools, those of dead owners included; some may go meanwhile.

    `places` are where to look; shared memory and the place of temporary files where there are none.
    """
    found = []
    for place in dict.fromkeys(places or (SHARED_MEMORY, Path(tempfile.gettempdir()))):
        home = place / f"fray-{os.geteuid()}"
        with contextlib.suppress(OSError, StoreDirectoryError):
            check_directory(home)
            found += sorted(home.iterdir())
    return found


def _claim(place: Path) -> tuple[Path, int]:
    """Make a directory in `place`, locked before anybody could take it for stale."""
    home = place / f"fray-{os.geteuid()}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        check_directory(home)
        with _directory_lock(home):
            _sweep(home)
            directory = home / secrets.token_hex(8)
            directory.mkdir(mode=0o700)
            lock = _open_directory(directory)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise StoreDirectoryError(str(home), str(error)) from error
    return directory, lock


def _sweep(home: Path) -> list[Path]:
    removed = []
    for directory in sorted(home.iterdir()):
        try:
            lock = _open_directory(directory)
        except OSError:  # just removed, or no directory: none of ours
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory)
            removed.append(directory)
        except OSError:  # its owner lives, or is removing it
            continue
        finally:
            os.close(lock)
    return removed


@contextlib.contextmanager
def _directory_lock(directory: Path) -> Iterator[None]:
    lock = _open_directory(directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _open_directory(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _free(place: Path) -> int:
    try:
        status = os.statvfs(place)
    except FileNotFoundError:
        return -1
    return status.f_bavail * status.f_frsize
