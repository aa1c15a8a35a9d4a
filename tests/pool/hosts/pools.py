"""Pools of several hosts for tests: the driver is pytest's process, each further host another."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fray.job import JobContext
from fray.job.defaults import get_job_context
from fray.job.options import TaskOptions
from fray.job.pool_engine import PoolEngine, PoolSession
from fray.runtime.pool.host.processes import children
from fray.runtime.pool.local_pool import LocalPool
from fray.runtime.pool.network import PoolNetwork
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey

PATIENCE = 120.0
"""Seconds after which something that should have happened never will."""
ROOT = Path(__file__).parents[3]
_BYTES = struct.Struct("=QQ")
_BYTES_AT = 120
"""linux/tcp.h: `tcpi_bytes_acked` and `tcpi_bytes_received` of `struct tcp_info`."""


def on(place: str, **options: Any) -> TaskOptions:
    """Return the options of a task that runs where the resource `place` is offered."""
    return TaskOptions(resources={place: 1}, **options)


def store() -> Path:
    """Return the directory of objects of the host where a task calls this."""
    context = get_job_context()
    assert isinstance(context, JobContext)
    engine: Any = context._engine
    directory: Path = engine._objects._store.directory
    return directory


@dataclass
class Hosts:
    """A pool, its context, and the further hosts by name."""

    pool: LocalPool
    context: JobContext
    key: Path
    complaints: Path
    """What all further hosts write to stderr."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def add(self, name: str, *, objects: str = "tcp:127.0.0.1:0", **options: Any) -> None:
        """Start a host and wait until it has joined."""
        self.start(name, objects=objects, **options)
        self.await_host(name)

    def start(
        self,
        name: str,
        *,
        objects: str = "tcp:127.0.0.1:0",
        within: Sequence[str] = (),
        workers: int = 1,
        key: Path | None = None,
        patience: float = 60.0,
        store_limit: int = 0,
        drain_seconds: float = 0.0,
    ) -> subprocess.Popen[bytes]:
        """Start a host that offers the resources `name` and `far`; `within` is put before its command."""
        command = [
            *within, sys.executable, "-m", "fray.runtime.pool.host.worker_host",
            "--head", str(self.pool.address), "--key", str(key or self.key), "--objects", objects,
            "--workers", str(workers), "--resource", f"{name}=100", "--resource", "far=100",
            "--name", name, "--patience", str(patience),
            *(("--store-limit", str(store_limit)) if store_limit else ()),
            *(("--drain-seconds", str(drain_seconds)) if drain_seconds else ()),
        ]  # fmt: skip
        with self.complaints.open("ab") as complaints:
            self.processes[name] = subprocess.Popen(command, cwd=ROOT, stderr=complaints)
        return self.processes[name]

    def get(self, ref: Any) -> Any:
        """Return the value of a ref, which is there soon."""
        return self.context.get(ref, timeout=PATIENCE)

    def names(self) -> dict[int, str]:
        """Return the names of all hosts that are in the pool, by their numbers."""
        found: dict[int, str] = self.pool._head.call(
            lambda state: {host.id: host.name for host in state._tables.hosts.values()}
        )
        return found

    def number(self, name: str) -> int:
        """Return the number of the host called `name`; 0: it isn't in the pool."""
        return next((number for number, each in self.names().items() if each == name), 0)

    def await_host(self, name: str, *, there: bool = True, other_than: int = 0) -> int:
        """Wait until the host is in the pool (or not), under another number than `other_than`."""

        def arrived() -> bool:
            return bool(number := self.number(name)) is there and (not there or number != other_than)

        wait_until(arrived)
        return self.number(name)

    def nanny(self, name: str) -> int:
        """Return the pid of a host's nanny."""
        [nanny] = children(self.processes[name].pid)
        return nanny

    def object_server(self, name: str) -> int:
        """Return the pid of a host's server of objects: the first child of its nanny."""
        nanny = self.nanny(name)
        # In the order in which they were forked, which their numbers needn't have.
        return int(Path(f"/proc/{nanny}/task/{nanny}/children").read_text().split()[0])

    def kill(self, name: str) -> None:
        """End a host as a lost machine does: at once, with all its processes."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(PATIENCE)

    def await_transfer(self, there: Path, result: Any) -> list[int]:
        """Return who writes to the store `there`, once somebody does; nobody: the result was quicker."""
        writers: list[int] = []

        def met() -> bool:
            writers[:] = [int(part.name.split(".")[1].split("-")[0]) for part in there.glob("*.part")]
            return bool(writers) or bool(self.context.wait([result], timeout=0)[0])

        wait_until(met)
        return writers

    def bytes_of_head(self) -> int:
        """Return what all TCP connections of the head have carried."""
        table = self.pool._head._peers
        peers = (*table.workers.values(), *table._nannies.values())
        total = 0
        for peer in peers:
            assert peer.connection._transport is not None
            connected = peer.connection._transport.get_extra_info("socket")
            if connected.family == socket.AF_INET:
                info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 200)
                total += sum(_BYTES.unpack_from(info, _BYTES_AT))
        return total

    def close(self) -> None:
        """End the pool and see that its hosts end with SIGTERM, and leave nothing."""
        self.pool.stop()
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        sys.stderr.write(self.complaints.read_text())  # pytest shows it with a failure


@contextlib.contextmanager
def several_hosts(key: Path, *, listen: Address, workers: int = 1) -> Iterator[Hosts]:
    """Give a pool whose own host offers the resource `driver`; others may join."""
    pool = LocalPool(
        workers,
        resources={"driver": 100.0},
        attach="fray.job.attached:attach",
        environ=os.environ,
        network=PoolNetwork(TransportKey.load(key), listen),
    )
    context = JobContext(PoolEngine(PoolSession(pool.token, pool.client, pool.objects)))
    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts(pool, context, key, Path(folder) / "stderr")
        hosts.complaints.touch()
        try:
            yield hosts
        finally:
            hosts.close()


def wait_until(happened: Callable[[], bool]) -> None:
    """Return when `happened` is true; fail after PATIENCE seconds."""
    give_up_at = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < give_up_at, "it never happened"
        time.sleep(0.002)
