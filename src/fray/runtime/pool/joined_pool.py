"""A pool that others have made, seen from a process that joins it as a client, as each rank of a job does.

The process brings a host of its own, which runs no tasks: its store, where what it puts lies, and a nanny
that serves it to other hosts. All of it goes with `stop`, or with this process however it ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fray.errors import PeerUnreachableError
from fray.errors.transport import RefusalReason
from fray.runtime.container import thread_limits
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.client.link import HeadLink
from fray.runtime.pool.host_config import HostConfig
from fray.runtime.pool.local_pool import (
    INLINE_SHARE,
    MAX_NANNIES,
    METRICS_SOCKET,
    SPILL_DIR,
    STARTS_SECONDS,
    await_end,
    end_with_process,
    offered_resources,
    start_nanny,
    start_process,
)
from fray.runtime.pool.machine.records import Run
from fray.runtime.pool.machine.snapshot import PoolStats
from fray.runtime.pool.messages.commands import CopyObject
from fray.runtime.pool.messages.events import ObjectCopied, ObjectRelayed
from fray.runtime.pool.messages.greetings import ClientHello
from fray.runtime.pool.messages.specs import HostId, ObjectId, Shape
from fray.runtime.pool.objects.directories import OwnedStore, create_store
from fray.runtime.pool.objects.peers import PeerFetch
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.keys import SECRET_FILE, TransportKey
from fray.runtime.pool.transport.settings import DEFAULT_SETTINGS, TransportSettings
from fray.vocabulary import ENV_JOB_NAME

__all__ = ["RUN_HEAD", "ClientHost", "JoinedPool", "open_store", "start_own_pool"]

RUN_HEAD = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from fray.runtime.pool.head.__main__ import main
sys.exit(main())
"""

PATIENCE = 60.0
"""Processes of a job start in any order: the head may be the last."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""Seconds between two tries to connect, doubling."""
SILENT_SECONDS = 6
"""For how many seconds in a row nothing may come from the head, which says each second that it lives.

Kernels tell of a head that has ended, and of a host that is gone. They answer for one that stands still."""


@dataclass(frozen=True)
class ClientHost:
    """The host that a client brings."""

    owned: OwnedStore
    objects: Address | None
    """Where what the client puts is served to other hosts; None: nowhere."""
    resources: Shape = ()
    workers: int = 0
    """Processes for tasks without a profile."""
    route: Callable[[Address], Address] | None = None
    """How the addresses of other hosts are reached from here, where that is another network."""


class JoinedPool:
    """Makes this process a client of a pool.

    Parameters: the address of the `head`; the pool's `key`; what this process's host offers, whose store is
    closed with this; `near`, where the head is looked for first; `patience`: how many seconds it may take
    until it listens; `own_head`, which ends with this; `settings` of the connection to the head.

    Raises `TransportError` if it can't connect, `PoolVersionError` if it is refused for its versions.
    """

    def __init__(  # noqa: PLR0913 - all but the first three have a default, or are the process's
        self,
        head: Address,
        key: TransportKey,
        offer: ClientHost,
        *,
        near: Address | None = None,
        patience: float = PATIENCE,
        own_head: subprocess.Popen[bytes] | None = None,
        settings: TransportSettings = DEFAULT_SETTINGS,
        environ: Mapping[str, str],
    ) -> None:
        owned, resources, workers = offer.owned, offer.resources, offer.workers
        self._owned = owned
        self._own_head = own_head
        store = owned.store
        name = socket.gethostname()
        try:
            hello = ClientHello(name, resources, workers, store.limit)
            heads = (head,) if near is None else (near, head)
            found, connection = _connect(heads, key, patience, settings)
            self._link = HeadLink(connection, hello, SubmitLimit())
        except BaseException:
            self._end_head()
            owned.close()
            raise
        welcome = self._link.welcome
        self.token = welcome.token
        self.client = self._link.client
        self.metrics = Address() if own_head is None else _metrics(owned)
        """Where the pool shows what it has and did; empty: only where its head is."""
        self.host = welcome.host
        """The number of this process's host."""
        self._route = offer.route
        self._fetch = PeerFetch(self.host, self._address_of, key, store, self._note_copied)
        self._link.copy = self._copy
        self.objects = ObjectReader(self.host, store, self._fetch)
        self._config = HostConfig(
            token=self.token,
            head=str(found),
            secret=key.secret,
            host=self.host,
            name=name,
            resources=resources,
            workers=workers,
            store=str(store.directory),
            spill=str(store.spill_directory),
            store_limit=store.limit,
            objects="" if offer.objects is None else str(offer.objects),
            attach=welcome.attach,
            certificate=str(key.certificate or ""),
            private_key=str(key.private_key or ""),
            sys_path=tuple(part or str(Path.cwd()) for part in sys.path),
            env=thread_limits(dict(resources).get("CPU", 1.0) / max(workers, 1), environ),
        )
        self._stopped = False
        self._left = threading.Event()
        """Is set by `stop`."""
        self._lock = threading.Lock()
        if offer.route is not None:
            self.client.send_values()
        self._head_watch = threading.Thread(target=self._watch_head, name="fray-head-watch", daemon=True)
        self._head_watch.start()
        self._nanny = start_nanny(self._config)
        self._watch = threading.Thread(target=self._keep_nanny, name="fray-nanny-watch", daemon=True)
        self._watch.start()
        end_with_process(self)

    def stats(self) -> PoolStats:
        """Return what the pool has and did."""
        return self._ask("stats")  # type: ignore[no-any-return]

    def runs(self) -> tuple[Run, ...]:
        """Return the last runs that have ended."""
        return self._ask("runs")  # type: ignore[no-any-return]

    def count_running(self) -> int:
        """Return how many tasks and calls workers have, for those who look often; cheaper than `stats`."""
        return self._ask("running")  # type: ignore[no-any-return]

    def refusals(self) -> dict[RefusalReason, int]:
        """Return how many connections were cut off, by reason."""
        return self._ask("refusals")  # type: ignore[no-any-return]

    def _ask(self, what: str) -> Any:
        return self._link.ask(what)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called, or this process is a fork of the one that joined."""
        return self._stopped

    def stop(self) -> None:
        """Leave the pool, with all that this process has put. May be called twice."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._left.set()
        self._link.close()
        # The head has cut it off by now; if there is no head, this ends it.
        self._nanny.terminate()
        await_end(self._nanny)
        self._watch.join()
        self._head_watch.join()
        self._end_head()
        self._owned.close()

    def _end_head(self) -> None:
        if self._own_head is not None:
            self._own_head.terminate()
            await_end(self._own_head)

    def forget(self) -> None:
        """Leave everything to the parent: this process is a fork of it, and has none of its threads."""
        self._stopped = True
        self._link.forget()

    def _keep_nanny(self) -> None:
        """Start another nanny when one has ended: what this process has put is still here."""
        starts: list[float] = []
        while True:
            self._nanny.wait()
            now = time.monotonic()
            starts = [*(start for start in starts if now - start < STARTS_SECONDS), now]
            with self._lock:
                if self._stopped or self.client.end is not None:
                    return
                if len(starts) <= MAX_NANNIES:
                    self._nanny = start_nanny(self._config)
                    continue
            self._link.fail(f"the nanny of this process ended {MAX_NANNIES + 1} times within a minute")
            return

    def _watch_head(self) -> None:
        """Leave the pool once its head is silent."""
        hears = partial(self._link.hears, wait=self._left.wait)
        if await_silence(hears, lambda: self._stopped or self.client.end is not None):
            self._link.fail(f"its head was silent for {SILENT_SECONDS} s")

    def _address_of(self, host: HostId) -> str | None:
        """Return where the objects of a host are read from here; None or empty: they can't be."""
        address = self._link.address_of(host)
        return address if not address or self._route is None else str(self._route(Address.parse(address)))

    def _note_copied(self, object_id: ObjectId, size: int) -> None:
        self._link.post(ObjectCopied(object_id, self.host, size))

    def _copy(self, command: CopyObject) -> ObjectRelayed:
        return ObjectRelayed(command.id, self.host, self._fetch.copy(command.id, command.host))


