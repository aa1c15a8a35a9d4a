"""The mappings of files that a process reads again and again, so that it doesn't map them for each reader.

A mapping begins with no page in it, and each page costs a fault at its first use; processes that do so at
the same time also wait for each other. Where many tasks read one object, that takes longer than they do.

What is kept holds the memory of its file even when that is gone. So of all that was read once only the last
is kept, no more than a limit in all, and not for long after it was read last. Which files there are is the
store's.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from fray.runtime.pool.messages.specs import ObjectId
from fray.runtime.pool.objects.files import held, mapped, status_of

__all__ = ["Mappings"]

KEPT_SECONDS = 0.5
"""A mapping is dropped when nobody has read it for that long, or for twice that at most."""
REMEMBERED = 1024
"""Objects of which it is known that they were read before."""

_File = tuple[int, int]
"""Device and inode: those of a file are no other's as long as it is mapped."""


@dataclass(slots=True)
class _Kept:
    file: _File
    path: str
    view: memoryview = field(repr=False)
    read: bool = True
    """Since the last sweep."""


class Mappings:
    """Files of one process, mapped read-only. Threads may share one.

    Parameters: `limit`, in bytes of all that is kept while nobody may be using it; `seconds` between sweeps.
    """

    def __init__(self, limit: int, *, seconds: float = KEPT_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._kept: dict[ObjectId, _Kept] = {}
        self._used = 0
        self._known: set[ObjectId] = set()
        self._newest: ObjectId | None = None
        # Reentrant, since finalizers that run within may read. Not needed for a look into one of the dicts.
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._closed = False

    def open(self, identity: ObjectId, path: str) -> memoryview:
        """Return the bytes of an object's file, mapped for as long as anything refers to them.

        Raises `FileNotFoundError`, or `StoreDirectoryError` if it isn't this user's or can't be mapped.
        """
        kept = self._kept.get(identity)
        if kept is not None:
            status = status_of(path)
            if status is not None and _file_of(status) == kept.file:
                kept.read = True
                if self._newest == identity:
                    self._newest = None
                return kept.view
        with held(path) as (file, link):
            status = os.fstat(file)
            view = mapped(path, file, status.st_size, link)
        if view.nbytes <= self._limit:
            self._keep(identity, _Kept(_file_of(status), path, view))
        return view

    def forget(self, identity: ObjectId) -> None:
        """Keep no mapping of an object any more: it was freed, or lies elsewhere now."""
        self._known.discard(identity)
        # Without the lock where there is nothing: a process may be forked while this runs in a thread.
        if identity in self._kept:
            with self._lock:
                dropped = self._drop(identity)
            dropped.clear()

    def forget_freed(self) -> None:
        """Keep no mapping of a file that has lost its name, so that it can be written over."""
        with self._lock:
            names = ((identity, kept, status_of(kept.path)) for identity, kept in self._kept.items())
            freed = [each for each, kept, now in names if now is None or _file_of(now) != kept.file]
            dropped = self._drop(*freed)
        dropped.clear()

    def sweep(self) -> None:
        """Drop what wasn't read since the last call; runs by itself while anything is kept."""
        with self._lock:
            dropped = self._drop(*(identity for identity, kept in self._kept.items() if not kept.read))
            for kept in self._kept.values():
                kept.read = False
        dropped.clear()

    def close(self) -> None:
        """Keep nothing any more, from now on."""
        with self._lock:
            self._closed = True
            dropped = self._drop(*self._kept)
            timer, self._timer = self._timer, None
        dropped.clear()
        if timer is not None:
            timer.cancel()
            timer.join()

    def _keep(self, identity: ObjectId, new: _Kept) -> None:
        with self._lock:
            if self._closed:
                return
            dropped = self._drop(identity)
            if self._newest is not None:
                dropped += self._drop(self._newest)
            self._newest = None if self._was_read(identity) else identity
            while self._kept and self._used + new.view.nbytes > self._limit:
                dropped += self._drop(next(iter(self._kept)))
            self._kept[identity] = new
            self._used += new.view.nbytes
            self._await_sweep()
        dropped.clear()

    def _was_read(self, identity: ObjectId) -> bool:
        """Whether an object was read before; from now on it was."""
        before = identity in self._known
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known.add(identity)
        return before

    def _drop(self, *identities: ObjectId) -> list[_Kept]:
        """Keep some no more. The caller clears what this returns without the lock: to unmap takes a while."""
        dropped = [self._kept.pop(identity) for identity in identities if identity in self._kept]
        self._used -= sum(kept.view.nbytes for kept in dropped)
        return dropped

    def _await_sweep(self) -> None:
        if self._kept and self._timer is None:
            self._timer = threading.Timer(self._seconds, self._on_timer)
            self._timer.name, self._timer.daemon = "fray-mappings", True
            self._timer.start()

    def _on_timer(self) -> None:
        self.sweep()
        with self._lock:
            self._timer = None
            self._await_sweep()


def _file_of(status: os.stat_result) -> _File:
    return status.st_dev, status.st_ino
