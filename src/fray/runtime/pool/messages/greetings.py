"""The first message on a connection to the head, and what the head sends about the pool's hosts.

No behaviour may stand here: tuples of plain data only, which pickle fast.
"""

from __future__ import annotations

from typing import NamedTuple

from fray.runtime.pool.messages.specs import HostId, Shape, WorkerId

__all__ = ["HostTable", "HostWelcome", "NannyHello", "WorkerHello"]


class NannyHello(NamedTuple):
    """A host's nanny has connected. The head makes HostJoined of it."""

    host: HostId
    """0: the head is to give it a number."""
    name: str
    resources: Shape
    workers: int
    store_limit: int
    objects: str
    """Where other hosts read this host's objects: an address; empty: they can't."""


class HostWelcome(NamedTuple):
    """The head's answer to a nanny that has no number: what it needs to know of the pool."""

    host: HostId
    """Its number, which no other host had before or gets later."""
    token: str
    """The pool's name, unique."""
    attach: str
    """`module:function`, called in each worker with token, client and objects before its first task."""


class WorkerHello(NamedTuple):
    """A worker has connected. The head makes WorkerJoined of it."""

    worker: WorkerId
    pid: int


class HostTable(NamedTuple):
    """Where objects of hosts are read; told to each nanny and worker, anew with each change."""

    addresses: tuple[tuple[HostId, str], ...]
