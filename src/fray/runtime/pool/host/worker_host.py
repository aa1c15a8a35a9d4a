"""A host joins a pool from elsewhere: `python -m fray.runtime.pool.host.worker_host --head ... --key ...`.

It is what a worker pod runs. It makes the directories of the host's objects, forks a nanny, and does both
again when the head is gone: the host comes back as a new one, with nothing of what it had. All it must be
told is where the head is and where the key lies; the rest of the pool's facts are the head's answer.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fray.errors import FrayError
from fray.runtime.container import available_cpus, available_memory, thread_limits
from fray.runtime.pool.host.nanny import run_nanny
from fray.runtime.pool.host.processes import describe_exit, die_with_parent, reset_signals
from fray.runtime.pool.host_config import HostConfig
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.objects.directories import create_store
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.worker.standard_output import flush_output
from fray.vocabulary import EXIT_WORKER_REFUSED

__all__ = ["HostOffer", "main"]

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
"""Seconds between two tries to join, doubling."""
_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGCHLD))


@dataclass(frozen=True)
class HostOffer:
    """What a host brings into a pool, and how it gets there."""

    head: Address
    key: TransportKey
    objects: Address
    """Where this host's objects are served: an address that the other hosts reach; port 0: any."""
    name: str
    resources: Shape
    workers: int
    store_limit: int | None = None
    """Bytes of memory for objects; None: a share of the machine's."""

    def config(self, store: HostStore) -> HostConfig:
        """Return what a nanny is told that works with `store`."""
        return HostConfig(
            token="",
            head=str(self.head),
            secret=self.key.secret,
            host=0,
            name=self.name,
            resources=self.resources,
            workers=self.workers,
            store=str(store.directory),
            spill=str(store.spill_directory),
            store_limit=store.limit,
            objects=str(self.objects),
            certificate=str(self.key.certificate or ""),
            private_key=str(self.key.private_key or ""),
            env=thread_limits(
                dict(self.resources).get("CPU", 1.0) / max(self.workers, 1),
                os.environ,  # noqa: TID251 - what its workers inherit
            ),
        )


class _WorkerHost:
    """The only thread of its process; all signals that matter are blocked and waited for."""

    def __init__(self, offer: HostOffer, patience: float) -> None:
        self._offer = offer
        self._patience = patience
        self._ending = False
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

    def run(self) -> int:
        """Join the pool again and again; return the exit code.

        0 after SIGTERM, 1 when the pool can't be joined, 88 when it has other versions.
        """
        pause, failing_since = FIRST_PAUSE, 0.0
        while True:
            status = self._join_once()
            if self._ending:
                return 0
            if os.waitstatus_to_exitcode(status) == EXIT_WORKER_REFUSED:
                return EXIT_WORKER_REFUSED  # the next try would end as this one
            if status == 0:
                pause, failing_since = FIRST_PAUSE, 0.0
            elif not failing_since:
                failing_since = time.monotonic()
            elif time.monotonic() - failing_since > self._patience:
                sys.stderr.write(f"fray: no nanny could join the pool at {self._offer.head}; giving up\n")
                return 1
            # Also when it was there: a head that ends takes some time until its address is free.
            self._await_signals(pause)
            if self._ending:
                return 0
            pause = min(LONGEST_PAUSE, pause * 2)

    def _join_once(self) -> int:
        """Be a host of the pool until its head is gone; return the nanny's status, as of wait(2)."""
        owned = create_store(limit=self._offer.store_limit)
        try:
            flush_output()
            parent = os.getpid()
            nanny = os.fork()
            if not nanny:
                _be_nanny(self._offer.config(owned.store), parent)
            status = self._await_nanny(nanny)
            if os.waitstatus_to_exitcode(status) not in (0, 1, EXIT_WORKER_REFUSED):
                sys.stderr.write(f"fray: the nanny was {describe_exit(status)}\n")
            return status
        finally:
            owned.close()

    def _await_nanny(self, nanny: int) -> int:
        asked = False
        while True:
            if self._ending and not asked:
                asked = True
                os.kill(nanny, signal.SIGTERM)
            # Orphans come here too where this is the first process of a container.
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == nanny:
                return status
            if not ended:
                self._await_signals(None)

    def _await_signals(self, seconds: float | None) -> None:
        """Wait for one signal, at most so long; None: for ever."""
        if seconds is None:
            number = signal.sigwait(_SIGNALS)
        else:
            info = signal.sigtimedwait(_SIGNALS, seconds)
            number = signal.Signals(info.si_signo) if info is not None else signal.SIGCHLD
        self._ending = self._ending or number != signal.SIGCHLD


def _be_nanny(config: HostConfig, parent: int) -> None:
    """Never returns: this is the forked process."""
    code = 1
    try:
        reset_signals()
        die_with_parent(parent)
        code = run_nanny(config)
    finally:
        flush_output()
        os._exit(code)


def _parse(arguments: Sequence[str]) -> tuple[HostOffer, float]:
    parser = argparse.ArgumentParser(prog="fray.runtime.pool.host.worker_host", description=__doc__)
    parser.add_argument("--head", required=True, help="address of the pool's head: tcp:host:port")
    parser.add_argument("--key", required=True, type=Path, help="directory of the pool's key")
    parser.add_argument("--objects", required=True, help="where others reach this host: tcp:host:0")
    parser.add_argument("--workers", type=int, default=available_cpus(), help="worker processes")
    parser.add_argument("--resource", action="append", default=[], metavar="NAME=AMOUNT")
    parser.add_argument("--store-limit", type=int, help="bytes of memory for objects")
    parser.add_argument("--name", default=socket.gethostname(), help="the host's name in messages")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds of failing before it ends")
    parsed = parser.parse_args(arguments)
    offered = {"CPU": float(parsed.workers), "memory": float(available_memory())}
    for text in parsed.resource:
        name, _, amount = text.partition("=")
        offered[name] = float(amount)
    offer = HostOffer(
        head=Address.parse(parsed.head),
        key=TransportKey.load(parsed.key),
        objects=Address.parse(parsed.objects),
        name=parsed.name,
        resources=tuple(sorted(offered.items())),
        workers=parsed.workers,
        store_limit=parsed.store_limit,
    )
    return offer, parsed.patience


def main(arguments: Sequence[str] | None = None) -> int:
    """Be a worker host until SIGTERM; return the exit code."""
    try:
        offer, patience = _parse(sys.argv[1:] if arguments is None else arguments)
        return _WorkerHost(offer, patience).run()
    except FrayError as error:
        sys.stderr.write(f"fray: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
