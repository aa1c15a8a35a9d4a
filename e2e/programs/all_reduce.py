"""Adds up a number of each rank of a gang and gives every rank the sum, over plain sockets.

Run in job pods as `python3 -c SOURCE FLAVOUR`: it stands for what a training framework does at its start.
`torch` reads what torchrun's `env://` reads, `fray` what Fray's own runtime says. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

DEADLINE_SECONDS = 60.0


def whoami(flavour: str) -> tuple[str, int, int, int]:
    """Address and port of rank 0, own rank, number of ranks."""
    if flavour == "torch":
        environ = os.environ
        address, port = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
        return address, port, int(environ["RANK"]), int(environ["WORLD_SIZE"])
    from fray.runtime.identity import current_identity  # noqa: PLC0415 - other images have no Fray

    identity = current_identity()
    address, _, number = (identity.coordinator or "").rpartition(":")
    return address, int(number), identity.rank, identity.world_size


def gather_and_share(port: int, world_size: int, own: int) -> int:
    """Rank 0: take a number of every other rank, and tell all of them the sum."""
    with socket.create_server(("", port)) as server:
        server.settimeout(DEADLINE_SECONDS)
        peers = [server.accept()[0].makefile("rw") for _ in range(world_size - 1)]
    total = own + sum(int(peer.readline()) for peer in peers)
    for peer in peers:
        peer.write(f"{total}\n")
        peer.flush()
    return total


def connect(address: str, port: int) -> socket.socket:
    """Connect to rank 0, whose name and process may come later than this one."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return socket.create_connection((address, port), timeout=DEADLINE_SECONDS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main() -> None:
    """Take part, and print what came of it as one JSON line."""
    address, port, rank, world_size = whoami(sys.argv[1])
    own = rank + 1
    if rank == 0:
        total = gather_and_share(port, world_size, own)
    else:
        with connect(address, port).makefile("rw") as leader:
            leader.write(f"{own}\n")
            leader.flush()
            total = int(leader.readline())
    print(json.dumps({"rank": rank, "world_size": world_size, "sum": total}))


main()
