"""The first message on a connection to the head, and what the head and its clients say about the pool itself.

No behaviour may stand here: tuples of plain data only, which pickle fast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fray.runtime.pool.messages.specs import ClientId, HostId, Shape, WorkerId

__all__ = [
    "Answered",
    "Ask",
    "ClientHello",
    "ClientWelcome",
    "HostAddresses",
    "HostWelcome",
    "NannyHello",
    "PoolFailed",
    "TasksEnded",
    "TellEnded",
    "WorkerHello",
]


class NannyHello(NamedTuple):
    """A host's nanny has connected. The head makes HostJoined of it."""

    host: HostId
    """That of a client, which the head has sent it; 0: the head is to give it a number."""
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


class HostAddresses(NamedTuple):
    """Where objects of hosts are read: what has changed since a worker or client heard of it last.

    It comes before all messages that name a host of which the receiver hasn't heard.
    """

    changed: tuple[tuple[HostId, str], ...]
    """Empty: nowhere any more."""

    def update(self, known: dict[HostId, str]) -> None:
        """Bring up to date what is known so far."""
        for host, address in self.changed:
            if address:
                known[host] = address
            else:
                known.pop(host, None)


# --- clients: processes that submit tasks, each on a host of its own ----------------------------------------


class ClientHello(NamedTuple):
    """A client has connected; its host joins with it, and that host's nanny comes later."""

    name: str
    resources: Shape
    workers: int
    store_limit: int


class ClientWelcome(NamedTuple):
    """The head's answer to a client."""

    client: ClientId
    host: HostId
    token: str
    """The pool's name, unique."""
    attach: str
    """As in `HostWelcome`, for workers of the client's host."""


class Ask(NamedTuple):
    """A client asks for something about the pool, by name; answered by `Answered`."""

    number: int
    what: str


class Answered(NamedTuple):
    """The answer to the question of that number."""

    number: int
    answer: Any


class TellEnded(NamedTuple):
    """A client's threads wait until fewer of its tasks are under way (`on`), or none does any more."""

    on: bool


class TasksEnded(NamedTuple):
    """How many of a client's tasks have ended in all, and the bytes of their arguments."""

    tasks: int
    size: int


class PoolFailed(NamedTuple):
    """The pool ends because it can't go on."""

    reason: str
