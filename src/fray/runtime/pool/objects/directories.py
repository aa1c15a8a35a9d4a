"""The directories of a host's store: made, and swept once nobody who uses them lives.

What lies in them is the store's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fray.errors import StoreDirectoryError
from fray.runtime.container import available_memory
from fray.runtime.pool.objects.disk_warnings import forget_warnings, warn_once
from fray.runtime.pool.objects.files import STAYS, check_directory, claim_directory, is_open, open_directory
from fray.runtime.pool.objects.store import HostStore

__all__ = ["OwnedStore", "create_store", "list_directories"]

SHARED_MEMORY = Path("/dev/shm")
MINIMUM = 256 * 1024**2
"""Bytes that must be free in shared memory for it to be used; containers have 64 MiB by default."""
MEMORY_SHARE = 0.3
"""Of the machine's memory, for objects by default: the rest is for those who work on them."""


class OwnedStore:
    """The store of a pool on this host, of the process that made it: it ends with `close`, or is swept later.

    Processes that are forked from the owner keep it from being swept as long as they live.
    """

    def __init__(self, store: HostStore, lock: int) -> None:
        self.store = store
        self._lock = lock

    def close(self) -> None:
        """Remove both directories with all objects; what can't be removed is warned about and stays."""
        self.store.close()
        os.close(self._lock)
        # What was warned about is noted in the one in memory.
        for directory in (self.store.spill_directory, self.store.directory):
            try:
                shutil.rmtree(directory)
            except (FileNotFoundError, NotADirectoryError):  # somebody else has removed it, or what it lay in
                pass
            except OSError as error:
                warn_once(str(directory), error, STAYS)
        forget_warnings(str(self.store.spill_directory))


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
        store = HostStore(directory, _choose(spill or temporary), min(wanted, _free(place)))
    except BaseException:
        shutil.rmtree(directory)
        os.close(lock)
        raise
    return OwnedStore(store, lock)


def list_directories(places: Sequence[Path] = ()) -> list[Path]:
    """Return the directories of this user's pools, those of dead owners included; any may vanish.

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
    """Make a directory in `place`; return it, and the descriptor that keeps it from being swept."""
    directory = _choose(place)
    try:
        return directory, claim_directory(directory)
    except OSError as error:
        raise StoreDirectoryError(str(directory), str(error)) from error


def _choose(place: Path) -> Path:
    """Return where a new directory may be made in `place`, once those of dead owners are gone from there."""
    home = place / f"fray-{os.geteuid()}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        check_directory(home)
        _sweep(home)
    except OSError as error:
        raise StoreDirectoryError(str(home), str(error)) from error
    return home / secrets.token_hex(8)


def _sweep(home: Path) -> None:
    for directory in home.iterdir():
        try:
            lock = open_directory(directory)
        except OSError:  # just removed, or no directory: none of ours
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_open(directory, lock):
                shutil.rmtree(directory)
        except OSError:  # somebody who uses it lives, or is removing it
            continue
        finally:
            os.close(lock)


def _free(place: Path) -> int:
    try:
        status = os.statvfs(place)
    except FileNotFoundError:
        return -1
    return status.f_bavail * status.f_frsize
