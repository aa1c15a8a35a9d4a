"""The program of a worker's pod: `python -m fray.runtime.pool.worker_pod`. Variables tell it everything.

It joins the pool of its job as a host, with all that its container has, and says on a port of its own whether
it has joined. It ends with 0 only when it was asked to go; docs/exit-codes.md has the other codes.
"""

from __future__ import annotations

import math
import os
import socket
import sys
from collections.abc import Mapping

from fray.errors import FrayError
from fray.runtime.container import available_accelerators, available_cpus, available_memory
from fray.runtime.pool.host.readiness import ReadinessServer
from fray.runtime.pool.host.worker_host import DRAIN_SECONDS, HostOffer, WorkerHost
from fray.runtime.pool.objects.directories import MEMORY_SHARE
from fray.runtime.pool.pod import HeadPlace, PodPool, read_offer
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.vocabulary import EXIT_FAILURE, POOL_READY_PORT

__all__ = ["DRAIN_SECONDS", "HEAD_SECONDS", "PATIENCE", "build_resources", "join_pool", "main"]

LONGEST_PAUSE = 0.5
"""Seconds between two tries to reach a head that is there and doesn't listen yet."""
PATIENCE = 600.0
"""How long a head that has an address may not be joined: rank 0's node may pull images for minutes."""
HEAD_SECONDS = 3600.0
"""How long one try waits for rank 0's pod, which may need a new node; it's followed by another."""


def main(environ: Mapping[str, str] | None = None, *, ready_port: int = POOL_READY_PORT) -> int:
    """Be the host of a worker's pod until it is asked to go, or until its attempt is over.

    Parameters: `environ`, by default this process's; `ready_port`, where `GET /ready` is answered.

    Returns the exit code: 0 when it was asked to go, 89 when the attempt is over, 88 where its versions
    aren't the pool's, 1 where a variable or a file is wrong, or a head that is there can't be joined.
    """
    environ = os.environ if environ is None else environ  # noqa: TID251 - the entry of the process
    try:
        pool = PodPool.from_env(environ)
        return join_pool(pool, dict(read_offer(environ)), patience=PATIENCE, ready_port=ready_port)
    except FrayError as error:
        sys.stderr.write(f"fray: {error}\n")
        return EXIT_FAILURE


def join_pool(pool: PodPool, asked: Mapping[str, float], *, patience: float, ready_port: int) -> int:
    """Be a host of a pool, as `main` is; it gives up after so many seconds of `patience`.

    `asked` is what it offers besides what its container has. Raises `FrayError`.
    """
    resources = build_resources(asked)
    offer = HostOffer(
        key=TransportKey.load(pool.key),
        objects=pool.objects,
        name=socket.gethostname(),
        resources=tuple(sorted(resources.items())),
        workers=max(1, int(resources["CPU"])),
        store_limit=int(resources["memory"] * MEMORY_SHARE),
        drain_seconds=DRAIN_SECONDS,
    )
    readiness = ReadinessServer(Address(host=pool.objects.host, port=ready_port))
    host = WorkerHost(
        offer,
        lambda known: _find(pool, known),
        patience=patience,
        longest_pause=LONGEST_PAUSE,
        readiness=readiness,
        one_pool=True,
    )
    return host.run()


def build_resources(asked: Mapping[str, float]) -> dict[str, float]:
    """Return what this container offers to tasks.

    `asked` is what the job asks for each worker, as far as it says: a container without a limit sees all of
    its node, and one with a limit may have less.
    """
    memory = min(float(available_memory()), asked.get("memory", math.inf))
    return {
        "CPU": float(available_cpus()),
        **available_accelerators(),
        **asked,
        "memory": memory,
    }


def _find(pool: PodPool, known: str) -> HeadPlace | None:
    # By now SIGTERM has a handler. One that came before got lost: the kernel drops a signal without a handler
    # that is for the first process of a container. A pod is marked before its kubelet sends it.
    if pool.is_to_go():
        return None
    return pool.find_head(known=known, seconds=HEAD_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
