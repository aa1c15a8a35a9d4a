"""Tries to get into the pool of another job, and prints a line of JSON with what came of each try.

Run in a job's pod as `python3 -c SOURCE HOST:PORT CANARY ENGINE`; in one that has keys of its namespace, it
tries those too. What it sends would write the file CANARY where it is unpickled. To engine `dask` it speaks
as Dask's own clients do, also over TLS that takes any scheduler.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fray.errors import HandshakeError, PeerUnreachableError
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.keys import TransportKey
from fray.vocabulary import ACCEPTED_FILE, CERTIFICATE_FILE, PRIVATE_KEY_FILE

PATIENCE = 60.0
"""Longer than the pool bears with a peer that proves nothing."""
DASK_SECONDS = 10.0
"""For so long a client of Dask tries again."""
Way = Callable[[str, int, bytes], str]
"""Tries to get in; returns what came of it."""


class Canary:
    """Writes a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.path}",)


def speak(stream: socket.socket, canary: bytes) -> str:
    """Send the canary and return what came of it."""
    try:
        stream.sendall(canary)
        while stream.recv(65536):
            pass
    except TimeoutError:
        return "heard"
    except OSError:
        pass  # cut off while it was sent
    return "refused"


def by_plain_tcp(host: str, port: int, canary: bytes) -> str:
    """Send it as it is."""
    with socket.create_connection((host, port), timeout=PATIENCE) as plain:
        return speak(plain, canary)


def by_bare_tls(host: str, port: int, canary: bytes) -> str:
    """Send it over TLS without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=PATIENCE) as plain:
        try:
            secured = context.wrap_socket(plain)
        except ssl.SSLError:
            return "refused"
        with secured:
            return speak(secured, canary)


def by_own_keys(host: str, port: int, _: bytes) -> str:
    """Join as a process of this namespace's pools does."""
    key = TransportKey.load(Path(os.environ["FRAY_POOL_KEY"]))
    try:
        BlockingConnection.connect(Address(host=host, port=port), key)
    except HandshakeError:
        return "refused"
    return "heard"


def be_dask_client(address: str, canary: bytes, security: Any) -> str:
    """Connect as a client of Dask, and have its scheduler unpickle the canary."""
    from distributed import Client  # noqa: PLC0415 - only for a pool of Dask

    try:
        client = Client(address, security=security, timeout=DASK_SECONDS)
    except OSError:
        return "refused"
    with client:
        client.run_on_scheduler(pickle.loads, canary)
    return "heard"


def by_dask_without_keys(host: str, port: int, canary: bytes) -> str:
    """Connect over plain TCP, as clients of Dask do that nobody gave a certificate."""
    from distributed.security import Security  # noqa: PLC0415 - only for a pool of Dask

    return be_dask_client(f"tcp://{host}:{port}", canary, Security())


def by_dask_with_own_keys(host: str, port: int, canary: bytes) -> str:
    """Connect with the certificate of this namespace's pools; the scheduler's own isn't looked at."""
    from distributed.security import Security  # noqa: PLC0415 - only for a pool of Dask

    class Careless(Security):
        def get_connection_args(self, role: str) -> Any:
            dask: Any = super()
            arguments = dask.get_connection_args(role)
            arguments["ssl_context"].verify_mode = ssl.CERT_NONE
            return arguments

    key = Path(os.environ["FRAY_POOL_KEY"])
    careless: Any = Careless
    security = careless(
        require_encryption=True,
        tls_ca_file=str(key / ACCEPTED_FILE),
        tls_client_cert=str(key / CERTIFICATE_FILE),
        tls_client_key=str(key / PRIVATE_KEY_FILE),
    )
    return be_dask_client(f"tls://{host}:{port}", canary, security)


def attempt(way: Way, host: str, port: int, canary: bytes) -> str:
    """Return what came of a way in: refused, unreachable, or heard."""
    try:
        return way(host, port, canary)
    except (PeerUnreachableError, OSError):
        return "unreachable"  # a network that enforces policies


if __name__ == "__main__":
    place, _, number = sys.argv[1].rpartition(":")
    evil = pickle.dumps(Canary(sys.argv[2]))
    ways: list[Way]
    if sys.argv[3] == "dask":
        ways = [by_dask_without_keys, by_dask_with_own_keys]
    else:
        ways = [by_plain_tcp, by_bare_tls, by_own_keys]
    if "FRAY_POOL_KEY" not in os.environ:
        ways.pop()
    print(json.dumps({way.__name__: attempt(way, place, int(number), evil) for way in ways}), flush=True)
