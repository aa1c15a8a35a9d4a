"""A host joins a pool from elsewhere: `python -m fray.runtime.pool.host.worker_host --head ... --key ...`.

A worker pod does the same with what `worker_pod` reads of its variables. It makes the directories of the
host's objects, forks a nanny, and does both again when the head is gone: the host comes back as a new one,
with nothing of what it had. All it must know is where the head is and where the key lies; the rest of the
pool's facts are the head's answer.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeAlias

from fray.errors import AttemptOverError, FrayError
from fray.runtime.container import available_cpus, available_memory, spell_resources, thread_limits
from fray.runtime.pool.host.nanny import run_nanny
from fray.runtime.pool.host.processes import describe_exit, die_with_parent, reset_signals, watch_signals
from fray.runtime.pool.host.readiness import ReadinessServer
from fray.runtime.pool.host_config import HostConfig
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.objects.directories import create_store
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.pod import HeadPlace
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.worker.standard_output import flush_output
from fray.vocabulary import EXIT_ATTEMPT_OVER, EXIT_FAILURE, EXIT_WORKER_ENDED, EXIT_WORKER_REFUSED

__all__ = ["DRAIN_SECONDS", "FindHead", "HostOffer", "WorkerHost", "main"]

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
"""Seconds between two tries to join, doubling."""
DRAIN_SECONDS = 12.0
"""How long it stays after SIGTERM: GKE gives pods on spot nodes 15 s, and its processes need some to end."""
FindHead: TypeAlias = Callable[[str], HeadPlace | None]


@dataclass(frozen=True)
class HostOffer:
    """What a host brings into a pool, and how it gets there."""

    key: TransportKey
    objects: Address
    """Where this host's objects are served: an address that the other hosts reach; port 0: any."""
    name: str
    resources: Shape
    workers: int
    store_limit: int | None = None
    """Bytes of memory for objects; None: a share of the machine's."""
    drain_seconds: float = DRAIN_SECONDS
    """How long it stays after SIGTERM, for what runs there and to save what only lies there."""

    def config(self, store: HostStore, *, head: Address, token: str = "") -> HostConfig:
        """Return what a nanny gets that works with `store`; `token` is that of the pool it was in."""
        return HostConfig(
            token=token,
            head=str(head),
            secret=self.key.secret,
            host=0,
            name=self.name,
            resources=self.resources,
            workers=self.workers,
            store=str(store.directory),
            spill=str(store.spill_directory),
            store_limit=store.limit,
            objects=str(self.objects),
            drain_seconds=self.drain_seconds,
            certificate=str(self.key.certificate or ""),
            private_key=str(self.key.private_key or ""),
            env=thread_limits(
                dict(self.resources).get("CPU", 1.0) / max(self.workers, 1),
                os.environ,  # noqa: TID251 - what its workers inherit
            ),
        )


@dataclass(frozen=True)
class _Joined:
    """The pool that a host has joined: its `token`, and the `pod` of its head; empty: none yet."""

    token: str = field(default="", repr=False)
    pod: str = ""


