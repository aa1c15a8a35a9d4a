"""Who is connected to the head, and what is on its way to them: clients, nannies, workers.

A table with outboxes: it sends what it's given, and decides nothing. What peers say, and when one is lost, is
the business of `membership`; what is sent to them, of `dispatcher`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fray.errors import FrameTooLargeError, TransportError
from fray.runtime.pool.message_codec import MESSAGES, OVER, encode_messages
from fray.runtime.pool.messages.greetings import HostAddresses
from fray.runtime.pool.messages.specs import ClientId, HostId, WorkerId
from fray.runtime.pool.transport.endpoints import Connection

__all__ = ["LAST_WORD_SECONDS", "Peer", "Peers"]

_log = logging.getLogger(__name__)

LAST_WORD_SECONDS = 5.0
"""How long peers may take to go when they know that it's over."""
NOTHING = encode_messages([])


class Peer:
    """A process that has connected: a client, a nanny or a worker once it has said which."""

    __slots__ = ("changes_sent", "client", "connection", "host", "outbox", "stamped", "worker")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.host: HostId | None = None
        """The host whose nanny it is; of a client, the host that came with it."""
        self.client: ClientId | None = None
        self.stamped = False
        """Whether it has sent its versions, and they are the pool's."""
        self.worker: WorkerId | None = None
        self.outbox: list[Any] = []
        self.changes_sent: int | None = None
        """How many changes of addresses were sent to it; None: it reads no objects."""


