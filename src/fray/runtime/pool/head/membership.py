"""Who joins and leaves the pool by a connection, and what they send, checked before it is believed.

On the loop's thread. What comes of it goes to the `dispatcher` as events; who is connected is in `peers`. One
that sends what can't be taken is lost, and nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fray.errors import TransportError
from fray.payload.stamp import Stamp
from fray.runtime.pool.head.dispatcher import Dispatcher
from fray.runtime.pool.head.peers import LAST_WORD_SECONDS, Peer, Peers
from fray.runtime.pool.machine.message_checks import RefusedMessageError, check_message
from fray.runtime.pool.machine.resources import HOMELESS_SECONDS
from fray.runtime.pool.message_codec import OVER, REFUSAL, STAMP, decode_messages
from fray.runtime.pool.messages.commands import StopWorker
from fray.runtime.pool.messages.events import (
    ClientJoined,
    ClientLost,
    FilesFound,
    HostJoined,
    HostLeaving,
    HostLost,
    ItemsProduced,
    NannyLost,
    ObjectChecked,
    ObjectCopied,
    ObjectRelayed,
    ObjectSpilled,
    TaskDone,
    WorkerJoined,
    WorkerLost,
)
from fray.runtime.pool.messages.greetings import (
    Answered,
    Ask,
    ClientHello,
    ClientWelcome,
    HostWelcome,
    NannyHello,
    TellEnded,
    WorkerHello,
)
from fray.runtime.pool.messages.specs import DRIVER, ClientId, HostId
from fray.runtime.pool.transport.endpoints import Connection
from fray.runtime.pool.transport.frames import Frame
from fray.runtime.pool.transport.refusals import RefusalCounts

__all__ = ["Membership"]

_log = logging.getLogger(__name__)

NEWS_OF_DEATH_SECONDS = 2.0
"""How long the head waits for a nanny to say by itself why a worker's connection has ended."""
ANSWER_SECONDS = 30.0
"""How long it waits when it has asked the nanny to end that worker: the nanny's word doesn't depend on who is
quicker, so this is longer than machines stand still."""


FIRST_CLIENT: ClientId = 1 << 22
"""The number of the first client; workers have lower ones. What it makes has identities of 64 bits."""
_CHECKED_LATER = frozenset((TaskDone, ItemsProduced))