def await_silence(hears: Callable[[float], bool], is_over: Callable[[], bool]) -> bool:
    """Return once a head is silent, or False once it `is_over`.

    `hears` waits for so many seconds, and says whether anything has come in them. A second that took longer
    isn't counted: this process stood still itself.
    """
    silent = 0
    while silent < SILENT_SECONDS:
        began = time.monotonic()
        heard = hears(1.0)
        if is_over():
            return False
        silent = 0 if heard or time.monotonic() - began > 2.0 else silent + 1
    return True


def start_own_pool(
    workers: int, *, resources: Mapping[str, float], store_limit: int | None, environ: Mapping[str, str]
) -> JoinedPool:
    """Start a pool on this machine whose head is a process of its own; parameters as of `LocalPool`.

    Raises `StoreDirectoryError` where no directory for objects can be made, `PeerUnreachableError` if the
    head doesn't start.
    """
    owned = open_store(store_limit, environ)
    directory = owned.store.directory
    key = TransportKey.generate()
    (directory / SECRET_FILE).write_bytes(key.secret)  # others may not enter the directory
    address = Address(path=str(directory / "head"))
    head = start_process(
        RUN_HEAD,
        *("--listen", str(address), "--key", str(directory), "--owner", str(os.getpid())),
        *("--job", environ.get(ENV_JOB_NAME, "")),
        *("--inline-limit", str(owned.store.limit // INLINE_SHARE), "--metrics", str(_metrics(owned))),
    )
    return JoinedPool(
        address,
        key,
        ClientHost(owned, None, offered_resources(workers, resources), workers),
        own_head=head,
        environ=environ,
    )


def open_store(limit: int | None, environ: Mapping[str, str]) -> OwnedStore:
    """Make the store of a process that joins a pool; `limit` in bytes of memory (None: 30 %)."""
    spill = environ.get(SPILL_DIR)
    return create_store(limit=limit, spill=Path(spill) if spill else None)


def _metrics(owned: OwnedStore) -> Address:
    return Address(path=str(owned.store.directory / METRICS_SOCKET))


def _connect(
    heads: Sequence[Address], key: TransportKey, patience: float, settings: TransportSettings
) -> tuple[Address, BlockingConnection]:
    """Return the first of the addresses at which the head is reached, and the connection."""
    give_up_at = time.monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        for head in heads:
            try:
                return head, BlockingConnection.connect(head, key, settings=settings)
            except PeerUnreachableError:
                if head == heads[-1] and time.monotonic() + pause > give_up_at:
                    raise
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)
