"""TCP ports for servers that tests start."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import socket
from collections.abc import Iterator

from fray.cluster.local.ports import read_ephemeral_range

__all__ = ["free_port"]

_RANGE = range(4000, 10000)
"""Below those of Ray's workers, https://docs.ray.io/en/latest/ray-core/configure.html#all-nodes, and
those that Fray's local cluster leases for jobs."""


def free_port() -> int:
    """Return a port that is free, and stays so until it is used.

    The kernel gives it to no connection, and this process doesn't return it again before all others.
    """
    for port in itertools.islice(_circle(), len(_RANGE)):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


@functools.cache
def _circle() -> Iterator[int]:
    """All ports again and again, from where chance begins: processes started together rarely try the same."""
    given = read_ephemeral_range()
    ports = [port for port in _RANGE if port not in given]
    first = random.randrange(len(ports))
    return itertools.cycle(ports[first:] + ports[:first])