class WorkerHost:
    """Joins a pool again and again, from a process of which this is the only thread.

    Parameters: the `offer`; `find`, called in a fork before each try with the pod that the head was in before
    (empty: none is known), returns where it is, or None if this host is to go; `patience`: how many seconds
    of failing it takes to give up; `longest_pause`, in seconds, between two tries; `readiness`, which notes
    whether it has joined; `one_pool`: it ends with the first pool that it has joined, and takes no other head
    for that one's.
    """

    def __init__(
        self,
        offer: HostOffer,
        find: FindHead,
        *,
        patience: float,
        longest_pause: float = LONGEST_PAUSE,
        readiness: ReadinessServer | None = None,
        one_pool: bool = False,
    ) -> None:
        self._offer = offer
        self._find = find
        self._patience = patience
        self._longest_pause = longest_pause
        self._readiness = readiness
        self._one_pool = one_pool
        self._ending = False
        self._joined = _Joined()
        self._nanny = 0
        self._news = -1
        """What the present nanny tells, by a pipe."""
        self._signals, self._signals_end = watch_signals(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

    def run(self) -> int:
        """Be a host of the pool until it has drained after SIGTERM, or until there is no pool any more.

        A second SIGTERM ends the drain. The exit code is 0 after SIGTERM, when the head let it go, or when
        `find` says that it is to go; 1 when the pool can't be joined, 88 when it has other versions, 89 when
        the attempt of its job is over.
        """
        pause, failing_since = FIRST_PAUSE, 0.0
        while True:
            code = self._join_once()
            if self._ending or code == EXIT_WORKER_ENDED:
                return 0
            if code in (EXIT_WORKER_REFUSED, EXIT_ATTEMPT_OVER):
                return code  # the next try would end as this one
            if code == 0:
                pause, failing_since = FIRST_PAUSE, 0.0
            elif not failing_since:
                failing_since = time.monotonic()
            elif time.monotonic() - failing_since > self._patience:
                sys.stderr.write("fray: no nanny could join the pool; giving up\n")
                return EXIT_FAILURE
            # Also when it was there: a head that ends takes some time until its address is free.
            self._wait(pause)
            if self._ending:
                return 0
            pause = min(self._longest_pause, pause * 2)

    def _join_once(self) -> int:
        """Be a host of the pool until its head is gone; return the nanny's exit code."""
        owned = create_store(limit=self._offer.store_limit)
        try:
            self._start_nanny(owned.store)
            while True:
                # Orphans come here too where this is the first process of a container.
                ended, status = os.waitpid(-1, os.WNOHANG)
                if ended == self._nanny:
                    break
                if not ended:
                    self._await_news(None)
            code = os.waitstatus_to_exitcode(status)
            asked = self._ending and code == -signal.SIGTERM  # before it had a handler of its own
            known = (0, EXIT_FAILURE, EXIT_WORKER_ENDED, EXIT_WORKER_REFUSED, EXIT_ATTEMPT_OVER)
            if not asked and code not in known:
                sys.stderr.write(f"fray: the nanny was {describe_exit(status)}\n")
            return code
        finally:
            self._lose_nanny()
            owned.close()

    def _start_nanny(self, store: HostStore) -> None:
        news, telling = os.pipe()
        os.set_blocking(news, False)
        flush_output()
        parent = os.getpid()
        # One that comes before the fork has handlers of its own ends it all the same, once it's let through.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        self._nanny = os.fork()
        if not self._nanny:
            os.close(news)
            self._be_nanny(store, parent, telling)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        os.close(telling)
        self._news = news

    def _lose_nanny(self) -> None:
        self._nanny = 0
        if self._news >= 0:
            os.close(self._news)
            self._news = -1
        if self._readiness is not None:
            self._readiness.ready = False

    def _be_nanny(self, store: HostStore, parent: int, telling: int) -> NoReturn:
        code = EXIT_FAILURE
        try:
            reset_signals()
            os.close(self._signals)
            os.close(self._signals_end)
            if self._readiness is not None:
                self._readiness.close()
            die_with_parent(parent)
            code = self._join(store, telling)
        except AttemptOverError as error:
            sys.stderr.write(f"fray: {error.message}\n")
            code = EXIT_ATTEMPT_OVER
        except FrayError as error:
            sys.stderr.write(f"fray: {error}\n")
        finally:
            flush_output()
            os._exit(code)

    def _join(self, store: HostStore, telling: int) -> int:
        place = self._find(self._joined.pod)
        if place is None:
            return EXIT_WORKER_ENDED
        pod = place.pod

        def tell(token: str) -> None:
            os.write(telling, f"{token} {pod}\n".encode())
            os.close(telling)

        token = self._joined.token if self._one_pool else ""
        config = self._offer.config(store, head=place.address, token=token)
        return run_nanny(config, on_joined=tell)

    # --- waiting -------------------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        """Wait for so long, or until it is to end."""
        until = time.monotonic() + seconds
        while not self._ending and (left := until - time.monotonic()) > 0:
            self._await_news(left)

    def _await_news(self, seconds: float | None) -> None:
        """Wait for a signal, the nanny or a client, at most so long (None: for ever), and deal with it."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ, self._note_signals)
            if self._news >= 0:
                selector.register(self._news, selectors.EVENT_READ, self._note_joined)
            if self._readiness is not None:
                for each in self._readiness.sockets:
                    selector.register(each, selectors.EVENT_READ, self._readiness.serve)
            for deal in {key.data for key, _ in selector.select(seconds)}:
                deal()

    def _note_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while numbers := os.read(self._signals, 4096):
                if signal.SIGTERM in numbers or signal.SIGINT in numbers:
                    self._ending = True
                    if self._nanny:
                        os.kill(self._nanny, signal.SIGTERM)
        if self._ending and self._readiness is not None:
            self._readiness.ready = False

    def _note_joined(self) -> None:
        news = os.read(self._news, 4096).decode()
        if news:
            # Short texts: a pipe gives them as they were written.
            token, _, pod = news.rstrip("\n").partition(" ")
            self._joined = _Joined(token, pod)
            if self._readiness is not None:
                self._readiness.ready = True
        else:
            os.close(self._news)
            self._news = -1


def _parse(arguments: Sequence[str]) -> tuple[HostOffer, Address, float]:
    parser = argparse.ArgumentParser(prog="fray.runtime.pool.host.worker_host", description=__doc__)
    parser.add_argument("--head", required=True, help="address of the pool's head: tcp:host:port")
    parser.add_argument("--key", required=True, type=Path, help="directory of the pool's key")
    parser.add_argument("--objects", required=True, help="where others reach this host: tcp:host:0")
    parser.add_argument("--workers", type=int, default=available_cpus(), help="worker processes")
    parser.add_argument("--resource", action="append", default=[], metavar="NAME=AMOUNT")
    parser.add_argument("--store-limit", type=int, help="bytes of memory for objects")
    parser.add_argument("--name", default=socket.gethostname(), help="the host's name in messages")
    parser.add_argument("--drain-seconds", type=float, default=DRAIN_SECONDS, help="stay after SIGTERM")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds of failing before it ends")
    parsed = parser.parse_args(arguments)
    offered = {"CPU": float(parsed.workers), "memory": float(available_memory())}
    for text in parsed.resource:
        name, _, amount = text.partition("=")
        offered[name] = float(amount)
    offer = HostOffer(
        key=TransportKey.load(parsed.key),
        objects=Address.parse(parsed.objects),
        name=parsed.name,
        resources=tuple(sorted(spell_resources(offered).items())),
        workers=parsed.workers,
        store_limit=parsed.store_limit,
        drain_seconds=parsed.drain_seconds,
    )
    return offer, Address.parse(parsed.head), parsed.patience


def main(arguments: Sequence[str] | None = None) -> int:
    """Be a worker host until it has drained after SIGTERM; return the exit code."""
    try:
        offer, head, patience = _parse(sys.argv[1:] if arguments is None else arguments)
        return WorkerHost(offer, lambda _: HeadPlace(head), patience=patience).run()
    except FrayError as error:
        sys.stderr.write(f"fray: {error}\n")
        return EXIT_FAILURE


if __name__ == "__main__":
    sys.exit(main())
