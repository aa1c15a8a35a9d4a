"""Free TCP ports for an attempt's rendezvous, leased so that no two local jobs share one.

All hosts of a local gang have one address, so what are fixed ports on a cluster must be chosen here. A
check by bind isn't enough: gRPC sets SO_REUSEPORT, and two coordinators on one port would silently mix.
Hence a locked file for each port, for as long as a process of the attempt lives. Ports that the kernel
gives to outgoing connections are avoided: one may be taken between the check and its use.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from fray.cluster.local.store import state_errors
from fray.errors import PortsExhaustedError
from fray.plan.names import LOOPBACK

__all__ = ["PortLeases", "choose_candidates", "read_ephemeral_range"]

PREFERRED = range(20000, 30000)
"""Below Kubernetes' node ports (30000) and the kernel's usual ephemeral range (32768)."""
FALLBACK = range(1024, 65536)
EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
IANA_EPHEMERAL = range(49152, 65536)


def read_ephemeral_range(path: Path = EPHEMERAL_RANGE_FILE) -> range:
    """Return the ports that the kernel gives to outgoing connections (Linux; IANA's elsewhere)."""
    try:
        first, last = path.read_text().split()
        return range(int(first), int(last) + 1)
    except (OSError, ValueError):
        return IANA_EPHEMERAL


def choose_candidates(ephemeral: range) -> Sequence[int]:
    """Return the ports to choose from: outside the ephemeral range unless it leaves nothing."""
    for ports in (PREFERRED, FALLBACK):
        outside = [port for port in ports if port not in ephemeral]
        if outside:
            return outside
    return PREFERRED


class PortLeases:
    """The ports of one attempt. Processes that inherit `descriptors` keep them leased, too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._candidates = choose_candidates(read_ephemeral_range())
        self._leases: dict[int, int] = {}
        # Where to start is left to chance, so that jobs started together rarely try the same ports.
        self._next = random.randrange(len(self._candidates))

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The open files that hold the leases."""
        return tuple(self._leases.values())

    def lease(self, count: int) -> list[int]:
        """Return that many free ports, leased until `release`.

        Raises:
            PortsExhaustedError: there aren't so many.
            StateDirectoryError: the files of the leases can't be made.
        """
        found: list[int] = []
        for _ in range(len(self._candidates)):
            if len(found) == count:
                return found
            port = self._candidates[self._next]
            self._next = (self._next + 1) % len(self._candidates)
            if self._take(port, reuse_address=False):
                found.append(port)
        if len(found) == count:
            return found
        raise PortsExhaustedError(self._candidates[0], self._candidates[-1])

    def lease_exactly(self, ports: Iterable[int]) -> set[int]:
        """Return those of the given ports that were free; they are leased now."""
        # A server sets SO_REUSEADDR, and so gets a port whose last connection has just been closed.
        return {port for port in ports if self._take(port, reuse_address=True)}

    def release(self) -> None:
        """Give all ports back; those that living processes inherited are free once these have ended."""
        for port, file in self._leases.items():
            (self._folder / str(port)).unlink(missing_ok=True)
            os.close(file)
        self._leases.clear()

    def _take(self, port: int, *, reuse_address: bool) -> bool:
        if port in self._leases or not _is_free(port, reuse_address=reuse_address):
            return False
        with state_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        if os.fstat(file).st_nlink == 0:
            # Its last holder removed the file between the two calls above; somebody may hold a new one.
            os.close(file)
            return False
        self._leases[port] = file
        return True


def _is_free(port: int, *, reuse_address: bool) -> bool:
    """Whether a socket could be bound to the port, on the loopback address and on all."""
    for address in (LOOPBACK, ""):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if reuse_address:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