class Peers:
    """The clients, nannies and workers of a pool.

    `home` is the host of a driver that has the head in a thread of its own; None: all clients are elsewhere.

    For the loop's thread only, but for `address_of`, `has_nanny` and `note_joined`.
    """

    def __init__(self, home: HostId | None = None) -> None:
        self.home = home
        self.workers: dict[WorkerId, Peer] = {}
        """Those that are connected; to be read only, as are `clients` and `unsent`."""
        self.clients: dict[ClientId, Peer] = {}
        self.unsent: list[Peer] = []
        """Those that have something in their outbox."""
        self._homes: dict[WorkerId, HostId] = {}
        self._nannies: dict[HostId, Peer] = {}
        self._joined: set[HostId] = set()
        self._addresses: dict[HostId, str] = {}
        self._moved: list[HostId] = []
        """Each host whose address has changed, again with each change."""
        self._missed: dict[HostId, list[Any]] = {} if home is None else {home: []}
        """Hosts of clients -> what the next nanny there is to hear, while there is none."""

    # --- sending -------------------------------------------------------------------------------------------

    def send(self, peer: Peer, message: Any) -> None:
        """Send the message with the next `flush`."""
        if not peer.outbox:
            self.unsent.append(peer)
        peer.outbox.append(message)

    def send_to_nanny(self, host: HostId, message: Any) -> None:
        """Send to a host's nanny; to the next one, if it's the host of a client and has none now."""
        nanny = self._nannies.get(host)
        if nanny is not None:
            self.send(nanny, message)
        elif host in self._missed:
            self._missed[host].append(message)

    def send_missed(self, nanny: Peer, host: HostId) -> None:
        """Send what was for the host of a client while it had no nanny."""
        for message in self._missed[host]:
            self.send(nanny, message)
        self._missed[host].clear()

    def tell_clients(self, message: Any) -> None:
        """Send to all clients."""
        for peer in self.clients.values():
            self.send(peer, message)

    def beat(self) -> None:
        """Let clients for which there is nothing else hear that the head is alive."""
        for peer in self.clients.values():
            if not peer.outbox:
                try:
                    peer.connection.send(MESSAGES, NOTHING, at_once=True)
                except TransportError:
                    _log.debug("%s has gone", peer.connection.peer)

    def send_addresses(self, peer: Peer) -> None:
        """Send a new worker or client where the objects of all hosts are read."""
        peer.changes_sent = len(self._moved)
        if self._addresses:
            self.send(peer, HostAddresses(tuple(self._addresses.items())))

    def tell_addresses(self) -> None:
        """Tell all what they haven't heard of yet: nobody is to wait for a host that is gone.

        Of a new host they hear with the next message that they get: there are many, and they join at once.
        """
        for peer in (*self.clients.values(), *self.workers.values()):
            if peer.changes_sent != len(self._moved):
                self.send(peer, self._take_changes(peer))

    def _take_changes(self, peer: Peer) -> HostAddresses:
        moved = dict.fromkeys(self._moved[peer.changes_sent :])
        peer.changes_sent = len(self._moved)
        return HostAddresses(tuple((host, self._addresses.get(host, "")) for host in moved))

    def flush(self) -> None:
        """Hand what is in the outboxes to the connections."""
        unsent, self.unsent = self.unsent, []
        for peer in unsent:
            batch, peer.outbox = peer.outbox, []
            if peer.changes_sent is not None and peer.changes_sent != len(self._moved):
                batch.insert(0, self._take_changes(peer))
            try:
                peer.connection.send(MESSAGES, encode_messages(batch), at_once=True)
            except FrameTooLargeError as error:
                _log.error("%s is cut off: %s", peer.connection.peer, error.message)
                peer.connection.abort()  # what was for it is tried again, and fails in the end
            except TransportError:
                # Its end is reported by `on_lost`, and what was on its way to it is dealt with there.
                _log.debug("%s has gone", peer.connection.peer)

    async def tell_over(self, reason: str) -> None:
        """Tell clients and nannies that their attempt is over, and wait until they have gone."""
        self.flush()
        leaving = [peer.connection for peer in (*self.clients.values(), *self._nannies.values())]
        for each in leaving:
            try:
                each.send(OVER, reason.encode(), at_once=True)
            except TransportError:
                _log.debug("%s has gone", each.peer)
        if leaving:
            await asyncio.wait(
                [asyncio.ensure_future(each.lost()) for each in leaving],
                timeout=LAST_WORD_SECONDS,
            )

    def close(self) -> None:
        """Cut all connections, those of clients when they have what was for them."""
        self.flush()
        for peer in (*self.workers.values(), *self._nannies.values()):
            peer.connection.abort()
        for peer in self.clients.values():
            peer.connection.close()

    # --- clients -------------------------------------------------------------------------------------------

    def add_client(self, peer: Peer, client: ClientId, host: HostId) -> None:
        """Let a client be reached by its connection; its host has joined, and waits for its nanny."""
        peer.client, peer.host = client, host
        self.clients[client] = peer
        self._joined.add(host)
        self._missed[host] = []

    def remove_client(self, client: ClientId) -> HostId:
        """Forget a client; return its host, which is still joined and gets no other nanny."""
        host = self.clients.pop(client).host
        assert host is not None
        del self._missed[host]
        return host

    def has_client(self, host: HostId) -> bool:
        """Return whether it's the host of a client, which starts another nanny if one is lost."""
        return host in self._missed

    def find_relay(self, host: HostId) -> Peer | None:
        """Return the client, the eldest, to whose host an object of `host` can be copied for others."""
        others = (peer for _, peer in sorted(self.clients.items()) if peer.host != host)
        return next(others, None)

    # --- workers -------------------------------------------------------------------------------------------

    def expect_worker(self, worker: WorkerId, host: HostId) -> None:
        """Take note of a worker that is being started on a host."""
        self._homes[worker] = host

    def home_of(self, worker: WorkerId) -> HostId | None:
        """Return the host of a worker, connected or not yet; None: there is no such worker."""
        return self._homes.get(worker)

    def add_worker(self, peer: Peer, worker: WorkerId) -> None:
        """Let an expected worker be reached by its connection; it hears where objects are read."""
        peer.worker = worker
        self.workers[worker] = peer
        self.send_addresses(peer)

    def remove_worker(self, worker: WorkerId) -> Peer | None:
        """Forget a worker; return its connection, which is left open, if it has one."""
        self._homes.pop(worker, None)
        return self.workers.pop(worker, None)

    # --- hosts ---------------------------------------------------------------------------------------------

    def address_of(self, host: HostId) -> str | None:
        """Return where the objects of a host are read; None or empty: they can't be."""
        return self._addresses.get(host)

    def has_nanny(self, host: HostId) -> bool:
        """Return whether a host's nanny is connected."""
        return host in self._nannies

    def is_nanny(self, peer: Peer) -> bool:
        """Return whether this is the connection of a host's present nanny."""
        return peer.host is not None and self._nannies.get(peer.host) is peer

    def note_joined(self, host: HostId) -> None:
        """Take note that the pool knows the host, with or without a nanny."""
        self._joined.add(host)

    def has_joined(self, host: HostId) -> bool:
        """Return whether the pool knows the host."""
        return host in self._joined

    def add_nanny(self, peer: Peer, host: HostId, objects: str) -> None:
        """Let a host be reached by its nanny's connection; its `objects` are read there."""
        peer.host = host
        self._nannies[host] = peer
        self._addresses[host] = objects
        self._moved.append(host)

    def remove_nanny(self, host: HostId) -> None:
        """Forget a host's nanny, if any, and its workers, and cut them off. The host is still joined."""
        nanny = self._nannies.pop(host, None)
        if nanny is not None:
            nanny.connection.abort()
        if self._addresses.pop(host, None) is not None:
            self._moved.append(host)
        workers = [worker for worker, home in self._homes.items() if home == host]
        for worker in workers:
            if (peer := self.remove_worker(worker)) is not None:
                peer.connection.abort()

    def remove_host(self, host: HostId) -> None:
        """Take note that the pool has lost a host, whose nanny was removed."""
        self._joined.discard(host)
