"""A pool's part on the driver's machine: a head in this process, and one nanny, which has the workers.

With a `PoolNetwork`, nannies of other hosts may join (`worker_host`); else this machine is all of the pool.

All of it goes with `stop`, with this process however it ends, or with the next pool of the same user.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from fray.errors.transport import RefusalReason
from fray.runtime.container import available_memory, thread_limits
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.head.head import Head
from fray.runtime.pool.host_config import HostConfig
from fray.runtime.pool.machine.records import Run
from fray.runtime.pool.machine.snapshot import PoolStats
from fray.runtime.pool.messages.events import HostJoined
from fray.runtime.pool.messages.greetings import HostWelcome
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.network import PoolNetwork
from fray.runtime.pool.objects.directories import create_store
from fray.runtime.pool.objects.peers import PeerFetch
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.state import PoolState
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.vocabulary import ENV_JOB_NAME

__all__ = [
    "METRICS_SOCKET",
    "SPILL_DIR",
    "LocalPool",
    "await_end",
    "end_with_process",
    "offered_resources",
    "start_nanny",
    "start_process",
    "stop_pools",
]

SPILL_DIR = "FRAY_SPILL_DIR"
"""Environment variable: where objects go that memory has no room for; else with temporary files."""
METRICS_SOCKET = "metrics"
"""Name of the socket in the pool's directory at which its head shows it."""
INLINE_SHARE = 4
"""The head keeps values in messages up to that part of the memory for objects, beside it."""
HOST = 1
"""The number of this host; others get higher ones."""
STOP_SECONDS = 20.0
"""How long the nanny may take to end its workers; it needs a few seconds for those that ignore SIGTERM."""
MAX_NANNIES = 5
"""Nannies that are started within `STARTS_SECONDS`, before the host is given up."""
STARTS_SECONDS = 60.0
_RUN_NANNY = """
import sys
sys.path.insert(0, sys.argv[1])
from fray.runtime.pool.host.nanny import main
sys.exit(main())
"""


class LocalPool:
    """Starts a pool's processes; returns at once, before the workers are ready.

    Parameters: the number of `workers`; further `resources` by name, beside one CPU a worker; `store_limit`
    in bytes of memory for objects (None: 30 % of the machine's); `attach`: `module:function`, which each
    worker calls first; `network`: where other hosts reach this one (None: the pool has only this host).

    Raises `StoreDirectoryError` where no directory for objects can be made, `AddressError` or
    `TransportKeyError` if `network` can't be listened on.
    """

    def __init__(
        self,
        workers: int,
        *,
        resources: Mapping[str, float] | None = None,
        store_limit: int | None = None,
        attach: str = "",
        environ: Mapping[str, str],
        network: PoolNetwork | None = None,
    ) -> None:
        self.token = secrets.token_hex(8)
        spill = environ.get(SPILL_DIR)
        self._owned = create_store(limit=store_limit, spill=Path(spill) if spill else None)
        store = self._owned.store
        key = TransportKey.generate() if network is None else network.key
        self._head = Head(
            Address(path=str(store.directory / "head")),
            key,
            state=PoolState(
                () if network is None else network.allowed, inline_limit=store.limit // INLINE_SHARE
            ),
            host=HOST,
            store=store,
            limit=SubmitLimit(),
        )
        offered = offered_resources(workers, resources or {})
        cpus = dict(offered)["CPU"]
        self._config = HostConfig(
            token=self.token,
            head="",
            secret=key.secret,
            host=HOST,
            name=socket.gethostname(),
            resources=offered,
            workers=workers,
            store=str(store.directory),
            spill=str(store.spill_directory),
            store_limit=store.limit,
            objects="" if network is None else str(network.objects),
            attach=attach,
            certificate=str(key.certificate or ""),
            private_key=str(key.private_key or ""),
            sys_path=tuple(part or str(Path.cwd()) for part in sys.path),
            env=thread_limits(cpus / workers, environ),
        )
        self._starts: list[float] = []
        self._nanny: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self.client = self._head.client
        fetch = PeerFetch(HOST, self._head.address_of, key, store, self._head.note_copied)
        self._head.fetch_by(fetch.copy)
        self.objects = ObjectReader(HOST, store, fetch)
        self.metrics = Address(path=str(store.directory / METRICS_SOCKET))
        """Where the pool shows what it has and did, as Prometheus text and JSON; see `Head.serve_metrics`."""
        self.address: Address | None = None
        """Where nannies of other hosts connect; None: nowhere."""
        try:
            address = self._head.start()
            self._head.serve_metrics(self.metrics, job=environ.get(ENV_JOB_NAME, ""))
            if network is not None:
                self.address = self._head.listen(network.listen, HostWelcome(0, self.token, attach))
        except BaseException:
            self._head.stop()
            self._owned.close()
            raise
        self._config = replace(self._config, head=str(address))
        self._head.on_nanny_lost = self._restart_nanny
        self._head.join(
            HostJoined(HOST, self._config.name, self._config.resources, workers, self._config.store_limit)
        )
        self._start_nanny()
        self._head.on_tick = self._check_nanny
        end_with_process(self)

    def stats(self) -> PoolStats:
        """Return what the pool has and did."""
        stats: PoolStats = self._head.call(lambda state: state.stats())
        return stats

    def runs(self) -> tuple[Run, ...]:
        """Return the last runs that have ended."""
        runs: tuple[Run, ...] = self._head.call(lambda state: state.runs(time.time() - time.monotonic()))
        return runs

    def count_running(self) -> int:
        """Return how many tasks and calls workers have, for those who look often; cheaper than `stats`."""
        running: int = self._head.call(lambda state: state.count_running())
        return running

    def refusals(self) -> dict[RefusalReason, int]:
        """Return how many connections were cut off, by reason."""
        return self._head.refusals.snapshot()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called, or this process is a fork of the pool's."""
        return self._stopped

    def stop(self) -> None:
        """End all processes and remove all objects. May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        if self._nanny is not None and not self._head.has_nanny(HOST):
            self._nanny.kill()  # it has no workers yet, and would only complain that nobody listens
        self._head.stop()
        if self._nanny is not None:
            await_end(self._nanny)
        self._owned.close()

    def _start_nanny(self) -> None:
        # It may have ended already: then the head hears nothing of it, and `_check_nanny` finds it.
        self._nanny = start_nanny(self._config)

    def _restart_nanny(self) -> bool:
        """Start another nanny, whose host's objects are still here; return False to give the host up."""
        now = time.monotonic()
        self._starts = [*(start for start in self._starts if now - start < STARTS_SECONDS), now]
        if self._stopped:
            return False
        if len(self._starts) > MAX_NANNIES:
            self._head.fail(f"the process that has the workers ended {MAX_NANNIES + 1} times within a minute")
            return False
        if self._nanny is not None:
            self._nanny.kill()
            self._nanny.wait()
        self._start_nanny()
        return True

    def _check_nanny(self) -> None:
        """Find a nanny that has ended before it was connected; the head hears of others."""
        if self._nanny is not None and self._nanny.poll() is not None and not self._head.has_nanny(HOST):
            self._restart_nanny()

    def forget(self) -> None:
        """Leave the pool to the parent: this process is a fork of it, and has none of its threads."""
        self._stopped = True
        self._head.forget()


