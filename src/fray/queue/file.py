"""The lease queue for processes that share a file system: every state is a file, no process is needed.

What the files mean stands in claims.py, how they are made in store.py; here is the order of the calls.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from fray.errors.queue import LeaseLostError, QueueStorageError
from fray.queue.base import DEFAULT_LEASE_SECONDS, Lease, checked_seconds
from fray.queue.claims import (
    Claim,
    Kind,
    State,
    claim_name,
    claims_of,
    highest_claims,
    is_item,
    litter,
    state_of,
)
from fray.queue.codec import decode_item, encode_item
from fray.queue.store import FileStore, open_store

__all__ = ["FileQueue"]

T = TypeVar("T")


@dataclass(frozen=True)
class _Seen:
    """An item as a look at the files found it: the number of its highest claim (0: none) and its state."""

    name: str
    number: int
    state: State


class FileQueue(Generic[T]):
    """A `Queue` in a directory or at an fsspec URL (`gs://bucket/queue`), for any number of processes.

    Args:
        path: its place. Who can write there can make its readers run code: items are pickled.
        fs_args: arguments of fsspec's file system.
        clock: seconds since 1970; the clocks of all machines that use the queue must agree to a fraction
            of the lease timeouts.

    Order is by the pushers' clocks. Each call lists the queue, so its time grows with the items; each
    `renew` adds a small file until the item is done. Pickles to its place. Raises `QueueStorageError` when
    first used on a file system that can't hold it, and `QueueAccessError` from every method when its place
    can't be used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fs_args: Mapping[str, Any] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        place = os.fspath(path)
        # Made absolute, since a pickled queue may wake up in another working directory.
        self.path = place if "://" in place else str(Path(place).absolute())
        self._fs_args = dict(fs_args or {})
        self._clock = clock
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._opened: FileStore | None = None
        self._last_push = 0
        # Claims never change, so what was read of one stays right.
        self._claims: dict[str, Claim] = {}

    def push(self, item: T) -> None:
        """Add an item at the end."""
        store = self._store()
        data = encode_item(item)
        with self._lock:
            self._last_push = max(self._last_push + 1, int(self._clock() * 1e9))
            name = f"{self._last_push:020d}-{uuid.uuid4().hex}"
        # The name is new: if it exists, a repeated request met what the lost one had made.
        store.create(f"items/{name}", data)

    def peek(self) -> T | None:
        """Return the item that pop would hand out and leave it there; None when nothing waits."""
        store = self._store()
        for seen in self._look(store):
            data = store.read(f"items/{seen.name}") if seen.state is State.WAITING else None
            if data is not None:
                found: T = decode_item(data)
                return found
        return None

    def pop(self, lease_timeout: float = DEFAULT_LEASE_SECONDS) -> Lease[T] | None:
        """Hand out the first item for `lease_timeout` seconds; None when nothing waits.

        Raises:
            QueueArgumentError: the timeout isn't a positive, finite number.
            QueueItemError: the item can't be unpickled here; it stays leased.
        """
        seconds = checked_seconds(lease_timeout)
        store = self._store()
        for seen in self._look(store):
            if seen.state is State.DONE:
                self._remove(store, seen.name)
            if seen.state is not State.WAITING:
                continue
            claim = Claim("held", uuid.uuid4().hex, self._clock() + seconds)
            if not self._advance(store, seen.name, seen.number, claim):
                continue
            data = store.read(f"items/{seen.name}")
            if data is None:
                # Done and removed since it was listed.
                store.delete(f"claims/{claim_name(seen.name, seen.number + 1)}")
                continue
            lease_id = f"{seen.name}/{claim.token}"
            return Lease(decode_item(data, lease_id=lease_id), lease_id, time.time())
        return None

    def renew(self, lease: Lease[T], lease_timeout: float = DEFAULT_LEASE_SECONDS) -> None:
        """Let the lease end `lease_timeout` seconds from now instead."""
        seconds = checked_seconds(lease_timeout)
        store = self._store()
        name, number = self._supersede(store, lease, "held", self._clock() + seconds)
        if name not in store.list("items"):
            # Another holder was done with it, and its claims are gone too.
            store.delete(f"claims/{claim_name(name, number)}")
            raise LeaseLostError(lease.lease_id)

    def done(self, lease: Lease[T]) -> None:
        """Remove the item: it never comes back."""
        store = self._store()
        name, _ = self._supersede(store, lease, "done")
        self._remove(store, name)

    def release(self, lease: Lease[T]) -> None:
        """Give the item back, to be handed out at once."""
        self._supersede(self._store(), lease, "released")

    def size(self) -> int:
        """How many items wait to be handed out, those of expired leases included."""
        return sum(1 for seen in self._look(self._store()) if seen.state is State.WAITING)

    def pending(self) -> int:
        """How many items are handed out, under leases that haven't expired."""
        return sum(1 for seen in self._look(self._store()) if seen.state is State.LEASED)

    def _store(self) -> FileStore:
        # A forked child must not share its parent's connections and locks.
        if self._pid != os.getpid():
            self._start_afresh()
        with self._lock:
            if self._opened is None:
                self._opened = open_store(self.path, self._fs_args)
            return self._opened

    def _look(self, store: FileStore) -> Iterator[_Seen]:
        """The items in order; removes the claims that say nothing any more."""
        # Claims before items: claims.py says why.
        claims = store.list("claims")
        items = sorted(name for name in store.list("items") if is_item(name))
        for name in litter(claims, items):
            store.delete(f"claims/{name}")
        with self._lock:
            self._claims = {name: self._claims[name] for name in claims if name in self._claims}
        highest = highest_claims(claims)
        for name in items:
            number = highest.get(name, 0)
            if number == 0:
                yield _Seen(name, number, State.WAITING)
                continue
            claim = self._read_claim(store, name, number)
            # One that is gone has been followed by another: somebody is at work on this item.
            if claim is not None:
                yield _Seen(name, number, state_of(claim, self._clock()))

    def _read_claim(self, store: FileStore, name: str, number: int) -> Claim | None:
        key = claim_name(name, number)
        with self._lock:
            known = self._claims.get(key)
        if known is not None:
            return known
        data = store.read(f"claims/{key}")
        if data is None:
            return None
        try:
            claim = Claim.decode(data)
        except (ValueError, TypeError) as error:
            raise QueueStorageError(self.path, f"claims/{key} wasn't written by a FileQueue") from error
        with self._lock:
            self._claims[key] = claim
        return claim

    def _supersede(
        self, store: FileStore, lease: Lease[T], kind: Kind, until: float = 0.0
    ) -> tuple[str, int]:
        """Follow a lease's claim by another; return its item and number. Raises `LeaseLostError`."""
        name, _, token = lease.lease_id.partition("/")
        number = highest_claims(store.list("claims")).get(name, 0)
        held = self._read_claim(store, name, number) if number else None
        if held is None or held.kind != "held" or held.token != token:
            raise LeaseLostError(lease.lease_id)
        if not self._advance(store, name, number, Claim(kind, token, until)):
            raise LeaseLostError(lease.lease_id)
        return name, number + 1

    def _advance(self, store: FileStore, name: str, number: int, claim: Claim) -> bool:
        """Put the next claim after claim `number`; False when somebody else was first."""
        path = f"claims/{claim_name(name, number + 1)}"
        data = claim.encode()
        # A request that was repeated after its answer was lost finds what it made itself.
        return store.create(path, data) or store.read(path) == data

    def _remove(self, store: FileStore, name: str) -> None:
        """Delete a done item, then its claims; what a crash leaves of them is litter to the next look."""
        store.delete(f"items/{name}")
        for claim in claims_of(name, store.list("claims")):
            store.delete(f"claims/{claim}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, self._fs_args, self._clock)


def _reopen(path: str, fs_args: dict[str, Any], clock: Callable[[], float]) -> FileQueue[Any]:
    return FileQueue(path, fs_args, clock=clock)