class Membership:
    """Hears connections: greets clients, nannies and workers, passes on what they say, tells of their loss.

    Parameters: the `loop` for timers; the `dispatcher` of their events; the table of `peers`; `refusals`,
    where those are counted that were cut off.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dispatcher: Dispatcher,
        *,
        peers: Peers,
        refusals: RefusalCounts,
    ) -> None:
        self.welcome: HostWelcome | None = None
        """What other hosts and clients learn of the pool; None: none is awaited."""
        self.questions: Mapping[str, Callable[[], Any]] = {
            "stats": dispatcher.state.stats,
            "running": dispatcher.state.count_running,
            "runs": lambda: dispatcher.state.runs(time.time() - time.monotonic()),
            "refusals": refusals.snapshot,
        }
        """What clients may ask, by name."""
        self.over = ""
        """Why the attempt of this pool's job is over; then that is the answer to all."""
        self.on_home_lost: Callable[[], bool] = lambda: False
        """Starts another nanny for the host of the driver that has this head; False: it's lost."""
        self._loop = loop
        self._dispatcher = dispatcher
        self._handle = dispatcher.handle
        self._peers = peers
        self._refusals = refusals
        self._hosts = itertools.count(1 if peers.home is None else peers.home + 1)
        self._clients = itertools.count(FIRST_CLIENT)
        self._python: tuple[str, str] | None = None
        """The Python of clients and hosts, and who was the first to have it."""

    def on_connection(self, connection: Connection) -> None:
        """Hear a connection from here on."""
        peer = Peer(connection)
        connection.on_frame = partial(self._on_frame, peer)
        connection.on_lost = partial(self._on_lost, peer)

    # --- what they say -------------------------------------------------------------------------------------

    def _on_frame(self, peer: Peer, frame: Frame) -> None:
        if self.over:
            # Those who begin with their versions are nannies and clients, which understand this.
            if frame.kind == STAMP:
                peer.connection.send(OVER, self.over.encode())
                self._loop.call_later(LAST_WORD_SECONDS, peer.connection.abort)
            return
        if self._dispatcher.stopped:
            return
        # Only authenticated peers get here: the transport hands over no frame before.
        if frame.kind == STAMP:
            self._compare(peer, frame.body)
            return
        try:
            messages = decode_messages(frame.body)
        except Exception as error:  # noqa: BLE001 - whatever unpickling what isn't ours raises
            refused = RefusedMessageError("a frame", f"can't be read: {type(error).__name__}: {error}")
            refused.__cause__ = error
            self._cut_off(peer, refused)
            return
        try:
            for message in messages:
                if peer.worker is not None:
                    # The state looks at ends of tasks and at items itself, where that costs little.
                    if type(message) not in _CHECKED_LATER:
                        check_message(message)
                    self._handle(peer.worker, message)
                    continue
                if peer.client is not None:
                    self._hear_client(peer, message)
                    continue
                check_message(message)
                if peer.host is not None:
                    self._hear_nanny(peer.host, message)
                else:
                    self._greet(peer, message)
        except RefusedMessageError as error:
            self._cut_off(peer, error)
        self._dispatcher.flush()

    def _hear_nanny(self, host: HostId, message: Any) -> None:
        if isinstance(message, WorkerLost):
            self._lose_worker(message)
        elif isinstance(message, ObjectSpilled | ObjectChecked | FilesFound) or (
            isinstance(message, HostLeaving) and message.host == host and not self._peers.has_client(host)
        ):
            self._handle(DRIVER, message)
        else:
            _log.warning("the nanny of host %s said %s, which only workers may", host, type(message).__name__)

    def _hear_client(self, peer: Peer, message: Any) -> None:
        client = peer.client
        assert client is not None
        check_message(message)
        kind = type(message)
        if kind is Ask:
            self._answer(peer, message)
        elif kind is TellEnded:
            self._dispatcher.tell_ended(client, on=message.on)
        elif kind in (ObjectCopied, ObjectRelayed) and message.host != peer.host:
            raise RefusedMessageError(kind.__name__, "is about a host that isn't its own")
        else:
            self._handle(DRIVER if kind is ObjectRelayed else client, message)

    def _answer(self, peer: Peer, question: Ask) -> None:
        asked = self.questions.get(question.what)
        if asked is None:
            raise RefusedMessageError("Ask", f"is for {question.what!r:.100}, of which nothing is known")
        self._peers.send(peer, Answered(question.number, asked()))

    # --- joining -------------------------------------------------------------------------------------------

    def _compare(self, peer: Peer, body: bytes | memoryview) -> None:
        """Refuse a peer whose versions the pool can't work with."""
        try:
            stamp = Stamp.from_json(bytes(body))
        except ValueError as error:
            self._cut_off(peer, RefusedMessageError("a stamp", str(error)))
            return
        name = peer.connection.peer
        if self._python is None:
            self._python = (stamp.python, name)
        problem = describe_difference(stamp, Stamp.here(), *self._python)
        if not problem:
            peer.stamped = True
            return
        _log.warning("%s is refused: %s", name, problem)
        peer.connection.send(REFUSAL, problem.encode())
        peer.connection.close()

    def _greet(self, peer: Peer, message: Any) -> None:
        if isinstance(message, WorkerHello) and self._peers.home_of(message.worker) is not None:
            self._peers.add_worker(peer, message.worker)
            self._handle(DRIVER, WorkerJoined(message.worker))
        elif isinstance(message, ClientHello) and peer.stamped and self.welcome is not None:
            self._greet_client(peer, message)
        elif isinstance(message, NannyHello) and (host := self._number(peer, message)):
            self._peers.add_nanny(peer, host, message.objects)
            self._join(peer, message._replace(host=host))
        else:
            _log.warning("%s said %s, which isn't awaited here; it's cut off", peer.connection.peer, message)
            peer.connection.abort()

    def _greet_client(self, peer: Peer, hello: ClientHello) -> None:
        assert self.welcome is not None
        client, host = next(self._clients), next(self._hosts)
        self._peers.add_client(peer, client, host)
        self._peers.send(
            peer, ClientWelcome(client, host, token=self.welcome.token, attach=self.welcome.attach)
        )
        self._peers.send_addresses(peer)
        self._handle(DRIVER, ClientJoined(client))
        # Whatever it puts lies on a host that the pool knows; its nanny, which comes later, hears the rest.
        self._handle(DRIVER, HostJoined(host, hello.name, hello.resources, hello.workers, hello.store_limit))

    def _number(self, peer: Peer, hello: NannyHello) -> HostId:
        """Return the number of a nanny's host, which gets it if it's new; 0: none is awaited."""
        if hello.host:
            known = self._peers.has_client(hello.host) and not self._peers.has_nanny(hello.host)
            return hello.host if known else 0
        if not peer.stamped or self.welcome is None:
            return 0
        host = next(self._hosts)
        self._peers.send(peer, self.welcome._replace(host=host))
        return host

    def _join(self, peer: Peer, hello: NannyHello) -> None:
        if self._peers.has_joined(hello.host):
            self._peers.send_missed(peer, hello.host)
            return
        self._peers.note_joined(hello.host)
        self._handle(
            DRIVER, HostJoined(hello.host, hello.name, hello.resources, hello.workers, hello.store_limit)
        )

    # --- losing --------------------------------------------------------------------------------------------

    def _cut_off(self, peer: Peer, error: RefusedMessageError) -> None:
        """Lose a process that has sent what can't be taken, and nothing else."""
        self._refusals.count("malformed")
        _log.error("%s is cut off: %s", peer.connection.peer, error, exc_info=error.__cause__)
        if peer.worker is not None:
            self._give_up(WorkerLost(peer.worker, f"was cut off, since it sent this: {error.message}"))
        peer.connection.abort()  # the loss of a client or a nanny is reported by that
        if error.__cause__ is not None:
            # It may have been half done when it failed: then nothing can be trusted any more.
            self._dispatcher.state.check()

    def _on_lost(self, peer: Peer, error: TransportError) -> None:
        if self._dispatcher.stopped:
            return
        if peer.client is not None:
            self._lose_client(peer.client, error.message)
        elif peer.host is not None and self._peers.is_nanny(peer):
            self._lose_nanny(peer.host, error.message)
        elif peer.worker is not None and self._peers.home_of(peer.worker) is not None:
            # Its nanny knows more, and will tell soon.
            lost = WorkerLost(peer.worker, f"its connection ended: {error.message}")
            self._loop.call_later(NEWS_OF_DEATH_SECONDS, self._end_unheard, lost)
        self._dispatcher.flush()

    def _end_unheard(self, lost: WorkerLost) -> None:
        """Have a worker ended that can't be reached, unless its nanny has reported its end by now."""
        if not self._dispatcher.stopped and self._peers.home_of(lost.worker) is not None:
            self._dispatcher.stop_worker(StopWorker(lost.worker, kill=True, reason=lost.reason))
            self._loop.call_later(ANSWER_SECONDS, self._give_up, lost)
        self._dispatcher.flush()

    def _give_up(self, lost: WorkerLost) -> None:
        if not self._dispatcher.stopped and self._peers.home_of(lost.worker) is not None:
            self._dispatcher.stop_worker(StopWorker(lost.worker, kill=True, reason=lost.reason))
            self._lose_worker(lost)
        self._dispatcher.flush()

    def _lose_worker(self, lost: WorkerLost) -> None:
        if self._peers.home_of(lost.worker) is None:
            return
        peer = self._peers.remove_worker(lost.worker)
        self._handle(DRIVER, lost)
        self._handle(DRIVER, ClientLost(lost.worker, lost.retired))
        if peer is not None:
            peer.connection.abort()

    def _lose_client(self, client: ClientId, reason: str) -> None:
        """Lose a client, with its host: what it waited for, nobody needs any more."""
        host = self._peers.remove_client(client)
        self._handle(DRIVER, ClientLost(client))
        self._peers.remove_nanny(host)
        self._lose_host(host, f"its client has gone: {reason}")

    def _lose_nanny(self, host: HostId, reason: str) -> None:
        self._peers.remove_nanny(host)
        # As one event, so that what ran there isn't sent to another worker of the same host.
        if self._peers.has_client(host) and (host != self._peers.home or self.on_home_lost()):
            self._handle(DRIVER, NannyLost(host, reason))
        else:
            self._lose_host(host, reason)

    def _lose_host(self, host: HostId, reason: str) -> None:
        self._peers.remove_host(host)
        self._handle(DRIVER, HostLost(host, reason))
        self._peers.tell_addresses()
        for needed in self._dispatcher.state.homeless:
            _log.warning(
                "host %s is lost (%s), and no other has what tasks or actors wait for (%s): they fail in "
                "%g s unless such a host joins",
                host,
                reason,
                needed,
                HOMELESS_SECONDS,
            )


def describe_difference(stamp: Stamp, here: Stamp, python: str, first: str) -> str:
    """Return why a peer of those versions can't be in a pool, and what to do; empty: it can.

    `here` are the head's own; `python` is that of all others, of whom `first` was the first.
    """
    if stamp.python != python:
        return (
            f"this process has Python {stamp.python}, and those of the pool ({first} was the first) have "
            f"{python}: functions don't run in another one. Give the job and its workers images with the "
            "same minor version of Python."
        )
    if stamp.fray != here.fray:
        return (
            f"this process has Fray {stamp.fray}, and the pool's head has {here.fray}. Give the job, its "
            "workers and the head images with the same version of Fray."
        )
    return ""