class _Pool(Protocol):
    def stop(self) -> None: ...

    def forget(self) -> None: ...


_pools: weakref.WeakSet[_Pool] = weakref.WeakSet()


def end_with_process(pool: _Pool) -> None:
    """Stop a pool when this process ends, and let forks of this process forget it."""
    _pools.add(pool)


def stop_pools() -> None:
    """Stop all pools of this process now, for one that ends by `os._exit`."""
    for pool in list(_pools):
        pool.stop()


def _forget_all() -> None:
    for pool in list(_pools):
        pool.forget()


atexit.register(stop_pools)
os.register_at_fork(after_in_child=_forget_all)


def start_nanny(config: HostConfig) -> subprocess.Popen[bytes]:
    """Start the nanny of a host of this process; it may have ended when this returns."""
    nanny = start_process(_RUN_NANNY, stdin=subprocess.PIPE)
    assert nanny.stdin is not None
    with contextlib.suppress(BrokenPipeError), nanny.stdin as pipe:
        pipe.write(config.to_json().encode())
    return nanny


def start_process(
    program: str, *arguments: str, stdin: int = subprocess.DEVNULL, pass_fds: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a process of the pool, whose first argument is where Fray's packages lie."""
    return subprocess.Popen(
        [sys.executable, "-c", program, str(Path(__file__).parents[3]), *arguments],
        stdin=stdin,
        pass_fds=pass_fds,
        stdout=_inherited(1),
        stderr=_inherited(2),
        # Ctrl-C in a terminal is for the driver; this one can't ignore it before Python has started.
        process_group=0,
    )


def await_end(process: subprocess.Popen[bytes]) -> None:
    """Return once a process that is ending has ended; one that takes too long is killed."""
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _inherited(descriptor: int) -> int | None:
    """Return where a child's output goes: as this process's, or nowhere if it has closed its own."""
    try:
        # What has taken the number since isn't inherited.
        return None if os.get_inheritable(descriptor) else subprocess.DEVNULL
    except OSError:
        return subprocess.DEVNULL


def offered_resources(workers: int, more: Mapping[str, float]) -> Shape:
    """Return what this machine offers with so many workers."""
    # "head_node" is how older programs ask for the host of the driver.
    offered = {"CPU": float(workers), "memory": float(available_memory()), "head_node": 1.0, **more}
    return tuple(sorted(offered.items()))
